//! Stands for the module `sync` of the ordered store.
//!
//! Loom 0.7 remembers one last access of an atomic. If a thread loads and then changes what another thread has loaded before,
//! it takes the two of the first thread for the only ones and never tries the other order. So each access is
//! preceded by a store to a companion that is never read: it orders nothing, and any two of them are tried in both orders.

pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::MutexGuard;
use loom::sync::atomic;
pub(crate) use loom::sync::atomic::{Ordering, fence};
pub(crate) use loom::thread::yield_now;

#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

macro_rules! watched {
    ($name:ident, $number:ty) => {
        #[derive(Debug)]
        pub(crate) struct $name {
            word: atomic::$name,
            companion: atomic::AtomicBool,
        }

        impl $name {
            pub(crate) fn new(value: $number) -> Self {
                $name { word: atomic::$name::new(value), companion: atomic::AtomicBool::new(false) }
            }

            fn word(&self) -> &atomic::$name {
                self.companion.store(true, Ordering::Relaxed);
                &self.word
            }

            pub(crate) fn load(&self, ordering: Ordering) -> $number {
                self.word().load(ordering)
            }

            pub(crate) fn store(&self, value: $number, ordering: Ordering) {
                self.word().store(value, ordering);
            }
        }
    };
}

pub(crate) fn store_then_fence(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
    fence(Ordering::SeqCst);
}

watched!(AtomicU32, u32);
watched!(AtomicU64, u64);

impl AtomicU64 {
    pub(crate) fn fetch_add(&self, value: u64, ordering: Ordering) -> u64 {
        self.word().fetch_add(value, ordering)
    }

    pub(crate) fn fetch_max(&self, value: u64, ordering: Ordering) -> u64 {
        self.word().fetch_max(value, ordering)
    }

    pub(crate) fn swap(&self, value: u64, ordering: Ordering) -> u64 {
        self.word().swap(value, ordering)
    }

    pub(crate) fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.word().compare_exchange(current, new, success, failure)
    }
}
