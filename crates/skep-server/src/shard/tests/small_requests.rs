//! Small requests beside large ones that wait for memory, in turns.

use std::sync::Arc;

use skep_core::operation::{Operation, PutCondition, Request};

use super::memory_admission::{BUDGET, Sender, serve_all, settings};
use super::{Bench, Client, command, frame, prepare};
use crate::access::Login;
use crate::limits::{PROGRESS_TIME, TICK};
use crate::memcached_batch::MemcachedBatch;
use crate::parsed_batch::ParsedBatch;
use crate::settings::ServerSettings;

/// Returns a client that writes a value of this size over one of three protocols.
fn put(bench: &mut Bench, number: usize, size: usize) -> Sender {
    let (key, value) = (format!("key{number}"), vec![b'v'; size]);
    let shard = number % bench.shards.len();
    match number % 3 {
        0 => Sender::new(bench.resp(shard), command(&[b"SET", key.as_bytes(), &value]), 5),
        1 => {
            let operation = Operation::Put { value: &value, condition: PutCondition::Always };
            Sender::new(bench.native(shard), frame(&[Request { key: key.as_bytes(), operation }]), 5)
        }
        _ => {
            let parsed = MemcachedBatch::boxed(
                &bench.shared.settings,
                Login::default(),
                Arc::clone(&bench.shared.cache_flushes),
            );
            let client = bench.connect(shard, ParsedBatch::Memcached(parsed));
            let head = format!("set {key} 0 0 {size}\r\n");
            Sender::new(client, [head.as_bytes(), &value, b"\r\n"].concat(), 8)
        }
    }
}

/// Returns clients that send the beginning of a value and no more, which take all memory that such values may have. Others
/// of them wait.
fn unfinished(bench: &mut Bench, count: usize, size: usize) -> Vec<Sender> {
    let mut request = command(&[b"SET", b"unfinished", &vec![b'v'; size]]);
    request.truncate(size * 3 / 4);
    (0..count).map(|number| Sender::new(bench.resp(number % bench.shards.len()), request.clone(), usize::MAX)).collect()
}

fn closed(bench: &Bench) -> u64 {
    let shards = 0..bench.shards.len();
    shards.map(|shard| bench.shared.metrics(shard).connections.closed_for_memory.get()).sum()
}

#[test]
fn small_requests_of_each_protocol_do_not_wait_after_large_ones() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards, &settings());
        let mut large = unfinished(&mut bench, 20, 1 << 20);
        for _ in 0..30 {
            large.iter_mut().for_each(|sender| _ = sender.go_on());
            (0..usize::from(shards)).for_each(|shard| while bench.turn(shard) {});
        }
        let waiting = bench.shared.memory_budget.queued_connections().len();
        assert!(waiting > 10, "{waiting} wait");
        for size in [3000, 20_000, 60_000, 1 << 16] {
            let mut small: Vec<Sender> = (0..3).map(|number| put(&mut bench, number, size)).collect();
            let ticks = serve_all("small", &mut bench, &mut small, &mut |_| ());
            assert!(ticks == 0 && closed(&bench) == 0, "{shards} shards, {size} bytes wait for {ticks} ticks");
        }
        assert_eq!(bench.shared.memory_budget.queued_connections().len(), waiting, "the others wait as before");
    }
}

#[test]
fn small_and_large_requests_of_ten_times_the_memory_are_all_replied_to() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards, &settings());
        let small_part = bench.shared.memory_budget.small_part_left();
        let sizes = [400_000, 20_000, 20_000, 60_000];
        let count = 10 * BUDGET / (sizes.iter().sum::<usize>() / sizes.len());
        let mut senders: Vec<Sender> =
            (0..count.min(500)).map(|number| put(&mut bench, number, sizes[number % sizes.len()])).collect();
        let ticks = serve_all("small and large", &mut bench, &mut senders, &mut |_| ());
        assert!(ticks <= 10 && closed(&bench) == 0, "{shards} shards: nothing happened in {ticks} ticks");
        assert_eq!(bench.shared.memory_budget.small_part_left(), small_part);
    }
}

