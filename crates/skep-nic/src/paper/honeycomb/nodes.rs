//! Section 3.1: the bytes of a node that a search reads, and those of a tree of small nodes.
//!
//! Run: SCANs of one item, because the paper's card executes GETs as such, and GETs of the store. The bytes are those
//! of the blocks that the card fetches, and of the lines that the store reads itself.

use super::super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use super::memory::NODE_SIZE;
use super::{PAIRS, tree};
use crate::honeycomb::fetch::{Fetch, SHORTCUT_BLOCK_SIZE};
use crate::honeycomb::tree::{KEY_SIZE, PAIR_SIZE, Reading, Recording, Tree};

pub(in super::super) const ITEM: Item = Item {
    name: "honeycomb-nodes",
    title: "Bytes that a search reads of Honeycomb's nodes",
    paper: include_str!("../../../papers/honeycomb-nodes.csv"),
    x: Axis::linear("level (0: leaf)"),
    y: Axis::logarithmic("bytes or ratio, as the series says"),
    tolerance: Tolerance::Relative(0.15),
    no_evidence: &[NoEvidence::calculation(
        "The tree of 512 B nodes is a closed form: nodes that are 55 % full, a header of 48 B and 2 B for each key and \
         value. It has as many pairs as a tree of five levels of our nodes.",
        |series, _| series.contains("512 B nodes"),
    )],
    open: &[BOUND],
    run: measure,
};

const BOUND: &str = "bytes of a node (at most)";
const WHOLE: &str = "whole nodes over the bytes read";
const SMALL: &str = "bytes over a tree of 512 B nodes (at most)";
const SMALL_INTERIOR: &str = "interior bytes over a tree of 512 B nodes (about)";
const GETS: usize = 20_000;
/// The paper's bound for the bytes that a search reads of a node.
const BYTES_MOST: f64 = 1536.0;
/// Levels of the tree in the paper's comparison.
const LEVELS: i32 = 5;
const SMALL_NODE: f64 = 512.0;
const OCCUPANCY: f64 = 0.55;
const HEADER: f64 = 48.0;
const LID: f64 = 6.0;
/// Bytes of the header of a key or a value.
const BLOB_HEADER: f64 = 2.0;

/// Bytes of the nodes that operations read, in sums over their visits.
#[derive(Clone, Copy, Debug, Default)]
struct Visited {
    visits: f64,
    /// Bytes that the paper's card fetches.
    fetched: f64,
    /// The most of them of one visit.
    fetched_most: f64,
    /// Bytes of the lines that the store reads.
    lines: f64,
    /// Bytes of frames.
    frames: f64,
}

fn measure(context: &mut Context<'_>) -> Findings {
    let tree = tree();
    context.progress(1, 2);
    let [scans, gets] = [Reading::Scan(1), Reading::Get].map(|reading| tree.record(reading, GETS, context.seed));
    let [leaf, interior] = [true, false].map(|is_leaf| Visited::of(tree, &scans, is_leaf));
    let [leaf_lines, interior_lines] =
        [true, false].map(|is_leaf| Visited::of(tree, &gets, is_leaf)).map(|of_gets| of_gets.lines / of_gets.visits);
    let all = leaf.and(interior);
    let shape = Shape::of(tree);
    let small = SmallNodes::of(shape.pairs());
    let [leaf_bytes, interior_bytes] = [leaf, interior].map(|visited| visited.fetched / visited.visits);
    let bytes = leaf_bytes + f64::from(LEVELS - 1) * interior_bytes;
    let ours = |series: &str, level: f64| match series {
        BOUND if level == 0.0 => (leaf.fetched_most, Tolerance::AtMost),
        BOUND => (interior.fetched_most, Tolerance::AtMost),
        WHOLE => (NODE_SIZE * all.visits / all.fetched, ITEM.tolerance),
        SMALL => (bytes / (small.levels * SMALL_NODE), Tolerance::AtMost),
        SMALL_INTERIOR => (shape.interior_bytes() / (small.interior_count * SMALL_NODE), ITEM.tolerance),
        other => unreachable!("{other} is in no row"),
    };
    let points = ITEM.references().into_iter().map(|reference| {
        let (ours, tolerance) = ours(&reference.series, reference.x());
        Point::new(&reference, ours).within(tolerance)
    });
    let points: Vec<Point> = points.collect();
    let below_root = f64::from(tree.nodes()[0].level) - 1.0;
    let variant = |name: &str, ratio: f64| {
        Sentence::variant(name, &ITEM, &points, WHOLE, &Curve::beside(WHOLE, name, vec![(0.0, ratio)]))
    };
    let sentences = vec![
        variant("if a search read the 1.5 KB of the paper's bound from each node", NODE_SIZE / BYTES_MOST),
        variant("if a whole node had only the bytes of its content", all.frames / all.fetched),
        Figures::new("Mean bytes that a search reads")
            .with("of a leaf", leaf_bytes)
            .with("of an interior node", interior_bytes)
            .sentence(),
        Figures::new("Bytes of a GET below the root")
            .with("as the paper's card fetches", leaf_bytes + below_root * interior_bytes)
            .with("in the lines that the store reads", leaf_lines + below_root * interior_lines)
            .sentence(),
        Figures::new("The tree of 512 B nodes")
            .with("levels", small.levels)
            .with("pairs (thousand million)", shape.pairs() / 1e9)
            .with("pairs of a leaf", SmallNodes::pairs_of_leaf(SMALL_NODE, HEADER))
            .with(
                "of a leaf of 8 KiB that is as full",
                SmallNodes::pairs_of_leaf(NODE_SIZE, SHORTCUT_BLOCK_SIZE.into()),
            )
            .sentence(),
        Sentence::fact(
            "The paper does not say how its tree of 512 B nodes is built. One entry of an interior node stands for all \
             pairs of a leaf.",
        ),
    ];
    Findings {
        points,
        curves: Vec::new(),
        setting: format!(
            "{GETS} SCANs of one item, and as many GETs, on random keys of a tree of {} million pairs of 16 + 16 B, loaded \
             in random order: {} levels. The root is left out, because it has only {} children. Bounds are judged by the \
             most bytes of any visit. A whole node has 8 KiB, as the paper's; our nodes have as many bytes as their \
             content.",
            PAIRS / 1_000_000,
            below_root + 2.0,
            tree.nodes_of_level(tree.nodes()[0].level - 1),
        ),
        sentences,
    }
}

