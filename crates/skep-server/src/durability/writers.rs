//! The threads that write the log: groups of blocks, by turns.
//!
//! Two threads take turns, so that two groups are in flight. A group has all blocks that have arrived while the two before
//! it were written: the slower the disk is, the larger the groups are. At the level `second`, a group waits until it is
//! large, or for a part of a second.
//!
//! A write that fails is not repeated: it is unknown what is on disk then. See [`super::Log`].

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use skep_log::{Disk, Files, GroupWriter, OpenFile, SegmentHeader, Segments, WRITES_IN_FLIGHT, Write};

use super::{Log, Wait};
use crate::start::Steps;
use crate::start_error::StartError;
use crate::threads::Threads;
use crate::vocabulary::Reached;

/// The time after which a log without new blocks is sealed: then the end of the log is known to be whole.
const IDLE_TIME: Duration = Duration::from_millis(1);

/// What the threads of the log share.
pub(crate) struct Writers {
    log: Arc<Log>,
    disk: Arc<Files>,
    state: Mutex<State>,
}

/// The groups, and the files that they are written to.
pub(crate) struct State {
    pub(crate) groups: GroupWriter,
    /// The files of the segments that are written or prepared.
    files: HashMap<u64, Arc<OpenFile>>,
    /// The last block of each batch that was taken from the queue and is not durable, and the bytes of the batch.
    sizes: VecDeque<(u64, u64)>,
    /// The snapshot that makes a fresh log valid is not complete, so none of its blocks counts as durable.
    pub(crate) is_fresh: bool,
    /// No further write is begun: the keeper waits until none is in flight.
    pub(crate) pauses: bool,
    /// The threads have ended.
    ended: usize,
}

impl Writers {
    pub(crate) fn new(log: Arc<Log>, disk: Arc<Files>, groups: GroupWriter, segments: &Segments<Files>) -> Writers {
        let files = groups.current_segment().map(|segment| (segment, segments.file(segment))).into_iter().collect();
        let state = State { groups, files, sizes: VecDeque::new(), is_fresh: false, pauses: false, ended: 0 };
        Writers { log, disk, state: Mutex::new(state) }
    }

    /// Starts the threads.
    pub(crate) fn spawn(self: &Arc<Self>, threads: &mut Threads, steps: &mut Steps) -> Result<(), StartError> {
        for index in 0..WRITES_IN_FLIGHT {
            let writers = Arc::clone(self);
            let name = format!("skep-log-{index}");
            let refusal = |source| StartError::Thread { name: name.clone(), source };
            steps.take(|| threads.spawn(name.clone(), None, move || writers.run()), refusal)?;
        }
        Ok(())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes groups until the server has ended and all blocks are on disk.
    fn run(&self) {
        let mut state = self.lock();
        // The log has been idle for some time, and its end is known to be whole.
        let mut is_sealed = true;
        loop {
            self.take_blocks(&mut state);
            while let Some(write) = state.next_write() {
                is_sealed = false;
                state = self.make(state, write);
                self.take_blocks(&mut state);
            }
            drop(state);
            let wait = self.log.wait(if is_sealed { None } else { Some(IDLE_TIME) });
            state = self.lock();
            if wait == Wait::Idle || wait == Wait::Over {
                is_sealed = true;
                if let Some(write) = state.next_seal() {
                    state = self.make(state, write);
                }
            }
            // What is not on disk will not be.
            let is_lost = self.log.troubles.are_any() || self.log.is_broken() || state.groups.failure().is_some();
            if wait == Wait::Over && (state.groups.durable_block() >= self.log.sealed() || is_lost) {
                state.ended += 1;
                if state.ended == WRITES_IN_FLIGHT {
                    self.log.tasks.end();
                }
                return;
            }
            if wait == Wait::Over {
                drop(state);
                // The other thread, or the keeper, has something to do.
                std::thread::sleep(IDLE_TIME);
                state = self.lock();
            }
        }
    }

    /// Takes the blocks that are to be written now.
    fn take_blocks(&self, state: &mut State) {
        let mut size = 0;
        let mut last = 0;
        for block in self.log.take_due() {
            size += block.bytes().len() as u64;
            last = state.groups.push(block);
        }
        if size > 0 {
            state.sizes.push_back((last, size));
        }
        if state.groups.needs_segment() {
            self.log.tasks.prepare_segment();
        }
    }

    /// Makes a write, while others may be made.
    fn make<'s>(&'s self, state: MutexGuard<'s, State>, write: Write) -> MutexGuard<'s, State> {
        let file = Arc::clone(&state.files[&write.segment]);
        drop(state);
        self.log.written.file_bytes.fetch_add(write.size(), Ordering::Relaxed);
        let begun = Instant::now();
        let result = self.disk.write_at(&file, write.offset, write.pages());
        let time = begun.elapsed();
        let mut state = self.lock();
        self.log.written.times.add(time, 1);
        if !state.files.contains_key(&write.segment) {
            // A fresh log has begun.
            return state;
        }
        state.groups.written(write, result);
        if let Some(failure) = state.groups.failure() {
            self.log.fail(failure.to_string());
        } else {
            state.publish(&self.log);
        }
        let spent: Vec<_> = std::iter::from_fn(|| state.groups.take_spent()).collect();
        self.log.reuse(spent.into_iter());
        state
    }
}

impl State {
    fn next_write(&mut self) -> Option<Write> {
        if self.pauses { None } else { self.groups.next_write() }
    }

    fn next_seal(&mut self) -> Option<Write> {
        if self.pauses { None } else { self.groups.next_seal() }
    }

    /// Returns what the groups have on disk.
    pub(crate) fn reached(&self) -> Reached {
        let version = self.groups.durable_floor().saturating_sub(1);
        Reached { block: self.groups.durable_block(), version }
    }

    /// Tells the shards what is durable. Nothing of a fresh log is, before its snapshot is complete.
    pub(crate) fn publish(&mut self, log: &Log) {
        let reached = self.reached();
        let mut bytes = 0;
        while let Some((last, size)) = self.sizes.front()
            && *last <= reached.block
        {
            bytes += size;
            self.sizes.pop_front();
        }
        log.count_written(bytes);
        if !self.is_fresh {
            log.set_durable(reached);
        }
    }

    /// Takes a segment that was prepared.
    pub(crate) fn add_segment(&mut self, header: SegmentHeader, segments: &Segments<Files>) {
        self.files.insert(header.number, segments.file(header.number));
        self.groups.add_segment(header);
    }

    /// Notes that a fresh log has begun. Returns the segments of the fresh log before it, if no manifest has named that one.
    pub(crate) fn begin_fresh(&mut self, earlier: &[u64]) {
        self.groups.remove_segments(earlier);
        self.files.retain(|number, _| !earlier.contains(number));
        self.sizes.clear();
        self.is_fresh = true;
    }

    /// Gives up the segments before a group. Returns their numbers.
    pub(crate) fn trim(&mut self, first_group: u64) -> Vec<u64> {
        let numbers: Vec<u64> = std::iter::from_fn(|| self.groups.trim(first_group)).collect();
        self.files.retain(|number, _| !numbers.contains(number));
        numbers
    }
}
