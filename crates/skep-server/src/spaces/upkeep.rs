//! The work of a shard's stores between batches: expired keys, memory that is free again, and the walk of a snapshot.

use std::sync::atomic::Ordering;
use std::time::Duration;

use skep_store::ordered::Session;

use super::{ShardPart, Stores};
use crate::durability::ShardLog;
use crate::durability::walk::Walk;
use crate::limits::{BLOCK_BOUND, IDLE_FLUSH_STEPS, URGENT_RECLAIM_STEPS};
use crate::watches::{OrderedWatches, WatchTable};

impl Stores<'_> {
    /// Notes that operations of a space that is logged are executed.
    #[inline]
    pub(super) fn note_execution(&mut self) {
        if let Some(log) = &mut self.log {
            log.note_execution();
        }
    }

    /// Puts what the shard has executed into the queue of the log.
    pub(crate) fn seal(&mut self) {
        let Some(log) = &mut self.log else { return };
        let (part, session) = (&self.own_part, &self.ordered);
        log.note_time(|| {
            let of_hash = part.as_ref().and_then(|part| part.processor.reclaim_from());
            of_hash.or_else(|| session.as_ref().and_then(Session::reclaim_from)).is_some()
        });
        if let Some(session) = &mut self.ordered
            && session.has_unsealed()
        {
            session.seal(|effects, floor| log.seal_effects(effects, floor));
        }
        // The session calls nothing if all its writes were refused.
        log.seal();
    }

    /// Seals the block of a command that is not done, if it is so long that it must not grow.
    pub(crate) fn bound_block(&mut self) {
        let effects = self.ordered.as_ref().map_or(0, Session::unsealed_bytes);
        if self.log.as_ref().is_some_and(|log| log.size() + effects >= BLOCK_BOUND) {
            self.seal();
        }
    }

    /// Forgets what the shard has executed since the last seal: a part of a command that is abandoned.
    pub(crate) fn discard(&mut self) {
        if let Some(session) = &mut self.ordered {
            session.seal(|_, _| {});
        }
        if let Some(log) = &mut self.log {
            log.discard();
        }
    }

    /// Returns true if the walk for a snapshot can go on.
    pub(crate) fn may_walk(&self) -> bool {
        self.own_part.is_some() && self.walk.as_ref().is_some_and(Walk::has_work)
    }

    /// Makes a step of the walk.
    #[cfg(test)]
    pub(crate) fn walk_step(&mut self) {
        self.seal();
        if let (Some(walk), Some(part)) = (&mut self.walk, &mut self.own_part) {
            walk.step(&mut part.processor, self.ordered.as_mut());
        }
    }

    /// Counts the time of a turn in which the walk for a snapshot cannot go on.
    pub(crate) fn defer_walk(&mut self, worked: Duration) {
        if let Some(walk) = &mut self.walk {
            walk.defer(worked);
        }
    }

    /// Continues the walk for a snapshot, if one is being taken, after a turn that took `worked`, or had nothing to do.
    /// No command of a hold has begun.
    pub(crate) fn walk(&mut self, worked: Option<Duration>) {
        self.seal();
        if let (Some(walk), Some(part)) = (&mut self.walk, &mut self.own_part) {
            walk.run(&mut part.processor, self.ordered.as_mut(), worked);
        }
    }

    /// Returns true if expired keys may be removed: at a start with a log, not before the first operation.
    fn removes_keys(&self) -> bool {
        self.log.as_ref().is_none_or(ShardLog::removes_keys)
    }

    /// Returns true if [`Stores::before_sleep`] is to be called from time to time: many keys are watched, and those of
    /// connections that end would take much memory.
    pub(crate) fn watches_much(&self) -> bool {
        self.own_part.as_ref().is_some_and(|part| part.watches.is_large())
            || self.ordered_watches().is_some_and(|watches| watches.is_large.load(Ordering::Relaxed))
    }

    /// Returns the watched keys of the ordered space, if the shard looks after them: it is the first one.
    fn ordered_watches(&self) -> Option<&OrderedWatches> {
        self.shared.filter(|_| self.own == 0).map(|shared| &shared.ordered_watches)
    }

    /// Forgets the watched keys of connections that have ended, if they take much memory.
    fn forget_watches(&mut self) {
        if let Some(part) = &mut self.own_part {
            part.watches.forget_dead();
        }
        if let Some(watches) = self.ordered_watches()
            && watches.is_large.load(Ordering::Relaxed)
        {
            watches.with(WatchTable::forget_dead);
        }
    }

    /// Frees the memory of some expired keys, if there are any: in at most this number of steps for each store.
    pub(crate) fn reclaim(&mut self, steps: usize) {
        if !self.removes_keys() {
            return;
        }
        let is_urgent = self.own_part.as_ref().is_some_and(|part| part.processor.is_reclaim_urgent());
        let steps = if is_urgent { steps.max(URGENT_RECLAIM_STEPS) } else { steps };
        for _ in 0..steps {
            let (mut removed, mut is_flushing) = (0, false);
            if let Some(ShardPart { processor, .. }) = self.own_part.as_deref_mut() {
                is_flushing = processor.flush_step();
                removed = processor.reclaim();
            }
            let of_ordered = self.ordered.as_mut().and_then(Session::reclaim).unwrap_or(0);
            self.holds_garbage |= of_ordered > 0;
            if removed + of_ordered == 0 && !is_flushing {
                return;
            }
        }
    }

    /// Returns the time from which on [`Stores::reclaim`] has work, in milliseconds since 1970.
    pub(crate) fn reclaim_from(&self) -> Option<u64> {
        if !self.removes_keys() {
            return None;
        }
        let of_ordered = self.ordered.as_ref().and_then(Session::reclaim_from);
        [self.own_part.as_ref().and_then(|part| part.processor.reclaim_from()), of_ordered].into_iter().flatten().min()
    }

    /// Before the shard sleeps: forgets watched keys of connections that have ended, frees the memory of some expired keys,
    /// hands over the session's garbage, for which others may wait, and frees a part of it. Returns true if there may be more
    /// to free: the shard then looks for other work first.
    pub(crate) fn before_sleep(&mut self) -> bool {
        self.forget_watches();
        if self.may_walk() {
            return true;
        }
        if let Some(session) = &mut self.ordered
            && self.holds_garbage
        {
            self.holds_garbage = session.collect_part();
        }
        if !self.removes_keys() {
            return self.holds_garbage;
        }
        let is_hash_due = self.own_part.as_deref_mut().is_some_and(|ShardPart { processor, .. }| {
            processor.reclaim();
            let _ = (0..IDLE_FLUSH_STEPS).all(|_| processor.flush_step());
            processor.is_reclaim_due() || processor.is_flushing()
        });
        // A shard that has lent its store leaves all stores to the command that holds them: its reservations count on that.
        let step = self.own_part.as_ref().and_then(|_| self.ordered.as_mut().and_then(Session::reclaim));
        self.holds_garbage |= step.is_some_and(|removed| removed > 0);
        // After a step of the ordered store another one may be due. If another shard makes it, this one sleeps.
        step.is_some() || self.holds_garbage || is_hash_due
    }
}
