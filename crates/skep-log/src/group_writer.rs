//! Collects blocks into groups, and tells which of them are durable. It does no I/O.
//!
//! ```text
//!  blocks      queue, in order of arrival          at most two at a time
//!  push ────▶ [ 7 | 8 | 9 | 10 | ... ] ──next_write──▶ group ─▶ disk ──written──▶ durable
//!              └ the first blocks, up to 1 MiB ┘
//! ```
//!
//! **Numbers.** [`GroupWriter::push`] numbers the blocks in the order in which they arrive. A thread that seals a block
//! gives it to a queue under a lock, and the blocks of this queue arrive in its order; so the number is known when the
//! block is sealed.
//!
//! **Choice of blocks.** A group takes the first blocks of the queue, up to [`GROUP_SIZE`] bytes, and at least one.
//!
//! **Durable.** A group is durable when its write has ended and all groups before it are durable. Then the blocks in it
//! are. After a write has failed, the writer returns no other write, and no further block becomes durable: it is
//! unknown what the disk contains, and a flush that is repeated may succeed without having written anything.
//!
//! **Segments.** A group that does not fit the rest of its segment begins the next. Three writes are made one after
//! another, each when all before it are durable: the header of the new segment with the number of the group; the end of
//! the old segment, for which its last page is kept free; then the group. So a header proves that all groups before its
//! first one were durable, and an end proves that there is a next segment. A group that is longer than a segment makes
//! its file grow.
//!
//! A **seal** is a group without blocks. It states that the group before it is durable, which no other group does while
//! the log is idle.

use std::collections::VecDeque;
use std::io;

use crate::block::Block;
use crate::group::{self, GroupPosition};
use crate::pages::{PAGE_SIZE, Page, Pages, padded_size};
use crate::segment::{SegmentHeader, SegmentKind};

/// Bytes from which on a group takes no further block.
pub const GROUP_SIZE: usize = 1 << 20;
/// Writes that the disk has at a time.
pub const WRITES_IN_FLIGHT: usize = 2;
/// Groups that are not durable, at most. A write may end before one that began earlier; then the next one can begin.
const GROUPS_MAX: usize = 16;

/// Collects blocks into groups. Each disk has one.
#[derive(Debug)]
pub struct GroupWriter {
    queue: VecDeque<Block>,
    queue_size: usize,
    group_size: usize,
    position: GroupPosition,
    durable_group: u64,
    durable_block: u64,
    durable_floor: u64,
    current: Option<Current>,
    step: Step,
    prepared: VecDeque<SegmentHeader>,
    used: VecDeque<UsedSegment>,
    in_flight: VecDeque<InFlight>,
    next_ticket: u64,
    is_sealed: bool,
    /// The first group of a fresh log: each manifest needs at most the groups from it on.
    first_needed: u64,
    failure: Option<WriteFailure>,
    spent: Vec<Block>,
    spare_pages: Vec<Pages>,
}

/// The segment to which groups are written.
#[derive(Clone, Copy, Debug)]
struct Current {
    header: SegmentHeader,
    offset: u64,
}

/// What is written next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Group,
    /// The end of the current segment, after the header of this one.
    End(SegmentHeader),
}

/// A segment that contains groups of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedSegment {
    /// Its number.
    pub number: u64,
    /// The number of its first group.
    pub first_group: u64,
}

#[derive(Debug)]
struct InFlight {
    ticket: u64,
    is_returned: bool,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Group { number: u64, last_block: u64, floor: u64 },
    Header(SegmentHeader),
    End(SegmentHeader),
}

/// A write that is to be made. The bytes must be durable before [`GroupWriter::written`] is called with success.
#[derive(Debug)]
pub struct Write {
    /// Number of the segment.
    pub segment: u64,
    /// Offset in its file, in bytes: a multiple of 4096.
    pub offset: u64,
    ticket: u64,
    pages: Pages,
}

impl Write {
    /// Returns the bytes.
    pub fn pages(&self) -> &[Page] {
        self.pages.pages()
    }