impl Visited {
    /// Sums over the visits of leaves, or of interior nodes below the root.
    fn of(tree: &Tree, recording: &Recording, is_leaf: bool) -> Self {
        let visits = (0..recording.len()).flat_map(|operation| recording.visits(operation));
        let mut sums = Visited::default();
        for visit in visits {
            let node = &tree.nodes()[visit.node as usize];
            if node.lid != 0 && (node.level == 0) == is_leaf {
                let bytes =
                    |fetch: Fetch| f64::from(fetch.blocks(node, *visit).iter().map(|block| block.bytes).sum::<u32>());
                let fetched = bytes(Fetch::Paper);
                sums.visits += 1.0;
                sums.fetched += fetched;
                sums.fetched_most = sums.fetched_most.max(fetched);
                sums.lines += bytes(Fetch::Lines);
                sums.frames += node.frame_size as f64;
            }
        }
        sums
    }

    fn and(self, other: Self) -> Self {
        Visited {
            visits: self.visits + other.visits,
            fetched: self.fetched + other.fetched,
            fetched_most: self.fetched_most.max(other.fetched_most),
            lines: self.lines + other.lines,
            frames: self.frames + other.frames,
        }
    }
}

/// Means over all nodes of our tree, for one with the levels of the paper's comparison.
struct Shape {
    fanout: f64,
    pairs_of_leaf: f64,
    interior_frame: f64,
}

impl Shape {
    fn of(tree: &Tree) -> Self {
        let interior = || tree.nodes().iter().filter(|node| node.level > 0);
        let (interiors, leaves) = (interior().count() as f64, tree.nodes_of_level(0) as f64);
        Shape {
            // Every node except the root is a child.
            fanout: (leaves + interiors - 1.0) / interiors,
            pairs_of_leaf: PAIRS as f64 / leaves,
            interior_frame: interior().map(|node| node.frame_size as f64).sum::<f64>() / interiors,
        }
    }

    fn pairs(&self) -> f64 {
        self.pairs_of_leaf * self.fanout.powi(LEVELS - 1)
    }

    fn interior_bytes(&self) -> f64 {
        (0..LEVELS - 1).map(|level| self.fanout.powi(level)).sum::<f64>() * self.interior_frame
    }
}

/// A tree of small nodes, calculated.
struct SmallNodes {
    levels: f64,
    interior_count: f64,
}

impl SmallNodes {
    fn of(pairs: f64) -> Self {
        let mut nodes = pairs / SmallNodes::pairs_of_leaf(SMALL_NODE, HEADER);
        let fanout = OCCUPANCY * (SMALL_NODE - HEADER) / (KEY_SIZE as f64 + BLOB_HEADER + LID);
        let (mut levels, mut interior_count) = (1.0, 0.0);
        while nodes > 1.0 {
            nodes = (nodes / fanout).max(1.0);
            interior_count += nodes;
            levels += 1.0;
        }
        SmallNodes { levels, interior_count }
    }

    /// Returns the pairs of a leaf of this size with a header, also of larger ones.
    fn pairs_of_leaf(size: f64, header: f64) -> f64 {
        OCCUPANCY * (size - header) / (PAIR_SIZE as f64 + 2.0 * BLOB_HEADER)
    }
}
