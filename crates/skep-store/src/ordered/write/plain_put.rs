//! The short way of a put without a condition, whose entry only has to be appended: most writes take it.
//!
//! ```text
//! position of the key ─▶ room in the log ─▶ value before ─▶ lock ─▶ append, publish
//!       └ leaf is locked      └ none             └ is marked    └ leaf has changed       ─▶ attempts, as of any write
//! ```
//!
//! It changes nothing before it has the lock, so a write that it refuses is attempted from the beginning. An attempt
//! would append the same entry: the outcome of such a put does not depend on the value before, unless that is marked.

use super::super::leaf::edit::NewEntry;
use super::super::leaf::find::{self, SortedPosition};
use super::super::node::frame::Node;
use super::super::node::log;
use super::super::node::value::{Value, is_inside};
use super::super::read::descent::KeyPosition;
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;
use super::attempt::{Appended, Writer};
use super::change::Change;
use skep_core::operation::{Operation, PutCondition};

/// Returns the value of a change that may take the short way.
#[inline(always)]
pub(crate) fn plain_value<'o>(change: Change<'o>) -> Option<&'o [u8]> {
    match change {
        Change::Execute(Operation::Put { value, condition: PutCondition::Always }) if is_inside(value.len(), false) => {
            Some(value)
        }
        _ => None,
    }
}

impl OrderedStore {
    /// Puts a value if its entry only has to be appended. Returns the version, or `None` if it has changed nothing.
    #[inline(always)]
    pub(crate) fn put_plainly(
        &self,
        key: &[u8],
        value: &[u8],
        change: Change<'_>,
        position: KeyPosition<'_>,
        writer: &mut Writer,
        guard: &Guard<'_>,
    ) -> Option<u64> {
        let KeyPosition { leaf, segment, fingerprint, item } = position;
        if leaf.state().is_locked() || !self.may_append(leaf, log::entry_size(key, value)) {
            return None;
        }
        let sorted = find::sorted_position(leaf, segment, item, key, fingerprint);
        // The value before may have an expiry, or be an overflow value.
        if self.may_have_marked_values() && has_marked_value(leaf, key, fingerprint, sorted) {
            return None;
        }
        let new = NewEntry { key, fingerprint, value: Some(Value::inside(value)) };
        let Appended { version, is_followed } = self.append(leaf, &new, sorted)?;
        let is_there = if is_followed { is_in_log(leaf, key, fingerprint) } else { sorted.is_exact };
        writer.scratch.note_put(value.len());
        writer.must_succeed = false;
        if let Some(effects) = &mut writer.effects {
            effects.record(self, change, version, &new, guard);
            effects.inserted += u64::from(!is_there);
        }
        if !is_there {
            guard.count_pairs(1);
        }
        Some(version)
    }

    /// Returns true if a key may have an expiry or an overflow value.
    #[inline(always)]
    fn may_have_marked_values(&self) -> bool {
        self.clock.is_needed() || self.has_values()
    }
}

/// Returns true if the newest value of a key is marked.
#[inline(never)]
fn has_marked_value(leaf: Node<'_>, key: &[u8], fingerprint: u8, sorted: SortedPosition) -> bool {
    match find::find_in_log(leaf, key, find::log_candidates(leaf, fingerprint), u64::MAX) {
        Some(entry) => entry.word.flags.is_marked,
        None => sorted.is_exact && find::sorted_value(leaf, sorted.back).is_marked,
    }
}

/// Returns true if the newest log entry of a key is not a delete.
#[inline(never)]
fn is_in_log(leaf: Node<'_>, key: &[u8], fingerprint: u8) -> bool {
    let newest = find::find_in_log(leaf, key, find::log_candidates(leaf, fingerprint), u64::MAX);
    newest.is_some_and(|entry| !entry.word.flags.is_delete)
}
