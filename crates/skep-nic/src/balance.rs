//! Calculates the share of the load that the NIC's DRAM should take (KV-Direct, sections 3.3.4 and 6.3.1, Tables 5 and
//! 6).
//!
//! k = NIC memory / host memory, and r = throughput of NIC DRAM / of PCIe. The load is n keys under a long tail. A
//! share l of the memory is cacheable, with hit rate h(l). Both sides are equally busy when
//!
//! ```text
//! l / r = (1 − l) + l (1 − h(l)) = 1 − l h(l)            h(l) = ln(k n) / ln(l n)
//! ```
//!
//! The paper's tables let h exceed 1 where k > l, and count only the DRAM side where l would exceed 1. The paper states
//! n = 10⁹, but the tables were calculated with n = 10¹⁰: then the largest difference falls from 0.024 to 0.0008.

/// Number of keys that reproduces the paper's tables.
pub const KEYS_OF_TABLES: f64 = 1e10;

/// The properties of a board that the balance depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Balance {
    /// r: throughput of NIC DRAM over that of PCIe.
    pub throughput_ratio: f64,
    /// k: size of NIC memory over that of host memory.
    pub memory_ratio: f64,
    /// n: keys.
    pub keys: f64,
}

impl Balance {
    /// Returns h(l) under a long tail. It exceeds 1 where the cacheable part is smaller than the cache.
    pub fn hit_rate(&self, dispatch_ratio: f64) -> f64 {
        (self.memory_ratio * self.keys).ln() / (dispatch_ratio * self.keys).ln()
    }

    /// Returns the best l, at most 1. Expects at least 100 keys in the NIC's memory.
    pub fn dispatch_ratio(&self) -> f64 {
        solve(self.throughput_ratio, std::f64::consts::E / self.keys, |ratio| self.hit_rate(ratio))
    }

    /// Returns the throughput with the best l over that of partitioning, as printed in the paper: r / l, the DRAM's
    /// side.
    pub fn gain_as_printed(&self) -> f64 {
        self.throughput_ratio / self.dispatch_ratio() / self.partitioned()
    }

    /// Returns the same quotient if PCIe has to serve the misses and the hit rate is at most 1.
    pub fn gain_as_possible(&self) -> f64 {
        let ratio = self.dispatch_ratio();
        let missing = 1.0 - ratio * self.hit_rate(ratio).min(1.0);
        (self.throughput_ratio / ratio).min(1.0 / missing) / self.partitioned()
    }

    /// Returns the share of the memory that the NIC holds if the memory is partitioned. It is the share of the sizes,
    /// limited to the share that makes both sides equally busy.
    pub fn partition_share(&self) -> f64 {
        let (k, r) = (self.memory_ratio, self.throughput_ratio);
        (k / (1.0 + k)).min(r / (1.0 + r))
    }

    /// Returns the throughput of the partitioned memory over that of PCIe alone.
    pub fn partitioned(&self) -> f64 {
        let share = self.partition_share();
        1.0 / (share / self.throughput_ratio).max(1.0 - share)
    }
}

/// Returns the l from `least` to 1 at which `l / r = 1 − l h(l)`. Returns 1 if PCIe is the busier side up to there. `h`
/// may be the formula or the measured hit rate of a cache. l h(l) must not fall.
pub fn solve(throughput_ratio: f64, least: f64, hit_rate: impl Fn(f64) -> f64) -> f64 {
    let surplus = |ratio: f64| ratio / throughput_ratio - (1.0 - ratio * hit_rate(ratio));
    if surplus(1.0) <= 0.0 {
        return 1.0;
    }
    let (mut low, mut high) = (least, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if surplus(middle) > 0.0 {
            high = middle;
        } else {
            low = middle;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::references;

    fn board(series: &str, memory_ratio: f64) -> Balance {
        let throughput_ratio = series.trim_start_matches("r=").parse().unwrap();
        Balance { throughput_ratio, memory_ratio, keys: KEYS_OF_TABLES }
    }

    #[test]
    fn table_5_is_reproduced() {
        let rows = references(include_str!("../papers/table5-load-dispatch-ratio.csv"));
        assert_eq!(rows.len(), 30);
        for row in rows {
            let ratio = board(&row.series, row.x()).dispatch_ratio();
            assert!((ratio - row.y).abs() < 0.001, "{row:?}: {ratio}");
        }
    }

    #[test]
    fn table_6_is_reproduced_as_printed() {
        for row in references(include_str!("../papers/table6-load-dispatch-speedup.csv")) {
            let gain = board(&row.series, row.x()).gain_as_printed();
            assert!((gain / row.y - 1.0).abs() < 0.008, "{row:?}: {gain}");
        }
    }

    #[test]
    fn saturated_cells_gain_less_than_printed() {
        for (r, k, possible) in [(4.0, 1024.0, 3.32), (8.0, 1024.0, 3.32), (8.0, 256.0, 4.14), (8.0, 64.0, 5.45)] {
            let board = Balance { throughput_ratio: r, memory_ratio: 1.0 / k, keys: KEYS_OF_TABLES };
            assert_eq!(board.dispatch_ratio(), 1.0);
            assert!((board.gain_as_possible() / possible - 1.0).abs() < 0.03, "r={r}, k=1/{k}");
            assert!(board.gain_as_printed() > 1.15 * board.gain_as_possible());
        }
    }

    #[test]
    fn both_sides_are_equally_busy() {
        for keys in [1e6, 1e9] {
            let board = Balance { throughput_ratio: 1.5, memory_ratio: 1.0 / 16.0, keys };
            let ratio = board.dispatch_ratio();
            let pcie = (1.0 - ratio) + ratio * (1.0 - board.hit_rate(ratio));
            assert!((ratio / 1.5 - pcie).abs() < 1e-9);
            assert!((board.gain_as_possible() / board.gain_as_printed() - 1.0).abs() < 1e-9);
        }
    }
}
