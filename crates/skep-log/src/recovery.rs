//! Reads the log: which segments are part of it, up to which group it can be read, and why it ends there.
//!
//! ```text
//! segment 3   | first 40 | 40 | 41 | 42 | 43: torn | 44 |   segment 5 begins with 43, so 43 and 44 here are not read
//! segment 4   | first  0 |                                  prepared, not in use
//! segment 5   | first 43 | 43 | 44 | 45: not valid | 46 | ... | torn or damaged?
//! ```
//!
//! A segment is read up to the first group of the next one. Segments without a group before that are not part of the
//! log. After a failed write, a fresh log may begin with a snapshot. Until the manifest needs no group before it, its
//! segments are not part of the log.
//!
//! **Torn or damaged?** The log ends at the first group g that is not valid. Writes that were in flight at a crash
//! leave such a group, and also later groups that are valid. They were not acknowledged, since a group is durable only
//! when all before it are. So the log is cut at g. Acknowledged operations are damaged if one of these proves that g
//! was durable:
//! 1. a valid group in the rest of this segment, or in a later one, states that g was durable
//! 2. the manifest states it
//! 3. the next segment begins with a later group, or the end of this one is in the place of g
//!
//! Then the directory is refused, unless the caller accepts the loss of g and all later groups. What remains open is
//! damage to the very last group before a crash, if no seal follows it: no later byte tells it from a torn group.
//!
//! **While a server writes** ([`Reading::Live`]), g may have been in flight when it was read, and durable when the proof
//! was read. So g is read once more after the proof. If it is valid now, it was in flight, and the log is cut before it.

use std::io;

use crate::NUMBER_END;
use crate::block::BlockView;
use crate::directory::Directory;
use crate::disk::Disk;
use crate::error::{Damage, LogError};
use crate::group::{self, Group};
use crate::group_writer::UsedSegment;
use crate::log_end::LogEnd;
use crate::manifest::Manifest;
use crate::pages::{PAGE_SIZE, Pages};
use crate::segment::{self, SegmentHeader, SegmentKind};
use skep_wire::native::WireError;

/// Bytes that are read at a time.
const WINDOW: u64 = 1 << 20;

/// A file of the log.
struct Found<F> {
    number: u64,
    file: F,
    size: u64,
    /// `None` if it is not valid.
    header: Option<SegmentHeader>,
}

impl<F> Found<F> {
    /// Returns the header, if the segment is in use. A file that was renamed to be used again still has the header of
    /// its earlier use, with another number.
    fn used(&self) -> Option<SegmentHeader> {
        self.header.filter(|header| header.first_group > 0 && header.number == self.number)
    }
}

/// A segment that is part of the log, and the number of the first group that is not in it.
struct Part<'a, F> {
    found: &'a Found<F>,
    header: SegmentHeader,
    limit: u64,
}

/// Where the reading of a segment ends: before a group that is not valid, at the end of a segment that is continued, or
/// at the first group of the next segment.
struct Stop {
    segment: SegmentHeader,
    offset: u64,
    group: u64,
    /// Number of the next block that is read.
    next_block: u64,
    /// The segment ends there, and states that there is a next one.
    is_continued: bool,
}

/// How the end of the log is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reading {
    /// Damage is an error.
    Strict,
    /// The log ends before damage.
    AcceptLoss,
    /// A server may write to the log meanwhile; damage is an error.
    Live,
}

