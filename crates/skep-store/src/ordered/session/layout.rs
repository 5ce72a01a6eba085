//! The layout of all nodes: where their blocks are. The model of Honeycomb's card reads these blocks (section 3.1).

use std::ops::Range;

use super::super::memory::number::Lid;
use super::super::node::frame::Node;
use super::super::node::interior;
use super::super::node::shortcut::{BOUNDARIES_START, Shortcuts};
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;
use super::Session;
use crate::memory::LINE_SIZE;

/// The layout of the latest frame of a node. Ranges count bytes from the start of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLayout {
    /// Its logical identifier.
    pub lid: usize,
    /// The offset of its frame in the region.
    pub offset: usize,
    /// Bytes of its frame.
    pub frame_size: usize,
    /// 0 for a leaf.
    pub level: u8,
    /// The end of header and shortcut block, which begin at 0.
    pub shortcut_end: usize,
    /// The segments in order.
    pub segments: Vec<Range<usize>>,
    /// The log block in use: its directory and its entries. Empty if there are none.
    pub log: Range<usize>,
    /// Entries of the log block.
    pub log_count: usize,
}

impl Session<'_> {
    /// Returns the layouts of all nodes, each node before its children. No session may write meanwhile.
    pub fn layouts(&mut self) -> Vec<NodeLayout> {
        let (store, guard) = self.enter();
        let mut layouts = Vec::new();
        add(store, &guard, store.latest(Lid::ROOT, &guard), &mut layouts);
        layouts
    }
}

fn add(store: &OrderedStore, guard: &Guard<'_>, node: Node<'_>, layouts: &mut Vec<NodeLayout>) {
    layouts.push(layout_of(node));
    if node.level() > 0 {
        for child in interior::children(node) {
            add(store, guard, store.latest(child.lid, guard), layouts);
        }
    }
}

fn layout_of(node: Node<'_>) -> NodeLayout {
    let shortcuts = Shortcuts::open(node);
    let segments =
        (0..shortcuts.segment_count()).map(|index| shortcuts.segment_start(index)..shortcuts.segment_end(index));
    let (log_start, is_leaf) = (node.log_start(), node.level() == 0);
    let log_count = if is_leaf { node.state().log_count() } else { 0 };
    let log_size = if log_count > 0 { LINE_SIZE + node.state().log_size() } else { 0 };
    NodeLayout {
        lid: node.lid().index(),
        offset: node.number().byte_offset(),
        frame_size: node.frame_size(),
        level: node.level(),
        shortcut_end: BOUNDARIES_START + shortcuts.boundaries_size(),
        segments: segments.collect(),
        log: log_start..log_start + log_size,
        log_count,
    }
}
