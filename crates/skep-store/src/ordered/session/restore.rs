//! Restores the state of an earlier store: pairs of a snapshot, and effects of a log.

use super::super::read::descent::GROUP_SIZE;
use super::super::store::OrderedStore;
use super::super::write::change::Change;
use super::Session;
use super::effects::Effect;
use skep_core::operation::{OperationError, Reply};

impl OrderedStore {
    /// Returns a version that is not below any that operations have read or written until now.
    pub fn read_version(&self) -> u64 {
        self.versions.read()
    }

    /// One in this many bytes is to be held back, so that a full store can be restored: see [`OrderedStore::hold_back`].
    /// At a store of 4 MiB, 1/32 was too little for values of 4,000 bytes: each is a frame of its own.
    pub const HELD_BACK_PART: u64 = 16;

    /// Returns the newest version that a write was given.
    pub fn newest_version(&self) -> u64 {
        self.versions.newest()
    }

    /// Holds back this many bytes of free memory from now on: writes that need more memory are refused before they take
    /// them. A store that was full so fits the same memory when it is restored in another layout. If less is free, what is
    /// freed becomes part of it.
    pub fn hold_back(&mut self, size: u64) {
        self.space().hold_back(size);
    }

    /// Makes all later versions greater than this one. A store that continues a log begins above all versions of that log.
    pub fn begin_versions_after(&mut self, version: u64) {
        self.versions.begin_after(version);
    }
}

impl Session<'_> {
    /// Gives the keys the values that the effects say, in the order of the effects. Their versions are not compared. Cache
    /// misses of different keys overlap. Waits for memory as [`Session::put`] does. On an error, all effects before the
    /// one that has failed are restored.
    pub fn restore(&mut self, effects: &[Effect<'_>]) -> Result<(), OperationError> {
        let mut rest = effects;
        while !rest.is_empty() {
            let done = self.restore_group(&rest[..rest.len().min(GROUP_SIZE)])?;
            rest = &rest[done..];
            if let (0, Some((effect, others))) = (done, rest.split_first()) {
                // There is no memory, perhaps because the group holds garbage.
                if let Reply::Failed(error) = self.write(effect.key, Change::Execute(&effect.request().operation)) {
                    return Err(error);
                }
                rest = others;
            }
        }
        Ok(())
    }

    /// Restores a group until there is no memory for an effect. Returns the number of effects that were restored.
    fn restore_group(&mut self, effects: &[Effect<'_>]) -> Result<usize, OperationError> {
        let Session { store, participant, writer, .. } = self;
        let guard = participant.enter();
        let mut keys: [&[u8]; GROUP_SIZE] = [&[]; GROUP_SIZE];
        keys.iter_mut().zip(effects).for_each(|(slot, effect)| *slot = effect.key);
        let positions = store.positions_of_group(&keys[..effects.len()], &guard);
        let mut done = 0;
        for (index, effect) in effects.iter().enumerate() {
            let request = effect.request();
            request.validate()?;
            let change = Change::Execute(&request.operation);
            match store.write(effect.key, change, Some(positions.of(index)), writer, &guard) {
                Some(Reply::Failed(error)) => return Err(error),
                Some(_) => done += 1,
                None => break,
            }
        }
        drop(guard);
        self.collect_batch();
        Ok(done)
    }
}
