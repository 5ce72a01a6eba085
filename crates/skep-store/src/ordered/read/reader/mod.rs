//! A GET or a scan as a value: it names the block that it needs next, and takes the bytes from its caller.
//!
//! ```text
//! entry ─▶ header, shortcuts ─┬─ interior ─▶ children ─▶ entry of the child
//!   ▲       ▲ │               └─ leaf ─┬─▶ log block ─┬▶ segment ─┬▶ the next segment
//!   │       └─┘ older                  └──────────────┘           ├▶ overflow values: entry, part, …
//!   └──────────────────────────── right sibling ◀─────────────────┘
//! ```
//!
//! [`Reader::wants`] names the next block, [`Reader::give`] takes the frame that served it. So the caller decides from
//! which memory a block comes, and when: the page table, caches and old frames are its own. The blocks of a node are
//! collected in a [`FrameBuffer`], which the searches of the store read as a node. They are the searches of
//! [`descent`](super::descent) and of the leaf; only the order of the steps is written a second time.
//!
//! The frame of a header is named again for the other blocks of its node. A caller that serves them from another frame
//! gives a reader inconsistent blocks: the result is wrong or an error. Each offset is checked when its block arrives.
//!
//! If the floor of a scan is not in its segment, the reader searches to the left and then descends again.

mod block;
mod buffer;
mod steps;

pub use block::{Block, Content, FoundPair, Inconsistent, SHORTCUT_BLOCK_SIZE};
pub use buffer::FrameBuffer;

use super::super::memory::number::Lid;
use super::super::node::frame::Node;
use super::super::node::overflow::{LINK_SIZE, PART_SIZE_MAX};
use super::super::node::shortcut::{SegmentPosition, Shortcuts};
use super::super::version::clock::Snapshot;
use crate::memory::LINE_SIZE;
use skep_core::operation::{Range, Start};

/// Most blocks without a further pair. Inconsistent blocks could lead in a circle.
const FRUITLESS_MAX: usize = 1 << 16;

/// A GET or a scan in progress, as of a version.
#[derive(Debug)]
pub struct Reader<'k> {
    buffer: &'k mut FrameBuffer,
    wanted: Wanted<'k>,
    snapshot: Snapshot,
    stage: Stage,
    lid: usize,
    frame: u32,
    /// Descends to the greatest key below this one, instead of the wanted key.
    below: Option<Vec<u8>>,
    /// The lowest key that the leaf may have.
    low: Option<Vec<u8>>,
    pairs: Vec<FoundPair>,
    /// Overflow values that were found and not read, the last one first.
    unread: Vec<Unread>,
    /// The stage after these values.
    after_values: Stage,
    /// Blocks since the last pair.
    fruitless: usize,
}

#[derive(Clone, Copy, Debug)]
enum Wanted<'k> {
    Key(&'k [u8]),
    Pairs(Pairs<'k>),
}

/// The pairs that a scan still wants.
#[derive(Clone, Copy, Debug)]
struct Pairs<'k> {
    range: Range<'k>,
    /// True until the first segment is read.
    is_at_start: bool,
    /// True while the floor is searched for to the left of the segment that should have it.
    seeks_floor: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Entry,
    Header(Content),
    Children(SegmentPosition),
    /// The log block, then this segment.
    Log(usize),
    Items(usize),
    PartEntry,
    Part,
    Done,
}

/// An overflow value of which a part is not read.
#[derive(Clone, Copy, Debug)]
struct Unread {
    pair: usize,
    /// The LID of the next part, and its frame once the entry was read.
    next: Lid,
    frame: u32,
    left: usize,
}

impl<'k> Reader<'k> {
    /// Begins a GET as of a version, without keys that have expired at a time.
    pub fn get(buffer: &'k mut FrameBuffer, key: &'k [u8], version: u64, now: u64) -> Self {
        Reader::new(buffer, Wanted::Key(key), Snapshot { version, now })
    }

    /// Begins a scan in the same way.
    pub fn scan(buffer: &'k mut FrameBuffer, range: Range<'k>, version: u64, now: u64) -> Self {
        let range = range.with_prefix_as_start();
        let is_at_start = range.start != Start::First;
        let mut reader = Reader::new(
            buffer,
            Wanted::Pairs(Pairs { range, is_at_start, seeks_floor: false }),
            Snapshot { version, now },
        );
        if range.limit == 0 {
            reader.stage = Stage::Done;
        }
        reader
    }

