//! The global write version and the global read version (Honeycomb, section 3.2).
//!
//! ```text
//!            read                 write
//! versions ───┼──●──○──●──●──○─────┼──▶
//!             │  done, not yet readable: an older one is not done
//!             └ all up to here can be read
//! ```
//!
//! A writer takes a version while it holds the lock of what it changes, publishes, and reports the version done. `read`
//! follows in order: a writer whose turn it is moves it on, and past the versions behind that are marked as done; any other
//! marks its own, so that no writer waits for its turn.
//! A version is readable when `read` has reached it; only then is the write answered.
//!
//! Turned off, every version is zero: what is published can be read at once, and nothing is ever too new.

use super::super::sync::{AtomicU64, Ordering, spin_loop, store_then_fence, yield_now};

/// The two versions, and which of those between them are done.
#[derive(Debug)]
pub(crate) struct Versions {
    write: Padded,
    read: Padded,
    /// The slot of version `w` holds `w` if it was done before its turn. No slots: all versions are zero.
    done: Box<[AtomicU64]>,
}

/// A word in lines of its own: writers hammer one while readers poll the other.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(AtomicU64);

/// Rounds of waiting after which a thread lets others run.
const SPIN_COUNT: u32 = 64;

impl Versions {
    /// Both versions zero; at most `in_flight_max` writes can be between taking a version and being readable.
    pub(crate) fn new(in_flight_max: usize) -> Self {
        let done = (0..in_flight_max.next_power_of_two()).map(|_| AtomicU64::new(0)).collect();
        Versions { write: Padded(AtomicU64::new(0)), read: Padded(AtomicU64::new(0)), done }
    }

    /// Every version is zero (Honeycomb, section 3.2: MVCC off).
    pub(crate) fn off() -> Self {
        Versions { write: Padded(AtomicU64::new(0)), read: Padded(AtomicU64::new(0)), done: Box::new([]) }
    }

    /// The newest version of which everything can be read, and of all before it.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.read.0.load(Ordering::Acquire)
    }

    /// Whether there are versions.
    pub(crate) fn are_on(&self) -> bool {
        !self.done.is_empty()
    }

    /// The last version that was taken.
    #[inline]
    pub(crate) fn newest(&self) -> u64 {
        self.write.0.load(Ordering::Relaxed)
    }

    /// Takes the next write version. From here to [`Versions::release`] nothing may fail or wait.
    #[inline]
    pub(crate) fn take(&self) -> u64 {
        if !self.are_on() {
            return 0;
        }
        let version = self.write.0.fetch_add(1, Ordering::Relaxed) + 1;
        let mut rounds = 0;
        // The slot still belongs to a version that is not readable: only with as many writes under way as slots.
        while version - self.read() > self.done.len() as u64 {
            self.advance();
            wait(&mut rounds);
        }
        version
    }

    /// Reports that everything written at this version is published.
    #[inline]
    pub(crate) fn release(&self, version: u64) {
        if !self.are_on() {
            return;
        }
        // Of two writers that are done at once, one must see what the other has written.
        if self.read() + 1 == version {
            // It is this version's turn, and while it is not marked nobody else moves `read` on: no mark is needed.
            store_then_fence(&self.read.0, version);
        } else {
            store_then_fence(self.slot(version), version);
        }
        self.advance();
    }

    /// Whether readers that begin from now on see this version.
    #[inline]
    pub(crate) fn is_readable(&self, version: u64) -> bool {
        self.read() >= version
    }

    /// Waits until a version is readable: for all writers with a lower one.
    #[inline]
    pub(crate) fn wait_until_readable(&self, version: u64) {
        let mut rounds = 0;
        while !self.is_readable(version) {
            self.advance();
            wait(&mut rounds);
        }
    }

    /// Moves the read version past all that are done.
    fn advance(&self) {
        let mut read = self.read();
        while self.slot(read + 1).load(Ordering::Acquire) == read + 1 {
            // If it fails, another thread has moved it on.
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

/// Lets time pass while another writer finishes.
#[inline]
pub(crate) fn wait(rounds: &mut u32) {
    *rounds += 1;
    if *rounds > SPIN_COUNT { yield_now() } else { spin_loop() }
}
