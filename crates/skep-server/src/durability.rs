//! The log of a server, and its snapshots: what the shards have executed is on disk before a client learns of it.
//!
//! ```text
//!   shard 0: execute ─▶ block ─┐ queue                       ┌─▶ group: written and flushed
//!   shard 1: execute ─▶ block ─┴──────▶ two writers, by turns┤
//!      ▲                                                     └─▶ durable: the number of the last block on disk
//!      └── replies leave when durable ≥ the last block that was sealed before them
//!   between two turns: 64 buckets ─▶ chunk ─▶ keeper: snapshots, manifests, segments
//! ```
//!
//! 1. A shard appends the operations that took place to its open block (`shard_log.rs`). It *seals* the block, which
//!    puts it into the queue and gives it a number, before anything that rests on it leaves the shard: a reply to
//!    another shard, a part of a store that is lent or given back, a visit that goes home.
//! 2. The blocks of all shards have one order. If an operation has seen the effect of another one, its block is not
//!    before the other's: it has the same shard, or something has left the first shard, after the seal.
//! 3. So a reply rests on the blocks that were sealed when it was encoded, and on no others. At the level `always` it is
//!    held until the last of them is on disk ([`Release`]). Replies to reads too: they may show what is not on disk yet.
//! 4. The log states the time at which operations were executed, also if these have changed nothing: a key that a client has
//!    seen expire must not be back after a restart with an earlier clock. It does so at most ten times a second, if keys have
//!    an expiry, before the replies leave. The manifest that names a snapshot, which frees the log before it, states the
//!    time too.
//! 5. One thread executes a transaction, and seals after it. So it is in one block, and recovery executes all of it or
//!    nothing. Only a transaction that takes more than 64 MiB of the log has several blocks, and may be recovered in parts.
//!
//! **A log that is broken** does not have all that took place: a write of it has failed, or the level was `memory`. Then
//! the keeper begins a *fresh* log and takes a snapshot of everything. When both are on disk, with the manifest that
//! names them, nothing of the broken log is needed any more, and all that held replies rest on is in the snapshot. If a
//! write has failed, then operations that may change keys are refused until that moment, and replies of connections that
//! had some in work are held. Reads of the others go on: until then, they may return values that a crash would lose.

pub(crate) mod compaction;
mod contained;
pub mod embedding;
mod levels;
pub(crate) mod loading;
mod newest_effects;
mod ordered_recovery;
mod queue;
pub(crate) mod recovery;
mod replay;
mod shard_log;
mod slice;
mod sliced_recovery;
mod snapshots;
mod state;
pub(crate) mod tasks;
pub(crate) mod walk;
pub(crate) mod writers;
mod written;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use skep_log::Block;
use skep_wire::native::WireError;

use crate::delays::{DelayCounts, Delays};
use crate::limits::{UNFLUSHED_MAX, UNFLUSHED_MAX_OF_COMMAND};
use crate::vocabulary::{Doubt, Durability, Reached, Refusal, Release};
use crate::waker::Waker;
use levels::Levels;
use queue::{Queue, WAIT_MAX};
use recovery::Recovered;
pub(crate) use shard_log::ShardLog;
pub(crate) use snapshots::Snapshots;
pub(crate) use state::Trouble;
pub(crate) use state::{DiskSpace, StatedTime, Troubles};
use tasks::Tasks;

/// The log that all shards share.
#[derive(Debug)]
pub(crate) struct Log {
    levels: Levels,
    queue: Mutex<Queue>,
    /// Rung when a block arrives, and at the end.
    bell: Condvar,
    written: Written,
    pub(crate) stated_time: StatedTime,
    /// What keeps the log from being written.
    pub(crate) troubles: Troubles,
    pub(crate) snapshots: Snapshots,
    pub(crate) disk_space: DiskSpace,
    /// The time that the start took to read the directory.
    load_time: Duration,
    /// What the keeper has to do.
    pub(crate) tasks: Tasks,
    patience: Patience,
    /// The log has a segment: false if the start has found no room for one, and the disk has none yet.
    has_segment: AtomicBool,
    /// The disk has made no progress for so long that writes are refused.
    is_stalled: AtomicBool,
    /// A command that has begun was abandoned.
    has_abandoned: AtomicBool,
    /// The shards, which wait for blocks to be durable.
    wakers: OnceLock<Vec<Arc<Waker>>>,
}

