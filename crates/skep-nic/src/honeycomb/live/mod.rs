//! The card's readers beside writers of the host, and a comparison of every reply with the product's (Honeycomb, sections 3.2,
//! 4.1 and 5).
//!
//! ```text
//! 10 writers ─▶ store ─ changes ─▶ memory ◀─ links ─┬─ readers of the card, each a request: wants a block ─▶ gives it
//!                  └─ entries, versions, asks ─▶ card: page table, cache, read version, requests in flight
//! ```
//!
//! 1. Writers and readers run on one clock. A write is answered when its version has arrived at the card.
//! 2. A request gets a sequence number and a read version. Its reader is the product's `Reader`; the card serves its blocks
//!    from its cache or from memory as it is at that moment, by its own page table, which is late.
//! 3. Afterwards another store, without observer, executes all writes in the order of their versions. At each version it
//!    executes the requests of that version, and the replies are compared.
//!
//! A request reads no version older than that of a write that was answered before it began, so with equal replies the
//! history is linearizable: a write takes effect at its version, a read at its read version.
//!
//! Latencies are drawn at random, so this shows what is right and not how fast it is: [`super::run`] does that.

mod card;
mod host;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{PutCondition, Range, ScanEnd, Start};
use skep_store::counted::ordered::{Content, FrameBuffer, OrderedStore as CountedStore, Reader};
use skep_store::ordered::{LogBlock, OrderedSettings, OrderedStore, Session};

pub use card::{CardCounts, Safeguards};
use card::{CardState, Source};
pub use host::Sending;
use host::{Host, Recorder, Sent, Write, recorded_store};

use crate::clock::{self, Clock};
use crate::time::Time;

/// Writers of the host.
const WRITERS: usize = 10;
/// Requests of the card in flight.
const REQUESTS_IN_FLIGHT: usize = 48;
/// Bytes before the number of a key: all keys share them, so an interior node has few children and the tree three levels.
const KEY_PREFIX: [u8; 200] = [b'k'; 200];
/// Bytes of the region of the store that is compared with.
const REGION_SIZE: u64 = 16 << 20;
/// One in this many requests is a scan.
const SCAN_SHARE: u32 = 3;
/// Most pairs of a scan.
const SCAN_ITEMS_MAX: usize = 8;
/// One in this many writes is a delete.
const DELETE_SHARE: u32 = 3;

/// One in this many operations is on one of the hot keys.
const HOT_SHARE: u32 = 3;
const HOT_KEYS: u32 = 8;
/// One in this many values is an overflow value.
const VALUE_OVERFLOWS: u32 = 50;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Requests of the card.
    pub requests: usize,
    /// Keys, of which every other one exists at the beginning.
    pub keys: u32,
    /// Nodes that the cache has room for, besides the root.
    pub cache_nodes: usize,
    /// Bytes of the log block of a leaf.
    pub log_block_size: usize,
    /// How the host sends messages.
    pub sending: Sending,
    /// What the card does to see each node as of one moment.
    pub safeguards: Safeguards,
    /// True if memory is reused only after the requests of the card that may reach it.
    pub has_window: bool,
}

/// What a comparison has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Requests of the card.
    pub requests: u64,
    /// Writes that had an effect while the card has executed requests.
    pub writes: u64,
    /// Replies that differ from the product's.
    pub wrong: u64,
    /// Requests that have come to inconsistent blocks.
    pub inconsistent: u64,
    /// Requests that began after the answer of a write, with an older version.
    pub stale: u64,
    /// What the card has counted.
    pub card: CardCounts,
}

/// A request and its reply.
#[derive(Clone, Debug)]
struct Executed {
    version: u64,
    key: Vec<u8>,
    /// 0 for a GET.
    items: usize,
    /// `None` if its blocks were inconsistent.
    pairs: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

/// All that runs on the clock.
struct World<'s> {
    host: Host<'s>,
    card: CardState,
    random: Xoshiro256PlusPlus,
    /// The greatest version of a write that was answered.
    answered: u64,
    stale: u64,
    requests_left: usize,
    executed: Vec<Executed>,
}

