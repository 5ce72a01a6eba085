//! Requests that are together far larger than the memory for connections, in turns: each is replied to, none is closed,
//! and time hardly goes on.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

use skep_core::operation::{Operation, PutCondition, Request};

use super::{Bench, Client, command, frame};
use crate::access::Login;
use crate::limits::{PROGRESS_TIME, SHARD_RESERVE, TICK};
use crate::memcached_batch::MemcachedBatch;
use crate::parsed_batch::ParsedBatch;
use crate::settings::ServerSettings;

pub(super) const BUDGET: usize = 8 << 20;
const VALUE_SIZE: usize = 400_000;

pub(super) fn settings() -> ServerSettings {
    ServerSettings {
        connection_memory: BUDGET as u64,
        connections_max: 512,
        cache_memory: 16 << 20,
        ..ServerSettings::default()
    }
}

/// A client that sends its requests as far as they are taken, and waits for a reply of a known size.
pub(super) struct Sender {
    pub(super) client: Client,
    pub(super) requests: Vec<u8>,
    pub(super) sent: usize,
    reply_size: usize,
    is_ended: bool,
}

impl Sender {
    pub(super) fn new(client: Client, requests: Vec<u8>, reply_size: usize) -> Sender {
        Sender { client, requests, sent: 0, reply_size, is_ended: false }
    }

