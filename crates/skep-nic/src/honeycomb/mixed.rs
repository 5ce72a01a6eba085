//! Reads beside insertions: the card, and the cores of the host (Honeycomb, sections 3.2 and 6.3).
//!
//! ```text
//! client ─┬─ read ──────▶ card, or a core if all requests of the card are in flight and a core is idle
//!         └─ insertion ─▶ core: reads its lines ─▶ version ─▶ writes its lines ─▶ entries ─▶ turn of its version
//!                                                                └─ messages over PCIe ──▶ card ─▶ reply
//! ```
//!
//! 1. An insertion takes a core for a constant, for each line that it reads or writes, and for each message to the card.
//!    Lines and messages are those of the product's tree.
//! 2. With versions, it waits for all insertions with smaller ones. Then it sends its version, and the core is free. The
//!    client gets its reply when the last message has arrived.
//! 3. An entry of the page table is written to NIC DRAM, and removes its node from the cache.
//!
//! Not modelled: reads of old versions, because an insertion takes less time than a read, and few reads meet one; the
//! collection of memory; requests on the wire.

use std::cell::Cell;
use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Stream;
use super::card::{HoneycombCard, HostCores};
use super::engine::{Engine, UnitsBusy};
use super::fetch::Fetch;
use super::insertion::Insertion;
use super::memory::{CardMemory, MemoryBusy, MemoryCounts, Options};
use super::run::{Run, warm};
use super::tree::{Recording, Tree, Visit};
use crate::clock::{self, Clock};
use crate::resource::{Meter, Order, Slots};
use crate::time::Time;

/// Operations in flight for each core, besides the requests of the card: so no core waits for a client.
const IN_FLIGHT_FOR_A_CORE: u32 = 8;

/// The operations of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Share of reads. The others are insertions.
    pub reads: f64,
    /// True if insertions have versions (MVCC): without them, only GETs are linearizable (section 3.2).
    pub has_versions: bool,
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MixedOutcome {
    /// Millions of operations a second.
    pub mops: f64,
    /// Share of the reads that cores have executed.
    pub reads_by_cores: f64,
    /// Share of the time in which a core had an operation.
    pub cores: f64,
    /// Share of that time in which it waited for smaller versions.
    pub waiting: f64,
    /// Mean time of an insertion, from its beginning on a core to its reply.
    pub insertion_us: f64,
    /// Mean time of a read by the card.
    pub read_us: f64,
    /// The counts of the card's memory.
    pub counts: MemoryCounts,
    /// Busy shares of the card's memory.
    pub memory: MemoryBusy,
    /// Busy shares of the card's units.
    pub units: UnitsBusy,
}

/// All that operations need.
struct Server<'t> {
    clock: Rc<Clock>,
    engine: Engine<'t>,
    host: HostCores,
    cores: Slots,
    requests: Slots,
    /// Insertions in the order of their versions.
    versions: Order,
    has_versions: bool,
    reply_bytes: u32,
    sums: Sums,
}

/// Sums over the operations.
#[derive(Default)]
struct Sums {
    cores: Cell<Time>,
    waiting: Cell<Time>,
    insertions: Cell<Time>,
    /// Time for which insertions had a core.
    cores_of_insertions: Cell<Time>,
    insertion_count: Cell<u64>,
    reads: Cell<Time>,
    reads_by_card: Cell<u64>,
    reads_by_cores: Cell<u64>,
}

