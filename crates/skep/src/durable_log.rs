//! The log of a durable store: the store appends what took place, and a thread writes it.
//!
//! ```text
//!   execute ─▶ open block ─64 KiB─▶ queue ─512 KiB, 500 ms or flush─▶ thread: groups, written and flushed
//!                                                                        └─▶ durable: the last block on disk ─▶ flush
//! ```
//!
//! 1. The store appends the operations of a batch to the open block, under the lock of the queue. The thread takes this
//!    lock twice for each write, and not during one.
//! 2. The thread seals the open block too, so that all that was executed is written soon, also if the store is idle.
//! 3. When too much is not on disk, the store waits.
//! 4. After a failed write nothing more becomes durable, and the thread writes nothing more: it is unknown what is on
//!    disk then. If only the next segment cannot be prepared, the thread goes on while the present one has room.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use skep_log::{
    Block, BlockWriter, ChunkWriter, Directory, Files, GroupWriter, LogError, Manifest, ManifestShard, Pages, Segments,
    SnapshotFile, SnapshotPart, SnapshotWriter, last_position,
};
use skep_server::embedding::{Recovered, record};
use skep_store::processor::{Processor, Replies};
use skep_wire::native::HASH_SPACE;

use crate::Request;

/// Bytes from which on a block is sealed, and operations between two looks at them.
const BLOCK_SIZE: usize = 64 << 10;
const PART: usize = 256;
/// Bytes of blocks from which on they are written at once.
const WRITE_SIZE: usize = 512 << 10;
/// The longest time for which an operation waits to be written.
const WRITE_TIME: Duration = Duration::from_millis(500);
/// The time after which a log without new blocks is sealed: then the end of the log is known to be whole.
const IDLE_TIME: Duration = Duration::from_millis(1);
/// Bytes that are not on disk, at most, except for one batch.
const UNFLUSHED_MAX: usize = 64 << 20;
/// Spent blocks that are kept for their memory, and the longest of them.
const SPENT_MAX: usize = 32;
const SPENT_SIZE_MAX: usize = 2 * BLOCK_SIZE;
/// Bytes from which on a chunk of a snapshot is written.
const CHUNK_SIZE: usize = 512 << 10;

/// The log of a store, and the thread that writes it. Dropping it writes all and joins the thread.
pub(crate) struct Log {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the store and the thread share. The thread takes the lock of the files first.
struct Shared {
    queue: Mutex<Queue>,
    /// Rung when the thread has something to do.
    bell: Condvar,
    /// Rung when blocks are on disk, or a write has failed.
    done: Condvar,
    files: Mutex<LogFiles>,
    has_failed: AtomicBool,
}

/// What the thread has not taken.
#[derive(Default)]
struct Queue {
    open: BlockWriter,
    blocks: Vec<Block>,
    /// Bytes of the blocks.
    size: usize,
    /// Bytes of all blocks that are not on disk.
    unflushed: usize,
    /// Bytes that recovery would read.
    log_bytes: u64,
    spent: Vec<Block>,
    /// The numbers of the last block that was sealed, and of the last one on disk.
    sealed: u64,
    durable: u64,
    /// The store waits for the disk.
    is_waited_for: bool,
    /// The store is being dropped.
    is_over: bool,
    /// What the disk reported. From then on no more is appended.
    failure: Option<Arc<str>>,
    /// A write has failed: nothing more is written.
    is_broken: bool,
}

/// The files of a data directory.
struct LogFiles {
    disk: Arc<Files>,
    directory: Directory<Files>,
    groups: GroupWriter,
    segments: Segments<Files>,
    /// What the next manifest states about the store.
    manifest: Manifest,
    uid: fn() -> u64,
    /// Bytes that were written since the last note, with the zeros that fill pages.
    written: u64,
}

/// What the thread does next.
enum Task {
    Write(Vec<Block>),
    Seal,
    End,
}

impl Queue {
    /// Completes the open block, unless it is empty.
    fn seal(&mut self) {
        if let Some(spent) = self.spent.pop() {
            self.open.reuse(spent);
        }
        let Some(block) = self.open.seal(0) else { return };
        let size = block.bytes().len();
        self.sealed += 1;
        self.size += size;
        self.unflushed += size;
        self.blocks.push(block);
    }

    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.open.is_empty()
    }

    fn is_due(&self) -> bool {
        self.size >= WRITE_SIZE || self.is_waited_for || self.is_over
    }
}

impl Log {
    /// Continues a log that was recovered.
    pub(crate) fn begin(recovered: Recovered, uid: fn() -> u64) -> io::Result<Log> {
        let Recovered { disk, directory, groups, segments, manifest, log_bytes, .. } = recovered;
        let (sealed, durable) = (groups.durable_block(), groups.durable_block());
        let queue = Mutex::new(Queue { sealed, durable, log_bytes, ..Queue::default() });
        let files = Mutex::new(LogFiles { disk, directory, groups, segments, manifest, uid, written: 0 });
        let has_failed = AtomicBool::new(false);
        let shared = Arc::new(Shared { queue, bell: Condvar::new(), done: Condvar::new(), files, has_failed });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("skep-log".to_owned()).spawn(move || of_thread.run())?;
        Ok(Log { shared, thread: Some(thread) })
    }

