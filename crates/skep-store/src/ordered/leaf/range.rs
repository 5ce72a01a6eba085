//! Compares keys with the start and the end of a range, which has the lower bound of its prefix as its start.

use super::super::key_head::Target;
use crate::short::is_below;
use skep_core::operation::{KEY_SIZE_MAX, ScanEnd, Start};

/// Returns true if a key is not before a start. The floor of a start is not considered.
#[inline]
pub(crate) fn is_at_or_after(start: Start<'_>, key: &[u8]) -> bool {
    match start {
        Start::Above(start) => is_below(start, key),
        _ => !is_below(key, start.key()),
    }
}

/// Returns true if a key is not after an end.
#[inline]
pub(crate) fn is_at_or_before(end: ScanEnd<'_>, key: &[u8]) -> bool {
    match end {
        ScanEnd::Last => true,
        ScanEnd::AtOrBelow(end) => !is_below(end, key),
        ScanEnd::Below(end) => is_below(key, end),
        // All keys that are compared are at or above the prefix.
        ScanEnd::Prefix(prefix) => key.starts_with(prefix),
    }
}

/// Returns the target of an end: the greatest key that is not after it. `successor` receives the key that follows
/// all keys with a prefix.
pub(crate) fn target_of<'k>(end: ScanEnd<'k>, successor: &'k mut Option<[u8; KEY_SIZE_MAX]>) -> Target<'k> {
    match end {
        ScanEnd::Last => Target::Last,
        ScanEnd::AtOrBelow(end) => Target::AtOrBelow(end),
        ScanEnd::Below(end) => Target::Below(end),
        ScanEnd::Prefix(prefix) => {
            // The prefix with its last byte incremented, without trailing bytes that cannot be.
            let Some(last) = prefix.iter().rposition(|byte| *byte != u8::MAX) else { return Target::Last };
            let successor = successor.insert([0; KEY_SIZE_MAX]);
            successor[..=last].copy_from_slice(&prefix[..=last]);
            successor[last] += 1;
            Target::Below(&successor[..=last])
        }
    }
}
