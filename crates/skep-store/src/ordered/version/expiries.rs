//! The times at which the memory of expired keys is freed, and the position of the pass that frees it.
//!
//! ```text
//! earliest expiry      a pass: once over all leaves                    pause, if it has removed few keys
//! ─────────▼───────────┼── step ──┼── step ──┼── step ──┼─────────────────────────┼──▶ time
//!                      forget it                        the earliest that is left
//! ```
//!
//! 1. A pass begins when the earliest expiry has passed. It is known from the last pass, and from the writes since then. So
//!    a store without expiries does nothing here.
//! 2. One session at a time makes a step. It takes the pass out of its lock for that; the others do not wait.
//! 3. A pass that has removed few of the keys with an expiry is followed by a pause of [`PAUSE_FACTOR`] times its duration.
//!    Otherwise keys that expire one by one would let passes follow each other without end.
//!
//! **Why no expiry is missed.** A write commits its leaf, passes a SeqCst fence, then notes its expiry. A pass forgets the
//! earliest one, passes a SeqCst fence, then reads the leaves. Either the note follows, or the pass finds the key.

use super::super::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence};
use skep_core::operation::Expiry;

/// A pass removes many keys if it removes at least one of this number that have an expiry.
const MANY_PART: u64 = 16;
/// It also removes at least one key for this number of leaves.
const LEAVES_PER_KEY: u64 = 64;
/// How many times longer than a pass that has removed few keys the pause after it is.
const PAUSE_FACTOR: u64 = 8;
/// The longest pause, in milliseconds.
const PAUSE_MAX: u64 = 60_000;
/// The earliest expiry of no key.
const NEVER: u64 = u64::MAX;

/// The expiries of a store. On lines of their own: writes change the earliest one.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Expiries {
    /// The earliest expiry that was noted since the last pass began.
    earliest: AtomicU64,
    is_running: AtomicU32,
    /// No pass begins before.
    not_before: AtomicU64,
    /// `None` while a session makes a step.
    pass: Mutex<Option<Pass>>,
}

/// A pass over all leaves.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    /// All keys below this one were visited.
    pub(crate) position: Vec<u8>,
    /// Keys with an expiry that the pass has seen, and how many of them it has removed.
    pub(crate) seen: u64,
    pub(crate) removed: u64,
    /// Leaves that it has visited.
    pub(crate) leaves: u64,
    /// The earliest expiry that it has left.
    earliest: Option<Expiry>,
    /// When it began.
    begun: u64,
}

impl Expiries {
    /// Creates the state of a store without expiries.
    pub(crate) fn new() -> Self {
        Expiries {
            earliest: AtomicU64::new(NEVER),
            is_running: AtomicU32::new(0),
            not_before: AtomicU64::new(0),
            pass: Mutex::new(Some(Pass::default())),
        }
    }

    /// Notes the expiry of a key, after the write that gives it to the key.
    #[cold]
    pub(crate) fn note(&self, expiry: Expiry) {
        fence(Ordering::SeqCst);
        if expiry.milliseconds() < self.earliest.load(Ordering::Relaxed) {
            self.earliest.fetch_min(expiry.milliseconds(), Ordering::AcqRel);
        }
    }

    /// Returns the time from which on there is a step to make. `None` if no key has an expiry.
    pub(crate) fn due(&self) -> Option<u64> {
        if self.is_running.load(Ordering::Relaxed) != 0 {
            return Some(0);
        }
        let earliest = self.earliest.load(Ordering::Relaxed);
        (earliest != NEVER).then(|| earliest.max(self.not_before.load(Ordering::Relaxed)))
    }

    /// Returns the pass for a step, if it is time for one and no other session makes one. Begins a pass if none is running.
    pub(crate) fn begin_step(&self, now: u64) -> Option<Pass> {
        let mut pass = self.pass.try_lock()?.take()?;
        // Another session may have ended the pass meanwhile.
        if self.due().is_none_or(|due| due > now) {
            self.end_step(pass);
            return None;
        }
        if self.is_running.load(Ordering::Relaxed) == 0 {
            pass.position.clear();
            pass = Pass { position: pass.position, begun: now, ..Pass::default() };
            self.is_running.store(1, Ordering::Relaxed);
            self.earliest.store(NEVER, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        Some(pass)
    }

    /// Ends a pause, because a write was refused for lack of memory, or keys are to be counted.
    pub(crate) fn end_pause(&self) {
        self.not_before.store(0, Ordering::Relaxed);
    }

    /// Lets other sessions make the next step.
    pub(crate) fn end_step(&self, pass: Pass) {
        *self.pass.lock() = Some(pass);
    }

    /// Ends the pass with its last step.
    pub(crate) fn end_pass(&self, pass: Pass, now: u64) {
        if let Some(earliest) = pass.earliest {
            self.note(earliest);
        }
        let has_removed_many = pass.removed * MANY_PART >= pass.seen && pass.removed * LEAVES_PER_KEY >= pass.leaves;
        // Another session may have begun the pass at a later time than this one knows.
        let pause = if has_removed_many { 0 } else { (now.saturating_sub(pass.begun) * PAUSE_FACTOR).min(PAUSE_MAX) };
        self.not_before.store(now + pause, Ordering::Relaxed);
        self.is_running.store(0, Ordering::Relaxed);
        self.end_step(pass);
    }
}

impl Pass {
    /// Counts a key that expires later.
    pub(crate) fn leave(&mut self, expiry: Expiry) {
        self.seen += 1;
        self.earliest = Some(self.earliest.map_or(expiry, |earliest| earliest.min(expiry)));
    }
}
