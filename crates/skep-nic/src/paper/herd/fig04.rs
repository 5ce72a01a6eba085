//! Figure 4: rates of outbound verbs by payload.
//!
//! Run: 16 processes of one server with one queue pair each, so that the contexts of all are on the NIC.

use super::super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance, Variant};
use super::PROCESSES;
use crate::rdma::card::RdmaNic;
use crate::rdma::nic::Verb;
use crate::rdma::run::{Load, Outcome, outbound};

pub(in super::super) const ITEM: Item = Item {
    name: "herd-fig04",
    title: "Outbound verbs of HERD's RDMA NIC by payload",
    paper: include_str!("../../../papers/herd-fig04.csv"),
    x: Axis::linear("payload (B)"),
    y: Axis::linear("Mops, bytes or share, as the series says"),
    tolerance: Tolerance::Relative(0.05),
    no_evidence: &[
        NoEvidence::input("The rate of the engine is a constant of the model.", |series, _| {
            [WRITE, READ].contains(&series)
        }),
        NoEvidence::calculation("The unit of PIO is the paper's, so drops have its distance.", |series, _| {
            [WRITE_DROPS, SEND_DROPS].contains(&series)
        }),
        NoEvidence::calculation(
            "It follows from constants alone: the fitted rate of PIO and the given rates of the engine.",
            |series, _| [SEND, OVER_READ, PIO_BUSY, ENGINE_BUSY].contains(&series),
        ),
    ],
    open: &[],
    run: measure,
};

const WRITE: &str = "WRITE";
const READ: &str = "READ";
const SEND: &str = "SEND: highest rate";
const KNEE: &str = "WRITE: largest payload that PIO does not limit (B)";
const WRITE_DROPS: &str = "WRITE: bytes between drops";
const SEND_DROPS: &str = "SEND: bytes between drops";
const OVER_READ: &str = "WRITE over READ";
const PIO_BUSY: &str = "WRITE: busy share of PIO";
const ENGINE_BUSY: &str = "READ: busy share of the engine";

/// Bytes between two payloads of a curve, and the largest payload: the right end of the paper's axis.
const STEP: usize = 4;
const PAYLOAD_MAX: u32 = 256;
const OPERATIONS: u32 = 8192;
/// The share by which a rate falls between neighbours if it drops.
const DROP: f64 = 0.05;
/// The busy share of a part that limits.
const LIMITS: f64 = 0.95;
/// A payload above the knee, which Figure 6 has too.
const ABOVE_KNEE: u32 = 32;

/// The results of a verb by payload.
struct ByPayload(Vec<(u32, Outcome)>);

/// A drop of the rate.
#[derive(Clone, Copy, Debug)]
struct Drop {
    /// The last payload before it.
    payload: u32,
    /// The rate at this payload.
    mops: f64,
}

fn measure(context: &mut Context<'_>) -> Findings {
    let card = RdmaNic::of_herd();
    let mut words = card.clone();
    words.pio.unit_bytes = 8;
    words.pio.million_units_per_s *= f64::from(card.pio.unit_bytes / words.pio.unit_bytes);
    let runs = [(&card, Verb::Write), (&card, Verb::Send), (&card, Verb::Read), (&words, Verb::Write)];
    let mut done = 0;
    let [writes, sends, reads, in_words] = runs.map(|(card, verb)| {
        done += 1;
        let by_payload = ByPayload::run(card, verb, context.seed);
        context.progress(done, runs.len());
        by_payload
    });
    let points = points(&writes, &sends, &reads);
    let knee_in_words = [(0.0, f64::from(in_words.knee()))];
    let name = "if PIO writes words of 8 B with the same bandwidth";
    let variant = Variant::of(name, &ITEM, &points, KNEE, &knee_in_words);
    let busy = |name: &str, outcome: &Outcome| {
        Figures::new(format!("Busy shares, {name}")).with("PIO", outcome.pio).with("engine", outcome.engine).sentence()
    };
    Findings {
        points,
        curves: vec![
            Curve::new("inlined WRITE over UC", writes.curve()),
            Curve::new("inlined SEND over UD", sends.curve()),
            Curve::new("READ over RC", reads.curve()),
            Curve::new("inlined WRITE, PIO in words of 8 B", in_words.curve()),
        ],
        setting: format!(
            "{OPERATIONS} operations of each payload from 0 to {PAYLOAD_MAX} B in steps of {STEP} B, on the NIC {}. \
             {PROCESSES} processes with one queue pair each post them. A rate drops where it falls by more than {DROP} \
             to the next payload. A part limits with a busy share of at least {LIMITS}.",
            card.name
        ),
        sentences: vec![
            Sentence::Variant(variant),
            busy("WRITEs of 28 B", writes.at(28)),
            busy("WRITEs of 32 B", writes.at(ABOVE_KNEE)),
            busy("SENDs without payload", sends.at(0)),
            busy("READs of 32 B", reads.at(ABOVE_KNEE)),
            drops_of("WRITE", &writes),
            drops_of("SEND", &sends),
        ],
    }
}

