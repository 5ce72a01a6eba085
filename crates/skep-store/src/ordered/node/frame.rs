//! Frames: the memory of nodes and of overflow values, shared by all threads (Honeycomb, section 3.1).
//!
//! ```text
//! region   │ unused │ frame, 1 unit │ frame, 9 units        │ ...                   allocation units of 512 B
//! leaf     │ line 0: atomics │ sealed bytes │ log directory: atomics │ entries ▶ published │ unpublished │
//! interior │ line 0: atomics │ sealed bytes │ hints: atomics │ sealed bytes │ hints │ sealed bytes ...
//! ```
//!
//! Each state of a frame is a type:
//!
//! 1. [`FreeFrame`]: in use by no other part of the store.
//! 2. [`FrameBuilder`]: one thread writes it.
//! 3. [`SealedFrame`]: complete, not yet reachable.
//! 4. [`Node`]: reachable. All threads read it; the holder of its lock, [`LockedNode`], appends to it.
//! 5. [`RetiredFrame`]: unreachable for operations that begin from now on. It is free when an epoch has passed.
//!
//! Bytes that are read plainly do not change while a [`Node`] exists:
//!
//! - A node is found only by the page table and by `old`, under a [`Guard`]. Only sealed frames are put there.
//! - Sealed bytes are written only by the builder. Log entries are written beyond the published size.
//! - [`RetiredFrame`] becomes [`FreeFrame`] only in [`RetiredFrame::reuse`], whose caller has seen all operations end
//!   that were in flight when it was retired.
#![expect(unsafe_code, reason = "nodes are raw memory of which some words race; this module divides it into types")]

use std::num::NonZeroU32;
use std::ptr::NonNull;

use super::super::key_head::encoding::OUTER_BOUND_WORD_COUNT;
use super::super::lines::Lines;
use super::super::memory::frame_state::{FreeFrame, RetiredFrame, SealedFrame};
use super::super::memory::number::{FrameNumber, Lid, UNIT_512_SIZE};
use super::super::memory::page_table::PageTable;
use super::super::sync::{AtomicU32, AtomicU64, Ordering};
use super::super::version::epoch::Guard;
use super::builder::{FrameBuilder, Siblings};
use super::header::{Extent, Identity, word};
use super::hint::{HINT_SIZE, Hint};
use super::lock::State;
use crate::memory::{LINE_SIZE, Mapping, RegionError, prefetch};

/// Entries of a log block: words of its directory.
pub(crate) const LOG_COUNT_MAX: usize = 16;
/// Hints in a line.
pub(crate) const HINT_COUNT_MAX: usize = LINE_SIZE / HINT_SIZE;

/// All frames and the page table.
#[derive(Debug)]
pub(crate) struct Frames {
    region: Mapping,
    table: Mapping,
    lines: Lines,
}

impl Frames {
    /// Reserves a region of this many units, and a page table for as many LIDs. Touches no page.
    pub(crate) fn new(unit_count: u32, lines: Lines) -> Result<Self, RegionError> {
        let units = u64::from(unit_count);
        let region = Mapping::new(units * UNIT_512_SIZE as u64)?;
        let table = Mapping::new((units * size_of::<AtomicU32>() as u64).next_multiple_of(LINE_SIZE as u64))?;
        Ok(Frames { region, table, lines })
    }

    /// Touches the pages of the region, if the kernel can.
    pub(crate) fn prefault(&self) {
        self.region.populate(self.region.size());
    }

