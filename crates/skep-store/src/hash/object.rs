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
//! ```

use std::ops::Range;

use super::large_layout::ROOT_POINTERS_MAX;
use super::slab::SlabClass;
use crate::memory::Pointer;
use crate::short::equal;
use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};

const SHORT_HEADER_SIZE: usize = 2;
const LONG_HEADER_SIZE: usize = 4;
/// In a short header, the value size that marks a root. No pair has it: two bytes of header and one of key leave 253.
const SHORT_ROOT: u8 = 255;
const LONG_ROOT: u32 = 1 << 31;
const KEY_SIZE_BITS: u32 = 9;
const POINTER_SIZE: usize = 4;

/// Most bytes of a pair in one slab.
pub(crate) const PAIR_SIZE_MAX: usize = 512 - LONG_HEADER_SIZE;

const _: () = assert!(KEY_SIZE_MAX < 1 << KEY_SIZE_BITS);
const _: () = assert!(LONG_HEADER_SIZE + KEY_SIZE_MAX + 4 + ROOT_POINTERS_MAX * POINTER_SIZE <= 512);

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

/// The content of a slab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// A pair, whose value is these bytes of the slab.
    Value(Range<usize>),
    /// The root of a large value.
    Large(LargeRoot),
}

/// Returns the class of the slab for a pair, if one is large enough.
pub(super) fn class_for_pair(key_size: usize, value_size: usize) -> Option<SlabClass> {
    let pair_size = key_size + value_size;
    SlabClass::for_size(pair_size + SHORT_HEADER_SIZE)
        .filter(|class| *class < SlabClass::LARGEST)
        .or_else(|| SlabClass::for_size(pair_size + LONG_HEADER_SIZE))
}

/// Returns the class of the slab for the root of a large value.
pub(super) fn class_for_root(key_size: usize, pointer_count: usize) -> SlabClass {
    class_for_pair(key_size, 4 + pointer_count * POINTER_SIZE).expect("a root fits a slab")
}

/// Returns the bytes of the value, if the slab has this key and the value in one piece.
#[inline(always)]
pub(super) fn find_value(class: SlabClass, bytes: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let (key_start, key_size, value_size, is_root) = header(class, bytes);
    let value_start = key_start + key_size;
    let is_it = !is_root && equal(&bytes[key_start..value_start], key);
    is_it.then(|| value_start..value_start + value_size)
}

/// Returns the content of the slab if its key is this one.
pub(super) fn find(class: SlabClass, bytes: &[u8], key: &[u8]) -> Option<Object> {
    if let Some(range) = find_value(class, bytes, key) {
        return Some(Object::Value(range));
    }
    let (key_start, key_size, _, is_root) = header(class, bytes);
    let value_start = key_start + key_size;
    if !is_root || bytes[key_start..value_start] != *key {
        return None;
    }
    let word = |index: usize| {
        let start = value_start + index * POINTER_SIZE;
        u32::from_le_bytes(bytes[start..start + POINTER_SIZE].try_into().expect("four bytes"))
    };
    let value_size = word(0);
    let count = super::large_layout::root_pointer_count(value_size as usize);
    let pointers = std::array::from_fn(|i| (i < count).then(|| Pointer::new(word(1 + i))));
    Some(Object::Large(LargeRoot { value_size, pointers }))
}

/// Writes a pair into a slab. Returns the bytes of its value.
pub(super) fn write_pair(class: SlabClass, bytes: &mut [u8], key: &[u8], value: &[u8]) -> Range<usize> {
    let key_start = write_header(class, bytes, key.len(), value.len(), false);
    let value_start = key_start + key.len();
    let end = value_start + value.len();
    bytes[key_start..value_start].copy_from_slice(key);
    bytes[value_start..end].copy_from_slice(value);
    value_start..end
}

/// Writes the root of a large value into a slab.
pub(super) fn write_root(class: SlabClass, bytes: &mut [u8], key: &[u8], root: &LargeRoot) {
    let key_start = write_header(class, bytes, key.len(), 0, true);
    bytes[key_start..key_start + key.len()].copy_from_slice(key);
    let words = std::iter::once(root.value_size).chain(root.pointers().map(Pointer::unit));
    let targets = bytes[key_start + key.len()..].chunks_exact_mut(POINTER_SIZE);
    for (target, word) in targets.zip(words) {
        target.copy_from_slice(&word.to_le_bytes());
    }
}

/// Returns the offset of the key, its size, the size of the value, and true for a root.
#[inline(always)]
fn header(class: SlabClass, bytes: &[u8]) -> (usize, usize, usize, bool) {
    if class < SlabClass::LARGEST {
        (SHORT_HEADER_SIZE, usize::from(bytes[0]), usize::from(bytes[1]), bytes[1] == SHORT_ROOT)
    } else {
        let word = u32::from_le_bytes(bytes[..LONG_HEADER_SIZE].try_into().expect("four bytes"));
        let key_size = word & ((1 << KEY_SIZE_BITS) - 1);
        let value_size = (word & !LONG_ROOT) >> KEY_SIZE_BITS;
        (LONG_HEADER_SIZE, key_size as usize, value_size as usize, word & LONG_ROOT != 0)
    }
}

/// Writes the header. Returns the offset of the key.
fn write_header(class: SlabClass, bytes: &mut [u8], key_size: usize, value_size: usize, is_root: bool) -> usize {
    if class < SlabClass::LARGEST {
        bytes[0] = key_size as u8;
        bytes[1] = if is_root { SHORT_ROOT } else { value_size as u8 };
        SHORT_HEADER_SIZE
    } else {
        let root = if is_root { LONG_ROOT } else { 0 };
        let word = key_size as u32 | (value_size as u32) << KEY_SIZE_BITS | root;
        bytes[..LONG_HEADER_SIZE].copy_from_slice(&word.to_le_bytes());
        LONG_HEADER_SIZE
    }
}

const _: () = assert!(VALUE_SIZE_MAX < u32::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_sizes_fit_their_slabs() {
        for (pair_size, slab_size) in [(30, 32), (31, 64), (62, 64), (126, 128), (254, 256), (255, 512), (508, 512)] {
            assert_eq!(class_for_pair(1, pair_size - 1).unwrap().size(), slab_size);
            assert_eq!(class_for_pair(pair_size.min(460), pair_size - pair_size.min(460)).unwrap().size(), slab_size);
        }
        assert_eq!(class_for_pair(1, 508), None);
    }

    #[test]
    fn every_pair_is_found_by_its_key_alone() {
        for key_size in 1..=KEY_SIZE_MAX {
            let key = vec![b'k'; key_size];
            for value_size in [0, 1, 100, PAIR_SIZE_MAX - key_size] {
                let Some(class) = class_for_pair(key_size, value_size) else { continue };
                let mut bytes = vec![0xee; class.size()];
                let value = vec![b'v'; value_size];
                let range = write_pair(class, &mut bytes, &key, &value);
                assert_eq!(bytes[range.clone()], value);
                assert_eq!(find(class, &bytes, &key), Some(Object::Value(range)));
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
                let class = class_for_root(key_size, count);
                let mut bytes = vec![0xee; class.size()];
                write_root(class, &mut bytes, &key, &root);
                assert_eq!(find(class, &bytes, &key), Some(Object::Large(root)));
            }
        }
    }
}
