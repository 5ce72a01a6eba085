//! A run that the items about several NICs share with [`crate::sizing`]. A hash of the keys divides one corpus among
//! the NICs. The clients draw keys of all NICs.

use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Reply, Request};
use skep_store::hash::Settings;
use skep_store::processor::{Processor, Replies};

use super::corpus::{KEY_BYTES, THETA, UTILIZATION, keys, processor_on, requests};
use crate::clock::Clock;
use crate::dispatcher::{Dispatcher, Extent, LINE_BYTES, MemoryLoad, Policy};
use crate::hardware::Hardware;
use crate::memory::{NicMemory, Pace};
use crate::network::carry;
use crate::resource::mops;
use crate::server::{Nic, host_memories, owner, run_server};
use crate::time::Time;

/// Stores of all NICs of the server, each with the keys that it owns.
pub(crate) struct ServerCorpus {
    clock: Rc<Clock>,
    extent: Extent,
    processors: Vec<Processor<NicMemory>>,
    replies: Vec<Replies>,
    key_count: u32,
    /// Number of keys in the memory of the hardware. The corpus has a part of them.
    full_key_count: f64,
    /// Skew of a long tail.
    pub(crate) theta: f64,
    value: Vec<u8>,
    salt: u64,
}

/// The operations of a run.
#[derive(Clone, Copy)]
pub(crate) struct ServerWorkload {
    /// The load dispatch ratio.
    pub(crate) ratio: f64,
    pub(crate) is_long: bool,
    /// Share of PUTs; the others are GETs.
    pub(crate) put_share: f64,
    /// Interval after which clients have another operation.
    pub(crate) interval: Time,
    /// Number of measured operations for each NIC.
    pub(crate) count: u32,
    pub(crate) seed: u64,
}

/// The results of a run.
pub(crate) struct ServerOutcome {
    /// Rate of all NICs.
    pub(crate) mops: f64,
    /// Lines that one operation accesses.
    pub(crate) lines: f64,
    /// Share of lines that the NICs' DRAM served.
    pub(crate) near_share: f64,
    /// Share of operations that got their value from another operation.
    pub(crate) forwarded: f64,
    /// Latencies as for one NIC, in the order of the replies of all NICs.
    pub(crate) latencies: Vec<Time>,
    /// Time from the start until the last reply has left a wire.
    pub(crate) span: Time,
    pub(crate) busiest: BusiestNic,
}

/// The NIC with the most operations.
pub(crate) struct BusiestNic {
    /// Its share of all operations, over the average.
    pub(crate) over_average: f64,
    pub(crate) operations: usize,
    /// Share of the cycles in which its decoder was busy: operations over cycles.
    pub(super) decoder: f64,
    /// Share of its operations that got their value from another operation.
    pub(super) forwarded: f64,
    /// Total time in flight of its operations.
    pub(crate) held: Time,
    /// The load of its memory's parts.
    pub(crate) load: MemoryLoad,
}

impl ServerCorpus {
    /// Loads pairs of this size into this many lines of each NIC, until the memory is half full.
    pub(super) fn load(hardware: &Hardware, line_bits: u32, kv_bytes: u32, seed: u64) -> Self {
        let memory = u64::from(LINE_BYTES) << line_bits;
        let settings = Settings::for_utilization(memory, kv_bytes as usize, UTILIZATION + 0.01, seed)
            .expect("the paper's sizes fit at half utilization");
        ServerCorpus::load_with(hardware, &settings, kv_bytes, UTILIZATION).expect("the corpus fits")
    }

    /// Loads pairs of this size up to this share of all NICs' memory. Returns `None` if a NIC has no room for its
    /// pairs.
    pub(crate) fn load_with(hardware: &Hardware, settings: &Settings, kv_bytes: u32, utilization: f64) -> Option<Self> {
        let nics = hardware.server.nics;
        let clock = Rc::new(Clock::default());
        let seed = settings.seed;
        let keys_of = |bytes: f64| bytes * f64::from(nics) * utilization / f64::from(kv_bytes);
        let key_count = keys_of(settings.memory as f64) as u32;
        let mut extent = None;
        let processors = (0..nics)
            .map(|nic| {
                let (processor, of_nic) =
                    processor_on(&clock, hardware, settings, Policy::Dispatch(0.0), of_nic(seed, nic));
                extent = Some(of_nic);
                processor.memory().set_pace(Pace::AtOnce);
                processor
            })
            .collect();
        let mut corpus = ServerCorpus {
            clock,
            extent: extent?,
            processors,
            replies: (0..nics).map(|_| Replies::with_budget(usize::MAX)).collect(),
            key_count,
            full_key_count: keys_of(hardware.host_dram.size_gib * 2_f64.powi(30)),
            theta: THETA,
            value: vec![7; (kv_bytes - KEY_BYTES) as usize],
            salt: seed,
        };
        let all: Vec<(u32, bool)> = (0..key_count).map(|key| (key, true)).collect();
        for chunk in all.chunks(1 << 14) {
            corpus.execute(chunk);
            if !corpus.replies.iter().flat_map(Replies::iter).all(|reply| reply == Reply::Done) {
                return None;
            }
        }
        Some(corpus)
    }

