//! The workloads of YCSB as operations of Skep: what is read, what is written, and with which bytes.
//!
//! | workload | reads | the rest |
//! |---|---|---|
//! | A | 50% | put of a new value |
//! | B | 95% | put of a new value |
//! | C | 100% | |
//! | F | 50% | read-modify-write |
//! | reduce | 100%, of which only a sum is sent | |
//!
//! YCSB's client does a read-modify-write as a get and a put, which loses updates when two clients meet. Here it is
//! one atomic update next to the data: every element of the value grows by one, and the old value is the answer.
//!
//! `reduce` is not one of YCSB's: the elements of the value are summed up next to the data. With values of some KiB it
//! costs the store much and the network next to nothing, so it shows what a server does that is asked for too much.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_store::function::{Element, Fold, UpdateFunction};
use skep_store::operation::{Operation, PutCondition, Reduce, Shape, Update};

use super::distribution::Generator;

/// A mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Workload {
    // Half reads, half puts.
    A,
    // 95% reads, 5% puts.
    B,
    // Reads only.
    C,
    // Half reads, half atomic read-modify-writes.
    F,
    // The sum of each value's elements.
    Reduce,
}

impl Workload {
    fn read_share(self) -> f64 {
        match self {
            Workload::A | Workload::F => 0.5,
            Workload::B => 0.95,
            Workload::C | Workload::Reduce => 1.0,
        }
    }
}

/// One operation, drawn before the clock runs: a record, and whether it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    /// The record and, as its lowest bit, whether it is written.
    packed: u64,
}

impl Draw {
    /// A number below 2⁶³.
    pub(crate) fn record(self) -> u64 {
        self.packed >> 1
    }

    pub(crate) fn is_write(self) -> bool {
        self.packed & 1 == 1
    }
}

/// Draws `count` operations.
pub(crate) fn draw(workload: Workload, generator: &Generator, count: usize, seed: u64) -> Vec<Draw> {
    use rand::SeedableRng;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let write_share = 1.0 - workload.read_share();
    (0..count)
        .map(|_| {
            let write = random.random_bool(write_share);
            Draw { packed: generator.draw(&mut random) << 1 | u64::from(write) }
        })
        .collect()
}

/// Bytes of the keys, which can be told from those of other programs where there is room for it.
///
/// ```text
/// 1 to 7 bytes  | number            |
/// 8 to 13       | "b:"     | number |  filling "..." |     number: 6 bytes that differ from record to record
/// 14 and more   | "bench:" | number |  filling "..." |     number: 8 bytes
/// ```
///
/// Runs of another seed have other keys where they have a prefix, so that one does not delete those of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    size: usize,
    prefix: &'static str,
    /// What is added to a record's number.
    offset: u64,
}

/// Records have numbers below this power of two.
pub(crate) const RECORD_BITS: u32 = 40;

impl Keys {
    /// Keys of `size` bytes.
    pub(crate) fn new(size: usize, seed: u64) -> Self {
        let prefix = match size {
            14.. => "bench:",
            8.. => "b:",
            _ => "",
        };
        Keys { size, prefix, offset: if prefix.is_empty() { 0 } else { seed << RECORD_BITS } }
    }

    /// How many records can have different keys of this size.
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

/// The finaliser of SplitMix64 on the low `size` bytes: different numbers stay different, neighbours become strangers.
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

/// Places at which a value can begin.
const VALUE_STARTS: usize = 4096;

impl Values {
    /// Values of `size` bytes.
    pub(crate) fn new(size: usize, seed: u64) -> Self {
        use rand::SeedableRng;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Values { bytes: (0..size + VALUE_STARTS).map(|_| random.random()).collect(), size, next: 0 }
    }

    /// Where the next value begins.
    pub(crate) fn next_start(&mut self) -> usize {
        self.next = (self.next + 61) % VALUE_STARTS;
        self.next
    }

