//! Table 4: the loss of memory latency and bandwidth for a program that runs beside the store.
//!
//! Run, on two of this machine's cores, in rounds that alternate:
//!
//! ```text
//! core A   asleep           | arithmetic        | a shard: batches of GETs and PUTs on local memory
//! core B   chase, then sum  | chase, then sum   | chase, then sum      the program, whose loss is measured
//! ```
//!
//! The chase makes random reads, each of which returns the address of the next. The sum reads adjacent bytes. The
//! arithmetic is the control: it shows the loss due to a busy core without memory accesses. The shard's own loss is
//! measured in the same rounds. Time is measured, so this item differs from run to run.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_store::hash::Settings;
use skep_store::processor::{Processor, Replies};

use super::{Axis, Context, Curve, Figures, Findings, Item, Point, Sentence, Tolerance};
use crate::clock::{Clock, all, both, run};
use crate::dispatcher::LINE_BYTES;
use crate::dram::Dram;
use crate::hardware::Hardware;
use crate::pcie::{Link, Residence};
use crate::time::Time;

pub(super) const ITEM: Item = Item {
    name: "table4",
    title: "Memory latency and bandwidth of a program beside the store",
    paper: include_str!("../../papers/table4-cpu-impact.csv"),
    x: Axis::linear("0: latency, 1: bandwidth"),
    y: Axis::linear("busy over idle"),
    no_evidence: &[],
    tolerance: Tolerance::Relative(0.05),
    open: &[],
    run: measure,
};

/// Memory of the shard, and of the program. It is many times larger than a processor's cache.
const MEMORY: u64 = 256 << 20;
const KV_SIZE: usize = 64;
const UTILIZATION: f64 = 0.4;
/// Requests of a batch, of which every other one is a PUT.
const BATCH: usize = 256;
const ROUNDS: usize = 25;
/// How long each of the program's two parts runs in a round.
const PART: Duration = Duration::from_millis(30);
/// Time to wait after a change of the other core's work.
const SETTLING: Duration = Duration::from_millis(5);
/// Numbers from one link of the chase to the next, which make up a line.
const LINKS_PER_LINE: usize = 16;
/// Steps of the chase, and numbers of the sum, between two reads of the clock.
const STEPS: usize = 1 << 14;

/// The work of the other core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Neighbour {
    Asleep,
    Computes,
    Serves,
    Ends,
}

/// The results of a round.
#[derive(Clone, Copy, Default)]
struct Round {
    /// Latency of a random read in ns, while the other core is asleep, computing or serving.
    latency_ns: [f64; 3],
    /// Rate of sequential reads in GB/s, in the same three cases.
    gb_per_s: [f64; 3],
    /// Rate of the shard in million operations a second: alone, beside the chase, beside the sum.
    shard_mops: [f64; 3],
}

const NEIGHBOURS: [Neighbour; 3] = [Neighbour::Asleep, Neighbour::Computes, Neighbour::Serves];

