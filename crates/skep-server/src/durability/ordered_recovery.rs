//! The recovery of the ordered space: the newest effects of the log, merged with the pairs of the snapshot.
//!
//! ```text
//! log        ─▶ newest effect of each key ─┐ both in the order of keys
//! snapshot   ─▶ pairs, step by step ───────┴─▶ effect, if it is newer than the step; otherwise the pair ─▶ bulk load
//! ```
//!
//! 1. The log is read. Of each key the newest effect is kept. An effect is the whole state of its key, so earlier ones do
//!    not matter, whether the snapshot contains them or not.
//! 2. The pairs of the snapshot are merged with the effects: a pair that an effect replaces or deletes is never loaded. A
//!    key that has expired at the last time that the directory states is not loaded either: the server had freed it.
//! 3. The pairs are loaded in the order of their keys ([`Load`]). So the store takes no more memory than before, for no
//!    pair is loaded that it did not have at the end.
//!
//! The effects that are kept have a budget (`newest_effects.rs`). If they exceed it, those on the greatest keys are dropped.
//! When the merge comes to the first of these, the log is read again for the keys from there on.
//!
//! **How often the log is read.** Each reading but the last keeps seven eighths of the budget, which is a quarter of the
//! memory of the store. A pair takes 34 bytes more there than its key and its value, and in the store at least 7 more. So if
//! all pairs of a full store are in the log, it is read ten times if they have 20 bytes, and six times if they have 64.
//! Deletes of other keys in the log add to that.

use skep_core::operation::{ExpiryChange, Operation, OperationError, Request, StringWrite};
use skep_log::{BlockView, Chunk, Directory, Disk, EffectOrder, LogError};
use skep_store::ordered::{Load, Session};
use skep_wire::native::WireError;

use super::newest_effects::{NewestEffect, NewestEffects, State};
use crate::recovery_error::RecoveryError;

/// Reads the log again, and calls a function with its blocks.
pub(super) type ReadAgain<'r> =
    &'r dyn Fn(&mut dyn FnMut(&BlockView<'_>) -> Result<(), WireError>) -> Result<(), LogError>;

/// The ordered space while it gets its keys back.
pub(super) struct OrderedReplay<'s> {
    loading: Loading<'s>,
    order: EffectOrder,
    newest: NewestEffects,
    /// The failure of another reading of the log.
    log_failure: Option<LogError>,
}

/// The store that is loaded.
struct Loading<'s> {
    load: Load<'s>,
    /// The latest time that the directory is known to state, in milliseconds since 1970.
    now: u64,
    /// The last key that was loaded.
    last: Vec<u8>,
    failure: Option<OperationError>,
    /// A key was left out because it has expired.
    has_expired: bool,
}

impl Loading<'_> {
    fn push(&mut self, key: &[u8], state: State<'_>) {
        self.last.clear();
        self.last.extend_from_slice(key);
        // An effect was kept before the last time of the log was known.
        let has_passed = state.is_some_and(|(_, expiry)| expiry.is_some_and(|expiry| expiry.has_passed(self.now)));
        self.has_expired |= has_passed;
        if let Some((value, expiry)) = state.filter(|_| !has_passed)
            && let Err(error) = self.load.push(key, value, expiry)
        {
            self.failure.get_or_insert(error);
        }
    }
}

/// Returns the state that a request of a snapshot or of an effect gives its key at this time.
fn state<'a>(request: &Request<'a>, now: u64) -> Result<State<'a>, WireError> {
    match request.operation {
        Operation::Put { value, .. } => Ok(Some((value, None))),
        Operation::StringWrite(StringWrite::Set { value, expiry, .. }) if expiry != ExpiryChange::KEEP => {
            let expiry = expiry.apply(None);
            Ok((!expiry.is_some_and(|expiry| expiry.has_passed(now))).then_some((value, expiry)))
        }
        Operation::Delete => Ok(None),
        _ => Err(WireError::UnknownOperation),
    }
}

impl<'s> OrderedReplay<'s> {
    /// Begins the recovery of a new store. The manifest states the time `now`. The effects that are kept take this many
    /// bytes at most.
    pub(super) fn new(session: Session<'s>, now: u64, effects_size_max: usize) -> Self {
        OrderedReplay {
            loading: Loading { load: Load::new(session), now, last: Vec::new(), failure: None, has_expired: false },
            order: EffectOrder::default(),
            newest: NewestEffects::new(Vec::new(), effects_size_max),
            log_failure: None,
        }
    }

