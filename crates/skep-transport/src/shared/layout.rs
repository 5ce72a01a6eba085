//! The positions of the words and the ring in a file: see the drawing in `mod.rs`.

/// Bytes of a word.
pub(crate) const WORD_SIZE: usize = size_of::<u64>();
/// Bytes of a line of the cache. Each word that the other side polls has a line of its own.
const LINE_SIZE: usize = 64;

/// Index of the word with the number of bytes that were written.
pub(crate) const TAIL_WORD: usize = 0;
/// Index of the word with the number of bytes that were taken out of the other ring.
pub(crate) const TAKEN_WORD: usize = LINE_SIZE / WORD_SIZE;
/// Index of the wait word.
pub(crate) const WAIT_WORD: usize = 2 * LINE_SIZE / WORD_SIZE;
/// Index of the first word of the ring. The ring begins with a page.
pub(crate) const RING_WORD: usize = HEADER_SIZE / WORD_SIZE;

const HEADER_SIZE: usize = 4096;

/// Bytes of each ring. A ring of this size stays in the cache of a core.
pub const RING_SIZE: usize = 64 << 10;
/// Bytes of a file.
pub(crate) const FILE_SIZE: usize = HEADER_SIZE + RING_SIZE;
/// Bytes of the two files of a connection. They use memory only after they were written.
pub const CONNECTION_SIZE: usize = 2 * FILE_SIZE;

const _: () = {
    assert!(RING_SIZE.is_power_of_two() && RING_SIZE.is_multiple_of(WORD_SIZE));
    assert!(TAKEN_WORD - TAIL_WORD >= LINE_SIZE / WORD_SIZE && WAIT_WORD - TAKEN_WORD >= LINE_SIZE / WORD_SIZE);
    assert!(RING_WORD - WAIT_WORD >= LINE_SIZE / WORD_SIZE && RING_WORD * WORD_SIZE == HEADER_SIZE);
};