    /// Returns what the disk reported, if a write has failed.
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        if self.shared.has_failed.load(Ordering::Acquire) { self.shared.lock().failure.clone() } else { None }
    }

    /// Appends the operations of a batch that have changed something.
    pub(crate) fn record(&self, now: u64, requests: &[Request<'_>], replies: &Replies) {
        let mut queue = self.shared.lock();
        let (was_empty, was_due) = (queue.is_empty(), queue.is_due());
        // The operations of a part are shorter than 2 MiB each, so they fit a block.
        for (part, requests) in requests.chunks(PART).enumerate() {
            record(&mut queue.open, HASH_SPACE, now, requests, |index| replies.get(part * PART + index));
            if queue.open.size() >= BLOCK_SIZE {
                queue.seal();
            }
        }
        if was_empty && !queue.is_empty() || !was_due && queue.is_due() {
            self.shared.bell.notify_one();
        }
        while queue.unflushed >= UNFLUSHED_MAX && !queue.is_broken {
            queue = self.shared.wait_for_disk(queue);
        }
        queue.is_waited_for = false;
    }

    /// Appends the time at which operations were executed that may have changed nothing.
    pub(crate) fn state_time(&self, now: u64) {
        let mut queue = self.shared.lock();
        if !queue.is_broken {
            queue.open.append_time(now);
            self.shared.bell.notify_one();
        }
    }

    /// Waits until all that was appended is on disk. Returns what the disk has reported, if it has: also if all had room.
    pub(crate) fn flush(&self) -> Result<(), Arc<str>> {
        let mut queue = self.shared.lock();
        if !queue.is_broken {
            queue.seal();
        }
        while queue.durable < queue.sealed && !queue.is_broken {
            queue = self.shared.wait_for_disk(queue);
        }
        queue.is_waited_for = false;
        queue.failure.clone().map_or(Ok(()), Err)
    }

    /// Writes a snapshot of the store, and trims the log. All that was appended is on disk.
    /// Pairs that have expired at the time `now` are left out.
    pub(crate) fn take_snapshot(&self, processor: &mut Processor, now: u64) -> Result<(), LogError> {
        let mut files = self.shared.lock_files();
        // Sealed here, so that the thread has nothing to write after the snapshot. The snapshot does not need the seal.
        let sealed = files.seal();
        self.shared.note(&mut files, sealed, 0);
        files.take_snapshot(processor, now)?;
        self.shared.lock().log_bytes = 0;
        files.trim()
    }

    /// Returns the bytes of the log that recovery would read.
    pub(crate) fn size(&self) -> u64 {
        let queue = self.shared.lock();
        queue.log_bytes + queue.size as u64 + if queue.open.is_empty() { 0 } else { queue.open.size() as u64 }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.bell.notify_one();
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has reported that.
            _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_files(&self) -> MutexGuard<'_, LogFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, queue: &mut Queue, reason: String) {
        queue.failure.get_or_insert(reason.into());
        self.has_failed.store(true, Ordering::Release);
    }

    /// Lets the thread write, and waits until it has made progress.
    fn wait_for_disk<'q>(&self, mut queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        queue.is_waited_for = true;
        self.bell.notify_one();
        self.done.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until the store is dropped.
    fn run(&self) {
        // The log has been idle for some time, and its end is known to be whole.
        let mut is_sealed = true;
        loop {
            let task = self.wait(is_sealed);
            let mut files = self.lock_files();
            let (result, size) = match task {
                Task::Write(blocks) => {
                    is_sealed = false;
                    let size = blocks.iter().map(|block| block.bytes().len()).sum();
                    (files.write(blocks), size)
                }
                Task::Seal => {
                    is_sealed = true;
                    (files.seal(), 0)
                }
                Task::End => {
                    _ = files.seal();
                    return;
                }
            };
            self.note(&mut files, result, size);
            // One segment ahead, so that a disk that is full is noticed before a write needs it.
            let prepared = if files.groups.needs_segment() { files.prepare() } else { Ok(()) };
            if let Err(reason) = prepared {
                self.fail(&mut self.lock(), reason);
            }
        }
    }

    /// Waits for the next task.
    fn wait(&self, is_sealed: bool) -> Task {
        let mut queue = self.lock();
        let mut since = Instant::now();
        loop {
            let has_blocks = !queue.is_empty() && !queue.is_broken;
            if has_blocks && (queue.is_due() || since.elapsed() >= WRITE_TIME) {
                queue.seal();
                queue.size = 0;
                return Task::Write(std::mem::take(&mut queue.blocks));
            }
            if queue.is_over {
                return Task::End;
            }
            let limit = match (has_blocks, is_sealed) {
                (true, _) => Some(WRITE_TIME.saturating_sub(since.elapsed())),
                (false, false) if since.elapsed() >= IDLE_TIME => return Task::Seal,
                (false, false) => Some(IDLE_TIME),
                (false, true) => None,
            };
            queue = match limit {
                Some(limit) => self.bell.wait_timeout(queue, limit).unwrap_or_else(PoisonError::into_inner).0,
                None => self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
            if !has_blocks && !queue.is_empty() {
                since = Instant::now();
            }
        }
    }

    /// Notes the result of a write of blocks that have this size.
    fn note(&self, files: &mut LogFiles, result: Result<(), String>, size: usize) {
        let spent: Vec<Block> = std::iter::from_fn(|| files.groups.take_spent()).collect();
        let mut queue = self.lock();
        queue.unflushed -= size;
        queue.log_bytes += std::mem::take(&mut files.written);
        match result {
            Ok(()) => queue.durable = files.groups.durable_block(),
            Err(reason) => {
                queue.is_broken = true;
                self.fail(&mut queue, reason);
            }
        }
        let room = SPENT_MAX - queue.spent.len();
        queue.spent.extend(spent.into_iter().filter(|block| block.bytes().len() <= SPENT_SIZE_MAX).take(room));
        self.done.notify_one();
    }
}

impl LogFiles {
    fn write(&mut self, blocks: Vec<Block>) -> Result<(), String> {
        for block in blocks {
            self.groups.push(block);
        }
        while self.groups.queued_size() > 0 {
            match self.groups.next_write() {
                Some(write) => self.make(write)?,
                // The segment is full.
                None => self.prepare()?,
            }
        }
        Ok(())
    }

    /// Writes that all groups before are durable.
    fn seal(&mut self) -> Result<(), String> {
        // More than one, if the seal is in the next segment.
        while let Some(write) = self.groups.next_seal() {
            self.make(write)?;
        }
        Ok(())
    }

    fn make(&mut self, write: skep_log::Write) -> Result<(), String> {
        self.written += write.size();
        let result = self.segments.write(&write);
        self.groups.written(write, result);
        self.groups.failure().map_or(Ok(()), |failure| Err(failure.to_string()))
    }

    fn prepare(&mut self) -> Result<(), String> {
        match self.segments.prepare((self.uid)()) {
            Ok(header) => {
                self.groups.add_segment(header);
                Ok(())
            }
            Err(error) => Err(format!("the next segment of the log cannot be prepared: {error}")),
        }
    }

    /// Writes a snapshot, and the manifest that names it. All blocks that were sealed are durable, and the store
    /// executes nothing meanwhile. So each step contains all of them.
    fn take_snapshot(&mut self, processor: &mut Processor, now: u64) -> Result<(), LogError> {
        // A manifest whose write has failed, and files of a snapshot that was given up.
        self.directory.settle()?;
        self.directory.remove_old_snapshots()?;
        let number = self.directory.manifest().map_or(0, |manifest| manifest.generation) + 1;
        let file = self.write_pairs(processor, number, now).map_err(|source| {
            // The room of what was written is needed for the log.
            _ = self.directory.remove_old_snapshots();
            LogError::Io { action: "write", name: "a snapshot".to_owned(), source }
        })?;
        let shards = self.manifest.shards.iter().map(|shard| ManifestShard { file, ..*shard }).collect();
        let first_group = self.groups.next_group();
        let last_time = now.max(self.manifest.last_time);
        let manifest = Manifest { first_group, snapshot: Some(number), shards, last_time, ..self.manifest.clone() };
        self.directory.write_manifest(manifest, &self.groups)
    }

    fn write_pairs(&self, processor: &mut Processor, snapshot: u64, now: u64) -> io::Result<SnapshotFile> {
        let part = SnapshotPart::Shard(0);
        let mut file = SnapshotWriter::create(Arc::clone(&self.disk), snapshot, part)?;
        let (mut chunks, mut pages) = (ChunkWriter::new(snapshot, part), Pages::default());
        let mut next = Some(0);
        while let Some(from) = next {
            next = processor.walk_pairs(from, |key, value, expiry| {
                // The manifest states the time, so those that have expired are gone.
                if !expiry.is_some_and(|expiry| expiry.has_passed(now)) {
                    chunks.push(key, value, expiry);
                }
            });
            chunks.end_step(last_position(next), self.groups.durable_block());
            if next.is_none() || chunks.size() >= CHUNK_SIZE {
                chunks.finish(&mut pages);
                file.write(&pages)?;
            }
        }
        file.finish()
    }

    /// Removes what the manifest no longer needs.
    fn trim(&mut self) -> Result<(), LogError> {
        let Some(first_group) = self.directory.manifest().map(|manifest| manifest.first_group) else { return Ok(()) };
        while let Some(number) = self.groups.trim(first_group) {
            let recycled = self.segments.recycle(number);
            recycled.map_err(|source| LogError::Io { action: "recycle", name: "a segment".to_owned(), source })?;
        }
        self.directory.remove_old_snapshots()
    }
}
