//! The workloads by name, the generator of their operations, and the bytes of keys and values.
//!
//! A to F are YCSB's, and `cloud` is Honeycomb's cloud storage; [`Mix`] has their reads and writes. `reduce` is
//! specific to Skep: it sums up the elements of a value next to the data. With values of some KiB it is costly for the
//! store and cheap for the network. It shows how a server behaves under more load than it can execute.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::function::Fold;
use skep_core::operation::{Operation, PutCondition, Reduce, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart};

use skep_measure::distribution::Generator;
use skep_measure::mix::{Mix, Read, Write, inside};

use super::modify::{modify, widest_element};

/// A workload by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Workload {
    // Half reads, half puts.
    A,
    // 95% reads, 5% puts.
    B,
    // Reads only.
    C,
    // 95% reads, 5% inserts.
    D,
    // 95% scans, 5% inserts.
    E,
    // Half reads, half atomic read-modify-writes.
    F,
    // Short scans from a floor, and inserts.
    Cloud,
    // The sum of each value's elements.
    Reduce,
}

impl Workload {
    /// Returns its mix. In cloud storage, this many of a hundred operations read.
    pub(crate) fn mix(self, cloud_reads_in_100: u32) -> Mix {
        match self {
            Workload::A => Mix::A,
            Workload::B => Mix::B,
            Workload::C => Mix::C,
            Workload::D => Mix::D,
            Workload::E => Mix::E,
            Workload::F => Mix::F,
            Workload::Cloud => Mix::cloud_storage(cloud_reads_in_100),
            Workload::Reduce => Mix::new(Read::Sum, Write::Update, 0),
        }
    }
}

/// One operation, drawn before the clock runs.
///
/// ```text
/// bit 63          8         1       0
///     │ record: 40 │ pairs: 7 │ write │      pairs of a scan; 0 of other operations
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    packed: u64,
}

const PAIRS_SHIFT: u32 = 1;
const RECORD_SHIFT: u32 = 8;
const PAIRS_MAX: u32 = (1 << (RECORD_SHIFT - PAIRS_SHIFT)) - 1;
const _: () = assert!(RECORD_BITS + RECORD_SHIFT <= u64::BITS);

impl Draw {
    fn new(record: u64, pair_count: u32, is_write: bool) -> Self {
        assert!(pair_count <= PAIRS_MAX);
        Draw { packed: record << RECORD_SHIFT | u64::from(pair_count) << PAIRS_SHIFT | u64::from(is_write) }
    }

    /// Returns the number of a loaded record; an insert uses another one.
    pub(crate) fn record(self) -> u64 {
        self.packed >> RECORD_SHIFT
    }

    /// Returns the number of pairs in a scan.
    pub(crate) fn pair_count(self) -> u32 {
        (self.packed >> PAIRS_SHIFT) as u32 & PAIRS_MAX
    }

    pub(crate) fn is_write(self) -> bool {
        self.packed & 1 == 1
    }
}

/// Draws `count` operations.
pub(crate) fn draw(mix: Mix, generator: &Generator, count: usize, seed: u64) -> Vec<Draw> {
    use rand::SeedableRng;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..count)
        .map(|_| {
            let is_write = random.random_range(0..100) < mix.writes_in_100;
            let pair_count = match mix.read.pair_counts() {
                Some((least, most)) if !is_write => random.random_range(least..=most),
                _ => 0,
            };
            Draw::new(generator.draw(&mut random), pair_count, is_write)
        })
        .collect()
}

/// Keys of the records. If they are long enough, a prefix distinguishes them from the keys of other programs.
///
/// ```text
/// 1 to 7 bytes  | number            |
/// 8 to 13       | "b:"     | number |  filling "..." |     number: 6 bytes that differ from record to record
/// 14 and more   | "bench:" | number |  filling "..." |     number: 8 bytes
/// ```
///
/// Keys with a prefix depend on the seed, so that a run does not delete the keys of a run with another seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    size: usize,
    prefix: &'static str,
    /// Added to the number of a record.
    offset: u64,
}

