//! Many recorded operations at once on a card.

use std::cell::Cell;
use std::rc::Rc;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Stream;
use super::card::HoneycombCard;
use super::engine::{Engine, UnitsBusy};
use super::fetch::Fetch;
use super::memory::{CardMemory, MemoryBusy, MemoryCounts, Options};
use super::tree::{Recording, Tree};
use crate::clock::{self, Clock};
use crate::resource::Meter;
use crate::time::Time;

/// The length of a run and its seed.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Operations that are timed: the last ones of the recording.
    pub timed: usize,
    /// Seed of the host's latencies and of evictions.
    pub seed: u64,
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Millions of operations a second.
    pub mops: f64,
    /// Mean time of an operation, without the network's delay.
    pub latency_us: f64,
    /// Number of operations that were timed.
    pub operations: u64,
    /// The counts of the memory.
    pub counts: MemoryCounts,
    /// Busy shares of the memory.
    pub memory: MemoryBusy,
    /// Busy shares of the units.
    pub units: UnitsBusy,
}

/// Runs recorded operations, with as many in flight as the card has room for. Each is on a random copy of the tree. All
/// but the last `timed` only fill the cache.
///
/// # Panics
/// If fewer than 20 operations are timed.
pub fn run_recorded(
    card: &HoneycombCard,
    tree: &Tree,
    recording: &Recording,
    fetch: Fetch,
    options: Options,
    run: Run,
) -> Outcome {
    let Run { timed, seed } = run;
    let clock = Rc::new(Clock::default());
    let memory = CardMemory::new(&clock, card, options, seed);
    let engine = Engine::new(memory, &clock, card, tree, fetch);
    let first = recording.len() - timed;
    let copies = warm(&engine, tree, recording, run);
    let reply_bytes = recording.items * (tree.pair_size() as u32 + card.network.item_header_bytes);
    let (meter, in_flight_for) = (Meter::default(), Cell::new(Time::ZERO));
    let operation = async |number: usize| {
        let begun = clock.now();
        engine.execute(recording.visits(number), copies[number - first], reply_bytes).await;
        in_flight_for.set(in_flight_for.get() + (clock.now() - begun));
        meter.count(&clock);
    };
    let operations = first..recording.len();
    clock::run(&clock, card.accelerator.requests_in_flight as usize, operations.map(operation));
    Outcome {
        mops: meter.mops(),
        latency_us: in_flight_for.get().part(timed as u64).as_us(),
        operations: timed as u64,
        counts: engine.memory().counts(),
        memory: engine.memory().busy(clock.now()),
        units: engine.busy(clock.now()),
    }
}

/// Fills the cache: with all interior nodes in random order, then by operations. Returns the copies of the tree that the
/// timed operations are on.
pub(super) fn warm(engine: &Engine<'_>, tree: &Tree, recording: &Recording, run: Run) -> Vec<u32> {
    /// Rounds of the recorded operations, on other copies each time.
    const ROUNDS: usize = 4;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(Stream::Copies.seed(run.seed));
    if engine.memory().has_cache() {
        let interior = tree.nodes().iter().filter(|node| node.level > 0);
        let mut all: Vec<_> = interior.flat_map(|node| (0..engine.copies()).map(move |copy| (node, copy))).collect();
        all.shuffle(&mut random);
        all.into_iter().for_each(|(node, copy)| engine.warm_all(node, copy));
        for operation in (0..ROUNDS).flat_map(|_| 0..recording.len() - run.timed) {
            engine.warm(recording.visits(operation), random.random_range(0..engine.copies()));
        }
    }
    (0..run.timed).map(|_| random.random_range(0..engine.copies())).collect()
}

impl Outcome {
    /// Returns the rate of some bytes of the run, in GB/s.
    pub fn gb_per_s(&self, bytes: u64) -> f64 {
        bytes as f64 / self.operations as f64 * self.mops / 1e3
    }

    /// Returns the share of the blocks of interior nodes that the cache had.
    pub fn hit_rate(&self) -> f64 {
        self.counts.hits as f64 / self.counts.interior_blocks.max(1) as f64
    }

