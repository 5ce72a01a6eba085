//! The global write version and the global read version (Honeycomb, section 3.2).
//!
//! ```text
//!            read                 write
//! versions ───┼──●──○──●──●──○─────┼──▶
//!             │  done, not yet readable: an older one is not done
//!             └ all up to this one can be read
//! ```
//!
//! 1. A writer allocates a version while it holds the lock of its leaf.
//! 2. After it has published its change, it sets `read` to its version if that is the next one. Otherwise it marks its
//!    version as done.
//! 3. Any thread that finds the next version done moves `read` past it.
//!
//! So a writer does not wait for its turn to publish. A version is readable when `read` has reached it; only then the
//! write returns.
//!
//! If versions are turned off, every version is zero, and published data can be read at once.

use super::super::sync::{AtomicU64, Ordering, spin_loop, store_then_fence, yield_now};

/// The two versions, and which of the versions between them are done.
#[derive(Debug)]
pub(crate) struct Versions {
    write: Padded,
    read: Padded,
    /// The slot of version `w` contains `w` if it was done before its turn. Without slots all versions are zero.
    done: Box<[AtomicU64]>,
}

/// A word on lines of its own: writers change one while readers poll the other.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(AtomicU64);

/// Rounds of waiting after which a thread yields.
const SPIN_COUNT: u32 = 64;

impl Versions {
    /// Creates versions that begin at zero. At most `in_flight_max` writes can be between allocating a version and
    /// being readable.
    pub(crate) fn new(in_flight_max: usize) -> Self {
        let done = (0..in_flight_max.next_power_of_two()).map(|_| AtomicU64::new(0)).collect();
        Versions { write: Padded(AtomicU64::new(0)), read: Padded(AtomicU64::new(0)), done }
    }

    /// Creates versions that are always zero (Honeycomb, section 3.2: MVCC off).
    pub(crate) fn off() -> Self {
        Versions { write: Padded(AtomicU64::new(0)), read: Padded(AtomicU64::new(0)), done: Box::new([]) }
    }

    /// Returns the read version: all data up to it can be read.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.read.0.load(Ordering::Acquire)
    }

    /// Returns true unless all versions are zero.
    pub(crate) fn are_on(&self) -> bool {
        !self.done.is_empty()
    }

    /// Returns the version that was allocated last.
    #[inline]
    pub(crate) fn newest(&self) -> u64 {
        self.write.0.load(Ordering::Relaxed)
    }

    /// Makes all later versions greater than this one. No write is in flight.
    pub(crate) fn begin_after(&mut self, version: u64) {
        let newest = version.max(self.newest());
        if self.are_on() {
            self.write.0.store(newest, Ordering::Relaxed);
            self.read.0.store(newest, Ordering::Release);
        }
    }

    /// Allocates the next write version. From this call to [`Versions::publish`] nothing may fail or wait.
    #[inline]
    pub(crate) fn allocate(&self) -> u64 {
        if !self.are_on() {
            return 0;
        }
        let version = self.write.0.fetch_add(1, Ordering::Relaxed) + 1;
        let mut rounds = 0;
        // The slot still belongs to a version that is not readable. This needs as many writes in flight as slots.
        while version - self.read() > self.done.len() as u64 {
            self.advance();
            wait(&mut rounds);
        }
        version
    }

    /// Publishes a version: all that was written at it can be read once `read` has reached it.
    #[inline]
    pub(crate) fn publish(&self, version: u64) {
        if !self.are_on() {
            return;
        }
        // If two writers are done at once, one must see the mark of the other.
        if self.read() + 1 == version {
            // It is this version's turn. While it is not marked, no other thread moves `read`, so no mark is needed.
            store_then_fence(&self.read.0, version);
            self.advance_from(version);
        } else {
            store_then_fence(self.slot(version), version);
            self.advance();
        }
    }

    /// Returns true if readers that begin from now on see this version.
    #[inline]
    pub(crate) fn is_readable(&self, version: u64) -> bool {
        self.read() >= version
    }

    /// Waits until a version is readable, and so for all writers with a lower one.
    #[inline]
    pub(crate) fn wait_until_readable(&self, version: u64) {
        let mut rounds = 0;
        while !self.is_readable(version) {
            self.advance();
            wait(&mut rounds);
        }
    }

    /// Moves the read version past all versions that are done.
    #[inline(never)]
    fn advance(&self) {
        self.advance_from(self.read());
    }

    /// Does the same. The read version was this one, or is greater.
    #[inline(always)]
    fn advance_from(&self, mut read: u64) {
        while self.slot(read + 1).load(Ordering::Acquire) == read + 1 {
            // If it fails, another thread has moved it.
            match self.read.0.compare_exchange(read, read + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => read += 1,
                Err(moved) => read = moved,
            }
        }
    }

    fn slot(&self, version: u64) -> &AtomicU64 {
        &self.done[version as usize & (self.done.len() - 1)]
    }
}

/// Spins, then yields, while another writer finishes.
#[inline]
pub(crate) fn wait(rounds: &mut u32) {
    *rounds += 1;
    if *rounds > SPIN_COUNT { yield_now() } else { spin_loop() }
}