#[test]
fn slow_senders_of_small_requests_are_closed_when_their_part_is_full() {
    let mut bench = Bench::new(1, &settings());
    let mut slow = unfinished(&mut bench, 200, 60_000);
    for _ in 0..10 {
        slow.iter_mut().for_each(|sender| _ = sender.go_on());
        bench.turn_or_tick();
    }
    assert!(bench.shared.memory_budget.small_part_left() < 60_000, "{}", bench.shared.memory_budget.small_part_left());
    assert!(!bench.shared.memory_budget.queued_connections().is_empty());
    let mut honest: Vec<Sender> = (0..3).map(|number| put(&mut bench, number, 20_000)).collect();
    let ticks = serve_all("honest", &mut bench, &mut honest, &mut |_| ());
    let ticks_max = 3 * PROGRESS_TIME.as_millis().div_ceil(TICK.as_millis()) as usize;
    assert!(ticks <= ticks_max && closed(&bench) > 0, "{ticks} ticks");
}

#[test]
fn a_get_does_not_wait_for_the_first_large_values_of_many_clients() {
    let mut bench = Bench::new(1, &ServerSettings::default());
    let request = command(&[b"SET", b"large", &vec![b'v'; 1 << 20]]);
    // So that their decoded requests are as large as this, and what they cost before is paid.
    let mut large = prepare(&mut bench, 40, &request);
    large.iter_mut().for_each(|client| bench.send(client, b"\n"));
    let mut small = bench.resp(0);
    for _ in 0..5 {
        bench.send(&mut small, &command(&[b"GET", b"small"]));
        let turns = bench.turns_until(&mut small, 5, 1000);
        assert!(turns <= 6, "{turns} turns");
        small.received.clear();
    }
    for client in &mut large {
        bench.turns_until(client, 5, 1000);
        assert_eq!(client.received, b"+OK\r\n");
    }
}

/// Lets each client send a request again as soon as it has a reply of at least this size, until the other client
/// has its reply.
/// Returns the turns.
fn turns_beside(
    bench: &mut Bench,
    hogs: &mut [Client],
    request: &[u8],
    size: usize,
    other: &mut Client,
    reply_size: usize,
) -> usize {
    for turns in 0..1000 {
        for hog in &mut *hogs {
            if hog.receive() >= size {
                hog.received.clear();
                bench.send(hog, request);
            }
        }
        if other.receive() >= reply_size {
            return turns;
        }
        bench.turn(0);
    }
    panic!("no reply within 1000 turns");
}

#[test]
fn large_values_do_not_wait_for_ever_for_small_operations() {
    const LARGE: usize = 1 << 20;
    // Each turn has a flush, after which nothing is submitted; or replies as large as a batch may copy.
    let gets = command(&[b"GET", b"medium"]).repeat(40);
    for (name, request, size) in [("FLUSHDB", command(&[b"FLUSHDB"]), 5), ("GET", gets, 40 * 60_000)] {
        let mut bench = Bench::new(1, &ServerSettings::default());
        let mut hogs: Vec<Client> = (0..4).map(|_| bench.resp(0)).collect();
        bench.ask(&mut hogs[0], &command(&[b"SET", b"medium", &vec![b'm'; 60_000]]), 5);
        let mut client = prepare(&mut bench, 1, &command(&[b"SET", b"large", &vec![b'v'; LARGE]])).remove(0);
        hogs.iter_mut().for_each(|hog| bench.send(hog, &request));
        // Both are decoded together.
        bench.send(&mut client, &[b"\n".to_vec(), command(&[b"GET", b"large"])].concat());
        let turns = turns_beside(&mut bench, &mut hogs, &request, size, &mut client, 5 + 5);
        assert!(turns <= 20, "{turns} turns beside {name}");
    }
}
