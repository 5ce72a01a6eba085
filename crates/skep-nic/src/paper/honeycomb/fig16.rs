//! Figure 16: the effect of the cache and of the load balancer on SCANs of one item, by the card alone.
//!
//! Run: the same operations without a cache, with the root on the chip, and with caches of several sizes; with the
//! largest, also without balancer. The parts of the card that limit each run are judged by their busy shares.

use super::super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use super::{Load, setting, with_cache};
use crate::honeycomb::card::HoneycombCard;
use crate::honeycomb::fetch::Fetch;
use crate::honeycomb::memory::Options;
use crate::honeycomb::run::Outcome;
use crate::honeycomb::tree::Reading;

pub(in super::super) const ITEM: Item = Item {
    name: "honeycomb-fig16",
    title: "Effect of Honeycomb's cache and load balancer",
    paper: include_str!("../../../papers/honeycomb-fig16.csv"),
    x: Axis::linear("cache (MB)"),
    y: Axis::linear("Mreq/s, GB/s or ratio, as the series says"),
    tolerance: Tolerance::Relative(0.05),
    no_evidence: &[
        NoEvidence::input("The time between two accesses of a channel of NIC DRAM was fitted to it.", |series, _| {
            series == UNBALANCED
        }),
        NoEvidence::calculation("The loss follows from the two rates.", |series, _| series == LOSS),
    ],
    run: measure,
};

const UNBALANCED: &str = "Mreq/s without balancer";
const LOSS: &str = "loss without balancer";
/// Caches that are too small for the interior nodes, in MB for 128 million pairs.
const SMALL_CACHES: [f64; 3] = [4.0, 16.0, 32.0];
/// Items of longer scans.
const LONG_SCANS: [u32; 5] = [24, 32, 40, 50, 100];
/// Peak throughput of PCIe that the paper has measured, in GB/s.
const PCIE_PEAK: f64 = 13.0;
/// Share of the time in which a part that limits the rate is at least busy.
const LIMITS: Tolerance = Tolerance::Relative(0.05);

/// The runs of the figure.
struct Runs {
    no_cache: Outcome,
    root: Outcome,
    small: Vec<(f64, Outcome)>,
    unbalanced: Outcome,
    balanced: Outcome,
    /// GETs that fetch lines.
    lines: Outcome,
    /// Scans of these numbers of items, on the card as in the paper.
    long: Vec<(u32, Outcome)>,
    /// On a card of the next generation.
    gen5: Outcome,
}

fn measure(context: &mut Context<'_>) -> Findings {
    let loads = LONG_SCANS.map(|items| Load::of(context, Reading::Scan(items)));
    let load = Load::of(context, Reading::Scan(1));
    let gets = Load::of(context, Reading::Get);
    let size = load.card.cache.size_mib;
    let mut done = 0;
    let mut counted = |outcome: Outcome| {
        done += 1;
        context.progress(done, 6 + SMALL_CACHES.len() + LONG_SCANS.len());
        outcome
    };
    let long = loads.each_ref().map(|load| (load.recording.items, counted(load.run(Fetch::Paper, with_cache(size)))));
    let gen5 = counted(load.run_on(&HoneycombCard::gen5(), Fetch::Paper, with_cache(size)));
    let lines = counted(gets.run(Fetch::Lines, with_cache(size)));
    let mut outcome = |fetch: Fetch, options: Options| counted(load.run(fetch, options));
    let root_alone = with_cache(0.0);
    let runs = Runs {
        no_cache: outcome(Fetch::Paper, Options { root_on_chip: false, ..root_alone }),
        root: outcome(Fetch::Paper, root_alone),
        small: SMALL_CACHES.map(|mib| (mib, outcome(Fetch::Paper, with_cache(mib)))).to_vec(),
        unbalanced: outcome(Fetch::Paper, Options { balances: false, ..with_cache(size) }),
        balanced: outcome(Fetch::Paper, with_cache(size)),
        lines,
        long: long.to_vec(),
        gen5,
    };
    Findings {
        points: points(&runs, size),
        curves: curves(&runs, size),
        setting: format!(
            "{} A part limits a run if it is busy for 95 % of the time. The bounds for page table and metadata stand for \
             the text's \"small fraction\" of the bytes and \"significant fraction\" of the accesses of NIC DRAM.",
            setting(&load)
        ),
        sentences: sentences(&runs),
    }
}

