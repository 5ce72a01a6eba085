//! The slabs of a large value: how many of which class, by its size (`large` has the picture).

use std::ops::Range;

use super::slab::{SlabClass, SlabNeeds};
use crate::apply::UNCUT_SIZE_MAX;

/// Pointers that fit a root beside the longest key.
pub(super) const ROOT_POINTERS_MAX: usize = 8;
/// Bytes of the value in a full data slab.
pub(super) const PIECE_SIZE: usize = 512;
const _: () = assert!(PIECE_SIZE >= UNCUT_SIZE_MAX);
/// Bytes of a pointer of an index slab.
pub(super) const POINTER_SIZE: usize = 4;
/// Pointers of a full index slab.
pub(super) const INDEX_POINTERS: usize = PIECE_SIZE / POINTER_SIZE;

/// Returns the number of pointers in the root of a value of this size.
pub(super) fn root_pointer_count(value_size: usize) -> usize {
    let mut count = value_size.div_ceil(PIECE_SIZE);
    while count > ROOT_POINTERS_MAX {
        count = count.div_ceil(INDEX_POINTERS);
    }
    count
}

/// Returns the bytes of each level of a value of this size: of its data, of the pointers to the data slabs, and so on. A level
/// is cut into slabs of [`PIECE_SIZE`]; the last one has the smallest class that holds the rest.
pub(super) fn level_sizes(value_size: usize) -> impl Iterator<Item = usize> + Clone {
    std::iter::successors(Some(value_size), |size| {
        let count = size.div_ceil(PIECE_SIZE);
        (count > ROOT_POINTERS_MAX).then_some(count * POINTER_SIZE)
    })
}

/// Returns the slabs that a value of this size takes, without its root.
pub(super) fn needs(value_size: usize) -> SlabNeeds {
    let mut needs = SlabNeeds::default();
    level_sizes(value_size).for_each(|size| add_needs(&mut needs, size));
    needs
}

/// Adds the slabs of a level with this number of bytes.
fn add_needs(needs: &mut SlabNeeds, size: usize) {
    needs[SlabClass::LARGEST.index()] += (size / PIECE_SIZE) as u32;
    if !size.is_multiple_of(PIECE_SIZE) {
        needs[piece_class(size % PIECE_SIZE).index()] += 1;
    }
}

/// The growth of a level of a value. The slabs before its last one stay as they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelGrowth {
    /// Bytes before; 0 if the level is new.
    before: usize,
    /// Bytes after.
    pub(super) after: usize,
}

impl LevelGrowth {
    /// Returns the bytes of the last slab before the growth, if there was one.
    pub(super) fn last(self) -> Option<Range<usize>> {
        let start = self.before.checked_sub(1)? / PIECE_SIZE * PIECE_SIZE;
        Some(start..self.before)
    }

    /// Returns the bytes that the last slab has after the growth, or that replaces it.
    pub(super) fn last_size_after(self, last: &Range<usize>) -> usize {
        (self.after - last.start).min(PIECE_SIZE)
    }

    /// Returns the slabs that it takes.
    fn add_needs(self, needs: &mut SlabNeeds) {
        let Some(last) = self.last() else { return add_needs(needs, self.after) };
        let last_size = self.last_size_after(&last);
        if piece_class(last_size) != piece_class(last.len()) {
            needs[piece_class(last_size).index()] += 1;
        }
        add_needs(needs, self.after - last.start - last_size);
    }
}

/// Returns the growth of each level of a value.
pub(super) fn growths(before: usize, after: usize) -> impl Iterator<Item = LevelGrowth> + Clone {
    let sizes_before = level_sizes(before).map(Some).chain(std::iter::repeat(None));
    let growth = |(before, after): (Option<usize>, usize)| LevelGrowth { before: before.unwrap_or(0), after };
    sizes_before.zip(level_sizes(after)).map(growth)
}

/// Returns the slabs that a value takes to grow, without its root.
pub(super) fn growth_needs(before: usize, after: usize) -> SlabNeeds {
    let mut needs = SlabNeeds::default();
    growths(before, after).for_each(|growth| growth.add_needs(&mut needs));
    needs
}

/// Returns the bytes of slab memory that a value of this size takes, without its root.
pub(super) fn footprint(value_size: usize) -> usize {
    SlabClass::all().map(|class| needs(value_size)[class.index()] as usize * class.size()).sum()
}

/// Returns the class of a data slab.
pub(super) fn piece_class(size: usize) -> SlabClass {
    SlabClass::for_size(size).expect("a piece fits a slab")
}

/// Returns the class of an index slab.
pub(super) fn index_class(pointer_count: usize) -> SlabClass {
    piece_class(pointer_count * POINTER_SIZE)
}

/// Returns the sizes of a value's pieces in order.
pub(super) fn piece_sizes(value_size: usize) -> impl Iterator<Item = usize> {
    (0..value_size.div_ceil(PIECE_SIZE)).map(move |piece| (value_size - piece * PIECE_SIZE).min(PIECE_SIZE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_grows_ends_with_the_slabs_of_its_size() {
        let sizes = [509, 512, 513, 600, 1024, 4095, 4096, 4097, 5000, 65_536, 65_537, 524_288, 524_289, 1 << 20];
        for (index, before) in sizes.into_iter().enumerate() {
            for after in sizes[index + 1..].iter().copied() {
                let mut slabs = needs(before);
                let grown = growth_needs(before, after);
                for (level, growth) in growths(before, after).enumerate() {
                    let Some(last) = growth.last() else { continue };
                    assert_eq!(level_sizes(before).nth(level), Some(last.end));
                    if piece_class(last.len()) != piece_class(growth.last_size_after(&last)) {
                        slabs[piece_class(last.len()).index()] -= 1;
                    }
                }
                let expected = needs(after);
                for class in SlabClass::all().map(SlabClass::index) {
                    assert_eq!(slabs[class] + grown[class], expected[class], "{before} to {after}");
                }
            }
        }
    }
}