    /// Begins to write a frame.
    pub(crate) fn build(&self, frame: FreeFrame) -> FrameBuilder<'_> {
        let size = frame.units() * UNIT_512_SIZE;
        let address = address(&self.region, frame.number().byte_offset(), size);
        // SAFETY: the bytes are within the region, which the kernel has zeroed, so they are initialised. `frame` is the
        // only one of its number, and no node of it exists, so no other reference to them exists while the builder
        // lives.
        let bytes = unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), size) };
        FrameBuilder::new(bytes, frame)
    }

    /// Sets the version of a frame that is not reachable yet. The page table publishes it.
    pub(crate) fn set_version(&self, frame: &SealedFrame, version: u64) {
        self.header(frame.number())[word::VERSION].store(version, Ordering::Relaxed);
    }

    /// Sets the first frame of a node that is not reachable yet.
    pub(crate) fn publish(&self, lid: Lid, frame: &SealedFrame) {
        self.lines.before_publish();
        let (number, size) = (frame.number(), frame.size());
        // SAFETY: the bytes are the sealed frame's, initialised; no thread writes them before the page table names it.
        let bytes = || unsafe { std::slice::from_raw_parts(self.frame(number).address.as_ptr(), size) }.to_vec();
        self.lines.wrote(number.byte_offset(), bytes);
        self.page_table().replace(lid.index(), number.bits());
        self.lines.set_entry(lid.index(), number.bits());
    }

    /// Reports the read version after a writer has published its own.
    #[inline(always)]
    pub(crate) fn report_read_version(&self, version: impl FnOnce() -> u64) {
        self.lines.set_read_version(version);
    }

    /// Sets another frame for a node. The caller holds the lock of the frame before, which stays locked.
    pub(crate) fn replace(&self, before: LockedNode<'_>, frame: &SealedFrame) -> RetiredFrame {
        self.publish(before.node.lid(), frame);
        before.into_retired()
    }

    /// Returns the latest frame of a node.
    #[inline(always)]
    pub(crate) fn latest<'g>(&'g self, lid: Lid, guard: &'g Guard<'_>) -> Frame<'g> {
        let _ = guard;
        self.frame(self.latest_number(lid))
    }

    /// Returns the latest frame of a child, and repairs its hint if that is stale.
    #[inline(always)]
    pub(crate) fn latest_of<'g>(&'g self, lid: Lid, hint: Hint<'g>, guard: &'g Guard<'_>) -> Frame<'g> {
        let _ = guard;
        let number = self.latest_number(lid);
        hint.repair(number);
        self.frame(number)
    }

    /// Returns the frame that the page table names for a LID in use.
    #[inline(always)]
    pub(crate) fn latest_number(&self, lid: Lid) -> FrameNumber {
        self.lines.touch(self.region.size() + lid.index() * size_of::<AtomicU32>(), size_of::<AtomicU32>());
        self.lines.enter_node(lid.index());
        let number = self.page_table().frame(lid.index());
        FrameNumber::from_bits(NonZeroU32::new(number).expect("a LID that is known has a frame"))
    }

    /// Prefetches the page table's entry of a node.
    #[inline]
    pub(crate) fn prefetch_entry(&self, lid: Lid) {
        prefetch(self.table.base().as_ptr().wrapping_add(lid.index() * size_of::<AtomicU32>()));
    }

    /// Prefetches header and shortcut index of the frame that a hint names.
    #[inline(always)]
    pub(crate) fn prefetch_hinted(&self, hint: Hint<'_>) {
        let line = self.region.base().as_ptr().wrapping_add(hint.guess() as usize * UNIT_512_SIZE);
        prefetch(line);
        prefetch(line.wrapping_add(LINE_SIZE));
    }

    /// Returns the bytes of a part of an overflow value. The reference to it was read in a node or a part, under the
    /// guard.
    pub(crate) fn value<'g>(&'g self, lid: Lid, size: usize, guard: &'g Guard<'_>) -> &'g [u8] {
        let _ = guard;
        let number = self.latest_number(lid);
        self.lines.touch(number.byte_offset(), size);
        let address = address(&self.region, number.byte_offset(), size);
        // SAFETY: the bytes are within the region and initialised. They were written before the page table named the
        // frame, and a frame that it named is reused only after the guard's operation has ended.
        unsafe { std::slice::from_raw_parts(address.as_ptr(), size) }
    }

    /// Copies a part of an overflow value while the space is locked. So the frame is the part's latest, complete, and
    /// not free.
    pub(crate) fn copy_value(&self, from: FrameNumber, to: FreeFrame) -> SealedFrame {
        let size = to.units() * UNIT_512_SIZE;
        let address = address(&self.region, from.byte_offset(), size);
        // SAFETY: the bytes are within the region and initialised. Parts never change once the page table names them.
        let bytes = unsafe { std::slice::from_raw_parts(address.as_ptr(), size) };
        let mut builder = self.build(to);
        builder.bytes().copy_from_slice(bytes);
        builder.seal_value()
    }

    /// Returns the frame of a part of an overflow value that was moved, or that has no reference any more.
    pub(crate) fn retired_value(&self, number: FrameNumber, units: usize) -> RetiredFrame {
        RetiredFrame::new(FreeFrame::carved(number.bits(), units))
    }

    /// Returns true if a frame is complete and the latest of a LID.
    pub(crate) fn is_latest(&self, lid: Lid, number: FrameNumber) -> bool {
        self.page_table().frame(lid.index()) == number.bits()
    }

    /// Removes the frame of a LID that is not in use yet from the page table.
    pub(crate) fn clear(&self, lid: Lid) {
        self.page_table().replace(lid.index(), 0);
    }

    /// Returns the node of a frame that was its latest while the guard's operation was in flight, or of a sealed frame.
    pub(crate) fn node<'g>(&'g self, number: FrameNumber, guard: &'g Guard<'_>) -> Node<'g> {
        let _ = guard;
        self.frame(number).open()
    }

    /// Returns the node of a sealed frame that was fetched from another memory: its owner keeps the frame meanwhile.
    pub(crate) fn received<'f>(&'f self, frame: &'f SealedFrame) -> Node<'f> {
        self.frame(frame.number()).open()
    }

    #[inline(always)]
    fn frame(&self, number: FrameNumber) -> Frame<'_> {
        Frame { frames: self, address: address(&self.region, number.byte_offset(), UNIT_512_SIZE) }
    }

    fn page_table(&self) -> PageTable<'_> {
        let count = self.table.size() / size_of::<AtomicU32>();
        // SAFETY: the mapping is aligned, zeroed by the kernel, lives as long as `self`, and is only used in this way.
        PageTable::new(unsafe { std::slice::from_raw_parts(self.table.base().as_ptr().cast::<AtomicU32>(), count) })
    }

    #[inline]
    fn header(&self, number: FrameNumber) -> &[AtomicU64; 8] {
        self.frame(number).header()
    }
}