fn measure(context: &mut Context<'_>) -> Findings {
    let Some([shard_core, program_core]) = two_cores() else {
        let published =
            |row: &super::Reference| Curve::new(format!("{}, published", row.series), vec![(row.x(), row.y)]);
        return Findings {
            curves: ITEM.references().iter().map(published).collect(),
            setting: "Not measured: this process may use only one core, and the measurement needs two.".to_owned(),
            ..Findings::default()
        };
    };
    let rounds = rounds(context, shard_core, program_core);
    let [alone, beside] = streamed_on_the_model(context.seed);
    let of = |figure: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(figure).collect());
    let latency = |index: usize| of(&move |round| round.latency_ns[index] / round.latency_ns[0]);
    let bandwidth = |index: usize| of(&move |round| round.gb_per_s[index] / round.gb_per_s[0]);
    let shard = |index: usize| of(&move |round| round.shard_mops[index] / round.shard_mops[0]);
    // The least disturbed round of each kind, because other programs only reduce the figures.
    let best_latency = |index: usize| of(&move |round| round.latency_ns[index]).least;
    let best_bandwidth = |index: usize| of(&move |round| round.gb_per_s[index]).most;
    let point = |reference: &super::Reference| {
        Point::new(reference, if reference.x() == 0.0 { latency(2).median } else { bandwidth(2).median })
    };
    Findings {
        points: ITEM.references().iter().map(point).collect(),
        curves: Vec::new(),
        setting: format!(
            "{ROUNDS} rounds in real time on cores {shard_core} and {program_core}{}, with other results in each run: \
             medians of each round's ratio, with quartiles. The program alone: {:.0} ns for a random read and {:.1} \
             GB/s, in {} MiB. The shard: {} MiB, {:.0} % full, half GETs and half PUTs of {KV_SIZE} B, {:.1} \
             million/s alone. It keeps {} of that beside random reads and {} beside sequential ones. On the model of \
             the board, a program that reads adjacent lines of the host's memory has {alone:.1} GB/s, and {beside:.1} \
             while both links of the NIC read lines as fast as they can (paper: 60.3 and 55.8).",
            if are_siblings(shard_core, program_core) { ", two threads of one core" } else { "" },
            best_latency(0),
            best_bandwidth(0),
            MEMORY >> 20,
            MEMORY >> 20,
            100.0 * UTILIZATION,
            of(&|round| round.shard_mops[0]).median,
            shard(1),
            shard(2),
        ),
        sentences: vec![
            Sentence::fact(
                "The paper's store reaches the host's memory by PCIe, and a program beside it loses 1.6 % of latency \
                 and 7.5 % of bandwidth. Ours works on a core, which shares the last cache and the path to memory with \
                 the program. The difference between shard and arithmetic is lost to the shard's accesses. The rest \
                 is lost to a busy core or to other programs.",
            ),
            Figures::new("Medians, over those of the program alone")
                .beside("latency beside the shard", latency(2).median, 1.016)
                .with("beside arithmetic on that core", latency(1).median)
                .beside("bandwidth beside the shard", bandwidth(2).median, 0.925)
                .with("beside arithmetic", bandwidth(1).median)
                .sentence(),
            Figures::new("The same in the least disturbed rounds of each kind")
                .with("latency beside the shard", best_latency(2) / best_latency(0))
                .with("beside arithmetic", best_latency(1) / best_latency(0))
                .with("bandwidth beside the shard", best_bandwidth(2) / best_bandwidth(0))
                .with("beside arithmetic", best_bandwidth(1) / best_bandwidth(0))
                .sentence(),
        ],
    }
}

/// Extremes, median and quartiles.
struct Spread {
    least: f64,
    low: f64,
    median: f64,
    high: f64,
    most: f64,
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |quarter: usize| figures[(figures.len() - 1) * quarter / 4];
        Spread { least: at(0), low: at(1), median: at(2), high: at(3), most: at(4) }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} ({:.3} to {:.3})", self.median, self.low, self.high)
    }
}

/// Returns two cores that this process may use. If possible, they are not two threads of one core.
fn two_cores() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).ok()?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let (first, others) = cores.split_first()?;
    let other = others.iter().find(|other| !are_siblings(*first, **other)).or(others.first())?;
    Some([*first, *other])
}

/// Returns true if the system reports these as threads of one core.
fn are_siblings(core: usize, other: usize) -> bool {
    let id = |core: usize, name: &str| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/topology/{name}")).ok()
    };
    let both = ["core_id", "physical_package_id"].map(|name| id(core, name).zip(id(other, name)));
    both.iter().all(|pair| pair.as_ref().is_some_and(|(one, other)| one == other))
}

fn stay_on(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    // If the system refuses, it chooses the cores of the threads. It rarely chooses one core for two busy threads.
    _ = sched_setaffinity(None, &cores);
}