/// What was sealed, and what is on disk.
#[derive(Debug)]
struct Written {
    /// The number of the last block that was sealed.
    sealed: AtomicU64,
    /// The number of the last block on disk: all before it are there too, or what they changed is in a snapshot.
    durable: AtomicU64,
    /// The last version of the ordered space up to which all effects are on disk.
    durable_version: AtomicU64,
    /// Bytes of all blocks so far, and of those on disk.
    sealed_bytes: AtomicU64,
    durable_bytes: AtomicU64,
    /// Bytes of all writes so far, with the zeros that fill pages.
    file_bytes: AtomicU64,
    /// The times that writes took until they were on disk. The threads of the log add to it while they hold the lock of their
    /// groups.
    times: Delays,
}

impl Written {
    fn new(last: Reached) -> Written {
        Written {
            sealed: AtomicU64::new(last.block),
            durable: AtomicU64::new(last.block),
            durable_version: AtomicU64::new(last.version),
            sealed_bytes: AtomicU64::new(0),
            durable_bytes: AtomicU64::new(0),
            file_bytes: AtomicU64::new(0),
            times: Delays::default(),
        }
    }
}

/// The end of a wait for blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Blocks are to be written, or there is something else to do.
    Due,
    /// None has arrived for the whole time.
    Idle,
    /// No more blocks arrive, and none is left.
    Over,
}

/// The last progress of the disk that a shard has seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskProgress {
    /// The number of the last block on disk.
    durable: u64,
    /// There were blocks after it. While there are, the shard looks with each tick.
    pub(crate) waits: bool,
    /// The time since the shard has seen this first.
    without_progress: Duration,
    /// When the shard has looked last.
    seen: Instant,
}

impl DiskProgress {
    pub(crate) fn new(now: Instant) -> DiskProgress {
        DiskProgress { durable: 0, waits: false, without_progress: Duration::ZERO, seen: now }
    }
}

/// The time without progress of the disk after which writes are refused.
const STALL_TIME: Duration = Duration::from_secs(2);
/// The most time between two looks at the disk that counts as time without progress: in a longer one the shard had nothing to
/// do, or the whole server was stopped.
const LOOK_GAP_MAX: Duration = Duration::from_millis(500);

const STALLED: &str = "the disk makes no progress";

/// The times without progress of the disk after which writes are refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// With `BUSY`: the delays of replies have a bound.
    busy: Duration,
    /// Because the disk may have stopped.
    stalled: Duration,
}

impl Patience {
    /// Returns that of a server with this bound for delays: half of it is for the disk.
    pub(crate) fn of(delay_max: Option<Duration>) -> Patience {
        Patience { busy: delay_max.map_or(Duration::MAX, |bound| bound / 2), stalled: STALL_TIME }
    }

    /// The disk of a simulation may take any time.
    #[cfg(test)]
    pub(crate) const ENDLESS: Patience = Patience { busy: Duration::MAX, stalled: Duration::MAX };
}

impl Log {
    /// Creates the log of a server, with what is on disk.
    pub(crate) fn new(level: Durability, last: Reached, patience: Patience) -> Log {
        Log {
            levels: Levels::new(level),
            queue: Mutex::default(),
            bell: Condvar::new(),
            written: Written::new(last),
            stated_time: StatedTime::default(),
            troubles: Troubles::default(),
            snapshots: Snapshots::default(),
            disk_space: DiskSpace::default(),
            load_time: Duration::ZERO,
            tasks: Tasks::default(),
            patience,
            has_segment: AtomicBool::new(true),
            is_stalled: AtomicBool::new(false),
            has_abandoned: AtomicBool::new(false),
            wakers: OnceLock::new(),
        }
    }

