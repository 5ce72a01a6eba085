//! The ordered store compared with Rust's ordered maps, in one process: on one thread, and on two.
//!
//! All contenders hold the same pairs of 16 random bytes and 16 bytes of value, inserted in the same order. They
//! execute the same batches of operations, drawn before the clock runs. A batch has its gets first, then its scans,
//! then its writes. Peers execute one operation after the other, since none of them offers batches. The store executes
//! gets and scans both ways. It gets the keys of a batch's writes first, prefetches them, and then executes the writes
//! one after the other. A read-modify-write is one atomic update of the store. For a peer it is a get and a put, which
//! loses updates of concurrent threads. A scan from a floor is one operation of the store. A peer searches for the floor
//! backwards; all but the skip list then search for it again.
//!
//! ```text
//! fill      one contender after another: time, growth of resident memory
//! compare   for each case: the same operations for all, whose replies must agree
//! round     for each case: every contender in turn, the first one changes ─ for some cases: one thread, then two
//! ```
//!
//! Each contender adds up the contents of its replies, and the sums of all contenders must agree. In the rounds each
//! contender is warmed up until its rate is steady, then measured for a slice (`skep_measure`). The keys that a slice
//! inserts are removed after it.

mod contenders;
mod rate;
mod run;
mod threads;
mod work;

pub use contenders::{Masstree, Skep};
pub use rate::rate;
pub use run::{Plan, Report, Row, Threads, run};
pub use threads::execute_on;
pub use work::{Batch, Case, Draw, Keys, Read, execute, fill, pair};

/// A key and its value, of the same size.
pub type Pair<const N: usize> = ([u8; N], [u8; N]);

/// A scan.
#[derive(Clone, Copy, Debug)]
pub struct Scan<const N: usize> {
    /// The key at or above which it begins.
    pub key: [u8; N],
    /// True if it begins at the greatest key that is not above `key`.
    pub is_from_floor: bool,
    /// Most pairs.
    pub pair_count: usize,
}

/// A store of pairs.
pub trait Contender<const N: usize>: Send {
    /// Inserts or replaces pairs.
    fn put(&mut self, pairs: &[Pair<N>]);

    /// Removes pairs.
    fn remove(&mut self, keys: &[[u8; N]]);

    /// Finds keys, in one batch if it can and `is_batched` is true. Returns the sum of the values found.
    fn get(&mut self, keys: &[[u8; N]], is_batched: bool) -> u64;

    /// Executes scans, in one batch if it can and `is_batched` is true. Returns the sum of keys and values.
    fn scan(&mut self, scans: &[Scan<N>], is_batched: bool) -> u64;

    /// Replaces the values of keys that exist. Returns the sum of the old values. The default does what YCSB's client
    /// does: gets, then puts.
    fn modify(&mut self, pairs: &[Pair<N>]) -> u64 {
        let keys: Vec<[u8; N]> = pairs.iter().map(|(key, _)| *key).collect();
        let sum = self.get(&keys, true);
        self.put(pairs);
        sum
    }

    /// Returns a handle to the same pairs for another thread.
    fn handle(&self) -> Result<Box<dyn Contender<N>>, String>;

    /// Returns the bytes of memory that it reports, if it knows better than the kernel.
    fn memory(&self) -> Option<u64> {
        None
    }
}

/// The name and the constructor of a contender.
pub struct Kind {
    /// Name in the table.
    pub name: &'static str,
    /// Makes an empty contender for the given number of pairs.
    pub new: fn(usize) -> Result<Box<dyn Contender<16>>, String>,
}

/// All contenders, the store first.
pub const KINDS: [Kind; 5] = [
    Kind { name: "skep", new: |pairs| Ok(Box::new(Skep::new::<16>(pairs)?)) },
    Kind { name: "BTreeMap in an RwLock", new: |_| Ok(Box::new(contenders::Locked::default())) },
    Kind { name: "masstree", new: |_| Ok(Box::new(Masstree::default())) },
    Kind { name: "scc TreeIndex", new: |_| Ok(Box::new(contenders::Scc::default())) },
    Kind { name: "crossbeam SkipMap", new: |_| Ok(Box::new(contenders::Skiplist::default())) },
];

/// Returns the amount that a key or value adds to a sum.
fn weight(part: &[u8]) -> u64 {
    part.first_chunk().map_or(part.len() as u64, |first| u64::from_le_bytes(*first))
}
