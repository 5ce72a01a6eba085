//! Reads and writes of parts of large values, at the sizes and positions where the pieces of a value begin and end.
//!
//! ```text
//! sizes   508, 512 (a slab), 4096 (8 slabs: no index), 65,536 (128 slabs: one index slab), 524,288 (8 index slabs)
//! ```

use std::time::Instant;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::function::{BitField, BitFields, BitRange, FieldPosition, Overflow};
use skep_core::operation::{
    Expiry, ExpiryChange, ExpiryCondition, Operation, OperationError, PutCondition, Reply, Request, StringRead,
    StringWrite, VALUE_SIZE_MAX,
};
use skep_store::cache::{self, Cache};
use skep_store::hash::Settings;
use skep_store::memory::{AccessCounts, CountingMemory, LINE_SIZE, LocalMemory};
use skep_store::naive::{Harness, NaiveStore, seeds};
use skep_store::ordered::{OrderedSettings, OrderedStore};
use skep_store::processor::{Processor, Replies};

const KEYS: [&[u8]; 3] = [b"a", b"another key", &[b'k'; 200]];
/// Sizes around which values begin and end.
const BOUNDARIES: [usize; 9] = [1, 508, 512, 1024, 4096, 8192, 65_536, 66_048, 70_000];

/// An operation, and the bytes that it borrows.
enum Owned {
    Put(Vec<u8>),
    Append(Vec<u8>),
    Overwrite(u32, Vec<u8>),
    Fields(Vec<u8>),
    Read(StringRead<'static>),
    Expire(ExpiryChange),
    Get,
    Delete,
}

impl Owned {
    fn as_operation(&self) -> Operation<'_> {
        match self {
            Owned::Put(value) => Operation::Put { value, condition: PutCondition::Always },
            Owned::Append(bytes) => Operation::StringWrite(StringWrite::Append(bytes)),
            Owned::Overwrite(offset, bytes) => {
                Operation::StringWrite(StringWrite::Overwrite { offset: *offset, bytes })
            }
            Owned::Fields(list) => Operation::StringWrite(StringWrite::Fields(BitFields::new(list))),
            Owned::Read(read) => Operation::StringRead(*read),
            Owned::Expire(expiry) => {
                let condition = ExpiryCondition::Always;
                Operation::StringWrite(StringWrite::Expire { expiry: *expiry, condition, return_value: false })
            }
            Owned::Get => Operation::Get,
            Owned::Delete => Operation::Delete,
        }
    }
}

/// Random operations.
struct Source {
    random: Xoshiro256PlusPlus,
}

impl Source {
    /// Returns a position near a boundary.
    fn position(&mut self) -> usize {
        let boundary = BOUNDARIES[self.random.random_range(0..BOUNDARIES.len())];
        (boundary + self.random.random_range(0..20)).saturating_sub(10)
    }

    fn bytes(&mut self, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        self.random.fill_bytes(&mut bytes);
        bytes
    }

    fn few_bytes(&mut self) -> Vec<u8> {
        let size = [0, 1, 7, 64, 600, 5000][self.random.random_range(0..6)];
        self.bytes(size)
    }

    fn field(&mut self) -> BitField {
        let offset = (self.position() * 8 + self.random.random_range(0..8)) as u64;
        let position = FieldPosition { offset, bits: self.random.random_range(1..=63), is_signed: false };
        let number = self.random.random();
        match self.random.random_range(0..3) {
            0 => BitField::Get(position),
            1 => BitField::Set(position, Overflow::Wrap, number),
            _ => BitField::Add(position, Overflow::Fail, number),
        }
    }

    fn range(&mut self) -> BitRange {
        let in_bits = self.random.random_range(0..2) == 0;
        let unit = if in_bits { 8 } else { 1 };
        let position = |source: &mut Source| {
            let sign = if source.random.random_range(0..4) == 0 { -1 } else { 1 };
            (source.position() * unit + source.random.random_range(0..unit)) as i64 * sign
        };
        let (start, end) = (position(self), position(self));
        BitRange { start, end: (self.random.random_range(0..3) > 0).then_some(end), in_bits }
    }

