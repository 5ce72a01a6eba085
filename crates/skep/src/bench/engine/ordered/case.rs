//! The cases of the ordered store: their operations, their keys, and the lines that an ideal store would touch for
//! them.
//!
//! A case is a [`Mix`], or it only inserts or only deletes. The mixes are those of YCSB and of Honeycomb's cloud
//! storage (section 6.2). The keys that a mix inserts are deleted outside the measured time, so that all cases run on
//! the same store.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_store::memory::LINE_SIZE;

use crate::bench::engine::limit::Ideal;
use skep_measure::distribution::{Distribution, Generator};
use skep_measure::mix::{Mix, Read, Write};

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: &'static str,
    kind: Kind,
    keys: Keys,
    /// True if the gets of a batch descend the tree in lock step, and so do its scans, and its writes are prefetched.
    pub(super) is_batched: bool,
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mix(Mix),
    /// Puts to new keys; all keys are uniformly random.
    Insert,
    /// Deletes of keys that a case has inserted.
    Delete,
}

/// The distribution of popularity over the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    Uniform,
    Zipf,
    /// The keys inserted last are the most popular.
    Latest,
}

const GETS: Mix = Mix::C;
const PUTS: Mix = Mix::new(Read::Get, Write::Update, 100);
const SCANS: Mix = Mix::new(Read::Scan(24, 24), Write::Update, 0);

const fn mix(name: &'static str, mix: Mix, keys: Keys) -> Case {
    Case { name, kind: Kind::Mix(mix), keys, is_batched: true }
}

const fn single(name: &'static str, mix: Mix) -> Case {
    Case { name, kind: Kind::Mix(mix), keys: Keys::Uniform, is_batched: false }
}

const fn only(name: &'static str, kind: Kind) -> Case {
    Case { name, kind, keys: Keys::Uniform, is_batched: true }
}

/// All cases. In `cloud_80_zipf`, 80 of 100 operations read.
pub(super) const CASES: [Case; 32] = [
    mix("get_uniform", GETS, Keys::Uniform),
    single("get_single_uniform", GETS),
    mix("put_existing", PUTS, Keys::Uniform),
    single("put_existing_single", PUTS),
    only("put_new", Kind::Insert),
    only("delete", Kind::Delete),
    mix("scan_24_uniform", SCANS, Keys::Uniform),
    single("scan_24_single_uniform", SCANS),
    mix("ycsb_a_uniform", Mix::A, Keys::Uniform),
    mix("ycsb_a_zipf", Mix::A, Keys::Zipf),
    mix("ycsb_b_uniform", Mix::B, Keys::Uniform),
    mix("ycsb_b_zipf", Mix::B, Keys::Zipf),
    mix("ycsb_c_uniform", Mix::C, Keys::Uniform),
    mix("ycsb_c_zipf", Mix::C, Keys::Zipf),
    mix("ycsb_d_uniform", Mix::D, Keys::Uniform),
    mix("ycsb_d_latest", Mix::D, Keys::Latest),
    mix("ycsb_e_uniform", Mix::E, Keys::Uniform),
    mix("ycsb_e_zipf", Mix::E, Keys::Zipf),
    mix("ycsb_f_uniform", Mix::F, Keys::Uniform),
    mix("ycsb_f_zipf", Mix::F, Keys::Zipf),
    mix("cloud_50_uniform", Mix::cloud_storage(50), Keys::Uniform),
    mix("cloud_50_zipf", Mix::cloud_storage(50), Keys::Zipf),
    mix("cloud_60_uniform", Mix::cloud_storage(60), Keys::Uniform),
    mix("cloud_60_zipf", Mix::cloud_storage(60), Keys::Zipf),
    mix("cloud_70_uniform", Mix::cloud_storage(70), Keys::Uniform),
    mix("cloud_70_zipf", Mix::cloud_storage(70), Keys::Zipf),
    mix("cloud_80_uniform", Mix::cloud_storage(80), Keys::Uniform),
    mix("cloud_80_zipf", Mix::cloud_storage(80), Keys::Zipf),
    mix("cloud_90_uniform", Mix::cloud_storage(90), Keys::Uniform),
    mix("cloud_90_zipf", Mix::cloud_storage(90), Keys::Zipf),
    mix("cloud_100_uniform", Mix::cloud_storage(100), Keys::Uniform),
    mix("cloud_100_zipf", Mix::cloud_storage(100), Keys::Zipf),
];

impl Case {
    /// Returns true if the case runs with this distribution; `None` runs all.
    pub(super) fn takes_part(&self, distribution: Option<Distribution>) -> bool {
        let own = match self.keys {
            Keys::Uniform => Distribution::Uniform,
            Keys::Zipf => Distribution::Zipf,
            Keys::Latest => Distribution::Latest,
        };
        self.opposite().is_some() || distribution.is_none_or(|distribution| distribution == own)
    }

