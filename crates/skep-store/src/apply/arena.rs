//! The memory of the values that a batch computes, and the bound of that work.

use std::cell::Cell;

use bumpalo::Bump;

/// Bytes of computed values from which on other operations that compute values wait for the next batch.
const SIZE_MAX: usize = 8 << 20;
/// Bytes that an arena keeps from batch to batch.
const SIZE_KEPT: usize = 1 << 20;

/// The memory of computed values. They live until the arena is emptied, after the batch.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    bump: Bump,
    /// Work besides that of filling the memory, as bytes that could be filled in that time.
    work: Cell<usize>,
    /// What was computed in vain.
    wasted: Cell<usize>,
}

impl Arena {
    /// Returns a copy of bytes.
    pub(super) fn copy(&self, bytes: &[u8]) -> &mut [u8] {
        self.bump.alloc_slice_copy(bytes)
    }

    /// Returns zeros.
    pub(super) fn zeros(&self, count: usize) -> &mut [u8] {
        self.bump.alloc_slice_fill_copy(count, 0)
    }

    /// Moves a value into the arena.
    pub(super) fn put<T: Copy>(&self, value: T) -> &T {
        self.bump.alloc(value)
    }

    /// Counts work, as bytes that could be filled in that time.
    pub(super) fn count_work(&self, work: usize) {
        self.work.set(self.work.get() + work);
    }

    /// Returns the work that was counted.
    pub(crate) fn work(&self) -> usize {
        self.work.get()
    }

    /// Returns true if a batch may compute no more.
    pub(crate) fn is_used_up(&self) -> bool {
        self.used() - self.wasted.get() > SIZE_MAX
    }

    /// Allows as much again, once in a batch, if it is used up: what was computed so far is computed anew. Without this, a
    /// batch could use it up without storing a value, and so could each one after it.
    pub(crate) fn forget_waste(&self) {
        if self.wasted.get() == 0 && self.is_used_up() {
            self.wasted.set(self.used());
        }
    }

    fn used(&self) -> usize {
        self.bump.allocated_bytes() + self.work.get()
    }

    /// Frees all that was computed.
    #[inline]
    pub(crate) fn empty(&mut self) {
        (self.work, self.wasted) = (Cell::new(0), Cell::new(0));
        match self.bump.allocated_bytes() {
            0 => {}
            1..=SIZE_KEPT => self.bump.reset(),
            _ => self.bump = Bump::new(),
        }
    }
}