    /// Returns the busy share of each part, by name.
    pub fn busy(&self) -> [(&'static str, f64); 8] {
        let Outcome { memory, units, .. } = self;
        [
            ("PCIe", memory.pcie),
            ("NIC DRAM", memory.nic_dram),
            ("memory adapters", memory.adapters),
            ("key search units", units.key_search),
            ("shortcut units", units.shortcut),
            ("log units", units.log),
            ("sorted units", units.sorted),
            ("network", units.network),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Reading;
    use super::*;

    const NO_CACHE: Options = Options { root_on_chip: false, cache_mib: 0.0, balances: false, opening_ns: 0.0 };
    const ROOT: Options = Options { root_on_chip: true, ..NO_CACHE };
    /// Larger than all interior nodes.
    const CACHE: Options = Options { cache_mib: 1024.0, ..ROOT };
    const BALANCED: Options = Options { balances: true, ..CACHE };

    fn outcome(card: &HoneycombCard, tree: &Tree, fetch: Fetch, options: Options) -> Outcome {
        let recording = tree.record(Reading::Scan(1), 12_000, 4);
        run_recorded(card, tree, &recording, fetch, options, Run { timed: 2000, seed: 4 })
    }

    #[test]
    fn both_links_read_as_fast_as_the_paper_has_measured() {
        let (card, clock) = (HoneycombCard::of_the_paper(), Rc::new(Clock::default()));
        let memory = CardMemory::new(&clock, &card, NO_CACHE, 1);
        let read = async |number: u32| memory.read_host(u64::from(number) * 8192, 512).await;
        clock::run(&clock, 200, (0..20_000).map(read));
        let gb_per_s = 20_000.0 * 512.0 / clock.now().as_ns();
        assert!((gb_per_s / 13.0 - 1.0).abs() < 0.02, "{gb_per_s} GB/s");
    }

    #[test]
    fn the_root_the_cache_and_the_balancer_each_help_and_bytes_are_conserved() {
        let (card, tree) = (HoneycombCard::of_the_paper(), Tree::load(300_000));
        let run = |options| outcome(&card, &tree, Fetch::Paper, options);
        let [none, root, cache, balanced] = [NO_CACHE, ROOT, CACHE, BALANCED].map(run);
        let rates = [none, root, cache, balanced].map(|outcome| outcome.mops);
        assert!(rates.windows(2).all(|two| two[0] < two[1]), "{rates:?}");
        assert!(balanced.counts.balanced.accesses > 0 && cache.counts.balanced.accesses == 0);
        let bytes = |outcome: &Outcome| outcome.counts.pcie.bytes + outcome.counts.cache_reads.bytes;
        assert_eq!(bytes(&root), bytes(&cache), "a cache moves reads and adds none");
        assert_eq!(bytes(&cache), bytes(&balanced));
        assert_eq!((cache.hit_rate(), root.hit_rate()), (1.0, 0.0));
        assert_eq!(cache.counts.cache_writes.accesses, 0, "the cache is warm");
        assert_eq!(cache.counts.page_table.accesses, 2000, "one for each leaf");
        assert!(none.memory.pcie > 0.95, "{none:?}");
        assert_eq!(run(BALANCED), balanced, "the same seed gives the same outcome");
    }

    #[test]
    fn a_small_cache_evicts_and_has_its_metadata_on_the_chip() {
        let (card, tree) = (HoneycombCard::of_the_paper(), Tree::load(300_000));
        let small = outcome(&card, &tree, Fetch::Paper, Options { cache_mib: 8.0, ..ROOT });
        assert!((0.05..0.9).contains(&small.hit_rate()), "{}", small.hit_rate());
        assert!(small.counts.cache_writes.accesses > 0);
        assert_eq!(small.counts.metadata.accesses, 0);
    }

    #[test]
    fn the_scarcest_unit_is_busy() {
        let tree = Tree::load(300_000);
        type Change = fn(&mut HoneycombCard);
        let parts: [(&str, Change); 6] = [
            ("key search units", |card| card.accelerator.key_search_units = 1),
            ("shortcut units", |card| (card.accelerator.shortcut_units, card.accelerator.block_cycles) = (1, 100)),
            ("log units", |card| (card.accelerator.log_units, card.accelerator.block_cycles) = (1, 100)),
            ("sorted units", |card| (card.accelerator.sorted_units, card.accelerator.block_cycles) = (1, 100)),
            ("memory adapters", |card| card.accelerator.adapter_word_bytes = 4),
            ("network", |card| card.network.bandwidth_gb_per_s = 0.2),
        ];
        for (part, change) in parts {
            let mut card = HoneycombCard::of_the_paper();
            change(&mut card);
            card.check().expect("it is possible");
            let outcome = outcome(&card, &tree, Fetch::Paper, BALANCED);
            let (busiest, share) = outcome.busy().into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            assert!(busiest == part && share > 0.9, "{part}: {:?}", outcome.busy());
        }
    }

    #[test]
    fn lines_are_fewer_bytes_and_a_higher_rate() {
        let (card, tree) = (HoneycombCard::of_the_paper(), Tree::load(300_000));
        let [paper, lines] = [Fetch::Paper, Fetch::Lines].map(|fetch| outcome(&card, &tree, fetch, NO_CACHE));
        assert!(lines.counts.pcie.bytes * 2 < paper.counts.pcie.bytes);
        assert!(lines.mops > 1.3 * paper.mops, "{} and {}", lines.mops, paper.mops);
    }
}
