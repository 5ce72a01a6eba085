//! Calculates the throughput of Honeycomb's card with a given load, and the bottleneck: reads by the card, insertions and
//! other reads by the cores of the host.
//!
//! ```text
//! sizes of the pairs ─▶ tree of the product, several copies ─▶ memory, page table
//! a run ─▶ throughput;  runs with one resource doubled ─▶ bottleneck;  a run of one read after the other ─▶ latency
//! ```
//!
//! The tree has at most eight million pairs. The card runs operations on copies of it, which have the pairs of the load.
//! All seeds read one tree.

use super::resources::BUSY_MIN;
use super::{SizingError, demand::refuse, median, of_seeds};
use crate::honeycomb::card::{HoneycombCard, PAIRS_MIN};
use crate::honeycomb::fetch::Fetch;
use crate::honeycomb::memory::Options;
use crate::honeycomb::mixed::{Mix, MixedOutcome, run_mixed};
use crate::honeycomb::run::{Run, run_recorded};
use crate::honeycomb::tree::{KEY_SIZE_MIN, PairSizes, Reading, Recording, SIZE_MAX, Tree};

/// Pairs of the largest tree: it has four levels, as that of the paper.
const TREE_PAIRS_MAX: u64 = 8_000_000;
const PAIRS_MAX: u64 = 1 << 36;
const ITEMS_MAX: u32 = 1000;
/// Operations that fill the cache, beside all interior nodes; that are timed; and that are timed if something is doubled.
const WARMING: usize = 1000;
const OPERATIONS: usize = 6000;
const OPERATIONS_IF: usize = 4000;
/// Reads of which one follows the other.
const OPERATIONS_ALONE: usize = 500;
/// A resource is not the bottleneck if its doubling gains less than this.
const GAIN_MIN: f64 = 0.02;

/// The load of the card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderedDemand {
    /// Bytes of a key and of a value.
    pub sizes: PairSizes,
    /// Items of a SCAN. The card executes a GET as a SCAN of one item.
    pub items: u32,
    /// Share of insertions, and of PUTs of existing keys. The others are reads.
    pub writes: f64,
    /// Number of pairs. `None`: those that the card's cache is made for.
    pub pairs: Option<u64>,
}

/// The throughput of the card with its host: of one seed, or medians over several.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderedSizing {
    /// Number of pairs.
    pub pairs: u64,
    /// Bytes of memory of the host that they need.
    pub memory_bytes: u64,
    /// Millions of operations a second.
    pub mops: f64,
    /// The lowest and the highest of the seeds.
    pub mops_range: [f64; 2],
    /// Bytes that the card reads for an operation, over PCIe and from its cache.
    pub bytes: f64,
    /// Share of the reads that cores execute.
    pub reads_by_cores: f64,
    /// Time of a read by the card at the full rate, and of one that is alone, without the network's delay.
    pub read_us: [f64; 2],
    /// Time of an insertion at the full rate, without the network's delay. 0 if there are none.
    pub insertion_us: f64,
    /// The resources, with the share of the time in which each was busy.
    pub resources: Vec<OrderedResource>,
    /// The resource whose doubling gains most.
    pub bottleneck: &'static str,
}

/// A resource of the card or its host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderedResource {
    /// Its name.
    pub name: &'static str,
    /// Share of the time in which it was busy. `None` if it is a number of places.
    pub busy: Option<f64>,
    /// Millions of operations a second if it is doubled.
    pub mops_if_doubled: f64,
}

impl OrderedResource {
    /// Returns the millions of operations a second that it alone would allow at this rate.
    pub fn bound_mops(&self, mops: f64) -> Option<f64> {
        self.busy.filter(|busy| *busy > 0.0).map(|busy| mops / busy)
    }
}

/// A resource and its doubling.
struct Doubling {
    name: &'static str,
    busy: fn(&MixedOutcome) -> Option<f64>,
    apply: fn(&mut HoneycombCard),
}

