//! Wakes a shard that sleeps, from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes a shard that sleeps.
#[derive(Debug)]
pub(crate) struct Waker {
    event: OwnedFd,
    asleep: AtomicBool,
}

impl Waker {
    /// Returns a waker of a shard that is awake.
    pub(crate) fn new() -> rustix::io::Result<Waker> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Waker { event, asleep: AtomicBool::new(false) })
    }

    /// Records that the shard is about to sleep. After this call it must check once more for all that it must not miss.
    pub(crate) fn will_sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        // If the other side's fence is later, it sees `asleep`. If it is earlier, the last check here sees its batch.
        fence(Ordering::SeqCst);
    }

    /// Says that the shard is awake.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes the shard if it sleeps. The caller must have sent its batch before.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // The only failure is a counter at its limit, and then the event is pending anyway.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
