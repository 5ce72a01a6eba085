//! The bytes of a node that a card fetches.
//!
//! ```text
//! Paper   header and shortcut block │ each segment that is needed, whole │ the log block in use
//! Lines   the lines that the store has read: those of the index, of a segment's head, of an item; no hints of the CPU
//! ```
//!
//! A block is fetched with one read. Blocks of a node have the order in which they are needed.

use std::ops::Range;

use skep_store::counted::ordered::NodeLayout;

use super::tree::Visit;

/// Bytes of header and shortcut block (section 3.1).
pub const SHORTCUT_BLOCK_SIZE: u32 = 512;
/// Bytes of a line.
pub(super) const LINE_SIZE: usize = 64;

/// A rule that decides which bytes of a node are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// As the paper's card.
    Paper,
    /// As the paper's card, if leaves had no logs.
    WithoutLog,
    /// Only the lines that the store's layout needs.
    Lines,
}

/// The content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Header and shortcut block, or lines of them.
    Shortcut,
    /// A segment, or lines of it.
    Segment,
    /// The log block in use, or lines of it, with the number of entries that are sorted when it has arrived.
    Log(u32),
}

/// Adjacent bytes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The content.
    pub content: Content,
    /// The offset in the node.
    pub offset: u32,
    /// The number of bytes.
    pub bytes: u32,
}

impl Block {
    /// Returns a block of these bytes.
    pub(super) fn new(content: Content, bytes: &Range<usize>) -> Self {
        Block { content, offset: bytes.start as u32, bytes: bytes.len() as u32 }
    }
}

impl Fetch {
    /// Returns the blocks of a node that an operation needs.
    pub fn blocks(self, node: &NodeLayout, visit: Visit) -> Vec<Block> {
        match self {
            Fetch::Paper => whole(node, visit, true),
            Fetch::WithoutLog => whole(node, visit, false),
            Fetch::Lines => lines(node, visit),
        }
    }
}

/// Returns the segments from which an operation has read.
fn segments(node: &NodeLayout, visit: Visit) -> impl Iterator<Item = &Range<usize>> {
    node.segments.iter().filter(move |segment| visit.read.has_some_of((*segment).clone()))
}

fn whole(node: &NodeLayout, visit: Visit, with_log: bool) -> Vec<Block> {
    let mut blocks = vec![Block { content: Content::Shortcut, offset: 0, bytes: SHORTCUT_BLOCK_SIZE }];
    if with_log && !node.log.is_empty() {
        blocks.push(Block::new(Content::Log(node.log_count as u32), &node.log));
    }
    blocks.extend(segments(node, visit).map(|segment| Block::new(Content::Segment, segment)));
    blocks
}

fn lines(node: &NodeLayout, visit: Visit) -> Vec<Block> {
    let shortcut = 0..SHORTCUT_BLOCK_SIZE as usize;
    let mut blocks: Vec<Block> = runs(visit, shortcut).map(|run| Block::new(Content::Shortcut, &run)).collect();
    // The entries are sorted once, however many reads their lines take.
    let log = |number: usize| Content::Log(if number == 0 { node.log_count as u32 } else { 0 });
    blocks.extend(runs(visit, node.log.clone()).enumerate().map(|(number, run)| Block::new(log(number), &run)));
    for segment in segments(node, visit) {
        // A segment of an interior node begins with a line of hints, which a card does not need.
        let start = if node.level > 0 { segment.start + LINE_SIZE } else { segment.start };
        let head_end = start / LINE_SIZE * LINE_SIZE + LINE_SIZE;
        let parts = runs(visit, start..head_end).chain(runs(visit, head_end..segment.end.max(head_end)));
        blocks.extend(parts.map(|run| Block::new(Content::Segment, &run)));
    }
    blocks
}

/// Returns runs of adjacent lines that were read, within the lines of these bytes.
fn runs(visit: Visit, bytes: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut line = bytes.start / LINE_SIZE;
    let end = if bytes.is_empty() { line } else { bytes.end.div_ceil(LINE_SIZE) };
    let is_read = move |line: usize| {
        let (from, to) = (line * LINE_SIZE, (line + 1) * LINE_SIZE);
        visit.read.has_some_of(from.max(bytes.start)..to.min(bytes.end))
    };
    std::iter::from_fn(move || {
        while line < end && !is_read(line) {
            line += 1;
        }
        let first = line;
        while line < end && is_read(line) {
            line += 1;
        }
        (first < line).then_some(first * LINE_SIZE..line * LINE_SIZE)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Reading, Tree};
    use super::*;

    /// Returns the mean bytes of a node of a level, and the mean number of blocks.
    fn means(tree: &Tree, fetch: Fetch, level: u8) -> (f64, f64) {
        let reading = if fetch == Fetch::Lines { Reading::Get } else { Reading::Scan(1) };
        let recording = tree.record(reading, 2000, 3);
        let visits = (0..recording.len()).flat_map(|operation| recording.visits(operation));
        let (mut nodes, mut bytes, mut blocks) = (0, 0, 0);
        for visit in visits.filter(|visit| tree.nodes()[visit.node as usize].level == level) {
            let node = &tree.nodes()[visit.node as usize];
            let fetched = fetch.blocks(node, *visit);
            let entries = |block: &Block| if let Content::Log(entries) = block.content { entries } else { 0 };
            let sorted = fetched.iter().map(entries).sum::<u32>() as usize;
            assert!(sorted == 0 || sorted == node.log_count, "{sorted} of {}", node.log_count);
            nodes += 1;
            blocks += fetched.len();
            bytes += fetched.iter().map(|block| block.bytes).sum::<u32>();
        }
        (f64::from(bytes) / f64::from(nodes), blocks as f64 / f64::from(nodes))
    }

    #[test]
    fn lines_are_a_part_of_the_blocks_of_the_paper() {
        let tree = Tree::load(200_000);
        for level in [0, 1] {
            let (paper, _) = means(&tree, Fetch::Paper, level);
            let (without_log, blocks) = means(&tree, Fetch::WithoutLog, level);
            let (lines, line_blocks) = means(&tree, Fetch::Lines, level);
            println!("level {level}: {paper}, {without_log}, {lines} B, {line_blocks} reads");
            assert_eq!(without_log == paper, level > 0, "only leaves have logs");
            assert_eq!(blocks, 2.0);
            assert!(lines >= 192.0 && lines < 0.5 * paper && line_blocks >= 2.0, "{lines} of {paper}");
        }
    }
}
