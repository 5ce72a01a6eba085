//! What the steps of a write share: how an attempt ends, and what a session keeps for it.

use super::super::node::overflow::Part;
use super::super::space::Claim;
use super::super::version::garbage::Garbage;
use super::change::Draft;
use skep_core::operation::Reply;

/// How an attempt to write ended.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Done or refused, on the ground of data up to a version that has to be readable before the answer is given.
    Settled { reply: Reply<'static>, version: u64 },
    /// The leaf was split, or joined with another, and holds the same pairs as before: begin again when this version is
    /// readable.
    Restructured { version: u64 },
    /// Another writer was in the way: begin again.
    Again,
    /// There was no frame or LID for this. Nothing has changed.
    NoMemory(Claim),
}

/// Ends the process if a writer panics between taking a version and releasing it: readers would never see later ones.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// What a session keeps from write to write.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// The values of the last write.
    pub(crate) draft: Draft,
    /// What was replaced and has not been tagged yet. All of it is readable.
    pub(crate) replaced: Vec<Garbage>,
    /// Whether the last write found no memory though it must not fail: others are using what is kept back for it.
    pub(crate) must_succeed: bool,
    /// Refused attempts that have moved frames since memory ran short.
    pub(crate) moves_of_refused: u32,
}

/// What a merge takes of memory, and what it drops.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Whether it may use what is kept back.
    pub(crate) claim: Claim,
    /// Parts of values that nothing refers to after it.
    pub(crate) dropped: Vec<Part>,
}
