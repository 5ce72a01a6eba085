//! Effects for a log, and the floors of its blocks.
//!
//! ```text
//! execute a batch ─▶ effects of the session ─▶ seal: block with floor ─▶ queue of all sessions ─▶ disk
//!                                                                                                  │
//! reply, if it has seen nothing above `read_version` ◀── the floor of a durable block is above ◀───┘
//! ```
//!
//! 1. A session records the effects of its writes if it was told to: every session of the store, or none.
//! 2. After a batch, a step of a flush or a step of reclamation, its thread seals the effects: [`Session::seal`]. Several
//!    batches may be sealed together, such as those of a transaction.
//! 3. Recovery takes the effects of all blocks whose versions are below the greatest floor, and applies them in the order
//!    of versions. Effects at or above it are dropped: some before them may be missing. If the log is continued, greater
//!    floors follow, so the log must tell later recoveries which effects were dropped.
//! 4. A reply may leave when the floor of a durable block is above the version that its batch has read. Until then
//!    recovery might not find what the reply shows.
//!
//! `version/floors.rs` tells why all effects below a floor are found.

use super::super::write::effects::{EffectLog, Entry};
use super::Session;
use skep_core::operation::{Expiry, Operation, Request};

/// The state of a key from a version on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect<'e> {
    /// The version of the write. No other write of the store has it, and later writes of a key have greater ones.
    pub version: u64,
    /// The key.
    pub key: &'e [u8],
    /// The value and the expiry; `None` if the key was deleted.
    pub value: Option<(&'e [u8], Option<Expiry>)>,
}

/// The effects of a block, in the order of their versions.
#[derive(Clone, Debug)]
pub struct Effects<'e> {
    entries: std::slice::Iter<'e, Entry>,
    bytes: &'e [u8],
}

impl Effect<'_> {
    /// Returns the request that gives the key this state.
    pub fn request(&self) -> Request<'_> {
        let operation = match self.value {
            None => Operation::Delete,
            Some((value, expiry)) => Operation::put(value, expiry.into()),
        };
        Request { key: self.key, operation }
    }
}

impl<'e> Iterator for Effects<'e> {
    type Item = Effect<'e>;

    fn next(&mut self) -> Option<Effect<'e>> {
        let Entry { version, key_size, value_size, expiry } = *self.entries.next()?;
        let (key, rest) = self.bytes.split_at(key_size as usize);
        let (value, rest) = rest.split_at(value_size.unwrap_or(0) as usize);
        self.bytes = rest;
        Some(Effect { version, key, value: value_size.map(|_| (value, expiry)) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Effects<'_> {}

impl Session<'_> {
    /// Records the effects of all later writes of the session. Its thread seals them after each batch.
    ///
    /// # Panics
    ///
    /// Panics if the store has no versions, or if an earlier session was dropped with effects that were not sealed: then
    /// no floor can pass them.
    pub fn record_effects(&mut self) {
        assert!(self.store.versions.are_on(), "effects are ordered by their versions");
        let slot = self.participant.slot();
        assert!(self.store.floors.join(slot), "a session was dropped with effects that were not sealed");
        self.writer.effects = Some(Box::new(EffectLog::new(slot)));
    }

    /// Returns true if writes have taken versions since the session last sealed, or another session may wait for it to
    /// seal. Otherwise [`Session::seal`] does nothing.
    pub fn has_unsealed(&self) -> bool {
        self.writer.effects.as_ref().is_some_and(|log| log.is_open || log.has_versions)
    }

    /// Returns the bytes of keys and values of the effects since the last seal.
    pub fn unsealed_bytes(&self) -> usize {
        self.writer.effects.as_ref().map_or(0, |log| log.bytes.len())
    }

    /// Calls `queue` with the effects since the last call and with their floor: once if the session has taken versions, and
    /// once more, without effects, if another session needs a greater floor. `queue` adds them as a block to a queue that
    /// all sessions share, such as a list under a lock. All effects with versions below the floor are then in the queue.
    ///
    /// A block without effects matters if its floor is greater than those before it: replies may wait for it.
    pub fn seal(&mut self, mut queue: impl FnMut(Effects<'_>, u64)) {
        let Session { store, writer, .. } = self;
        let Some(log) = &mut writer.effects else { return };
        if log.has_versions {
            if log.is_open {
                store.floors.begin_seal(log.slot);
            }
            let floor = store.floors.floor(log.slot, &store.versions);
            queue(Effects { entries: log.entries.iter(), bytes: &log.bytes }, floor);
            log.clear();
        }
        if log.is_open {
            log.is_open = false;
            if store.floors.close(log.slot) {
                let floor = store.floors.floor(log.slot, &store.versions);
                queue(Effects { entries: [].iter(), bytes: &[] }, floor);
            }
        }
    }

    /// Calls `queue` with a floor, without effects. If other sessions hold the floor back, they state a greater one when
    /// they seal.
    pub fn state_floor(&mut self, mut queue: impl FnMut(Effects<'_>, u64)) {
        let Session { store, writer, .. } = self;
        let Some(log) = &writer.effects else { return };
        let floor = store.floors.floor(log.slot, &store.versions);
        queue(Effects { entries: [].iter(), bytes: &[] }, floor);
    }

    /// Returns a version that is not below any that the session's operations have read or written until now.
    pub fn read_version(&self) -> u64 {
        self.store.versions.read()
    }
}
