//! The operations of a case, and their execution.

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_measure::mix::{self, Mix, Write};

use super::{Contender, Pair, Scan};
use crate::keys::{Ranks, record_of_rank};

/// Pairs in one step of a fill.
const FILL_STEP: usize = 1 << 16;

/// A mix of reads and writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Name in the table.
    pub name: &'static str,
    /// The kind of reads.
    pub read: Read,
    /// Share of the operations that put a pair.
    pub puts: f64,
    /// True if the puts insert new keys.
    pub inserts: bool,
    /// The keys that readers prefer, and writers that do not insert.
    pub keys: Keys,
}

/// A kind of read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Gets of one key, one after the other.
    GetSingle,
    /// Gets of one key, in batches if the contender can.
    Get,
    /// Scans from a key, of a random number of pairs between the first and the second number. In batches if the
    /// contender can.
    Scan(usize, usize),
    /// The same from the greatest key that is not above one inside a record.
    ScanFromFloor(usize, usize),
    /// Scans from a key, of this number of pairs, one after the other.
    ScanSingle(usize),
    /// Gets of one key, in batches; the puts are YCSB F's read-modify-writes.
    GetOrModify,
}

/// The distribution of popularity over the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// All records are equally popular.
    Uniform,
    /// A few scattered records are far more popular than the others.
    Zipf,
    /// The records inserted last are the most popular.
    Latest,
}

impl Case {
    /// Returns a case of reads alone, of uniform keys.
    pub const fn reads(name: &'static str, read: Read) -> Self {
        Case { name, read, puts: 0.0, inserts: false, keys: Keys::Uniform }
    }

    /// Returns the case of puts to keys that exist.
    pub const fn puts(name: &'static str) -> Self {
        Case { name, read: Read::Get, puts: 1.0, inserts: false, keys: Keys::Uniform }
    }

    /// Returns the case of a mix, in batches.
    pub fn mix(name: &'static str, mix: Mix, keys: Keys) -> Self {
        let read = match (mix.read, mix.write) {
            (mix::Read::Get, Write::Modify) => Read::GetOrModify,
            (mix::Read::Get, _) => Read::Get,
            (mix::Read::Scan(least, most), _) => Read::Scan(least as usize, most as usize),
            (mix::Read::ScanFromFloor(least, most), _) => Read::ScanFromFloor(least as usize, most as usize),
            (mix::Read::Sum, _) => unreachable!("maps have no sums"),
        };
        let puts = f64::from(mix.writes_in_100) / 100.0;
        Case { name, read, puts, inserts: mix.write == Write::Insert, keys }
    }
}

/// Operations that are executed together: gets, then scans, then puts, then read-modify-writes.
#[derive(Clone, Debug, Default)]
pub struct Batch<const N: usize> {
    gets: Vec<[u8; N]>,
    scans: Vec<Scan<N>>,
    puts: Vec<Pair<N>>,
    modifies: Vec<Pair<N>>,
}

/// Draws operations on records.
#[derive(Debug)]
pub struct Draw {
    random: Xoshiro256PlusPlus,
    ranks: Ranks,
    loaded: usize,
    /// Number of records that exist, with those inserted by earlier batches.
    records: usize,
    /// Number of records that are not removed after a slice.
    permanent: usize,
}

impl Draw {
    /// Returns the generator for a store that was filled with `loaded` records.
    pub fn new(loaded: usize) -> Self {
        Draw {
            random: Xoshiro256PlusPlus::seed_from_u64(1),
            ranks: Ranks::new(loaded as u64),
            loaded,
            records: loaded,
            permanent: loaded,
        }
    }

    /// Returns a generator over the same records with another seed. All records inserted so far become permanent.
    pub fn restarted(&self, seed: u64) -> Self {
        Draw { random: Xoshiro256PlusPlus::seed_from_u64(seed), permanent: self.records, ..*self }
    }

