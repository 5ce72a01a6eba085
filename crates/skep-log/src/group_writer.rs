//! Collects the blocks of all shards that share a disk into groups, and tells which of them are durable. It does no
//! I/O.
//!
//! ```text
//!  blocks      queue, in order of arrival                     at most two at a time
//!  push ────▶ [ b | b | b | part of 7 | b | ... ] ──next_write──▶ group ─▶ disk ──written──▶ durable
//!                        └ window: the first blocks of about 1 MiB ┘
//! ```
//!
//! **Choice of blocks.** A group takes the first blocks of the queue, up to [`GROUP_SIZE`] bytes. The blocks of a shard
//! are taken in their order. If a part of a transaction is outside this window, or has not arrived, then no shard takes
//! its part or any block after it. This may leave out parts of other transactions, so the step is repeated until
//! nothing changes. If nothing is left, the window is doubled. So all parts of a transaction are in one group, which
//! may be longer.
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

use std::collections::{HashMap, VecDeque};
use std::io;

use crate::block::Block;
use crate::group::{self, GroupPosition};
use crate::pages::{PAGE_SIZE, Page, Pages, padded_size};
use crate::segment::SegmentHeader;

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
    durable: Vec<u64>,
    current: Option<Current>,
    step: Step,
    prepared: VecDeque<SegmentHeader>,
    used: VecDeque<UsedSegment>,
    in_flight: VecDeque<InFlight>,
    next_ticket: u64,
    is_sealed: bool,
    failure: Option<WriteFailure>,
    selection: Selection,
    spent: Vec<Block>,
    spare_pages: Vec<Pages>,
    spare_lasts: Vec<Vec<u64>>,
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
    is_written: bool,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// The last block of each shard; 0 if none.
    Group(u64, Vec<u64>),
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

/// The choice of blocks, with memory that is kept for the next one.
#[derive(Debug, Default)]
struct Selection {
    /// For each shard, the position in the queue before which its blocks are taken.
    cuts: Vec<usize>,
    /// For each transaction, the number of its blocks that are taken.
    parts: HashMap<u64, u16>,
    /// Length of the window.
    window: usize,
    /// Bytes of the blocks that are taken.
    size: usize,
    kept: Vec<Block>,
}

impl Selection {
    fn takes(&self, position: usize, block: &Block) -> bool {
        position < self.window && position < self.cuts[usize::from(block.shard())]
    }

    /// Chooses the blocks of a group. Returns false if there is none.
    fn choose(&mut self, queue: &VecDeque<Block>, group_size: usize) -> bool {
        let mut size_max = group_size;
        loop {
            let mut size = 0;
            let fits = |block: &&Block| {
                size += block.bytes().len();
                size <= size_max
            };
            self.window = queue.iter().take_while(fits).count();
            self.cut(queue);
            let taken = queue.iter().enumerate().filter(|(position, block)| self.takes(*position, block));
            self.size = taken.map(|(_, block)| block.bytes().len()).sum();
            if self.size > 0 || self.window == queue.len() {
                return self.size > 0;
            }
            size_max *= 2;
        }
    }

    /// Cuts the queues of shards before each transaction of which a part is not taken.
    fn cut(&mut self, queue: &VecDeque<Block>) {
        self.cuts.fill(usize::MAX);
        loop {
            self.parts.clear();
            let mut taken = queue.iter().take(self.window).enumerate();
            let is_cut = {
                let cuts = &mut self.cuts;
                let parts = &mut self.parts;
                for (position, block) in taken.by_ref() {
                    if let Some(transaction) = block.transaction()
                        && position < cuts[usize::from(block.shard())]
                    {
                        *parts.entry(transaction.number).or_insert(0) += 1;
                    }
                }
                let mut is_cut = false;
                for (position, block) in queue.iter().take(self.window).enumerate() {
                    let cut = &mut cuts[usize::from(block.shard())];
                    if let Some(transaction) = block.transaction()
                        && position < *cut
                        && parts[&transaction.number] < transaction.parts
                    {
                        *cut = position;
                        is_cut = true;
                    }
                }
                is_cut
            };
            if !is_cut {
                return;
            }
        }
    }
}

/// Where a log is continued.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// The segment that is in use, whose header is durable and which has no groups yet.
    pub(crate) segment: SegmentHeader,
    /// The segments before it, in their order.
    pub(crate) used: Vec<UsedSegment>,
    /// Checksum of the last group.
    pub(crate) before: u32,
    /// For each shard, its last block. All of them are durable.
    pub(crate) durable: Vec<u64>,
    /// Bytes from which on a group takes no further block.
    pub(crate) group_size: usize,
}

impl GroupWriter {
    pub(crate) fn new(start: Start) -> Self {
        let Start { segment, used, before, durable, group_size } = start;
        let number = segment.first_group;
        let mut used = VecDeque::from(used);
        used.push_back(UsedSegment { number: segment.number, first_group: number });
        GroupWriter {
            queue: VecDeque::new(),
            queue_size: 0,
            group_size,
            position: GroupPosition { uid: segment.uid, number, before },
            durable_group: number - 1,
            selection: Selection { cuts: vec![0; durable.len()], ..Selection::default() },
            durable,
            current: Some(Current { header: segment, offset: PAGE_SIZE as u64 }),
            step: Step::Group,
            prepared: VecDeque::new(),
            used,
            in_flight: VecDeque::new(),
            next_ticket: 0,
            is_sealed: true,
            failure: None,
            spent: Vec::new(),
            spare_pages: Vec::new(),
            spare_lasts: Vec::new(),
        }
    }