    /// Notes a time that the log states.
    pub(super) fn note_time(&mut self, now: u64) {
        self.loading.now = self.loading.now.max(now);
    }

    /// Takes the effects of the next block.
    pub(super) fn block(&mut self, block: &BlockView<'_>) -> Result<(), WireError> {
        let OrderedReplay { order, newest, loading, .. } = self;
        let mut failure = None;
        let (from, to) = newest.range();
        let is_wanted = |key: &[u8]| key >= &from[..] && to.as_ref().is_none_or(|to| key < &to[..]);
        order.read_wanted(block, is_wanted, |_, version, request| match state(request, loading.now) {
            // The end of the range may have changed since.
            Ok(_) if !newest.has(request.key) => {}
            Ok(state) => {
                loading.has_expired |= state.is_none() && request.operation != Operation::Delete;
                newest.insert(request.key, version, state);
            }
            Err(error) => failure = Some(error),
        })?;
        failure.map_or(Ok(()), Err)
    }

    /// Loads the pairs of the next chunk of the snapshot, and the effects on keys of its range.
    pub(super) fn chunk(&mut self, chunk: &Chunk<'_>, read_again: ReadAgain<'_>) -> Result<(), WireError> {
        let mut requests = chunk.requests();
        for step in chunk.steps() {
            let end = (!step.end.is_empty()).then_some(step.end);
            for request in requests.by_ref().take(step.pairs as usize) {
                let request = request?;
                if request.key <= &self.loading.last[..] || end.is_some_and(|end| request.key >= end) {
                    return Err(WireError::UnknownOperation);
                }
                self.load_effects(Some(request.key), Some(step.mark), read_again)?;
                let newer = self.newest.take(|key| key == request.key).filter(|effect| effect.version > step.mark);
                let state = match newer {
                    Some(NewestEffect { state, .. }) => state,
                    None => {
                        let state = state(&request, self.loading.now)?;
                        self.loading.has_expired |= state.is_none();
                        state
                    }
                };
                self.loading.push(request.key, state);
            }
            self.load_effects(end, Some(step.mark), read_again)?;
        }
        Ok(())
    }

    /// Loads the effects on all keys below this one. With a mark, those that are not newer are left out: the snapshot has
    /// them.
    fn load_effects(
        &mut self,
        end: Option<&[u8]>,
        mark: Option<u64>,
        read_again: ReadAgain<'_>,
    ) -> Result<(), WireError> {
        loop {
            let is_below = |key: &[u8]| end.is_none_or(|end| key < end);
            while let Some(NewestEffect { key, version, state }) = self.newest.take(is_below) {
                if mark.is_none_or(|mark| version > mark) {
                    self.loading.push(key, state);
                }
            }
            match self.newest.to.take_if(|to| end.is_none_or(|end| &to[..] <= end)) {
                Some(from) => {
                    self.newest.restart(from);
                    self.order = EffectOrder::default();
                    if let Err(error) = read_again(&mut |block| self.block(block)) {
                        self.log_failure = Some(error);
                        return Err(WireError::UnknownOperation);
                    }
                }
                None => return Ok(()),
            }
        }
    }

    /// Loads the effects that are left, and publishes the pairs. Returns true if keys were left out because they have expired.
    pub(super) fn finish(mut self, read_again: ReadAgain<'_>) -> Result<bool, RecoveryError> {
        // Without a snapshot, these are all.
        let loaded = self.load_effects(None, None, read_again);
        match (loaded, self.log_failure, self.loading.failure) {
            (_, Some(error), _) => Err(error.into()),
            (_, None, Some(error)) => Err(error.into()),
            (Err(_), None, None) => unreachable!("only another reading of the log fails"),
            (Ok(()), None, None) => {
                self.loading.load.finish().map_err(RecoveryError::OrderedDoesNotFit)?;
                Ok(self.loading.has_expired)
            }
        }
    }

