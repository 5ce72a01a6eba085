//! Honeycomb's evaluation, on the model of its card and counted on the product's tree.
//!
//! All items read one tree, which is loaded once. It has four levels, as that of the paper's 128 million pairs. The
//! card runs operations on sixteen copies of it. They have as many interior nodes together as the paper's tree, and one
//! root, which is read like a node below it: so it has as many bytes as a root with the children of all copies.

mod fig10;
mod fig11;
mod fig12;
mod fig14;
mod fig15;
mod fig16;
mod fig17;
mod masstree;
mod memory;
mod nodes;

pub(super) use fig10::ITEM as FIG10;
pub(super) use fig11::ITEM as FIG11;
pub(super) use fig12::ITEM as FIG12;
pub(super) use fig14::ITEM as FIG14;
pub(super) use fig15::ITEM as FIG15;
pub(super) use fig16::ITEM as FIG16;
pub(super) use fig17::ITEM as FIG17;
pub(super) use memory::ITEM as MEMORY;
pub(super) use nodes::ITEM as NODES;

use std::sync::OnceLock;

use super::Context;
use crate::honeycomb::card::HoneycombCard;
use crate::honeycomb::fetch::Fetch;
use crate::honeycomb::memory::Options;
use crate::honeycomb::mixed::{Mix, MixedOutcome, run_mixed};
use crate::honeycomb::run::{Outcome, Run, run_recorded};
use crate::honeycomb::tree::{Reading, Recording, Tree};

/// Pairs of the tree. With four million it has three levels.
const PAIRS: u64 = 8_000_000;
/// Operations that fill the cache before a run, several times.
const WARMING: usize = 60_000;
/// Operations that fill a cache with room for all interior nodes, which has them before.
const LITTLE_WARMING: usize = 1_000;
/// Operations of a run.
const TIMED: usize = 6_000;

/// Returns the tree of all items.
fn tree() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(|| Tree::load(PAIRS))
}

/// Recorded operations of one seed, and the card that they run on.
#[derive(Clone)]
struct Load {
    card: HoneycombCard,
    recording: Recording,
    seed: u64,
}

impl Load {
    /// Records operations of a kind.
    fn of(context: &Context<'_>, reading: Reading) -> Self {
        Load::warmed(context, reading, WARMING)
    }

    /// Records operations of a kind, of which some fill the cache. A cache with room for all interior nodes has them
    /// before the first operation.
    fn warmed(context: &Context<'_>, reading: Reading, warming: usize) -> Self {
        let recording = tree().record(reading, warming + TIMED, context.seed);
        Load { card: HoneycombCard::of_the_paper(), recording, seed: context.seed }
    }

    fn run(&self, fetch: Fetch, options: Options) -> Outcome {
        self.run_on(&self.card, fetch, options)
    }

    /// Runs the operations beside insertions, on the card and on cores.
    fn run_mixed(&self, mix: Mix, options: Options) -> MixedOutcome {
        run_mixed(&self.card, tree(), &self.recording, options, mix, Run { timed: TIMED, seed: self.seed })
    }

    fn run_on(&self, card: &HoneycombCard, fetch: Fetch, options: Options) -> Outcome {
        run_recorded(card, tree(), &self.recording, fetch, options, Run { timed: TIMED, seed: self.seed })
    }
}

/// Returns the options of the paper's card, with a cache of this size for 128 million pairs.
fn with_cache(cache_mib: f64) -> Options {
    Options::of_the_paper(cache_mib)
}

/// Returns a sentence about the tree and the load of a run.
fn setting(load: &Load) -> String {
    let copies = load.card.cache.pairs / PAIRS;
    let root_level = tree().nodes()[0].level;
    format!(
        "{TIMED} {} of a tree of {} million pairs of 16 + 16 B, after {} that fill the \
         cache; {} at a time, on the card {}. The tree is the product's, loaded in random order, and the same for every \
         seed. Each operation is on one of {copies} copies of it. Their common root would have {} children, and is read \
         like the nodes below it, which have {:.0} on average.",
        scans(load),
        PAIRS / 1_000_000,
        load.recording.len() - TIMED,
        load.card.accelerator.requests_in_flight,
        load.card.name,
        copies * tree().nodes_of_level(root_level - 1) as u64,
        tree().nodes_of_level(root_level - 2) as f64 / tree().nodes_of_level(root_level - 1) as f64,
    )
}

/// Returns a sentence about a run beside insertions.
fn mixed_setting(load: &Load) -> String {
    format!(
        "{TIMED} operations: {}, and insertions, on the card {} and {} cores. The lines and entries of an insertion are \
         those of the last {} of the tree's load. Reads go to the card; if all its requests are in flight, to a core \
         without work.",
        scans(load),
        load.card.name,
        load.card.host.cores,
        tree().insertions().len(),
    )
}

/// Names the reads of a load.
fn scans(load: &Load) -> String {
    match load.recording.items {
        1 => "SCANs of one item on random keys".to_owned(),
        items => format!("SCANs of {items} items on random keys"),
    }
}
