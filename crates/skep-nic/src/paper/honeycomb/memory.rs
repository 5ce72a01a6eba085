//! Section 6.2: memory for each byte of keys and values.
//!
//! Run: a tree that is loaded in random order. Its memory is that of its region which was ever used, and of its page
//! table.

use super::super::{Axis, Context, Findings, Item, Point, Tolerance};
use super::{PAIRS, tree};

pub(in super::super) const ITEM: Item = Item {
    name: "honeycomb-memory",
    title: "Memory of Honeycomb's tree for each byte of keys and values",
    paper: include_str!("../../../papers/honeycomb-memory.csv"),
    x: Axis::linear("key and value (B)"),
    y: Axis::linear("bytes for a raw byte"),
    tolerance: Tolerance::AtMost,
    no_evidence: &[],
    run: measure,
};

fn measure(context: &mut Context<'_>) -> Findings {
    let ours = tree().bytes_for_a_raw_byte();
    context.progress(1, 1);
    Findings {
        points: ITEM.references().iter().map(|reference| Point::new(reference, ours)).collect(),
        setting: format!(
            "A tree of {} million pairs of 16 + 16 B, loaded in random order. It is the same for every seed.",
            PAIRS / 1_000_000
        ),
        ..Findings::default()
    }
}