fn rounds(context: &mut Context<'_>, shard_core: usize, program_core: usize) -> Vec<Round> {
    let mode = AtomicU8::new(Neighbour::Asleep as u8);
    let (ready, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let seed = context.seed;
    let enter = |neighbour: Neighbour| {
        mode.store(neighbour as u8, Ordering::Relaxed);
        thread::sleep(SETTLING);
    };
    let mut rounds = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| neighbour(shard_core, seed, &mode, &ready, &served));
        // The program has its own thread, so that the calling thread is not pinned.
        let program = scope.spawn(move || {
            stay_on(program_core);
            Program::new(seed)
        });
        let mut program = program.join().expect("making the program's memory does not panic");
        while !ready.load(Ordering::Acquire) {
            thread::sleep(SETTLING);
        }
        for number in 0..ROUNDS {
            context.progress(number, ROUNDS);
            let mut round = Round::default();
            for (index, neighbour) in NEIGHBOURS.into_iter().enumerate() {
                enter(neighbour);
                let mops = |before: u64, begun: Instant| {
                    (served.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64() / 1e6
                };
                let counted = || (served.load(Ordering::Relaxed), Instant::now());
                if neighbour == Neighbour::Serves {
                    let (before, begun) = counted();
                    thread::sleep(PART);
                    round.shard_mops[0] = mops(before, begun);
                }
                let (before, begun) = counted();
                let chased = scope.spawn(move || {
                    stay_on(program_core);
                    let ns = program.chase_ns();
                    (program, ns)
                });
                (program, round.latency_ns[index]) = chased.join().expect("chasing does not panic");
                round.shard_mops[1] = mops(before, begun);
                let (before, begun) = counted();
                let summed = scope.spawn(move || {
                    stay_on(program_core);
                    let gb_per_s = program.sum_gb_per_s();
                    (program, gb_per_s)
                });
                (program, round.gb_per_s[index]) = summed.join().expect("summing does not panic");
                round.shard_mops[2] = mops(before, begun);
            }
            rounds.push(round);
        }
        mode.store(Neighbour::Ends as u8, Ordering::Relaxed);
    });
    rounds
}

