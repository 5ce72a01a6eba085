//! The outcome of an attempt to write, and the state that a session keeps for its writes.

use super::super::node::overflow::Part;
use super::super::space::Claim;
use super::super::version::garbage::Garbage;
use super::change::Scratch;
use super::effects::EffectLog;
use skep_core::operation::Reply;

/// The outcome of an attempt to write.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The write is done or refused. The reply may be given when this version is readable.
    Committed { reply: Reply<'static>, version: u64 },
    /// The leaf was split, or joined with another, and has the same pairs as before. The write begins again when this
    /// version is readable.
    Restructured { version: u64 },
    /// Another writer has changed or locked the leaf: the write begins again.
    Conflict,
    /// There was no frame or LID for this claim. The store is unchanged.
    NoMemory(Claim),
}

/// An entry that was appended to a log.
pub(super) struct Appended {
    pub(super) version: u64,
    /// True if the log had an entry of the same key.
    pub(super) is_followed: bool,
}

/// Ends the process if a writer panics between allocating and publishing a version: readers could never pass that
/// version.
pub(crate) struct AbortOnPanic;

impl AbortOnPanic {
    /// Notes that the version is published.
    #[inline(always)]
    pub(crate) fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// The state that a session keeps between writes.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// The values of the last write.
    pub(crate) scratch: Scratch,
    /// Garbage that has not been tagged yet. All changes are readable.
    pub(crate) retired: Vec<Garbage>,
    /// True if the last write found no memory though it must not fail: others are using the reserve.
    pub(crate) must_succeed: bool,
    /// Refused attempts that have moved frames since memory ran short.
    pub(crate) moves_of_refused: u32,
    /// The effects of writes, if the session records them.
    pub(crate) effects: Option<Box<EffectLog>>,
}

/// The memory that a merge may use, and the values that it drops.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Decides if it may use the reserve.
    pub(crate) claim: Claim,
    /// Parts of values without a reference after the merge.
    pub(crate) dropped: Vec<Part>,
}
