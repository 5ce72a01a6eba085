//! The tree: the state that all sessions share (Honeycomb, sections 3.1 and 3.2).

use std::time::Duration;

use super::key_head::encoding::Encoding;
use super::leaf::build::LeafPlan;
use super::lines::Lines;
use super::memory::frame_state::FreeFrame;
use super::memory::number::{FrameNumber, Lid};
use super::node::builder::Siblings;
use super::node::frame::{Frames, Node};
use super::node::log::LogBlock;
use super::space::{Claim, Owner, Space, SpaceStatistics};
use super::sync::{AtomicU32, MutexGuard, Ordering};
use super::version::clock::{Clock, Snapshot};
use super::version::epoch::{Epochs, Guard};
use super::version::expiries::Expiries;
use super::version::floors::Floors;
use super::version::lease::{LEASE_COUNT_MAX, LEASE_TIME, LeaseStatistics, Leases};
use super::version::reclaim::Reclaimer;
use super::version::versions::Versions;
use super::version::window::Window;
use crate::memory::RegionError;

/// Most sessions at a time.
pub const SESSION_COUNT_MAX: usize = 128;
/// Most writes between allocating a version and being readable.
const WRITES_IN_FLIGHT_MAX: usize = 1024;
/// One in this many bytes of the region may be garbage that leases pin.
const GARBAGE_PART: u64 = 8;

/// The settings of an ordered store.
#[derive(Clone, Copy, Debug)]
pub struct OrderedSettings {
    /// Bytes of its region. The page table takes four more bytes for each node.
    pub memory: u64,
    /// The size of a leaf's log. A smaller log makes reads faster and writes slower.
    pub log_block: LogBlock,
    /// True for versions, which make scans and batches snapshots. Without versions writers do not share two words.
    /// Single gets, puts and deletes are linearizable as before, but a scan or a batch shows no single moment: each
    /// leaf is read as it was at some moment of the scan. Keys come in order, each at most once. A pair that existed
    /// during the whole scan is shown; a pair that never existed is not. Of two writes to different leaves, a scan may
    /// show only the later one. Leases are refused as expired.
    pub mvcc: bool,
    /// The time for which a lease is kept without being read.
    pub lease_time: Duration,
    /// A secret that the numbers of leases are made from, so that they cannot be guessed.
    pub lease_seed: u64,
}

impl OrderedSettings {
    /// Returns the paper's settings, with a region of this size.
    pub fn new(memory: u64) -> Self {
        OrderedSettings { memory, log_block: LogBlock::default(), mvcc: true, lease_time: LEASE_TIME, lease_seed: 0 }
    }
}

/// An ordered store, shared by reference. Each thread uses it through a [`Session`](super::Session).
#[derive(Debug)]
pub struct OrderedStore {
    pub(crate) frames: Frames,
    pub(crate) log_block: LogBlock,
    pub(crate) versions: Versions,
    pub(crate) clock: Clock,
    pub(crate) expiries: Expiries,
    pub(crate) floors: Floors,
    pub(crate) reclaimer: Reclaimer,
    pressure: Pressure,
}

/// Statistics of an ordered store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderedStatistics {
    /// Frames and LIDs.
    pub space: SpaceStatistics,
    /// Bytes that wait for operations in flight to end, once their writers have handed them over.
    pub garbage_bytes: u64,
    /// Keys with an expiry, also those that have expired and whose memory is not free yet.
    pub expiring: u64,
    /// Levels of the tree, leaves included.
    pub height: u32,
    /// Leases of scans.
    pub leases: LeaseStatistics,
}

/// The state of the space when a frame was last allocated, for threads without its lock. On a line of its own: every
/// write reads it, and the locks next to it change.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Pressure {
    is_scarce: AtomicU32,
    has_values: AtomicU32,
}

impl Pressure {
    fn note(&self, space: &Space) {
        // It seldom changes, so the line stays in the caches of all cores.
        for (word, now) in [(&self.is_scarce, space.is_scarce()), (&self.has_values, space.value_part_count() > 0)] {
            if word.load(Ordering::Relaxed) != u32::from(now) {
                word.store(u32::from(now), Ordering::Relaxed);
            }
        }
    }
}

impl OrderedStore {
    /// Creates an empty store in a region of its own, reserved but not touched.
    pub fn new(settings: &OrderedSettings) -> Result<Self, RegionError> {
        Self::with_lines(settings, Lines::none())
    }

    /// Creates an empty store that reports its reads to `lines`.
    pub(crate) fn with_lines(settings: &OrderedSettings, lines: Lines) -> Result<Self, RegionError> {
        let unit_count = Space::unit_count(settings.memory)?;
        let frames = Frames::new(unit_count, lines)?;
        let mut space = Space::new(unit_count);
        let plan = LeafPlan::of_pairs(Vec::new(), settings.log_block).expect("no pairs fit a leaf");
        let frame = space.allocate(plan.units(), Claim::Growth).expect("a region has room for a leaf");
        space.give(frame.number(), Owner::Node(Lid::ROOT));
        let root = plan.build(frames.build(frame), Lid::ROOT, Encoding::between(None, None), Siblings::default(), None);
        frames.publish(Lid::ROOT, &root);
        Ok(OrderedStore {
            frames,
            log_block: settings.log_block,
            versions: if settings.mvcc { Versions::new(WRITES_IN_FLIGHT_MAX) } else { Versions::off() },
            clock: Clock::default(),
            expiries: Expiries::new(),
            floors: Floors::new(SESSION_COUNT_MAX),
            reclaimer: Reclaimer::new(
                Epochs::new(SESSION_COUNT_MAX, LEASE_COUNT_MAX),
                Leases::new(settings.lease_time, settings.lease_seed),
                space,
                settings.memory / GARBAGE_PART,
            ),
            pressure: Pressure::default(),
        })
    }

