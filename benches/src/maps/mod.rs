//! The store compared with Rust's maps, in one process, on one thread.
//!
//! All contenders hold the same pairs and execute the same operations in the same batches. The keys are drawn before
//! the clock runs. Keys and values are slices whose length the compiler does not know. The maps hash with rapidhash, as
//! the store does, and are created with capacity for all pairs.
//!
//! ```text
//! fill      one contender after another: growth of resident memory
//! compare   for each case: the same operations for all, whose replies must agree
//! round     for each case: every contender in turn: warm up, slice; the first one changes from round to round
//! ```
//!
//! Each contender adds up the contents of its replies. The sums of all contenders must agree before anything is
//! measured. `skep_measure` decides how long the warm-up and the slice take.

mod concurrent;
mod run;
mod sequential;
mod store;

pub use run::{Case, Plan, Report, Row, run};
pub(crate) use store::Store;

/// A store of pairs. The slices of a call have equal length. All keys exist after [`Contender::put`] has filled it.
pub trait Contender {
    /// Finds all keys. Returns the sum, over the values found, of their lengths and the numbers that they encode.
    fn get(&mut self, keys: &[&[u8]], batch: usize) -> u64;

    /// Puts a pair for every key.
    fn put(&mut self, keys: &[&[u8]], values: &[&[u8]], batch: usize);

    /// Adds `delta` to every key's value, a number of two bytes. Returns the sum of the old values' weights.
    fn fetch_add(&mut self, keys: &[&[u8]], delta: u16, batch: usize) -> u64;

    /// Returns the share of its memory that holds keys and values, if its memory has a fixed size.
    fn utilization(&self) -> Option<f64> {
        None
    }
}

/// The name and the constructor of a contender.
pub struct Kind {
    /// Name in the table.
    pub name: &'static str,
    /// True if it takes keys and values of any length, as the store does.
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

/// Returns the amount that a value adds to the sum of replies.
#[inline]
fn weigh(value: &[u8]) -> u64 {
    value.len() as u64 + u64::from(number(value))
}

/// Returns a value of two bytes as a number.
#[inline]
fn number(value: &[u8]) -> u16 {
    value.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// Adds to a value of two bytes. Returns its weight before the addition.
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