    /// The value that begins there.
    pub(crate) fn at(&self, start: usize) -> &[u8] {
        &self.bytes[start..start + self.size]
    }
}

/// The read of a workload, of values of this size.
pub(crate) fn read(workload: Workload, value_size: usize) -> Operation<'static> {
    match workload {
        Workload::A | Workload::B | Workload::C | Workload::F => Operation::Get,
        Workload::Reduce => {
            let element = widest_element(value_size);
            let initial = &ZERO[..element.width()];
            Operation::Reduce(Reduce { fold: Fold::Sum, element, initial, constants: &[] })
        }
    }
}

/// Bytes of the value that answers a read.
pub(crate) fn read_size(workload: Workload, value_size: usize) -> usize {
    if workload == Workload::Reduce { widest_element(value_size).width() } else { value_size }
}

/// The write of a workload; `value` is the new value of a put.
pub(crate) fn write(workload: Workload, value: &[u8]) -> Operation<'_> {
    match workload {
        Workload::A | Workload::B | Workload::C | Workload::Reduce => {
            Operation::Put { value, condition: PutCondition::Always }
        }
        Workload::F => {
            let element = widest_element(value.len());
            Operation::Update(Update {
                function: UpdateFunction::Add,
                element,
                shape: Shape::ScalarToVector,
                operand: &ONE[..element.width()],
                initial: None,
                return_old: true,
            })
        }
    }
}

/// Zero in any width.
const ZERO: [u8; 8] = [0; 8];
/// One, little-endian, in any width.
const ONE: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

/// The widest unsigned element whose width divides the size of the value.
fn widest_element(value_size: usize) -> Element {
    let widths = [Element::U64, Element::U32, Element::U16];
    widths.into_iter().find(|element| value_size.is_multiple_of(element.width())).unwrap_or(Element::U8)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Keys, Values, Workload, draw, read, write};
    use crate::bench::distribution::{Distribution, Generator};
    use skep_store::operation::Request;

    #[test]
    fn mixes_are_those_of_ycsb() {
        let generator = Generator::new(Distribution::Uniform, 1000);
        let shares =
            [(Workload::A, 0.5), (Workload::B, 0.05), (Workload::C, 0.0), (Workload::F, 0.5), (Workload::Reduce, 0.0)];
        for (workload, write_share) in shares {
            let draws = draw(workload, &generator, 100_000, 7);
            let writes = draws.iter().filter(|draw| draw.is_write()).count();
            assert!((writes as f64 / 100_000.0 - write_share).abs() < 0.01, "{workload:?}: {writes} (seed 7)");
            assert!(draws.iter().all(|draw| draw.record() < 1000));
        }
    }

    #[test]
    fn every_record_has_a_key_of_its_own() {
        for (size, prefix) in [(1, ""), (2, ""), (7, ""), (8, "b:"), (13, "b:"), (14, "bench:"), (460, "bench:")] {
            let mut met = HashSet::new();
            // Runs of different seeds have different keys where there is room for a prefix.
            for seed in if prefix.is_empty() { 1..2 } else { 1..4 } {
                let keys = Keys::new(size, seed);
                for record in 0..keys.record_count_max().min(2000) {
                    let mut key = Vec::new();
                    keys.append(record, &mut key);
                    assert_eq!(key.len(), size);
                    assert!(key.starts_with(prefix.as_bytes()), "{key:?}");
                    assert!(met.insert(key), "record {record}, size {size}, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn writes_are_valid_for_values_of_any_size() {
        for size in [0, 1, 2, 6, 8, 12, 254] {
            let mut values = Values::new(size, 1);
            let start = values.next_start();
            for workload in [Workload::A, Workload::F] {
                let request = Request { key: b"k", operation: write(workload, values.at(start)) };
                assert_eq!(request.validate(), Ok(()), "{workload:?} {size}");
            }
            let request = Request { key: b"k", operation: read(Workload::Reduce, size) };
            assert_eq!(request.validate(), Ok(()), "{size}");
        }
    }
}
