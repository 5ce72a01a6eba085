//! Lazy merging of free slabs, beside the shard (KV-Direct, sections 3.3.2, 4 and 5.1.2).
//!
//! Releasing a slab touches no bitmap. Neighbours are found later, in bulk: the shard hands all free entries of a zone
//! to the daemon, which sorts them by address, joins buddies in one sweep and hands them back. Meanwhile the shard
//! works with the other zones; it never waits for a lock, it only looks whether a pass has ended.
//!
//! ```text
//! shard ── Pass { zone, pool } ──▶ daemon     sort by address: 32 32 64 . 32 . 128 ...
//!       ◀─ Pass { zone, pool } ──             sweep:           \─64─/ │
//!                                                              \─128──/   32 . 128 ...
//! ```
//!
//! A store whose owner starts no daemon merges in the shard itself, a zone at a time, when an allocation fails. Tests
//! do that, so that a failing run can be repeated.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use super::entry::SlabEntry;
use super::pool::ZonePool;

/// The free entries of a zone on their way to or from the daemon.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) zone: usize,
    pub(super) pool: ZonePool,
}

/// Joins all neighbours of a zone.
pub(super) fn merge(mut pool: ZonePool) -> ZonePool {
    let mut entries: Vec<SlabEntry> = pool.drain().collect();
    entries.sort_unstable_by_key(|entry| entry.grain());
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

/// A pass on its way to the daemon. Whoever drops it carries it out: also when the daemon goes away with passes that it
/// never began, no entry is lost and the shard does not wait in vain.
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

/// Who merges: a daemon if there is one, else the shard itself, at once.
#[derive(Debug, Default)]
pub(super) struct Merger {
    daemon: Option<Sender<Handover>>,
    /// Where the pass that is under way will arrive.
    merged: Option<Receiver<Pass>>,
}

impl Merger {
    /// Begins a pass over a zone. None may be under way.
    pub(super) fn begin(&mut self, pass: Pass) {
        debug_assert!(self.merged.is_none());
        let (home, merged) = channel();
        self.merged = Some(merged);
        let handover = Handover { pass, home };
        let refused = match &self.daemon {
            Some(daemon) => daemon.send(handover).is_err(),
            None => {
                drop(handover);
                false
            }
        };
        if refused {
            // The daemon is gone: its owner stopped it. The pass was carried out here.
            self.daemon = None;
        }
    }

    /// A pass that has ended. Never waits.
    pub(super) fn poll(&mut self) -> Option<Pass> {
        match self.merged.as_ref()?.try_recv() {
            Err(TryRecvError::Empty) => None,
            ended => {
                self.merged = None;
                ended.ok()
            }
        }
    }

    /// Whether a pass has begun and its end was not yet seen.
    pub(super) fn is_under_way(&self) -> bool {
        self.merged.is_some()
    }

    /// Whether there is a daemon.
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
    /// Merges whatever the store hands over, until the store is dropped. Sleeps meanwhile.
    ///
    /// A daemon that is dropped instead hands merging back to the store. One that is neither run nor dropped lets an
    /// allocation wait for ever.
    pub fn run(self) {
        self.passes.iter().for_each(drop);
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
        let mut entries: Vec<_> = (0..1024).map(|grain| SlabEntry::new(2048 + grain, 0)).collect();
        entries.shuffle(&mut random);
        assert_eq!(merge(pool(&entries)).drain().collect::<Vec<_>>(), [SlabEntry::new(2048, 10)]);
    }

    /// Merging neither loses nor invents a grain, and leaves no buddies apart.
    #[test]
    fn merging_agrees_with_a_bitmap() {
        for seed in 0..200 {
            let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
            let (mut bitmap, mut entries, mut grain) = (vec![false; 4096], Vec::new(), 0u32);
            while grain < 4096 {
                let doublings = random.random_range(0..6).min(grain.trailing_zeros()).min((4096 - grain).ilog2());
                if random.random_bool(0.7) {
                    entries.push(SlabEntry::new(grain, doublings));
                    bitmap[grain as usize..][..1 << doublings].fill(true);
                }
                grain += 1 << doublings;
            }
            entries.shuffle(&mut random);
            let mut merged: Vec<_> = merge(pool(&entries)).drain().collect();
            merged.sort_unstable_by_key(|entry| entry.grain());
            let mut after = vec![false; 4096];
            for entry in &merged {
                for grain in entry.grain()..entry.grain() + entry.grain_count() {
                    assert!(!std::mem::replace(&mut after[grain as usize], true), "seed {seed}");
                }
            }
            assert_eq!(after, bitmap, "seed {seed}");
            assert!(merged.windows(2).all(|pair| pair[0].join(pair[1]).is_none()), "seed {seed}");
        }
    }
}