    /// Sends and receives what is possible. Returns true if it has its reply.
    pub(super) fn go_on(&mut self) -> bool {
        while self.sent < self.requests.len()
            && let Ok(size) = self.client.stream.write(&self.requests[self.sent..])
        {
            self.sent += size;
        }
        let mut piece = [0; 4096];
        loop {
            match self.client.stream.read(&mut piece) {
                Ok(0) => self.is_ended = true,
                Ok(size) => {
                    self.client.received.extend_from_slice(&piece[..size]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.is_ended = true,
            }
            return self.client.received.len() >= self.reply_size;
        }
    }
}

/// A kind of requests: makes a client with its requests, and the size of its replies.
type Kind = fn(&mut Bench, usize) -> Sender;

fn key(number: usize) -> Vec<u8> {
    format!("key{}", number % 10).into_bytes()
}

fn resp(bench: &mut Bench, number: usize) -> Client {
    bench.resp(number % bench.shards.len())
}

fn set(bench: &mut Bench, number: usize) -> Sender {
    Sender::new(resp(bench, number), command(&[b"SET", &key(number), &vec![b'v'; VALUE_SIZE]]), 5)
}

fn native_put(bench: &mut Bench, number: usize) -> Sender {
    let put = Operation::Put { value: &vec![b'v'; VALUE_SIZE], condition: PutCondition::Always };
    let requests = frame(&[Request { key: &key(number), operation: put }]);
    Sender::new(bench.native(number % bench.shards.len()), requests, 5)
}

fn memcached_set(bench: &mut Bench, number: usize) -> Sender {
    let parsed = ParsedBatch::Memcached(MemcachedBatch::boxed(
        &bench.shared.settings,
        Login::default(),
        Arc::clone(&bench.shared.cache_flushes),
    ));
    let client = bench.connect(number % bench.shards.len(), parsed);
    let mut requests = format!("set key{} 0 0 {VALUE_SIZE}\r\n", number % 10).into_bytes();
    requests.extend(vec![b'v'; VALUE_SIZE]);
    requests.extend(b"\r\n");
    Sender::new(client, requests, 8)
}

fn transaction(bench: &mut Bench, number: usize) -> Sender {
    let set = command(&[b"SET", &key(number), &vec![b'v'; VALUE_SIZE / 4]]).repeat(4);
    let requests = [command(&[b"MULTI"]), set, command(&[b"EXEC"])].concat();
    Sender::new(resp(bench, number), requests, 5 + 4 * 9 + 4 + 4 * 5)
}

/// The sizes of its arguments are known one after another.
fn set_many(bench: &mut Bench, number: usize) -> Sender {
    let value = vec![b'v'; VALUE_SIZE / 200];
    let mut arguments: Vec<&[u8]> = vec![b"MSET"];
    let key = key(number);
    (0..200).for_each(|_| arguments.extend([&key[..], &value[..]]));
    Sender::new(resp(bench, number), command(&arguments), 5)
}

/// A `RESTORE` of a few kilobytes whose value is far longer, beside others.
fn restore(bench: &mut Bench, number: usize) -> Sender {
    let mut first = bench.resp(0);
    let value = vec![b'v'; VALUE_SIZE];
    bench.ask(&mut first, &command(&[b"SET", b"dumped", &value]), 5);
    let head = format!("${}\r\n", VALUE_SIZE + 15).len();
    let dumped = bench.ask(&mut first, &command(&[b"DUMP", b"dumped"]), VALUE_SIZE);
    let size: usize = std::str::from_utf8(&dumped[1..head - 2]).unwrap().parse().unwrap();
    let rest = bench.ask(&mut first, b"", (head + size + 2).saturating_sub(dumped.len()));
    let payload = &[dumped, rest].concat()[head..head + size];
    Sender::new(resp(bench, number), command(&[b"RESTORE", &key(number), b"0", payload, b"REPLACE"]), 5)
}

/// A `RESTORE` whose compressed payload of a few kilobytes has a value of a mebibyte.
fn restore_compressed(bench: &mut Bench, number: usize) -> Sender {
    // A zero, and copies of 264 bytes of the one before it.
    let copies = 3971;
    let compressed = [&[0, 0][..], &[0xe0, 0xff, 0].repeat(copies)].concat();
    let length = |size: usize| [&[0x80][..], &(size as u32).to_be_bytes()].concat();
    let mut payload = [&[0, 0xc3][..], &length(compressed.len()), &length(1 + 264 * copies), &compressed].concat();
    payload.extend_from_slice(&[6, 0]);
    let sum = payload.iter().fold(0_u64, |sum, &byte| {
        let shift = |sum: u64, _| if sum & 1 == 1 { sum >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { sum >> 1 };
        (0..8).fold(sum ^ u64::from(byte), shift)
    });
    payload.extend_from_slice(&sum.to_le_bytes());
    Sender::new(resp(bench, number), command(&[b"RESTORE", &key(number), b"0", &payload, b"REPLACE"]), 5)
}

/// Lets clients send at once until each has its reply. Returns the number of ticks in which there was nothing to do.
pub(super) fn serve_all(
    name: &str,
    bench: &mut Bench,
    senders: &mut [Sender],
    others: &mut dyn FnMut(&mut Bench),
) -> usize {
    let (begun, mut rounds) = (bench.now, 0);
    // Each of them sends, also after one that waits.
    while senders.iter_mut().map(|sender| usize::from(!sender.go_on())).sum::<usize>() > 0 {
        others(bench);
        bench.turn_or_tick();
        rounds += 1;
        let ended = senders.iter().filter(|sender| sender.is_ended).count();
        let last = senders.iter().find(|sender| sender.is_ended).map(|sender| sender.client.received.clone());
        assert_eq!(ended, 0, "{name}: closed after {rounds} rounds: {:?}", last.map(String::from_utf8));
        assert!(rounds < 20_000, "{name}: requests wait for ever: {} wait", bench.shared.memory_budget.starved());
    }
    ((bench.now - begun).as_nanos() / TICK.as_nanos()) as usize
}

#[test]
fn requests_of_ten_times_the_memory_are_all_replied_to() {
    let kinds: [(&str, Kind); 7] = [
        ("SET", set),
        ("native put", native_put),
        ("memcached's set", memcached_set),
        ("transaction", transaction),
        ("MSET", set_many),
        ("RESTORE", restore),
        ("compressed RESTORE", restore_compressed),
    ];
    for (name, kind) in kinds {
        for shards in [1, 2, 4] {
            let mut bench = Bench::new(shards, &settings());
            let count = 10 * BUDGET / VALUE_SIZE;
            let mut senders: Vec<Sender> = (0..count).map(|number| kind(&mut bench, number)).collect();
            let ticks = serve_all(name, &mut bench, &mut senders, &mut |_| ());
            let closed =
                (0..shards).map(|shard| bench.shared.metrics(usize::from(shard)).connections.closed_for_memory.get());
            assert_eq!(closed.sum::<u64>(), 0, "{name}, {shards} shards");
            assert!(ticks <= 10, "{name}, {shards} shards: nothing happened in {ticks} ticks");
            let most = bench.shared.memory_budget.used_max() as usize;
            assert!(most <= BUDGET + usize::from(shards) * SHARD_RESERVE / 2, "{name}, {shards} shards: {most}");
            for sender in &senders {
                assert!(!sender.client.received.contains(&b'-'), "{name}: {:?}", sender.client.received);
            }
        }
    }
}

/// Clients that send most of a large value at once, and then a byte now and then. Each connects again when it is closed.
struct SlowSenders(Vec<(Sender, usize)>);

impl SlowSenders {
    fn new(bench: &mut Bench, count: usize) -> SlowSenders {
        SlowSenders((0..count).map(|number| (SlowSenders::one(bench, number), number)).collect())
    }

    fn one(bench: &mut Bench, number: usize) -> Sender {
        let mut requests = command(&[b"SET", b"slow", &vec![b'v'; 1 << 20]]);
        requests.truncate(900_000);
        Sender::new(resp(bench, number), requests, usize::MAX)
    }

    fn go_on(&mut self, bench: &mut Bench) {
        for (sender, number) in &mut self.0 {
            sender.go_on();
            if sender.is_ended {
                *sender = SlowSenders::one(bench, *number);
            }
        }
    }
}

#[test]
fn slow_senders_keep_a_request_waiting_for_a_short_time() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards, &settings());
        let mut slow = SlowSenders::new(&mut bench, 8);
        for _ in 0..50 {
            slow.go_on(&mut bench);
            bench.turn_or_tick();
        }
        for size in [0, 1000, 3000, 20_000, 100_000, 1_000_000] {
            let honest = bench.resp(0);
            let mut senders = [Sender::new(honest, command(&[b"SET", b"honest", &vec![b'v'; size]]), 5)];
            let ticks = serve_all("SET", &mut bench, &mut senders, &mut |bench| slow.go_on(bench));
            // Three of the slow ones have memory at a time: it waits for two or three groups of them.
            let ticks_max = 4 * PROGRESS_TIME.as_millis().div_ceil(TICK.as_millis()) as usize;
            let is_small = size <= 20_000;
            assert!(ticks <= if is_small { 1 } else { ticks_max }, "{size} bytes wait for {ticks} ticks");
        }
    }
}