impl<D: Disk> Directory<D> {
    /// Reads the log from the manifest's first group on. Calls `apply` with the blocks of each group, in the order in which
    /// they were written; an error has the number of the block. [`Boundary`](crate::Boundary) says which of their
    /// operations a snapshot contains, and [`EffectOrder`](crate::EffectOrder) hands out their effects. A caller that has
    /// applied blocks and gets an error discards its state.
    pub fn read_log(
        &self,
        accept_loss: bool,
        mut apply: impl FnMut(&mut dyn Iterator<Item = BlockView<'_>>) -> Result<(), (u64, WireError)>,
    ) -> Result<LogEnd, LogError> {
        let reading = if accept_loss { Reading::AcceptLoss } else { Reading::Strict };
        let (mut segment, mut begins_run) = (0, false);
        self.read_groups(reading, |manifest, header, _, group, end| {
            begins_run |= header.number != segment && header.kind != SegmentKind::Continued;
            segment = header.number;
            if group.is_end || group.number < manifest.first_group {
                return Ok(());
            }
            let blocks = group.blocks().map(|mut block| {
                block.begins_run = std::mem::take(&mut begins_run);
                end.blocks += 1;
                end.floor = end.floor.max(block.floor);
                block
            });
            let mut blocks = blocks.filter(|block| !manifest.leaves_out(block.number));
            let unknown = |(block, source)| LogError::Unknown { segment, group: group.number, block, source };
            apply(&mut blocks).map_err(unknown)
        })
    }

    /// Reads the groups of all segments that are part of the log, also those before the manifest's first group. Calls
    /// `visit` with the segment, the offset and the group: each valid one, and the ends of segments that are continued.
    /// It updates the blocks and the floor of the end.
    pub(crate) fn read_groups(
        &self,
        reading: Reading,
        mut visit: impl FnMut(&Manifest, &SegmentHeader, u64, &Group<'_>, &mut LogEnd) -> Result<(), LogError>,
    ) -> Result<LogEnd, LogError> {
        let accept_loss = reading == Reading::AcceptLoss;
        let mut found = self.find_segments()?;
        let last_number = found.last().map_or(0, |found| found.number);
        let foreign = remove_foreign(&mut found, self.manifest.as_ref());
        let mut end = end_of_nothing(foreign, last_number);
        let Some(manifest) = &self.manifest else { return Ok(end) };
        remove_fresh(&mut found, manifest.first_group, &mut end);
        end.next_group = manifest.first_group;
        end.floor = manifest.durable_floor;
        let parts = divide(&found, manifest.first_group, &mut end);
        match check_complete(&found, &parts, manifest.segment) {
            Err(error) if accept_loss => end.missing = Some(error.to_string()),
            result => result?,
        }
        check_first_group(&parts, manifest)?;
        // The segment that the manifest names is in use, unless its header is damaged.
        let named = found.iter().find(|found| found.number == manifest.segment);
        let is_named_lost = manifest.segment != 0 && named.and_then(Found::used).is_none();
        if let (Some(named), []) = (named.filter(|_| is_named_lost), parts.as_slice()) {
            let reader = SegmentReader::new(&*self.disk, named);
            let Later { damage, .. } = find_later(reader, 0, end.next_group, 1, [].into_iter(), &*self.disk, true)?;
            if !accept_loss {
                return Err(LogError::Damaged(damage));
            }
            end.loss = Some(damage);
        }
        // Number of the next block that is read.
        let mut next_block = 1;
        for (position, part) in parts.iter().enumerate() {
            end.used.push(UsedSegment { number: part.found.number, first_group: part.header.first_group });
            end.segment_bytes += part.found.size;
            let mut reader = SegmentReader::new(&*self.disk, part.found);
            let stop = read_part(&mut reader, part, manifest, next_block, &mut end, &mut visit)?;
            next_block = stop.next_block;
            end.next_group = stop.group.max(end.next_group);
            end.position = (part.found.number, stop.offset);
            if stop.group == part.limit {
                let is_end =
                    |group: &Group<'_>| group.is_end && (group.uid, group.number) == (part.header.uid, stop.group);
                if let Some(group) = reader.group(stop.offset)?.filter(is_end) {
                    visit(manifest, &part.header, stop.offset, &group, &mut end)?;
                }
                continue;
            }
            // The next segment is missing, unless it is a file whose header is not valid.
            let is_damaged = |found: &Found<_>| found.number > part.found.number && found.header.is_none();
            if stop.is_continued && !accept_loss && !found.iter().any(is_damaged) {
                self.check_in_flight(reading, &stop)?;
                break;
            }
            // Then it was proven before the group was read.
            let was_proven = is_named_lost || stop.group <= manifest.durable_group || position + 1 < parts.len();
            self.judge(reading, &found, reader, &stop, was_proven, &mut end)?;
            end.dead.extend(parts[position + 1..].iter().map(|part| part.found.number));
            break;
        }
        // It is one that the snapshot does not contain, even if blocks before it are lost.
        end.next_block = next_block.max(manifest.durable_block + 1);
        Ok(end)
    }

    /// Refuses a log without the segment after this one, unless a server has begun it since it was searched.
    fn check_in_flight(&self, reading: Reading, stop: &Stop) -> Result<(), LogError> {
        if reading == Reading::Live && self.is_valid_now(&stop.segment, stop.offset, stop.group)? {
            return Ok(());
        }
        let name = segment::name(stop.segment.number);
        Err(LogError::LogIncomplete { what: format!("the segment after {name} is missing") })
    }

    /// Judges the group at which the log ends, torn or damaged, and notes the loss or the cut. `was_proven` states that
    /// the group was durable before it was read. Groups of an earlier use of the file are not cut: the log was never longer.
    fn judge(
        &self,
        reading: Reading,
        found: &[Found<D::File>],
        reader: SegmentReader<'_, D>,
        stop: &Stop,
        was_proven: bool,
        end: &mut LogEnd,
    ) -> Result<(), LogError> {
        let Stop { segment, offset, group, next_block, is_continued } = *stop;
        let of_stop = reader.found;
        // Segments that are prepared have no groups yet. Those whose header is not valid may have some.
        let may_have_groups = |found: &&Found<_>| found.header.is_none() || found.used().is_some();
        let after = found.iter().filter(|found| found.number > segment.number).filter(may_have_groups);
        let is_proven = is_continued || was_proven;
        let Later { damage, is_proven } = find_later(reader, offset, group, next_block, after, &*self.disk, is_proven)?;
        if is_proven {
            match reading {
                Reading::AcceptLoss => end.loss = Some(damage),
                Reading::Live if !was_proven && self.is_valid_now(&segment, offset, group)? => {}
                _ => return Err(LogError::Damaged(damage)),
            }
        } else if damage.later_groups > 0 || is_begun(&*self.disk, of_stop, offset, segment.uid)? {
            end.cut = Some((segment.number, offset));
        }
        Ok(())
    }

    /// Opens all segments and reads their headers.
    fn find_segments(&self) -> Result<Vec<Found<D::File>>, LogError> {
        let mut found = Vec::new();
        for name in self.disk.list().map_err(LogError::io("list", "."))? {
            let Some(number) = segment::number_of(&name) else { continue };
            let file = match self.disk.open(&name) {
                // A server that runs has renamed it, so the log did not need it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(LogError::io("open", name.as_str()))?,
            };
            let size = self.disk.size(&file).map_err(LogError::io("read", name.as_str()))?;
            let mut page = Pages::default();
            page.set_size(if size < PAGE_SIZE as u64 { 0 } else { PAGE_SIZE });
            self.disk.read_at(&file, 0, page.pages_mut()).map_err(LogError::io("read", name))?;
            let header = SegmentHeader::decode(page.bytes());
            found.push(Found { number, file, size, header });
        }
        found.sort_by_key(|found| found.number);
        Ok(found)
    }

    /// Returns true if these segments are in use under their names.
    pub(crate) fn has_segments(&self, segments: &[UsedSegment]) -> Result<bool, LogError> {
        let mut found = self.find_segments()?;
        remove_foreign(&mut found, self.manifest.as_ref());
        let used = |header: SegmentHeader| UsedSegment { number: header.number, first_group: header.first_group };
        let is_found =
            |segment: &UsedSegment| found.iter().filter_map(Found::used).any(|header| used(header) == *segment);
        Ok(segments.iter().all(is_found))
    }

    /// Returns true if a group that could not be read before can be read now; if it is the end of its segment, then if
    /// the next segment can.
    fn is_valid_now(&self, segment: &SegmentHeader, offset: u64, number: u64) -> Result<bool, LogError> {
        let found = self.find_segments()?;
        let is_segment = |used: SegmentHeader| (used.number, used.uid) == (segment.number, segment.uid);
        let Some(of_group) = found.iter().find(|found| found.used().is_some_and(is_segment)) else { return Ok(false) };
        let mut reader = SegmentReader::new(&*self.disk, of_group);
        let group = reader.group(offset)?.filter(|group| (group.uid, group.number) == (segment.uid, number));
        let begins_next = |used: SegmentHeader| used.first_group == number && used.number > segment.number;
        Ok(group.is_some_and(|group| !group.is_end || found.iter().filter_map(Found::used).any(begins_next)))
    }
}

/// Returns the end of a log that has no groups.
fn end_of_nothing(foreign: Vec<String>, last_number: u64) -> LogEnd {
    LogEnd {
        groups: 0,
        blocks: 0,
        cut: None,
        loss: None,
        missing: None,
        foreign,
        position: (0, 0),
        next_block: 1,
        floor: 0,
        next_group: 1,
        before: 0,
        used: Vec::new(),
        segment_bytes: 0,
        unused: Vec::new(),
        dead: Vec::new(),
        last_number,
    }
}

/// Removes the files of other directories. Returns their names.
fn remove_foreign<F>(found: &mut Vec<Found<F>>, manifest: Option<&Manifest>) -> Vec<String> {
    let server_id = manifest.map_or([0; 16], |manifest| manifest.server_id);
    let is_foreign = |found: &mut Found<F>| found.header.is_some_and(|header| header.is_foreign(server_id));
    found.extract_if(.., is_foreign).map(|found| segment::name(found.number)).collect()
}

/// Removes the segments of a fresh log that no manifest names: nothing in it was acknowledged.
fn remove_fresh<F>(found: &mut Vec<Found<F>>, first_group: u64, end: &mut LogEnd) {
    let is_unnamed = |header: &SegmentHeader| header.kind == SegmentKind::Fresh && header.first_group > first_group;
    let Some(fresh) = found.iter().filter_map(Found::used).find(is_unnamed) else { return };
    // A recovery that did not end may have begun a later segment. Its groups have lower numbers.
    let is_of_fresh = |header: SegmentHeader| header.number >= fresh.number && header.first_group >= fresh.first_group;
    found.retain(|segment| {
        let is_dead = segment.used().is_some_and(is_of_fresh);
        if is_dead {
            end.dead.push(segment.number);
        }
        !is_dead
    });
}

/// Returns the segments that recovery reads, in their order. The others are unused or dead.
fn divide<'a, F>(found: &'a [Found<F>], first_group: u64, end: &mut LogEnd) -> Vec<Part<'a, F>> {
    let mut parts = Vec::new();
    let mut limit = u64::MAX;
    for segment in found.iter().rev() {
        match segment.used() {
            None => end.unused.push(segment.number),
            Some(header) if header.first_group >= limit => end.dead.push(segment.number),
            Some(_) if limit <= first_group => end.unused.push(segment.number),
            Some(header) => {
                parts.push(Part { found: segment, header, limit });
                limit = header.first_group;
            }
        }
    }
    parts.reverse();
    parts
}