    /// Returns the number of bytes, with the zeros that fill the last page.
    pub fn size(&self) -> u64 {
        size_of_val(self.pages()) as u64
    }
}

/// The write that failed. It ends the log.
#[derive(Debug, thiserror::Error)]
#[error("a write of the log failed at segment {segment}, offset {offset}: {error}; no later write is acknowledged")]
pub struct WriteFailure {
    /// Number of the segment.
    pub segment: u64,
    /// Offset in its file, in bytes.
    pub offset: u64,
    /// What the disk reported.
    pub error: io::Error,
}

/// Where a log is continued.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// The segment that is in use, whose header is durable and which has no groups yet. `None` after a recovery that has
    /// found no room for one: then the first segment that is prepared is this one.
    pub(crate) segment: Option<SegmentHeader>,
    /// Number of the next group.
    pub(crate) next_group: u64,
    /// The segments before it, in their order.
    pub(crate) used: Vec<UsedSegment>,
    /// Checksum of the last group.
    pub(crate) before: u32,
    /// Number of the next block. All blocks before it are durable.
    pub(crate) next_block: u64,
    /// The greatest floor of these.
    pub(crate) floor: u64,
    /// Bytes from which on a group takes no further block.
    pub(crate) group_size: usize,
    /// Segments that are prepared.
    pub(crate) prepared: VecDeque<SegmentHeader>,
}

impl GroupWriter {
    pub(crate) fn new(start: Start) -> Self {
        let Start { segment, next_group: number, used, before, next_block, floor, group_size, prepared } = start;
        let mut used = VecDeque::from(used);
        used.extend(segment.map(|segment| UsedSegment { number: segment.number, first_group: number }));
        assert!(!used.is_empty(), "a log has a segment");
        let is_fresh = segment.is_some_and(|segment| segment.kind == SegmentKind::Fresh);
        GroupWriter {
            queue: VecDeque::new(),
            queue_size: 0,
            group_size,
            position: GroupPosition {
                uid: segment.map_or(0, |segment| segment.uid),
                number,
                first_block: next_block,
                before,
            },
            durable_group: number - 1,
            durable_block: next_block - 1,
            durable_floor: floor,
            current: segment.map(|header| Current { header, offset: PAGE_SIZE as u64 }),
            step: Step::Group,
            prepared,
            first_needed: if is_fresh { number } else { 0 },
            used,
            in_flight: VecDeque::new(),
            next_ticket: 0,
            is_sealed: true,
            failure: None,
            spent: Vec::new(),
            spare_pages: Vec::new(),
        }
    }

    /// Returns true if a write was not returned yet.
    pub fn is_writing(&self) -> bool {
        self.in_flight.iter().any(|write| !write.is_returned)
    }

    /// Returns where a fresh log begins. Its groups have numbers that no other group has.
    pub(crate) fn fresh_start(&self, next_block: u64, floor: u64) -> Start {
        let prepared = self.prepared.clone();
        let segment = *prepared.front().expect("a segment was prepared");
        let first_group = self.position.number + 1;
        Start {
            segment: Some(SegmentHeader { kind: SegmentKind::Fresh, first_group, ..segment }),
            next_group: first_group,
            used: self.used.iter().copied().collect(),
            before: self.position.before,
            next_block,
            floor: floor.max(self.durable_floor),
            group_size: self.group_size,
            prepared: prepared.into_iter().skip(1).collect(),
        }
    }

    /// Returns the first group that a manifest may need.
    pub(crate) fn first_needed(&self) -> u64 {
        self.first_needed
    }

    /// Returns the segments of the fresh log that this writer has begun, if it has.
    pub fn fresh_segments(&self) -> Vec<u64> {
        let first = if self.first_needed == 0 { u64::MAX } else { self.first_needed };
        self.used.iter().filter(|segment| segment.first_group >= first).map(|segment| segment.number).collect()
    }

    /// Returns the number of segments that contain groups of the log.
    pub fn used_segment_count(&self) -> usize {
        self.used.len()
    }

