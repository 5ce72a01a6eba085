//! The stores of all NICs, loaded with pairs, and what a run begins with: idle hardware, a warm cache, drawn requests.
//!
//! ```text
//! keys     0 … popular │ popular …  reserved keys  … │
//!          GET, PUT,   │ deleted ◀─ exist ─▶ inserted│    a run deletes the oldest and inserts new ones
//!          update      │
//! ```
//!
//! A run with insertions or deletions begins with as many reserved keys as it deletes. So every deletion finds its key,
//! and no insertion does. The memory is as full as was asked for after the insertions.

use std::rc::Rc;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::Reply;
use skep_store::hash::Settings;
use skep_store::memory::LocalMemory;
use skep_store::processor::{Processor, Replies};

use super::mix::{Draw, Kind, Mix, Popularity};
use super::pairs::Pairs;
use super::requests::{Contents, Drawn, Keys};
use super::warming::{Chunk, Source, Warming};
use crate::clock::Clock;
use crate::dispatcher::{Dispatcher, Extent, LINE_BYTES, Policy};
use crate::hardware::Hardware;
use crate::memory::{NicMemory, Pace};
use crate::pipeline::Hazard;
use crate::server::{host_memories, owner};

/// Skew of the long tail.
pub(crate) const THETA: f64 = 0.99;
/// Memory utilization at the start (section 5.2.1).
pub(crate) const UTILIZATION: f64 = 0.5;
/// Most accesses that warm the caches, for each line of the memory.
const WARM_PER_LINE: f64 = 2.0;
/// Operations of which the lines are noted together.
const CHUNK: usize = 1 << 12;
/// Reserved keys that a run has more than it is expected to delete or insert.
const RESERVE_SLACK: f64 = 1.2;

/// Stores whose memories are those of NICs, filled with pairs. A hash of the keys divides the pairs.
pub(crate) struct Corpus {
    pub(crate) hardware: Hardware,
    pub(super) clock: Rc<Clock>,
    extent: Extent,
    pub(super) processors: Vec<Processor<NicMemory>>,
    pub(super) replies: Vec<Replies>,
    pub(super) pairs: Pairs,
    /// Keys that exist in every run.
    pub(crate) key_count: u32,
    /// Keys in the whole memory of the hardware.
    full_key_count: f64,
    /// Reserved keys that exist: from, to.
    reserved: [u32; 2],
    pub(super) contents: Contents,
    /// The lines that warmed the caches for the last run.
    warming: Option<Warming>,
    salt: u64,
}

/// What is loaded.
pub(crate) struct CorpusSettings {
    /// Settings of each NIC's store, with its scaled memory.
    pub(crate) store: Settings,
    pub(crate) pairs: Pairs,
    /// Bytes of keys and values over bytes of memory.
    pub(crate) utilization: f64,
    /// Most operations of a run that insert, and most that delete.
    pub(crate) reserve: u32,
}

/// The operations of a run.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) policy: Policy,
    pub(crate) popularity: Popularity,
    pub(crate) mix: Mix,
    /// Share of GETs, PUTs and updates that are on one key.
    pub(crate) hot_share: f64,
    /// What dependent operations do. Several NICs have a reservation station.
    pub(crate) hazard: Hazard,
    /// True if the request of a GET is as long as that of a PUT. Otherwise it contains only the key.
    pub(crate) whole_pairs: bool,
    /// Number of measured operations for each NIC.
    pub(crate) count: u32,
    pub(crate) seed: u64,
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
fn processor_on(
    clock: &Rc<Clock>,
    hardware: &Hardware,
    settings: &Settings,
    policy: Policy,
    seed: u64,
) -> (Processor<NicMemory>, Extent) {
    let extent = Extent::scaled(hardware, settings.memory / u64::from(LINE_BYTES));
    let dispatcher = Rc::new(Dispatcher::new(clock, hardware, extent, policy, seed));
    let bytes = LocalMemory::new(settings.memory).expect("the host has memory for a scaled corpus");
    let memory = NicMemory::new(bytes, Rc::clone(clock), dispatcher, hardware);
    let processor = Processor::with_memory(memory, settings).expect("the settings fit the memory");
    (processor, extent)
}

impl Workload {
    /// Draws the key of a GET, a PUT or an update.
    pub(super) fn key(&self, draw: &Draw, random: &mut Xoshiro256PlusPlus) -> u32 {
        if self.hot_share > 0.0 && random.random_bool(self.hot_share) { 0 } else { draw.draw(random) }
    }
}

