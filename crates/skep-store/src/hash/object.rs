//! The content of a slab to which a slot of the index points: a key and a value, or the root of a large value.
//!
//! ```text
//! 32–256 B   ┌────────┬──────────┬──────────────┬────────────────┐
//!            │key size│value size│ key          │ value          │   the paper's 2-byte header: 62 B of pair in 64 B
//!            └─ u8 ───┴─ u8 ─────┴──────────────┴────────────────┘
//! 512 B      ┌───────────────────┬──────────────┬────────────────┐   bits 0–8 of the header: key size,
//!            │ header, u32       │ key          │ value          │   bits 9–18: value size, bit 31: root
//!            └───────────────────┴──────────────┴────────────────┘
//! root       ┌───────────────────┬──────────────┬──────────┬─────────────┐   u8 value size 255, or bit 31 set
//!            │ header            │ key          │ size u32 │ pointers u32│   1–8 of them: see `large`
//!            └───────────────────┴──────────────┴──────────┴─────────────┘
//! expiry     ┌───────────────────┬──────────────┬──────────┬──────────┐       key size 0 in the header; extension:
//!            │ header            │ extension u64│ key      │ …        │       bits 0–8: key size, bits 9–63: expiry in ms
//!            └───────────────────┴──────────────┴──────────┴──────────┘
//! ```
//!
//! No key has 0 bytes, so this size marks a key that expires. Keys without an expiry take no bytes for it.

use std::ops::Range;

use super::large_layout::ROOT_POINTERS_MAX;
use super::slab::SlabClass;
use crate::memory::Pointer;
use crate::short::equal;
use skep_core::operation::{Expiry, KEY_SIZE_MAX, VALUE_SIZE_MAX};

const SHORT_HEADER_SIZE: usize = 2;
const LONG_HEADER_SIZE: usize = 4;
/// In a short header, the value size that marks a root. No pair has it: two bytes of header and one of key leave 253.
const SHORT_ROOT: u8 = 255;
const LONG_ROOT: u32 = 1 << 31;
const KEY_SIZE_BITS: u32 = 9;
const POINTER_SIZE: usize = 4;

/// Bytes that the expiry of a key takes.
const EXTENSION_SIZE: usize = 8;

/// Most bytes of a pair in one slab, if its key has no expiry.
pub(crate) const PAIR_SIZE_MAX: usize = 512 - LONG_HEADER_SIZE;

/// Returns true if a pair takes more than one slab.
#[inline]
pub(crate) fn is_large(key_size: usize, value_size: usize, expires: bool) -> bool {
    key_size + value_size + if expires { EXTENSION_SIZE } else { 0 } > PAIR_SIZE_MAX
}

const _: () = assert!(KEY_SIZE_MAX < 1 << KEY_SIZE_BITS);
const _: () = assert!(Expiry::MAX.milliseconds() < u64::MAX >> KEY_SIZE_BITS);
const _: () = assert!(LONG_HEADER_SIZE + EXTENSION_SIZE + KEY_SIZE_MAX + 4 + ROOT_POINTERS_MAX * POINTER_SIZE <= 512);

/// The root of a large value: its size, and the pointers to its upper level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LargeRoot {
    pub(crate) value_size: u32,
    pub(super) pointers: [Option<Pointer>; ROOT_POINTERS_MAX],
}

impl LargeRoot {
    pub(super) fn pointers(&self) -> impl Iterator<Item = Pointer> + '_ {
        self.pointers.iter().map_while(|pointer| *pointer)
    }
}

/// The content of a slab, and the expiry of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) content: Content,
    pub(super) expiry: Option<Expiry>,
}

/// The content of a slab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A pair, whose value is these bytes of the slab.
    Value(Range<usize>),
    /// The root of a large value.
    Large(LargeRoot),
}

/// The header of a slab.
#[derive(Clone, Copy)]
struct Header {
    /// Offset of the key.
    key_start: usize,
    key_size: usize,
    /// Undefined for a root.
    value_size: usize,
    is_root: bool,
    expiry: Option<Expiry>,
}

/// Returns the class of the slab for a pair, if one is large enough.
pub(super) fn class_for_pair(key_size: usize, value_size: usize, expires: bool) -> Option<SlabClass> {
    let size = key_size + value_size + if expires { EXTENSION_SIZE } else { 0 };
    SlabClass::for_size(size + SHORT_HEADER_SIZE)
        .filter(|class| *class < SlabClass::LARGEST)
        .or_else(|| SlabClass::for_size(size + LONG_HEADER_SIZE))
}

/// Returns the class of the slab for the root of a large value.
pub(super) fn class_for_root(key_size: usize, pointer_count: usize, expires: bool) -> SlabClass {
    class_for_pair(key_size, 4 + pointer_count * POINTER_SIZE, expires).expect("a root fits a slab")
}