impl World<'_> {
    /// Lets everything happen that is due.
    fn advance_to(&mut self, now: Time) {
        for message in self.host.advance_to(now) {
            if let Some(ask) = self.card.take(message) {
                self.host.pass(ask);
            }
        }
    }

    fn latency(&mut self, from: f64, to: f64) -> Time {
        Time::from_ns(self.random.random_range(from..to))
    }

    /// Returns the number of a key: often a hot one.
    fn number(&mut self, keys: u32) -> u32 {
        let is_hot = self.random.random_range(0..HOT_SHARE) == 0;
        if is_hot {
            self.random.random_range(0..HOT_KEYS) * (keys / HOT_KEYS)
        } else {
            self.random.random_range(0..keys)
        }
    }

    fn write(&mut self, keys: u32) -> Write {
        let is_delete = self.random.random_range(0..DELETE_SHARE) == 0;
        let key = key(self.number(keys));
        Write { key, value: (!is_delete).then(|| value(&mut self.random)) }
    }
}

/// Runs readers of the card beside ten writers of the host, and compares the replies.
///
/// # Panics
/// If the store has no room for the pairs.
pub fn compare(comparison: &Comparison, seed: u64) -> Compared {
    let (store, recorder) = recorded_store(comparison.log_block_size);
    let first: Vec<Write> = (0..comparison.keys)
        .step_by(2)
        .map(|number| Write { key: key(number), value: Some(vec![number as u8; 300]) })
        .collect();
    let world = run(comparison, &store, recorder, &first, seed);
    let World { host, card, executed, stale, .. } = world;
    let writes = host.into_writes();
    let mut compared = Compared {
        requests: executed.len() as u64,
        writes: (writes.len() - first.len()) as u64,
        stale,
        card: card.counts(),
        ..Compared::default()
    };
    compare_replies(comparison.log_block_size, &writes, executed, &mut compared);
    compared
}

/// Runs all requests.
fn run<'s>(
    comparison: &Comparison,
    store: &'s CountedStore,
    recorder: Arc<Recorder>,
    first: &[Write],
    seed: u64,
) -> World<'s> {
    let clock = Clock::default();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut host = Host::new(store, recorder, comparison.sending);
    let mut loaded = Time::ZERO;
    for write in first {
        loaded = host.write(write.clone(), loaded, &mut random).arrival;
    }
    if comparison.has_window {
        host.open_window();
    }
    let world = RefCell::new(World {
        host,
        card: CardState::new(comparison.safeguards, comparison.cache_nodes),
        random,
        answered: 0,
        stale: 0,
        requests_left: comparison.requests,
        executed: Vec::with_capacity(comparison.requests),
    });
    let worker = async |number: usize| {
        clock.until(loaded).await;
        match number < WRITERS {
            true => write_all(&world, &clock, comparison.keys).await,
            false => read_all(&world, &clock, comparison.keys).await,
        }
    };
    clock::run(&clock, WRITERS + REQUESTS_IN_FLIGHT, (0..WRITERS + REQUESTS_IN_FLIGHT).map(worker));
    world.into_inner()
}

/// Writes one pair after the other while there are requests.
async fn write_all(world: &RefCell<World<'_>>, clock: &Clock, keys: u32) {
    while world.borrow().requests_left > 0 {
        let Sent { version, arrival } = {
            let world = &mut *world.borrow_mut();
            world.advance_to(clock.now());
            let write = world.write(keys);
            world.host.write(write, clock.now(), &mut world.random)
        };
        clock.until(arrival).await;
        let pause = {
            let world = &mut *world.borrow_mut();
            world.answered = world.answered.max(version);
            world.latency(50.0, 500.0)
        };
        clock.after(pause).await;
    }
}

/// Executes one request after the other.
async fn read_all(world: &RefCell<World<'_>>, clock: &Clock, keys: u32) {
    let mut buffer = FrameBuffer::new().expect("a buffer is small");
    while world.borrow().requests_left > 0 {
        let (key, items, request, version) = {
            let world = &mut *world.borrow_mut();
            world.requests_left -= 1;
            world.advance_to(clock.now());
            let is_scan = world.random.random_range(0..SCAN_SHARE) == 0;
            let items = if is_scan { world.random.random_range(1..=SCAN_ITEMS_MAX) } else { 0 };
            let (request, version) = world.card.begin();
            world.stale += u64::from(version < world.answered);
            (key(world.number(keys)), items, request, version)
        };
        let reader = match items {
            0 => Reader::get(&mut buffer, &key, version, 0),
            _ => Reader::scan(&mut buffer, range(&key, items), version, 0),
        };
        let pairs = serve(world, clock, reader).await;
        let world = &mut *world.borrow_mut();
        world.advance_to(clock.now());
        if let Some(ask) = world.card.end(request) {
            world.host.pass(ask);
        }
        world.executed.push(Executed { version, key, items, pairs });
    }
}