#[test]
fn requests_of_ten_times_the_memory_are_replied_to_beside_slow_senders() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards, &settings());
        let mut slow = SlowSenders::new(&mut bench, 4);
        let count = 10 * BUDGET / VALUE_SIZE;
        let mut senders: Vec<Sender> = (0..count).map(|number| set(&mut bench, number)).collect();
        let ticks = serve_all("SET", &mut bench, &mut senders, &mut |bench| slow.go_on(bench));
        assert!(ticks <= 10 * PROGRESS_TIME.as_millis().div_ceil(TICK.as_millis()) as usize, "{ticks} ticks");
    }
}

/// Lets clients ask for replies and take nothing. Returns the most bytes that were held.
fn hold_replies(shards: u16, requests: &dyn Fn(&Bench) -> Vec<u8>, size_max: usize) -> usize {
    let mut bench = Bench::new(shards, &settings());
    let mut first = bench.resp(0);
    for number in 0..4 {
        bench.ask(&mut first, &command(&[b"SET", &key(number), &vec![b'v'; 1 << 20]]), 5);
    }
    let requests = requests(&bench);
    let mut clients: Vec<Sender> = Vec::new();
    for wave in [10, 50] {
        for number in 0..wave {
            let client = resp(&mut bench, number);
            rustix::net::sockopt::set_socket_recv_buffer_size(&client.stream, 4096).unwrap();
            clients.push(Sender::new(client, requests.clone(), size_max));
        }
        for _ in 0..100 {
            for client in &mut clients {
                client.sent += client.client.stream.write(&client.requests[client.sent..]).unwrap_or(0);
            }
            bench.turn_or_tick();
        }
    }
    bench.shared.memory_budget.used_max() as usize
}

