//! The value of a pair in a leaf, with the time at which its key expires.
//!
//! ```text
//! not marked   value                               up to 469 bytes
//! marked       reference 8                         an overflow value
//!              0 │ expiry 8 │ value                a value whose key expires: up to 460 bytes
//!              1 │ expiry 8 │ reference 8          an overflow value whose key expires
//! ```
//!
//! A segment's head and the flags of a log entry have a bit that marks a value. A bare reference is the only marked form of
//! eight bytes, since the others have nine or more. So keys without an expiry take no bytes for it, and cost readers only
//! the test of the mark.

use super::super::version::epoch::Guard;
use super::frame::Frames;
use super::overflow::{self, REFERENCE_SIZE, VALUE_IN_NODE_SIZE_MAX};
use skep_core::operation::Expiry;

/// Bytes of the tag and the expiry.
const HEAD_SIZE: usize = 1 + EXPIRY_SIZE;
const EXPIRY_SIZE: usize = 8;
const TAG_INSIDE: u8 = 0;
const TAG_OVERFLOW: u8 = 1;
const _: () = assert!(REFERENCE_SIZE < HEAD_SIZE);

/// The bytes of a value in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value<'n> {
    /// The value, or its marked form.
    pub(crate) bytes: &'n [u8],
    /// True for a marked form.
    pub(crate) is_marked: bool,
}

/// A value without its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'n> {
    /// Its bytes.
    Inside(&'n [u8]),
    /// The reference to an overflow value.
    Overflow(&'n [u8]),
}

impl<'n> Value<'n> {
    /// Returns a value that is not marked.
    #[inline(always)]
    pub(crate) fn inside(bytes: &'n [u8]) -> Self {
        Value { bytes, is_marked: false }
    }

    /// Returns the value without its expiry.
    #[inline(always)]
    pub(crate) fn content(self) -> Content<'n> {
        if self.is_marked { self.marked_content() } else { Content::Inside(self.bytes) }
    }

    /// Returns the bytes of the value. An overflow value is copied to `scratch`.
    #[inline(always)]
    pub(crate) fn in_full<'v>(self, frames: &Frames, scratch: &'v mut Vec<u8>, guard: &Guard<'_>) -> &'v [u8]
    where
        'n: 'v,
    {
        match self.content() {
            Content::Inside(bytes) => bytes,
            Content::Overflow(reference) => {
                put_together(frames, reference, scratch, guard);
                scratch
            }
        }
    }

    /// Returns the time at which the key expires, if it does.
    #[inline(always)]
    pub(crate) fn expiry(self) -> Option<Expiry> {
        if self.is_marked { self.marked_expiry() } else { None }
    }

    /// Returns true if the key is missing at this time, in milliseconds since 1970.
    #[inline(always)]
    pub(crate) fn has_expired(self, now: u64) -> bool {
        self.expiry().is_some_and(|expiry| expiry.has_passed(now))
    }

    /// Returns the reference, if it is an overflow value.
    #[inline(always)]
    pub(crate) fn reference(self) -> Option<&'n [u8]> {
        match self.content() {
            Content::Inside(_) => None,
            Content::Overflow(reference) => Some(reference),
        }
    }

    /// Returns the bytes of the value without its expiry, in the node or not.
    #[inline(always)]
    pub(crate) fn size(self) -> usize {
        match self.content() {
            Content::Inside(bytes) => bytes.len(),
            Content::Overflow(reference) => overflow::value_size(reference),
        }
    }

    #[inline(never)]
    fn marked_content(self) -> Content<'n> {
        match self.bytes.split_at_checked(HEAD_SIZE) {
            None => Content::Overflow(self.bytes),
            Some(([TAG_OVERFLOW, ..], reference)) => Content::Overflow(reference),
            Some((_, bytes)) => Content::Inside(bytes),
        }
    }

    #[inline(never)]
    fn marked_expiry(self) -> Option<Expiry> {
        let (_, expiry) = self.bytes.first_chunk::<HEAD_SIZE>()?.split_first_chunk::<1>()?;
        Expiry::at(i64::from_le_bytes(*expiry.first_chunk()?))
    }
}

/// Returns true if a value of this size is in its node.
#[inline(always)]
pub(crate) fn is_inside(size: usize, expires: bool) -> bool {
    size + if expires { HEAD_SIZE } else { 0 } <= VALUE_IN_NODE_SIZE_MAX
}

/// Writes the marked form of a value whose key expires to `to`.
pub(crate) fn write_expiring(to: &mut Vec<u8>, expiry: Expiry, content: Content<'_>) {
    let (tag, bytes) = match content {
        Content::Inside(bytes) => (TAG_INSIDE, bytes),
        Content::Overflow(reference) => (TAG_OVERFLOW, reference),
    };
    to.clear();
    to.push(tag);
    to.extend_from_slice(&expiry.milliseconds().to_le_bytes());
    to.extend_from_slice(bytes);
}

#[cold]
#[inline(never)]
fn put_together(frames: &Frames, reference: &[u8], scratch: &mut Vec<u8>, guard: &Guard<'_>) {
    overflow::copy_range(frames, reference, 0..overflow::value_size(reference), scratch, guard);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_comes_back() {
        let reference = [7, 1, 0, 0, 2, 0, 0, 0];
        let longest = [9; VALUE_IN_NODE_SIZE_MAX];
        let times = [0, 1, 1_800_000_000_000].map(|time| Expiry::at(time).unwrap());
        for size in [0, 1, 8, 17, VALUE_IN_NODE_SIZE_MAX - HEAD_SIZE] {
            assert!(is_inside(size, true));
            assert_eq!(
                (Value::inside(&longest[..size]).content(), None),
                (Content::Inside(&longest[..size]), None::<u8>)
            );
            for expiry in times.into_iter().chain([Expiry::MAX]) {
                for content in [Content::Inside(&longest[..size]), Content::Overflow(&reference)] {
                    let mut bytes = vec![1; 3];
                    write_expiring(&mut bytes, expiry, content);
                    let value = Value { bytes: &bytes, is_marked: true };
                    assert_eq!((value.content(), value.expiry()), (content, Some(expiry)));
                    assert!(value.has_expired(expiry.milliseconds()) && bytes.len() <= VALUE_IN_NODE_SIZE_MAX);
                }
            }
        }
        assert!(is_inside(VALUE_IN_NODE_SIZE_MAX, false) && !is_inside(VALUE_IN_NODE_SIZE_MAX - HEAD_SIZE + 1, true));
        let bare = Value { bytes: &reference, is_marked: true };
        assert_eq!((bare.content(), bare.expiry(), bare.size()), (Content::Overflow(&reference), None, 263));
        assert!(!bare.has_expired(u64::MAX) && !Value::inside(&longest).has_expired(u64::MAX));
    }
}