/// Numbers of records are below this power of two.
pub(crate) const RECORD_BITS: u32 = 40;

impl Keys {
    /// Returns the keys of `size` bytes.
    pub(crate) fn new(size: usize, seed: u64) -> Self {
        let prefix = match size {
            14.. => "bench:",
            8.. => "b:",
            _ => "",
        };
        Keys { size, prefix, offset: if prefix.is_empty() { 0 } else { seed << RECORD_BITS } }
    }

    /// Returns the most records that have different keys of this size.
    pub(crate) fn record_count_max(self) -> u64 {
        1 << (8 * self.number_size()).min(RECORD_BITS as usize)
    }

    /// Appends the key of a record.
    pub(crate) fn append(self, record: u64, out: &mut Vec<u8>) {
        let end = out.len() + self.size;
        out.extend_from_slice(self.prefix.as_bytes());
        let number = if self.prefix.is_empty() { record } else { mix(record | self.offset, self.number_size()) };
        out.extend_from_slice(&number.to_le_bytes()[..self.number_size()]);
        out.resize(end, b'.');
    }

    fn number_size(self) -> usize {
        (self.size - self.prefix.len()).min(size_of::<u64>())
    }
}

/// Applies the finaliser of SplitMix64 to the low `size` bytes. Different numbers stay different, and neighbours get
/// unrelated values.
fn mix(mut z: u64, size: usize) -> u64 {
    let mask = u64::MAX >> (64 - 8 * size);
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15) & mask;
    z = (z ^ z >> (4 * size - 2)).wrapping_mul(0xbf58_476d_1ce4_e5b9) & mask;
    z = (z ^ z >> (4 * size - 5)).wrapping_mul(0x94d0_49bb_1331_11eb) & mask;
    z ^ z >> (4 * size - 1)
}

/// Random bytes from which values are cut, so that neighbouring puts of a batch differ.
#[derive(Debug)]
pub(crate) struct Values {
    bytes: Vec<u8>,
    size: usize,
    next: usize,
}

/// Number of offsets at which a value can begin.
const VALUE_STARTS: usize = 4096;

impl Values {
    /// Returns values of `size` bytes.
    pub(crate) fn new(size: usize, seed: u64) -> Self {
        use rand::SeedableRng;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Values { bytes: (0..size + VALUE_STARTS).map(|_| random.random()).collect(), size, next: 0 }
    }

    /// Returns the offset of the next value.
    pub(crate) fn next_start(&mut self) -> usize {
        self.next = (self.next + 61) % VALUE_STARTS;
        self.next
    }

    /// Returns the value at an offset.
    pub(crate) fn at(&self, start: usize) -> &[u8] {
        &self.bytes[start..start + self.size]
    }
}

/// Appends the key of a drawn operation on a record: that of the record, or one inside it.
pub(crate) fn append_key(mix: Mix, draw: Draw, keys: Keys, record: u64, out: &mut Vec<u8>) {
    let begin = out.len();
    keys.append(record, out);
    if matches!(mix.read, Read::ScanFromFloor(..)) && !draw.is_write() {
        inside(&mut out[begin..]);
    }
}

/// Returns the drawn operation. A put stores `value`; all values have its size.
pub(crate) fn operation(mix: Mix, draw: Draw, value: &[u8]) -> Operation<'_> {
    if draw.is_write() {
        return match mix.write {
            Write::Update | Write::Insert => Operation::Put { value, condition: PutCondition::Always },
            Write::Modify => modify(value.len()),
        };
    }
    match mix.read {
        Read::Get => Operation::Get,
        Read::Sum => {
            let element = widest_element(value.len());
            let initial = &ZERO[..element.width()];
            Operation::Reduce(Reduce { fold: Fold::Sum, element, initial, constants: &[] })
        }
        Read::Scan(..) | Read::ScanFromFloor(..) => Operation::Scan(Scan {
            start: if matches!(mix.read, Read::Scan(..)) { ScanStart::AtOrAbove } else { ScanStart::Floor },
            end: ScanEnd::Last,
            reverse: false,
            limit: draw.pair_count(),
            answer: ScanAnswer::Pairs,
            lease: ScanLease::None,
        }),
    }
}

