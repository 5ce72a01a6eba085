//! Figure 6: the rates of WRITEs and SENDs of 32 B by the number of queue pairs.
//!
//! Run: N processes of a server, each with a queue pair for each of N clients, or one for all of them. Inbound, N
//! machines with a process each, which has a queue pair for each of N processes of the server. The text also has 1600
//! processes on 16 machines, which WRITE to one process.

use super::super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance, Variant};
use super::PROCESSES;
use crate::rdma::card::RdmaNic;
use crate::rdma::nic::Verb;
use crate::rdma::run::{Load, Outcome, inbound, outbound};

pub(in super::super) const ITEM: Item = Item {
    name: "herd-fig06",
    title: "Verbs of HERD's RDMA NIC by the number of queue pairs",
    paper: include_str!("../../../papers/herd-fig06.csv"),
    x: Axis::linear("client processes, and as many of the server"),
    y: Axis::linear("Mops or ratio, as the series says"),
    tolerance: Tolerance::Relative(0.05),
    no_evidence: &[
        NoEvidence::input("The number of contexts on the NIC was fitted to it.", |series, _| series == LOSS),
        NoEvidence::calculation(
            "An inbound WRITE needs no context at the server, because the text says so: nothing there depends on their \
             number.",
            |series, _| [INBOUND, MANY_OVER_16].contains(&series),
        ),
        NoEvidence::calculation("It is the rate that was given to the engine.", |series, _| series == MANY),
        NoEvidence::calculation(
            "The contexts of all processes fit the NIC, and it has nothing else for SENDs: their rate cannot change.",
            |series, _| [SCALES, SLOWER].contains(&series),
        ),
    ],
    open: &[],
    run: measure,
};

const LOSS: &str = "outbound WRITE over its maximum";
const INBOUND: &str = "inbound WRITE over its maximum";
const MANY: &str = "inbound WRITE of 1600 processes (Mops)";
const MANY_OVER_16: &str = "inbound WRITE of 1600 processes over that of 16";
const SCALES: &str = "SEND to 16 clients over that to 10: scales well";
const SLOWER: &str = "SEND to 16 clients over that to 10: slightly slower";

const PAYLOAD: u32 = 32;
const OPERATIONS: u32 = 20_000;
/// Clients above which the text sees a difference.
const FEW_CLIENTS: u32 = 10;
/// Numbers of processes.
const COUNTS: [u32; 9] = [1, 2, 4, 6, 8, FEW_CLIENTS, 12, 14, PROCESSES];
/// Machines of the experiment with many processes, and processes of each.
const MACHINES: u32 = 16;
const MANY_PROCESSES: u32 = 100;
/// The ratios that stand for *high*, for *scales well*, and for *slower*.
const HIGH: f64 = 0.8;
const SCALES_WELL: f64 = 0.9;
const SLOWER_AT_MOST: f64 = 0.99;
/// Other constants that give the same loss.
const OTHER_FITS: [Fit; 3] =
    [Fit { units: 1, cached: 230 }, Fit { units: 4, cached: 130 }, Fit { units: 7, cached: 30 }];

/// A number of units of the engine, and the number of contexts on the NIC that was fitted to the loss.
#[derive(Clone, Copy, Debug)]
struct Fit {
    units: u32,
    cached: u32,
}

fn measure(context: &mut Context<'_>) -> Findings {
    let card = RdmaNic::of_herd();
    let mut done = 0;
    let runs = COUNTS.map(|count| {
        done += 1;
        let runs = Runs::of(&card, count, context.seed);
        context.progress(done, COUNTS.len() + OTHER_FITS.len());
        runs
    });
    let peak = maximum(&card, context.seed);
    let last = &runs[COUNTS.len() - 1];
    let few = runs.iter().find(|runs| runs.count == FEW_CLIENTS).expect("it is one of the counts");
    let many = inbound(&card, many_processes(), context.seed);
    let at = |series: &str, limit: f64, ours: f64| Point::further(series, f64::from(PROCESSES), limit, ours);
    let ours = |series: &str| if series == LOSS { last.write.mops / peak } else { many.mops };
    let mut points: Vec<Point> =
        ITEM.references().iter().map(|reference| Point::new(reference, ours(&reference.series))).collect();
    points.extend([
        at(INBOUND, HIGH, last.inbound.mops / card.engine.inbound_write_mops).within(Tolerance::StatedAtLeast),
        at(SCALES, SCALES_WELL, last.send.mops / few.send.mops).within(Tolerance::StatedAtLeast),
        at(SLOWER, SLOWER_AT_MOST, last.send.mops / few.send.mops).within(Tolerance::StatedAtMost),
    ]);
    let (processes, ratio) = (f64::from(MACHINES * MANY_PROCESSES), many.mops / last.inbound.mops);
    points.push(Point::further(MANY_OVER_16, processes, SCALES_WELL, ratio).within(Tolerance::StatedAtLeast));
    let mut all_cached = card.clone();
    all_cached.contexts.cached = PROCESSES * PROCESSES;
    let cached = outbound(&all_cached, writes(PROCESSES), context.seed).mops / peak;
    let x = f64::from(PROCESSES);
    let variant = Variant::of("if all contexts are on the NIC", &ITEM, &points, LOSS, &[(x, cached)]);
    let fits = OTHER_FITS.map(|fit| {
        done += 1;
        let sentence = other_fit(&card, fit, context.seed);
        context.progress(done, COUNTS.len() + OTHER_FITS.len());
        sentence
    });
    let curve = |name: &str, of: fn(&Runs) -> &Outcome| {
        Curve::new(name, runs.iter().map(|runs| (f64::from(runs.count), of(runs).mops)).collect())
    };
    Findings {
        points,
        curves: vec![
            curve("inbound WRITE over UC", |runs| &runs.inbound),
            curve("outbound WRITE over UC", |runs| &runs.write),
            curve("outbound SEND over UD", |runs| &runs.send),
        ],
        setting: format!(
            "{OPERATIONS} operations of {PAYLOAD} B for each number of processes, on the NIC {}. The clients have the \
             same NIC. Our limits of the statements are: high is at least {HIGH}, scaling well at least {SCALES_WELL}, \
             and slower at most {SLOWER_AT_MOST}.",
            card.name
        ),
        sentences: sentences(variant, last, &many, fits),
    }
}

