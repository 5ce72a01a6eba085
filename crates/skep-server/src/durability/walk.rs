//! The walk of a shard over its keys, for a snapshot: a bounded step between two turns.
//!
//! A step returns the pairs of at most 64 home buckets. The block of the shard is sealed before it, and the chunk notes
//! the last block that was sealed. So recovery knows which operations of the log the pairs contain already: those of
//! blocks up to that one. See `skep_log::Boundary`. The first shard then walks over the ordered space, whose steps note the
//! versions that they show.

use std::sync::Arc;
use std::time::{Duration, Instant};

use skep_log::{BlockWriter, ChunkWriter, SnapshotPart, last_position};
use skep_store::ordered::Session;
use skep_store::processor::Processor;

use super::Log;
use super::tasks::Piece;
use crate::connection::Reached;

/// Bytes from which on a chunk is complete.
const CHUNK_SIZE: usize = 512 << 10;
/// A walk takes at most this part of the time of a shard that has other work.
const PART: u32 = 16;
/// Pairs of a step over the ordered space, and bytes of their keys and values.
const ORDERED_PAIRS: usize = 256;
const ORDERED_SIZE: usize = 64 << 10;
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
    /// `None` if its walk is over.
    walking: Option<Walking>,
    /// This shard walks over the ordered space too.
    has_ordered: bool,
    /// Time that the walk may take, for the work that was done.
    credit: Duration,
}

#[derive(Debug)]
struct Walking {
    part: SnapshotPart,
    chunks: ChunkWriter,
    /// The home bucket with which the next step begins, or the key.
    next_bucket: u32,
    next_key: Vec<u8>,
    /// Number of pairs so far.
    pairs: u64,
}

impl Walking {
    fn new(snapshot: u64, part: SnapshotPart) -> Walking {
        let chunks = ChunkWriter::new(snapshot, part);
        Walking { part, chunks, next_bucket: 0, next_key: Vec::new(), pairs: 0 }
    }
}

impl Walk {
    pub(crate) fn new(log: Arc<Log>, shard: u16, has_ordered: bool) -> Walk {
        let has_ordered = has_ordered && shard == 0;
        Walk { log, shard, number: 0, walking: None, has_ordered, credit: Duration::ZERO }
    }

    /// Returns true if a step can be made.
    pub(crate) fn has_work(&self) -> bool {
        let number = self.log.snapshots.number();
        number != 0 && (number != self.number || self.walking.is_some()) && self.log.tasks.have_room()
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
        if !self.has_work() {
            return;
        }
        match worked {
            Some(time) => self.credit += time / PART,
            None => self.credit = self.credit.max(IDLE_TIME),
        }
        while !self.credit.is_zero() && self.has_work() {
            let begun = Instant::now();
            self.step(processor, ordered.as_deref_mut());
            self.credit = self.credit.saturating_sub(begun.elapsed());
        }
    }

    /// Makes one step.
    pub(crate) fn step(&mut self, processor: &mut Processor, ordered: Option<&mut Session<'_>>) {
        let number = self.log.snapshots.number();
        if number != self.number {
            self.number = number;
            self.walking = Some(Walking::new(number, SnapshotPart::Shard(self.shard)));
        }
        let Some(walking) = &mut self.walking else { return };
        let reached = Reached { block: self.log.sealed(), version: 0 };
        let (is_last, reached) = match (walking.part, ordered) {
            (SnapshotPart::Ordered, Some(session)) => walking.step_in_order(session, reached, &self.log),
            _ => (walking.step(processor, reached), reached),
        };
        if is_last || walking.chunks.size() >= CHUNK_SIZE {
            let mut pages = self.log.tasks.spare_pages();
            walking.chunks.finish(&mut pages);
            self.log.tasks.add(Piece::Chunk { snapshot: number, part: walking.part, pages });
        }
        if is_last {
            let (part, pairs) = (walking.part, walking.pairs);
            let is_shard = part != SnapshotPart::Ordered;
            self.walking = (is_shard && self.has_ordered).then(|| Walking::new(number, SnapshotPart::Ordered));
            self.log.tasks.add(Piece::End { snapshot: number, part, reached, pairs });
        }
    }
}

impl Walking {
    /// Makes a step over the hash space. Returns true if it was the last one.
    fn step(&mut self, processor: &mut Processor, reached: Reached) -> bool {
        let Walking { chunks, next_bucket, pairs, .. } = self;
        let following = processor.walk_pairs(*next_bucket, |key, value, expiry| {
            *pairs += 1;
            chunks.push(key, value, expiry);
        });
        chunks.end_step(last_position(following, processor.home_bucket_count()), reached.block);
        *next_bucket = following.unwrap_or(0);
        following.is_none()
    }

    /// Makes a step over the ordered space. Returns whether it was the last one, and what it has shown.
    fn step_in_order(&mut self, session: &mut Session<'_>, reached: Reached, log: &Log) -> (bool, Reached) {
        let Walking { chunks, next_key, pairs, .. } = self;
        let step = session.snapshot_step(next_key, ORDERED_PAIRS, ORDERED_SIZE, |key, value, expiry| {
            *pairs += 1;
            chunks.push(key, value, expiry);
        });
        chunks.end_ordered_step((!step.is_last).then_some(&next_key[..]), step.version);
        if step.is_last {
            // A floor above all versions that were shown gets into the log, also if no other write follows.
            session.state_floor(|_, floor| {
                log.push(BlockWriter::new().seal_floor(floor));
            });
        }
        (step.is_last, Reached { version: step.version, ..reached })
    }
}
