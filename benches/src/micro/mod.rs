//! Times each part by itself, on data that stays in the first-level caches: the cost of an operation without the cost
//! of memory.
//!
//! A workload has a name, a piece of work that can be repeated, and a hash of the results of its first run. The hash
//! depends on replies and on bytes on the wire, so an optimised implementation keeps it.

mod bucket;
mod codec;
mod store;

/// Work that can be repeated.
pub struct Workload {
    /// The part, and the operation on it.
    pub name: &'static str,
    /// Number of operations in one run.
    pub operations: u64,
    /// The hash of the first run.
    pub hash: u64,
    /// Runs the work once and returns a hash of its results.
    pub run: Box<dyn FnMut() -> u64>,
}

/// Returns all workloads in their initial state.
pub fn workloads() -> Vec<Workload> {
    [bucket::workloads(), store::workloads(), codec::workloads()].into_iter().flatten().collect()
}

/// Adds a number to a hash.
#[inline]
fn fold(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Adds bytes to a hash.
fn fold_bytes(hash: u64, bytes: &[u8]) -> u64 {
    fold(hash, rapidhash::v3::rapidhash_v3(bytes))
}

#[cfg(test)]
mod tests {
    use super::workloads;

    #[test]
    fn each_does_the_work_that_it_did() {
        let wrong: Vec<String> = workloads()
            .into_iter()
            .map(|mut workload| (workload.name, (workload.run)(), workload.hash))
            .filter(|(_, found, expected)| found != expected)
            .map(|(name, found, _)| format!("{name}: {found:#018x}"))
            .collect();
        assert!(wrong.is_empty(), "other work than before:\n{}", wrong.join("\n"));
    }

    #[test]
    fn each_can_be_repeated() {
        for mut workload in workloads() {
            (0..3).for_each(|_| _ = (workload.run)());
        }
    }
}
