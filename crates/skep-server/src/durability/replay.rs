//! The replay of a snapshot and a log into the hash stores.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use skep_core::operation::{Operation, OperationError, Request};
use skep_log::{BlockView, Boundary, Chunk, Directory, Files, LogError, Manifest, Section, SnapshotFile};
use skep_store::processor::{Processor, Replies};
use skep_wire::native::WireError;
use skep_wire::partition::Partition;

use super::contained::Contained;
use super::loading::Progress;
use super::ordered_recovery::OrderedReplay;
use super::slice::Slice;
use super::written::Written;
use crate::function_loader::{FunctionLoader, Unresolved};
use crate::limits::REPLY_BUDGET;
use crate::recovery_error::RecoveryError;

/// Operations that a store executes together.
const BATCH: usize = 1024;
/// The longest time, in milliseconds, after which a shard that has logged nothing counts as idle. It may execute one long
/// command until then, which is logged as a whole.
const IDLE_TIME: u64 = 600_000;

/// A store that gets its keys back.
pub(super) struct Store<'s> {
    pub(super) processor: &'s mut Processor,
    replies: Replies,
    /// After it, nothing is executed.
    pub(super) failure: Option<OperationError>,
    /// Bytes of slab memory for pairs that did not fit.
    pub(super) missing: u64,
}

impl Store<'_> {
    /// Executes operations of the time `now`; no later ones are of a time before `all_after`. Afterwards the list is
    /// empty.
    pub(super) fn execute(&mut self, now: u64, all_after: u64, requests: &mut Vec<Request<'_>>) {
        if self.failure.is_some() {
            requests.clear();
        } else if let Err(error) = self.processor.replay(now, all_after, requests, &mut self.replies) {
            self.failure = Some(error);
        }
    }
}

/// The stores, and how keys are assigned to them.
pub(super) struct Stores<'s> {
    stores: Vec<Mutex<Store<'s>>>,
    pub(super) partition: Partition,
    pub(super) progress: &'s Progress,
    /// The keys that are recovered; all keys if it is `None`.
    slice: Option<&'s Slice>,
    pub(super) loader: &'s FunctionLoader,
}

impl<'s> Stores<'s> {
    pub(super) fn new(
        processors: Vec<&'s mut Processor>,
        partition: Partition,
        progress: &'s Progress,
        loader: &'s FunctionLoader,
    ) -> Self {
        let replies = || Replies::with_budget(REPLY_BUDGET);
        let store = |processor| Mutex::new(Store { processor, replies: replies(), failure: None, missing: 0 });
        Stores { stores: processors.into_iter().map(store).collect(), partition, progress, slice: None, loader }
    }

    /// Returns stores for the keys of a slice.
    pub(super) fn of_slice(
        processors: Vec<&'s mut Processor>,
        partition: Partition,
        progress: &'s Progress,
        slice: &'s Slice,
        loader: &'s FunctionLoader,
    ) -> Self {
        Stores { slice: Some(slice), ..Stores::new(processors, partition, progress, loader) }
    }

    /// Returns true if the key of a store is recovered.
    fn takes(&self, store: usize, key: &[u8]) -> bool {
        self.slice.is_none_or(|slice| slice.contains(store, key))
    }

