//! Atomics and locks. Those parts of the store in which threads meet import them from this module, so that a model
//! checker can replace it: lock word, versions, epochs, page table, leases, reclamation.
//!
//! The store has three locks: of the space, of the garbage and of the leases. A thread holds at most one of them at a
//! time, so deadlock is impossible. Debug builds and tests check it: taking a second lock panics.

pub(crate) use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::sync::TryLockError;
use std::sync::atomic::compiler_fence;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::thread::yield_now;

/// A lock of the store.
#[derive(Debug)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

/// Holds a lock of the store.
#[derive(Debug)]
pub(crate) struct MutexGuard<'m, T> {
    value: std::sync::MutexGuard<'m, T>,
    /// Declared last: the thread holds the lock until the value is unlocked.
    _held: Held,
}

impl<T> Mutex<T> {
    /// Protects a value by a lock.
    pub(crate) fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }

    /// Takes the lock. Waits while another thread holds it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // Checked first: a second lock panics instead of waiting for ever.
        let held = Held::begin();
        MutexGuard { value: self.0.lock().expect(PANIC_FREE), _held: held }
    }

    /// Takes the lock unless another thread holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = Held::begin();
        match self.0.try_lock() {
            Ok(value) => Some(MutexGuard { value, _held: held }),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("{PANIC_FREE}"),
        }
    }
}

const PANIC_FREE: &str = "no thread panics while it holds a lock of the store";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Proof that this thread holds one lock of the store. Only debug builds and tests check it.
#[derive(Debug)]
struct Held;

#[cfg(any(test, debug_assertions))]
thread_local! {
    static IS_LOCKED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    static LOCK_COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Held {
    fn begin() -> Self {
        #[cfg(any(test, debug_assertions))]
        {
            assert!(!IS_LOCKED.replace(true), "a thread takes a second lock of the store");
            LOCK_COUNT.set(LOCK_COUNT.get() + 1);
        }
        Held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        #[cfg(any(test, debug_assertions))]
        IS_LOCKED.set(false);
    }
}

/// Returns the number of times that this thread has tried to take a lock.
#[cfg(test)]
pub(crate) fn lock_count() -> u64 {
    LOCK_COUNT.get()
}

/// Stores a value (release), then passes a SeqCst fence.
#[inline(always)]
pub(crate) fn store_then_fence(word: &AtomicU64, value: u64) {
    if cfg!(target_arch = "x86_64") {
        // On x86-64 an exchange is a full fence, and takes an eighth of the time of the fence instruction. The language
        // promises less, so the compiler fence keeps accesses from being moved across.
        word.swap(value, Ordering::SeqCst);
        compiler_fence(Ordering::SeqCst);
    } else {
        word.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}