    /// Notes what the start has found: the time that it took to read the directory, and the latest time that it states.
    pub(crate) fn with_recovery(self, recovered: &Recovered) -> Log {
        let Recovered { load_time, stated_time, has_expiries, .. } = *recovered;
        Log { load_time, stated_time: StatedTime::new(stated_time, has_expiries), ..self }
    }

    pub(crate) fn load_time(&self) -> Duration {
        self.load_time
    }

    /// Sets the shards that are woken when blocks are durable.
    pub(crate) fn set_wakers(&self, wakers: Vec<Arc<Waker>>) {
        self.wakers.set(wakers).expect("a server starts once");
    }

    /// Wakes all shards.
    pub(crate) fn wake_shards(&self) {
        self.wakers.get().into_iter().flatten().for_each(|waker| waker.wake());
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a block into the queue, which gives it its number. Returns memory for another block.
    fn push(&self, block: Block) -> Option<Block> {
        let size = block.bytes().len();
        let mut queue = self.lock();
        let level = self.level();
        let was_due = queue.is_due(level);
        // Written only under the lock of the queue. Release pairs with the Acquire of `sealed`: who reads the number finds
        // the block in the queue, or already written.
        let sealed = self.written.sealed.load(Ordering::Relaxed);
        self.written.sealed.store(sealed + 1, Ordering::Release);
        if queue.is_broken {
            return Some(block);
        }
        self.written.sealed_bytes.fetch_add(size as u64, Ordering::Relaxed);
        queue.size += size;
        queue.since.get_or_insert_with(Instant::now);
        let is_first = queue.blocks.is_empty();
        queue.blocks.push(block);
        let spent = queue.spent.pop();
        if level == Durability::Memory && self.unflushed_bytes() >= UNFLUSHED_MAX {
            // Nothing waits for the disk at this level: the keeper gives up the snapshot, and the shards go on.
            queue.is_broken = true;
            queue.take();
        }
        let rings = is_first || !was_due && queue.is_due(level);
        drop(queue);
        if rings {
            self.bell.notify_one();
        }
        spent
    }

    /// Takes the blocks that are to be written now.
    fn take_due(&self) -> Vec<Block> {
        let mut queue = self.lock();
        if queue.is_due(self.level()) { queue.take() } else { Vec::new() }
    }

    /// Takes back blocks that are no longer needed.
    fn reuse(&self, blocks: impl Iterator<Item = Block>) {
        let mut queue = self.lock();
        queue.reuse(blocks);
    }

    /// Waits until there is something to do, or for this time.
    fn wait(&self, limit: Option<Duration>) -> Wait {
        let begun = Instant::now();
        let mut queue = self.lock();
        loop {
            if queue.is_due(self.level()) || std::mem::take(&mut queue.is_rung) {
                return Wait::Due;
            }
            if queue.is_over {
                return Wait::Over;
            }
            let wait = match (queue.since, limit) {
                (Some(since), _) => Some(WAIT_MAX.saturating_sub(since.elapsed())),
                (None, Some(limit)) if begun.elapsed() >= limit => return Wait::Idle,
                (None, limit) => limit.map(|limit| limit.saturating_sub(begun.elapsed())),
            };
            queue = match wait {
                None => self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(time) => self.bell.wait_timeout(queue, time).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// Lets the writers write all blocks that have arrived.
    pub(crate) fn flush(&self) {
        self.lock().is_rung = true;
        self.bell.notify_one();
    }

    /// Returns the number of the last block that was sealed.
    pub(crate) fn sealed(&self) -> u64 {
        self.written.sealed.load(Ordering::Acquire)
    }

    /// Returns the number of the last block on disk.
    pub(crate) fn durable(&self) -> u64 {
        self.written.durable.load(Ordering::Acquire)
    }

    /// Returns what is on disk.
    pub(crate) fn reached(&self) -> Reached {
        Reached { block: self.durable(), version: self.written.durable_version.load(Ordering::Acquire) }
    }

    /// Returns the bytes of blocks that are on disk, since the start.
    pub(crate) fn durable_bytes(&self) -> u64 {
        self.written.durable_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes that the log has taken in its files since the start.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.written.file_bytes.load(Ordering::Relaxed)
    }

    /// Returns the times that writes took until they were on disk.
    pub(crate) fn write_times(&self) -> DelayCounts {
        let mut counts = DelayCounts::default();
        self.written.times.add_to(&mut counts);
        counts
    }

    /// Returns the bytes of blocks that are not on disk.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.written.sealed_bytes.load(Ordering::Relaxed).saturating_sub(self.durable_bytes())
    }

    /// Returns up to where replies may leave: everything, unless they wait for the disk.
    pub(crate) fn released(&self) -> Reached {
        if self.holds_replies() { self.reached() } else { Reached { block: u64::MAX, version: u64::MAX } }
    }

    /// Returns true if blocks are dropped until a fresh log begins.
    pub(crate) fn is_broken(&self) -> bool {
        self.lock().is_broken
    }

    /// Returns true if replies wait for what they rest on. Without a segment, nothing was executed since the start that changes
    /// a key: replies rest on what the start has read.
    pub(crate) fn holds_replies(&self) -> bool {
        self.level() == Durability::Always && self.has_segment.load(Ordering::Acquire)
    }

    /// Begins without a segment, because the disk has no room for one: writes are refused until the keeper has prepared one.
    pub(crate) fn begin_without_segment(&self) {
        let reason = "the disk has no room for a segment of the log: make room".to_owned();
        tracing::error!("{reason}; writes are refused until it has");
        self.has_segment.store(false, Ordering::Release);
        self.troubles.set(Trouble::NoSegment, Some(reason));
    }

    /// Notes that a segment was prepared. While writes are refused: their replies wait for it.
    pub(crate) fn note_segment(&self) {
        self.has_segment.store(true, Ordering::Release);
    }

    /// Returns the time from which on replies of a connection may leave. They rest on blocks that are sealed, and have
    /// shown the ordered space up to this version. After a write has failed, only replies of a doubtful connection may
    /// rest on blocks that are not on disk.
    pub(crate) fn release(&self, doubt: &mut Doubt, version: u64, known_failure: u64) -> Release {
        let seen = Reached { block: self.sealed(), version };
        if !self.holds_replies() || self.reached().covers(seen) {
            return Release::Now;
        }
        if known_failure != 0 && known_failure == self.troubles.failure() {
            let is_doubtful = doubt.is_doubtful;
            doubt.is_doubtful &= doubt.has_work;
            if !is_doubtful {
                return Release::Now;
            }
        }
        Release::After(seen)
    }

    /// Returns true if a snapshot is being taken, or begins soon.
    pub(crate) fn is_saving(&self) -> bool {
        self.tasks.requests() > self.snapshots.ended_request() || self.snapshots.number() != 0
    }

    /// Returns the operations that are refused at this moment. `progress` is the shard's view of the disk.
    pub(crate) fn write_refusal(&self, progress: &mut DiskProgress, now: Instant) -> Refusal {
        if self.level() == Durability::Memory {
            progress.waits = false;
            return Refusal::Nothing;
        }
        if self.troubles.are_any() {
            progress.waits = false;
            return Refusal::Writes(WireError::NotDurable);
        }
        let durable = self.durable();
        let waits = durable != self.sealed();
        progress.without_progress += now.saturating_duration_since(progress.seen).min(LOOK_GAP_MAX);
        progress.seen = now;
        if durable != progress.durable || !progress.waits {
            *progress = DiskProgress { durable, waits, without_progress: Duration::ZERO, seen: now };
        }
        match progress.without_progress {
            time if time >= self.patience.stalled => {
                if !self.is_stalled.swap(true, Ordering::Relaxed) {
                    tracing::error!("{STALLED}; writes are refused until it does");
                }
                Refusal::Writes(WireError::NotDurable)
            }
            // At the level `second` no reply waits for the disk, and blocks wait for others.
            time if time >= self.patience.busy && self.holds_replies() => Refusal::Writes(WireError::Busy),
            _ => Refusal::Nothing,
        }
    }

    /// Returns why writes are refused at this moment: what the disk has reported last, or that it makes no progress.
    pub(crate) fn trouble(&self) -> Option<String> {
        let stalled = || self.is_stalled.load(Ordering::Relaxed).then(|| STALLED.to_owned());
        self.troubles.reason().or_else(stalled)
    }

    /// Returns true if so much is not on disk that no more is executed.
    pub(crate) fn is_full(&self) -> bool {
        self.level() != Durability::Memory && self.unflushed_bytes() >= UNFLUSHED_MAX
    }

    /// Returns true if a command that has begun must wait, because so much is not on disk. Its shards execute nothing then.
    /// So it goes on for some more blocks if the disk makes no progress, and without a bound if blocks are dropped.
    pub(crate) fn holds_up(&self, refusal: Refusal) -> bool {
        let has_stopped = refusal == Refusal::Writes(WireError::NotDurable);
        let bound = if has_stopped { UNFLUSHED_MAX_OF_COMMAND } else { UNFLUSHED_MAX };
        if self.level() == Durability::Memory || self.unflushed_bytes() < bound || self.is_broken() {
            return false;
        }
        if has_stopped && self.troubles.have(Trouble::NoSegment) {
            // Held shards take no part in the snapshot that would make room. So the command goes on without the log.
            self.fail("the disk has no room for a long command that has begun".to_owned());
            return false;
        }
        true
    }

    /// Takes all blocks, as if they were written.
    #[cfg(test)]
    pub(crate) fn take(&self) -> Vec<Block> {
        self.lock().take()
    }

    /// Notes that a shard has abandoned a command that has begun: no snapshot that may have a part of it is completed.
    fn abandon_command(&self) {
        self.has_abandoned.store(true, Ordering::Release);
    }

    /// Returns true if a command was abandoned, at the end of the server.
    pub(crate) fn has_abandoned(&self) -> bool {
        self.has_abandoned.load(Ordering::Acquire)
    }

    /// Ends the threads of the log when they have written all blocks.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.bell.notify_all();
    }

    /// Counts bytes that were written, and wakes shards that have stopped because there were too many.
    fn count_written(&self, bytes: u64) {
        let was_full = self.is_full();
        self.written.durable_bytes.fetch_add(bytes, Ordering::Relaxed);
        if was_full && !self.is_full() {
            self.wake_shards();
        }
    }

    /// Notes what is on disk, and wakes the shards that wait for it.
    pub(crate) fn set_durable(&self, reached: Reached) {
        if self.is_stalled.load(Ordering::Relaxed) && self.is_stalled.swap(false, Ordering::Relaxed) {
            tracing::warn!("the disk makes progress again");
        }
        self.written.durable_version.store(reached.version, Ordering::Release);
        self.written.durable.store(reached.block, Ordering::Release);
        self.wake_shards();
    }

    /// Notes that a write has failed: nothing that is not on disk gets there, until a fresh log begins. If it was one of a
    /// fresh log, the keeper gives up the snapshot with which that began, and tries again after a while.
    pub(crate) fn fail(&self, reason: String) {
        let mut queue = self.lock();
        queue.is_broken = true;
        queue.take();
        drop(queue);
        if !self.troubles.have(Trouble::Failed) {
            tracing::error!("{reason}; writes are refused, and a fresh log is tried");
            self.troubles.set(Trouble::Failed, Some(reason));
            self.tasks.take_snapshot();
        }
        self.wake_shards();
    }

    /// Lets a fresh log begin, after all blocks up to this number. They are on disk when the snapshot is that is taken
    /// now.
    pub(crate) fn begin_fresh(&self, last: u64) {
        let mut queue = self.lock();
        queue.take();
        queue.is_broken = false;
        debug_assert!(self.sealed() <= last);
        self.written.sealed.store(last, Ordering::Release);
        self.written.durable_bytes.store(self.written.sealed_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
