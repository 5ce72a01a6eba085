//! The tasks of the keeper: the requests of shards, writers and commands, and the parts of snapshots.
//!
//! The list has one lock, which is held for a few instructions. A thread that holds it takes no other lock.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use skep_log::{Pages, SnapshotPart};

use crate::vocabulary::Reached;

/// Chunks that wait for the disk, at most.
pub(crate) const CHUNKS_MAX: usize = 8;

/// The tasks of the keeper.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    list: Mutex<List>,
    /// Rung when there is more to do.
    pub(crate) bell: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) needs_segment: bool,
    /// Requests for snapshots so far, and those that were made before the last one began.
    pub(crate) requests: u64,
    pub(crate) begun_requests: u64,
    /// The level has changed.
    pub(crate) has_level: bool,
    pub(crate) pieces: VecDeque<Piece>,
    /// Pages that were written.
    pub(crate) spare: Vec<Pages>,
    pub(crate) is_over: bool,
}

/// A part of a snapshot.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Pairs of a shard, or of the ordered space.
    Chunk { snapshot: u64, part: SnapshotPart, pages: Pages },
    /// The walk over it is over. Its last step contained this.
    End { snapshot: u64, part: SnapshotPart, reached: Reached, pairs: u64 },
}

impl Tasks {
    pub(crate) fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut List)) {
        change(&mut self.lock());
        self.bell.notify_one();
    }

    /// Asks for a snapshot that begins after this call. Returns the number of the request.
    pub(crate) fn take_snapshot(&self) -> u64 {
        let mut list = self.lock();
        list.requests += 1;
        self.bell.notify_one();
        list.requests
    }

    /// Returns the number of the last request.
    pub(crate) fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// Tells that the level has changed.
    pub(crate) fn note_level(&self) {
        self.change(|list| list.has_level = true);
    }

    /// Asks for a segment.
    pub(crate) fn prepare_segment(&self) {
        let mut list = self.lock();
        if !std::mem::replace(&mut list.needs_segment, true) {
            self.bell.notify_one();
        }
    }

    /// Ends the keeper.
    pub(crate) fn end(&self) {
        self.change(|list| list.is_over = true);
    }

    /// Returns true if a shard may make another chunk.
    pub(crate) fn have_room(&self) -> bool {
        self.lock().pieces.len() < CHUNKS_MAX
    }

    /// Returns pages for a chunk.
    pub(crate) fn spare_pages(&self) -> Pages {
        self.lock().spare.pop().unwrap_or_default()
    }

    /// Takes all parts of a snapshot.
    #[cfg(test)]
    pub(crate) fn take_pieces(&self) -> Vec<Piece> {
        self.lock().pieces.drain(..).collect()
    }

    /// Adds a part of a snapshot.
    pub(crate) fn add(&self, piece: Piece) {
        self.change(|list| list.pieces.push_back(piece));
    }
}
