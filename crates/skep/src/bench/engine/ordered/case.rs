//! The cases of the ordered store: which operations, on which keys, and what an ideal store would touch for them.
//!
//! A case reads in one way and writes in one way, so many of 256 operations: the mixes of YCSB and of Honeycomb's
//! cloud storage (section 6.2), and reads or writes alone. What a mix inserts is deleted again behind the clock, so that
//! all cases meet the same store.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_store::memory::LINE_SIZE;

use crate::bench::distribution::{Distribution, Generator};
use crate::bench::engine::limit::Ideal;
use crate::bench::engine::measure::Course;

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: &'static str,
    read: Read,
    write: Write,
    /// Of 256 operations, those that write.
    writes_in_256: u16,
    keys: Keys,
    /// Whether the gets of a batch, and its scans, go through the tree together, and its writes are announced.
    pub(super) is_batched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Get,
    /// From a key on, so many pairs: any number from the first to the second.
    Scan(u16, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    /// A put to a key that exists.
    Update,
    /// A put to a new key, uniformly random as all keys are.
    Insert,
    /// Of the keys that a case has inserted.
    Delete,
    /// A put behind a get of the key: a read-modify-write as YCSB's client does it.
    AfterGet,
}

/// Which keys are popular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    Uniform,
    Zipf,
    /// The keys inserted last.
    Latest,
}

const GET: Read = Read::Get;
/// The paper's cloud storage: ranges that hold three pairs at first, and four where one was inserted.
const SHORT: Read = Read::Scan(3, 4);
const YCSB_E: Read = Read::Scan(1, 100);

const fn mix(name: &'static str, read: Read, write: Write, writes_in_256: u16, keys: Keys) -> Case {
    Case { name, read, write, writes_in_256, keys, is_batched: true }
}

const fn single(name: &'static str, read: Read, write: Write, writes_in_256: u16) -> Case {
    Case { name, read, write, writes_in_256, keys: Keys::Uniform, is_batched: false }
}

/// All cases. `delete` comes behind `put_new` and removes what that has put. Of `cloud_80_zipf`, 80 of 100 operations read.
pub(super) const CASES: [Case; 32] = [
    mix("get_uniform", GET, Write::Update, 0, Keys::Uniform),
    single("get_single_uniform", GET, Write::Update, 0),
    mix("put_existing", GET, Write::Update, 256, Keys::Uniform),
    single("put_existing_single", GET, Write::Update, 256),
    mix("put_new", GET, Write::Insert, 256, Keys::Uniform),
    mix("delete", GET, Write::Delete, 256, Keys::Uniform),
    mix("scan_24_uniform", Read::Scan(24, 24), Write::Update, 0, Keys::Uniform),
    single("scan_24_single_uniform", Read::Scan(24, 24), Write::Update, 0),
    mix("ycsb_a_uniform", GET, Write::Update, 128, Keys::Uniform),
    mix("ycsb_a_zipf", GET, Write::Update, 128, Keys::Zipf),
    mix("ycsb_b_uniform", GET, Write::Update, 13, Keys::Uniform),
    mix("ycsb_b_zipf", GET, Write::Update, 13, Keys::Zipf),
    mix("ycsb_c_uniform", GET, Write::Update, 0, Keys::Uniform),
    mix("ycsb_c_zipf", GET, Write::Update, 0, Keys::Zipf),
    mix("ycsb_d_uniform", GET, Write::Insert, 13, Keys::Uniform),
    mix("ycsb_d_latest", GET, Write::Insert, 13, Keys::Latest),
    mix("ycsb_e_uniform", YCSB_E, Write::Insert, 13, Keys::Uniform),
    mix("ycsb_e_zipf", YCSB_E, Write::Insert, 13, Keys::Zipf),
    mix("ycsb_f_uniform", GET, Write::AfterGet, 128, Keys::Uniform),
    mix("ycsb_f_zipf", GET, Write::AfterGet, 128, Keys::Zipf),
    mix("cloud_50_uniform", SHORT, Write::Insert, 128, Keys::Uniform),
    mix("cloud_50_zipf", SHORT, Write::Insert, 128, Keys::Zipf),
    mix("cloud_60_uniform", SHORT, Write::Insert, 102, Keys::Uniform),
    mix("cloud_60_zipf", SHORT, Write::Insert, 102, Keys::Zipf),
    mix("cloud_70_uniform", SHORT, Write::Insert, 77, Keys::Uniform),
    mix("cloud_70_zipf", SHORT, Write::Insert, 77, Keys::Zipf),
    mix("cloud_80_uniform", SHORT, Write::Insert, 51, Keys::Uniform),
    mix("cloud_80_zipf", SHORT, Write::Insert, 51, Keys::Zipf),
    mix("cloud_90_uniform", SHORT, Write::Insert, 26, Keys::Uniform),
    mix("cloud_90_zipf", SHORT, Write::Insert, 26, Keys::Zipf),
    mix("cloud_100_uniform", SHORT, Write::Insert, 0, Keys::Uniform),
    mix("cloud_100_zipf", SHORT, Write::Insert, 0, Keys::Zipf),
];