const DOUBLINGS: &[Doubling] = &[
    Doubling { name: "PCIe", busy: |run| Some(run.memory.pcie), apply: |card| card.pcie.links *= 2 },
    Doubling {
        name: "NIC DRAM",
        busy: |run| Some(run.memory.nic_dram),
        apply: |card| {
            card.nic_dram.channels *= 2;
            card.nic_dram.bandwidth_gb_per_s *= 2.0;
        },
    },
    Doubling {
        name: "memory adapters",
        busy: |run| Some(run.memory.adapters),
        apply: |card| card.accelerator.memory_adapters *= 2,
    },
    Doubling {
        name: "key search units",
        busy: |run| Some(run.units.key_search),
        apply: |card| card.accelerator.key_search_units *= 2,
    },
    Doubling {
        name: "shortcut units",
        busy: |run| Some(run.units.shortcut),
        apply: |card| card.accelerator.shortcut_units *= 2,
    },
    Doubling { name: "log units", busy: |run| Some(run.units.log), apply: |card| card.accelerator.log_units *= 2 },
    Doubling {
        name: "sorted units",
        busy: |run| Some(run.units.sorted),
        apply: |card| card.accelerator.sorted_units *= 2,
    },
    Doubling {
        name: "requests in flight",
        busy: |_| None,
        apply: |card| {
            card.accelerator.requests_in_flight *= 2;
            card.accelerator.leaf_slots *= 2;
        },
    },
    Doubling {
        name: "network",
        busy: |run| Some(run.units.network),
        apply: |card| card.network.bandwidth_gb_per_s *= 2.0,
    },
    Doubling { name: "cores of the host", busy: |run| Some(run.cores), apply: |card| card.host.cores *= 2 },
];

/// The tree of the last load. A load takes longer than the runs, and several sizings of a question have one tree.
#[derive(Debug, Default)]
pub struct LastTree(Option<(u64, PairSizes, Tree)>);

impl LastTree {
    fn load(&mut self, pairs: u64, sizes: PairSizes) -> &Tree {
        if self.0.as_ref().is_none_or(|last| (last.0, last.1) != (pairs, sizes)) {
            // The memory of the one before is free for this one.
            self.0 = None;
        }
        &self.0.get_or_insert_with(|| (pairs, sizes, Tree::load_sized(pairs, sizes))).2
    }
}

/// What is run with one seed.
struct Bench<'t> {
    tree: &'t Tree,
    recording: Recording,
    demand: OrderedDemand,
    seed: u64,
}