fn sentences(variant: Variant, last: &Runs, many: &Outcome, fits: [Sentence; 3]) -> Vec<Sentence> {
    let mut sentences = vec![
        Sentence::Variant(variant),
        Sentence::fact(
            "The text explains the slower SENDs by operations in flight, which fill a cache of the NIC. The model's \
             NIC holds nothing for them, so its SENDs cannot be slower.",
        ),
        Sentence::fact(
            "The rate of inbound WRITEs is given to the engine for small payloads. The text has none for 32 B and few \
             processes, so it does not tell what lowers that of 1600 processes.",
        ),
        Figures::new("16 processes, Mops")
            .with("outbound WRITE", last.write.mops)
            .with("its misses", last.write.miss_ratio)
            .with("outbound SEND", last.send.mops)
            .with("its misses", last.send.miss_ratio)
            .with("inbound WRITE", last.inbound.mops)
            .sentence(),
        Figures::new("1600 processes on 16 machines")
            .with("inbound WRITE, Mops", many.mops)
            .with("misses of the machines' NICs", many.miss_ratio)
            .sentence(),
    ];
    sentences.extend(fits);
    sentences
}

/// The results with a number of processes.
struct Runs {
    count: u32,
    write: Outcome,
    send: Outcome,
    inbound: Outcome,
}

impl Runs {
    fn of(card: &RdmaNic, count: u32, seed: u64) -> Self {
        Runs {
            count,
            write: outbound(card, writes(count), seed),
            send: outbound(card, Load { queue_pairs: 1, verb: Verb::Send, ..writes(count) }, seed),
            inbound: inbound(card, Load { machines: count, processes: 1, ..writes(count) }, seed),
        }
    }
}

/// Returns WRITEs of processes with a queue pair for each of as many others.
fn writes(count: u32) -> Load {
    Load {
        machines: 1,
        processes: count,
        queue_pairs: count,
        verb: Verb::Write,
        payload: PAYLOAD,
        operations: OPERATIONS,
    }
}

/// Returns WRITEs of many processes to one.
fn many_processes() -> Load {
    let each = RdmaNic::of_herd().process.operations_in_flight;
    let operations = 2 * MACHINES * MANY_PROCESSES * each;
    Load { machines: MACHINES, processes: MANY_PROCESSES, queue_pairs: 1, operations, ..writes(PROCESSES) }
}

/// Returns the highest rate of outbound WRITEs: with one queue pair for each process, without payload.
fn maximum(card: &RdmaNic, seed: u64) -> f64 {
    outbound(card, Load { queue_pairs: 1, payload: 0, ..writes(PROCESSES) }, seed).mops
}

/// Returns the rates that follow from other constants with the same loss.
fn other_fit(card: &RdmaNic, fit: Fit, seed: u64) -> Sentence {
    let Fit { units, cached } = fit;
    let mut other = card.clone();
    (other.engine.units, other.contexts.cached) = (units, cached);
    let send = |count: u32| outbound(&other, Load { queue_pairs: 1, verb: Verb::Send, ..writes(count) }, seed).mops;
    let of_16 = inbound(&other, Load { machines: PROCESSES, processes: 1, ..writes(PROCESSES) }, seed);
    let of_many = inbound(&other, many_processes(), seed);
    let units = if units == 1 { "one unit".to_owned() } else { format!("{units} units") };
    Figures::new(format!("With {units} and {cached} contexts on the NIC"))
        .beside(LOSS, outbound(&other, writes(PROCESSES), seed).mops / maximum(&other, seed), 0.21)
        .with("SEND to 16 clients over that to 10", send(PROCESSES) / send(FEW_CLIENTS))
        .with(MANY_OVER_16, of_many.mops / of_16.mops)
        .with("misses of the machines' NICs", of_many.miss_ratio)
        .sentence()
}
