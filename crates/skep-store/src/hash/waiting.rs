//! The operations that wait until free slabs are merged: see `slab/search.rs`.

use std::hint::cold_path;

use super::table::{HashTable, KeyHash};
use crate::memory::Memory;

impl<M: Memory> HashTable<M> {
    /// Notes that an operation on a key lacks slabs, which are being merged. Returns false if it has already waited for
    /// all merges.
    pub(crate) fn may_wait(&self, hash: KeyHash) -> bool {
        self.may_have_waiters.set(true);
        self.slabs().may_wait(hash.0)
    }

    /// Notes that an operation on a key, which may have waited for slabs, is done or refused.
    #[inline(always)]
    pub(crate) fn end_wait(&self, hash: KeyHash) {
        if self.may_have_waiters.get() {
            cold_path();
            self.forget_waiter(hash);
        }
    }

    #[inline(never)]
    fn forget_waiter(&self, hash: KeyHash) {
        let has_others = self.slabs().end_wait(hash.0);
        self.may_have_waiters.set(has_others);
    }
}
