//! Reads the log: which segments are part of it, up to which group it can be read, and why it ends there.
//!
//! ```text
//! segment 3   | first 40 | 40 | 41 | 42 | 43: torn | 44 |   segment 5 begins with 43, so 43 and 44 here are not read
//! segment 4   | first  0 |                                  prepared, not in use
//! segment 5   | first 43 | 43 | 44 | 45: not valid | 46 | ... | torn or damaged?
//! ```
//!
//! A segment is read up to the first group of the next one. Segments without a group before that are not part of the
//! log.
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

use crate::block::BlockView;
use crate::directory::Directory;
use crate::disk::Disk;
use crate::error::{Damage, LogError, ShardLoss};
use crate::group::{self, Group};
use crate::group_writer::UsedSegment;
use crate::manifest::{Manifest, ManifestShard};
use crate::pages::{PAGE_SIZE, Pages};
use crate::segment::{self, SegmentHeader};
use skep_wire::native::WireError;

/// Bytes that are read at a time.
const WINDOW: u64 = 1 << 20;

/// Where the log ends. It is given to [`Directory::begin`].
#[derive(Clone, Debug)]
pub struct LogEnd {
    /// Groups that were read.
    pub groups: u64,
    /// Blocks that were handed over.
    pub blocks: u64,
    /// Segment and offset at which a torn group was cut off, if there was one. Nothing acknowledged was in it.
    pub cut: Option<(u64, u64)>,
    /// The loss that was accepted.
    pub loss: Option<Damage>,
    /// For each shard, the index of its next block.
    pub(crate) next_blocks: Vec<u64>,
    pub(crate) next_group: u64,
    pub(crate) before: u32,
    pub(crate) used: Vec<UsedSegment>,
    /// Segments that can be used again.
    pub(crate) unused: Vec<u64>,
    /// Segments whose groups were cut off. They are removed, because their groups have numbers that are used again.
    pub(crate) dead: Vec<u64>,
    pub(crate) last_number: u64,
}

impl LogEnd {
    /// Returns the index of the next block of a shard. Its [`BlockWriter`](crate::BlockWriter) begins with it.
    pub fn next_block(&self, shard: u16) -> u64 {
        self.next_blocks.get(usize::from(shard)).copied().unwrap_or(1)
    }
}

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