    /// Reads the snapshot of a directory whose log was read, and merges both. Keys that have expired at the last time that
    /// the log states are gone, also if the machine's clock is behind: the server had freed their memory. Returns true if there
    /// were such keys.
    pub(super) fn merge<D: Disk>(
        mut self,
        directory: &Directory<D>,
        accept_loss: bool,
        stated_time: u64,
        mut note: impl FnMut(&Chunk<'_>),
    ) -> Result<bool, RecoveryError> {
        self.note_time(stated_time);
        let read_again: ReadAgain<'_> = &|apply| {
            let read = directory.read_log(accept_loss, |blocks| {
                for block in blocks {
                    apply(&block).map_err(|error| (block.number, error))?;
                }
                Ok(())
            });
            read.map(|_| ())
        };
        let read = directory.read_ordered_snapshot(|chunk| {
            note(chunk);
            self.chunk(chunk, read_again)
        });
        if let (Err(error), None) = (read, &self.log_failure) {
            return Err(error.into());
        }
        self.finish(read_again)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use skep_core::operation::{Expiry, PutCondition, Range, Reply, ScanEnd, Start};
    use skep_log::{Block, BlockWriter, ChunkWriter, Pages, SnapshotPart};
    use skep_store::naive::seeds;
    use skep_store::ordered::{Effect, OrderedSettings, OrderedStore};
    use skep_wire::native::ORDERED_SPACE;

    use crate::limits::EFFECTS_PART;

    use super::super::newest_effects::EFFECT_SIZE;
    use super::*;

    type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

    /// Returns blocks of random effects with the versions from 1 on, and the pairs after each version.
    fn history(random: &mut Xoshiro256PlusPlus) -> (Vec<Block>, Vec<Pairs>) {
        let (mut writer, mut blocks, mut states) = (BlockWriter::new(), Vec::new(), vec![Pairs::new()]);
        for version in 1..400 {
            let mut pairs = states.last().cloned().unwrap_or_default();
            let key = format!("key {:03}", random.random_range(0..200)).into_bytes();
            let value = random.random_bool(0.7).then(|| vec![version as u8; random.random_range(0..30)]);
            let effect = Effect { version, key: &key, value: value.as_deref().map(|value| (value, None)) };
            assert!(writer.append_effect(ORDERED_SPACE, version, &effect.request()));
            if random.random_ratio(1, 8) {
                blocks.push(writer.seal_floor(version + 1));
            }
            match value {
                Some(value) => _ = pairs.insert(key, value),
                None => _ = pairs.remove(&key),
            }
            states.push(pairs);
        }
        blocks.push(writer.seal_floor(400));
        (blocks, states)
    }

    /// Returns the chunk of a snapshot whose steps have random versions, and the version at which it began.
    fn snapshot(states: &[Pairs], random: &mut Xoshiro256PlusPlus) -> (Pages, u64) {
        let (mut chunks, mut pages) = (ChunkWriter::new(1, SnapshotPart::Ordered), Pages::default());
        let begun_at = random.random_range(0..states.len());
        let last = states[begun_at].last_key_value().map(|(key, _)| [&key[..], &[0]].concat());
        let (mut from, mut version) = (Vec::new(), begun_at);
        while last.as_ref().is_some_and(|last| from < *last) {
            version = random.random_range(version..=states.len().min(version + 40) - 1);
            let end = format!("key {:03}", random.random_range(0..220)).into_bytes().max([&from[..], &[0]].concat());
            let end = end.min(last.clone().unwrap_or_default());
            let pairs = states[version].range(from..end.clone());
            pairs.for_each(|(key, value)| chunks.push(key, value, None));
            chunks.end_ordered_step(Some(&end), version as u64);
            from = end;
        }
        chunks.end_ordered_step(None, begun_at as u64);
        assert!(chunks.finish(&mut pages));
        (pages, begun_at as u64)
    }

    /// The effects that are kept have a budget, however long the log is. A key that is in the snapshot and in the log is loaded
    /// once, as its newest effect leaves it.
    #[test]
    fn the_newest_effects_are_merged_with_the_snapshot_within_a_budget() {
        for seed in seeds(&(0..200).collect::<Vec<_>>()) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (blocks, states) = history(&mut random);
            let snapshot = random.random_bool(0.8).then(|| snapshot(&states, &mut random));
            let begun_at = snapshot.as_ref().map_or(0, |(_, version)| *version);
            let view = |(number, block)| BlockView::decode(number, Block::bytes(block)).unwrap().0;
            // Recovery does not need blocks from before the snapshot.
            let views = || (1..).zip(&blocks).filter(|(_, block)| block.floor() > begun_at + 1).map(view);
            let store = OrderedStore::new(&OrderedSettings::new(1 << 20)).unwrap();
            let size_max = random.random_range(1000..40_000);
            let mut replay = OrderedReplay::new(store.session().unwrap(), 0, size_max);
            for block in views() {
                replay.block(&block).unwrap();
                assert!(replay.newest.size() <= size_max, "seed {seed}");
            }
            let readings = Cell::new(1);
            let read_again: ReadAgain<'_> = &|apply| {
                readings.update(|readings| readings + 1);
                views().for_each(|block| apply(&block).unwrap());
                Ok(())
            };
            if let Some((pages, _)) = &snapshot {
                replay.chunk(&Chunk::decode(pages.bytes()).unwrap(), read_again).unwrap();
            }
            replay.finish(read_again).unwrap();
            let effects_size = 200 * (EFFECT_SIZE + 40);
            // Each of them but the last keeps so much.
            let kept = size_max - size_max / 8 - EFFECT_SIZE - 40;
            assert!(readings.get() <= 1 + effects_size / kept, "seed {seed}: {readings:?}");
            let (mut session, mut found) = (store.session().unwrap(), Pairs::new());
            session.scan(Range::new(Start::First, ScanEnd::Last), |key, value| {
                found.insert(key.to_vec(), value.to_vec()).is_none()
            });
            assert!(Some(&found) == states.last(), "seed {seed}: other pairs");
        }
    }

    /// All pairs of a store that is full are small, were written in any order, and are in the log only.
    #[test]
    fn a_log_of_small_pairs_is_read_ten_times_at_most() {
        const MEMORY: u64 = 8 << 20;
        let full = OrderedStore::new(&OrderedSettings::new(MEMORY)).unwrap();
        let mut session = full.session().unwrap();
        // Each number has another key.
        let key = |number: u64| [&[7; 4][..], &number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()].concat();
        let mut put = |number| session.put(&key(number), b"a value.", PutCondition::Always) == Reply::Done;
        let count = (0..2_000_000).find(|number| !put(*number)).expect("the store is full");
        let count = count * 97 / 100;
        let (mut writer, mut blocks) = (BlockWriter::new(), Vec::new());
        for (version, number) in (1..).zip(0..count) {
            let effect = Effect { version, key: &key(number), value: Some((b"a value.", None)) };
            assert!(writer.append_effect(ORDERED_SPACE, version, &effect.request()));
            if writer.size() > 60_000 {
                blocks.push(writer.seal_floor(version + 1));
            }
        }
        blocks.push(writer.seal_floor(count + 1));
        let log: usize = blocks.iter().map(|block| block.bytes().len()).sum();
        let read = Cell::new(0);
        let views = || (1..).zip(&blocks).map(|(number, block)| BlockView::decode(number, block.bytes()).unwrap().0);
        let read_all = |apply: &mut dyn FnMut(&BlockView<'_>) -> Result<(), WireError>| {
            for block in views() {
                read.update(|read| read + block.size());
                apply(&block).unwrap();
            }
            Ok(())
        };
        let store = OrderedStore::new(&OrderedSettings::new(MEMORY)).unwrap();
        let mut replay = OrderedReplay::new(store.session().unwrap(), 0, (MEMORY / EFFECTS_PART) as usize);
        read_all(&mut |block| replay.block(block)).unwrap();
        replay.finish(&read_all).unwrap();
        let mut found = Vec::new();
        store.session().unwrap().scan(Range::new(Start::First, ScanEnd::Last), |key, value| {
            assert_eq!(value, b"a value.");
            found.push(key.to_vec());
            true
        });
        let mut keys: Vec<Vec<u8>> = (0..count).map(key).collect();
        keys.sort();
        assert!(found == keys, "{} keys instead of {count}", found.len());
        assert!(read.get() <= 10 * log, "{} bytes read of a log of {log}, {count} pairs", read.get());
    }

    /// The log states the time after the writes, and the machine's clock may be behind it.
    #[test]
    fn a_key_that_has_expired_at_the_last_time_of_the_log_takes_no_memory() {
        let mut writer = BlockWriter::new();
        for (version, key, expiry) in [(1, b"a", 1000), (2, b"b", 3000)] {
            let effect = Effect { version, key: &key[..], value: Some((&b"value"[..], Expiry::at(expiry))) };
            assert!(writer.append_effect(ORDERED_SPACE, version, &effect.request()));
        }
        let block = writer.seal_floor(3);
        let store = OrderedStore::new(&OrderedSettings::new(1 << 20)).unwrap();
        let mut replay = OrderedReplay::new(store.session().unwrap(), 500, 1000);
        replay.block(&BlockView::decode(1, Block::bytes(&block)).unwrap().0).unwrap();
        replay.loading.now = 2000;
        assert!(replay.finish(&|_| Ok(())).unwrap());
        let (mut session, mut found) = (store.session().unwrap(), Vec::new());
        session.scan(Range::new(Start::First, ScanEnd::Last), |key, _| {
            found.push(key.to_vec());
            true
        });
        assert_eq!(found, [b"b"]);
    }
}