/// Runs the work of the other core until it is told to end.
fn neighbour(core: usize, seed: u64, mode: &AtomicU8, ready: &AtomicBool, served: &AtomicU64) {
    stay_on(core);
    let mut shard = Shard::new(seed);
    ready.store(true, Ordering::Release);
    let mut number = seed;
    loop {
        let mode = mode.load(Ordering::Relaxed);
        if mode == Neighbour::Serves as u8 {
            served.fetch_add(shard.serve(), Ordering::Relaxed);
        } else if mode == Neighbour::Computes as u8 {
            for _ in 0..1 << 12 {
                number = std::hint::black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
            }
        } else if mode == Neighbour::Ends as u8 {
            break;
        } else {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A store of the product, and requests for it.
struct Shard {
    processor: Processor,
    replies: Replies,
    random: Xoshiro256PlusPlus,
    keys: u32,
    value: Vec<u8>,
}

impl Shard {
    fn new(seed: u64) -> Self {
        let settings = Settings::for_utilization(MEMORY, KV_SIZE, UTILIZATION + 0.01, seed).expect("they fit");
        let mut shard = Shard {
            processor: Processor::new(&settings).expect("the machine has 256 MiB"),
            replies: Replies::with_budget(usize::MAX),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            keys: (UTILIZATION * MEMORY as f64 / KV_SIZE as f64) as u32,
            value: vec![7; KV_SIZE - size_of::<u32>()],
        };
        let all: Vec<u32> = (0..shard.keys).collect();
        for keys in all.chunks(BATCH) {
            shard.execute(keys, |_| true);
        }
        shard
    }

    /// Executes a batch. Returns its number of operations.
    fn serve(&mut self) -> u64 {
        let keys: [u32; BATCH] = std::array::from_fn(|_| self.random.random_range(0..self.keys));
        self.execute(&keys, |index| index % 2 == 0);
        BATCH as u64
    }

    fn execute(&mut self, keys: &[u32], puts: fn(usize) -> bool) {
        let keys: Vec<[u8; 4]> = keys.iter().map(|key| key.to_le_bytes()).collect();
        let put = Operation::Put { value: &self.value, condition: PutCondition::Always };
        let operation = |index: usize| if puts(index) { put } else { Operation::Get };
        let requests: Vec<_> =
            keys.iter().enumerate().map(|(index, key)| Request { key, operation: operation(index) }).collect();
        self.processor.execute(&requests, &mut self.replies);
        assert!(
            !matches!(self.replies.get(0), Reply::Failed(_) | Reply::NotFound | Reply::Deferred),
            "the store holds the corpus"
        );
    }
}

/// The program beside the store: a memory, and an index in it.
struct Program {
    /// The first number of each line is the index of the next line. All lines form one circle in random order.
    links: Vec<u32>,
    line: u32,
}

impl Program {
    fn new(seed: u64) -> Self {
        let line_count = (MEMORY / 64) as u32;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut circle: Vec<u32> = (0..line_count).collect();
        // Sattolo's shuffle: every permutation that is one circle has the same probability.
        for last in (1..line_count).rev() {
            circle.swap(last as usize, random.random_range(0..last) as usize);
        }
        let mut links = vec![1; line_count as usize * LINKS_PER_LINE];
        for (line, next) in circle.iter().enumerate() {
            links[line * LINKS_PER_LINE] = *next;
        }
        Program { links, line: 0 }
    }

    /// Returns the time of a random read that has to wait for the one before it.
    fn chase_ns(&mut self) -> f64 {
        let (mut steps, begun) = (0, Instant::now());
        while begun.elapsed() < PART {
            for _ in 0..STEPS {
                self.line = self.links[self.line as usize * LINKS_PER_LINE];
            }
            steps += STEPS;
        }
        begun.elapsed().as_nanos() as f64 / steps as f64
    }

    /// Returns the rate at which adjacent bytes are read.
    fn sum_gb_per_s(&self) -> f64 {
        let (mut bytes, mut sum, begun) = (0, 0_u32, Instant::now());
        let mut chunks = self.links.chunks(STEPS).cycle();
        while begun.elapsed() < PART {
            let chunk = chunks.next().expect("the iterator never ends");
            sum = sum.wrapping_add(chunk.iter().fold(0, |sum, number| sum.wrapping_add(*number)));
            bytes += size_of_val(chunk);
        }
        std::hint::black_box(sum);
        bytes as f64 / begun.elapsed().as_nanos() as f64
    }
}

/// Returns the GB/s of a program on the model that reads adjacent lines: alone, and beside the NIC at its peak.
fn streamed_on_the_model(seed: u64) -> [f64; 2] {
    const LINES: u32 = 20_000;
    const READS_IN_FLIGHT: usize = 128;
    let hardware = Hardware::kv_direct();
    [0, hardware.pcie.links].map(|busy| {
        let clock = Rc::new(Clock::default());
        let memory = Rc::new(Dram::of_host(&hardware.host_dram));
        let link =
            |number: u32| Link::new(Rc::clone(&clock), Rc::clone(&memory), &hardware.pcie, seed + u64::from(number));
        let links: Vec<Link> = (0..busy).map(link).collect();
        let end = Cell::new(Time::ZERO);
        let program = async {
            memory.stream(&clock, LINES).await;
            end.set(clock.now());
        };
        let reader = async |number: usize| {
            while end.get() == Time::ZERO {
                links[number % links.len()].read(0, LINE_BYTES, Residence::Memory).await;
            }
        };
        let width = READS_IN_FLIGHT * links.len();
        run(&clock, 1, [both(program, all(width, (0..width).map(reader)))]);
        f64::from(LINES * LINE_BYTES) / end.get().as_ns()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_on_the_model_loses_the_bytes_that_the_nic_reads() {
        let [alone, beside] = streamed_on_the_model(1);
        // Two links read 60 million lines a second each.
        assert!((59.8..60.4).contains(&alone) && (6.5..8.5).contains(&(alone - beside)), "{alone} and {beside}");
    }

    #[test]
    fn the_chase_meets_every_line_once() {
        let program = Program::new(3);
        let (mut line, mut steps) = (0, 0);
        loop {
            line = program.links[line as usize * LINKS_PER_LINE];
            steps += 1;
            if line == 0 {
                break;
            }
        }
        assert_eq!(steps, MEMORY / 64);
    }

    #[test]
    fn a_spread_is_of_the_middle_half() {
        let spread = Spread::of(vec![5.0, 1.0, 2.0, 4.0, 3.0]);
        assert_eq!((spread.least, spread.low, spread.median, spread.high, spread.most), (1.0, 2.0, 3.0, 4.0, 5.0));
        assert_eq!(spread.to_string(), "3.000 (2.000 to 4.000)");
    }

    #[test]
    fn the_shard_works_on_its_corpus() {
        let mut shard = Shard::new(5);
        assert_eq!(shard.serve(), BATCH as u64);
        assert!((shard.processor.statistics().pair_bytes as f64 / MEMORY as f64 - UTILIZATION).abs() < 0.001);
    }
}
