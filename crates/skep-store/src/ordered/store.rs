//! The tree: what all sessions share, and how a node is found in it (Honeycomb, sections 3.1 to 3.3).

use std::time::Duration;

use super::key_head::encoding::Scale;
use super::leaf::build::LeafPlan;
use super::memory::frame_state::FreeFrame;
use super::memory::number::{FrameNumber, Lid};
use super::node::frame::{Frames, Node};
use super::node::log::LogBlock;
use super::space::{Claim, Owner, Space, SpaceStatistics};
use super::sync::{AtomicU32, MutexGuard, Ordering};
use super::trace::{Trace, Untraced};
use super::version::epoch::{Epochs, Guard};
use super::version::lease::{LEASE_COUNT_MAX, LEASE_TIME, LeaseStatistics, Leases};
use super::version::reclaim::Reclaimer;
use super::version::versions::Versions;
use crate::memory::RegionError;

/// Most sessions at a time.
pub const SESSION_COUNT_MAX: usize = 128;
/// Most writes between taking a version and being readable.
const WRITES_IN_FLIGHT_MAX: usize = 1024;
/// The part of the region that garbage may take while leases hold it.
const GARBAGE_PART: u64 = 8;

/// How an ordered store is set up.
#[derive(Clone, Copy, Debug)]
pub struct OrderedSettings {
    /// Bytes of its region. The page table comes on top: four bytes for each node.
    pub memory: u64,
    /// When a leaf's log is merged: less of it makes reads faster and writes slower.
    pub log_block: LogBlock,
    /// Whether there are versions, which make scans and batches snapshots. Without them writers do not meet in two words
    /// that all share, and every single get, put and delete is linearizable as before. But a scan or a batch is none of
    /// one moment: each leaf is read as it was at some moment while the scan ran. Keys still come in order and each at most
    /// once, a pair that was there all the while is shown, and a pair that was never there is not; of two writes to different
    /// leaves, a scan may show the later without the earlier. Leases are refused as expired.
    pub mvcc: bool,
    /// How long a lease is kept without being read.
    pub lease_time: Duration,
    /// A secret that the numbers of leases are made of. Who does not know it cannot guess them.
    pub lease_seed: u64,
}

impl OrderedSettings {
    /// The paper's settings, with a region of this size.
    pub fn new(memory: u64) -> Self {
        OrderedSettings { memory, log_block: LogBlock::default(), mvcc: true, lease_time: LEASE_TIME, lease_seed: 0 }
    }
}

/// An ordered store, to be shared by reference. Threads work on it through [`Session`](super::Session)s.
#[derive(Debug)]
pub struct OrderedStore<T: Trace = Untraced> {
    pub(crate) frames: Frames<T>,
    pub(crate) log_block: LogBlock,
    pub(crate) versions: Versions,
    pub(crate) reclaimer: Reclaimer,
    pressure: Pressure,
}

/// Figures of an ordered store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderedStatistics {
    /// What frames and LIDs take.
    pub space: SpaceStatistics,
    /// Bytes that wait for operations under way to end, as far as their writers have handed them over.
    pub garbage_bytes: u64,
    /// Levels of the tree, leaves included.
    pub height: u32,
    /// Leases of scans.
    pub leases: LeaseStatistics,
}

/// How the space was when a frame was last taken, for those who do not have its lock. On a line of its own: every write reads
/// it, and the locks beside it change.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Pressure {
    is_scarce: AtomicU32,
    has_values: AtomicU32,
}

impl Pressure {
    fn note(&self, space: &Space) {
        // Most of the time it stays as it is, and the line stays in the caches of all.
        for (word, now) in [(&self.is_scarce, space.is_scarce()), (&self.has_values, space.has_values())] {
            if word.load(Ordering::Relaxed) != u32::from(now) {
                word.store(u32::from(now), Ordering::Relaxed);
            }
        }
    }
}

impl OrderedStore {
    /// An empty store in a region of its own, reserved but not touched.
    pub fn new(settings: &OrderedSettings) -> Result<Self, RegionError> {
        Self::with_trace(settings, Untraced)
    }
}

