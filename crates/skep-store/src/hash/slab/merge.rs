//! Lazy merging of free slabs, beside the shard (KV-Direct, sections 3.3.2, 4 and 5.1.2).
//!
//! Releasing a slab touches no bitmap. Neighbours are found later, in bulk: the shard hands the short free entries of a
//! zone to the daemon, which sorts them by address, joins buddies in one sweep and hands them back. Meanwhile the shard
//! works with the other zones. It takes no lock and never waits: it only checks whether a pass has ended.
//!
//! ```text
//! shard ── Pass { zone, pool } ──▶ daemon     sort by address: 32 32 64 . 32 . 128 ...
//!       ◀─ Pass { zone, pool } ──             sweep:           \─64─/ │
//!                                                              \─128──/   32 . 128 ...
//! ```
//!
//! A store without a daemon merges in the shard itself, a zone at a time, when an allocation fails. Tests do that, so
//! that a failing run can be repeated. `search.rs` decides which zone is merged when, and by whom.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::entry::SlabEntry;
use super::pool::ZonePool;

/// Most passes that the daemon has been handed and has not handed back.
pub(super) const PASSES_MAX: usize = 4;

/// The short free entries of a zone on their way to or from the daemon.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) zone: usize,
    pub(super) pool: ZonePool,
}

/// Joins all neighbours of a zone.
pub(super) fn merge(mut pool: ZonePool) -> ZonePool {
    let mut entries: Vec<SlabEntry> = pool.drain().collect();
    entries.sort_unstable_by_key(|entry| entry.unit());
    // The joined entries lie in the front of the list, as a stack; what is read lies behind them.
    let mut joined = 0;
    for read in 0..entries.len() {
        let mut entry = entries[read];
        while joined > 0 {
            let Some(longer) = entries[joined - 1].join(entry) else { break };
            entry = longer;
            joined -= 1;
        }
        entries[joined] = entry;
        joined += 1;
    }
    for entry in &entries[..joined] {
        pool.push(*entry);
    }
    pool
}

/// A pass on its way to the daemon. Dropping it carries it out: also when the daemon goes away with passes that it
/// never began, they come back and no entry is lost.
#[derive(Debug)]
struct Handover {
    pass: Pass,
    home: Sender<Pass>,
}

impl Drop for Handover {
    fn drop(&mut self) {
        let pool = merge(std::mem::take(&mut self.pass.pool));
        // A store that is gone needs nothing back.
        let _ = self.home.send(Pass { zone: self.pass.zone, pool });
    }
}

/// The shard's end of the channels to and from the daemon.
#[derive(Debug)]
pub(super) struct Merger {
    daemon: Option<Sender<Handover>>,
    /// The channel on which passes come back: the daemon gets a copy of the sender with each.
    home: Sender<Pass>,
    merged: Receiver<Pass>,
    /// Zones of the passes that have not come back.
    away: Vec<usize>,
}

impl Default for Merger {
    fn default() -> Self {
        let (home, merged) = channel();
        Merger { daemon: None, home, merged, away: Vec::with_capacity(PASSES_MAX) }
    }
}

impl Merger {
    /// Hands a pass over to the daemon. There must be room for it.
    pub(super) fn begin(&mut self, pass: Pass) {
        debug_assert!(self.has_room() && !self.is_away(pass.zone));
        self.away.push(pass.zone);
        let handover = Handover { pass, home: self.home.clone() };
        // If the daemon is gone, the pass is carried out here, as the error is dropped.
        if self.daemon.as_ref().is_none_or(|daemon| daemon.send(handover).is_err()) {
            self.daemon = None;
        }
    }

    /// Returns a pass that has come back. Never waits.
    pub(super) fn poll(&mut self) -> Option<Pass> {
        if self.away.is_empty() {
            return None;
        }
        let pass = self.merged.try_recv().ok()?;
        self.away.retain(|zone| *zone != pass.zone);
        Some(pass)
    }

    /// Forgets the passes that have not come back. The daemon drops them.
    pub(super) fn forget(&mut self) {
        (self.home, self.merged) = channel();
        self.away.clear();
    }

    /// Returns true if the short entries of a zone are with the daemon.
    pub(super) fn is_away(&self, zone: usize) -> bool {
        self.away.contains(&zone)
    }

    /// Returns true if another pass may be handed over.
    pub(super) fn has_room(&self) -> bool {
        self.away.len() < PASSES_MAX
    }

    /// Returns true if no pass is with the daemon.
    pub(super) fn is_idle(&self) -> bool {
        self.away.is_empty()
    }

    /// Returns true if there is a daemon.
    pub(super) fn has_daemon(&self) -> bool {
        self.daemon.is_some()
    }

    /// Hands merging over to a daemon. One that there was before ends after its last pass.
    pub(super) fn daemon(&mut self) -> MergeDaemon {
        let (daemon, passes) = channel();
        self.daemon = Some(daemon);
        MergeDaemon { passes }
    }
}

/// The thread's worth of merging that a store hands out: see [`MergeDaemon::run`].
#[derive(Debug)]
pub struct MergeDaemon {
    passes: Receiver<Handover>,
}

impl MergeDaemon {
    /// Merges what the store hands over, until the store is dropped. Sleeps meanwhile.
    ///
    /// A daemon that is dropped instead hands merging back to the store. While one is neither run nor dropped, operations
    /// that need its passes are deferred again and again; all others are executed.
    pub fn run(self) {
        self.passes.iter().for_each(drop);
    }

    /// Merges what the store has handed over, and returns the number of entries in each pass.
    #[cfg(test)]
    pub(crate) fn run_waiting(&self) -> Vec<usize> {
        let waiting: Vec<Handover> = self.passes.try_iter().collect();
        waiting.iter().map(|handover| handover.pass.pool.len()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};

    fn pool(entries: &[SlabEntry]) -> ZonePool {
        let mut pool = ZonePool::default();
        for entry in entries {
            pool.push(*entry);
        }
        pool
    }

    #[test]
    fn all_of_a_stretch_becomes_one_entry() {
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(3);
        let mut entries: Vec<_> = (0..1024).map(|unit| SlabEntry::new(2048 + unit, 0)).collect();
        entries.shuffle(&mut random);
        assert_eq!(merge(pool(&entries)).drain().collect::<Vec<_>>(), [SlabEntry::new(2048, 10)]);
    }

    /// Merging neither loses nor invents a unit, and leaves no buddies apart.
    #[test]
    fn merging_agrees_with_a_bitmap() {
        for seed in 0..200 {
            let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
            let (mut bitmap, mut entries, mut unit) = (vec![false; 4096], Vec::new(), 0u32);
            while unit < 4096 {
                let doublings = random.random_range(0..6).min(unit.trailing_zeros()).min((4096 - unit).ilog2());
                if random.random_bool(0.7) {
                    entries.push(SlabEntry::new(unit, doublings));
                    bitmap[unit as usize..][..1 << doublings].fill(true);
                }
                unit += 1 << doublings;
            }
            entries.shuffle(&mut random);
            let mut merged: Vec<_> = merge(pool(&entries)).drain().collect();
            merged.sort_unstable_by_key(|entry| entry.unit());
            let mut after = vec![false; 4096];
            for entry in &merged {
                for unit in entry.unit()..entry.unit() + entry.unit_count() {
                    assert!(!std::mem::replace(&mut after[unit as usize], true), "seed {seed}");
                }
            }
            assert_eq!(after, bitmap, "seed {seed}");
            assert!(merged.windows(2).all(|pair| pair[0].join(pair[1]).is_none()), "seed {seed}");
        }
    }
}