#[test]
fn replies_that_are_not_taken_stay_within_the_budget_and_the_reserves() {
    let mget = |_: &Bench| command(&[b"MGET", b"key0", b"key1", b"key2", b"key3"]);
    let exec = |_: &Bench| {
        let gets = (0..4).map(|number| command(&[b"GET", &key(number)]));
        let first = command(&[b"MULTI"]);
        std::iter::once(first).chain(gets).chain([command(&[b"EXEC"])]).flatten().collect()
    };
    let list = |_: &Bench| command(&[b"COMMAND", b"DOCS"]).repeat(20);
    type Requests<'r> = &'r dyn Fn(&Bench) -> Vec<u8>;
    let kinds: [(&str, Requests<'_>); 3] = [("MGET", &mget), ("EXEC", &exec), ("COMMAND DOCS", &list)];
    for (name, requests) in kinds {
        for shards in [1, 2] {
            let most = hold_replies(shards, requests, usize::MAX);
            let bound = BUDGET + usize::from(shards) * SHARD_RESERVE;
            assert!(most <= bound && most > 1 << 20, "{name}, {shards} shards: {most} of {bound}");
        }
    }
}

/// Returns a client that queues commands of a transaction and then says nothing.
fn silent_queue(bench: &mut Bench, number: usize) -> Sender {
    let queued = [command(&[b"MULTI"]), command(&[b"SET", b"silent", &vec![b'v'; 60_000]]).repeat(16)].concat();
    Sender::new(resp(bench, number), queued, usize::MAX)
}

/// Lets silent clients send. Those that are closed connect again if they `return`.
fn go_on_silent(bench: &mut Bench, silent: &mut [Sender], returns: bool) {
    for (number, sender) in silent.iter_mut().enumerate() {
        sender.go_on();
        if returns && sender.is_ended {
            *sender = silent_queue(bench, number);
        }
    }
}

/// Returns the ticks for which requests of each kind wait beside silent clients, at several moments. Their clients are
/// `proven` if they have sent such a request before.
fn ticks_beside_silent(count: usize, returns: bool, proven: bool) -> usize {
    let settings = ServerSettings { connection_memory: 32 << 20, connections_max: 512, ..settings() };
    let kinds: [(&str, Kind); 4] =
        [("SET", set), ("transaction", transaction), ("MSET", set_many), ("RESTORE", restore)];
    let mut worst = 0;
    for (name, kind) in kinds {
        let mut bench = Bench::new(1, &settings);
        let mut honest: Vec<Sender> = (0..4).map(|number| kind(&mut bench, number)).collect();
        if proven {
            serve_all(name, &mut bench, &mut honest, &mut |_| ());
            honest.iter_mut().for_each(|sender| (sender.sent, sender.client.received) = (0, Vec::new()));
        }
        let mut silent: Vec<Sender> = (0..count).map(|number| silent_queue(&mut bench, number)).collect();
        for (sender, turns) in honest.iter_mut().zip([100, 12, 27, 50]) {
            // The server reads as many as it may hold.
            for _ in 0..turns {
                go_on_silent(&mut bench, &mut silent, returns);
                bench.turn_or_tick();
            }
            let others = &mut |bench: &mut Bench| go_on_silent(bench, &mut silent, returns);
            worst = worst.max(serve_all(name, &mut bench, std::slice::from_mut(sender), others));
        }
        let closed = bench.shared.metrics(0).connections.closed_for_memory.get();
        assert!(closed > 0, "{name} beside {count}: no silent one was closed");
    }
    worst
}

#[test]
fn silent_transactions_keep_a_request_waiting_for_a_time_that_does_not_grow_with_their_number() {
    let period = 1 + PROGRESS_TIME.as_millis().div_ceil(TICK.as_millis()) as usize;
    for (returns, proven) in [(false, false), (false, true), (true, true)] {
        for count in [20, 80] {
            let ticks = ticks_beside_silent(count, returns, proven);
            // It waits for two to four of them.
            assert!(ticks <= 6 * period, "{ticks} ticks beside {count} that return: {returns}, {proven}");
        }
    }
}

#[test]
fn a_transaction_that_is_queued_at_the_stated_rate_is_executed_beside_silent_ones() {
    const COMMANDS: usize = 200;
    let settings = ServerSettings { connection_memory: 32 << 20, connections_max: 512, ..settings() };
    let mut bench = Bench::new(1, &settings);
    let mut slow = bench.resp(0);
    bench.send(&mut slow, &command(&[b"MULTI"]));
    let mut silent: Vec<Sender> = (0..40).map(|number| silent_queue(&mut bench, number)).collect();
    for _ in 0..100 {
        go_on_silent(&mut bench, &mut silent, true);
        bench.turn(0);
    }
    // 24 KB/s.
    let set = command(&[b"SET", b"slow", &[b'v'; 1200]]);
    for _ in 0..COMMANDS {
        bench.send(&mut slow, &set);
        go_on_silent(&mut bench, &mut silent, true);
        while bench.turn(0) {}
        bench.now += TICK;
        bench.shards[0].tick(bench.now);
    }
    bench.send(&mut slow, &command(&[b"EXEC"]));
    let head = format!("*{COMMANDS}\r\n");
    for _ in 0..100_000 {
        if slow.receive() == 5 + 9 * COMMANDS + head.len() + 5 * COMMANDS {
            break;
        }
        go_on_silent(&mut bench, &mut silent, true);
        bench.turn_or_tick();
    }
    assert!(slow.received.ends_with(b"+OK\r\n") && !slow.received.contains(&b'-'), "{} bytes", slow.received.len());
    assert!(bench.shared.metrics(0).connections.closed_for_memory.get() > 0);
}
