//! Section 3.1: the bytes of a node that a search reads, and those of a tree of small nodes.
//!
//! Run: SCANs of one item, as which the paper's card executes GETs, and GETs of the store. The bytes are those of the
//! blocks that the card fetches, and of the lines that the store reads itself.

use super::super::{Axis, Context, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use super::{PAIRS, tree};
use crate::honeycomb::fetch::Fetch;
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
    run: measure,
};

const GETS: usize = 20_000;
/// Levels of the tree in the paper's comparison.
const LEVELS: i32 = 5;
const SMALL_NODE: f64 = 512.0;
const OCCUPANCY: f64 = 0.55;
const HEADER: f64 = 48.0;
const LID: f64 = 6.0;
/// Bytes of the header of a key or a value.
const BLOB_HEADER: f64 = 2.0;

/// Means over the nodes that operations read.
#[derive(Clone, Copy, Debug, Default)]
struct Means {
    /// Bytes that the paper's card fetches.
    fetched: f64,
    /// Bytes of the lines that the store reads.
    lines: f64,
    /// Bytes of frames.
    frames: f64,
}

fn measure(context: &mut Context<'_>) -> Findings {
    let tree = tree();
    context.progress(1, 2);
    let [scans, gets] = [Reading::Scan(1), Reading::Get].map(|reading| tree.record(reading, GETS, context.seed));
    let [leaf, interior] = [0, 1].map(|level| means(tree, &scans, &gets, level));
    let root_level = f64::from(tree.nodes()[0].level);
    let whole = (leaf.frames + root_level * interior.frames) / (leaf.fetched + root_level * interior.fetched);
    let of_level = |is_leaf: bool| tree.nodes().iter().filter(move |node| (node.level == 0) == is_leaf);
    let [leaves, interiors] = [true, false].map(|is_leaf| of_level(is_leaf).count() as f64);
    // Every node except the root is a child.
    let (fanout, of_leaf) = ((leaves + interiors - 1.0) / interiors, PAIRS as f64 / leaves);
    let pairs = of_leaf * fanout.powi(LEVELS - 1);
    let small = SmallNodes::of(pairs);
    let bytes = leaf.fetched + f64::from(LEVELS - 1) * interior.fetched;
    let interior_frames = of_level(false).map(|node| node.frame_size as f64).sum::<f64>() / interiors;
    let interior_count = (0..LEVELS - 1).map(|level| fanout.powi(level)).sum::<f64>();
    let ours = [
        leaf.fetched,
        interior.fetched,
        whole,
        bytes / (small.levels * SMALL_NODE),
        interior_count * interior_frames / (small.interior_count * SMALL_NODE),
    ];
    let tolerances = [Tolerance::AtMost, Tolerance::AtMost, ITEM.tolerance, Tolerance::AtMost, Tolerance::AtMost];
    let published = ITEM.references();
    let points = published.iter().zip(ours).zip(tolerances);
    let below_root = |of: fn(Means) -> f64| of(leaf) + (root_level - 1.0) * of(interior);
    Findings {
        points: points.map(|((reference, ours), tolerance)| Point::new(reference, ours).within(tolerance)).collect(),
        curves: Vec::new(),
        setting: format!(
            "{GETS} SCANs of one item, and as many GETs, on random keys of a tree of {} million pairs of 16 + 16 B, loaded in random order: {} levels. Our \
             nodes have as many bytes as their content, up to 8 KiB; the paper's always have 8 KiB.",
            PAIRS / 1_000_000,
            root_level + 1.0,
        ),
        sentences: vec![
            Figures::new("Bytes of a GET below the root")
                .with("as the paper's card fetches", below_root(|means| means.fetched))
                .with("in the lines that the store reads", below_root(|means| means.lines))
                .sentence(),
            Figures::new("The tree of 512 B nodes")
                .with("levels", small.levels)
                .with("pairs (thousand million)", pairs / 1e9)
                .sentence(),
            Sentence::fact(
                "The paper does not say how its tree of 512 B nodes is built. One entry of an interior node stands for all \
                 pairs of a leaf, and a leaf of 8 KiB has 18 times as many as one of 512 B: so its interior nodes take \
                 far less than a quarter.",
            ),
        ],
    }
}

/// A tree of small nodes, calculated.
struct SmallNodes {
    levels: f64,
    interior_count: f64,
}

impl SmallNodes {
    fn of(pairs: f64) -> Self {
        let entries = |bytes: f64| OCCUPANCY * (SMALL_NODE - HEADER) / bytes;
        let mut nodes = pairs / entries(PAIR_SIZE as f64 + 2.0 * BLOB_HEADER);
        let fanout = entries(KEY_SIZE as f64 + BLOB_HEADER + LID);
        let (mut levels, mut interior_count) = (1.0, 0.0);
        while nodes > 1.0 {
            nodes = (nodes / fanout).max(1.0);
            interior_count += nodes;
            levels += 1.0;
        }
        SmallNodes { levels, interior_count }
    }
}

/// Returns the means over the visits of leaves, or of the interior nodes of a level. Lines are those of GETs.
fn means(tree: &Tree, scans: &Recording, gets: &Recording, level: u8) -> Means {
    let of_scans = of_visits(tree, scans, level);
    Means { lines: of_visits(tree, gets, level).lines, ..of_scans }
}

fn of_visits(tree: &Tree, recording: &Recording, level: u8) -> Means {
    let visits = (0..recording.len()).flat_map(|operation| recording.visits(operation));
    let (mut sums, mut count) = (Means::default(), 0.0);
    for visit in visits {
        let node = &tree.nodes()[visit.node as usize];
        if node.level == level {
            let bytes =
                |fetch: Fetch| f64::from(fetch.blocks(node, *visit).iter().map(|block| block.bytes).sum::<u32>());
            sums.fetched += bytes(Fetch::Paper);
            sums.lines += bytes(Fetch::Lines);
            sums.frames += node.frame_size as f64;
            count += 1.0;
        }
    }
    Means { fetched: sums.fetched / count, lines: sums.lines / count, frames: sums.frames / count }
}
