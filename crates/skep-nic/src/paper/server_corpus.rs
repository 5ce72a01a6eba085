//! What items about several NICs run: one corpus, divided over the NICs by a hash of the keys, and clients that draw keys of
//! all of them.

use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_store::hash::Settings;
use skep_store::operation::{Reply, Request};
use skep_store::processor::{Processor, Replies};

use super::corpus::{KEY_BYTES, THETA, UTILIZATION, keys, processor_on, requests};
use super::wire::carry;
use crate::clock::Clock;
use crate::dispatcher::{Dispatcher, Extent, LINE_BYTES, Policy};
use crate::hardware::Hardware;
use crate::memory::{NicMemory, Pace};
use crate::resource::mops;
use crate::server::{Nic, host_memories, owner, run_server};
use crate::time::Time;

/// Stores behind as many NICs as the server has, each full to half with the keys that it owns.
pub(super) struct ServerCorpus {
    clock: Rc<Clock>,
    extent: Extent,
    processors: Vec<Processor<NicMemory>>,
    replies: Vec<Replies>,
    key_count: u32,
    value: Vec<u8>,
    salt: u64,
}

/// What is run on it.
#[derive(Clone, Copy)]
pub(super) struct ServerWorkload {
    /// The load dispatch ratio.
    pub(super) ratio: f64,
    pub(super) is_long: bool,
    /// Share of PUTs; the others are GETs.
    pub(super) put_share: f64,
    /// How many are measured, for each NIC.
    pub(super) count: u32,
    pub(super) seed: u64,
}

/// What came out.
pub(super) struct ServerOutcome {
    /// Of all NICs.
    pub(super) mops: f64,
    /// Share of all operations that the busiest NIC got, over the average.
    pub(super) hottest: f64,
    /// How busy the decoder of that NIC was: operations over cycles.
    pub(super) hottest_decoder: f64,
    /// Share of operations that got their value from another: of that NIC, and of all.
    pub(super) hottest_forwarded: f64,
    pub(super) forwarded: f64,
    /// Share of lines that the NICs' DRAM answered.
    pub(super) near_share: f64,
}

impl ServerCorpus {
    /// Loads pairs of this size, into so many lines of each NIC.
    pub(super) fn load(hardware: &Hardware, line_bits: u32, kv_bytes: u32, seed: u64) -> Self {
        let nics = hardware.server.nics;
        let clock = Rc::new(Clock::default());
        let memory = u64::from(LINE_BYTES) << line_bits;
        let settings = Settings::for_utilization(memory, kv_bytes as usize, UTILIZATION + 0.01, seed)
            .expect("the paper's sizes fit at half utilization");
        let key_count = (memory as f64 * f64::from(nics) * UTILIZATION / f64::from(kv_bytes)) as u32;
        let mut extent = None;
        let processors = (0..nics)
            .map(|nic| {
                let (processor, of_nic) =
                    processor_on(&clock, hardware, &settings, Policy::Dispatch(0.0), of_nic(seed, nic));
                extent = Some(of_nic);
                processor.memory().set_pace(Pace::AtOnce);
                processor
            })
            .collect();
        let mut corpus = ServerCorpus {
            clock,
            extent: extent.expect("a server has a NIC"),
            processors,
            replies: (0..nics).map(|_| Replies::with_budget(usize::MAX)).collect(),
            key_count,
            value: vec![7; (kv_bytes - KEY_BYTES) as usize],
            salt: seed,
        };
        let all: Vec<(u32, bool)> = (0..key_count).map(|key| (key, true)).collect();
        for chunk in all.chunks(1 << 14) {
            corpus.execute(chunk);
            assert!(corpus.replies.iter().flat_map(Replies::iter).all(|reply| reply == Reply::Done), "the corpus fits");
        }
        corpus
    }

    /// Runs a workload on the board that it was loaded for, or one that differs in speeds only.
    pub(super) fn run(&mut self, hardware: &Hardware, workload: &ServerWorkload) -> ServerOutcome {
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
        let kv_bytes = KEY_BYTES + self.value.len() as u32;
        let zipf = workload.is_long.then(|| LongTail::new(self.key_count, full_key_count(hardware, kv_bytes)));
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
        self.measure(hardware, &operations, &dispatchers)
    }

