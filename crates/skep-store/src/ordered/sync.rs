//! The seam to the atomics: the small machines of this store (lock word, versions, epochs, page table, leases) name their
//! atomics and locks by this module, so that a model checker can put its own in their place.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use std::thread::yield_now;