    /// Returns the lines that an ideal store touches. It finds the leaf in lines that the caches hold. Then it reads
    /// one line that tells the offset of the key in the leaf, and the adjacent lines of the pairs.
    pub(super) fn ideal(&self, kv_size: usize) -> Ideal {
        let pair_lines = kv_size.div_ceil(LINE_SIZE);
        let Kind::Mix(mix) = self.kind else {
            return Ideal { dependent_lines: pair_lines as u64, writes_in_256: 256 };
        };
        let read_lines = mix
            .read
            .pair_counts()
            .map_or(pair_lines, |(least, most)| ((least + most) as usize * kv_size).div_ceil(2 * LINE_SIZE));
        let writes_in_256 = mix.writes_in_256() as usize;
        let mean = ((256 - writes_in_256) * read_lines + writes_in_256 * pair_lines + 128) / 256;
        Ideal { dependent_lines: mean as u64, writes_in_256: writes_in_256 as u16 }
    }

    /// Returns the case that undoes this one when its keys run out. A case of inserts stops when as many keys are new
    /// as allowed, and a case of deletes when none is left.
    pub(super) fn opposite(&self) -> Option<Case> {
        match self.kind {
            Kind::Mix(_) => None,
            Kind::Insert => Some(Case { kind: Kind::Delete, ..*self }),
            Kind::Delete => Some(Case { kind: Kind::Insert, ..*self }),
        }
    }
}

/// An operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Get,
    /// A scan of this many pairs.
    Scan(usize),
    /// A scan of this many pairs from the floor of a key inside the record.
    ScanFromFloor(usize),
    Put,
    Delete,
    /// An atomic update.
    Modify,
}

impl Operation {
    /// Returns true if it may change the store.
    pub(super) fn is_write(self) -> bool {
        !matches!(self, Operation::Get | Operation::Scan(_) | Operation::ScanFromFloor(_))
    }
}

/// Draws the keys and operations of batches.
pub(super) struct Draw {
    random: Xoshiro256PlusPlus,
    zipf: Generator,
    latest: Generator,
    pair_count: u64,
    /// Records that a case has inserted and not yet deleted.
    inserted: std::ops::Range<u64>,
}

impl Draw {
    pub(super) fn new(random: Xoshiro256PlusPlus, pair_count: u64) -> Self {
        let generator = |distribution| Generator::new(distribution, pair_count);
        let (zipf, latest) = (generator(Distribution::Zipf), generator(Distribution::Latest));
        Draw { random, zipf, latest, pair_count, inserted: pair_count..pair_count }
    }

    /// Draws the records and operations of a batch. The batch is smaller when inserts have added one
    /// new pair for a hundred old ones, or when no key is left to delete.
    pub(super) fn batch(&mut self, case: &Case, size: usize, operations: &mut Vec<(u64, Operation)>) {
        let inserted_count = self.inserted.end - self.inserted.start;
        let size = match case.kind {
            Kind::Mix(_) => size,
            Kind::Insert => size.min(((self.pair_count / 100).max(1) - inserted_count) as usize),
            Kind::Delete => size.min(inserted_count as usize),
        };
        operations.clear();
        // The reads of a batch are executed before its writes, so they can only read records of earlier batches.
        let known = self.inserted.clone();
        for _ in 0..size {
            operations.push(match case.kind {
                Kind::Insert => self.insert(),
                Kind::Delete => {
                    (self.next_inserted().expect("the batch is not larger than their number"), Operation::Delete)
                }
                Kind::Mix(mix) if self.random.random_range(0..100) < mix.writes_in_100 => match mix.write {
                    Write::Insert => self.insert(),
                    Write::Update => (self.record(case, &known), Operation::Put),
                    Write::Modify => (self.record(case, &known), Operation::Modify),
                },
                Kind::Mix(mix) => {
                    let counts = mix.read.pair_counts();
                    let count = counts.map_or(0, |(least, most)| self.random.random_range(least..=most) as usize);
                    let operation = match mix.read {
                        Read::Scan(..) => Operation::Scan(count),
                        Read::ScanFromFloor(..) => Operation::ScanFromFloor(count),
                        Read::Get | Read::Sum => Operation::Get,
                    };
                    (self.record(case, &known), operation)
                }
            });
        }
    }

    /// Returns a new record and its put.
    fn insert(&mut self) -> (u64, Operation) {
        self.inserted.end += 1;
        (self.inserted.end - 1, Operation::Put)
    }

    /// Returns the next inserted record, which the caller deletes.
    pub(super) fn next_inserted(&mut self) -> Option<u64> {
        self.inserted.next()
    }

    /// Draws a record that exists. `known` are the inserted ones among them.
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