    fn operation(&mut self) -> Owned {
        match self.random.random_range(0..20) {
            0 => {
                let size = self.position();
                Owned::Put(if self.random.random_range(0..2) == 0 { vec![0xff; size] } else { self.bytes(size) })
            }
            1..=4 => Owned::Append(self.few_bytes()),
            5..=8 => Owned::Overwrite(self.position() as u32, self.few_bytes()),
            9..=11 => {
                let mut list = Vec::new();
                (0..self.random.random_range(1..4)).for_each(|_| self.field().append_to(&mut list));
                Owned::Fields(list)
            }
            12 => Owned::Read(StringRead::CountBits(self.range())),
            13 => Owned::Read(StringRead::FindBit { bit: self.random.random(), range: self.range() }),
            14 => Owned::Read(StringRead::Slice { start: self.position() as i64, end: -(self.position() as i64) }),
            15 => Owned::Read(StringRead::Digest),
            16 => Owned::Expire(ExpiryChange::set(Expiry::at(1 << 40).unwrap())),
            17 => Owned::Expire(ExpiryChange::CLEAR),
            18 => Owned::Get,
            _ if self.random.random_range(0..4) == 0 => Owned::Delete,
            _ => Owned::Read(StringRead::Size),
        }
    }
}

/// Executes random operations on a store and on the naive one.
fn compare(seed: u64, operations: u64, mut store: impl FnMut(&[Request<'_>], &mut Replies)) -> Harness {
    let mut harness = Harness::new(NaiveStore::new(), 1 << 20, seed);
    let mut source = Source { random: Xoshiro256PlusPlus::seed_from_u64(seed) };
    while harness.operations() < operations {
        let count = source.random.random_range(1..12);
        let batch: Vec<_> =
            (0..count).map(|_| (KEYS[source.random.random_range(0..KEYS.len())], source.operation())).collect();
        let requests: Vec<_> =
            batch.iter().map(|(key, operation)| Request { key, operation: operation.as_operation() }).collect();
        harness.execute(&requests, &mut store);
    }
    let keys: Vec<Vec<u8>> = harness.naive().iter().map(|(key, _)| key.to_vec()).collect();
    let gets: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
    harness.execute(&gets, &mut store);
    harness
}

#[test]
fn parts_of_values_in_the_hash_store_are_those_of_the_naive_store() {
    for seed in seeds(&[1, 2, 3]) {
        // Three values of 75 KB fit; or two of them, so that growing fails too.
        for (memory, fails) in [(4 << 20, false), (200 << 10, true)] {
            let settings = Settings { memory, hash_index_ratio: 0.05, inline_threshold: 30, grows: false, seed };
            let mut processor = Processor::new(&settings).unwrap();
            let empty = processor.statistics().slab_free_bytes;
            let harness = compare(seed, 700, |requests, replies| processor.execute(requests, replies));
            assert_eq!(harness.failed(OperationError::SlabFull) > 0, fails, "seed {seed}");
            assert_eq!(processor.statistics().pair_bytes, harness.naive().key_and_value_bytes(), "seed {seed}");
            let deletes = KEYS.map(|key| Request { key, operation: Operation::Delete });
            processor.execute(&deletes, &mut Replies::with_budget(usize::MAX));
            assert_eq!(processor.statistics().pair_bytes, 0, "seed {seed}");
            assert_eq!(processor.statistics().slab_free_bytes, empty, "seed {seed}: all slabs are free again");
        }
    }
}

#[test]
fn parts_of_values_in_the_other_stores_are_those_of_the_naive_store() {
    let seed = seeds(&[4])[0];
    let store = OrderedStore::new(&OrderedSettings::new(32 << 20)).unwrap();
    let mut session = store.session().unwrap();
    compare(seed, 400, |requests, replies| session.execute(requests, replies, Instant::now()));
    let settings = cache::Settings { memory: 64 << 20, kv_size: 64 << 10, seed };
    let mut cache = Cache::new(&settings).unwrap();
    compare(seed, 400, |requests, replies| cache.execute(requests, replies));
}

#[test]
fn values_grow_through_all_heights() {
    let settings = Settings { memory: 4 << 20, hash_index_ratio: 0.05, inline_threshold: 30, grows: false, seed: 7 };
    for step in [100_000, 4096, 32_768, 50_021] {
        let mut processor = Processor::new(&settings).unwrap();
        let mut replies = Replies::with_budget(4 << 20);
        let mut value = Vec::new();
        while value.len() + step <= VALUE_SIZE_MAX {
            let bytes: Vec<u8> = (0..step).map(|index| (((value.len() + index) * 31) >> 5) as u8).collect();
            value.extend_from_slice(&bytes);
            let append = Operation::StringWrite(StringWrite::Append(&bytes));
            processor.execute(&[Request { key: b"k", operation: append }], &mut replies);
            assert_eq!(replies.get(0), Reply::Value(&(value.len() as i64).to_le_bytes()));
        }
        processor.execute(&[Request { key: b"k", operation: Operation::Get }], &mut replies);
        assert!(replies.get(0) == Reply::Value(&value), "steps of {step}");
        let too_long = Operation::StringWrite(StringWrite::Append(&value));
        processor.execute(&[Request { key: b"k", operation: too_long }], &mut replies);
        assert!(matches!(replies.get(0), Reply::Failed(_)));
        processor.execute(&[Request { key: b"k", operation: Operation::Get }], &mut replies);
        assert!(replies.get(0) == Reply::Value(&value), "a refused operation has no effect");
    }
}

/// Lines of the bucket, of the root, and of the index on the path to a byte, read and written.
const PATH_LINES: u64 = 32;

#[test]
fn a_part_of_a_large_value_costs_its_lines() {
    let settings = Settings::for_kv_size(16 << 20, 4096, 7);
    let memory = CountingMemory::new(LocalMemory::new(settings.memory).unwrap());
    let mut processor = Processor::with_memory(memory, &settings).unwrap();
    let mut replies = Replies::with_budget(4 << 20);
    let mut cost = |operation: Operation<'_>| -> AccessCounts {
        let before = processor.memory().counts();
        processor.execute(&[Request { key: b"k", operation }], &mut replies);
        assert!(!matches!(replies.get(0), Reply::Failed(_) | Reply::Deferred), "{operation:?}");
        processor.memory().counts() - before
    };
    let size = VALUE_SIZE_MAX - 50_000;
    let value = vec![0x55; size];
    cost(Operation::Put { value: &value, condition: PutCondition::Always });
    fn write(offset: usize, bytes: &[u8]) -> StringWrite<'_> {
        StringWrite::Overwrite { offset: offset as u32, bytes }
    }
    for k in [1, 64, 1000, 10_000] {
        let (bytes, lines) = (vec![7; k], (k / LINE_SIZE) as u64);
        for offset in [0, 5, 511, 65_535, 524_280, size - k] {
            let slice = StringRead::Slice { start: offset as i64, end: (offset + k - 1) as i64 };
            let read = cost(Operation::StringRead(slice));
            assert!(read.lines() <= lines + PATH_LINES, "{k} at {offset}: {read:?}");
            assert_eq!(read.write_accesses, 0);
            let written = cost(Operation::StringWrite(write(offset, &bytes)));
            assert!(written.lines() <= 2 * lines + PATH_LINES, "{k} at {offset}: {written:?}");
            let mut list = Vec::new();
            let position = FieldPosition { offset: offset as u64 * 8, bits: 8, is_signed: false };
            BitField::Set(position, Overflow::Wrap, 1).append_to(&mut list);
            let set = cost(Operation::StringWrite(StringWrite::Fields(BitFields::new(&list))));
            assert!(set.lines() <= 2 * PATH_LINES, "a field at {offset}: {set:?}");
        }
        // New slabs are written twice: with zeros, then with the bytes, which reads them.
        let appended = cost(Operation::StringWrite(StringWrite::Append(&bytes)));
        assert!(appended.lines() <= 4 * lines + 3 * PATH_LINES, "{k} appended: {appended:?}");
    }
    let nothing = cost(Operation::StringWrite(StringWrite::Append(b"")));
    assert!(nothing.lines() <= PATH_LINES && nothing.write_accesses == 0, "{nothing:?}");
}

