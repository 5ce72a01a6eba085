//! What a board is sized for: pairs, operations and the popularity of keys. It is checked, and scaled to a memory that
//! can be simulated.

use skep_store::hash::Settings;

use super::SizingError;
use crate::dispatcher::LINE_BYTES;
use crate::hardware::Hardware;
use crate::load::corpus::{Corpus, CorpusSettings};
use crate::load::mix::Mix;
use crate::load::pairs::{KEY_BYTES_MIN, PAIR_BYTES_MAX, Pairs, Sizes};
use crate::load::run::Outcome;

/// Pairs of a scaled memory of one NIC, at least. With several NICs, each has fewer.
const PAIRS_MIN: f64 = 40_000.0;
const PAIRS_MIN_OF_SEVERAL: f64 = 15_000.0;
/// Lines of a scaled memory, as powers of two.
const LINE_BITS: std::ops::RangeInclusive<u32> = 15..=20;
/// Longest key, in bytes.
const KEY_BYTES_MAX: u32 = skep_core::operation::KEY_SIZE_MAX as u32;
/// Largest value, in bytes. Larger ones would need more parts than a run has operations.
const VALUE_BYTES_MAX: u32 = 1 << 16;
const SKEW_MAX: f64 = 1.5;
/// Pairs from which the means of their sizes are calculated.
const SAMPLE: u32 = 2000;
/// Part of a utilization that was not asked for, after pairs of different sizes did not fit.
const LESS: f64 = 0.93;
/// Number of such attempts.
const ATTEMPTS: u32 = 8;
/// Largest share of operations that may fail in a run.
const FAILED_MAX: f64 = 0.005;

/// The load of the board.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Sizes of keys and values.
    pub pairs: Pairs,
    /// Shares of operations.
    pub mix: Mix,
    /// Share of GETs, PUTs and updates that are on one and the same key, from 0 to 1.
    pub hot_share: f64,
    /// θ of Zipf's law. With 0, all keys are equally popular. YCSB's long tail is 0.99.
    pub skew: f64,
    /// Bytes of keys and values over bytes of memory. `None`: the utilization that the store assumes if it knows only
    /// the sizes.
    pub utilization: Option<f64>,
}

/// A corpus of a scaled memory, with its settings.
pub(super) struct Loaded {
    pub(super) corpus: Corpus,
    pub(super) settings: Settings,
    pub(super) utilization: f64,
}

impl Demand {
    /// Returns GETs and PUTs of pairs of one size, with keys of 4 bytes.
    pub fn of_puts(kv_bytes: u32, put_share: f64, skew: f64) -> Self {
        let (pairs, mix) = (Pairs::of_bytes(kv_bytes), Mix::of_puts(put_share));
        Demand { pairs, mix, hot_share: 0.0, skew, utilization: None }
    }

    /// Returns the requests that an average operation has, because clients divide pairs of more than a slab.
    pub(super) fn parts(&self) -> f64 {
        if self.pairs.most() > PAIR_BYTES_MAX { self.pairs.stored(SAMPLE).1 } else { 1.0 }
    }

    /// Checks that all values are possible.
    pub(super) fn check(&self) -> Result<(), SizingError> {
        let Demand { pairs, mix, .. } = self;
        check_sizes("key-size", &pairs.keys, KEY_BYTES_MIN, KEY_BYTES_MAX)?;
        check_sizes("value-size", &pairs.values, 1, VALUE_BYTES_MAX)?;
        let shares = [("put", mix.put), ("insert", mix.insert), ("delete", mix.delete), ("update", mix.update)];
        for (field, share) in shares.into_iter().chain([("hot-key", self.hot_share)]) {
            if !(0.0..=1.0).contains(&share) {
                return refuse(field, format!("{share} is not between 0 and 1"));
            }
        }
        if let Some(sum) = Some(shares.iter().map(|(_, share)| share).sum::<f64>()).filter(|sum| *sum > 1.0 + 1e-9) {
            let [(_, put), (_, insert), (_, delete), (_, update)] = shares;
            let reason = format!(
                "{put} and the {insert}, {delete}, {update} of inserts, deletes, updates are {sum:.2}, more than 1"
            );
            return refuse("put", reason);
        }
        if mix.update > 0.0 && pairs.most() > PAIR_BYTES_MAX {
            let reason = format!(
                "clients divide pairs above {PAIR_BYTES_MAX} B, so an update of {} B is not atomic: use 0, or smaller pairs",
                pairs.most()
            );
            return refuse("update", reason);
        }
        if !(0.0..=SKEW_MAX).contains(&self.skew) {
            return refuse("skew", format!("{} is not between 0 and {SKEW_MAX}", self.skew));
        }
        match self.utilization {
            Some(utilization) if !(utilization > 0.0 && utilization < 1.0) => {
                refuse("utilization", format!("{utilization} is not above 0 and below 1"))
            }
            _ => Ok(()),
        }
    }

