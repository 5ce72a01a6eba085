//! Tests of the pipeline: effects as on local memory, and the times of replies, slots and keys.

use std::rc::Rc;

use skep_core::operation::{Operation, PutCondition, Reply, Request, StringWrite};
use skep_store::hash::Settings;
use skep_store::memory::LocalMemory;
use skep_store::naive::{Generator, GeneratorSettings, OwnedRequest, SizeWeights};
use skep_store::processor::{Processor, Replies};

use super::{Clients, Hazard, Passage, run_pipeline};
use crate::clock::Clock;
use crate::dispatcher::{Dispatcher, Extent, Policy};
use crate::hardware::Hardware;
use crate::memory::NicMemory;
use crate::time::Time;

const MEMORY: u64 = 1 << 20;
const STALLS: [Hazard; 3] = [Hazard::Stalls, Hazard::Drains, Hazard::InOrder];

fn nic(settings: &Settings, policy: Policy, seed: u64) -> Processor<NicMemory> {
    nic_on(&Hardware::kv_direct(), settings, policy, seed)
}

fn nic_on(hardware: &Hardware, settings: &Settings, policy: Policy, seed: u64) -> Processor<NicMemory> {
    let clock = Rc::new(Clock::default());
    let extent = Extent::scaled(hardware, MEMORY / 64);
    let dispatcher = Rc::new(Dispatcher::new(&clock, hardware, extent, policy, seed));
    let bytes = LocalMemory::new(MEMORY).unwrap();
    let memory = NicMemory::new(bytes, clock, dispatcher, hardware);
    Processor::with_memory(memory, settings).unwrap()
}

/// Runs random operations of all kinds on few keys and few buckets. The replies equal those on local memory for
/// every hazard, and also if the host's cores gather and scatter.
#[test]
fn the_same_operations_have_the_same_replies_as_on_local_memory() {
    let settings = Settings { memory: MEMORY, hash_index_ratio: 0.02, inline_threshold: 24, grows: false, seed: 3 };
    for (seed, hazard) in
        (0..12).map(|seed| (seed, if seed % 4 == 3 { STALLS[seed as usize / 4 % 3] } else { Hazard::Waits }))
    {
        let sizes = SizeWeights { empty: 1, inline: 6, slab: 3, large: 0 };
        let generator =
            GeneratorSettings { seed, key_count: 150, key_size: 4..=20, sizes, ..GeneratorSettings::default() };
        let owned: Vec<OwnedRequest> = Generator::new(generator).take(6000).collect();
        let requests: Vec<Request<'_>> = owned.iter().map(OwnedRequest::as_request).filter(fits).collect();
        let mut local = Processor::new(&settings).unwrap();
        let [mut expected, mut replies] = [(); 2].map(|()| Replies::with_budget(usize::MAX));
        local.execute(&requests, &mut expected);
        let mut hardware = Hardware::kv_direct();
        hardware.host_cpu.cores_per_link = seed as u32 % 3;
        let mut nic = nic_on(&hardware, &settings, Policy::Dispatch(0.5), seed);
        let passages = run_pipeline(&mut nic, &hardware, hazard, &requests, Clients::Open(&[]), &mut replies);
        for (index, request) in requests.iter().enumerate() {
            assert_eq!(replies.get(index), expected.get(index), "seed {seed}, {index}: {request:?}");
        }
        let (ours, theirs) = (nic.statistics(), local.statistics());
        assert_eq!((ours.pairs, ours.pair_bytes, ours.hits), (theirs.pairs, theirs.pair_bytes, theirs.hits));
        assert!(passages.iter().all(|passage| passage.replied >= passage.decoded));
        assert_eq!(passages.iter().any(|passage| passage.forwarded), hazard == Hazard::Waits);
    }
}