impl<T: Trace> OrderedStore<T> {
    /// An empty store that tells what it reads.
    pub fn with_trace(settings: &OrderedSettings, trace: T) -> Result<Self, RegionError> {
        let granule_count = Space::granule_count(settings.memory)?;
        let frames = Frames::new(granule_count, trace)?;
        let mut space = Space::new(granule_count);
        let plan = LeafPlan::of_pairs(Vec::new(), settings.log_block).expect("no pairs fit a leaf");
        let frame = space.allocate(plan.granules(), Claim::Growth).expect("a region has room for a leaf");
        space.give(frame.number(), Owner::Node(Lid::ROOT));
        let root = plan.build(frames.build(frame), Lid::ROOT, Scale::between(None, None), (None, None), None);
        frames.publish(Lid::ROOT, &root);
        Ok(OrderedStore {
            frames,
            log_block: settings.log_block,
            versions: if settings.mvcc { Versions::new(WRITES_IN_FLIGHT_MAX) } else { Versions::off() },
            reclaimer: Reclaimer::new(
                Epochs::new(SESSION_COUNT_MAX, LEASE_COUNT_MAX),
                Leases::new(settings.lease_time, settings.lease_seed),
                space,
                settings.memory / GARBAGE_PART,
            ),
            pressure: Pressure::default(),
        })
    }

    /// Touches every page of its region at once, if the kernel can (Linux 5.14 and newer); else they are touched as it
    /// fills.
    pub fn prefault(&self) {
        self.frames.prefault();
    }

    /// Who is told of what is read.
    pub fn trace(&self) -> &T {
        &self.frames.trace
    }

    /// Number of pairs: exact while nobody writes.
    pub fn pair_count(&self) -> u64 {
        self.reclaimer.epochs.pair_count()
    }

    /// Ends all leases of an owner, such as a connection that was closed.
    pub fn end_leases_of(&self, owner: u64) {
        self.reclaimer.leases.end_of_owner(&self.reclaimer.epochs, owner);
    }

    /// Returns figures of the store. Each is that of a moment while they are collected.
    pub fn statistics(&self) -> OrderedStatistics {
        let height = self.reclaimer.epochs.join().map_or(0, |mut participant| {
            let guard = participant.enter();
            u32::from(self.latest(Lid::ROOT, &guard).level()) + 1
        });
        OrderedStatistics {
            space: self.reclaimer.space_statistics(),
            garbage_bytes: self.reclaimer.garbage_bytes(),
            height,
            leases: self.reclaimer.leases.statistics(),
        }
    }

    pub(crate) fn space(&self) -> MutexGuard<'_, Space> {
        self.reclaimer.space()
    }

    /// A frame in the place of that of a node, which is locked.
    pub(crate) fn allocate_for(&self, node: Node<'_, T>, granules: usize, claim: Claim) -> Option<FreeFrame> {
        let mut space = self.space();
        let frame = space.allocate(granules, claim);
        if let Some(frame) = &frame {
            space.give(frame.number(), Owner::Node(node.lid()));
            space.retire(node.number());
        }
        self.pressure.note(&space);
        frame
    }

    /// Frames of these sizes for nodes, in the place of others, which are locked. Or none at all.
    pub(crate) fn allocate_nodes(
        &self,
        wanted: &[(Lid, usize)],
        before: &[FrameNumber],
        claim: Claim,
    ) -> Option<Vec<FreeFrame>> {
        let mut space = self.space();
        let mut frames = Vec::with_capacity(wanted.len());
        for (_, granules) in wanted {
            match space.allocate(*granules, claim) {
                Some(frame) => frames.push(frame),
                None => break,
            }
        }
        self.pressure.note(&space);
        if frames.len() < wanted.len() {
            frames.into_iter().for_each(|frame| space.free(frame));
            return None;
        }
        for (frame, (lid, _)) in frames.iter().zip(wanted) {
            space.give(frame.number(), Owner::Node(*lid));
        }
        before.iter().for_each(|number| space.retire(*number));
        Some(frames)
    }

    /// Frames of these sizes and LIDs for the parts of a value, or none at all.
    pub(crate) fn allocate_value(&self, granules: &[usize], claim: Claim) -> Option<Vec<(Lid, FreeFrame)>> {
        let mut space = self.space();
        let parts = space.allocate_value(granules, claim);
        self.pressure.note(&space);
        parts
    }

    /// Whether little was free when a frame was last taken.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        self.pressure.is_scarce.load(Ordering::Relaxed) != 0
    }

    /// Whether any value had frames of its own when a frame was last taken.
    #[inline]
    pub(crate) fn has_values(&self) -> bool {
        self.pressure.has_values.load(Ordering::Relaxed) != 0
    }

    /// The newest state of a node.
    #[inline]
    pub(crate) fn latest<'g>(&'g self, lid: Lid, guard: &'g Guard<'_>) -> Node<'g, T> {
        self.frames.latest(lid, guard).open()
    }
}