    /// Loads a scaled memory for runs of this many operations of each NIC. Expects a demand that is possible.
    pub(super) fn load(&self, hardware: &Hardware, operations: u32, seed: u64) -> Result<Loaded, SizingError> {
        let most = self.utilization.unwrap_or_else(|| self.default_utilization());
        let attempts = if self.utilization.is_some() || self.is_one_slab() { 1 } else { ATTEMPTS };
        // New keys need room that is not where the deleted ones were.
        let changes = self.utilization.is_none() && self.mix.insert + self.mix.delete > 0.0;
        let mut utilization = if changes { LESS * most } else { most };
        for _ in 0..attempts {
            if let Some(loaded) = self.load_at(hardware, utilization, operations, seed) {
                return Ok(loaded);
            }
            utilization *= LESS;
        }
        let bytes = self.pairs.mean();
        let reason = if self.is_one_slab() {
            let room = Settings::utilization_max(bytes as usize);
            format!("{most} is too high for pairs of {bytes} B, which fill less than {room:.2}")
        } else {
            let room = self.default_utilization();
            format!(
                "{most:.3} is not possible for these pairs and operations: sizes that differ or are divided fill about {room:.2}, and insertions need memory for at least three times their number"
            )
        };
        refuse("utilization", reason)
    }

    fn load_at(&self, hardware: &Hardware, utilization: f64, operations: u32, seed: u64) -> Option<Loaded> {
        let nics = hardware.server.nics;
        let (stored, parts) = self.pairs.stored(SAMPLE);
        let part_bytes = (stored / parts).round() as usize;
        let reserve = (f64::from(operations) * self.mix.insert.max(self.mix.delete)).ceil();
        let least = if nics > 1 { PAIRS_MIN_OF_SEVERAL } else { PAIRS_MIN };
        let wanted = least.max(4.0 * reserve) / parts * self.pairs.mean() / utilization;
        let bits = (wanted / f64::from(LINE_BYTES)).log2().round() as u32;
        let memory = u64::from(LINE_BYTES) << bits.clamp(*LINE_BITS.start(), *LINE_BITS.end());
        let store = match self.utilization {
            Some(_) => {
                let of_store = (utilization * stored / self.pairs.mean()).min(0.99);
                Settings::for_utilization(memory, part_bytes, of_store, seed)?
            }
            None => Settings::for_kv_size(memory, part_bytes, seed),
        };
        // The scaled memory has fewer buckets, and the last random chains may not get theirs.
        let mut scaled = utilization - 0.005_f64.min(utilization / 2.0);
        if nics > 1 {
            // It also has so few keys that they are not distributed evenly.
            let keys = memory as f64 * utilization / self.pairs.mean();
            scaled *= (1.0 - 4.0 / keys.sqrt()).max(0.5);
        }
        let (pairs, settings) = (self.pairs.clone(), store.clone());
        let of_corpus = CorpusSettings { store, pairs, utilization: scaled, reserve: reserve as u32 };
        Some(Loaded { corpus: Corpus::load_with(hardware, of_corpus)?, settings, utilization })
    }

    /// Returns true if all pairs have one size and fit a slab. Then the store's settings are exact.
    fn is_one_slab(&self) -> bool {
        self.pairs.are_equal() && self.pairs.most() <= PAIR_BYTES_MAX
    }

    /// Returns the share of the memory that pairs of these sizes fill, if the store knows only the sizes.
    fn default_utilization(&self) -> f64 {
        if self.is_one_slab() {
            return Settings::utilization_for(self.pairs.mean() as usize);
        }
        let (mut bytes, mut memory) = (0.0, 0.0);
        for key in 0..SAMPLE {
            let key_bytes = self.pairs.key_bytes(key);
            let parts = self.pairs.part_count(key);
            bytes += f64::from(key_bytes + self.pairs.value_bytes(key));
            for part in 0..parts {
                let part_bytes = f64::from(key_bytes + self.pairs.part_value_bytes(key, part));
                memory += part_bytes / Settings::utilization_for(part_bytes as usize);
            }
        }
        bytes / memory
    }
}

fn check_sizes(field: &'static str, sizes: &Sizes, least: u32, most: u32) -> Result<(), SizingError> {
    if sizes.0.is_empty() || !sizes.0.iter().all(|range| range.share > 0.0 && range.share.is_finite()) {
        return refuse(field, "every range of sizes needs a share above 0".to_owned());
    }
    for range in &sizes.0 {
        if range.least > range.most {
            return refuse(field, format!("{} is more than {}", range.least, range.most));
        }
        for bytes in [range.least, range.most] {
            if !(least..=most).contains(&bytes) {
                return refuse(field, format!("{bytes} is not between {least} and {most} bytes"));
            }
        }
    }
    Ok(())
}

/// Checks that nearly all operations of a run found their keys and room for new ones.
pub(super) fn check_room(run: &Outcome, utilization: f64) -> Result<(), SizingError> {
    if run.failed_share <= FAILED_MAX {
        return Ok(());
    }
    let (failed, lower) = (100.0 * run.failed_share, 0.9 * utilization);
    refuse(
        "utilization",
        format!("{utilization:.3} leaves no room for {failed:.1} % of the operations: try {lower:.2}"),
    )
}

pub(super) fn refuse<T>(field: &'static str, reason: String) -> Result<T, SizingError> {
    Err(SizingError::Demand { field, reason })
}
