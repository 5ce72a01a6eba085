//! Packs pairs in the order of their keys into a leaf, for a bulk load.
//!
//! ```text
//! pairs ──▶ │ segment: up to a size, or up to 16 pairs │ segment │ ... ──▶ the leaf is full: the others are for the next
//! ```
//!
//! A [`Packing`] that is tight makes the largest segments that a leaf may have, and leaves no room for a log. A segment
//! whose pairs have one size takes least, so a segment ends where a long run of such pairs begins or ends. Hence a leaf
//! that was left by writes seldom has more pairs in a frame of its size, and a store that is packed takes no more memory
//! than the one that was written.

use std::ops::Range;

use super::super::memory::number::FRAME_SIZE_MAX;
use super::super::node::log::LogBlock;
use super::super::node::segment::{self, ITEM_COUNT_MAX, Item, SEGMENT_SIZE_GOAL};
use super::super::node::shortcut::{BOUNDARIES_SIZE_MAX, BOUNDARIES_START, END_SIZE};
use super::super::node::shortcut::{SEGMENT_ALIGNMENT, SEGMENT_COUNT_MAX};
use super::build::{LeafPlan, Part, Sorted, size_of_pair};
use crate::memory::LINE_SIZE;

/// Pairs of one size from which on a segment of their own takes less than the head of a varied one.
const RUN_MIN: usize = 11;

/// How leaves are filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    log_block: LogBlock,
    /// The size of pairs that ends a segment.
    goal: usize,
}

impl Packing {
    /// Leaves with room for a log, and segments that are searched quickly.
    pub(crate) fn with_log(log_block: LogBlock) -> Self {
        Packing { log_block, goal: SEGMENT_SIZE_GOAL }
    }

    /// Leaves with as many pairs as possible.
    pub(crate) const TIGHT: Packing = Packing { log_block: LogBlock::LEAST, goal: usize::MAX };

    /// Plans a leaf of the first of these pairs, as many as fit. It has all of them if they are few.
    pub(crate) fn plan<'a>(self, items: &[Item<'a>]) -> LeafPlan<'a> {
        let goal = self.goal_for(items);
        let (mut segments, mut start, mut boundaries, mut body) = (Vec::with_capacity(SEGMENT_COUNT_MAX), 0, 0, 0);
        while start < items.len() && segments.len() < SEGMENT_COUNT_MAX {
            let has_boundary = start > 0;
            let boundary = if has_boundary { END_SIZE + items[start].key.len() } else { 0 };
            if boundaries + boundary > BOUNDARIES_SIZE_MAX {
                break;
            }
            let body_start = (BOUNDARIES_START + boundaries + boundary).next_multiple_of(SEGMENT_ALIGNMENT);
            let fits = |end: &usize| {
                let size = body_start + body + segment::size(&items[start..*end], has_boundary);
                size.next_multiple_of(LINE_SIZE) + self.log_block.size() <= FRAME_SIZE_MAX
            };
            let mut wanted = segment_end(items, start, goal);
            if items
                .get(wanted)
                .is_some_and(|next| boundaries + boundary + END_SIZE + next.key.len() > BOUNDARIES_SIZE_MAX)
            {
                wanted = segment_end(items, start, usize::MAX);
            }
            let Some(end) = (start + 1..=wanted).rev().find(fits) else { break };
            segments.push(start..end);
            body += segment::size(&items[start..end], has_boundary).next_multiple_of(SEGMENT_ALIGNMENT);
            boundaries += boundary;
            start = end;
            if end < wanted {
                break;
            }
        }
        let parts = segments.into_iter().map(Part::Written).collect();
        let sorted = Sorted { parts, items: items[..start].to_vec(), edits: &[] };
        LeafPlan::new(sorted, self.log_block).expect("its size was computed")
    }

    /// Returns the size of pairs that ends a segment. If keys are long, the few segments with a boundary key that fits are
    /// large enough to fill the leaf.
    fn goal_for(self, items: &[Item<'_>]) -> usize {
        let keys: usize = items.iter().map(|item| END_SIZE + item.key.len()).sum();
        let segments = BOUNDARIES_SIZE_MAX * items.len() / keys.max(1) + 1;
        self.goal.max(FRAME_SIZE_MAX / segments)
    }
}

/// Returns the end of the segment that begins with this pair.
fn segment_end(items: &[Item<'_>], start: usize, goal: usize) -> usize {
    let most = items.len().min(start + ITEM_COUNT_MAX);
    let mut size = 0;
    let is_full = |index: &usize| {
        size += size_of_pair(&items[*index]);
        size >= goal
    };
    let end = (start..most).find(is_full).map_or(most, |last| last + 1);
    let run = run_from(items, start..end);
    if run == end - start {
        end
    } else if run >= RUN_MIN {
        start + run
    } else {
        let begins_run = |next: &usize| run_from(items, *next..*next + ITEM_COUNT_MAX) == ITEM_COUNT_MAX;
        (start + 1..end).find(begins_run).unwrap_or(end)
    }
}

/// Returns how many of these items have the sizes of the first one, up to one that has others.
fn run_from(items: &[Item<'_>], range: Range<usize>) -> usize {
    let sizes = |item: &Item<'_>| (item.key.len(), item.value.bytes.len());
    let items = &items[range.start..range.end.min(items.len())];
    items.iter().take_while(|item| sizes(item) == sizes(&items[0])).count()
}
