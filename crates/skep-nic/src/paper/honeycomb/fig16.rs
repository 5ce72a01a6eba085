//! Figure 16: the effect of the cache and of the load balancer on SCANs of one item, by the card alone.
//!
//! Run: the same operations without a cache, with the root on the chip, and with caches of several sizes; with the
//! largest, also without balancer. The parts of the card that limit each run are judged by their busy shares.

use super::super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use super::{LITTLE_WARMING, Load, setting, with_cache};
use crate::honeycomb::card::{Accelerator, HoneycombCard};
use crate::honeycomb::fetch::Fetch;
use crate::honeycomb::memory::{Options, Traffic};
use crate::honeycomb::run::Outcome;
use crate::honeycomb::tree::Reading;

pub(in super::super) const ITEM: Item = Item {
    name: "honeycomb-fig16",
    title: "Effect of Honeycomb's cache and load balancer",
    paper: include_str!("../../../papers/honeycomb-fig16.csv"),
    x: Axis::linear("cache (MiB)"),
    y: Axis::linear("Mreq/s, GB/s or ratio, as the series says"),
    tolerance: Tolerance::Relative(0.05),
    no_evidence: &[
        NoEvidence::input(
            "The time between two accesses of a channel of NIC DRAM was fitted to a rate at which NIC DRAM is busy all \
             the time.",
            |series, _| series == UNBALANCED || series == "NIC DRAM without balancer is busy",
        ),
        NoEvidence::input("All interior nodes are put into a cache with room for them.", |series, _| {
            series == HIT_RATE
        }),
        NoEvidence::calculation("The loss follows from the two rates.", |series, _| series == LOSS),
        NoEvidence::calculation(
            "The rest of PCIe follows from the fitted rate and the bytes of a leaf.",
            |series, _| series == UNUSED,
        ),
    ],
    open: &[KEY_SEARCH, SHORTCUT, LOG, SORTED],
    run: measure,
};

const UNBALANCED: &str = "Mreq/s without balancer";
const BALANCED: &str = "Mreq/s with balancer";
const ROOT: &str = "root on the chip over no cache";
const CACHE: &str = "cache and balancer over no cache";
const LOSS: &str = "loss without balancer";
const UNUSED: &str = "PCIe left unused without balancer (GB/s)";
const HIT_RATE: &str = "hit rate of interior nodes";
const KEY_SEARCH: &str = "fewest key search units for 10 M SCANs/s";
const SHORTCUT: &str = "fewest shortcut units for 10 M SCANs/s";
const LOG: &str = "fewest log units for 10 M SCANs/s";
const SORTED: &str = "fewest sorted units for 10 M SCANs/s";
/// Caches that are too small for the interior nodes, in MiB.
const SMALL_CACHES: [f64; 3] = [4.0, 16.0, 32.0];
/// Items of longer scans.
const LONG_SCANS: [u32; 5] = [24, 32, 40, 50, 100];
/// Share of the time in which a part that limits the rate is at least busy.
const LIMITS: f64 = 0.95;
/// Rate for which the paper has the fewest units, in millions a second (section 6.1).
const SCAN_TARGET: f64 = 10.0;
/// The paper's factor of the cache.
const CACHE_GAIN: f64 = 2.5;

/// The runs of the figure.
struct Runs {
    no_cache: Outcome,
    root: Outcome,
    small: Vec<(f64, Outcome)>,
    unbalanced: Outcome,
    balanced: Outcome,
    /// Runs that fetch lines, on memories that all give the rate without balancer.
    lines: Vec<(String, Outcome)>,
    /// Scans of these numbers of items, on the card as in the paper.
    long: Vec<(u32, Outcome)>,
    /// On a card of the next generation.
    gen5: Outcome,
}