    /// Runs a workload on the board for which the corpus was loaded, or on one that differs only in its speeds.
    pub(crate) fn run(&mut self, hardware: &Hardware, workload: &ServerWorkload) -> ServerOutcome {
        let hosts = host_memories(hardware);
        let policy = Policy::Dispatch(workload.ratio);
        let dispatchers: Vec<_> = (0..)
            .zip(&hosts)
            .map(|(nic, host)| {
                let seed = of_nic(workload.seed, nic);
                Rc::new(Dispatcher::beside_others(&self.clock, host, hardware, self.extent, policy, seed))
            })
            .collect();
        for (processor, dispatcher) in self.processors.iter().zip(&dispatchers) {
            processor.memory().set_dispatcher(Rc::clone(dispatcher));
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(workload.seed);
        let zipf = workload.is_long.then(|| LongTail::new(self.key_count, self.full_key_count, self.theta));
        let key_count = self.key_count;
        let mut draw = || {
            let key = match &zipf {
                None => random.random_range(0..key_count),
                Some(zipf) => zipf.draw(&mut random),
            };
            (key, random.random_bool(workload.put_share))
        };
        self.set_pace(Pace::Warming);
        let chunks = self.extent.host_lines * self.processors.len() as u64 * WARM_PER_LINE / (1 << 14);
        for _ in 0..chunks {
            let chunk: Vec<_> = (0..1 << 14).map(|_| draw()).collect();
            self.execute(&chunk);
        }
        self.set_pace(Pace::Timed);
        let count = workload.count as usize * self.processors.len();
        let operations: Vec<(u32, bool)> = (0..count).map(|_| draw()).collect();
        self.measure(hardware, &operations, workload.interval, &dispatchers)
    }

    fn measure(
        &mut self,
        hardware: &Hardware,
        operations: &[(u32, bool)],
        interval: Time,
        dispatchers: &[Rc<Dispatcher>],
    ) -> ServerOutcome {
        let spec = &hardware.network;
        let value_bytes = self.value.len() as u32;
        let order: Vec<u32> = operations.iter().map(|(key, _)| self.owner(*key)).collect();
        let of_nics = self.divided(operations);
        let mut sent = vec![Vec::new(); of_nics.len()];
        for (index, (nic, (_, puts))) in (0..).zip(order.iter().zip(operations)) {
            sent[*nic as usize].push((interval * index, KEY_BYTES + if *puts { value_bytes } else { 0 }));
        }
        let all_keys: Vec<_> = of_nics.iter().map(|of_nic| keys(of_nic)).collect();
        let all_requests: Vec<Vec<Request<'_>>> =
            of_nics.iter().zip(&all_keys).map(|(of_nic, keys)| requests(of_nic, keys, &self.value)).collect();
        let arrivals: Vec<Vec<Time>> = sent.iter().map(|sent| carry(spec, sent)).collect();
        let mut nics: Vec<Nic<'_>> = Vec::new();
        for (nic, (processor, replies)) in self.processors.iter_mut().zip(&mut self.replies).enumerate() {
            nics.push(Nic { processor, requests: &all_requests[nic], arrivals: &arrivals[nic], replies });
        }
        let passages = run_server(&self.clock, hardware, &mut nics, &order);
        // The time at which each reply has left its wire, and the time since its request was sent.
        let mut ends: Vec<(Time, Time)> = Vec::new();
        for ((passages, of_nic), sent) in passages.iter().zip(&of_nics).zip(&sent) {
            let reply = |index: usize| (passages[index].replied, if of_nic[index].1 { 0 } else { value_bytes });
            let mut by_reply: Vec<usize> = (0..passages.len()).collect();
            by_reply.sort_by_key(|index| reply(*index));
            let back = carry(spec, &by_reply.iter().map(|index| reply(*index)).collect::<Vec<_>>());
            ends.extend(by_reply.iter().zip(back).map(|(index, back)| (back, back - sent[*index].0)));
        }
        ends.sort_unstable();
        let span = ends.last().map_or(Time::ZERO, |last| last.0);
        let count = operations.len() as f64;
        let hottest = (0..passages.len()).max_by_key(|nic| passages[*nic].len()).expect("a server has a NIC");
        let forwarded = |nic: usize| passages[nic].iter().filter(|passage| passage.forwarded).count() as f64;
        let counts = || dispatchers.iter().map(|dispatcher| dispatcher.counts());
        let lines = counts().map(|counts| counts.lines).sum::<u64>() as f64;
        let of_hottest = &passages[hottest];
        ServerOutcome {
            mops: sustained_mops(ends.iter().map(|end| end.0).collect()),
            lines: lines / count,
            near_share: counts().map(|counts| counts.hits).sum::<u64>() as f64 / lines,
            forwarded: (0..passages.len()).map(forwarded).sum::<f64>() / count,
            latencies: ends.into_iter().map(|end| end.1).collect(),
            span,
            busiest: BusiestNic {
                over_average: of_hottest.len() as f64 * passages.len() as f64 / count,
                operations: of_hottest.len(),
                decoder: sustained_mops(of_hottest.iter().map(|passage| passage.decoded).collect())
                    / hardware.processor.clock_mhz,
                forwarded: forwarded(hottest) / of_hottest.len() as f64,
                held: of_hottest.iter().map(|passage| passage.replied - passage.decoded).sum(),
                load: dispatchers[hottest].load(span),
            },
        }
    }

    fn set_pace(&self, pace: Pace) {
        self.processors.iter().for_each(|processor| processor.memory().set_pace(pace));
    }

    fn execute(&mut self, operations: &[(u32, bool)]) {
        let of_nics = self.divided(operations);
        for ((processor, replies), of_nic) in self.processors.iter_mut().zip(&mut self.replies).zip(&of_nics) {
            processor.execute(&requests(of_nic, &keys(of_nic), &self.value), replies);
        }
    }

    /// Returns the operations of each NIC.
    fn divided(&self, operations: &[(u32, bool)]) -> Vec<Vec<(u32, bool)>> {
        let mut of_nics = vec![Vec::new(); self.processors.len()];
        for operation in operations {
            of_nics[self.owner(operation.0) as usize].push(*operation);
        }
        of_nics
    }

    fn owner(&self, key: u32) -> u32 {
        owner(key, self.salt, self.processors.len() as u32)
    }
}

/// The long tail of a corpus of full size, on a smaller one.
///
/// The first keys have the shares that they have among all keys of the paper's size. They decide how unevenly the NICs
/// are loaded, and how many operations are forwarded. The other keys have the shape of the smaller corpus' tail,
/// because the contents of caches depend on ratios of sizes.
struct LongTail {
    full: Zipf<f64>,
    scaled: Zipf<f64>,
    head: f64,
}

/// Number of keys that have their full-size shares, if the corpus has that many.
const HEAD_MAX: f64 = 1000.0;

impl LongTail {
    fn new(key_count: u32, full_key_count: f64, theta: f64) -> Self {
        let zipf = |keys: f64| Zipf::new(keys, theta).expect("there are keys, and the skew is positive");
        let keys = f64::from(key_count);
        LongTail { full: zipf(full_key_count), scaled: zipf(keys), head: HEAD_MAX.min(keys / 2.0).floor() }
    }

    fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u32 {
        let mut rank = self.full.sample(random);
        if rank > self.head {
            rank = 0.0;
            while rank <= self.head {
                rank = self.scaled.sample(random);
            }
        }
        rank as u32 - 1
    }
}

/// Returns the load of the busiest NIC over the average, for a long tail: mean and extremes over ways to divide the
/// keys.
pub(super) fn hottest(hardware: &Hardware, kv_bytes: u32, seed: u64) -> [f64; 3] {
    const DIVISIONS: u64 = 20;
    const DRAWS: usize = 50_000;
    let nics = hardware.server.nics;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let bytes = hardware.host_dram.size_gib * 2_f64.powi(30) * f64::from(nics);
    let keys = bytes * UTILIZATION / f64::from(kv_bytes);
    let zipf = Zipf::new(keys, THETA).expect("there are keys, and the skew is positive");
    let shares = (0..DIVISIONS).map(|division| {
        let mut of_nics = vec![0; nics as usize];
        for _ in 0..DRAWS {
            // Beyond 2^32, ranks wrap around. There are enough of such keys for each NIC to get its part of them.
            of_nics[owner(zipf.sample(&mut random) as u64 as u32, seed.wrapping_add(division), nics) as usize] += 1;
        }
        let most: usize = of_nics.into_iter().max().expect("a server has a NIC");
        most as f64 * f64::from(nics) / DRAWS as f64
    });
    let shares: Vec<f64> = shares.collect();
    let extreme = |choose: fn(f64, f64) -> f64| shares.iter().copied().reduce(choose).expect("there are some");
    [shares.iter().sum::<f64>() / shares.len() as f64, extreme(f64::min), extreme(f64::max)]
}

/// Operations that warm the caches' metadata before a run, for each line of the memory.
const WARM_PER_LINE: u64 = 2;

/// Returns the rate of operations that ended in the second half of a run. In the first half, operations that wait for
/// the busiest NIC may still fill the clients' window.
fn sustained_mops(mut ends: Vec<Time>) -> f64 {
    ends.sort_unstable();
    mops(ends.split_off(ends.len() / 2))
}

/// Returns a seed for each NIC, so that their cacheable lines differ.
fn of_nic(seed: u64, nic: u32) -> u64 {
    seed.wrapping_mul(1 << 16).wrapping_add(u64::from(nic))
}