impl Corpus {
    /// Loads pairs of one size into this many lines of each NIC, until the memory is half full.
    pub(crate) fn load(hardware: &Hardware, line_bits: u32, kv_bytes: u32, seed: u64) -> Self {
        let memory = u64::from(LINE_BYTES) << line_bits;
        let store = Settings::for_utilization(memory, kv_bytes as usize, UTILIZATION + 0.01, seed)
            .expect("the paper's sizes fit at half utilization");
        let pairs = Pairs::of_bytes(kv_bytes);
        let settings = CorpusSettings { store, pairs, utilization: UTILIZATION, reserve: 0 };
        Corpus::load_with(hardware, settings).expect("the corpus fits")
    }

    /// Loads pairs up to this share of the memory. Returns `None` if a store has no room for its pairs, or if fewer than
    /// two pairs in three are left for the operations that need keys which always exist.
    pub(crate) fn load_with(hardware: &Hardware, settings: CorpusSettings) -> Option<Self> {
        let CorpusSettings { store, pairs, utilization, reserve } = settings;
        let nics = hardware.server.nics;
        let clock = Rc::new(Clock::default());
        let keys_of = |bytes: f64| bytes * f64::from(nics) * utilization / pairs.mean();
        let all = keys_of(store.memory as f64) as u32;
        let reserve = if reserve > 0 { (f64::from(reserve) * f64::from(nics) * RESERVE_SLACK) as u32 + 64 } else { 0 };
        if all == 0 || reserve > all / 3 {
            return None;
        }
        let loaded =
            (0..nics).map(|nic| processor_on(&clock, hardware, &store, Policy::Dispatch(0.0), of_nic(store.seed, nic)));
        let (processors, extents): (Vec<_>, Vec<_>) = loaded.unzip();
        let key_count = all - reserve;
        let mut corpus = Corpus {
            hardware: hardware.clone(),
            clock,
            extent: *extents.first()?,
            processors,
            replies: (0..nics).map(|_| Replies::with_budget(usize::MAX)).collect(),
            key_count,
            full_key_count: keys_of(hardware.host_dram.size_gib * 2_f64.powi(30)),
            reserved: [key_count, all],
            contents: Contents::of(&pairs),
            pairs,
            warming: None,
            salt: store.seed,
        };
        let mut keys: Vec<u32> = (0..all).collect();
        // Popular keys have low numbers. If they were loaded first, all of them would be in the first buckets of their
        // chains.
        keys.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(store.seed));
        corpus.change_at_once(&keys, Kind::Insert).then_some(corpus)
    }

    /// Attaches idle hardware to the stores, warms it, and draws the requests.
    pub(super) fn begin(&mut self, workload: &Workload) -> (Vec<Rc<Dispatcher>>, Vec<Drawn>) {
        let hosts = host_memories(&self.hardware);
        let dispatchers: Vec<_> = (0..)
            .zip(&hosts)
            .map(|(nic, host)| {
                let (policy, seed) = (workload.policy, of_nic(workload.seed, nic));
                Rc::new(Dispatcher::beside_others(&self.clock, host, &self.hardware, self.extent, policy, seed))
            })
            .collect();
        for (processor, dispatcher) in self.processors.iter().zip(&dispatchers) {
            processor.memory().set_dispatcher(Rc::clone(dispatcher));
        }
        let draw = Draw::new(workload.popularity, self.key_count, self.full_key_count);
        let mut random = self.warm(workload, &draw, &dispatchers);
        self.reserve_for(workload);
        let mut drawn = Vec::new();
        for _ in 0..workload.count as usize * self.processors.len() {
            let kind = workload.mix.draw(&mut random);
            let [from, to] = &mut self.reserved;
            let key = match kind {
                Kind::Insert => std::mem::replace(to, *to + 1),
                Kind::Delete if from < to => std::mem::replace(from, *from + 1),
                _ => workload.key(&draw, &mut random),
            };
            Drawn::append(&self.pairs, key, kind, &mut drawn);
        }
        self.set_pace(Pace::Timed);
        (dispatchers, drawn)
    }

    /// Warms the caches of these dispatchers for a workload. Returns the random numbers that draw its requests.
    fn warm(&mut self, workload: &Workload, draw: &Draw, dispatchers: &[Rc<Dispatcher>]) -> Xoshiro256PlusPlus {
        let &Workload { popularity, mix, hot_share, seed, .. } = workload;
        let source = Source { popularity, mix, hot_share, seed };
        let known = self.warming.take().filter(|known| known.serves(&source));
        let mut warming = known.unwrap_or_else(|| Warming::of(source));
        let count = self.warming_chunks(workload);
        let after = warming.warm(count, dispatchers, |random| self.note_chunk(workload, draw, random));
        self.warming = Some(warming);
        after
    }

    /// Returns the number of chunks that warm the caches for a workload.
    ///
    /// They access twice as many cacheable lines as the caches have. A long tail needs more draws for its unpopular
    /// lines, but never more than two for each line of the memory. The share of changed lines is then dirty, and their
    /// write-backs are part of the run.
    fn warming_chunks(&self, workload: &Workload) -> usize {
        let Policy::Dispatch(ratio) = workload.policy else { return 0 };
        if ratio == 0.0 {
            return 0;
        }
        let rounds = if matches!(workload.popularity, Popularity::Uniform) { 2.0 } else { 6.0 };
        let Extent { nic_lines, host_lines } = self.extent;
        let wanted = (nic_lines as f64 * rounds / ratio).min(host_lines as f64 * WARM_PER_LINE);
        let of_nic = wanted / (self.pairs.mean() / f64::from(LINE_BYTES)).max(1.0);
        (of_nic * self.processors.len() as f64) as usize / CHUNK + 1
    }

    /// Executes a chunk of operations in no time, and notes the lines that they access.
    fn note_chunk(&mut self, workload: &Workload, draw: &Draw, mut random: Xoshiro256PlusPlus) -> Chunk {
        let mut drawn = Vec::new();
        for _ in 0..CHUNK {
            let key = workload.key(draw, &mut random);
            match workload.mix.draw(&mut random) {
                Kind::Get => Drawn::append(&self.pairs, key, Kind::Get, &mut drawn),
                Kind::Put | Kind::Update => Drawn::append(&self.pairs, key, Kind::Put, &mut drawn),
                // The keys of the run exist later. Their lines are anywhere, as those of a random key.
                Kind::Insert | Kind::Delete => {
                    let other = random.random_range(0..self.key_count);
                    Drawn::append(&self.pairs, other, Kind::Put, &mut drawn);
                }
            }
        }
        self.set_pace(Pace::Noted);
        self.execute(&drawn);
        let lines = self.processors.iter().map(|processor| processor.memory().take_noted()).collect();
        Chunk { lines, after: random }
    }

    /// Lets as many reserved keys exist as the workload deletes.
    fn reserve_for(&mut self, workload: &Workload) {
        let Mix { insert, delete, .. } = workload.mix;
        if insert + delete == 0.0 {
            return;
        }
        let operations = f64::from(workload.count) * self.processors.len() as f64;
        let needed = (operations * delete * RESERVE_SLACK) as u32 + 32;
        let [from, to] = self.reserved;
        // A key that has no room is missing in the run, whose outcome tells how many operations fail.
        if to - from > needed {
            self.reserved[0] = to - needed;
            self.change_at_once(&Vec::from_iter(from..to - needed), Kind::Delete);
        } else {
            self.reserved[1] = from + needed;
            self.change_at_once(&Vec::from_iter(to..from + needed), Kind::Insert);
        }
    }

    /// Inserts or deletes these keys in no time. Returns false if one of them has no room.
    fn change_at_once(&mut self, keys: &[u32], kind: Kind) -> bool {
        self.set_pace(Pace::AtOnce);
        let mut drawn = Vec::new();
        for chunk in keys.chunks(1 << 12) {
            drawn.clear();
            chunk.iter().for_each(|key| Drawn::append(&self.pairs, *key, kind, &mut drawn));
            self.execute(&drawn);
            if !self.replies.iter().flat_map(Replies::iter).all(|reply| reply == Reply::Done) {
                return false;
            }
        }
        true
    }

    pub(super) fn set_pace(&self, pace: Pace) {
        self.processors.iter().for_each(|processor| processor.memory().set_pace(pace));
    }

    fn execute(&mut self, drawn: &[Drawn]) {
        let of_nics = self.divided(drawn);
        for ((processor, replies), of_nic) in self.processors.iter_mut().zip(&mut self.replies).zip(&of_nics) {
            let keys = Keys::of(&self.pairs, of_nic);
            processor.execute(&self.contents.requests(&self.pairs, of_nic, &keys), replies);
        }
    }

    /// Returns the requests of each NIC.
    pub(super) fn divided(&self, drawn: &[Drawn]) -> Vec<Vec<Drawn>> {
        let mut of_nics = vec![Vec::new(); self.processors.len()];
        for one in drawn {
            of_nics[self.owner(*one) as usize].push(*one);
        }
        of_nics
    }

    /// Returns the NIC of a request.
    pub(super) fn owner(&self, drawn: Drawn) -> u32 {
        match self.processors.len() as u32 {
            1 => 0,
            nics => owner(drawn.key ^ drawn.part.rotate_right(8), self.salt, nics),
        }
    }
}

/// Returns a seed for each NIC, so that their cacheable lines differ.
fn of_nic(seed: u64, nic: u32) -> u64 {
    seed.wrapping_mul(1 << 16).wrapping_add(u64::from(nic))
}