/// Returns the numbers of the text in the order of their file, and its statements.
fn points(writes: &ByPayload, sends: &ByPayload, reads: &ByPayload) -> Vec<Point> {
    let ours = |series: &str| match series {
        WRITE => (writes.at(0).mops, ITEM.tolerance),
        READ => (reads.at(0).mops, ITEM.tolerance),
        SEND => (sends.highest(), Tolerance::AtMost),
        KNEE => (f64::from(writes.knee()), ITEM.tolerance),
        WRITE_DROPS => (writes.between_drops(), ITEM.tolerance),
        SEND_DROPS => (sends.between_drops(), ITEM.tolerance),
        other => unreachable!("{other} is in no row"),
    };
    let mut points: Vec<Point> = ITEM
        .references()
        .iter()
        .map(|reference| {
            let (ours, tolerance) = ours(&reference.series);
            Point::new(reference, ours).within(tolerance)
        })
        .collect();
    let payload = f64::from(ABOVE_KNEE);
    let at = |series: &str, limit: f64, ours: f64| Point::further(series, payload, limit, ours);
    points.extend([
        at(PIO_BUSY, LIMITS, writes.at(ABOVE_KNEE).pio).within(Tolerance::StatedAtLeast),
        at(ENGINE_BUSY, LIMITS, reads.at(ABOVE_KNEE).engine).within(Tolerance::StatedAtLeast),
        at(OVER_READ, 1.0, writes.at(ABOVE_KNEE).mops / reads.at(ABOVE_KNEE).mops).within(Tolerance::StatedAtLeast),
    ]);
    let earlier = "SEND: payload of its first drop, less that of a WRITE from the same rate (B)";
    points.push(Point::further(earlier, 0.0, -1.0, earlier_drop(writes, sends)).within(Tolerance::StatedAtMost));
    points
}

/// Returns the payload at which a SEND drops first, less the payload at which a WRITE drops from the same rate.
fn earlier_drop(writes: &ByPayload, sends: &ByPayload) -> f64 {
    let of_send = sends.drops()[0];
    let is_alike = |drop: &&Drop| (drop.mops / of_send.mops - 1.0).abs() < DROP;
    let of_write = *writes.drops().iter().find(is_alike).expect("a WRITE has the rates of a SEND");
    f64::from(of_send.payload) - f64::from(of_write.payload)
}

fn drops_of(verb: &str, by_payload: &ByPayload) -> Sentence {
    let heading = Figures::new(format!("The {verb} drops above these payloads, B"));
    by_payload.drops().iter().fold(heading, |figures, drop| figures.with("", f64::from(drop.payload))).sentence()
}

impl ByPayload {
    fn run(card: &RdmaNic, verb: Verb, seed: u64) -> Self {
        let load = |payload: u32| Load {
            machines: 1,
            processes: PROCESSES,
            queue_pairs: 1,
            verb,
            payload,
            operations: OPERATIONS,
        };
        let payloads = (0..=PAYLOAD_MAX).step_by(STEP);
        ByPayload(payloads.map(|payload| (payload, outbound(card, load(payload), seed))).collect())
    }

    fn at(&self, payload: u32) -> &Outcome {
        &self.0[payload as usize / STEP].1
    }

    fn highest(&self) -> f64 {
        self.0.iter().map(|(_, outcome)| outcome.mops).fold(0.0, f64::max)
    }

    /// Returns the largest payload with the highest rate.
    fn knee(&self) -> u32 {
        let highest = self.highest();
        let at_rate = self.0.iter().filter(|(_, outcome)| outcome.mops > (1.0 - DROP / 2.0) * highest);
        at_rate.map(|(payload, _)| *payload).max().unwrap_or_default()
    }

    fn drops(&self) -> Vec<Drop> {
        let neighbours = self.0.windows(2).filter(|two| two[1].1.mops < (1.0 - DROP) * two[0].1.mops);
        neighbours.map(|two| Drop { payload: two[0].0, mops: two[0].1.mops }).collect()
    }

    /// Returns the distance between two drops that differs most from that of the paper.
    fn between_drops(&self) -> f64 {
        let drops = self.drops();
        let distances = drops.windows(2).map(|two| f64::from(two[1].payload - two[0].payload));
        let published = |distance: f64| (distance - 64.0).abs();
        distances.max_by(|one, other| published(*one).total_cmp(&published(*other))).unwrap_or_default()
    }

    fn curve(&self) -> Vec<(f64, f64)> {
        self.0.iter().map(|(payload, outcome)| (f64::from(*payload), outcome.mops)).collect()
    }
}