    /// Forgets segments that recovery needs no more: those of an earlier fresh log that no manifest has named.
    pub fn remove_segments(&mut self, numbers: &[u64]) {
        self.used.retain(|segment| !numbers.contains(&segment.number));
    }

    /// Appends a block and returns its number.
    pub fn push(&mut self, block: Block) -> u64 {
        let number = self.next_block();
        self.queue_size += block.bytes().len();
        self.queue.push_back(block);
        number
    }

    /// Returns the number of the next block that is pushed.
    pub fn next_block(&self) -> u64 {
        self.position.first_block + self.queue.len() as u64
    }

    /// Returns a block that was copied to a group, so that its writer can reuse its memory.
    pub fn take_spent(&mut self) -> Option<Block> {
        self.spent.pop()
    }

    /// Returns true if no segment is prepared for the time when the current one is full.
    pub fn needs_segment(&self) -> bool {
        self.prepared.is_empty()
    }

    /// Adds a segment that was prepared. They are used in this order.
    pub fn add_segment(&mut self, segment: SegmentHeader) {
        self.prepared.push_back(segment);
    }

    /// Returns the next write, if there is one: blocks have arrived, fewer than two writes are in flight, and the
    /// segment has room or another is prepared. The two writes in flight may be made at the same time and in any order.
    pub fn next_write(&mut self) -> Option<Write> {
        self.write_group(false)
    }

    /// Returns the write of a seal, unless blocks are waiting or in flight or the last group is a seal. Call it when
    /// the log has been idle for some time, such as 1 ms.
    pub fn next_seal(&mut self) -> Option<Write> {
        let is_idle = self.in_flight.is_empty() && self.queue.is_empty();
        if is_idle && !self.is_sealed { self.write_group(true) } else { None }
    }

    fn write_group(&mut self, is_seal: bool) -> Option<Write> {
        let is_unwritten = |write: &&InFlight| !write.is_returned;
        let unwritten = self.in_flight.iter().filter(is_unwritten).count();
        if self.failure.is_some() || unwritten == WRITES_IN_FLIGHT || self.in_flight.len() == GROUPS_MAX {
            return None;
        }
        if self.in_flight.iter().any(|write| !matches!(write.content, Content::Group { .. })) {
            return None;
        }
        if let Step::End(next) = self.step {
            return Some(self.write_end(next));
        }
        if self.queue.is_empty() && !is_seal {
            return None;
        }
        let Some(current) = self.current else { return self.write_header() };
        let (mut count, mut blocks_size) = (0, 0);
        for block in &self.queue {
            let size = blocks_size + block.bytes().len();
            if count > 0 && size > self.group_size {
                break;
            }
            (count, blocks_size) = (count + 1, size);
        }
        let size = padded_size((group::HEADER_SIZE + blocks_size) as u64);
        let is_empty = current.offset == PAGE_SIZE as u64;
        if !is_empty && current.offset + size + PAGE_SIZE as u64 > current.header.size {
            return self.write_header();
        }
        let mut pages = self.empty_pages();
        let crc = group::encode(&mut pages, self.position, self.durable_group, self.queue.iter().take(count));
        let mut floor = 0;
        for block in self.queue.drain(..count) {
            floor = block.floor().max(floor);
            self.spent.push(block);
        }
        self.queue_size -= blocks_size;
        self.is_sealed = is_seal;
        let GroupPosition { uid, number, first_block, .. } = self.position;
        let first_block = first_block + count as u64;
        self.position = GroupPosition { uid, number: number + 1, first_block, before: crc };
        let content = Content::Group { number, last_block: first_block - 1, floor };
        self.current = Some(Current { offset: current.offset + size, ..current });
        Some(self.begin(current.header.number, current.offset, pages, content))
    }

    /// Writes the header of the next segment, when all before it is durable.
    fn write_header(&mut self) -> Option<Write> {
        if !self.in_flight.is_empty() {
            return None;
        }
        let prepared = self.prepared.pop_front()?;
        // Without a current segment, it is the one that the recovery would have begun.
        let kind = if self.current.is_some() { prepared.kind } else { SegmentKind::Recovered };
        let header = SegmentHeader { kind, first_group: self.position.number, ..prepared };
        let mut pages = self.empty_pages();
        header.encode(&mut pages);
        Some(self.begin(header.number, 0, pages, Content::Header(header)))
    }

