//! Figure 13a: atomics on one to five keys, with and without the reservation station, and by RDMA.
//!
//! Run: additions to 8-byte numbers with 8-byte keys, executed by the pipeline with the whole memory. The keys
//! take turns. One run has the reservation station, and in the other the decoder stalls. Two simple models are
//! compared. The first is a NIC that executes the atomics on one address one after the other. In the second, each core
//! behind a NIC serves one key.

use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, PutCondition, Request, Shape, Update};
use skep_store::hash::Settings;
use skep_store::processor::Replies;

use super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use crate::clock::{Clock, run};
use crate::dispatcher::Policy;
use crate::hardware::Hardware;
use crate::load::corpus::processor;
use crate::memory::Pace;
use crate::pipeline::{Clients, Hazard, run_pipeline};
use crate::resource::{Meter, Path, mops};
use crate::time::Time;

pub(super) const ITEM: Item = Item {
    name: "fig13a",
    title: "Atomics with and without out-of-order execution",
    paper: include_str!("../../papers/fig13a-ooo-atomics.csv"),
    x: Axis::linear("keys"),
    y: Axis::logarithmic("operations (million/s)"),
    tolerance: Tolerance::Relative(0.10),
    no_evidence: &[NoEvidence::input(
        "The one or two rates of each RDMA machine were fitted to the ends of its curve.",
        |series, _| series.ends_with("RDMA"),
    )],
    open: &[],
    run: measure,
};

/// Time of an atomic in the RDMA NIC that the paper cites, fitted to its rate for one key.
const ONE_SIDED_NS: f64 = 1e3 / 2.243;
/// Time of a request on a core, and on the NIC before all cores. They are fitted to one key, and to the ceiling.
const TWO_SIDED_CORE_NS: f64 = 1e3 / 27.37;
const TWO_SIDED_NIC_NS: f64 = 1e3 / 97.31;

fn measure(context: &mut Context<'_>) -> Findings {
    let hardware = Hardware::kv_direct();
    let references = ITEM.references();
    let steps = references.len() + 5;
    let mut findings = Findings::default();
    for (done, reference) in references.iter().enumerate() {
        context.progress(done, steps);
        let keys = reference.x() as u32;
        let in_turn = |number: u32| number % keys;
        let ours = match reference.series.as_str() {
            "with OoO" => atomics(&hardware, Hazard::Waits, keys, 60_000, context.seed, in_turn),
            "without OoO" => atomics(&hardware, Hazard::Stalls, keys, 4_000, context.seed, in_turn),
            "one-sided RDMA" => served(keys, ONE_SIDED_NS, 0.0),
            _ => served(keys, TWO_SIDED_CORE_NS, TWO_SIDED_NIC_NS),
        };
        findings.points.push(Point::new(reference, ours));
    }
    let mut drawn = Vec::new();
    for keys in 1..=5 {
        context.progress(references.len() + keys as usize - 1, steps);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(context.seed);
        let at_random = |_: u32| random.random_range(0..keys);
        drawn.push((f64::from(keys), atomics(&hardware, Hazard::Stalls, keys, 4_000, context.seed, at_random)));
    }
    let ours = |index: usize| findings.points[index].ours;
    findings.sentences = vec![
        Figures::new("One key, million/s")
            .beside("with the station", ours(0), 180.0)
            .beside("without", ours(5), 0.9415)
            .beside("gain", ours(0) / ours(5), 191.0)
            .sentence(),
        Figures::new("Five keys without the station, million/s")
            .beside("in turns", ours(9), 4.707)
            .with("drawn at random", drawn[4].1)
            .sentence(),
        Sentence::fact(
            "With keys drawn at random, a waiting operation blocks all operations after it, also those on free keys.",
        ),
    ];
    findings.setting = "Keys take turns. The one or two rates of each RDMA machine are fitted to the ends of its \
                        published curve. Only the shape between the ends is measured."
        .to_owned();
    findings.curves = vec![
        Curve::beside("without OoO", "keys drawn at random", drawn),
        Curve::beside(
            "without OoO",
            "closed form: 0.9415 per key",
            [1.0, 2.0, 3.0, 4.0, 5.0].map(|keys| (keys, 0.9415 * keys)).to_vec(),
        ),
    ];
    findings
}

/// Runs additions, each to the key that `draw` returns.
fn atomics(hardware: &Hardware, hazard: Hazard, keys: u32, count: u32, seed: u64, draw: impl FnMut(u32) -> u32) -> f64 {
    let settings = Settings { memory: 1 << 20, hash_index_ratio: 0.5, inline_threshold: 16, grows: false, seed };
    let (mut processor, _) = processor(hardware, &settings, Policy::Dispatch(0.0), seed);
    let mut replies = Replies::with_budget(usize::MAX);
    let keys: Vec<[u8; 8]> = (0..keys).map(|key| u64::from(key).to_le_bytes()).collect();
    let put = Operation::Put { value: &[0; 8], condition: PutCondition::Always };
    let puts: Vec<_> = keys.iter().map(|key| Request { key, operation: put }).collect();
    processor.memory().set_pace(Pace::AtOnce);
    processor.execute(&puts, &mut replies);
    processor.memory().set_pace(Pace::Timed);
    let add = Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::U64,
        shape: Shape::ScalarToScalar,
        operand: &[1, 0, 0, 0, 0, 0, 0, 0],
        initial: None,
        return_old: true,
    });
    let requests: Vec<_> =
        (0..count).map(draw).map(|key| Request { key: &keys[key as usize], operation: add }).collect();
    let passages = run_pipeline(&mut processor, hardware, hazard, &requests, Clients::Open(&[]), &mut replies);
    mops(passages.iter().map(|passage| passage.replied).collect())
}

/// Returns the rate of operations whose keys take turns. Each first occupies a path that all share, and then the path
/// of its key.
fn served(keys: u32, of_key_ns: f64, of_all_ns: f64) -> f64 {
    let clock = Rc::new(Clock::default());
    let paths: Vec<Path> = (0..keys).map(|_| Path::default()).collect();
    let (all, meter) = (Path::default(), Meter::default());
    let operation = async |number: u32| {
        clock.until(all.reserve(clock.now(), Time::from_ns(of_all_ns))).await;
        let path = &paths[(number % keys) as usize];
        clock.until(path.reserve(clock.now(), Time::from_ns(of_key_ns))).await;
        meter.count(&clock);
    };
    run(&clock, 256, (0..10_000).map(operation));
    meter.mops()
}