/// Returns the bytes of the value, if the slab has this key without an expiry and the value in one piece.
#[inline(always)]
pub(super) fn find_value(class: SlabClass, bytes: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let Header { key_start, key_size, value_size, is_root, .. } = plain_header(class, bytes);
    let value_start = key_start + key_size;
    // A key of 0 bytes marks an expiry, and equals no key.
    let is_it = !is_root && equal(&bytes[key_start..value_start], key);
    is_it.then(|| value_start..value_start + value_size)
}

/// Returns the content of the slab if its key is this one.
pub(super) fn find(class: SlabClass, bytes: &[u8], key: &[u8]) -> Option<Object> {
    let header = header(class, bytes);
    // Not by `==`, which for a short key may load a line after it that is not in the cache.
    equal(&bytes[header.key()], key).then(|| object(bytes, header))
}

/// Returns the expiry of the key of a slab.
pub(super) fn expiry(class: SlabClass, bytes: &[u8]) -> Option<Expiry> {
    header(class, bytes).expiry
}

/// Returns the bytes of the key of a slab, and its expiry. Reads only the header, which is in the first line.
pub(super) fn key(class: SlabClass, bytes: &[u8]) -> (Range<usize>, Option<Expiry>) {
    let header = header(class, bytes);
    (header.key(), header.expiry)
}

/// Returns the key of a slab and its content.
pub(super) fn read(class: SlabClass, bytes: &[u8]) -> (Range<usize>, Object) {
    let header = header(class, bytes);
    (header.key(), object(bytes, header))
}

fn object(bytes: &[u8], header: Header) -> Object {
    let value_start = header.key().end;
    if !header.is_root {
        let content = Content::Value(value_start..value_start + header.value_size);
        return Object { content, expiry: header.expiry };
    }
    let word = |index: usize| {
        let start = value_start + index * POINTER_SIZE;
        u32::from_le_bytes(bytes[start..start + POINTER_SIZE].try_into().expect("four bytes"))
    };
    let value_size = word(0);
    let count = super::large_layout::root_pointer_count(value_size as usize);
    let pointers = std::array::from_fn(|i| (i < count).then(|| Pointer::new(word(1 + i))));
    Object { content: Content::Large(LargeRoot { value_size, pointers }), expiry: header.expiry }
}

/// Writes a pair into a slab. Returns the bytes of its value.
pub(super) fn write_pair(
    class: SlabClass,
    bytes: &mut [u8],
    key: &[u8],
    value: &[u8],
    expiry: Option<Expiry>,
) -> Range<usize> {
    let key_start = write_header(class, bytes, key.len(), value.len(), false, expiry);
    let value_start = key_start + key.len();
    let end = value_start + value.len();
    bytes[key_start..value_start].copy_from_slice(key);
    bytes[value_start..end].copy_from_slice(value);
    value_start..end
}

/// Writes the root of a large value into a slab.
pub(super) fn write_root(class: SlabClass, bytes: &mut [u8], key: &[u8], root: &LargeRoot, expiry: Option<Expiry>) {
    let key_start = write_header(class, bytes, key.len(), 0, true, expiry);
    bytes[key_start..key_start + key.len()].copy_from_slice(key);
    let words = std::iter::once(root.value_size).chain(root.pointers().map(Pointer::unit));
    let targets = bytes[key_start + key.len()..].chunks_exact_mut(POINTER_SIZE);
    for (target, word) in targets.zip(words) {
        target.copy_from_slice(&word.to_le_bytes());
    }
}

impl Header {
    /// Returns the bytes of the key.
    fn key(self) -> Range<usize> {
        self.key_start..self.key_start + self.key_size
    }
}

/// Returns the header, also that of a key with an expiry.
fn header(class: SlabClass, bytes: &[u8]) -> Header {
    let plain = plain_header(class, bytes);
    if plain.key_size > 0 {
        return plain;
    }
    let extension = bytes[plain.key_start..][..EXTENSION_SIZE].try_into().expect("eight bytes");
    let extension = u64::from_le_bytes(extension);
    Header {
        key_start: plain.key_start + EXTENSION_SIZE,
        key_size: (extension & ((1 << KEY_SIZE_BITS) - 1)) as usize,
        expiry: Expiry::at((extension >> KEY_SIZE_BITS) as i64),
        ..plain
    }
}