/// Refuses a log without a segment that must exist, or with one that is too short.
fn check_complete<F>(found: &[Found<F>], parts: &[Part<'_, F>], segment: u64) -> Result<(), LogError> {
    if segment != 0 && found.iter().all(|found| found.number != segment) {
        return Err(LogError::LogIncomplete { what: format!("{} is missing", segment::name(segment)) });
    }
    match parts.iter().find(|part| part.found.size < part.header.size) {
        Some(part) => Err(LogError::LogIncomplete {
            what: format!(
                "{} has {} bytes instead of {}",
                segment::name(part.found.number),
                part.found.size,
                part.header.size
            ),
        }),
        None => Ok(()),
    }
}

/// Refuses a log that does not begin with the manifest's first group.
fn check_first_group<F>(parts: &[Part<'_, F>], manifest: &Manifest) -> Result<(), LogError> {
    match parts.first() {
        Some(first) if first.header.first_group > manifest.first_group => {
            let what = format!("groups {} to {}", manifest.first_group, first.header.first_group - 1);
            Err(LogError::Incomplete { what: format!("{what} of the log are missing") })
        }
        None if manifest.durable_group >= manifest.first_group => {
            Err(LogError::Incomplete { what: "all segments of the log are missing".into() })
        }
        _ => Ok(()),
    }
}

/// Reads the groups of a segment up to its limit, or to one that is not valid. Calls `visit` with each.
fn read_part<D: Disk>(
    reader: &mut SegmentReader<'_, D>,
    part: &Part<'_, D::File>,
    manifest: &Manifest,
    next_block: u64,
    end: &mut LogEnd,
    visit: &mut impl FnMut(&Manifest, &SegmentHeader, u64, &Group<'_>, &mut LogEnd) -> Result<(), LogError>,
) -> Result<Stop, LogError> {
    let group = part.header.first_group;
    let mut stop = Stop { segment: part.header, offset: PAGE_SIZE as u64, group, next_block, is_continued: false };
    while stop.group < part.limit {
        let group = reader.group(stop.offset)?.filter(|group| {
            group.uid == part.header.uid
                && group.number == stop.group
                && (stop.group <= manifest.first_group || group.before == end.before)
        });
        let Some(group) = group else { break };
        if group.is_end {
            stop.is_continued = true;
            break;
        }
        if stop.group >= manifest.first_group {
            let after = group.first_block.checked_add(group.block_count.into());
            let after = after.filter(|after| *after < NUMBER_END && group.first_block >= stop.next_block);
            let Some(after) = after else { break };
            stop.next_block = after;
            end.groups += 1;
        }
        visit(manifest, &part.header, stop.offset, &group, end)?;
        end.before = group.crc;
        stop.group += 1;
        stop.offset += group.padded_size();
    }
    Ok(stop)
}

/// What follows a group that is not valid.
struct Later {
    /// The loss, if the group was durable.
    damage: Damage,
    /// The group was durable.
    is_proven: bool,
}

/// Searches the groups after one that is not valid. One of them may prove that it was durable, unless this is already
/// proven.
fn find_later<'a, D: Disk>(
    mut reader: SegmentReader<'a, D>,
    offset: u64,
    number: u64,
    first_block: u64,
    mut after: impl Iterator<Item = &'a Found<D::File>>,
    disk: &'a D,
    mut is_proven: bool,
) -> Result<Later, LogError>
where
    D::File: 'a,
{
    let segment = reader.found.number;
    let (mut later_groups, mut later_blocks, mut later_operations) = (0, 0, 0);
    let mut at = offset + PAGE_SIZE as u64;
    loop {
        let uid = reader.found.header.map(|header| header.uid);
        while at < reader.found.size {
            let group =
                reader.group(at)?.filter(|group| group.number >= number && uid.is_none_or(|uid| uid == group.uid));
            let Some(group) = group else {
                at += PAGE_SIZE as u64;
                continue;
            };
            is_proven |= group.durable >= number;
            later_groups += u64::from(!group.is_end);
            later_blocks += u64::from(group.block_count);
            later_operations += group.blocks().map(|block| u64::from(block.count)).sum::<u64>();
            at += group.padded_size();
        }
        match after.next() {
            Some(found) => reader = SegmentReader::new(disk, found),
            None => break,
        }
        at = PAGE_SIZE as u64;
    }
    let damage = Damage { segment, offset, group: number, first_block, later_groups, later_blocks, later_operations };
    Ok(Later { damage, is_proven })
}

/// Returns true if a group of the segment with this uid was being written at this offset. A file that is used again has
/// groups of its earlier use there.
fn is_begun<D: Disk>(disk: &D, found: &Found<D::File>, offset: u64, uid: u64) -> Result<bool, LogError> {
    let mut reader = SegmentReader::new(disk, found);
    Ok(reader.bytes(offset, PAGE_SIZE)?.is_some_and(|bytes| group::is_begun(bytes, uid)))
}

/// Reads a segment from its begin to its end, many groups at a time.
struct SegmentReader<'a, D: Disk> {
    disk: &'a D,
    found: &'a Found<D::File>,
    /// Bytes from the offset `start` on.
    window: Pages,
    start: u64,
}

impl<'a, D: Disk> SegmentReader<'a, D> {
    fn new(disk: &'a D, found: &'a Found<D::File>) -> Self {
        SegmentReader { disk, found, window: Pages::default(), start: 0 }
    }

    /// Returns the group at an offset, if there is one that is valid.
    fn group(&mut self, offset: u64) -> Result<Option<Group<'_>>, LogError> {
        let Some(page) = self.bytes(offset, PAGE_SIZE)? else { return Ok(None) };
        let Some(size) = group::stated_size(page) else { return Ok(None) };
        Ok(self.bytes(offset, size)?.and_then(Group::decode))
    }

    /// Returns bytes, if the file does not end before them.
    fn bytes(&mut self, offset: u64, size: usize) -> Result<Option<&[u8]>, LogError> {
        let file_size = self.found.size / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        let padded = size.next_multiple_of(PAGE_SIZE) as u64;
        if offset > file_size || padded > file_size - offset {
            return Ok(None);
        }
        let is_in_window = self.start <= offset && offset + padded <= self.start + self.window.size() as u64;
        if !is_in_window {
            self.window.set_size(padded.max(WINDOW).min(file_size - offset) as usize);
            self.start = offset;
            let read = self.disk.read_at(&self.found.file, offset, self.window.pages_mut());
            read.map_err(LogError::io("read", segment::name(self.found.number)))?;
        }
        let start = (offset - self.start) as usize;
        Ok(Some(&self.window.bytes()[start..start + size]))
    }
}