    /// Returns the records that were inserted and are not permanent. They can then be inserted again.
    pub fn take_inserted(&mut self) -> std::ops::Range<usize> {
        let inserted = self.permanent..self.records;
        self.records = self.permanent;
        inserted
    }

    /// Draws `operations` operations, in batches.
    pub fn batches<const N: usize>(&mut self, case: &Case, operations: usize, batch: usize) -> Vec<Batch<N>> {
        let sizes = (0..operations).step_by(batch).map(|first| batch.min(operations - first));
        sizes.map(|size| self.batch(case, size)).collect()
    }

    fn batch<const N: usize>(&mut self, case: &Case, size: usize) -> Batch<N> {
        let mut batch = Batch::default();
        let mut next = self.records;
        for _ in 0..size {
            let is_put = self.random.random_bool(case.puts);
            if is_put && case.inserts {
                batch.puts.push(pair(next));
                next += 1;
                continue;
            }
            let pair = pair(self.record(case.keys));
            let scan = |pair_count| Scan { key: pair.0, is_from_floor: false, pair_count };
            match case.read {
                Read::GetOrModify if is_put => batch.modifies.push(pair),
                _ if is_put => batch.puts.push(pair),
                Read::Get | Read::GetSingle | Read::GetOrModify => batch.gets.push(pair.0),
                Read::Scan(least, most) => batch.scans.push(scan(self.random.random_range(least..=most))),
                Read::ScanFromFloor(least, most) => {
                    let mut scan = Scan { is_from_floor: true, ..scan(self.random.random_range(least..=most)) };
                    mix::inside(&mut scan.key);
                    batch.scans.push(scan);
                }
                Read::ScanSingle(pair_count) => batch.scans.push(scan(pair_count)),
            }
        }
        self.records = next;
        batch
    }

    fn record(&mut self, keys: Keys) -> usize {
        match keys {
            Keys::Uniform => self.random.random_range(0..self.loaded),
            Keys::Zipf => record_of_rank(self.rank(), self.loaded as u64) as usize,
            Keys::Latest => self.records - 1 - self.rank() as usize,
        }
    }

    fn rank(&mut self) -> u64 {
        self.ranks.draw(&mut self.random)
    }
}

/// Returns the pair of a record. Records are inserted in the order of their numbers; their keys are random.
pub fn pair<const N: usize>(record: usize) -> Pair<N> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(record as u64);
    let (mut key, mut value) = ([0; N], [0; N]);
    random.fill_bytes(&mut key);
    random.fill_bytes(&mut value);
    (key, value)
}

/// Executes batches. Returns the sum of all replies.
pub fn execute<const N: usize>(contender: &mut dyn Contender<N>, case: &Case, batches: &[Batch<N>]) -> u64 {
    let is_batched = !matches!(case.read, Read::GetSingle | Read::ScanSingle(_));
    let mut sum = 0_u64;
    for batch in batches {
        if !batch.gets.is_empty() {
            sum = sum.wrapping_add(contender.get(&batch.gets, is_batched));
        }
        if !batch.scans.is_empty() {
            sum = sum.wrapping_add(contender.scan(&batch.scans, is_batched));
        }
        if !batch.puts.is_empty() {
            contender.put(&batch.puts);
        }
        if !batch.modifies.is_empty() {
            sum = sum.wrapping_add(contender.modify(&batch.modifies));
        }
    }
    sum
}

/// Inserts the first `count` records, and calls `filled` with the share that is inserted. Returns the seconds that the
/// puts took, without drawing the pairs.
pub fn fill<const N: usize>(contender: &mut dyn Contender<N>, count: usize, filled: impl Fn(f64)) -> f64 {
    let mut seconds = 0.0;
    for first in (0..count).step_by(FILL_STEP) {
        let pairs: Vec<Pair<N>> = (first..count.min(first + FILL_STEP)).map(pair).collect();
        let begin = std::time::Instant::now();
        contender.put(&pairs);
        seconds += begin.elapsed().as_secs_f64();
        filled((first + pairs.len()) as f64 / count as f64);
    }
    seconds
}