impl<D: Disk> Directory<D> {
    /// Reads the log from the manifest's first group on. Calls `apply` with each block, in the order in which they were
    /// written: those of a shard in the order of their indexes. All parts of a transaction are handed over, or none.
    /// Blocks before the snapshot are left out. A caller that has applied blocks and gets an error discards its state.
    pub fn read_log(
        &self,
        accept_loss: bool,
        mut apply: impl FnMut(&BlockView<'_>) -> Result<(), WireError>,
    ) -> Result<LogEnd, LogError> {
        let found = self.find_segments()?;
        let mut end = LogEnd {
            groups: 0,
            blocks: 0,
            cut: None,
            loss: None,
            next_blocks: Vec::new(),
            next_group: 1,
            before: 0,
            used: Vec::new(),
            unused: Vec::new(),
            dead: Vec::new(),
            last_number: found.last().map_or(0, |found| found.number),
        };
        let Some(manifest) = &self.manifest else { return Ok(end) };
        end.next_group = manifest.first_group;
        let mut shards = Shards::new(manifest);
        end.next_blocks = shards.next_blocks();
        let parts = divide(&found, manifest.first_group, &mut end);
        if !accept_loss {
            check_complete(&found, &parts, manifest.segment)?;
        }
        match parts.first() {
            Some(first) if first.header.first_group > manifest.first_group => {
                let what = format!("groups {} to {}", manifest.first_group, first.header.first_group - 1);
                return Err(LogError::Incomplete { what: format!("{what} of the log are missing") });
            }
            None if manifest.durable_group >= manifest.first_group => {
                return Err(LogError::Incomplete { what: "all segments of the log are missing".into() });
            }
            _ => {}
        }
        // The segment that the manifest names is in use, unless its header is damaged.
        let named = found.iter().find(|found| found.number == manifest.segment);
        let is_named_lost = manifest.segment != 0 && named.and_then(Found::used).is_none();
        if let (Some(named), []) = (named.filter(|_| is_named_lost), parts.as_slice()) {
            let reader = SegmentReader::new(&*self.disk, named);
            end.loss = find_later(reader, 0, end.next_group, [].into_iter(), &shards, &*self.disk, true)?;
            if !accept_loss {
                return Err(LogError::Damaged(end.loss.expect("it is proven")));
            }
        }
        for (position, part) in parts.iter().enumerate() {
            end.used.push(UsedSegment { number: part.found.number, first_group: part.header.first_group });
            let mut reader = SegmentReader::new(&*self.disk, part.found);
            let mut next = part.header.first_group;
            let mut offset = PAGE_SIZE as u64;
            let mut is_continued = false;
            while next < part.limit {
                let group = reader.group(offset)?.filter(|group| {
                    group.uid == part.header.uid
                        && group.number == next
                        && (next <= manifest.first_group || group.before == end.before)
                });
                let Some(group) = group else { break };
                if group.is_end {
                    is_continued = true;
                    break;
                }
                if next >= manifest.first_group {
                    if !shards.continue_with(&group) {
                        break;
                    }
                    end.groups += 1;
                    for block in group.blocks().filter(|block| shards.needs(block)) {
                        end.blocks += 1;
                        apply(&block).map_err(|source| LogError::Unknown {
                            segment: part.found.number,
                            group: next,
                            shard: block.shard,
                            index: block.index,
                            source,
                        })?;
                    }
                }
                end.before = group.crc;
                next += 1;
                offset += group.padded_size();
            }
            end.next_group = next.max(end.next_group);
            if next == part.limit {
                continue;
            }
            // The next segment is missing, unless it is a file whose header is not valid.
            let is_damaged = |found: &Found<_>| found.number > part.found.number && found.header.is_none();
            if is_continued && !accept_loss && !found.iter().any(is_damaged) {
                let name = segment::name(part.found.number);
                return Err(LogError::Incomplete { what: format!("the segment after {name} is missing") });
            }
            // Segments that are prepared have no groups yet. Those whose header is not valid may have some.
            let may_have_groups = |found: &&Found<_>| found.header.is_none() || found.used().is_some();
            let after = found.iter().filter(|found| found.number > part.found.number).filter(may_have_groups);
            let is_proven = is_continued
                || is_named_lost
                || next <= manifest.durable_group
                || position + 1 < parts.len()
                || shards.lack_blocks();
            if let Some(damage) = find_later(reader, offset, next, after, &shards, &*self.disk, is_proven)? {
                if !accept_loss {
                    return Err(LogError::Damaged(damage));
                }
                end.loss = Some(damage);
            } else if offset < part.found.size && !reader_is_zero(&*self.disk, part.found, offset)? {
                end.cut = Some((part.found.number, offset));
            }
            end.dead.extend(parts[position + 1..].iter().map(|part| part.found.number));
            break;
        }
        end.next_blocks = shards.next_blocks();
        Ok(end)
    }

    /// Opens all segments and reads their headers.
    fn find_segments(&self) -> Result<Vec<Found<D::File>>, LogError> {
        let mut found = Vec::new();
        for name in self.disk.list().map_err(LogError::io("list", "."))? {
            let Some(number) = segment::number_of(&name) else { continue };
            let file = self.disk.open(&name).map_err(LogError::io("open", name.as_str()))?;
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
        return Err(LogError::Incomplete { what: format!("{} is missing", segment::name(segment)) });
    }
    match parts.iter().find(|part| part.found.size < part.header.size) {
        Some(part) => Err(LogError::Incomplete {
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

/// The blocks of each shard that were read.
#[derive(Clone)]
struct Shards {
    shards: Vec<ShardBlocks>,
}

#[derive(Clone)]
struct ShardBlocks {
    /// The first block that recovery needs.
    first: u64,
    /// The last block that the snapshot contains.
    last_of_snapshot: u64,
    /// The block after the last one that was read.
    next: u64,
}

impl Shards {
    fn new(manifest: &Manifest) -> Self {
        let shard = |shard: &ManifestShard| ShardBlocks {
            first: shard.first_block,
            last_of_snapshot: shard.last_block,
            next: 0,
        };
        Shards { shards: manifest.shards.iter().map(shard).collect() }
    }

    /// Counts the blocks of a group. Returns false, and counts none, if the indexes of a shard do not increase.
    fn continue_with(&mut self, group: &Group<'_>) -> bool {
        let before = self.clone();
        for block in group.blocks() {
            let shard = usize::from(block.shard);
            if shard >= self.shards.len() {
                self.shards.resize(shard + 1, ShardBlocks { first: 1, last_of_snapshot: 0, next: 0 });
            }
            let next = &mut self.shards[shard].next;
            if block.index < *next || block.index == u64::MAX {
                *self = before;
                return false;
            }
            *next = block.index + 1;
        }
        true
    }

    fn needs(&self, block: &BlockView<'_>) -> bool {
        block.index >= self.shards[usize::from(block.shard)].first
    }

    /// Returns true if the snapshot contains operations of blocks that were not read.
    fn lack_blocks(&self) -> bool {
        self.shards.iter().any(|shard| shard.next.max(shard.first) <= shard.last_of_snapshot)
    }

    /// Returns the next block of each shard. It is one that the snapshot does not contain, even if blocks before it are
    /// lost: otherwise, the next recovery would leave it out.
    fn next_blocks(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.next.max(shard.first).max(shard.last_of_snapshot + 1)).collect()
    }
}

/// Searches the groups after one that is not valid. Returns the damage if one of them proves that it was durable, or if
/// this is already proven.
fn find_later<'a, D: Disk>(
    mut reader: SegmentReader<'a, D>,
    offset: u64,
    number: u64,
    after: impl Iterator<Item = &'a Found<D::File>>,
    shards: &Shards,
    disk: &'a D,
    mut is_proven: bool,
) -> Result<Option<Damage>, LogError>
where
    D::File: 'a,
{
    let segment = reader.found.number;
    let next_blocks = shards.next_blocks();
    let loss = |(shard, &first_block): (usize, &u64)| ShardLoss {
        shard: shard as u16,
        first_block,
        later_blocks: 0,
        later_operations: 0,
    };
    let mut losses: Vec<ShardLoss> = next_blocks.iter().enumerate().map(loss).collect();
    let mut later_groups = 0;
    let mut at = offset + PAGE_SIZE as u64;
    let mut after = after;
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
            for block in group.blocks() {
                if let Some(loss) = losses.get_mut(usize::from(block.shard)) {
                    loss.later_blocks += 1;
                    loss.later_operations += u64::from(block.count);
                }
            }
            at += group.padded_size();
        }
        match after.next() {
            Some(found) => reader = SegmentReader::new(disk, found),
            None => break,
        }
        at = PAGE_SIZE as u64;
    }
    let damage = Damage { segment, offset, group: number, later_groups, shards: losses };
    Ok(is_proven.then_some(damage))
}

/// Returns true if the page at this offset has only zeros: no group was written there.
fn reader_is_zero<D: Disk>(disk: &D, found: &Found<D::File>, offset: u64) -> Result<bool, LogError> {
    let mut reader = SegmentReader::new(disk, found);
    Ok(reader.bytes(offset, PAGE_SIZE)?.is_none_or(|bytes| bytes.iter().all(|&byte| byte == 0)))
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
