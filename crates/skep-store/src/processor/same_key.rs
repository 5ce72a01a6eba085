//! Consecutive requests on one key, executed on its value in a register.
//!
//! ```text
//! requests   GET a   add b   add b   add b   GET b   GET c
//!                    ├ two hashes, one probe ┤
//!                    ├ one load, one store   ┤
//! ```
//!
//! 1. Admission compares the hash of each key with the one before, and the keys if the hashes are equal. It lists the
//!    ranges of equal keys. The keys of a range after the second are compared, not hashed.
//! 2. The loop over short values calls [`ExecuteSameKey`] for a range. It probes the bucket once, executes the requests on
//!    the word with the value, and stores the word if it has changed.
//! 3. It stops at the first request that [`execute_on_word`] does not execute. That one and those after it are executed
//!    like all others.
//!
//! The order of requests is kept, because each is executed before the next one. A probe for each would be slow: it loads
//! 32 bytes, which waits until the eight bytes of the store before it are in the cache.

use std::ops::Range;

use super::replies::Entry;
use crate::apply::{ShortOutcome, apply_short};
use crate::hash::{Bucket, Lanes, QuickProbe, ShortValue, WithLanes, find_short_value};
use crate::memory::Effect;
use skep_core::operation::{Operation, Request};

/// Ranges of at least two consecutive requests on one key, in their order.
#[derive(Debug, Default)]
pub(super) struct SameKeys(Vec<Range<usize>>);

impl SameKeys {
    /// Removes all ranges.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a range, after all others.
    pub(super) fn push(&mut self, range: Range<usize>) {
        self.0.push(range);
    }

    /// Returns the ranges.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().cloned()
    }
}

/// Executes the first of these requests, which have the same key, if its value is short.
pub(super) struct ExecuteSameKey<'a, 'k> {
    /// The home bucket of the key.
    pub(super) bucket: &'a mut Bucket,
    pub(super) requests: &'a [Request<'k>],
    pub(super) entries: &'a mut [Entry],
}

/// The requests that were executed.
pub(super) struct Executed {
    /// Their number.
    pub(super) count: usize,
    /// Those of them that are GETs.
    pub(super) hits: u64,
    /// Their effect on the bucket.
    pub(super) effect: Effect,
}

impl WithLanes for ExecuteSameKey<'_, '_> {
    type Output = Executed;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> Executed {
        let ExecuteSameKey { bucket, requests, entries } = self;
        let mut executed = Executed { count: 0, hits: 0, effect: Effect::Unchanged };
        let QuickProbe::Short(position) = find_short_value(lanes, bucket, requests[0].key) else { return executed };
        let mut word = position.load_word(bucket);
        for (request, entry) in requests.iter().zip(entries) {
            match execute_on_word(&request.operation, position, &mut word, entry, &mut executed.hits) {
                None => break,
                Some(Effect::Unchanged) => {}
                Some(Effect::Changed) => executed.effect = Effect::Changed,
            }
            executed.count += 1;
        }
        if executed.effect == Effect::Changed {
            position.store_word(bucket, word);
        }
        executed
    }
}

/// Executes an operation on a short value, given the eight bytes that end with it. Returns `None`, and does nothing, if
/// it is left to the other stages.
#[inline(always)]
pub(super) fn execute_on_word(
    operation: &Operation<'_>,
    position: ShortValue,
    word: &mut u64,
    entry: &mut Entry,
    hits: &mut u64,
) -> Option<Effect> {
    if let Operation::Get = operation {
        *hits += 1;
        *entry = Entry::short(*word, position.size());
        return Some(Effect::Unchanged);
    }
    let ShortOutcome { returns_value, changed } = apply_short(operation, position.value_of(*word), position.size())?;
    *entry = if returns_value { Entry::short(*word, position.size()) } else { Entry::DONE };
    let Some(changed) = changed else { return Some(Effect::Unchanged) };
    *word = position.word_with(*word, changed);
    Some(Effect::Changed)
}