/// A frame of a node whose header has not been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'g> {
    frames: &'g Frames,
    address: NonNull<u8>,
}

impl<'g> Frame<'g> {
    /// Prefetches bytes of the frame.
    #[inline(always)]
    pub(crate) fn prefetch(self, offset: usize, size: usize) {
        let mut line = offset / LINE_SIZE * LINE_SIZE;
        self.prefetch_line(line);
        line += LINE_SIZE;
        while line < offset + size {
            self.prefetch_line(line);
            line += LINE_SIZE;
        }
    }

    /// Prefetches the first `size` bytes of the frame, and up to three lines more.
    #[inline(always)]
    pub(crate) fn prefetch_first(self, size: usize) {
        (0..size).step_by(4 * LINE_SIZE).for_each(|offset| self.prefetch_lines(offset, 4));
    }

    /// Prefetches `count` lines, beginning with that of this byte.
    #[inline(always)]
    pub(crate) fn prefetch_lines(self, offset: usize, count: usize) {
        (0..count).for_each(|line| self.prefetch_line(offset + line * LINE_SIZE));
    }

    /// Prefetches the line of this byte of the frame.
    #[inline(always)]
    pub(crate) fn prefetch_line(self, offset: usize) {
        prefetch(self.address.as_ptr().wrapping_add(offset));
    }

    /// Reads the header.
    #[inline(always)]
    pub(crate) fn open(self) -> Node<'g> {
        self.frames.lines.touch(self.byte_offset(), LINE_SIZE);
        let header = self.header();
        let state = State::load(&header[word::STATE]);
        let extent = Extent::from_word(header[word::EXTENT].load(Ordering::Relaxed));
        Node { frame: self, state, log_start: extent.log_start }
    }

    /// Returns the outer bound of an interior node whose header was read.
    #[inline]
    pub(crate) fn outer_bound_words(self) -> [u64; OUTER_BOUND_WORD_COUNT] {
        std::array::from_fn(|index| self.header()[word::OUTER_BOUND + index].load(Ordering::Relaxed))
    }

    /// Returns the offset of the frame in the region.
    #[inline(always)]
    fn byte_offset(self) -> usize {
        self.address.addr().get() - self.frames.region.base().addr().get()
    }

    #[inline(always)]
    fn header(self) -> &'g [AtomicU64; 8] {
        // SAFETY: the line is within the region, aligned. Once a frame is sealed its line 0 is used as atomics only,
        // until the frame is free again.
        unsafe { self.address.cast::<[AtomicU64; 8]>().as_ref() }
    }
}

/// A reachable node, as it was when its header was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'g> {
    frame: Frame<'g>,
    state: State,
    log_start: u16,
}