    fn new(buffer: &'k mut FrameBuffer, wanted: Wanted<'k>, snapshot: Snapshot) -> Self {
        let (lid, pairs, unread) = (Lid::ROOT.index(), Vec::new(), Vec::new());
        let (stage, after_values) = (Stage::Entry, Stage::Done);
        let (below, low) = (None, None);
        Reader { buffer, wanted, snapshot, stage, lid, frame: 0, below, low, pairs, unread, after_values, fruitless: 0 }
    }

    /// Returns the next block. Returns `None` if the reader has ended.
    pub fn wants(&self) -> Option<Block> {
        let block = |content, bytes| Some(Block { content, lid: self.lid, frame: self.frame, bytes });
        match self.stage {
            Stage::Done => None,
            Stage::Entry => Some(Block { content: Content::Entry, lid: self.lid, frame: 0, bytes: 0..0 }),
            Stage::Header(content) => block(content, 0..SHORTCUT_BLOCK_SIZE),
            Stage::Children(position) => block(Content::Children, self.segment_bytes(usize::from(position.segment))),
            Stage::Items(segment) => block(Content::Segment, self.segment_bytes(segment)),
            Stage::Log(_) => {
                let start = self.node().log_start();
                block(Content::Log, start..start + LINE_SIZE + self.node().state().log_size())
            }
            Stage::PartEntry => {
                let lid = self.unread.last()?.next.index();
                Some(Block { content: Content::Entry, lid, frame: 0, bytes: 0..0 })
            }
            Stage::Part => {
                let Unread { next, frame, left, .. } = *self.unread.last()?;
                let bytes = 0..LINK_SIZE + left.min(PART_SIZE_MAX);
                Some(Block { content: Content::Part, lid: next.index(), frame, bytes })
            }
        }
    }

    fn segment_bytes(&self, segment: usize) -> std::ops::Range<usize> {
        let shortcuts = Shortcuts::open(self.node());
        shortcuts.segment_start(segment)..shortcuts.segment_end(segment)
    }

    /// Returns the node whose header was given.
    fn node(&self) -> Node<'_> {
        self.buffer.node().expect("a stage after the header has one")
    }

    /// Takes the block that [`Reader::wants`] has named, from the frame that served it. Of an entry, it takes the frame
    /// that the entry names, 0 if there is none, and no bytes.
    pub fn give(&mut self, frame: u32, bytes: &[u8]) -> Result<(), Inconsistent> {
        let Some(wanted) = self.wants() else { return Ok(()) };
        self.fruitless += 1;
        if bytes.len() != wanted.bytes.len() || self.fruitless > FRUITLESS_MAX {
            return Err(Inconsistent);
        }
        let found = self.pairs.len();
        let stage = match self.stage {
            Stage::Entry | Stage::PartEntry if frame == 0 => return Err(Inconsistent),
            Stage::Entry => {
                self.frame = frame;
                Stage::Header(Content::Shortcuts)
            }
            Stage::PartEntry => {
                self.unread.last_mut().ok_or(Inconsistent)?.frame = frame;
                Stage::Part
            }
            Stage::Part => self.take_part(bytes)?,
            Stage::Header(_) => {
                self.buffer.begin(bytes)?;
                self.frame = frame;
                self.take_header()?
            }
            Stage::Children(position) => {
                self.buffer.add(wanted.bytes.start, bytes)?;
                self.take_children(position)?
            }
            Stage::Log(segment) => {
                self.buffer.add(wanted.bytes.start, bytes)?;
                self.take_log(segment)?
            }
            Stage::Items(segment) => {
                self.buffer.add(wanted.bytes.start, bytes)?;
                self.take_segment(segment)?
            }
            Stage::Done => Stage::Done,
        };
        if self.pairs.len() > found {
            self.fruitless = 0;
        }
        let is_reading_value = matches!(stage, Stage::PartEntry | Stage::Part);
        self.stage = if self.unread.is_empty() || is_reading_value {
            stage
        } else {
            self.after_values = stage;
            Stage::PartEntry
        };
        Ok(())
    }

    /// Returns the value of a key whose GET has ended, or the pairs that a scan has found until now, except for overflow
    /// values that are not read.
    pub fn pairs(&self) -> &[FoundPair] {
        &self.pairs
    }
}
