//! The slabs of a large value: how many of which class, by its size (`large` has the picture).

use super::slab::{SlabClass, SlabNeeds};

/// Pointers that fit a root beside the longest key.
pub(super) const ROOT_POINTERS_MAX: usize = 8;
/// Bytes of the value in a full data slab.
pub(super) const PIECE_SIZE: usize = 512;
/// Pointers of a full index slab.
pub(super) const INDEX_POINTERS: usize = PIECE_SIZE / 4;

/// Returns the number of pointers in the root of a value of this size.
pub(super) fn root_pointer_count(value_size: usize) -> usize {
    let mut count = value_size.div_ceil(PIECE_SIZE);
    while count > ROOT_POINTERS_MAX {
        count = count.div_ceil(INDEX_POINTERS);
    }
    count
}

/// Returns the slabs that a value of this size takes, without its root.
pub(super) fn needs(value_size: usize) -> SlabNeeds {
    let mut needs = SlabNeeds::default();
    let mut need = |count: usize, size: usize| needs[piece_class(size).index()] += count as u32;
    need(value_size / PIECE_SIZE, PIECE_SIZE);
    need(usize::from(!value_size.is_multiple_of(PIECE_SIZE)), value_size % PIECE_SIZE);
    let mut count = value_size.div_ceil(PIECE_SIZE);
    while count > ROOT_POINTERS_MAX {
        need(count / INDEX_POINTERS, PIECE_SIZE);
        need(usize::from(!count.is_multiple_of(INDEX_POINTERS)), count % INDEX_POINTERS * 4);
        count = count.div_ceil(INDEX_POINTERS);
    }
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
    piece_class(pointer_count * 4)
}

/// Returns the sizes of a value's pieces in order.
pub(super) fn piece_sizes(value_size: usize) -> impl Iterator<Item = usize> {
    (0..value_size.div_ceil(PIECE_SIZE)).map(move |piece| (value_size - piece * PIECE_SIZE).min(PIECE_SIZE))
}