/// The number zero in any width.
const ZERO: [u8; 8] = [0; 8];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Draw, Keys, RECORD_BITS, Values, Workload, draw, operation};
    use skep_core::operation::Request;
    use skep_measure::distribution::{Distribution, Generator};

    #[test]
    fn mixes_are_those_of_ycsb_and_of_cloud_storage() {
        let generator = Generator::new(Distribution::Uniform, 1000);
        let mixes = [
            (Workload::A, 0.5, 0..=0),
            (Workload::B, 0.05, 0..=0),
            (Workload::C, 0.0, 0..=0),
            (Workload::D, 0.05, 0..=0),
            (Workload::E, 0.05, 1..=100),
            (Workload::F, 0.5, 0..=0),
            (Workload::Cloud, 0.3, 3..=4),
            (Workload::Reduce, 0.0, 0..=0),
        ];
        for (workload, write_share, pair_counts) in mixes {
            let draws = draw(workload.mix(70), &generator, 100_000, 7);
            let writes = draws.iter().filter(|draw| draw.is_write()).count();
            assert!((writes as f64 / 100_000.0 - write_share).abs() < 0.01, "{workload:?}: {writes} (seed 7)");
            assert!(draws.iter().all(|draw| draw.record() < 1000));
            // All scan lengths are equally frequent.
            let kinds = f64::from(pair_counts.end() - pair_counts.start() + 1);
            for pair_count in pair_counts {
                let count = draws.iter().filter(|draw| !draw.is_write() && draw.pair_count() == pair_count).count();
                let share = count as f64 / (100_000 - writes) as f64;
                assert!((share * kinds - 1.0).abs() < 0.2, "{workload:?}: {pair_count} pairs {count} times (seed 7)");
            }
        }
    }

    #[test]
    fn packed_draws_are_unpacked() {
        for (record, pair_count, is_write) in [(0, 0, true), (5, 100, false), ((1 << RECORD_BITS) - 1, 127, true)] {
            let draw = Draw::new(record, pair_count, is_write);
            assert_eq!((draw.record(), draw.pair_count(), draw.is_write()), (record, pair_count, is_write));
        }
    }

    #[test]
    fn every_record_has_a_key_of_its_own() {
        for (size, prefix) in [(1, ""), (2, ""), (7, ""), (8, "b:"), (13, "b:"), (14, "bench:"), (460, "bench:")] {
            let mut seen = HashSet::new();
            // Keys with a prefix depend on the seed.
            for seed in if prefix.is_empty() { 1..2 } else { 1..4 } {
                let keys = Keys::new(size, seed);
                for record in 0..keys.record_count_max().min(2000) {
                    let mut key = Vec::new();
                    keys.append(record, &mut key);
                    assert_eq!(key.len(), size);
                    assert!(key.starts_with(prefix.as_bytes()), "{key:?}");
                    assert!(seen.insert(key), "record {record}, size {size}, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn operations_are_valid_for_values_of_any_size() {
        for size in [0, 1, 2, 6, 8, 12, 254] {
            let mut values = Values::new(size, 1);
            let start = values.next_start();
            for workload in [Workload::A, Workload::D, Workload::E, Workload::F, Workload::Cloud, Workload::Reduce] {
                for draw in [Draw::new(1, 1, true), Draw::new(1, 1, false)] {
                    let operation = operation(workload.mix(80), draw, values.at(start));
                    assert_eq!(Request { key: b"k", operation }.validate(), Ok(()), "{workload:?} {draw:?} {size}");
                }
            }
        }
    }
}
