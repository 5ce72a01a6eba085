//! The walk of a shard over its keys, for a snapshot: a bounded step between two turns.
//!
//! A step returns the pairs of at most 64 home buckets. The block of the shard is sealed before it, and the chunk notes
//! the last block that was sealed. So recovery knows which operations of the log the pairs contain already: those of
//! blocks up to that one. See `skep_log::Boundary`.
//!
//! Before that, all shards walk over the ordered space, in which they take turns: each step continues where the last one
//! has ended, whichever shard made it. A step notes the version that it shows. Writers may insert keys in front of this
//! walk. So a shard owes a number of pairs for each key that it has inserted since, and its steps pay for them. Hence the
//! walk is faster than its writers, and shows at most 8/7 of the pairs that existed when it began. It takes no longer than
//! the turn before it for that, and waits while the disk has no room for chunks: then it may show more.
//!
//! A snapshot has the keys that had not expired at the last time that the log states. Later ones have expired only by the
//! clock of this server, which no client may have met, and which may be wrong.

use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use skep_log::{BlockWriter, ChunkWriter, SnapshotPart, last_position};
use skep_store::ordered::{Session, SnapshotWalk};
use skep_store::processor::Processor;

use super::Log;
use super::tasks::Piece;
use crate::vocabulary::Reached;

/// Bytes from which on a chunk is complete.
pub(super) const CHUNK_SIZE: usize = 512 << 10;
/// A walk takes at most this part of the time of a shard that has other work.
const PART: u32 = 16;
/// Pairs of a step over the ordered space, and bytes of their keys and values.
pub(super) const ORDERED_PAIRS: usize = 256;
pub(super) const ORDERED_SIZE: usize = 64 << 10;
/// Pairs of the ordered space that a shard walks over for each key that it has inserted there meanwhile.
pub(crate) const PAIRS_FOR_INSERT: u64 = 8;
/// Time that a walk makes up for at most, after turns in which it could make no step.
const CREDIT_MAX: Duration = Duration::from_millis(5);
/// How long an idle shard walks before it looks for other work.
const IDLE_TIME: Duration = Duration::from_micros(100);

/// A shard's part in snapshots.
#[derive(Debug)]
pub(crate) struct Walk {
    log: Arc<Log>,
    shard: u16,
    /// The last snapshot that the shard began to walk for.
    number: u64,
    /// The walk over the ordered space is not known to be over.
    is_in_order: bool,
    /// `None` if the walk over the shard's part of the hash space is over.
    walking: Option<Walking>,
    has_ordered: bool,
    /// Time that the walk may take, for the work that was done.
    credit: Duration,
    /// Pairs of the ordered space that it owes.
    debt: u64,
}

/// The walk over a shard's part of the hash space.
#[derive(Debug)]
struct Walking {
    chunks: ChunkWriter,
    /// The home bucket with which the next step begins.
    next_position: u64,
    /// Number of pairs so far.
    pairs: u64,
}

/// The walk over the ordered space, in which all shards take their turns.
#[derive(Debug, Default)]
pub(crate) struct OrderedWalk {
    /// The last snapshot that it began for.
    number: u64,
    /// `None` if it is over.
    walking: Option<(SnapshotWalk, ChunkWriter)>,
    /// Number of pairs so far.
    pairs: u64,
}

impl Walk {
    pub(crate) fn new(log: Arc<Log>, shard: u16, has_ordered: bool) -> Walk {
        let (credit, debt) = (Duration::ZERO, 0);
        Walk { log, shard, number: 0, is_in_order: false, walking: None, has_ordered, credit, debt }
    }

    /// Returns true if a step can be made.
    pub(crate) fn has_work(&self) -> bool {
        let number = self.log.snapshots.number();
        let has_parts = number != self.number || self.is_in_order || self.walking.is_some();
        number != 0 && has_parts && self.log.tasks.have_room()
    }

    /// Counts the time of a turn in which no step can be made.
    pub(crate) fn defer(&mut self, worked: Duration) {
        if self.log.snapshots.number() != 0 {
            self.credit = (self.credit + worked / PART).min(CREDIT_MAX);
        }
    }

    /// Makes steps for a bounded time, after a turn that took `worked`, or was idle. The shard's block is sealed.
    pub(crate) fn run(
        &mut self,
        processor: &mut Processor,
        mut ordered: Option<&mut Session<'_>>,
        worked: Option<Duration>,
    ) {
        let inserted = ordered.as_deref_mut().map_or(0, Session::take_inserted);
        self.debt = if self.log.snapshots.number() == 0 { 0 } else { self.debt + inserted * PAIRS_FOR_INSERT };
        if !self.has_work() {
            return;
        }
        match worked {
            Some(time) => self.credit += time / PART,
            None => self.credit = self.credit.max(IDLE_TIME),
        }
        let (begun, debt_time) = (Instant::now(), worked.map_or(IDLE_TIME, |worked| worked.max(IDLE_TIME)));
        while (!self.credit.is_zero() || self.debt > 0 && begun.elapsed() < debt_time) && self.has_work() {
            let begun = Instant::now();
            if !self.step(processor, ordered.as_deref_mut()) {
                return;
            }
            self.credit = self.credit.saturating_sub(begun.elapsed());
        }
    }