impl<'g> Node<'g> {
    /// Returns the frame.
    #[inline]
    pub(crate) fn frame(self) -> Frame<'g> {
        self.frame
    }

    #[inline]
    pub(crate) fn number(self) -> FrameNumber {
        let number = (self.frame.byte_offset() / UNIT_512_SIZE) as u32;
        FrameNumber::from_bits(NonZeroU32::new(number).expect("the first units are not used"))
    }

    #[inline(always)]
    fn header(self) -> &'g [AtomicU64; 8] {
        self.frame.header()
    }

    /// Returns lock word and log sizes as they were when the node was opened.
    #[inline]
    pub(crate) fn state(self) -> State {
        self.state
    }

    #[inline]
    fn identity(self) -> Identity {
        Identity::from_word(self.header()[word::IDENTITY].load(Ordering::Relaxed))
    }

    pub(crate) fn lid(self) -> Lid {
        self.identity().lid
    }

    /// Returns the level: 0 for a leaf.
    #[inline]
    pub(crate) fn level(self) -> u8 {
        self.identity().level
    }

    /// Returns the bytes of the frame.
    pub(crate) fn frame_size(self) -> usize {
        usize::from(self.identity().units) * UNIT_512_SIZE
    }

    /// Returns the offset of its key-head encoding.
    #[inline(always)]
    pub(crate) fn key_head_offset(self) -> u16 {
        Extent::from_word(self.header()[word::EXTENT].load(Ordering::Relaxed)).key_head_offset
    }

    /// Returns the version of the sorted block.
    #[inline]
    pub(crate) fn version(self) -> u64 {
        self.header()[word::VERSION].load(Ordering::Relaxed)
    }

    /// Returns the frame that this one replaced. Only for readers below this frame's version: for others it may already
    /// be reused.
    pub(crate) fn older(self) -> Frame<'g> {
        let old = self.older_number().expect("a reader below a node's version comes to an older frame");
        self.frame.frames.frame(old)
    }

    /// Returns the number of that frame.
    pub(crate) fn older_number(self) -> Option<FrameNumber> {
        Extent::from_word(self.header()[word::EXTENT].load(Ordering::Relaxed)).old
    }

    /// Returns the left sibling of a leaf.
    pub(crate) fn left(self) -> Option<Lid> {
        Lid::from_word(self.header()[word::LEFT].load(Ordering::Acquire))
    }

    /// Returns the right sibling of a leaf.
    #[inline]
    pub(crate) fn right(self) -> Option<Lid> {
        Lid::from_word(self.header()[word::RIGHT].load(Ordering::Acquire))
    }

    /// Returns the siblings of a leaf.
    pub(crate) fn siblings(self) -> Siblings {
        Siblings { left: self.left(), right: self.right() }
    }

    /// Prefetches the page table's entry of the right sibling.
    #[inline]
    pub(crate) fn prefetch_right_entry(self) {
        if let Some(lid) = self.right() {
            self.frame.frames.prefetch_entry(lid);
        }
    }

    /// Prefetches the first lines of the right sibling.
    #[inline]
    pub(crate) fn prefetch_right(self) {
        if let Some(lid) = self.right() {
            let frames = self.frame.frames;
            let number = NonZeroU32::new(frames.page_table().frame(lid.index())).map(FrameNumber::from_bits);
            if let Some(number) = number {
                frames.frame(number).prefetch(0, 2 * LINE_SIZE);
            }
        }
    }

    /// Returns one byte for each log entry. Bytes of entries published after the node was opened are arbitrary.
    #[inline]
    pub(crate) fn log_fingerprints(self) -> [u8; LOG_COUNT_MAX] {
        let word = |half: usize| u128::from(self.header()[word::FINGERPRINTS + half].load(Ordering::Relaxed));
        (word(0) | word(1) << 64).to_le_bytes()
    }

    /// Returns the end of the sorted block.
    #[inline]
    pub(crate) fn log_start(self) -> usize {
        usize::from(self.log_start)
    }

    /// Returns bytes between line 0 and the log block.
    #[inline(always)]
    pub(crate) fn read(self, offset: usize, size: usize) -> &'g [u8] {
        assert!(offset >= LINE_SIZE && offset + size <= self.log_start(), "sealed bytes are within the node");
        self.frame.frames.lines.touch(self.frame.byte_offset() + offset, size);
        // SAFETY: the bytes are the frame's, which has at least `log_start` of them. They were written before the frame
        // was sealed, and the page table published them; no thread writes them while a `Node` of the frame exists.
        unsafe { std::slice::from_raw_parts(self.frame.address.as_ptr().add(offset), size) }
    }

    /// Returns the hints of an interior node in the line that begins at `start`, and the next line.
    #[inline(always)]
    pub(crate) fn hints_and_line(self, start: usize) -> (&'g [AtomicU32; HINT_COUNT_MAX], &'g [u8; LINE_SIZE]) {
        assert!(start >= LINE_SIZE && start.is_multiple_of(LINE_SIZE), "a line of the node");
        let line = self.read(start + LINE_SIZE, LINE_SIZE).first_chunk().expect("a line was read");
        self.frame.frames.lines.touch(self.frame.byte_offset() + start, LINE_SIZE);
        // SAFETY: the line is within the node's frame, aligned, since the next one is. Callers use it for lines that the
        // builder has left to hints, which are used as atomics only once the frame is sealed.
        (unsafe { self.frame.address.add(start).cast::<[AtomicU32; HINT_COUNT_MAX]>().as_ref() }, line)
    }

    /// The directory of the log block.
    #[inline]
    fn log_directory(self) -> &'g [AtomicU32; LOG_COUNT_MAX] {
        // SAFETY: the line after the sorted block of a leaf is within the frame, aligned, and is used as atomics once the
        // frame is sealed; plainly only by reads of the lock holder, who alone writes it. Callers use it for leaves only,
        // whose builder has made room for it.
        unsafe { self.frame.address.add(self.log_start()).cast::<[AtomicU32; LOG_COUNT_MAX]>().as_ref() }
    }

    /// Returns the directory words of the published log entries, the oldest first.
    #[inline(always)]
    pub(crate) fn log_words(self) -> impl Iterator<Item = u32> {
        let count = self.state.log_count();
        if count > 0 {
            let start = self.frame.byte_offset() + self.log_start();
            self.frame.frames.lines.touch(start, count * size_of::<u32>());
        }
        self.log_directory()[..count].iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns the directory word of a log entry.
    #[inline]
    pub(crate) fn log_word(self, entry: usize) -> u32 {
        assert!(entry < self.state.log_count(), "the entry is published");
        let start = self.frame.byte_offset() + self.log_start();
        self.frame.frames.lines.touch(start + entry * size_of::<u32>(), size_of::<u32>());
        self.log_directory()[entry].load(Ordering::Relaxed)
    }

    /// Returns bytes of log entries from this offset on, counted from the first entry.
    #[inline]
    pub(crate) fn log_bytes(self, offset: usize, size: usize) -> &'g [u8] {
        assert!(offset + size <= self.state.log_size(), "log bytes are published");
        let start = self.log_start() + LINE_SIZE + offset;
        self.frame.frames.lines.touch(self.frame.byte_offset() + start, size);
        // SAFETY: the published bytes of the log are within the frame; `state` was read with acquire, so they can be
        // read, and writers write beyond them only.
        unsafe { std::slice::from_raw_parts(self.frame.address.as_ptr().add(start), size) }
    }

    /// Reports the header after a change.
    #[inline(always)]
    fn report_header(self) {
        let words = || self.header().iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        self.frame.frames.lines.wrote(self.frame.byte_offset(), words);
    }

    /// Locks the node unless it has changed since it was opened.
    pub(crate) fn try_lock(self) -> Option<LockedNode<'g>> {
        // Not `then_some`: a guard that is made too early unlocks another writer's lock when it is dropped.
        State::try_lock(&self.header()[word::STATE], self.state).then(|| LockedNode { node: self })
    }
}