fn measure(context: &mut Context<'_>) -> Findings {
    let loads = LONG_SCANS.map(|items| Load::warmed(context, Reading::Scan(items), LITTLE_WARMING));
    let load = Load::of(context, Reading::Scan(1));
    let gets = Load::warmed(context, Reading::Get, LITTLE_WARMING);
    let size = load.card.cache.size_mib;
    let mut done = 0;
    let mut counted = |outcome: Outcome| {
        done += 1;
        context.progress(done, 5 + 2 * MEMORIES + SMALL_CACHES.len() + LONG_SCANS.len());
        outcome
    };
    let long = loads.each_ref().map(|load| (load.recording.items, counted(load.run(Fetch::Paper, with_cache(size)))));
    let gen5 = counted(load.run_on(&HoneycombCard::gen5(), Fetch::Paper, with_cache(size)));
    let mut outcome = |options: Options| counted(load.run(Fetch::Paper, options));
    let root_alone = with_cache(0.0);
    let unbalanced = outcome(Options { balances: false, ..with_cache(size) });
    let runs = Runs {
        no_cache: outcome(Options { root_on_chip: false, ..root_alone }),
        root: outcome(root_alone),
        small: SMALL_CACHES.map(|mib| (mib, outcome(with_cache(mib)))).to_vec(),
        unbalanced,
        balanced: outcome(with_cache(size)),
        lines: lines(&[("GETs", &gets), ("SCANs of one item", &load)], &unbalanced, &mut counted),
        long: long.to_vec(),
        gen5,
    };
    Findings {
        points: points(&runs, size, &load.card.accelerator),
        curves: curves(&runs, size),
        setting: format!(
            "{} A part limits a run if it is busy for 95 % of the time. At most 20 % of the bytes, and at least 30 % of the \
             accesses, stand for the text's \"small fraction\" and \"significant fraction\" of page table and metadata. \
             The fewest units of the paper are its units, which were chosen for about 10 M SCANs/s; ours are those that \
             would be busy at that rate.",
            setting(&load)
        ),
        sentences: sentences(&runs),
    }
}

/// Number of memories on which lines are fetched.
const MEMORIES: usize = 3;

/// Runs loads that fetch lines, on memories that differ in the cost of a short access. All take as long for the
/// accesses of the run without balancer.
fn lines(
    loads: &[(&str, &Load)],
    unbalanced: &Outcome,
    counted: &mut dyn FnMut(Outcome) -> Outcome,
) -> Vec<(String, Outcome)> {
    let of_memory = |(form, memory): (&'static str, Memory)| {
        loads.iter().map(move |(name, load)| (format!("{name}, {form}"), memory.clone(), *load))
    };
    let all: Vec<_> = Memory::alike(&loads[0].1.card, unbalanced).into_iter().flat_map(of_memory).collect();
    let run = |(name, memory, load): (String, Memory, &Load)| {
        let options = Options { opening_ns: memory.opening_ns, ..with_cache(load.card.cache.size_mib) };
        (name, counted(load.run_on(&memory.card, Fetch::Lines, options)))
    };
    all.into_iter().map(run).collect()
}

/// A form of the cost of an access of NIC DRAM.
#[derive(Clone)]
struct Memory {
    card: HoneycombCard,
    opening_ns: f64,
}