    /// Makes one step. Returns false if another shard is making one.
    pub(crate) fn step(&mut self, processor: &mut Processor, ordered: Option<&mut Session<'_>>) -> bool {
        let number = self.log.snapshots.number();
        if number != self.number {
            self.number = number;
            self.is_in_order = self.has_ordered;
            self.walking = Some(Walking::new(number, SnapshotPart::Shard(self.shard)));
        }
        match ordered {
            Some(session) if self.is_in_order => self.step_in_order(session),
            _ => {
                let Some(walking) = &mut self.walking else { return true };
                if walking.step(self.shard, processor, &self.log) {
                    self.walking = None;
                }
                true
            }
        }
    }

    fn step_in_order(&mut self, session: &mut Session<'_>) -> bool {
        let mut walk = match self.log.snapshots.ordered.try_lock() {
            Ok(walk) => walk,
            Err(TryLockError::Poisoned(walk)) => walk.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        match walk.step(self.number, session, &self.log) {
            Some(pairs) => self.debt = self.debt.saturating_sub(pairs),
            None => (self.is_in_order, self.debt) = (false, 0),
        }
        true
    }
}

impl Walking {
    fn new(snapshot: u64, part: SnapshotPart) -> Walking {
        Walking { chunks: ChunkWriter::new(snapshot, part), next_position: 0, pairs: 0 }
    }

    /// Makes a step. Returns true if it was the last one.
    fn step(&mut self, shard: u16, processor: &mut Processor, log: &Log) -> bool {
        let Walking { chunks, next_position, pairs } = self;
        let reached = Reached { block: log.sealed(), version: 0 };
        // Later operations of this shard are not executed before its time: they do not find these keys either.
        let now = processor.now().min(log.stated_time.get());
        let following = processor.walk_pairs(*next_position, |key, value, expiry| {
            if !expiry.is_some_and(|expiry| expiry.has_passed(now)) {
                *pairs += 1;
                chunks.push(key, value, expiry);
            }
        });
        chunks.end_step(last_position(following), reached.block);
        *next_position = following.unwrap_or(0);
        let is_last = following.is_none();
        add_chunk(chunks, is_last, log);
        if is_last {
            let part = SnapshotPart::Shard(shard);
            log.tasks.add(Piece::End { snapshot: chunks.snapshot(), part, reached, pairs: *pairs });
        }
        is_last
    }
}

impl OrderedWalk {
    /// Makes a step for a snapshot. Returns the number of its pairs; `None` if the walk is over.
    fn step(&mut self, number: u64, session: &mut Session<'_>, log: &Log) -> Option<u64> {
        if log.snapshots.number() != number {
            return None;
        }
        if self.number != number {
            let chunks = ChunkWriter::new(number, SnapshotPart::Ordered);
            let walk = session.begin_snapshot(log.stated_time.get());
            *self = OrderedWalk { number, walking: Some((walk, chunks)), pairs: 0 };
        }
        let (walk, chunks) = self.walking.as_mut()?;
        let (block, before) = (log.sealed(), self.pairs);
        let step = session.snapshot_step(walk, ORDERED_PAIRS, ORDERED_SIZE, |key, value, expiry| {
            self.pairs += 1;
            chunks.push(key, value, expiry);
        });
        if !walk.position().is_empty() {
            chunks.end_ordered_step(Some(walk.position()), step.version);
        }
        if step.is_last {
            chunks.end_ordered_step(None, walk.begun_at());
        }
        add_chunk(chunks, step.is_last, log);
        if step.is_last {
            // A floor above all versions that were shown gets into the log, also if no other write follows.
            session.state_floor(|_, floor| {
                log.push(BlockWriter::new().seal_floor(floor));
            });
            let (part, reached) = (SnapshotPart::Ordered, Reached { block, version: step.version });
            log.tasks.add(Piece::End { snapshot: number, part, reached, pairs: self.pairs });
            self.walking = None;
        }
        Some(self.pairs - before)
    }
}

/// Gives the keeper a chunk that is complete.
fn add_chunk(chunks: &mut ChunkWriter, is_last: bool, log: &Log) {
    if is_last || chunks.size() >= CHUNK_SIZE {
        let mut pages = log.tasks.spare_pages();
        chunks.finish(&mut pages);
        log.tasks.add(Piece::Chunk { snapshot: chunks.snapshot(), part: chunks.part(), pages });
    }
}