    /// Appends a block. Blocks of one shard arrive in the order of their indexes. All parts of a transaction must
    /// arrive: until then, the blocks of its shards after its parts are not written.
    ///
    /// # Panics
    /// If the log was not begun for this shard.
    pub fn push(&mut self, block: Block) {
        assert!(usize::from(block.shard()) < self.durable.len(), "the log was begun for fewer shards");
        self.queue_size += block.bytes().len();
        self.queue.push_back(block);
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
        let is_unwritten = |write: &&InFlight| !write.is_written;
        let unwritten = self.in_flight.iter().filter(is_unwritten).count();
        if self.failure.is_some() || unwritten == WRITES_IN_FLIGHT || self.in_flight.len() == GROUPS_MAX {
            return None;
        }
        if self.in_flight.iter().any(|write| !matches!(write.content, Content::Group(..))) {
            return None;
        }
        if let Step::End(next) = self.step {
            return Some(self.write_end(next));
        }
        if is_seal {
            (self.selection.window, self.selection.size) = (0, 0);
        } else if !self.selection.choose(&self.queue, self.group_size) {
            return None;
        }
        let current = self.current.expect("a log has a segment");
        let size = padded_size((group::HEADER_SIZE + self.selection.size) as u64);
        let is_empty = current.offset == PAGE_SIZE as u64;
        if !is_empty && current.offset + size + PAGE_SIZE as u64 > current.header.size {
            return self.write_header();
        }
        let mut pages = self.empty_pages();
        let mut last = self.spare_lasts.pop().unwrap_or_default();
        last.clear();
        last.resize(self.durable.len(), 0);
        let taken = (self.queue.iter().enumerate())
            .filter(|(position, block)| self.selection.takes(*position, block))
            .map(|(_, block)| block);
        let crc = group::encode(&mut pages, self.position, self.durable_group, taken);
        for position in 0..self.selection.window {
            let block = self.queue.pop_front().expect("the window is within the queue");
            if self.selection.takes(position, &block) {
                last[usize::from(block.shard())] = block.index();
                self.queue_size -= block.bytes().len();
                self.spent.push(block);
            } else {
                self.selection.kept.push(block);
            }
        }
        while let Some(block) = self.selection.kept.pop() {
            self.queue.push_front(block);
        }
        self.is_sealed = is_seal;
        let content = Content::Group(self.position.number, last);
        self.position = GroupPosition { number: self.position.number + 1, before: crc, ..self.position };
        self.current = Some(Current { offset: current.offset + size, ..current });
        Some(self.begin(current.header.number, current.offset, pages, content))
    }

    /// Writes the header of the next segment, when all before it is durable.
    fn write_header(&mut self) -> Option<Write> {
        if !self.in_flight.is_empty() {
            return None;
        }
        let header = SegmentHeader { first_group: self.position.number, ..self.prepared.pop_front()? };
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
        self.in_flight.push_back(InFlight { ticket, is_written: false, content });
        Write { segment, offset, ticket, pages }
    }

    /// Takes the result of a write. Returns the last durable block of each shard.
    pub fn written(&mut self, write: Write, result: io::Result<()>) -> &[u64] {
        if let Err(error) = result {
            let failure = WriteFailure { segment: write.segment, offset: write.offset, error };
            self.failure.get_or_insert(failure);
        }
        if self.failure.is_some() {
            return &self.durable;
        }
        let in_flight = self.in_flight.iter_mut().find(|in_flight| in_flight.ticket == write.ticket);
        in_flight.expect("each write is returned once").is_written = true;
        self.spare_pages.push(write.pages);
        while let Some(first) = self.in_flight.pop_front_if(|first| first.is_written) {
            match first.content {
                Content::Group(number, last) => {
                    self.durable_group = number;
                    for (durable, last) in self.durable.iter_mut().zip(&last) {
                        *durable = (*durable).max(*last);
                    }
                    self.spare_lasts.push(last);
                }
                Content::Header(next) => self.step = Step::End(next),
                Content::End(next) => {
                    self.step = Step::Group;
                    self.position.uid = next.uid;
                    self.current = Some(Current { header: next, offset: PAGE_SIZE as u64 });
                    self.used.push_back(UsedSegment { number: next.number, first_group: next.first_group });
                }
            }
        }
        &self.durable
    }

    /// Returns the last durable block of each shard; 0 if it has none.
    pub fn durable(&self) -> &[u64] {
        &self.durable
    }

    /// Returns the last durable group. All groups before it are durable too.
    pub fn durable_group(&self) -> u64 {
        self.durable_group
    }

    /// Returns the number of the next group. Blocks that are pushed from now on are in this group or later ones.
    pub fn next_group(&self) -> u64 {
        self.position.number
    }

    /// Returns the number of the newest segment that has groups, or is about to.
    pub(crate) fn segment(&self) -> u64 {
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
