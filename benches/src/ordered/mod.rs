//! The ordered store beside Rust's ordered maps, in one process, on one thread.
//!
//! All hold the same pairs of 16 random bytes and 16 bytes of value, inserted in the same order, and get the same operations,
//! drawn before the clock runs. Peers look keys up one at a time, since none of them offers more; the store does both.
//!
//! ```text
//! fill ─ one after another: time, growth of resident memory
//! round ─ for each case: every contender, first one turn about
//! ```
//!
//! What an answer holds goes into a sum, and the sums of all contenders must agree after every case.

mod contenders;
mod run;

pub use run::{Case, Plan, Report, Row, run};

/// Bytes of a key, and of a value.
pub const PART_SIZE: usize = 16;
/// A key or a value.
pub type Part = [u8; PART_SIZE];

/// One that holds pairs.
pub trait Contender {
    /// Inserts or replaces pairs.
    fn put(&mut self, pairs: &[(Part, Part)]);

    /// Looks keys up, as many at a time as it can and is asked to; the sum of the values found.
    fn get(&mut self, keys: &[Part], batch: usize) -> u64;

    /// From each key on, this many pairs, as many scans at a time as it can and is asked to; the sum of keys and values.
    fn scan(&mut self, keys: &[Part], pair_count: usize, batch: usize) -> u64;

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
    pub new: fn(usize) -> Result<Box<dyn Contender>, String>,
}

/// All contenders, the store first.
pub const KINDS: [Kind; 5] = [
    Kind { name: "skep", new: |pairs| Ok(Box::new(contenders::Skep::new(pairs)?)) },
    Kind { name: "BTreeMap in a parking_lot RwLock", new: |_| Ok(Box::new(contenders::Locked::default())) },
    Kind { name: "masstree", new: |_| Ok(Box::new(contenders::Masstree::default())) },
    Kind { name: "scc TreeIndex", new: |_| Ok(Box::new(contenders::Scc::default())) },
    Kind { name: "crossbeam SkipMap", new: |_| Ok(Box::new(contenders::Skiplist::default())) },
];

/// What a pair or value weighs in a sum.
fn weight(part: &[u8]) -> u64 {
    part.first_chunk().map_or(part.len() as u64, |first| u64::from_le_bytes(*first))
}
