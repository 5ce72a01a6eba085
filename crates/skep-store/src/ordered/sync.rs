//! The seam to the atomics: the small machines of this store (lock word, versions, epochs, page table, leases) name their
//! atomics and locks by this module, so that a model checker can put its own in their place.

pub(crate) use std::hint::spin_loop;
use std::sync::atomic::compiler_fence;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use std::thread::yield_now;

/// Stores a value (release), then passes a SeqCst fence.
#[inline(always)]
pub(crate) fn store_then_fence(word: &AtomicU64, value: u64) {
    if cfg!(target_arch = "x86_64") {
        // An exchange is a full fence of that processor, and takes an eighth of the time of the fence's own instruction. The
        // language promises less, so the compiler is kept from moving anything across.
        word.swap(value, Ordering::SeqCst);
        compiler_fence(Ordering::SeqCst);
    } else {
        word.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}