/// Returns the header without its extension.
#[inline(always)]
fn plain_header(class: SlabClass, bytes: &[u8]) -> Header {
    if class < SlabClass::LARGEST {
        Header {
            key_start: SHORT_HEADER_SIZE,
            key_size: usize::from(bytes[0]),
            value_size: usize::from(bytes[1]),
            is_root: bytes[1] == SHORT_ROOT,
            expiry: None,
        }
    } else {
        let word = u32::from_le_bytes(bytes[..LONG_HEADER_SIZE].try_into().expect("four bytes"));
        Header {
            key_start: LONG_HEADER_SIZE,
            key_size: (word & ((1 << KEY_SIZE_BITS) - 1)) as usize,
            value_size: ((word & !LONG_ROOT) >> KEY_SIZE_BITS) as usize,
            is_root: word & LONG_ROOT != 0,
            expiry: None,
        }
    }
}

/// Writes the header. Returns the offset of the key.
fn write_header(
    class: SlabClass,
    bytes: &mut [u8],
    key_size: usize,
    value_size: usize,
    is_root: bool,
    expiry: Option<Expiry>,
) -> usize {
    let marked_key_size = if expiry.is_some() { 0 } else { key_size };
    let start = if class < SlabClass::LARGEST {
        bytes[0] = marked_key_size as u8;
        bytes[1] = if is_root { SHORT_ROOT } else { value_size as u8 };
        SHORT_HEADER_SIZE
    } else {
        let root = if is_root { LONG_ROOT } else { 0 };
        let word = marked_key_size as u32 | (value_size as u32) << KEY_SIZE_BITS | root;
        bytes[..LONG_HEADER_SIZE].copy_from_slice(&word.to_le_bytes());
        LONG_HEADER_SIZE
    };
    let Some(expiry) = expiry else { return start };
    let extension = key_size as u64 | expiry.milliseconds() << KEY_SIZE_BITS;
    bytes[start..][..EXTENSION_SIZE].copy_from_slice(&extension.to_le_bytes());
    start + EXTENSION_SIZE
}

const _: () = assert!(VALUE_SIZE_MAX < u32::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_sizes_fit_their_slabs() {
        for (pair_size, slab_size) in [(30, 32), (31, 64), (62, 64), (126, 128), (254, 256), (255, 512), (508, 512)] {
            assert_eq!(class_for_pair(1, pair_size - 1, false).unwrap().size(), slab_size);
            assert_eq!(
                class_for_pair(pair_size.min(460), pair_size - pair_size.min(460), false).unwrap().size(),
                slab_size
            );
        }
        assert_eq!(class_for_pair(1, 508, false), None);
        assert_eq!(class_for_pair(1, 500, true), None);
    }

    #[test]
    fn every_pair_is_found_by_its_key_alone() {
        for key_size in 1..=KEY_SIZE_MAX {
            let key = vec![b'k'; key_size];
            let expiries = [None, Expiry::at(0), Expiry::at(1_800_000_000_000), Some(Expiry::MAX)];
            for (value_size, expiry) in [0, 1, 100, PAIR_SIZE_MAX - key_size]
                .into_iter()
                .zip(expiries.into_iter().cycle())
                .chain([0, 100].into_iter().flat_map(|size| expiries.map(|expiry| (size, expiry))))
            {
                let Some(class) = class_for_pair(key_size, value_size, expiry.is_some()) else { continue };
                let mut bytes = vec![0xee; class.size()];
                let value = vec![b'v'; value_size];
                let range = write_pair(class, &mut bytes, &key, &value, expiry);
                assert_eq!(bytes[range.clone()], value);
                assert_eq!(find_value(class, &bytes, &key), expiry.is_none().then(|| range.clone()));
                let object = Object { content: Content::Value(range), expiry };
                let (key_range, read) = read(class, &bytes);
                assert_eq!((&bytes[key_range], read), (key.as_slice(), object.clone()));
                assert_eq!(find(class, &bytes, &key), Some(object));
                assert_eq!(find(class, &bytes, &key[1..]), None);
                assert_eq!(find(class, &bytes, &[&key[1..], b"x"].concat()), None);
            }
        }
    }

    #[test]
    fn a_root_comes_back_for_every_key_size() {
        for key_size in 1..=KEY_SIZE_MAX {
            let key = vec![b'k'; key_size];
            for value_size in [509, 4096, 4097, 512 << 10, VALUE_SIZE_MAX] {
                let count = super::super::large_layout::root_pointer_count(value_size);
                let pointers = std::array::from_fn(|i| (i < count).then(|| Pointer::new((1 << 31) - 1 - i as u32)));
                let root = LargeRoot { value_size: value_size as u32, pointers };
                for expiry in [None, Expiry::at(77)] {
                    let class = class_for_root(key_size, count, expiry.is_some());
                    let mut bytes = vec![0xee; class.size()];
                    write_root(class, &mut bytes, &key, &root, expiry);
                    let object = Object { content: Content::Large(root), expiry };
                    assert_eq!(find(class, &bytes, &key), Some(object));
                }
            }
        }
    }
}