    fn measure(
        &mut self,
        hardware: &Hardware,
        operations: &[(u32, bool)],
        dispatchers: &[Rc<Dispatcher>],
    ) -> ServerOutcome {
        let spec = &hardware.network;
        let value_bytes = self.value.len() as u32;
        let order: Vec<u32> = operations.iter().map(|(key, _)| self.owner(*key)).collect();
        let of_nics = self.divided(operations);
        let all_keys: Vec<_> = of_nics.iter().map(|of_nic| keys(of_nic)).collect();
        let all_requests: Vec<Vec<Request<'_>>> =
            of_nics.iter().zip(&all_keys).map(|(of_nic, keys)| requests(of_nic, keys, &self.value)).collect();
        let arrivals: Vec<Vec<Time>> = of_nics
            .iter()
            .map(|of_nic| {
                let bytes = |puts: bool| KEY_BYTES + if puts { value_bytes } else { 0 };
                carry(spec, &of_nic.iter().map(|(_, puts)| (Time::ZERO, bytes(*puts))).collect::<Vec<_>>())
            })
            .collect();
        let mut nics: Vec<Nic<'_>> = Vec::new();
        for (nic, (processor, replies)) in self.processors.iter_mut().zip(&mut self.replies).enumerate() {
            nics.push(Nic { processor, requests: &all_requests[nic], arrivals: &arrivals[nic], replies });
        }
        let passages = run_server(&self.clock, hardware, &mut nics, &order);
        let mut ends = Vec::new();
        for (passages, of_nic) in passages.iter().zip(&of_nics) {
            let answers = passages.iter().zip(of_nic);
            let mut answers: Vec<_> =
                answers.map(|(passage, (_, puts))| (passage.answered, if *puts { 0 } else { value_bytes })).collect();
            answers.sort_unstable();
            ends.extend(carry(spec, &answers));
        }
        let count = operations.len() as f64;
        let hottest = (0..passages.len()).max_by_key(|nic| passages[*nic].len()).expect("a server has a NIC");
        let forwarded = |nic: usize| passages[nic].iter().filter(|passage| passage.forwarded).count() as f64;
        let counts = || dispatchers.iter().map(|dispatcher| dispatcher.counts());
        ServerOutcome {
            mops: sustained_mops(ends),
            hottest: passages[hottest].len() as f64 * passages.len() as f64 / count,
            hottest_decoder: sustained_mops(passages[hottest].iter().map(|passage| passage.decoded).collect())
                / hardware.processor.clock_mhz,
            hottest_forwarded: forwarded(hottest) / passages[hottest].len() as f64,
            forwarded: (0..passages.len()).map(forwarded).sum::<f64>() / count,
            near_share: counts().map(|counts| counts.hits).sum::<u64>() as f64
                / counts().map(|counts| counts.lines).sum::<u64>() as f64,
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

    /// The operations of each NIC.
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
/// The first keys have the shares that they have among all keys of the paper's size: they decide how uneven the NICs are
/// loaded, and what is forwarded. The others have the shape of the smaller corpus' tail, which is how caches see it: what
/// they hold depends on ratios of sizes.
struct LongTail {
    full: Zipf<f64>,
    scaled: Zipf<f64>,
}

/// Keys that have their full-size shares.
const HEAD: f64 = 1000.0;

impl LongTail {
    fn new(key_count: u32, full_key_count: f64) -> Self {
        let zipf = |keys: f64| Zipf::new(keys, THETA).expect("there are keys, and the skew is positive");
        LongTail { full: zipf(full_key_count), scaled: zipf(f64::from(key_count)) }
    }

    fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u32 {
        let mut rank = self.full.sample(random);
        if rank > HEAD {
            rank = 0.0;
            while rank <= HEAD {
                rank = self.scaled.sample(random);
            }
        }
        rank as u32 - 1
    }
}

/// How many times the average of a long tail the busiest NIC gets: means and extremes over ways to divide the keys.
pub(super) fn hottest(hardware: &Hardware, kv_bytes: u32, seed: u64) -> [f64; 3] {
    const DIVISIONS: u64 = 20;
    const DRAWS: usize = 50_000;
    let nics = hardware.server.nics;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let zipf = Zipf::new(full_key_count(hardware, kv_bytes), THETA).expect("there are keys, and the skew is positive");
    let shares = (0..DIVISIONS).map(|division| {
        let mut of_nics = vec![0; nics as usize];
        for _ in 0..DRAWS {
            // Beyond 2^32 ranks wrap around: those are so many that each NIC has its part of them in any case.
            of_nics[owner(zipf.sample(&mut random) as u64 as u32, seed.wrapping_add(division), nics) as usize] += 1;
        }
        let most: usize = of_nics.into_iter().max().expect("a server has a NIC");
        most as f64 * f64::from(nics) / DRAWS as f64
    });
    let shares: Vec<f64> = shares.collect();
    let extreme = |choose: fn(f64, f64) -> f64| shares.iter().copied().reduce(choose).expect("there are some");
    [shares.iter().sum::<f64>() / shares.len() as f64, extreme(f64::min), extreme(f64::max)]
}

/// Keys of a corpus of the board's size.
fn full_key_count(hardware: &Hardware, kv_bytes: u32) -> f64 {
    let bytes = hardware.host_dram.size_gib * 2_f64.powi(30) * f64::from(hardware.server.nics);
    bytes * UTILIZATION / f64::from(kv_bytes)
}

/// Operations that move the caches' metadata before a run, for each line of the memory.
const WARM_PER_LINE: u64 = 2;

/// How fast operations ended in the second half of a run: in the first, what waits for the busiest NIC may still fill the
/// clients' window.
fn sustained_mops(mut ends: Vec<Time>) -> f64 {
    ends.sort_unstable();
    mops(ends.split_off(ends.len() / 2))
}

/// A seed for each NIC, so that not all find the same lines cacheable.
fn of_nic(seed: u64, nic: u32) -> u64 {
    seed.wrapping_mul(1 << 16).wrapping_add(u64::from(nic))
}
