//! A run that the items about the whole NIC share with [`crate::sizing`]: YCSB's reads and updates on a loaded store,
//! executed by the pipeline.
//!
//! ```text
//! load, in no time ─▶ warm the NIC's DRAM, in no time ─▶ run in virtual time
//! ```

use std::rc::Rc;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_store::hash::Settings;
use skep_store::memory::LocalMemory;
use skep_store::processor::{Processor, Replies};

use crate::clock::Clock;
use crate::dispatcher::{Dispatcher, Extent, LINE_BYTES, MemoryLoad, Policy};
use crate::hardware::Hardware;
use crate::memory::{NicMemory, Pace};
use crate::network::{carry, operations_per_packet, packet_bytes};
use crate::pipeline::{Clients, Hazard, Passage, run_pipeline};
use crate::resource::mops;
use crate::time::Time;

/// Bytes of a key. The rest of a pair is its value. 4 bytes are enough for the corpora here, and the
/// smallest pairs have 5.
pub(crate) const KEY_BYTES: u32 = 4;
/// Skew of the long tail.
pub(super) const THETA: f64 = 0.99;
/// Memory utilization at the start (section 5.2.1).
pub(super) const UTILIZATION: f64 = 0.5;
/// Operations of a run that only compares load dispatch ratios.
const TUNING_COUNT: u32 = 5_000;
/// Variation of the rate of such a run.
const TUNING_NOISE: f64 = 0.01;
/// Below this ratio, warming in proportion to the cacheable lines would take longer than its effect is worth.
const RATIO_WARMED_MIN: f64 = 0.1;

/// A store whose memory is that of a NIC, half full with pairs of one size.
pub(crate) struct Corpus {
    pub(crate) hardware: Hardware,
    extent: Extent,
    processor: Processor<NicMemory>,
    pub(crate) key_count: u32,
    /// Skew of a long tail.
    pub(crate) theta: f64,
    value: Vec<u8>,
    replies: Replies,
}

/// The operations of a run.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) policy: Policy,
    /// Number of keys of the long tail. Its less popular keys share the keys of the corpus. `None`: all keys are
    /// equally popular.
    pub(crate) long_tail: Option<f64>,
    /// Share of PUTs; the others are GETs.
    pub(crate) put_share: f64,
    pub(crate) hazard: Hazard,
    /// True if the request of a GET is as long as that of a PUT. Otherwise it contains only the key.
    pub(crate) whole_pairs: bool,
    /// True if a PUT writes back the first bucket of its chain even if its key is in another bucket. GETs never do.
    pub(crate) writes_unchanged: bool,
    /// Number of measured operations.
    pub(crate) count: u32,
    pub(crate) seed: u64,
}

/// The results of a run.
pub(crate) struct Outcome {
    /// Rate of the pipeline.
    pub(crate) mops: f64,
    /// Rate of the pipeline between a wire for requests and one for replies, with shared packets on both.
    pub(crate) carried_mops: f64,
    /// Passage of each operation, in the order of arrival.
    pub(crate) passages: Vec<Passage>,
    /// Share of operations that got their value from another operation.
    pub(crate) forwarded_share: f64,
    /// Share of lines that the NIC's DRAM served.
    pub(crate) near_share: f64,
    /// Share of the cacheable lines that the NIC's DRAM served.
    pub(crate) hit_rate: f64,
    /// Lines that one operation accesses.
    pub(crate) lines: f64,
    /// The load of the memory's parts.
    pub(crate) load: MemoryLoad,
    /// Time from the start until the last reply has left the wire.
    pub(crate) span: Time,
    /// Latencies in the order of the replies. A latency begins when the operation waits for the wire at the client, and
    /// ends when its reply has left the wire. It excludes the network's delay.
    pub(crate) latencies: Vec<Time>,
}

/// Returns a store over the memory of the model, on an idle board.
pub(crate) fn processor(
    hardware: &Hardware,
    settings: &Settings,
    policy: Policy,
    seed: u64,
) -> (Processor<NicMemory>, Extent) {
    processor_on(&Rc::new(Clock::default()), hardware, settings, policy, seed)
}

/// Returns the same store on a shared clock.
pub(super) fn processor_on(
    clock: &Rc<Clock>,
    hardware: &Hardware,
    settings: &Settings,
    policy: Policy,
    seed: u64,
) -> (Processor<NicMemory>, Extent) {
    let extent = Extent::scaled(hardware, settings.memory / u64::from(LINE_BYTES));
    let dispatcher = Rc::new(Dispatcher::new(clock, hardware, extent, policy, seed));
    let bytes = LocalMemory::new(settings.memory).expect("the host has memory for a scaled corpus");
    let memory = NicMemory::new(bytes, Rc::clone(clock), dispatcher, Time::cycle(hardware.processor.clock_mhz));
    let processor = Processor::with_memory(memory, settings).expect("the settings fit the memory");
    (processor, extent)
}