impl Memory {
    /// Returns memories on which the accesses of a run take as long as they did.
    fn alike(card: &HoneycombCard, run: &Outcome) -> [(&'static str, Memory); MEMORIES] {
        let with = |change: &dyn Fn(&mut HoneycombCard), opening_ns: f64| {
            let mut card = card.clone();
            change(&mut card);
            Memory { card, opening_ns }
        };
        let [own, nodes] = run.counts.nic_dram();
        let each = |count: u64| count as f64 / run.operations as f64;
        let (accesses, bytes) = (each(own.accesses + nodes.accesses), each(own.moved_bytes + nodes.moved_bytes));
        let channels = f64::from(card.nic_dram.channels);
        // Time of a channel for an operation.
        let span_ns = channels * 1e3 / run.mops * run.memory.nic_dram;
        let transfer_ns = bytes * channels / card.nic_dram.bandwidth_gb_per_s;
        [
            ("a least time between accesses", with(&|_| (), 0.0)),
            (
                "a time in addition to each transfer",
                with(&|card| card.nic_dram.access_ns = 0.0, ((span_ns - transfer_ns) / accesses).max(0.0)),
            ),
            (
                "bytes alone",
                with(
                    &|card| {
                        card.nic_dram.access_ns = 0.0;
                        card.nic_dram.bandwidth_gb_per_s = channels * bytes / span_ns;
                    },
                    0.0,
                ),
            ),
        ]
    }
}

fn points(runs: &Runs, size: f64, units: &Accelerator) -> Vec<Point> {
    let Runs { no_cache, root, small, unbalanced, balanced, long, .. } = runs;
    let in_use = unbalanced.gb_per_s(unbalanced.counts.pcie.bytes);
    let ours = |series: &str| match series {
        UNBALANCED => (unbalanced.mops, ITEM.tolerance),
        BALANCED => (balanced.mops, ITEM.tolerance),
        ROOT => (root.mops / no_cache.mops, Tolerance::Relative(0.10)),
        CACHE => (balanced.mops / no_cache.mops, Tolerance::Relative(0.15)),
        LOSS => (1.0 - unbalanced.mops / balanced.mops, Tolerance::Absolute(0.05)),
        // 15 % of the 9 GB/s that are in use.
        UNUSED => (in_use / unbalanced.memory.pcie - in_use, Tolerance::Absolute(1.35)),
        HIT_RATE => (unbalanced.hit_rate(), Tolerance::Relative(0.01)),
        other => unreachable!("{other} is in no row"),
    };
    let published = ITEM.references().into_iter().map(|reference| {
        let (ours, tolerance) = ours(&reference.series);
        Point::new(&reference, ours).within(tolerance)
    });
    let mut points: Vec<Point> = published.collect();
    let busy = balanced.units;
    for (series, busy, count) in [
        (KEY_SEARCH, busy.key_search, units.key_search_units),
        (SHORTCUT, busy.shortcut, units.shortcut_units),
        (LOG, busy.log, units.log_units),
        (SORTED, busy.sorted, units.sorted_units),
    ] {
        let count = f64::from(count);
        let fewest = (busy * count * SCAN_TARGET / balanced.mops).ceil();
        points.push(Point::further(series, size, count, fewest).within(Tolerance::Relative(0.15)));
    }
    let mut limits = |what: &str, x: f64, share: f64| {
        points.push(Point::further(format!("{what} is busy"), x, LIMITS, share).within(Tolerance::StatedAtLeast));
    };
    for (mib, outcome) in small {
        limits("PCIe", *mib, outcome.memory.pcie);
    }
    limits("NIC DRAM without balancer", size, unbalanced.memory.nic_dram);
    limits("PCIe", size, balanced.memory.pcie);
    limits("NIC DRAM", size, balanced.memory.nic_dram);
    let (items, longest) = long.last().expect("there are long scans");
    limits(&format!("the network, with SCANs of {items} items,"), size, longest.units.network);
    let mut stated = |what: &str, x: f64, limit: f64, ours: f64, tolerance: Tolerance| {
        points.push(Point::further(what, x, limit, ours).within(tolerance));
    };
    let [bytes, accesses] = overhead(unbalanced);
    stated("page table and metadata: share of NIC DRAM's bytes", size, 0.2, bytes, Tolerance::StatedAtMost);
    stated("page table and metadata: share of its accesses", size, 0.3, accesses, Tolerance::StatedAtLeast);
    let (smallest, outcome) = &small[0];
    let accesses = outcome.counts.metadata.accesses as f64 / outcome.operations as f64;
    stated("metadata accesses of an operation", *smallest, 0.0, accesses, Tolerance::StatedAtMost);
    points
}

/// Returns the shares of the bytes and of the accesses of NIC DRAM that are those of page table and metadata.
fn overhead(outcome: &Outcome) -> [f64; 2] {
    let [own, nodes] = outcome.counts.nic_dram();
    let share = |of: fn(&Traffic) -> u64| of(&own) as f64 / (of(&own) + of(&nodes)) as f64;
    [share(|traffic| traffic.moved_bytes), share(|traffic| traffic.accesses)]
}

fn curves(runs: &Runs, size: f64) -> Vec<Curve> {
    let sizes = || std::iter::once((0.0, &runs.root)).chain(runs.small.iter().map(|(mib, outcome)| (*mib, outcome)));
    let all = || sizes().chain([(size, &runs.balanced)]);
    let curve = |name: &str, of: &dyn Fn(&Outcome) -> f64| {
        Curve::new(name, all().map(|(mib, outcome)| (mib, of(outcome))).collect())
    };
    let dram =
        |outcome: &Outcome| outcome.gb_per_s(outcome.counts.nic_dram().iter().map(|traffic| traffic.moved_bytes).sum());
    vec![
        curve("Mreq/s", &|outcome| outcome.mops),
        curve("hit rate", &Outcome::hit_rate),
        curve("PCIe, GB/s", &|outcome| outcome.gb_per_s(outcome.counts.pcie.bytes)),
        curve("NIC DRAM, GB/s", &dram),
    ]
}

fn sentences(runs: &Runs) -> Vec<Sentence> {
    let each = |outcome: &Outcome, accesses: u64| accesses as f64 / outcome.operations as f64;
    let busy = |name: &str, outcome: &Outcome| {
        let parts = outcome.busy().into_iter();
        parts
            .fold(Figures::new(format!("Busy shares, {name}")), |figures, (part, share)| figures.with(part, share))
            .sentence()
    };
    let Runs { no_cache, root, unbalanced, balanced, small, lines, long, gen5 } = runs;
    let smallest = &small[0].1;
    vec![
        Figures::new("The factor of the cache, by its possible readings")
            .beside("with balancer over no cache", balanced.mops / no_cache.mops, CACHE_GAIN)
            .beside("with balancer over the root alone", balanced.mops / root.mops, CACHE_GAIN)
            .beside("without balancer over no cache", unbalanced.mops / no_cache.mops, CACHE_GAIN)
            .sentence(),
        busy("without balancer", unbalanced),
        busy("with balancer", balanced),
        busy("with the smallest cache", smallest),
        Figures::new("On a card with PCIe Gen5 and HBM").with("Mreq/s", gen5.mops).sentence(),
        busy("on that card", gen5),
        Figures::new("With the smallest cache, accesses of NIC DRAM for each operation")
            .with("reads of nodes", each(smallest, smallest.counts.cache_reads.accesses))
            .with("writes of nodes", each(smallest, smallest.counts.cache_writes.accesses))
            .with("metadata", each(smallest, smallest.counts.metadata.accesses))
            .with("page table", each(smallest, smallest.counts.page_table.accesses))
            .sentence(),
        Figures::new("With balancer")
            .with(
                "share of the hits over PCIe",
                each(balanced, balanced.counts.balanced.accesses) / each(balanced, balanced.counts.hits),
            )
            .with("PCIe GB/s", balanced.gb_per_s(balanced.counts.pcie.bytes))
            .with("mean µs of an operation", balanced.latency_us)
            .with("metadata accesses of an operation", each(balanced, balanced.counts.metadata.accesses))
            .sentence(),
        lines
            .iter()
            .fold(
                Figures::new(
                    "If only the lines are fetched that the store's layout needs, by the form of NIC DRAM's access time, \
                     fitted to the same rate",
                ),
                |figures, (name, outcome)| {
                    figures
                        .with(format!("{name}, Mreq/s"), outcome.mops)
                        .with("PCIe busy", outcome.memory.pcie)
                        .with("NIC DRAM busy", outcome.memory.nic_dram)
                },
            )
            .sentence(),
        long.iter()
            .fold(Figures::new("Longer scans"), |figures, (items, outcome)| {
                figures
                    .with(format!("{items} items, Mreq/s"), outcome.mops)
                    .with("network busy", outcome.units.network)
                    .with("PCIe busy", outcome.memory.pcie)
            })
            .sentence(),
    ]
}