/// Returns true if the value fits one slab, because the pipeline has no larger values.
fn fits(request: &Request<'_>) -> bool {
    let size = match &request.operation {
        Operation::Put { value, .. } => value.len(),
        Operation::Update(update) => update.initial.map_or(0, <[u8]>::len),
        Operation::Call(call) => call.initial.map_or(0, <[u8]>::len),
        // An expiry takes eight bytes more. Of the other writes, some let values grow.
        Operation::StringWrite(StringWrite::Set { value, .. }) => value.len(),
        Operation::StringWrite(StringWrite::Remove { .. } | StringWrite::Expire { .. }) => 0,
        Operation::StringWrite(_) => return false,
        _ => 0,
    };
    request.key.len() + size <= 500
}

/// Runs operations on an idle board. Each arrives this many ns after the one before.
fn passages(hardware: &Hardware, requests: &[Request<'_>], after: &[f64]) -> Vec<Passage> {
    let settings = Settings { memory: MEMORY, hash_index_ratio: 0.5, inline_threshold: 24, grows: false, seed: 3 };
    let mut nic = nic_on(hardware, &settings, Policy::Dispatch(0.0), 5);
    let mut at = 0.0;
    let arrival = |after: &f64| {
        at += after;
        Time::from_ns(at)
    };
    let arrivals: Vec<Time> = after.iter().map(arrival).collect();
    let mut replies = Replies::with_budget(usize::MAX);
    let passages = run_pipeline(&mut nic, hardware, Hazard::Waits, requests, Clients::Open(&arrivals), &mut replies);
    assert!(replies.iter().all(|reply| !matches!(reply, Reply::Failed(_) | Reply::Deferred)));
    passages
}

const GET: Operation<'_> = Operation::Get;
const PUT: Operation<'_> = Operation::Put { value: &[7; 4], condition: PutCondition::Always };
const APART: f64 = 20_000.0;

#[test]
fn a_write_is_answered_when_it_is_confirmed_and_a_packet_takes_the_latency_of_the_pipeline() {
    let requests = [PUT, PUT, GET].map(|operation| Request { key: b"key", operation });
    let spans = |hardware: &Hardware| {
        let passages = passages(hardware, &requests, &[0.0, APART, APART]);
        let arrivals = [0.0, APART, 2.0 * APART].map(Time::from_ns);
        [1, 2].map(|index| passages[index].replied - arrivals[index])
    };
    let mut board = Hardware::kv_direct();
    let [put, get] = spans(&board);
    let latency = Time::from_ns(board.processor.latency_ns) + Time::cycle(board.card.clock_mhz);
    assert!(get > latency + Time::from_ns(748.0) && get < latency + Time::from_ns(1400.0), "{get}");
    let confirmed = board.pcie.write_confirmed_ns;
    assert!(put > latency + Time::from_ns(748.0 + confirmed), "{put}");
    board.processor.latency_ns += 400.0;
    assert_eq!(spans(&board), [put + Time::from_ns(400.0), get + Time::from_ns(400.0)]);
    board.pcie.write_confirmed_ns += 4000.0;
    assert_eq!(spans(&board), [put + Time::from_ns(4400.0), get + Time::from_ns(400.0)]);
}

#[test]
fn a_write_holds_its_slot_and_its_key_until_it_is_confirmed() {
    let mut board = Hardware::kv_direct();
    board.pcie.write_confirmed_ns = 8000.0;
    let request = |key: &'static [u8], operation| Request { key, operation };
    // The second PUT of a key overwrites its value, and a GET of the key arrives 4 µs later, while the write is in
    // flight. The station holds the value. The GET of another key reads it.
    let requests = [
        request(b"key", PUT),
        request(b"other", PUT),
        request(b"key", PUT),
        request(b"key", GET),
        request(b"other", GET),
    ];
    let after = [0.0, APART, APART, 4000.0, 0.0];
    let arrived = Time::from_ns(2.0 * APART + 4000.0);
    let found = passages(&board, &requests, &after);
    let latency = Time::from_ns(board.processor.latency_ns);
    assert!(found[3].forwarded && found[3].replied <= arrived + latency + Time::from_ns(20.0), "{:?}", found[3]);
    assert!(!found[4].forwarded && found[4].replied < found[2].replied, "{:?}", found[4]);
    assert!(found[2].replied > Time::from_ns(2.0 * APART + 8000.0), "{:?}", found[2]);
    // With one slot, no operation is decoded before the write is confirmed.
    board.processor.operations_in_flight = 1;
    let found = passages(&board, &requests, &after);
    assert!(found[3].decoded >= found[2].replied && !found[3].forwarded, "{:?}", &found[2..]);
}

/// Runs operations on one key. With the station, they run at the clock's rate and with one access at a time.
/// Without it, one runs after the other.
#[test]
fn operations_on_one_key_are_decoded_one_a_cycle_and_stall_without_the_station() {
    let settings = Settings { memory: MEMORY, hash_index_ratio: 0.5, inline_threshold: 24, grows: false, seed: 3 };
    let values: Vec<[u8; 4]> = (0..2000_u32).map(u32::to_le_bytes).collect();
    let put = |value| Request { key: b"key", operation: Operation::Put { value, condition: PutCondition::Always } };
    let requests: Vec<_> = values.iter().map(|value| put(value)).collect();
    let hardware = Hardware::kv_direct();
    let cycle = Time::cycle(hardware.card.clock_mhz);
    // With the station: 11.1 µs to decode 2000 operations, 1.1 µs of latency, and 2.1 µs each for the first operation,
    // which inserts the key and during which the slots fill, and for the last write.
    for (hazard, span) in [(Hazard::Waits, 13.0..17.0), (Hazard::Stalls, 1600.0..2600.0)] {
        let mut nic = nic(&settings, Policy::Dispatch(0.0), 5);
        let mut replies = Replies::with_budget(usize::MAX);
        let passages = run_pipeline(&mut nic, &hardware, hazard, &requests, Clients::Open(&[]), &mut replies);
        assert!(replies.iter().all(|reply| reply == Reply::Done));
        let last = passages[1999].replied;
        assert!(span.contains(&last.as_us()), "{hazard:?}: {last}");
        assert!(passages.windows(2).all(|two| two[1].decoded >= two[0].decoded + cycle), "one is decoded a cycle");
        let mut ends: Vec<Time> = passages.iter().filter(|one| one.forwarded).map(|one| one.replied).collect();
        ends.sort_unstable();
        assert!(ends.windows(2).all(|two| two[1] >= two[0] + cycle), "the engine executes one a cycle");
    }
}

/// Insertions and deletions exchange free slabs in batches, which take less than 0.08 lines for each slab (section 3.3.2).
#[test]
fn free_slabs_are_exchanged_over_pcie() {
    let settings = Settings { memory: MEMORY, hash_index_ratio: 0.3, inline_threshold: 24, grows: false, seed: 3 };
    let mut nic = nic(&settings, Policy::Dispatch(0.0), 1);
    let keys: Vec<[u8; 4]> = (0..4000_u32).map(u32::to_le_bytes).collect();
    let put = Operation::Put { value: &[7; 60], condition: PutCondition::Always };
    let insertions = keys.iter().map(|key| Request { key, operation: put });
    let deletions = keys.iter().map(|key| Request { key, operation: Operation::Delete });
    let requests: Vec<Request<'_>> = insertions.chain(deletions).collect();
    let mut replies = Replies::with_budget(usize::MAX);
    run_pipeline(&mut nic, &Hardware::kv_direct(), Hazard::Waits, &requests, Clients::Open(&[]), &mut replies);
    assert!(replies.iter().all(|reply| reply == Reply::Done));
    let counts = nic.memory().dispatcher().counts();
    let slab = nic.statistics().slab;
    assert_eq!(counts.slabs, slab.lines);
    let share = counts.slabs as f64 / (slab.allocations + slab.releases) as f64;
    assert!((0.02..0.08).contains(&share), "{share}");
}