#[test]
fn a_fold_reads_each_line_once_and_writes_none() {
    let settings = Settings::for_kv_size(16 << 20, 4096, 7);
    let memory = CountingMemory::new(LocalMemory::new(settings.memory).unwrap());
    let mut processor = Processor::with_memory(memory, &settings).unwrap();
    let mut replies = Replies::with_budget(4 << 20);
    let value = vec![0xff; VALUE_SIZE_MAX];
    let put = Operation::Put { value: &value, condition: PutCondition::Always };
    processor.execute(&[Request { key: b"k", operation: put }], &mut replies);
    let lines = (VALUE_SIZE_MAX / LINE_SIZE) as u64;
    let index = (VALUE_SIZE_MAX / 512 * 4 / LINE_SIZE) as u64;
    let half = BitRange { start: 0, end: Some(VALUE_SIZE_MAX as i64 / 2), in_bits: false };
    let found = StringRead::FindBit { bit: true, range: BitRange::ALL };
    for (read, most) in [
        (StringRead::CountBits(BitRange::ALL), lines + index),
        (StringRead::CountBits(half), (lines + index) / 2),
        (StringRead::FindBit { bit: false, range: BitRange::ALL }, lines + index),
        (StringRead::Digest, lines + index),
        (found, 8 + index),
    ] {
        let before = processor.memory().counts();
        processor.execute(&[Request { key: b"k", operation: Operation::StringRead(read) }], &mut replies);
        let counts = processor.memory().counts() - before;
        assert!(counts.lines() <= most + PATH_LINES, "{read:?}: {counts:?}");
        assert_eq!(counts.write_accesses, 0, "{read:?}");
        assert!(replies.bytes_touched() <= most as usize * LINE_SIZE + 4096, "{read:?}");
    }
}