fn points(runs: &Runs, size: f64) -> Vec<Point> {
    let Runs { no_cache, root, small, unbalanced, balanced, .. } = runs;
    let ours = [
        (unbalanced.mops, ITEM.tolerance),
        (balanced.mops, ITEM.tolerance),
        (root.mops / no_cache.mops, Tolerance::Relative(0.10)),
        (balanced.mops / no_cache.mops, Tolerance::Relative(0.15)),
        (1.0 - unbalanced.mops / balanced.mops, Tolerance::Absolute(0.05)),
        // 15 % of the 9 GB/s that are in use.
        (PCIE_PEAK - unbalanced.gb_per_s(unbalanced.counts.pcie.bytes), Tolerance::Absolute(1.35)),
        (unbalanced.hit_rate(), Tolerance::Relative(0.01)),
    ];
    let published = ITEM.references();
    let mut points: Vec<Point> = published
        .iter()
        .zip(ours)
        .map(|(reference, (ours, tolerance))| Point::new(reference, ours).within(tolerance))
        .collect();
    let mut limits = |what: &str, x: f64, share: f64| {
        points.push(Point::further(format!("{what} is busy"), x, 1.0, share).within(LIMITS));
    };
    for (mib, outcome) in small {
        limits("PCIe", *mib, outcome.memory.pcie);
    }
    limits("NIC DRAM without balancer", size, unbalanced.memory.nic_dram);
    limits("PCIe", size, balanced.memory.pcie);
    limits("NIC DRAM", size, balanced.memory.nic_dram);
    let [bytes, accesses] = overhead(unbalanced);
    let bound = |what: &str, most: f64, ours: f64| {
        Point::further(format!("{what} of NIC DRAM without balancer (at most)"), size, most, ours)
            .within(Tolerance::AtMost)
    };
    points.push(bound("page table and metadata: share of the bytes", 0.2, bytes));
    points.push(bound("cached nodes: share of the accesses", 0.7, 1.0 - accesses));
    points
}

/// Returns the shares of the bytes and of the accesses of NIC DRAM that are those of page table and metadata.
fn overhead(outcome: &Outcome) -> [f64; 2] {
    let counts = &outcome.counts;
    let share = |of: fn(&crate::honeycomb::memory::Traffic) -> u64| {
        let own = of(&counts.page_table) + of(&counts.metadata);
        own as f64 / (own + of(&counts.cache_reads) + of(&counts.cache_writes)) as f64
    };
    [share(|traffic| traffic.bytes), share(|traffic| traffic.accesses)]
}

fn curves(runs: &Runs, size: f64) -> Vec<Curve> {
    let sizes = || std::iter::once((0.0, &runs.root)).chain(runs.small.iter().map(|(mib, outcome)| (*mib, outcome)));
    let all = || sizes().chain([(size, &runs.balanced)]);
    let curve = |name: &str, of: &dyn Fn(&Outcome) -> f64| {
        Curve::new(name, all().map(|(mib, outcome)| (mib, of(outcome))).collect())
    };
    let dram = |outcome: &Outcome| {
        let counts = &outcome.counts;
        let all = [counts.cache_reads, counts.cache_writes, counts.metadata, counts.page_table];
        outcome.gb_per_s(all.iter().map(|traffic| traffic.bytes).sum())
    };
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
    let Runs { unbalanced, balanced, small, lines, long, gen5, .. } = runs;
    let smallest = &small[0].1;
    vec![
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
            .with("metadata reads of an operation", each(balanced, balanced.counts.metadata.accesses))
            .sentence(),
        Figures::new("GETs, if only the lines are fetched that the store's layout needs")
            .with("Mreq/s", lines.mops)
            .with("PCIe busy", lines.memory.pcie)
            .with("NIC DRAM busy", lines.memory.nic_dram)
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