    /// Calls `f` with each store.
    pub(super) fn each(&self, mut f: impl FnMut(&mut Store<'s>)) {
        (0..self.stores.len()).for_each(|store| self.with(store, &mut f));
    }

    pub(super) fn with<R>(&self, store: usize, f: impl FnOnce(&mut Store<'s>) -> R) -> R {
        f(&mut self.stores[store].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts the pairs of a chunk.
    pub(super) fn load(&self, chunk: &Chunk<'_>) -> Result<(), WireError> {
        let mut parts: Vec<Vec<Request<'_>>> = self.stores.iter().map(|_| Vec::with_capacity(BATCH)).collect();
        // At the beginning of time: what has expired since was there when later operations ran.
        let put = |store: usize, part: &mut Vec<_>| self.with(store, |store| store.execute(0, 0, part));
        for request in chunk.requests() {
            let request = request?;
            let store = usize::from(self.partition.shard_of(request.key));
            if !self.takes(store, request.key) {
                continue;
            }
            parts[store].push(request);
            if parts[store].len() == BATCH {
                put(store, &mut parts[store]);
            }
        }
        parts.iter_mut().enumerate().for_each(|(store, part)| put(store, part));
        // In slices, each pair is read again.
        self.progress.add_pairs(chunk.size as u64, if self.slice.is_none() { chunk.pairs.into() } else { 0 });
        Ok(())
    }

    /// Ends the replay at this time.
    pub(super) fn end(&self, now: u64) {
        self.each(|store| store.processor.end_replay(now));
    }

    /// Removes some keys.
    fn remove<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut parts: Vec<Vec<Request<'_>>> = vec![Vec::new(); self.stores.len()];
        for key in keys {
            parts[usize::from(self.partition.shard_of(key))].push(Request { key, operation: Operation::Delete });
        }
        parts.iter_mut().enumerate().for_each(|(store, part)| self.with(store, |store| store.execute(0, 0, part)));
    }

    pub(super) fn into_processors(self) -> Vec<&'s mut Processor> {
        let store = |store: Mutex<Store<'s>>| store.into_inner().unwrap_or_else(PoisonError::into_inner).processor;
        self.stores.into_iter().map(store).collect()
    }

    /// Returns the bytes of memory of all stores.
    fn memory(&self) -> u64 {
        (0..self.stores.len()).map(|store| self.with(store, |store| store.processor.statistics().memory_bytes)).sum()
    }

    pub(super) fn failure(&self) -> Option<OperationError> {
        (0..self.stores.len()).find_map(|store| self.with(store, |store| store.failure))
    }
}

/// The execution of the log.
pub(super) struct Replay<'s, 'a> {
    stores: &'a Stores<'s>,
    contained: Contained,
    seed: u64,
    pub(super) ordered: Option<OrderedReplay<'a>>,
    /// There are effects, but no ordered space.
    pub(super) lacks_ordered: bool,
    /// A call whose module does not compile any more was left out.
    refused: Option<Refused>,
    pub(super) times: Times,
    /// What removals of all keys of a shard have to remove.
    written: Written,
    /// Walks over all buckets for that.
    pub(super) walks: u64,
}

/// A module that does not compile any more.
struct Refused {
    name: String,
    error: Arc<str>,
}

/// The times of the operations that were executed.
pub(super) struct Times {
    /// The latest of all.
    pub(super) last: u64,
    /// The latest of each shard that wrote the log. Its later operations have no earlier time.
    of_shards: Vec<u64>,
    /// Each store has the keys of one of these shards.
    are_same: bool,
}

impl Times {
    fn new(shard_count: usize, store_count: usize) -> Times {
        Times { last: 0, of_shards: vec![0; shard_count], are_same: shard_count == store_count }
    }

    /// Notes an operation of a shard.
    fn note(&mut self, shard: usize, time: u64) {
        self.of_shards[shard] = self.of_shards[shard].max(time);
    }

    /// Returns the time before which no later operation on the keys of a store was executed. A shard that has been idle for
    /// long does not count: its clock is that of the machine too.
    fn all_after(&self, store: usize) -> u64 {
        if self.are_same {
            return self.of_shards[store];
        }
        let earliest = self.of_shards.iter().copied().min().unwrap_or(0);
        earliest.max(self.last.saturating_sub(IDLE_TIME))
    }
}

impl<'s, 'a> Replay<'s, 'a> {
    /// Returns the replay of a log after a snapshot was loaded, without an ordered space.
    pub(super) fn new(
        stores: &'a Stores<'s>,
        manifest: Option<&Manifest>,
        boundaries: Vec<Boundary>,
        seed: u64,
    ) -> Replay<'s, 'a> {
        let store_count = stores.stores.len();
        Replay {
            stores,
            contained: Contained::new(manifest, boundaries, seed),
            seed,
            ordered: None,
            lacks_ordered: manifest.is_some_and(|manifest| manifest.ordered != SnapshotFile::default()),
            refused: None,
            times: Times::new(manifest.map_or(store_count, |manifest| manifest.shards.len()), store_count),
            written: Written::new(seed, stores.memory()),
            walks: 0,
        }
    }

    /// Executes the blocks of a group.
    pub(super) fn group<'b>(
        &mut self,
        blocks: &mut dyn Iterator<Item = BlockView<'b>>,
    ) -> Result<(), (u64, WireError)> {
        let count = self.stores.stores.len();
        let mut parts: Vec<Vec<Request<'b>>> = vec![Vec::new(); count];
        let mut now = 0;
        let flush = |now, times: &Times, parts: &mut [Vec<Request<'_>>]| {
            for (store, part) in parts.iter_mut().enumerate().filter(|(_, part)| !part.is_empty()) {
                let all_after = times.all_after(store);
                self.stores.with(store, |store| store.execute(now, all_after, part));
            }
        };
        for block in blocks {
            let count = if self.stores.slice.is_none() { block.count.into() } else { 0 };
            self.stores.progress.add_operations(block.size() as u64, count);
            if let Some(ordered) = &mut self.ordered {
                ordered.note_time(self.times.last);
                ordered.block(&block).map_err(|error| (block.number, error))?;
            }
            for section in block.sections() {
                match section {
                    Section::Operations { now: time, operations, .. } => {
                        if time != now {
                            flush(now, &self.times, &mut parts);
                            now = time;
                        }
                        // The section may have no operations.
                        self.times.last = self.times.last.max(time);
                        for request in operations {
                            let mut request = request.map_err(|error| (block.number, error))?;
                            let store = usize::from(self.stores.partition.shard_of(request.key));
                            let shard = if self.times.are_same { store } else { self.contained.shard_of(request.key) };
                            self.times.note(shard, now);
                            if !self.stores.takes(store, request.key)
                                || self.contained.contains(block.number, request.key)
                            {
                                continue;
                            }
                            let refused = resolve(&mut request, self.stores.loader);
                            if let Some(refused) = refused.map_err(|error| (block.number, error))? {
                                self.refused = Some(refused);
                                continue;
                            }
                            self.written.note(request.key);
                            parts[store].push(request);
                            if parts[store].len() == BATCH {
                                let (part, all_after) = (&mut parts[store], self.times.all_after(store));
                                self.stores.with(store, |store| store.execute(now, all_after, part));
                            }
                        }
                    }
                    Section::Flush { shard, shard_count, .. } => {
                        flush(now, &self.times, &mut parts);
                        self.remove_all(block.number, shard, shard_count);
                    }
                    Section::Effects { .. } => self.lacks_ordered |= self.ordered.is_none(),
                }
            }
        }
        flush(now, &self.times, &mut parts);
        Ok(())
    }

    /// Refuses a directory that the stores cannot have. If there is no memory in the hash space, it is recovered in slices.
    pub(super) fn check(&self) -> Result<(), RecoveryError> {
        if self.lacks_ordered {
            return Err(RecoveryError::WithoutOrdered);
        }
        if let Some(Refused { name, error }) = &self.refused {
            return Err(RecoveryError::Functions { module: name.clone(), error: error.to_string() });
        }
        let failure = self.stores.failure().filter(|failure| !failure.is_out_of_memory());
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Removes the keys of a shard, except those that the snapshot found after they were removed.
    fn remove_all(&mut self, block: u64, shard: u16, shard_count: u16) {
        if block > self.contained.last_block && usize::from(shard_count) == self.stores.stores.len() {
            return self.stores.with(usize::from(shard), |store| store.processor.flush());
        }
        if let Some(keys) = self.written.take(shard, shard_count) {
            let (kept, removed): (HashSet<_>, HashSet<_>) =
                keys.into_iter().partition(|key| self.contained.contains(block, key));
            self.stores.remove(removed.iter().map(|key| &**key));
            return self.written.begin(shard, kept);
        }
        self.walks += 1;
        let partition = Partition::new(self.seed, shard_count);
        for store in 0..self.stores.stores.len() {
            let mut next = Some(0);
            while let Some(from) = next {
                let mut keys: Vec<Vec<u8>> = Vec::new();
                next = self.stores.with(store, |store| {
                    store.processor.walk_pairs(from, |key, _, _| {
                        if partition.shard_of(key) == shard && !self.contained.contains(block, key) {
                            keys.push(key.to_vec());
                        }
                    })
                });
                self.stores.remove(keys.iter().map(|key| &key[..]));
            }
        }
        if block > self.contained.last_block {
            self.written.begin(shard, HashSet::new());
        }
    }
}

/// Finds the function of a request, if it names one. Its source may be compiled first. Returns its module if that does not
/// compile any more.
fn resolve(request: &mut Request<'_>, loader: &FunctionLoader) -> Result<Option<Refused>, WireError> {
    let Operation::Call(call) = &mut request.operation else { return Ok(None) };
    match loader.resolve(call.function) {
        Ok(handle) => call.function = handle,
        Err(Unresolved::Unknown) => return Err(WireError::UnknownFunction),
        Err(Unresolved::Refused { module: name, error }) => return Ok(Some(Refused { name, error })),
    }
    Ok(None)
}

/// Reads all files of the snapshot. Returns the boundary of each.
pub(super) fn read_snapshot(directory: &Directory<Files>, stores: &Stores<'_>) -> Result<Vec<Boundary>, LogError> {
    let count = directory.manifest().map_or(0, |manifest| manifest.shards.len());
    thread::scope(|scope| {
        let read = |shard| {
            let read = move || directory.read_snapshot(shard as u16, |chunk| stores.load(chunk));
            thread::Builder::new().spawn_scoped(scope, read)
        };
        let threads: Result<Vec<_>, _> = (0..count).map(read).collect();
        let no_thread = |source| LogError::Io { action: "read", name: "a snapshot by a thread".to_owned(), source };
        threads.map_err(no_thread)?.into_iter().map(|thread| thread.join().expect("a reader does not panic")).collect()
    })
}