    /// Touches every page of its region at once, if the kernel can (Linux 5.14 and newer). Otherwise pages are touched
    /// as it fills.
    pub fn prefault(&self) {
        self.frames.prefault();
    }

    /// Sets the time for expiries, in milliseconds since 1970, for all sessions. It does not go back.
    pub fn set_now(&self, now: u64) {
        self.clock.advance_to(now);
    }

    /// Returns a version that is not below any that operations have read or written until now.
    pub fn read_version(&self) -> u64 {
        self.versions.read()
    }

    /// Publishes the version of a write.
    #[inline(always)]
    pub(crate) fn publish_version(&self, version: u64) {
        self.versions.publish(version);
        self.frames.report_read_version(|| self.versions.read());
    }

    /// Returns the newest version that a write was given.
    pub fn newest_version(&self) -> u64 {
        self.versions.newest()
    }

    /// Makes all later versions greater than this one. A store that continues a log begins above all versions of that log.
    pub fn begin_versions_after(&mut self, version: u64) {
        self.versions.begin_after(version);
    }

    /// Returns the number of pairs, with those whose keys have expired and whose memory is not free yet. It is exact while
    /// there are no writers.
    pub fn pair_count(&self) -> u64 {
        self.reclaimer.epochs.pair_count()
    }

    /// Returns the number of keys with an expiry, as [`OrderedStore::pair_count`] counts keys.
    pub fn expiring_count(&self) -> u64 {
        self.reclaimer.epochs.expiring_count()
    }

    /// Ends all leases of an owner, such as a connection that was closed.
    pub fn end_leases_of(&self, owner: u64) {
        self.reclaimer.leases.end_of_owner(&self.reclaimer.epochs, owner);
    }

    /// Admits an accelerator that reads the store's memory by itself, until the window is dropped. Returns `None` if there is
    /// one.
    pub fn open_window(&self) -> Option<Window<'_>> {
        Window::open(&self.reclaimer.epochs)
    }

    /// Returns statistics of the store. They are not collected at one moment.
    pub fn statistics(&self) -> OrderedStatistics {
        let height = self.height().unwrap_or(0);
        OrderedStatistics {
            space: self.reclaimer.space_statistics(),
            garbage_bytes: self.reclaimer.garbage_bytes(),
            expiring: self.expiring_count(),
            height,
            leases: self.reclaimer.leases.statistics(),
        }
    }

    /// Returns the levels of the tree, unless there are as many sessions as there may be.
    pub(super) fn height(&self) -> Option<u32> {
        let mut participant = self.reclaimer.epochs.join()?;
        let guard = participant.enter();
        Some(u32::from(self.latest(Lid::ROOT, &guard).level()) + 1)
    }

    /// Returns the newest state that can be read.
    #[inline]
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.clock.snapshot(&self.versions)
    }

    pub(crate) fn space(&self) -> MutexGuard<'_, Space> {
        self.reclaimer.space()
    }

    /// Allocates a frame that replaces that of a node, which is locked.
    pub(crate) fn allocate_for(&self, node: Node<'_>, units: usize, claim: Claim) -> Option<FreeFrame> {
        let mut space = self.space();
        let frame = space.allocate(units, claim);
        if let Some(frame) = &frame {
            space.give(frame.number(), Owner::Node(node.lid()));
            space.retire(node.number());
        }
        self.pressure.note(&space);
        frame
    }

    /// Allocates frames of these sizes for nodes, which replace others that are locked. Allocates all or none.
    pub(crate) fn allocate_nodes(
        &self,
        wanted: &[(Lid, usize)],
        before: &[FrameNumber],
        claim: Claim,
    ) -> Option<Vec<FreeFrame>> {
        let mut space = self.space();
        let mut frames = Vec::with_capacity(wanted.len());
        for (_, units) in wanted {
            match space.allocate(*units, claim) {
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

    /// Allocates frames of these sizes and LIDs for the parts of a value, all or none.
    pub(crate) fn allocate_value(&self, units: &[usize], claim: Claim) -> Option<Vec<(Lid, FreeFrame)>> {
        let mut space = self.space();
        let parts = space.allocate_value(units, claim);
        self.pressure.note(&space);
        parts
    }

    /// Returns true if memory was scarce when a frame was last allocated.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        self.pressure.is_scarce.load(Ordering::Relaxed) != 0
    }

    /// Returns true if there was an overflow value when a frame was last allocated.
    #[inline]
    pub(crate) fn has_values(&self) -> bool {
        self.pressure.has_values.load(Ordering::Relaxed) != 0
    }

    /// Returns the newest state of a node.
    #[inline]
    pub(crate) fn latest<'g>(&'g self, lid: Lid, guard: &'g Guard<'_>) -> Node<'g> {
        self.frames.latest(lid, guard).open()
    }
}
