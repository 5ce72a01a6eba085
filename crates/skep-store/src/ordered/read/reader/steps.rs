//! The steps of a reader: what follows from a block that has arrived.

use super::super::super::key_head::{Target, fingerprint};
use super::super::super::leaf::cursor::LeafCursor;
use super::super::super::leaf::find;
use super::super::super::leaf::range::is_at_or_before;
use super::super::super::memory::number::Lid;
use super::super::super::node::overflow::{self, LINK_SIZE, NO_PART, REFERENCE_SIZE};
use super::super::super::node::shortcut::{self, SegmentPosition, Shortcuts};
use super::super::super::node::value::{Content as ValueContent, Value};
use super::super::super::node::{interior, log, segment};
use super::block::{Content, FoundPair, Inconsistent};
use super::{Pairs, Reader, Stage, Unread, Wanted};
use skep_core::operation::Start;

impl Reader<'_> {
    /// Returns the target of the descent.
    fn target(&self) -> Target<'_> {
        match (&self.below, &self.wanted) {
            (Some(fence), _) => Target::Below(fence),
            (None, Wanted::Key(key)) => Target::AtOrBelow(key),
            (None, Wanted::Pairs(pairs)) => Target::AtOrBelow(pairs.range.start.key()),
        }
    }

    /// Begins at the root, for the greatest key below this one or for the wanted key.
    fn descend(&mut self, below: Option<Vec<u8>>) -> Stage {
        (self.lid, self.below, self.low) = (Lid::ROOT.index(), below, None);
        Stage::Entry
    }

    pub(super) fn take_header(&mut self) -> Result<Stage, Inconsistent> {
        let node = self.buffer.node()?;
        if !shortcut::is_searchable(node) {
            return Err(Inconsistent);
        }
        if node.version() > self.snapshot.version {
            self.frame = node.older_number().ok_or(Inconsistent)?.bits();
            return Ok(Stage::Header(Content::Older));
        }
        let position = Shortcuts::open(node).find(self.target());
        if node.level() > 0 {
            return Ok(Stage::Children(position));
        }
        let segment = usize::from(position.segment);
        let (segment, reads_log) = match &self.wanted {
            Wanted::Key(key) => (segment, find::log_candidates(node, fingerprint(key)) != 0),
            Wanted::Pairs(Pairs { is_at_start: false, seeks_floor: false, .. }) => (0, node.state().log_count() > 0),
            Wanted::Pairs(_) => (segment, node.state().log_count() > 0),
        };
        Ok(if reads_log { Stage::Log(segment) } else { Stage::Items(segment) })
    }

    pub(super) fn take_children(&mut self, position: SegmentPosition) -> Result<Stage, Inconsistent> {
        let node = self.buffer.node()?;
        if !interior::is_searchable(node, usize::from(position.start)) {
            return Err(Inconsistent);
        }
        let child = interior::find_in_segment(node, position, self.target());
        let (lid, low) = (child.lid.index(), interior::low_fence(node, child).map(<[u8]>::to_vec));
        self.lid = lid;
        self.low = low.or(self.low.take());
        Ok(Stage::Entry)
    }

    pub(super) fn take_log(&mut self, segment: usize) -> Result<Stage, Inconsistent> {
        let (node, version) = (self.buffer.node()?, self.snapshot.version);
        if !log::is_readable(node, Shortcuts::open(node).segment_count()) {
            return Err(Inconsistent);
        }
        let Wanted::Key(key) = self.wanted else { return Ok(Stage::Items(segment)) };
        let candidates = find::log_candidates(node, fingerprint(key));
        let Some(found) = find::read_log(node.frame(), key, candidates, version) else {
            return Ok(Stage::Items(segment));
        };
        let Reader { pairs, unread, snapshot, .. } = self;
        if let Some(value) = found.filter(|value| !value.has_expired(snapshot.now)) {
            add(pairs, unread, key, value)?;
        }
        Ok(Stage::Done)
    }

    pub(super) fn take_segment(&mut self, segment: usize) -> Result<Stage, Inconsistent> {
        let node = self.buffer.node()?;
        if !segment::is_searchable(node, Shortcuts::open(node).segment_start(segment), segment) {
            return Err(Inconsistent);
        }
        match self.wanted {
            Wanted::Key(key) => self.take_item(key),
            Wanted::Pairs(Pairs { seeks_floor: true, .. }) => self.take_floor(segment),
            Wanted::Pairs(_) => self.take_items(segment),
        }
    }

    fn take_item(&mut self, key: &[u8]) -> Result<Stage, Inconsistent> {
        let Reader { buffer, pairs, unread, snapshot, .. } = self;
        let (leaf, fingerprint) = (buffer.node()?, fingerprint(key));
        let position = Shortcuts::open(leaf).find(Target::AtOrBelow(key));
        let first = find::first_item_position(leaf, position, fingerprint);
        let found = find::read_sorted(leaf, position, first, key, fingerprint);
        if let Some(value) = found.filter(|value| !value.has_expired(snapshot.now)) {
            add(pairs, unread, key, value)?;
        }
        Ok(Stage::Done)
    }

    /// Takes the pairs of a segment that are in the range.
    fn take_items(&mut self, segment: usize) -> Result<Stage, Inconsistent> {
        let Reader { buffer, pairs, unread, snapshot, wanted: Wanted::Pairs(scan), .. } = self else {
            return Err(Inconsistent);
        };
        let (leaf, end) = (buffer.node()?, scan.range.end);
        let mut cursor = LeafCursor::new(leaf, segment, *snapshot);
        if std::mem::take(&mut scan.is_at_start) {
            match scan.range.start {
                Start::First => {}
                Start::Floor(key) => {
                    if !cursor.find_floor(key) {
                        scan.seeks_floor = true;
                        return Ok(self.go_left(segment));
                    }
                }
                start => {
                    cursor.guess_start(start.key());
                    cursor.find_start(start);
                }
            }
        }
        while let Some(item) = cursor.next_of_segment() {
            if !is_at_or_before(end, item.key) {
                return Ok(Stage::Done);
            }
            if item.value.has_expired(snapshot.now) {
                continue;
            }
            add(pairs, unread, item.key, item.value)?;
            scan.range.limit -= 1;
            if scan.range.limit == 0 {
                return Ok(Stage::Done);
            }
        }
        let (shortcuts, next) = (Shortcuts::open(leaf), segment + 1);
        if next == shortcuts.segment_count() {
            let Some(right) = leaf.right() else { return Ok(Stage::Done) };
            self.lid = right.index();
            return Ok(Stage::Entry);
        }
        let is_in_range = shortcuts.first_key(next).is_none_or(|key| is_at_or_before(end, key));
        Ok(if is_in_range { Stage::Items(next) } else { Stage::Done })
    }

    /// Searches a segment to the left of that of the start for the floor.
    fn take_floor(&mut self, segment: usize) -> Result<Stage, Inconsistent> {
        let (target, mut floor) = (self.target(), None);
        let mut cursor = LeafCursor::new(self.buffer.node()?, segment, self.snapshot);
        while let Some(item) = cursor.next_of_segment().filter(|item| target.is_right_of(item.key)) {
            if !item.value.has_expired(self.snapshot.now) {
                floor = Some(item);
            }
        }
        let Some(floor) = floor else { return Ok(self.go_left(segment)) };
        let Wanted::Pairs(scan) = &mut self.wanted else { return Err(Inconsistent) };
        if !is_at_or_before(scan.range.end, floor.key) {
            return Ok(Stage::Done);
        }
        add(&mut self.pairs, &mut self.unread, floor.key, floor.value)?;
        scan.range.limit -= 1;
        Ok(if scan.range.limit == 0 { Stage::Done } else { self.above_the_floor() })
    }

    /// Goes to the segment on the left, or to the leaf that has it.
    fn go_left(&mut self, segment: usize) -> Stage {
        match (segment.checked_sub(1), self.low.take()) {
            (Some(left), low) => {
                self.low = low;
                Stage::Items(left)
            }
            (None, Some(fence)) => self.descend(Some(fence)),
            (None, None) => self.above_the_floor(),
        }
    }

    /// Continues above the key whose floor was searched for.
    fn above_the_floor(&mut self) -> Stage {
        if let Wanted::Pairs(scan) = &mut self.wanted {
            scan.range.start = Start::Above(scan.range.start.key());
            (scan.is_at_start, scan.seeks_floor) = (true, false);
        }
        self.descend(None)
    }

    pub(super) fn take_part(&mut self, bytes: &[u8]) -> Result<Stage, Inconsistent> {
        let unread = self.unread.last_mut().ok_or(Inconsistent)?;
        let (link, part) = bytes.split_first_chunk::<LINK_SIZE>().ok_or(Inconsistent)?;
        self.pairs[unread.pair].value.extend_from_slice(part);
        self.fruitless = 0;
        unread.left -= part.len();
        unread.next = Lid::from_bytes(*link);
        if (unread.left == 0) != (unread.next == NO_PART) {
            return Err(Inconsistent);
        }
        if unread.left > 0 {
            return Ok(Stage::PartEntry);
        }
        self.unread.pop();
        Ok(if self.unread.is_empty() { self.after_values } else { Stage::PartEntry })
    }
}

/// Adds a pair. The bytes of an overflow value are read later.
fn add(pairs: &mut Vec<FoundPair>, unread: &mut Vec<Unread>, key: &[u8], value: Value<'_>) -> Result<(), Inconsistent> {
    let inside = match value.content() {
        ValueContent::Inside(bytes) => bytes,
        ValueContent::Overflow(reference) => {
            let reference: &[u8; REFERENCE_SIZE] = reference.try_into().map_err(|_| Inconsistent)?;
            let (left, next) = (overflow::value_size(reference), overflow::first_part(reference));
            unread.push(Unread { pair: pairs.len(), next, frame: 0, left });
            if left == 0 || next == NO_PART {
                return Err(Inconsistent);
            }
            &[]
        }
    };
    pairs.push(FoundPair { key: key.to_vec(), value: inside.to_vec() });
    Ok(())
}
