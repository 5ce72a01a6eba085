//! The pairs of all comparisons: random keys of 8 bytes and values of 2 bytes, both computed from the number of the
//! record.
//!
//! ```text
//! record ─▶ 48 bits, mixed ─▶ 8 characters of 6 bits each      no two records have the same key
//! ```
//!
//! The keys are printable because memcached's text protocol accepts no others. All contenders get the same keys.
//! redis-benchmark makes its own keys of 16 bytes; [`PairForm::RedisBenchmark`] computes the same ones.

use rand::RngExt;
use rand_distr::{Distribution as _, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_measure::distribution::THETA;

/// The most records that have different keys.
pub const RECORD_COUNT_MAX: u64 = 1 << KEY_BITS;
/// The longest key of any form, in bytes.
pub const KEY_SIZE_MAX: usize = 16;
/// The longest value of any form, in bytes.
pub const VALUE_SIZE_MAX: usize = LARGE_VALUE_SIZE;

/// Bytes of the values of pairs of 64 and 254 bytes.
const MEDIUM_VALUE_SIZE: usize = 56;
const LARGE_VALUE_SIZE: usize = 246;
const KEY_BITS: u32 = 48;
/// The first value of a counter: its size stays the same while it counts.
const COUNTER: &[u8] = b"1000000000";
const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Coprime to every number of records that is no multiple of it, so multiplying by it scatters ranks over records.
const SCATTER: u64 = 2_654_435_761;

/// The two characters for each number of twelve bits.
static PAIRS: [[u8; 2]; 4096] = {
    let mut pairs = [[0; 2]; 4096];
    let mut number = 0;
    while number < 4096 {
        pairs[number] = [CHARACTERS[number >> 6], CHARACTERS[number & 63]];
        number += 1;
    }
    pairs
};

/// The sizes and contents of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairForm {
    /// Random keys of 8 bytes, values of 2.
    Random,
    /// Keys such as `key:000000000017` and values of 3 bytes, as redis-benchmark makes them.
    RedisBenchmark,
    /// Random keys of 8 bytes, values of ten digits.
    Counter,
    /// Random keys of 8 bytes, values of 8 printable bytes.
    Item,
    /// Random keys of 8 bytes, values of 56 bytes that repeat the key of another record.
    Medium,
    /// Random keys of 8 bytes, values of 246 bytes of the same kind.
    Large,
}

impl PairForm {
    /// Returns the bytes of a key.
    pub fn key_size(self) -> usize {
        match self {
            PairForm::RedisBenchmark => KEY_SIZE_MAX,
            _ => 8,
        }
    }

    /// Returns the bytes of a value.
    pub fn value_size(self) -> usize {
        match self {
            PairForm::Random => 2,
            PairForm::RedisBenchmark => 3,
            PairForm::Counter => COUNTER.len(),
            PairForm::Item => 8,
            PairForm::Medium => MEDIUM_VALUE_SIZE,
            PairForm::Large => LARGE_VALUE_SIZE,
        }
    }