impl Case {
    /// Whether the case takes part when this distribution was chosen; `None`: all.
    pub(super) fn takes_part(&self, distribution: Option<Distribution>) -> bool {
        let own = match self.keys {
            Keys::Uniform => Distribution::Uniform,
            Keys::Zipf => Distribution::Zipf,
            Keys::Latest => Distribution::Latest,
        };
        self.course() != Course::Steady || distribution.is_none_or(|distribution| distribution == own)
    }

    /// What an ideal store touches: it finds the leaf by what the caches hold, one line that says where in the leaf the
    /// key is, and behind it the pairs, adjacent.
    pub(super) fn ideal(&self, kv_size: usize) -> Ideal {
        let read_lines = match self.read {
            Read::Get => kv_size.div_ceil(LINE_SIZE),
            Read::Scan(least, most) => (usize::from(least + most) * kv_size).div_ceil(2 * LINE_SIZE),
        };
        let (reads, writes) = (256 - usize::from(self.writes_in_256), usize::from(self.writes_in_256));
        let mean = (reads * read_lines + writes * kv_size.div_ceil(LINE_SIZE) + 128) / 256;
        Ideal { dependent_lines: mean as u64, writes_in_256: self.writes_in_256 }
    }

    /// Inserting alone fills, deleting empties.
    pub(super) fn course(&self) -> Course {
        match (self.write, self.writes_in_256) {
            (Write::Insert, 256) => Course::Filling,
            (Write::Delete, _) => Course::Emptying,
            _ => Course::Steady,
        }
    }
}

/// An operation that was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Get,
    /// So many pairs.
    Scan(usize),
    Put,
    Delete,
    ReadModifyWrite,
}

impl Operation {
    /// Whether it may change the store.
    pub(super) fn is_write(self) -> bool {
        !matches!(self, Operation::Get | Operation::Scan(_))
    }
}

/// Draws the keys and operations of batches.
pub(super) struct Draw {
    random: Xoshiro256PlusPlus,
    zipf: Generator,
    latest: Generator,
    pair_count: u64,
    /// Records that a case has inserted and not deleted: the first of them, and the one behind the last.
    fresh: std::ops::Range<u64>,
}

impl Draw {
    pub(super) fn new(random: Xoshiro256PlusPlus, pair_count: u64) -> Self {
        let generator = |distribution| Generator::new(distribution, pair_count);
        let (zipf, latest) = (generator(Distribution::Zipf), generator(Distribution::Latest));
        Draw { random, zipf, latest, pair_count, fresh: pair_count..pair_count }
    }

    /// The records and operations of a batch. Fewer when a case that only inserts has put one new pair for a hundred old
    /// ones, or one that deletes has come to the end of them.
    pub(super) fn batch(&mut self, case: &Case, size: usize, operations: &mut Vec<(u64, Operation)>) {
        let fresh_count = self.fresh.end - self.fresh.start;
        let size = match case.course() {
            Course::Steady => size,
            Course::Filling => size.min(((self.pair_count / 100).max(1) - fresh_count) as usize),
            Course::Emptying => size.min(fresh_count as usize),
        };
        operations.clear();
        // The reads of a batch come before its writes, so they know the records of earlier batches only.
        let known = self.fresh.clone();
        for _ in 0..size {
            let is_write = self.random.random_range(0..256) < case.writes_in_256;
            operations.push(match (is_write, case.write, case.read) {
                (true, Write::Insert, _) => {
                    self.fresh.end += 1;
                    (self.fresh.end - 1, Operation::Put)
                }
                (true, Write::Delete, _) => (self.next_fresh().expect("there are as many"), Operation::Delete),
                (true, Write::Update, _) => (self.record(case, &known), Operation::Put),
                (true, Write::AfterGet, _) => (self.record(case, &known), Operation::ReadModifyWrite),
                (false, _, Read::Get) => (self.record(case, &known), Operation::Get),
                (false, _, Read::Scan(least, most)) => {
                    let count = usize::from(self.random.random_range(least..=most));
                    (self.record(case, &known), Operation::Scan(count))
                }
            });
        }
    }

    /// The next record that was inserted, to be deleted.
    pub(super) fn next_fresh(&mut self) -> Option<u64> {
        self.fresh.next()
    }

    /// A record that exists; `known` are those that were inserted.
    fn record(&mut self, case: &Case, known: &std::ops::Range<u64>) -> u64 {
        match case.keys {
            Keys::Uniform => self.random.random_range(0..self.pair_count),
            Keys::Zipf => self.zipf.draw(&mut self.random),
            Keys::Latest => {
                let rank = self.pair_count - 1 - self.latest.draw(&mut self.random);
                let known_count = known.end - known.start;
                if rank < known_count { known.end - 1 - rank } else { self.pair_count - 1 - (rank - known_count) }
            }
        }
    }
}