/// Sizes a card with several seeds, and returns medians. The same seeds give the same figures. Calls `progress` with the
/// share that is done.
///
/// # Panics
/// If there is no seed.
pub fn size_ordered(
    card: &HoneycombCard,
    demand: &OrderedDemand,
    seeds: &[u64],
    tree: &mut LastTree,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<OrderedSizing, SizingError> {
    card.check()?;
    demand.check()?;
    let mut card = card.clone();
    card.cache.pairs = demand.pairs.unwrap_or(card.cache.pairs);
    let tree = tree.load(card.cache.pairs.min(TREE_PAIRS_MAX), demand.sizes);
    let memory_bytes = memory_bytes(&card, tree);
    check_room(&card, tree, memory_bytes)?;
    let all = of_seeds(seeds, progress, |seed, progress| {
        let recording = tree.record(Reading::Scan(demand.items), WARMING + OPERATIONS, seed);
        Ok(Bench { tree, recording, demand: *demand, seed }.size(&card, memory_bytes, progress))
    })?;
    Ok(OrderedSizing::merged(&all))
}

impl OrderedDemand {
    fn check(&self) -> Result<(), SizingError> {
        let PairSizes { key, value } = self.sizes;
        for (field, bytes, least) in [("key-size", key, KEY_SIZE_MIN), ("value-size", value, 1)] {
            if !(least..=SIZE_MAX).contains(&bytes) {
                return refuse(field, format!("{bytes} is not between {least} and {SIZE_MAX} bytes"));
            }
        }
        if !(1..=ITEMS_MAX).contains(&self.items) {
            return refuse("scan", format!("{} is not between 1 and {ITEMS_MAX} items", self.items));
        }
        if !(0.0..=1.0).contains(&self.writes) {
            return refuse("put", format!("it is {} together with the insertions, not between 0 and 1", self.writes));
        }
        match self.pairs {
            Some(pairs) if !(PAIRS_MIN..=PAIRS_MAX).contains(&pairs) => {
                refuse("pairs", format!("{pairs} is not between {PAIRS_MIN} and {PAIRS_MAX}"))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the bytes of the host's memory for all pairs.
fn memory_bytes(card: &HoneycombCard, tree: &Tree) -> u64 {
    (tree.bytes_for_a_raw_byte() * tree.pair_size() as f64 * card.cache.pairs as f64) as u64
}

/// Checks that the host has room for the tree, and the card for its page table and its cache.
fn check_room(card: &HoneycombCard, tree: &Tree, memory_bytes: u64) -> Result<(), SizingError> {
    const GIB: f64 = (1_u64 << 30) as f64;
    let (needed, room) = (memory_bytes as f64 / GIB, card.host_dram.size_gib);
    if needed > room {
        let most = (card.cache.pairs as f64 * room / needed) as u64;
        return refuse(
            "pairs",
            format!(
                "they need {needed:.1} GiB, and host_dram.size_gib is {room}: at most {most} pairs of this size fit"
            ),
        );
    }
    let nodes = tree.nodes().len() as f64 * card.cache.pairs as f64 / tree.pairs() as f64;
    let table = nodes * f64::from(card.cache.page_table_entry_bytes) / GIB;
    if table + card.cache.size_mib / 1024.0 > card.nic_dram.size_gib {
        let reason = format!(
            "the page table needs {table:.2} GiB, and with the cache of {} MiB more than the {} GiB of nic_dram.size_gib",
            card.cache.size_mib, card.nic_dram.size_gib
        );
        return refuse("pairs", reason);
    }
    Ok(())
}

impl Bench<'_> {
    fn size(&self, card: &HoneycombCard, memory_bytes: u64, progress: &mut dyn FnMut(f64)) -> OrderedSizing {
        let steps = 2 + DOUBLINGS.len();
        let mut done = 0_usize;
        let mut step = || {
            done += 1;
            progress(done as f64 / steps as f64);
        };
        let run = self.run(card, OPERATIONS);
        step();
        let alone = self.alone_us(card);
        step();
        let resources = DOUBLINGS.iter().map(|doubling| {
            let mut doubled = card.clone();
            (doubling.apply)(&mut doubled);
            let mops_if_doubled = self.run(&doubled, OPERATIONS_IF).mops;
            step();
            OrderedResource { name: doubling.name, busy: (doubling.busy)(&run), mops_if_doubled }
        });
        let resources: Vec<OrderedResource> = resources.collect();
        OrderedSizing {
            pairs: card.cache.pairs,
            memory_bytes,
            mops: run.mops,
            mops_range: [run.mops; 2],
            bytes: (run.counts.pcie.bytes + run.counts.cache_reads.bytes) as f64 / OPERATIONS as f64,
            reads_by_cores: run.reads_by_cores,
            read_us: [run.read_us, alone],
            insertion_us: run.insertion_us,
            bottleneck: bottleneck(&resources, run.mops),
            resources,
        }
    }

    fn run(&self, card: &HoneycombCard, operations: usize) -> MixedOutcome {
        let mix = Mix { reads: 1.0 - self.demand.writes, has_versions: true };
        let run = Run { timed: operations, seed: self.seed };
        run_mixed(card, self.tree, &self.recording, options(card), mix, run)
    }

    /// Returns the mean time of a read that is alone on the card.
    fn alone_us(&self, card: &HoneycombCard) -> f64 {
        let mut card = card.clone();
        card.accelerator.requests_in_flight = 1;
        let run = Run { timed: OPERATIONS_ALONE, seed: self.seed };
        run_recorded(&card, self.tree, &self.recording, Fetch::Paper, options(&card), run).latency_us
    }
}

fn options(card: &HoneycombCard) -> Options {
    Options::of_the_paper(card.cache.size_mib)
}

/// Returns the resource whose doubling gains most, of those that are busy, or that there is none.
fn bottleneck(resources: &[OrderedResource], mops: f64) -> &'static str {
    let busy = resources.iter().filter(|resource| resource.busy.is_none_or(|busy| busy >= BUSY_MIN));
    let most = busy.max_by(|one, other| one.mops_if_doubled.total_cmp(&other.mops_if_doubled));
    most.filter(|most| most.mops_if_doubled >= (1.0 + GAIN_MIN) * mops).map_or("several at once", |most| most.name)
}

impl OrderedSizing {
    /// Returns the medians of several seeds.
    fn merged(all: &[OrderedSizing]) -> Self {
        let first = all.first().expect("there is a seed");
        let of = |figure: &dyn Fn(&OrderedSizing) -> f64| median(all.iter().map(figure));
        let rates = || all.iter().map(|one| one.mops);
        let mops = median(rates());
        let resources = (0..first.resources.len()).map(|at| OrderedResource {
            name: first.resources[at].name,
            busy: first.resources[at].busy.map(|_| of(&|one| one.resources[at].busy.unwrap_or_default())),
            mops_if_doubled: of(&|one| one.resources[at].mops_if_doubled),
        });
        let resources: Vec<OrderedResource> = resources.collect();
        OrderedSizing {
            mops,
            mops_range: [rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)],
            bytes: of(&|one| one.bytes),
            reads_by_cores: of(&|one| one.reads_by_cores),
            read_us: [0, 1].map(|at| of(&|one| one.read_us[at])),
            insertion_us: of(&|one| one.insertion_us),
            bottleneck: bottleneck(&resources, mops),
            resources,
            ..first.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: OrderedDemand =
        OrderedDemand { sizes: PairSizes { key: 16, value: 16 }, items: 3, writes: 0.05, pairs: Some(200_000) };

    #[test]
    fn a_load_is_sized_and_the_bottleneck_is_named() {
        let card = HoneycombCard::of_the_paper();
        let mut tree = LastTree::default();
        let mut size =
            |demand: &OrderedDemand| size_ordered(&card, demand, &[1, 2], &mut tree, &|_| ()).expect("it is possible");
        let reads = size(&DEMAND);
        assert_eq!(reads, size(&DEMAND), "the same seeds give the same figures");
        assert_eq!((reads.pairs, reads.bottleneck), (200_000, "PCIe"));
        assert!(reads.read_us[1] < reads.read_us[0] && reads.insertion_us > 0.0, "{reads:?}");
        let writes = size(&OrderedDemand { writes: 1.0, ..DEMAND });
        assert_eq!((writes.bottleneck, writes.reads_by_cores), ("cores of the host", 0.0));
        assert!(writes.mops < reads.mops);
        let long = size(&OrderedDemand { items: 100, ..DEMAND });
        assert_eq!(long.bottleneck, "network");
    }

    #[test]
    fn an_impossible_load_is_refused_with_its_field() {
        let mut small = HoneycombCard::of_the_paper();
        small.host_dram.size_gib = 1.0;
        for (card, demand, field) in [
            (None, OrderedDemand { sizes: PairSizes { key: 7, value: 16 }, ..DEMAND }, "key-size"),
            (None, OrderedDemand { sizes: PairSizes { key: 16, value: 0 }, ..DEMAND }, "value-size"),
            (None, OrderedDemand { items: 0, ..DEMAND }, "scan"),
            (None, OrderedDemand { writes: 1.5, ..DEMAND }, "put"),
            (None, OrderedDemand { pairs: Some(10), ..DEMAND }, "pairs"),
            (Some(&small), OrderedDemand { pairs: Some(1 << 26), ..DEMAND }, "pairs"),
        ] {
            let card = card.cloned().unwrap_or_else(HoneycombCard::of_the_paper);
            let refusal =
                size_ordered(&card, &demand, &[1], &mut LastTree::default(), &|_| ()).expect_err(field).to_string();
            assert!(refusal.starts_with(field), "{refusal}");
        }
    }
}