    /// Writes the key of a record into a buffer of its size.
    #[inline]
    pub fn write_key(self, record: u64, key: &mut [u8]) {
        match self {
            PairForm::RedisBenchmark => {
                key[..4].copy_from_slice(b"key:");
                let mut rest = record;
                for digit in key[4..].iter_mut().rev() {
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
            }
            _ => key.copy_from_slice(&random_key(record)),
        }
    }

    /// Writes the value of a record into a buffer of its size.
    #[inline]
    pub fn write_value(self, record: u64, value: &mut [u8]) {
        match self {
            PairForm::Random => value.copy_from_slice(&random_value(record)),
            PairForm::RedisBenchmark => value.fill(b'x'),
            PairForm::Counter => value.copy_from_slice(COUNTER),
            PairForm::Item => value.copy_from_slice(&random_key(RECORD_COUNT_MAX - 1 - record)),
            PairForm::Medium | PairForm::Large => {
                let key = random_key(RECORD_COUNT_MAX - 1 - record);
                value.chunks_mut(key.len()).for_each(|chunk| chunk.copy_from_slice(&key[..chunk.len()]));
            }
        }
    }
}

/// Returns the key of a record below [`RECORD_COUNT_MAX`].
#[inline]
pub fn random_key(record: u64) -> [u8; 8] {
    let mixed = mix(record) as usize;
    let mut key = [0; 8];
    for (index, pair) in key.chunks_exact_mut(2).enumerate() {
        pair.copy_from_slice(&PAIRS[mixed >> (12 * index) & 4095]);
    }
    key
}

/// Returns the value of a record.
#[inline]
pub fn random_value(record: u64) -> [u8; 2] {
    ((record.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u16).to_le_bytes()
}

/// Mixes the bits of a record number. Both kinds of steps are invertible: multiplying by an odd number, and folding
/// upper bits into lower ones.
#[inline]
fn mix(record: u64) -> u64 {
    const MASK: u64 = RECORD_COUNT_MAX - 1;
    let mut bits = (record + 1).wrapping_mul(0x9e37_79b9_7f4b) & MASK;
    bits ^= bits >> 25;
    bits = bits.wrapping_mul(0xbf58_476d_1ce5) & MASK;
    bits ^ bits >> 24
}

/// Returns the record of a popularity rank; rank 0 is the most popular.
#[inline]
pub fn record_of_rank(rank: u64, record_count: u64) -> u64 {
    (u128::from(rank) * u128::from(SCATTER) % u128::from(record_count)) as u64
}

/// Draws popularity ranks by Zipf's law: rank `i`, from 0, with probability proportional to `1 / (i + 1)^`[`THETA`].
#[derive(Clone, Copy, Debug)]
pub struct Ranks {
    zipf: Zipf<f64>,
    record_count: u64,
}

impl Ranks {
    /// Returns the ranks of `record_count` records, at least 1.
    pub fn new(record_count: u64) -> Self {
        let zipf = Zipf::new(record_count as f64, THETA).expect("there is at least one record");
        Ranks { zipf, record_count }
    }

    /// Draws the next rank.
    #[inline]
    pub fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        (self.zipf.sample(random) as u64).clamp(1, self.record_count) - 1
    }
}

/// Draws records, uniformly or by Zipf's law.
#[derive(Clone, Debug)]
pub struct Draw {
    random: Xoshiro256PlusPlus,
    record_count: u64,
    ranks: Option<Ranks>,
}

impl Draw {
    /// Draws all records with the same probability.
    pub fn uniform(random: Xoshiro256PlusPlus, record_count: u64) -> Self {
        Draw { random, record_count, ranks: None }
    }

    /// Draws by the popularity of [`Ranks`]. They are scattered over the records; otherwise neighbours in the order of
    /// the fill would be popular together.
    pub fn zipf(random: Xoshiro256PlusPlus, record_count: u64) -> Self {
        Draw { random, record_count, ranks: Some(Ranks::new(record_count)) }
    }

    /// Draws `count` records.
    pub fn records(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next_record()).collect()
    }

    /// Draws the next record.
    #[inline]
    pub fn next_record(&mut self) -> u64 {
        match self.ranks {
            None => self.random.random_range(0..self.record_count),
            Some(ranks) => record_of_rank(ranks.draw(&mut self.random), self.record_count),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng;

    use super::*;

    #[test]
    fn keys_are_printable_and_differ() {
        let keys: HashSet<_> = (0..100_000).map(random_key).collect();
        assert_eq!(keys.len(), 100_000);
        assert!(keys.iter().flatten().all(u8::is_ascii_graphic));
    }

    #[test]
    fn redis_benchmark_pairs_look_like_its_own() {
        let (mut key, mut value) = ([0; 16], [0; 3]);
        PairForm::RedisBenchmark.write_key(9_876_543, &mut key);
        PairForm::RedisBenchmark.write_value(9_876_543, &mut value);
        assert_eq!((&key, &value), (b"key:000009876543", b"xxx"));
    }

    #[test]
    fn zipf_prefers_few_records_and_uniform_none() {
        let shares = |mut draw: Draw| {
            let mut counts = vec![0u32; 1000];
            for _ in 0..100_000 {
                counts[draw.next_record() as usize] += 1;
            }
            counts.sort_unstable();
            counts[999]
        };
        let random = || Xoshiro256PlusPlus::seed_from_u64(3);
        // The first of 1000 ranks has 1 / Σ i^-0.99 = 13%.
        assert!((12_000..14_500).contains(&shares(Draw::zipf(random(), 1000))));
        assert!(shares(Draw::uniform(random(), 1000)) < 200);
    }
}
