//! Figure 20: throughput of several NICs in one server.
//!
//! Run: section 6.2. Each NIC has one link, a region of the host's memory, and a part of the keys, divided by
//! their hash. The clients draw keys of a long tail, with 256 operations in flight for each NIC, without regard to the
//! owners of the keys.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::fig16::workload as saturating;
use super::{Axis, Context, Curve, Figures, Findings, Item, Point, Sentence, Tolerance};
use crate::hardware::Hardware;
use crate::load::corpus::{Corpus, THETA, UTILIZATION, Workload};
use crate::load::run::Outcome;
use crate::server::owner;
use crate::zipf::Zipf;

pub(super) const ITEM: Item = Item {
    name: "fig20",
    title: "Throughput of several NICs in one server",
    paper: include_str!("../../papers/fig20-multi-nic.csv"),
    x: Axis::linear("NICs"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.15),
    no_evidence: &[],
    open: &[],
    run: measure,
};

const KV_BYTES: u32 = 5;
const LINE_BITS: u32 = 15;
const COUNT: u32 = 10_000;
/// A ratio that is not tuned: that of Figure 14.
const HALF: f64 = 0.5;

/// Returns a server with this many NICs of section 6.2.
fn server(nics: u32) -> Hardware {
    let mut hardware = Hardware::kv_direct_ten_nics();
    hardware.server.nics = nics;
    hardware
}

/// Returns a workload of clients that wait for all NICs. A GET's request has only its key.
fn workload(is_long: bool, put_share: f64, ratio: f64, seed: u64) -> Workload {
    Workload { whole_pairs: false, count: COUNT, ..saturating(is_long, put_share, ratio, seed) }
}

/// Tunes the load dispatch ratio for the long tail on one of the NICs, as `skep size` does.
fn tuned_ratio(put_share: f64, seed: u64) -> f64 {
    let mut corpus = Corpus::load(&server(10).one_nic(), LINE_BITS, KV_BYTES, seed);
    corpus.tuned(&saturating(true, put_share, 0.0, seed)).ratio
}

/// Returns the GETs and the PUTs of ten NICs, in millions a second.
pub(super) fn ten_nics(seed: u64) -> [f64; 2] {
    let hardware = server(10);
    let mut corpus = Corpus::load(&hardware, LINE_BITS, KV_BYTES, seed);
    [0.0, 1.0].map(|put_share| corpus.run(&workload(true, put_share, tuned_ratio(put_share, seed), seed)).carried_mops)
}