impl Corpus {
    /// Loads pairs of this size until the memory is half full.
    pub(crate) fn load(hardware: &Hardware, line_bits: u32, kv_bytes: u32, seed: u64) -> Self {
        let memory = u64::from(LINE_BYTES) << line_bits;
        let settings = Settings::for_utilization(memory, kv_bytes as usize, UTILIZATION + 0.01, seed)
            .expect("the paper's sizes fit at half utilization");
        Corpus::load_with(hardware, &settings, kv_bytes, UTILIZATION).expect("the corpus fits")
    }

    /// Loads pairs of this size up to this share of the memory. Returns `None` if the settings have no room for them.
    pub(crate) fn load_with(hardware: &Hardware, settings: &Settings, kv_bytes: u32, utilization: f64) -> Option<Self> {
        let (processor, extent) = processor(hardware, settings, Policy::Dispatch(0.0), settings.seed);
        let key_count = (settings.memory as f64 * utilization / f64::from(kv_bytes)) as u32;
        let mut corpus = Corpus {
            hardware: hardware.clone(),
            extent,
            processor,
            key_count,
            theta: THETA,
            value: vec![7; (kv_bytes - KEY_BYTES) as usize],
            replies: Replies::with_budget(usize::MAX),
        };
        corpus.processor.memory().set_pace(Pace::AtOnce);
        let mut all: Vec<(u32, bool)> = (0..key_count).map(|key| (key, true)).collect();
        // Popular keys have low numbers. If they were loaded first, all of them would be in the first buckets of their
        // chains.
        all.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(settings.seed));
        for chunk in all.chunks(1 << 12) {
            corpus.execute(chunk);
            if !corpus.replies.iter().all(|reply| reply == Reply::Done) {
                return None;
            }
        }
        Some(corpus)
    }

    /// Returns the number of pairs that the board's whole memory would hold at the utilization of the paper's
    /// benchmarks.
    pub(super) fn key_count_in_full(&self, kv_bytes: f64) -> f64 {
        self.hardware.host_dram.size_gib * 2_f64.powi(30) * UTILIZATION / kv_bytes
    }

    /// Runs a workload whose requests all arrive at the start.
    pub(crate) fn run(&mut self, workload: &Workload) -> Outcome {
        self.offer(workload, Time::ZERO)
    }

    /// Runs a workload whose clients have another operation after each `interval`.
    pub(crate) fn offer(&mut self, workload: &Workload, interval: Time) -> Outcome {
        let (dispatcher, operations) = self.begin(workload);
        let value_bytes = self.value.len() as u32;
        let bytes = |puts: bool| KEY_BYTES + if puts || workload.whole_pairs { value_bytes } else { 0 };
        let sent: Vec<_> =
            operations.iter().zip(0..).map(|((_, puts), index)| (interval * index, bytes(*puts))).collect();
        let arrivals = carry(&self.hardware.network, &sent);
        let passages = self.pass(workload, &operations, Clients::Open(&arrivals));
        let reply = |index: usize| {
            let puts = operations[index].1;
            (passages[index].replied, if puts { 0 } else { value_bytes })
        };
        let mut by_reply: Vec<usize> = (0..passages.len()).collect();
        by_reply.sort_by_key(|index| reply(*index));
        let replies: Vec<_> = by_reply.iter().map(|index| reply(*index)).collect();
        let back = carry(&self.hardware.network, &replies);
        let latencies = by_reply.iter().zip(&back).map(|(index, back)| *back - sent[*index].0).collect();
        let span = back.last().copied().unwrap_or_default();
        let counts = dispatcher.counts();
        let operation_count = passages.len() as f64;
        Outcome {
            mops: mops(passages.iter().map(|passage| passage.replied).collect()),
            carried_mops: mops(back),
            forwarded_share: passages.iter().filter(|passage| passage.forwarded).count() as f64 / operation_count,
            near_share: counts.hits as f64 / counts.lines as f64,
            hit_rate: counts.hits as f64 / counts.cacheable.max(1) as f64,
            lines: counts.lines as f64 / operation_count,
            load: dispatcher.load(span),
            span,
            latencies,
            passages,
        }
    }

    /// Runs a workload whose requests arrive one by one at this interval. Returns the time from arrival to reply of each
    /// operation.
    pub(super) fn run_spread(&mut self, workload: &Workload, interval: Time) -> Vec<Time> {
        let (_, operations) = self.begin(workload);
        let arrivals: Vec<Time> = (0..operations.len() as u64).map(|index| interval * index).collect();
        let passages = self.pass(workload, &operations, Clients::Open(&arrivals));
        passages.iter().zip(arrivals).map(|(passage, arrival)| passage.replied - arrival).collect()
    }

    /// Runs a workload whose clients always have another request, with the congestion window. Requests and replies
    /// share full packets.
    pub(super) fn run_closed(&mut self, workload: &Workload) -> Vec<Passage> {
        let (_, operations) = self.begin(workload);
        let spec = &self.hardware.network;
        let value_bytes = self.value.len() as u32;
        let on_wire = |bytes: u32| {
            let together = operations_per_packet(spec, bytes);
            let packet = Time::of_bytes(packet_bytes(spec, together, bytes).into(), spec.bandwidth_gb_per_s);
            Time::from_ps(packet.as_ps() / u64::from(together))
        };
        let [request, value, done] = [KEY_BYTES + value_bytes, value_bytes, 0].map(on_wire);
        let spans: Vec<_> = operations.iter().map(|(_, puts)| (request, if *puts { done } else { value })).collect();
        self.pass(workload, &operations, Clients::Closed(&spans))
    }

    /// Returns the load dispatch ratio, among tenths up to nine, at which a workload is fastest. The paper tunes it for
    /// each point (section 5.2.1). If rates differ by less than the variation of a run, returns the smallest ratio,
    /// because a miss in the NIC's DRAM costs extra time.
    pub(crate) fn tuned_ratio(&mut self, workload: &Workload) -> f64 {
        let mut measured = [None; 10];
        let mut mops = |corpus: &mut Corpus, tenths: usize| {
            *measured[tenths].get_or_insert_with(|| {
                let policy = Policy::Dispatch(tenths as f64 / 10.0);
                corpus.run(&Workload { policy, count: TUNING_COUNT, ..*workload }).carried_mops
            })
        };
        // The rate rises up to one best ratio and then falls. So a search among the neighbours of the best of a coarse
        // grid is enough.
        let best_of = |rates: &[(usize, f64)]| {
            let most = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
            rates.iter().find(|(_, rate)| *rate >= most * (1.0 - TUNING_NOISE)).map_or(0, |(tenths, _)| *tenths)
        };
        let coarse: Vec<_> = [0, 3, 6, 9].into_iter().map(|tenths| (tenths, mops(self, tenths))).collect();
        let best = best_of(&coarse);
        let near: Vec<_> =
            (best.saturating_sub(1)..=(best + 1).min(9)).map(|tenths| (tenths, mops(self, tenths))).collect();
        best_of(&near) as f64 / 10.0
    }

    /// Attaches idle hardware to the store, warms it, and draws the operations.
    fn begin(&mut self, workload: &Workload) -> (Rc<Dispatcher>, Vec<(u32, bool)>) {
        let clock = Rc::clone(self.processor.memory().clock());
        let dispatcher = Rc::new(Dispatcher::new(&clock, &self.hardware, self.extent, workload.policy, workload.seed));
        self.processor.memory().set_dispatcher(Rc::clone(&dispatcher));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(workload.seed);
        let zipf = workload
            .long_tail
            .map(|keys| Zipf::new(keys, self.theta).expect("there are keys, and the skew is positive"));
        let key_count = self.key_count;
        let mut draw = || {
            let key = match &zipf {
                None => random.random_range(0..key_count),
                Some(zipf) => ((zipf.sample(&mut random) as u64 - 1) % u64::from(key_count)) as u32,
            };
            (key, random.random_bool(workload.put_share))
        };
        if let Policy::Dispatch(ratio) = workload.policy
            && dispatcher.caches()
        {
            self.processor.memory().set_pace(Pace::Warming);
            // Draws twice as many cacheable lines as the cache has. A long tail needs more draws for its unpopular
            // lines. The share of changed lines is then dirty, and their write-backs are part of the run.
            let rounds = if zipf.is_some() { 6.0 } else { 2.0 };
            let chunk_count = (self.extent.nic_lines as f64 * rounds / ratio.max(RATIO_WARMED_MIN)) as u64 / (1 << 12);
            for _ in 0..chunk_count {
                let chunk: Vec<_> = (0..1 << 12).map(|_| draw()).collect();
                self.execute(&chunk);
            }
        }
        let operations = (0..workload.count).map(|_| draw()).collect();
        (dispatcher, operations)
    }

    /// Executes operations in the pipeline.
    fn pass(&mut self, workload: &Workload, operations: &[(u32, bool)], clients: Clients<'_>) -> Vec<Passage> {
        let keys = keys(operations);
        let requests = requests(operations, &keys, &self.value);
        let memory = self.processor.memory();
        memory.set_pace(Pace::Timed);
        memory.set_writes_unchanged(workload.writes_unchanged);
        let (processor, replies) = (&mut self.processor, &mut self.replies);
        let passages = run_pipeline(processor, &self.hardware, workload.hazard, &requests, clients, replies);
        self.processor.memory().set_writes_unchanged(false);
        passages
    }

    fn execute(&mut self, operations: &[(u32, bool)]) {
        let keys = keys(operations);
        self.processor.execute(&requests(operations, &keys, &self.value), &mut self.replies);
    }
}

pub(super) fn keys(operations: &[(u32, bool)]) -> Vec<[u8; KEY_BYTES as usize]> {
    operations.iter().map(|(key, _)| key.to_le_bytes()).collect()
}

pub(super) fn requests<'a>(
    operations: &[(u32, bool)],
    keys: &'a [[u8; KEY_BYTES as usize]],
    value: &'a [u8],
) -> Vec<Request<'a>> {
    let request = |((_, puts), key): (&(u32, bool), &'a [u8; KEY_BYTES as usize])| {
        let put = Operation::Put { value, condition: PutCondition::Always };
        Request { key, operation: if *puts { put } else { Operation::Get } }
    };
    operations.iter().zip(keys).map(request).collect()
}