/// Returns the range of the paper's SCAN.
fn range(key: &[u8], items: usize) -> Range<'_> {
    Range::new(Start::Floor(key), ScanEnd::Last).limit(items)
}

/// Serves the blocks of a reader. Returns its pairs, or `None` if the blocks were inconsistent.
async fn serve(world: &RefCell<World<'_>>, clock: &Clock, mut reader: Reader<'_>) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    while let Some(block) = reader.wants() {
        let issue = world.borrow_mut().latency(20.0, 150.0);
        clock.after(issue).await;
        let source = {
            let world = &mut *world.borrow_mut();
            world.advance_to(clock.now());
            if block.content == Content::Entry {
                reader.give(world.card.frame_of(block.lid), &[]).ok()?;
                continue;
            }
            world.card.source(&block)
        };
        let frame = match source {
            Source::Cache(frame, bytes) => {
                reader.give(frame, &bytes).ok()?;
                continue;
            }
            Source::Host(frame) => frame,
        };
        let request = world.borrow_mut().latency(100.0, 400.0);
        clock.after(request).await;
        let (fetched, bytes, completion) = {
            let world = &mut *world.borrow_mut();
            world.advance_to(clock.now());
            let fetched = CardState::fetched(&block);
            let bytes = world.host.read(frame, fetched.clone());
            let completion = clock.now() + world.latency(100.0, 400.0);
            (fetched, bytes, completion.max(world.host.completes_after(clock.now())))
        };
        clock.until(completion).await;
        let world = &mut *world.borrow_mut();
        world.advance_to(clock.now());
        world.card.fill(&block, frame, &bytes, &mut world.random);
        let start = block.bytes.start - fetched.start;
        reader.give(frame, &bytes[start..][..block.bytes.len()]).ok()?;
    }
    Some(reader.pairs().iter().map(|pair| (pair.key.clone(), pair.value.clone())).collect())
}

/// Executes the writes by a store of the product, and the requests at their versions.
fn compare_replies(
    log_block_size: usize,
    writes: &[(u64, Write)],
    mut executed: Vec<Executed>,
    compared: &mut Compared,
) {
    let log_block = LogBlock::new(log_block_size, LogBlock::ENTRY_COUNT_MAX).expect("the other store has the same");
    let settings = OrderedSettings { log_block, ..OrderedSettings::new(REGION_SIZE) };
    let store = OrderedStore::new(&settings).expect("the region is reserved");
    let mut session = store.session().expect("it is the first");
    executed.sort_by_key(|request| request.version);
    let mut next = writes.iter().peekable();
    for request in executed {
        while let Some((_, Write { key, value })) = next.next_if(|write| write.0 <= request.version) {
            match value {
                Some(value) => session.put(key, value, PutCondition::Always),
                None => session.delete(key),
            };
        }
        match request.pairs {
            None => compared.inconsistent += 1,
            Some(pairs) => {
                compared.wrong += u64::from(pairs != reply(&mut session, &request.key, request.items));
            }
        }
    }
}

/// Returns the reply of the product.
fn reply(session: &mut Session<'_>, key: &[u8], items: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    if items == 0 {
        let mut value = Vec::new();
        if session.get(key, &mut value) {
            pairs.push((key.to_vec(), value));
        }
    } else {
        session.scan(range(key, items), |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            true
        });
    }
    pairs
}

fn key(number: u32) -> Vec<u8> {
    [&KEY_PREFIX[..], &number.to_be_bytes()].concat()
}

/// Returns a value. Some are overflow values.
fn value(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let size = if random.random_range(0..VALUE_OVERFLOWS) == 0 { 1500 } else { random.random_range(200..400) };
    vec![random.random(); size]
}