fn measure(context: &mut Context<'_>) -> Findings {
    let counts = [2, 4, 6, 8, 10];
    let seed = context.seed;
    let workload = |ratio, is_long, put_share| workload(is_long, put_share, ratio, seed);
    let (mut gets, mut puts, mut uniform) = (Vec::new(), Vec::new(), Vec::new());
    let (mut half_gets, mut half_puts, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let tuned = [0.0, 1.0].map(|put_share| tuned_ratio(put_share, seed));
    for (done, nics) in counts.into_iter().enumerate() {
        context.progress(done, counts.len());
        let mut corpus = Corpus::load(&server(nics), LINE_BITS, KV_BYTES, seed);
        gets.push(corpus.run(&workload(tuned[0], true, 0.0)));
        puts.push(corpus.run(&workload(tuned[1], true, 1.0)));
        half_gets.push(corpus.run(&workload(HALF, true, 0.0)));
        half_puts.push(corpus.run(&workload(HALF, true, 1.0)));
        uniform.push(corpus.run(&workload(tuned[0], false, 0.0)));
        if nics == 10 {
            let gets = workload(tuned[0], true, 0.0);
            corpus.hardware.host_dram.bandwidth_gb_per_s *= 1e3;
            others.push(corpus.run(&gets));
            corpus.hardware = server(nics);
            corpus.hardware.card.clock_mhz *= 2.0;
            others.push(corpus.run(&gets));
        }
    }
    let point = |reference: &super::Reference| {
        let index = counts.iter().position(|nics| f64::from(*nics) == reference.x()).expect("2, 4, … 10 NICs");
        let runs = if reference.series == "GET" { &gets } else { &puts };
        Point::new(reference, runs[index].carried_mops)
    };
    let curve = |series: &str, what: &str, runs: &[Outcome]| {
        Curve::beside(
            series,
            what,
            counts.iter().map(|nics| f64::from(*nics)).zip(runs.iter().map(|run| run.carried_mops)).collect(),
        )
    };
    let points: Vec<Point> = ITEM.references().iter().map(point).collect();
    let half = format!("l = {HALF}");
    let curves =
        vec![curve("GET", &half, &half_gets), curve("PUT", &half, &half_puts), curve("GET", "uniform", &uniform)];
    let name = format!("if l is {HALF} and not tuned");
    let mut sentences = vec![
        Sentence::variant(&name, &ITEM, &points, "GET", &curves[0]),
        Sentence::variant(&name, &ITEM, &points, "PUT", &curves[1]),
        Figures::new("Load dispatch ratios").with("GET", tuned[0]).with("PUT", tuned[1]).sentence(),
    ];
    sentences.extend(of_ten(&gets[4], seed));
    sentences.extend(causes(&gets, &others, &uniform));
    Findings { points, curves, setting: setting(), sentences }
}

/// Returns the conditions of the run.
fn setting() -> String {
    format!(
        "Long tail, pairs of {KV_BYTES} B, half full. The load dispatch ratio is the middle of those within 3 % of the fastest for one NIC. \
         Each NIC has {COUNT} operations, and the second half of them is counted. Regions are of {} GiB (not in the \
         paper: ten of them fill its server), scaled to 2^{LINE_BITS} lines, with NIC DRAM in proportion. The first \
         thousand keys have the shares \
         that they have in a corpus of full size.",
        server(10).host_dram.size_gib,
    )
}

/// Returns the figures of ten NICs.
fn of_ten(last: &Outcome, seed: u64) -> [Sentence; 2] {
    let [mean, least, most] = hottest(&server(10), KV_BYTES, seed);
    let busiest = Figures::new("Operations of the busiest of ten NICs, over the average")
        .beside("in the run", last.busiest.over_average, 1.5)
        .with("mean over 20 ways to divide the keys", mean)
        .with("least", least)
        .with("most", most);
    let shares = Figures::new("Ten NICs, in %")
        .with("of the busiest one's GETs are forwarded", 100.0 * last.busiest.forwarded)
        .with("of all GETs", 100.0 * last.forwarded_share)
        .with("of the lines are in the NICs' DRAM", 100.0 * last.near_share);
    [busiest.sentence(), shares.sentence()]
}

/// Returns the load of the busiest NIC over the average, for a long tail: mean and extremes over ways to divide the
/// keys.
fn hottest(hardware: &Hardware, kv_bytes: u32, seed: u64) -> [f64; 3] {
    const DIVISIONS: u64 = 20;
    const DRAWS: usize = 50_000;
    let nics = hardware.server.nics;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let bytes = hardware.host_dram.size_gib * 2_f64.powi(30) * f64::from(nics);
    let zipf = Zipf::new((bytes * UTILIZATION / f64::from(kv_bytes)) as u64, THETA);
    let shares = (0..DIVISIONS).map(|division| {
        let mut of_nics = vec![0; nics as usize];
        for _ in 0..DRAWS {
            // Beyond 2^32, ranks wrap around. There are enough of such keys for each NIC to get its part of them.
            of_nics[owner(zipf.draw(&mut random) as u32, seed.wrapping_add(division), nics) as usize] += 1;
        }
        let most: usize = of_nics.into_iter().max().expect("a server has a NIC");
        most as f64 * f64::from(nics) / DRAWS as f64
    });
    let shares: Vec<f64> = shares.collect();
    let extreme = |choose: fn(f64, f64) -> f64| shares.iter().copied().reduce(choose).expect("there are some");
    [shares.iter().sum::<f64>() / shares.len() as f64, extreme(f64::min), extreme(f64::max)]
}

/// Returns what may explain that the paper's GETs fall: the runs, those with another bound removed,
/// and those of uniform keys.
fn causes(gets: &[Outcome], others: &[Outcome], uniform: &[Outcome]) -> [Sentence; 2] {
    let rates = Figures::new("GETs, million/s a NIC")
        .beside("2 NICs", gets[0].carried_mops / 2.0, 139.5)
        .beside("6", gets[2].carried_mops / 6.0, 136.7)
        .beside("10", gets[4].carried_mops / 10.0, 122.2)
        .with("10 with a host memory of a thousand times the bandwidth", others[0].carried_mops / 10.0)
        .with("10 with a clock of twice the rate", others[1].carried_mops / 10.0)
        .with("10 with uniform keys", uniform[4].carried_mops / 10.0)
        .with("cycles in which the busiest of 10 decodes, in %", 100.0 * gets[4].busiest.decoder);
    let paper = Sentence::fact(
        "Between 2 and 10 NICs, the paper's GETs fall from 139.5 to 122.2 million/s a NIC, and its PUTs do not. A clock \
         of 180 MHz over 122.2 is 1.47, near the 1.5 of its busiest NIC. The paper tuned l for each point and does \
         not give its values.",
    );
    [rates.sentence(), paper]
}