/// Runs reads that were recorded, beside insertions of the tree's load. As many operations are in flight as keep card
/// and cores busy.
///
/// # Panics
/// If fewer than 20 operations are timed.
pub fn run_mixed(
    card: &HoneycombCard,
    tree: &Tree,
    recording: &Recording,
    options: Options,
    mix: Mix,
    run: Run,
) -> MixedOutcome {
    let clock = Rc::new(Clock::default());
    let memory = CardMemory::new(&clock, card, options, run.seed);
    let engine = Engine::new(memory, &clock, card, tree, Fetch::Paper);
    let copies = warm(&engine, tree, recording, run);
    let server = Server {
        clock: Rc::clone(&clock),
        engine,
        host: card.host.clone(),
        cores: Slots::new(card.host.cores),
        requests: Slots::new(card.accelerator.requests_in_flight),
        versions: Order::default(),
        has_versions: mix.has_versions,
        reply_bytes: recording.items * (tree.pair_size() as u32 + card.network.item_header_bytes),
        sums: Sums::default(),
    };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(Stream::Mix.seed(run.seed));
    let insertions = tree.insertions();
    // What each operation is was drawn before the run, so no time decides it.
    let drawn: Vec<Option<&Insertion>> = (0..run.timed)
        .map(|_| (!random.random_bool(mix.reads)).then(|| &insertions[random.random_range(0..insertions.len())]))
        .collect();
    let first = recording.len() - run.timed;
    let meter = Meter::default();
    let operation = async |number: usize| {
        match drawn[number] {
            Some(insertion) => server.insert(insertion, copies[number]).await,
            None => server.read(recording.visits(first + number), copies[number]).await,
        }
        meter.count(&clock);
    };
    let in_flight = card.accelerator.requests_in_flight + IN_FLIGHT_FOR_A_CORE * card.host.cores;
    clock::run(&clock, in_flight as usize, (0..run.timed).map(operation));
    server.outcome(meter.mops(), drawn.iter().filter(|insertion| insertion.is_none()).count())
}

impl Server<'_> {
    /// Reads on the card, or on a core if only a core has time.
    async fn read(&self, visits: &[Visit], copy: u32) {
        if self.requests.has_free() || !self.cores.has_free() {
            let _request = self.requests.take().await;
            let begun = self.clock.now();
            self.engine.execute(visits, copy, self.reply_bytes).await;
            self.sums.reads.set(self.sums.reads.get() + (self.clock.now() - begun));
            return add(&self.sums.reads_by_card, 1);
        }
        let core = self.cores.take().await;
        let lines = self.engine.lines(visits);
        self.work(Time::from_ns(self.host.scan_ns + f64::from(lines) * self.host.line_ns)).await;
        add(&self.sums.reads_by_cores, 1);
        drop(core);
        self.engine.reply(self.reply_bytes).await;
    }

    /// Inserts a pair. Ends when the card has its version.
    async fn insert(&self, insertion: &Insertion, copy: u32) {
        let core = self.cores.take().await;
        let begun = self.clock.now();
        let lines = |count: u32| Time::from_ns(f64::from(count) * self.host.line_ns);
        self.work(Time::from_ns(self.host.insertion_ns) + lines(insertion.read_lines)).await;
        let version = self.has_versions.then(|| self.versions.join());
        self.work(lines(insertion.written_lines)).await;
        let message = Time::from_ns(self.host.message_ns);
        self.work(message * insertion.lids.len() as u64).await;
        if let Some(version) = version {
            let waiting = self.clock.now();
            self.versions.leave(version).await;
            let waited = self.clock.now() - waiting;
            self.sums.waiting.set(self.sums.waiting.get() + waited);
            self.sums.cores.set(self.sums.cores.get() + waited);
            self.work(message).await;
        }
        let held = self.clock.now() - begun;
        self.sums.cores_of_insertions.set(self.sums.cores_of_insertions.get() + held);
        drop(core);
        let entries = insertion.lids.iter().map(|lid| self.engine.receive_entry(*lid, copy));
        let version = async {
            if self.has_versions {
                self.engine.memory().receive_version().await;
            }
        };
        clock::both(clock::all(insertion.lids.len(), entries), version).await;
        self.engine.reply(0).await;
        self.sums.insertions.set(self.sums.insertions.get() + (self.clock.now() - begun));
        add(&self.sums.insertion_count, 1);
    }

    /// Lets a core work for a time.
    async fn work(&self, span: Time) {
        self.sums.cores.set(self.sums.cores.get() + span);
        self.clock.after(span).await;
    }

    /// Returns the outcome. A run is too short to fill all clients with insertions that wait for cores, so reads may be
    /// ahead of their share. In the long run, no rate is above the one that the cores allow for insertions.
    fn outcome(&self, mops: f64, reads: usize) -> MixedOutcome {
        let (sums, span) = (&self.sums, self.clock.now());
        let operations = reads as f64 + sums.insertion_count.get() as f64;
        let for_insertions = sums.cores_of_insertions.get().as_us() / f64::from(self.host.cores);
        let mops = if for_insertions > 0.0 { mops.min(operations / for_insertions) } else { mops };
        let cores = sums.cores.get();
        MixedOutcome {
            mops,
            reads_by_cores: sums.reads_by_cores.get() as f64 / reads.max(1) as f64,
            cores: cores.part(self.host.cores.into()).share_of(span),
            waiting: if cores == Time::ZERO { 0.0 } else { sums.waiting.get().share_of(cores) },
            read_us: sums.reads.get().part(sums.reads_by_card.get().max(1)).as_us(),
            insertion_us: sums.insertions.get().part(sums.insertion_count.get().max(1)).as_us(),
            counts: self.engine.memory().counts(),
            memory: self.engine.memory().busy(span),
            units: self.engine.busy(span),
        }
    }
}