/// A node whose lock the thread holds. Dropping it unlocks the node unchanged.
#[derive(Debug)]
pub(crate) struct LockedNode<'g> {
    node: Node<'g>,
}

impl<'g> LockedNode<'g> {
    /// Returns the node, which only the holder of this lock can change.
    pub(crate) fn node(&self) -> Node<'g> {
        self.node
    }

    /// Returns all directory words of a leaf. Those of entries that are not published are arbitrary.
    #[inline(always)]
    pub(crate) fn directory_words(&self) -> &[u32; LOG_COUNT_MAX] {
        let start = self.node.frame.byte_offset() + self.node.log_start();
        self.node.frame.frames.lines.touch(start, self.node.state.log_count() * size_of::<u32>());
        // SAFETY: the line after the sorted block of a leaf is within the frame, aligned and initialised. Only the
        // holder of the lock writes it, in a function that takes `self`. Other threads only read it.
        unsafe { self.node.frame.address.add(self.node.log_start()).cast::<[u32; LOG_COUNT_MAX]>().as_ref() }
    }

    /// Returns the bytes after the published entries of a leaf, to the end of the frame.
    pub(crate) fn log_room(&mut self) -> &mut [u8] {
        let start = self.node.log_start() + LINE_SIZE + self.node.state.log_size();
        let size = self.node.frame_size() - start;
        // SAFETY: the bytes are within the frame. Readers stay below the published size, the lock excludes other
        // writers, and `self` is borrowed while the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.node.frame.address.as_ptr().add(start), size) }
    }

    /// Writes a copy of the node: the same bytes and the same log, unlocked.
    pub(crate) fn copy_to(&self, builder: FrameBuilder<'_>) -> SealedFrame {
        builder.seal_copy(self.words(), self.node.state)
    }

    /// Returns the words of the frame. Only hints can change while the lock is held.
    fn words(&self) -> &[AtomicU32] {
        let count = self.node.frame_size() / size_of::<AtomicU32>();
        // SAFETY: the words are within the frame, aligned. While the lock is held, all other threads only read them,
        // except hints, which they write as atomics of this size.
        unsafe { std::slice::from_raw_parts(self.node.frame.address.cast::<AtomicU32>().as_ptr(), count) }
    }

    /// Publishes an entry of `size` bytes that was written to [`LockedNode::log_room`], and unlocks the node.
    pub(crate) fn publish_entry(self, size: usize, directory_word: u32, fingerprint: u8) {
        let (header, state) = (self.node.header(), self.node.state);
        let entry = state.log_count();
        self.node.log_directory()[entry].store(directory_word, Ordering::Relaxed);
        let fingerprints = &header[word::FINGERPRINTS + entry / 8];
        let shift = 8 * (entry % 8);
        let others = fingerprints.load(Ordering::Relaxed) & !(0xff << shift);
        fingerprints.store(others | u64::from(fingerprint) << shift, Ordering::Relaxed);
        self.report_entry(size, directory_word);
        let node = self.node;
        std::mem::forget(self);
        State::publish(&header[word::STATE], state, state.log_size() + size, entry + 1);
        node.report_header();
    }

    /// Reports an entry that was written and not published.
    #[inline(always)]
    fn report_entry(&self, size: usize, directory_word: u32) {
        let Node { frame, state, .. } = self.node;
        let (directory, lines) = (frame.byte_offset() + self.node.log_start(), &frame.frames.lines);
        let start = self.node.log_start() + LINE_SIZE + state.log_size();
        // SAFETY: the bytes are within the frame. The lock excludes other writers.
        let bytes = || unsafe { std::slice::from_raw_parts(frame.address.as_ptr().add(start), size) }.to_vec();
        lines.wrote(frame.byte_offset() + start, bytes);
        let word = || directory_word.to_ne_bytes().to_vec();
        lines.wrote(directory + state.log_count() * size_of::<u32>(), word);
    }

    /// Links the leaf to another left sibling.
    pub(crate) fn set_left(&self, left: Option<Lid>) {
        self.node.header()[word::LEFT].store(Lid::to_word(left), Ordering::Release);
        self.node.report_header();
    }

    /// Links the leaf to another right sibling.
    pub(crate) fn set_right(&self, right: Option<Lid>) {
        self.node.header()[word::RIGHT].store(Lid::to_word(right), Ordering::Release);
        self.node.report_header();
    }

    /// Retires the frame, which stays locked for ever.
    pub(crate) fn into_retired(self) -> RetiredFrame {
        let frame = FreeFrame::carved(self.node.number().bits(), usize::from(self.node.identity().units));
        std::mem::forget(self);
        RetiredFrame::new(frame)
    }
}

impl Drop for LockedNode<'_> {
    fn drop(&mut self) {
        State::unlock(&self.node.header()[word::STATE], self.node.state);
    }
}

/// Returns the address of bytes of a mapping.
#[inline(always)]
fn address(mapping: &Mapping, offset: usize, size: usize) -> NonNull<u8> {
    assert!(offset + size <= mapping.size(), "a frame is within the region");
    // SAFETY: the offset was checked against the mapping's size.
    unsafe { mapping.base().add(offset) }
}

// SAFETY: a frame is the address of memory; the types above state how threads share it.
unsafe impl Send for Frame<'_> {}
// SAFETY: as above.
unsafe impl Sync for Frame<'_> {}
