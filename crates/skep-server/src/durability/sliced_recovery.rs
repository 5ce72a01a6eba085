//! Recovery in slices, which needs no more memory than the final pairs.
//!
//! The log may have been executed in memory that a replay does not have: a replay puts pairs in another order, so free slabs
//! are elsewhere and cannot be joined; and a snapshot that took a while has pairs that never existed at the same time. So if
//! the replay finds no memory in the hash space, its pairs are dropped, and the directory is read again:
//!
//! ```text
//! hash range   |  slice 0  |  slice 1  |  slice 2  | ...     the upper bits of the secret hash
//!                            ▼ snapshot and log of its keys
//!                          scratch store ── final pairs ──▶ store      then the scratch store is dropped
//! ```
//!
//! **Why the pairs fit** the memory that they have fitted before, with the same settings:
//! 1. They are those of the last moment. Pairs that were deleted or replaced, or have expired, are not put.
//! 2. A pair takes the same slabs in each layout. Sizes of slabs are powers of two. The store only allocates, and an
//!    allocation takes the shortest free stretch that is long enough, or stretches are joined until there is one. So what
//!    is free stays in as few stretches as it can, and all of the memory can be allocated, in each order of the pairs.
//! 3. The seed is kept, so a key has the same home bucket. The pairs of a chain are put in the order of the chain in the
//!    scratch store. Each then fits a bucket that is not later than its own was. So the chain has no more buckets than there.
//! 4. If the number of home buckets grows, the store has fewer than it had when the replay found no memory, and they do not grow
//!    while its pairs are put: first an eighth fewer, and if the pairs do not fit, half of that, and so on, to the number of the
//!    start. The server has had no fewer. Fewer home buckets have longer chains, but the chain of all keys of some home
//!    buckets has no more buckets than their own chains together.
//! 5. A chain of the scratch store may have a bucket more than it had when the server ran: the order of operations is the
//!    same, but expired keys may have been removed at other times. Such buckets are in spare memory, which the store has for
//!    this: `skep_store`, `hash/slab/spare.rs`. As much memory is not given out until keys are deleted. So the store takes
//!    no more at the next start either.
//!
//! With another number of shards, a shard may have more keys than its part of the memory. It takes spare memory too, as far as
//! other shards have left theirs. **The next start has room for that too**: all stores together have a bound for spare memory,
//! a sixteenth of the memory. A start with another number of shards is served only if half of it is enough. The rest of what the
//! shards owe is memory that others have free. These hold it back until it is no longer owed. So the pairs of all shards
//! never take more than at this start, or than all memory. The other half of the bound is for longer chains.
//!
//! **What it costs.** The snapshot and the log are read once for each slice. A scratch store has a quarter of the memory of
//! its store for slabs, about twice what the keys of a slice take. If they take more, because values are large or keys have
//! many short-lived values, the slice is read again with more memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use skep_core::operation::{Expiry, Operation, Request};
use skep_log::{Directory, Files, LogError};
use skep_store::hash::Settings;
use skep_store::memory::{LINE_SIZE, RegionError};
use skep_store::processor::Processor;
use skep_wire::partition::Partition;

use super::loading::Progress;
use super::replay::{Replay, Store, Stores, read_snapshot};
use super::slice::{SLICES, Slice};
use crate::function_loader::FunctionLoader;
use crate::recovery_error::RecoveryError;

/// Slab memory of a scratch store, in quarters of the memory of its store: the first that is enough for the slice.
const SCRATCH_QUARTERS: [u64; 4] = [1, 4, 16, 64];
/// All stores together may take one in this many bytes more than their memory.
const SPARE_PART: u64 = 16;

/// A directory whose hash space is recovered.
pub(super) struct Source<'d> {
    pub(super) loader: &'d FunctionLoader,
    pub(super) directory: &'d Directory<Files>,
    /// The settings of the stores.
    pub(super) tables: &'d [Settings],
    pub(super) partition_seed: u64,
    pub(super) accept_loss: bool,
    /// The time at which keys have expired.
    pub(super) time: u64,
    /// Another number of shards wrote the directory, with other seeds.
    pub(super) has_other_seeds: bool,
    pub(super) progress: &'d Progress,
}

