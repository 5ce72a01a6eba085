//! The ordered store beside Rust's ordered maps, in one process: on one thread, and on two.
//!
//! All hold the same pairs of 16 random bytes and 16 bytes of value, inserted in the same order, and get the same batches
//! of operations, drawn before the clock runs: the gets of a batch first, then its scans, then its writes. Peers do one after
//! the other, since none of them offers more; the store gets and scans both ways, and is told of the keys of a batch's writes
//! before it carries them out one after the other. A read-modify-write is one atomic update of the store, and a get and a put
//! of a peer, which loses updates when two threads meet.
//!
//! ```text
//! fill ─ one after another: time, growth of resident memory
//! compare ─ for each case: the same operations for all, whose answers must agree
//! round ─ for each case: every contender, first one turn about ─ for some of them: one thread, then two
//! ```
//!
//! What an answer holds goes into a sum, and the sums of all contenders must agree. In the rounds each contender is warmed
//! up until its rate is steady and measured for a slice (`skep_measure`); what a slice inserts is removed after it.

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

/// One that holds pairs.
pub trait Contender<const N: usize>: Send {
    /// Inserts or replaces pairs.
    fn put(&mut self, pairs: &[Pair<N>]);

    /// Removes pairs.
    fn remove(&mut self, keys: &[[u8; N]]);

    /// Looks keys up, together if it can and is asked to; the sum of the values found.
    fn get(&mut self, keys: &[[u8; N]], together: bool) -> u64;

    /// From each key on, so many pairs, side by side if it can and is asked to; the sum of keys and values.
    fn scan(&mut self, scans: &[([u8; N], usize)], together: bool) -> u64;

    /// Replaces the values of keys that exist; the sum of those that were there. As YCSB's client does it, by gets and puts,
    /// unless it has something better.
    fn modify(&mut self, pairs: &[Pair<N>]) -> u64 {
        let keys: Vec<[u8; N]> = pairs.iter().map(|(key, _)| *key).collect();
        let sum = self.get(&keys, true);
        self.put(pairs);
        sum
    }

    /// The same pairs, for another thread.
    fn beside(&self) -> Result<Box<dyn Contender<N>>, String>;

    /// Bytes that it says it takes, if it knows better than the kernel's account.
    fn memory(&self) -> Option<u64> {
        None
    }
}

/// What a contender is called and how it is made.
pub struct Kind {
    /// The name in the table.
    pub name: &'static str,
    /// Makes an empty one for so many pairs.
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

/// What a key or value weighs in a sum.
fn weight(part: &[u8]) -> u64 {
    part.first_chunk().map_or(part.len() as u64, |first| u64::from_le_bytes(*first))
}
