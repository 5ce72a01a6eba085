//! Section 6.2: memory for each byte of keys and values.
//!
//! Run: a tree that is loaded in random order. Its memory is that of its region which was ever used, and of its page
//! table.

use super::super::{Axis, Context, Curve, Findings, Item, Point, Sentence, Tolerance};
use super::{PAIRS, tree};
use crate::honeycomb::tree::PAIR_SIZE;

const SERIES: &str = "bytes for a raw byte (about)";
/// Bytes of a node of the paper.
pub(super) const NODE_SIZE: f64 = 8192.0;

pub(in super::super) const ITEM: Item = Item {
    name: "honeycomb-memory",
    title: "Memory of Honeycomb's tree for each byte of keys and values",
    paper: include_str!("../../../papers/honeycomb-memory.csv"),
    x: Axis::linear("key and value (B)"),
    y: Axis::linear("bytes for a raw byte"),
    tolerance: Tolerance::Relative(0.05),
    no_evidence: &[],
    open: &[],
    run: measure,
};

fn measure(context: &mut Context<'_>) -> Findings {
    let (tree, raw) = (tree(), (PAIRS * PAIR_SIZE as u64) as f64);
    context.progress(1, 1);
    let points: Vec<Point> =
        ITEM.references().iter().map(|reference| Point::new(reference, tree.bytes_for_a_raw_byte())).collect();
    let whole = tree.nodes().len() as f64 * NODE_SIZE / raw;
    let name = "if every node took 8 KiB, as the paper's";
    let curve = Curve::beside(SERIES, name, points.iter().map(|point| (point.x, whole)).collect());
    Findings {
        sentences: vec![Sentence::variant(name, &ITEM, &points, SERIES, &curve)],
        points,
        curves: vec![curve],
        setting: format!(
            "A tree of {} million pairs of 16 + 16 B, loaded in random order. It is the same for every seed.",
            PAIRS / 1_000_000
        ),
    }
}