impl Source<'_> {
    /// Recovers all pairs into stores that have found no memory for a replay. Returns the bytes that they owe.
    pub(super) fn recover(&self, stores: &Stores<'_>) -> Result<u64, RecoveryError> {
        tracing::info!(
            "the log needs more memory than its keys: it is read again in {SLICES} parts, with up to a quarter more memory"
        );
        let mut home_buckets = Vec::new();
        stores.each(|store| home_buckets.push(store.processor.home_bucket_count() / 8 * 7));
        loop {
            let packed = self.pack(stores, &home_buckets);
            let does_not_fit = matches!(packed, Err(RecoveryError::HashSpaceDoesNotFit { .. }));
            let has_fewer =
                self.tables.iter().zip(&home_buckets).any(|(table, count)| *count > table.first_home_buckets());
            if !does_not_fit || !has_fewer {
                return packed;
            }
            home_buckets.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// Recovers all pairs into stores whose indexes, if they grow, have these many home buckets. Returns the bytes that the
    /// stores owe.
    fn pack(&self, stores: &Stores<'_>, home_buckets: &[u32]) -> Result<u64, RecoveryError> {
        self.progress.begin_again(SLICES);
        let mut counts = home_buckets.iter();
        stores.each(|store| {
            store.failure = None;
            store.missing = 0;
            store.processor.begin_packing(*counts.next().expect("each store has one"));
        });
        (0..SLICES).try_for_each(|number| self.recover_slice(stores, number))?;
        let (mut debt, mut missing) = (0, 0);
        let mut balances = Vec::new();
        stores.each(|store| {
            let free = store.processor.statistics().slab_free_bytes;
            let of_store = store.processor.end_packing();
            debt += of_store;
            missing += store.missing;
            balances.push((of_store.saturating_sub(free), free.saturating_sub(of_store)));
        });
        // A shard may take what others have left: keys may be divided less evenly than among other shards before.
        let (owed, free) =
            balances.iter().fold((0, 0), |(owed, free), of_store| (owed + of_store.0, free + of_store.1));
        let beyond = (owed + missing).saturating_sub(free);
        let bound = self.memory() / SPARE_PART;
        if missing > 0 || beyond > if self.has_other_seeds { bound / 2 } else { bound } {
            return Err(self.lacking(beyond.max(missing)));
        }
        hold_back(stores, balances, owed.saturating_sub(bound / 2));
        if debt > 0 {
            tracing::info!(
                "the keys take {debt} bytes beyond the memory of their shards: writes there that need memory are refused \
                 until as much is deleted"
            );
        }
        Ok(debt)
    }

    fn memory(&self) -> u64 {
        self.tables.iter().map(|table| table.memory).sum()
    }

    /// Returns the error of stores that lack these bytes for slabs.
    fn lacking(&self, missing: u64) -> RecoveryError {
        let table = &self.tables[0];
        let slab_part = if table.grows { 1.0 } else { 1.0 - table.hash_index_ratio };
        let more = missing as f64 / slab_part.max(1.0 / 16.0);
        RecoveryError::HashSpaceDoesNotFit { missing, memory: (self.memory() + more as u64).next_multiple_of(1 << 20) }
    }

    fn recover_slice(&self, stores: &Stores<'_>, number: u64) -> Result<(), RecoveryError> {
        let buckets = stores.with(0, |store| store.processor.home_bucket_count());
        let slice = Slice::new(number, self.tables, buckets);
        for quarters in SCRATCH_QUARTERS {
            let scratch = self.tables.iter().map(|table| scratch_store(table, buckets, quarters));
            let mut scratch: Vec<Processor> = match scratch.collect() {
                Ok(scratch) => scratch,
                // There is no such address space.
                Err(_) if quarters > SCRATCH_QUARTERS[0] => break,
                Err(error) => return Err(RecoveryError::Memory(error)),
            };
            match self.replay_slice(&mut scratch, stores.partition, &slice) {
                Ok(()) => return self.move_slice(stores, scratch, &slice),
                Err(RecoveryError::DoesNotFit(_)) => self.progress.begin_again(1),
                error => return error,
            }
        }
        // The keys of the slice alone take many times the memory.
        Err(self.lacking(self.memory() * SLICES))
    }

    fn replay_slice(
        &self,
        scratch: &mut [Processor],
        partition: Partition,
        slice: &Slice,
    ) -> Result<(), RecoveryError> {
        let replayed = Stores::of_slice(scratch.iter_mut().collect(), partition, self.progress, slice, self.loader);
        let boundaries = read_snapshot(self.directory, &replayed)?;
        let mut replay = Replay::new(&replayed, self.directory.manifest(), boundaries, self.partition_seed);
        self.directory.read_log(self.accept_loss, |blocks| replay.group(blocks))?;
        replayed.failure().map_or(Ok(()), |failure| Err(failure.into()))
    }

    fn move_slice(&self, stores: &Stores<'_>, scratch: Vec<Processor>, slice: &Slice) -> Result<(), RecoveryError> {
        thread::scope(|scope| {
            let move_pairs = |(store, mut scratch): (usize, Processor)| {
                let moving = move || stores.with(store, |store| move_pairs(&mut scratch, slice, store, self.time));
                thread::Builder::new().spawn_scoped(scope, moving).map(drop)
            };
            let no_thread = |source| LogError::Io { action: "read", name: "a snapshot by a thread".to_owned(), source };
            scratch.into_iter().enumerate().try_for_each(move_pairs).map_err(no_thread)
        })?;
        Ok(())
    }
}

/// Lets stores keep memory free for what others owe beyond the bound: this `excess`. A balance has the bytes that a store owes
/// and those that it has free, of which one is zero.
fn hold_back(stores: &Stores<'_>, balances: Vec<(u64, u64)>, excess: u64) {
    if excess == 0 {
        return;
    }
    let all_free = balances.iter().map(|(_, free)| u128::from(*free)).sum::<u128>().max(1);
    let shared = Arc::new(AtomicU64::new(excess));
    let mut balances = balances.into_iter();
    stores.each(|store| {
        let (owed, free) = balances.next().expect("each store has one");
        let part = (u128::from(excess) * u128::from(free)).div_ceil(all_free) as u64;
        store.processor.hold_back(part.min(free), owed, &shared);
    });
}

/// Returns a store for the keys of a slice, with as many home buckets as the store for all keys.
fn scratch_store(table: &Settings, buckets: u32, quarters: u64) -> Result<Processor, RegionError> {
    let index = u64::from(buckets) * LINE_SIZE as u64;
    // A store has at least a fifteenth of its index as slabs.
    let memory = (index + (table.memory / 4 * quarters).max(index / 8)).next_multiple_of(LINE_SIZE as u64);
    let hash_index_ratio = (f64::from(buckets) + 0.5) / (memory / LINE_SIZE as u64) as f64;
    Processor::new(&Settings { memory, hash_index_ratio, grows: false, ..table.clone() })
}

/// Puts the pairs of a slice into their store, except those that have expired.
fn move_pairs(scratch: &mut Processor, slice: &Slice, store: &mut Store<'_>, time: u64) {
    let mut pairs = Pairs::default();
    let mut next = Some(slice.first);
    while let Some(from) = next.filter(|from| slice.is_before_end(*from)) {
        next = scratch.walk_pairs(from, |key, value, expiry| {
            if !expiry.is_some_and(|expiry| expiry.has_passed(time)) {
                pairs.push(key, value, expiry);
            }
        });
        pairs.put(store, time);
        pairs.clear();
    }
}

/// Pairs of a step of a walk.
#[derive(Default)]
struct Pairs {
    bytes: Vec<u8>,
    /// Sizes of the key and the value.
    sizes: Vec<(usize, usize, Option<Expiry>)>,
}

impl Pairs {
    fn push(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.sizes.push((key.len(), value.len(), expiry));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.sizes.clear();
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], Option<Expiry>)> {
        let mut rest = &self.bytes[..];
        self.sizes.iter().map(move |&(key_size, value_size, expiry)| {
            let (key, after) = rest.split_at(key_size);
            let (value, after) = after.split_at(value_size);
            rest = after;
            (key, value, expiry)
        })
    }

    /// Puts all pairs. If there is no memory for one, counts what it and later ones lack.
    fn put(&self, store: &mut Store<'_>, time: u64) {
        if store.failure.is_none() {
            let requests = self.iter().map(|(key, value, expiry)| {
                let operation = Operation::put(value, expiry.into());
                Request { key, operation }
            });
            store.execute(time, time, &mut requests.collect::<Vec<_>>());
        }
        if store.failure.is_some() {
            let size = |(key, value, expiry)| store.processor.slab_size_max(key, value, expiry);
            store.missing += self.iter().map(size).sum::<u64>();
        }
    }
}