fn add(count: &Cell<u64>, more: u64) {
    count.set(count.get() + more);
}

#[cfg(test)]
mod tests {
    use super::super::tree::Reading;
    use super::*;

    const OPTIONS: Options = Options::of_the_paper(1024.0);

    fn outcome(card: &HoneycombCard, tree: &Tree, reads: f64, has_versions: bool) -> MixedOutcome {
        let recording = tree.record(Reading::Scan(3), 6000, 4);
        run_mixed(card, tree, &recording, OPTIONS, Mix { reads, has_versions }, Run { timed: 4000, seed: 4 })
    }

    #[test]
    fn insertions_take_cores_and_reads_take_the_card() {
        let (card, tree) = (HoneycombCard::of_the_paper(), Tree::load(300_000));
        let [none, half, most, all] = [0.0, 0.5, 0.9, 1.0].map(|reads| outcome(&card, &tree, reads, true));
        let rates = [none, half, most, all].map(|outcome| outcome.mops);
        // From 90 % reads on, the card limits the rate: the last two are equal within a run's variation.
        assert!(rates[..3].is_sorted() && rates[3] > 0.999 * rates[2], "{rates:?}");
        assert!(none.cores > 0.95 && half.cores > 0.95 && half.reads_by_cores < 0.01, "{half:?}");
        assert!(all.reads_by_cores > 0.1 && all.memory.pcie > 0.95, "cores read too: {all:?}");
        assert_eq!(none.counts.cache_reads.accesses, 0);
        // Entries of the page table come with merges of logs; each insertion sends a version.
        let entries = none.counts.page_table.accesses as f64 / 4000.0;
        assert!((0.01..0.5).contains(&entries), "{entries} entries for an insertion");
        assert_eq!(outcome(&card, &tree, 0.5, true), half, "the same seed gives the same outcome");
    }

    /// A run is too short for the clients to wait for one core. Reads may be ahead in it, but not in its rate.
    #[test]
    fn no_rate_is_above_the_insertions_that_the_cores_make() {
        let (mut card, tree) = (HoneycombCard::of_the_paper(), Tree::load(300_000));
        card.host.cores = 1;
        let alone = outcome(&card, &tree, 0.0, true).mops;
        let mixed = outcome(&card, &tree, 0.95, true).mops;
        assert!(0.05 * mixed < 1.1 * alone, "{mixed} million/s with 5 % insertions, of which a core makes {alone}");
    }

    #[test]
    fn versions_cost_messages_and_order() {
        let tree = Tree::load(300_000);
        let gain = |message_ns: f64| {
            let mut card = HoneycombCard::of_the_paper();
            card.host.message_ns = message_ns;
            let [on, off] = [true, false].map(|has_versions| outcome(&card, &tree, 0.0, has_versions));
            assert_eq!(off.waiting, 0.0);
            off.mops / on.mops
        };
        let gains = [0.0, 100.0, 400.0].map(gain);
        assert!(gains[0] >= 1.0 && gains.is_sorted(), "{gains:?}");
    }
}
