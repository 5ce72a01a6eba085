//! The store beside Rust's maps, in one process, on one thread.
//!
//! All hold the same pairs and get the same operations in the same batches, on keys that were drawn before the clock
//! runs. Keys and values reach them as slices whose length the compiler does not know. The maps hash with rapidhash, as
//! the store does, and are made for as many pairs as they will hold.
//!
//! ```text
//! fill ─ one after another: growth of resident memory
//! compare ─ for each case: the same operations for all, whose answers must agree
//! round ─ for each case: every contender, first one turn about: warm up, slice      five or more rounds
//! ```
//!
//! What an answer holds goes into a sum, and the sums of all contenders must agree: who answers wrong is not measured. How
//! long they are warmed up and measured is `skep_measure`'s.

mod concurrent;
mod run;
mod sequential;
mod store;

pub use run::{Case, Plan, Report, Row, run};
pub(crate) use store::Store;

/// One that holds pairs. Batches are slices of equal length; every key is there once [`Contender::put`] has filled it.
pub trait Contender {
    /// Looks all keys up; the sum, over the values found, of the length and the number that each is.
    fn get(&mut self, keys: &[&[u8]], batch: usize) -> u64;

    /// Puts a pair for every key, whether it exists or not.
    fn put(&mut self, keys: &[&[u8]], values: &[&[u8]], batch: usize);

    /// Adds `delta` to every key's value, two bytes taken as a number; the sum of the old values' weights.
    fn fetch_add(&mut self, keys: &[&[u8]], delta: u16, batch: usize) -> u64;

    /// Share of its memory that is keys and values, if it was given a memory.
    fn utilization(&self) -> Option<f64> {
        None
    }
}

/// What a contender is called and how it is made.
pub struct Kind {
    /// The name in the table.
    pub name: &'static str,
    /// Whether it takes keys and values of any length, as the store does.
    pub is_variable: bool,
    /// Makes an empty one for the pairs of a plan.
    pub new: fn(&Plan) -> Result<Box<dyn Contender>, String>,
}

/// All contenders, the store first.
pub const KINDS: [Kind; 6] = [
    Kind {
        name: "skep",
        is_variable: true,
        new: |plan| Ok(Box::new(store::Store::new(plan.pairs, plan.utilization)?)),
    },
    Kind { name: "hashbrown", is_variable: true, new: |plan| Ok(Box::new(sequential::Boxes::new(plan.pairs))) },
    Kind {
        name: "hashbrown, one box a pair",
        is_variable: true,
        new: |plan| Ok(Box::new(sequential::PairBoxes::new(plan.pairs))),
    },
    Kind { name: "dashmap", is_variable: true, new: |plan| Ok(Box::new(concurrent::Dash::new(plan.pairs))) },
    Kind { name: "papaya", is_variable: true, new: |plan| Ok(Box::new(concurrent::Papaya::new(plan.pairs))) },
    Kind {
        name: "hashbrown, 8 + 2 B only",
        is_variable: false,
        new: |plan| Ok(Box::new(sequential::Arrays::new(plan.pairs))),
    },
];

/// What a value adds to the sum of answers.
#[inline]
fn weigh(value: &[u8]) -> u64 {
    value.len() as u64 + u64::from(number(value))
}

/// A value of two bytes as a number.
#[inline]
fn number(value: &[u8]) -> u16 {
    value.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// Adds to a value of two bytes; its weight before.
#[inline]
fn add(value: &mut [u8], delta: u16) -> u64 {
    let weight = weigh(value);
    let sum = number(value).wrapping_add(delta);
    if let Some(bytes) = value.first_chunk_mut() {
        *bytes = sum.to_le_bytes();
    }
    weight
}

/// Replaces a value, in place if the new one is as long.
#[inline]
fn replace(old: &mut Box<[u8]>, new: &[u8]) {
    if old.len() == new.len() {
        old.copy_from_slice(new);
    } else {
        *old = Box::from(new);
    }
}