    fn write_end(&mut self, next: SegmentHeader) -> Write {
        let current = self.current.expect("a log has a segment");
        let mut pages = self.empty_pages();
        group::encode_end(&mut pages, self.position);
        self.begin(current.header.number, current.offset, pages, Content::End(next))
    }

    fn empty_pages(&mut self) -> Pages {
        let mut pages = self.spare_pages.pop().unwrap_or_default();
        pages.clear();
        pages
    }

    fn begin(&mut self, segment: u64, offset: u64, pages: Pages, content: Content) -> Write {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.in_flight.push_back(InFlight { ticket, is_returned: false, content });
        Write { segment, offset, ticket, pages }
    }

    /// Takes the result of a write.
    pub fn written(&mut self, write: Write, result: io::Result<()>) {
        let in_flight = self.in_flight.iter_mut().find(|in_flight| in_flight.ticket == write.ticket);
        in_flight.expect("each write is returned once").is_returned = true;
        if let Err(error) = result {
            let failure = WriteFailure { segment: write.segment, offset: write.offset, error };
            self.failure.get_or_insert(failure);
        }
        if self.failure.is_some() {
            return;
        }
        self.spare_pages.push(write.pages);
        while let Some(first) = self.in_flight.pop_front_if(|first| first.is_returned) {
            match first.content {
                Content::Group { number, last_block, floor } => {
                    (self.durable_group, self.durable_block) = (number, last_block);
                    self.durable_floor = self.durable_floor.max(floor);
                }
                Content::Header(next) if self.current.is_some() => self.step = Step::End(next),
                Content::Header(next) | Content::End(next) => self.begin_segment(next),
            }
        }
    }

    /// Lets the next group be the first one of a segment, whose header is durable.
    fn begin_segment(&mut self, header: SegmentHeader) {
        self.step = Step::Group;
        self.position.uid = header.uid;
        self.current = Some(Current { header, offset: PAGE_SIZE as u64 });
        self.used.push_back(UsedSegment { number: header.number, first_group: header.first_group });
    }

    /// Returns the last durable block; 0 if there is none. All blocks before it are durable too.
    pub fn durable_block(&self) -> u64 {
        self.durable_block
    }

    /// Returns the greatest floor of the durable blocks: all effects with lower versions are durable.
    pub fn durable_floor(&self) -> u64 {
        self.durable_floor
    }

    /// Returns the last durable group. All groups before it are durable too.
    pub fn durable_group(&self) -> u64 {
        self.durable_group
    }

    /// Returns the number of the next group. Blocks that are pushed from now on are in this group or later ones.
    pub fn next_group(&self) -> u64 {
        self.position.number
    }

    /// Returns the number of the segment to which groups are written. `None` if a recovery has found no room for one, and none
    /// was begun since.
    pub fn current_segment(&self) -> Option<u64> {
        self.current.map(|current| current.header.number)
    }

    /// Returns the number of the newest segment that has groups, or is about to.
    pub fn segment(&self) -> u64 {
        self.used.back().expect("a log has a segment").number
    }

    /// Returns the write that failed, if one has. Then no block becomes durable any more.
    pub fn failure(&self) -> Option<&WriteFailure> {
        self.failure.as_ref()
    }

    /// Returns the bytes of blocks that wait for their write.
    pub fn queued_size(&self) -> usize {
        self.queue_size
    }

    /// Removes the segments that have only groups before this one, and returns the number of the first of them, until
    /// none is left. Call it after a manifest that needs only the groups from this one on is durable.
    pub fn trim(&mut self, first_group: u64) -> Option<u64> {
        let next = self.used.get(1)?;
        if next.first_group > first_group {
            return None;
        }
        self.used.pop_front().map(|segment| segment.number)
    }
}
