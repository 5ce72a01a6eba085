//! Memory of connections, in turns: who waits for it, and for how long.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use super::{Bench, Client, Driven, command, long_command};
use crate::limits::{BESIDE_WORK, FLUSH_TIME, PROGRESS_TIME, TICK, TURN_WORK};
use crate::memory_budget::{Class, Loan, ShardBudget, Waiter};
use crate::settings::ServerSettings;
use crate::vocabulary::Token;

/// Sets a value of 1 MiB and one of 20 kB, and lets 150 clients ask for the large one twenty times each and take
/// nothing, until no more of them is served.
fn hold_all_memory_for_replies(bench: &mut Bench) -> (Client, Vec<Client>) {
    let mut modest = bench.resp(0);
    let mut hogs: Vec<Client> = (0..150).map(|_| bench.resp(0)).collect();
    bench.ask(&mut modest, &command(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), 5);
    bench.ask(&mut modest, &command(&[b"SET", b"modest", &vec![b'v'; 20_000]]), 5);
    let gets = command(&[b"GET", b"large"]).repeat(20);
    hogs.iter_mut().for_each(|hog| bench.send(hog, &gets));
    for _ in 0..2000 {
        bench.turn(0);
    }
    (modest, hogs)
}

#[test]
fn a_modest_value_is_read_in_few_turns_while_others_hold_the_memory_for_replies() {
    let settings = ServerSettings { connection_memory: 64 << 20, connections_max: 500, ..ServerSettings::default() };
    let mut bench = Bench::new(1, &settings);
    let (mut modest, hogs) = hold_all_memory_for_replies(&mut bench);
    let used = bench.shards[0].shard.shard_budget.used();
    assert!(used > 30 << 20, "the replies of the others take {used} bytes");
    let get = command(&[b"GET", b"modest"]);
    for _ in 0..100 {
        bench.send(&mut modest, &get);
        let turns = bench.turns_until(&mut modest, 20_010, 1000);
        assert!(turns <= 4, "{turns} turns");
        modest.received.clear();
    }
    drop(hogs);
}

#[test]
fn a_modest_value_does_not_wait_for_those_who_ask_for_large_ones() {
    let mut bench = Bench::new(1, &ServerSettings::default());
    let mut modest = bench.resp(0);
    bench.ask(&mut modest, &command(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), 5);
    bench.ask(&mut modest, &command(&[b"SET", b"modest", &vec![b'v'; 20_000]]), 5);
    let mut hogs: Vec<Client> = (0..50).map(|_| bench.resp(0)).collect();
    let gets = command(&[b"GET", b"large"]).repeat(3);
    hogs.iter_mut().for_each(|hog| bench.send(hog, &gets));
    for _ in 0..20 {
        bench.send(&mut modest, &command(&[b"GET", b"modest"]));
        let turns = bench.turns_until(&mut modest, 20_010, 1000);
        assert!(turns <= 3, "{turns} turns beside 50 that ask for 3 MiB each");
        modest.received.clear();
    }
    for hog in &mut hogs {
        bench.turns_until(hog, 3 * ((1 << 20) + 12), 100_000);
    }
}

/// Returns the smallest budget, half of which is common.
fn with_little_memory() -> ServerSettings {
    ServerSettings { connection_memory: 8 << 20, connections_max: 512, ..ServerSettings::default() }
}

/// Lets clients that send the same requests at once take replies, until each has `size_each` bytes or all together have
/// `size_all`. If nothing is to do, time goes on. Returns how many turns passed without a byte, at most.
fn longest_silence(bench: &mut Bench, requests: &[u8], count: usize, size_each: usize, size_all: usize) -> usize {
    let mut clients: Vec<Client> = (0..count).map(|number| bench.resp(number % bench.shards.len())).collect();
    let mut received = vec![0; count];
    let mut sent = vec![0; count];
    let (mut silent, mut longest) = (0, 0);
    while received.iter().any(|&size| size < size_each) && received.iter().sum::<usize>() < size_all {
        for (client, sent) in clients.iter_mut().zip(&mut sent) {
            *sent += client.stream.write(&requests[*sent..]).unwrap_or(0);
        }
        bench.turn_or_tick();
        silent += 1;
        for (client, received) in clients.iter_mut().zip(&mut received) {
            let size = client.receive();
            silent = if size > 0 { 0 } else { silent };
            *received += size;
            client.received.clear();
        }
        longest = longest.max(silent);
        assert!(silent < 2000, "no byte in {silent} turns: {} in use", bench.shards[0].shard.shard_budget.used());
    }
    longest
}

#[test]
fn complete_requests_do_not_hold_the_memory_of_their_own_replies() {
    for (shards, value_size) in [(1, 600), (1, 20_000), (1, 1 << 20), (2, 600), (2, 20_000), (2, 1 << 20)] {
        let mut bench = Bench::new(shards, &with_little_memory());
        let mut first = bench.resp(0);
        bench.ask(&mut first, &command(&[b"SET", b"key:with:a:name", &vec![b'v'; value_size]]), 5);
        let gets = command(&[b"GET", b"key:with:a:name"]).repeat(1000);
        let silence = longest_silence(&mut bench, &gets, 60, 1000 * value_size, 200 << 20);
        assert!(silence < 200, "{silence} turns without a byte, {shards} shards, values of {value_size}");
    }
}

#[test]
fn replies_after_one_that_is_deferred_do_not_hold_its_memory() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards, &with_little_memory());
        let mut first = bench.resp(0);
        bench.ask(&mut first, &command(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), 5);
        bench.ask(&mut first, &command(&[b"SET", b"modest", &vec![b'v'; 20_000]]), 5);
        let gets = [command(&[b"GET", b"large"]), command(&[b"GET", b"modest"]).repeat(100)].concat().repeat(10);
        let silence = longest_silence(&mut bench, &gets, 60, 30_000_000, 200 << 20);
        assert!(silence < 200, "{silence} turns without a byte, {shards} shards");
    }
}

#[test]
fn two_requests_for_many_values_do_not_hold_the_memory_of_their_own_replies() {
    for value_size in [600, 20_000, 1 << 20] {
        let mut bench = Bench::new(1, &with_little_memory());
        let mut first = bench.resp(0);
        let key = b"a:key:with:a:name:of:usual:length";
        bench.ask(&mut first, &command(&[b"SET", key, &vec![b'v'; value_size]]), 5);
        let get = long_command(b"MGET", key, 22_000);
        let silence = longest_silence(&mut bench, &get, 2, 22_000 * value_size, 100 << 20);
        assert!(silence < 200, "{silence} turns without a byte, values of {value_size}");
    }
}

#[test]
fn a_request_of_any_size_is_executed_or_refused() {
    // Around the largest that may be held: its input, and what it is parsed into.
    let mut bench = Bench::new(1, &with_little_memory());
    let mut kinds = [0; 2];
    for count in (40_000..72_000).step_by(130) {
        let mut client = bench.resp(0);
        let request = long_command(b"EXISTS", &vec![b'k'; 1_300_000 / count - 8], count);
        let mut sent = 0;
        let mut turns = 0;
        while client.received.is_empty() {
            sent += client.stream.write(&request[sent..]).unwrap_or(0);
            bench.turn_or_tick();
            turns += 1;
            assert!(turns < 1000, "{count} keys are neither executed nor refused");
            let mut piece = [0; 1000];
            let size = client.stream.read(&mut piece).unwrap_or(0);
            client.received.extend_from_slice(&piece[..size]);
        }
        kinds[usize::from(client.received[0] == b'-')] += 1;
    }
    assert!(kinds[0] > 0 && kinds[1] > 0, "{kinds:?} of both kinds");
}

#[test]
fn a_pipeline_beside_a_request_that_waits_takes_few_turns() {
    let mut bench = Bench::new(1, &ServerSettings::default());
    let mut client = bench.resp(0);
    let gets = command(&[b"GET", b"missing"]).repeat(20_000);
    let mut turns = Vec::new();
    for is_beside_waiting in [false, true] {
        bench.send(&mut client, &gets);
        (0..2).for_each(|_| _ = bench.turn(0));
        if is_beside_waiting {
            let waiter = Waiter {
                shard: 0,
                token: Token::default(),
                connection: 1 << 40,
                bytes: 1 << 30,
                class: Class::Whole,
                ticket: 0,
                is_small: false,
                proven: 0,
                is_in_small_part: false,
            };
            bench.shared.memory_budget.wait(waiter);
        }
        turns.push(bench.turns_until(&mut client, 5 * 20_000, 100_000));
        client.received.clear();
    }
    assert!(turns[1] <= 20 * turns[0].max(5), "{turns:?} turns");
}

#[test]
fn a_client_with_unread_replies_may_send_a_request_that_fits_without_them() {
    let mut bench = Bench::new(1, &with_little_memory());
    let mut client = bench.resp(0);
    bench.ask(&mut client, &command(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), 5);
    for unread in 1..6 {
        let request =
            [command(&[b"GET", b"large"]).repeat(unread), long_command(b"EXISTS", b"missing", 45_000)].concat();
        let mut sent = 0;
        for _ in 0..500 {
            // It takes no replies.
            sent += client.stream.write(&request[sent..]).unwrap_or(0);
            bench.turn(0);
        }
        bench.send(&mut client, &request[sent..]);
        bench.ask(&mut client, b"", unread * ((1 << 20) + 12) + 4);
    }
}

#[test]
fn a_starved_connection_whose_client_is_gone_is_closed() {
    for is_reset in [false, true] {
        let mut bench = Bench::new(1, &with_little_memory());
        let mut client = bench.resp(0);
        bench.ask(&mut client, &command(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), 5);
        // All memory is held.
        let held = bench.shared.memory_budget.clone();
        let (mut other, mut loan) = (ShardBudget::new(held), Loan::default());
        other.record(&mut loan, 8 << 20, 0, 8 << 20);
        bench.send(&mut client, &command(&[b"GET", b"large"]));
        while bench.turn(0) {}
        assert_eq!(bench.shards[0].shard.waits.starved.len(), 1);
        if is_reset {
            rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
        }
        drop(client);
        // At once after a reset; a client that has finished may still read.
        let seconds = if is_reset { 0 } else { 12 };
        (0..3).for_each(|_| _ = bench.turn(0));
        for _ in 0..seconds {
            bench.now += Duration::from_secs(1);
            bench.shards[0].shard.tick(bench.now);
            bench.turn(0);
        }
        assert!(bench.shards[0].shard.connections.is_empty(), "closed, reset: {is_reset}");
        other.leave(&mut loan, 1 << 40);
    }
}

/// Holds all memory, as replies that clients of another shard do not take.
fn hold_all_memory(bench: &Bench) -> (ShardBudget, Loan) {
    let (mut other, mut loan) = (ShardBudget::new(bench.shared.memory_budget.clone()), Loan::default());
    other.record(&mut loan, 8 << 20, 0, 8 << 20);
    (other, loan)
}

/// Counts a reader's progress while memory is scarce: it asks for 16 MiB and takes `size` bytes in each tick. Returns the
/// most ticks after which its connection had written nothing, and whether it was closed.
fn read_while_memory_is_scarce(size: usize) -> (u32, bool) {
    let mut bench = Bench::new(1, &with_little_memory());
    let mut reader = bench.resp(0);
    bench.ask(&mut reader, &command(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), 5);
    bench.send(&mut reader, &command(&[b"GET", b"large"]).repeat(16));
    while bench.turn(0) {}
    let (other, loan) = hold_all_memory(&bench);
    let mut sender = bench.resp(0);
    bench.send(&mut sender, &command(&[b"SET", b"k", &vec![b'v'; 100_000]]));
    while bench.turn(0) {}
    let written = |bench: &Bench| bench.shared.metrics(0).output_bytes.get();
    let (mut before, mut silent, mut most) = (written(&bench), 0, 0);
    let mut piece = vec![0; size];
    let closed = |bench: &Bench| bench.shared.metrics(0).connections.closed_for_memory.get();
    for _ in 0..400 {
        if closed(&bench) > 0 {
            break;
        }
        assert!(bench.shared.memory_budget.is_scarce());
        if size > 0 {
            _ = reader.stream.read(&mut piece).unwrap();
        }
        bench.now += TICK;
        bench.shards[0].tick(bench.now);
        while bench.turn(0) {}
        silent = if written(&bench) == before { silent + 1 } else { 0 };
        before = written(&bench);
        most = most.max(silent);
    }
    release_all_memory(other, loan);
    (most, closed(&bench) > 0)
}

#[test]
fn a_reader_whose_kernel_acknowledges_replies_is_not_slow_while_its_socket_takes_none() {
    let ticks = PROGRESS_TIME.div_duration_f64(TICK).ceil() as u32;
    // 200 KB/s and 400 KB/s of the test's clock. The socket takes some after a mebibyte.
    for size in [10_000, 20_000] {
        let (silent, is_closed) = read_while_memory_is_scarce(size);
        assert!(!is_closed, "{size} bytes in a tick");
        assert!(silent > ticks, "{size} bytes: the socket took some in each {silent} ticks");
    }
    assert!(read_while_memory_is_scarce(0).1, "it took none");
    assert!(read_while_memory_is_scarce(500).1, "10 KB/s");
}

fn release_all_memory(mut other: ShardBudget, mut loan: Loan) {
    other.leave(&mut loan, 1 << 40);
}

#[test]
fn a_request_that_waits_for_memory_may_follow_empty_lines() {
    for empty in [&b"\r\n"[..], b"\r\n\r\n\r\n"] {
        let mut bench = Bench::new(1, &with_little_memory());
        let mut client = bench.resp(0);
        let (other, loan) = hold_all_memory(&bench);
        let requests = [
            empty,
            &long_command(b"EXISTS", b"missing", 500),
            empty,
            &command(&[b"SET", b"k", &vec![b'v'; 100_000]]),
            empty,
            &command(&[b"GET", b"k"]),
        ]
        .concat();
        let mut sent = 0;
        for _ in 0..100 {
            sent += client.stream.write(&requests[sent..]).unwrap_or(0);
            bench.turn_or_tick();
        }
        assert_eq!((client.receive(), bench.shared.memory_budget.starved()), (0, 1), "it waits");
        release_all_memory(other, loan);
        while sent < requests.len() || client.receive() < 4 + 5 + 100_011 {
            sent += client.stream.write(&requests[sent..]).unwrap_or(0);
            bench.turn_or_tick();
        }
        assert!(client.received.starts_with(b":0\r\n+OK\r\n$100000\r\nvvv"));
        // And one that never fits is refused.
        let request = [empty, &long_command(b"EXISTS", b"missing", 500_000)].concat();
        let (mut sent, mut size, mut reply) = (0, 0, [0; 100]);
        while size == 0 {
            sent += client.stream.write(&request[sent..]).unwrap_or(0);
            bench.turn_or_tick();
            size = client.stream.read(&mut reply).unwrap_or(0);
        }
        assert!(reply.starts_with(b"-ERR the request needs more memory"));
    }
}

#[test]
fn a_server_stops_while_input_buffers_are_full() {
    let mut bench = Bench::new(1, &with_little_memory());
    let (other, loan) = hold_all_memory(&bench);
    // One waits for the rest of its request, one has sent requests that wait for memory, one has nothing to wait for.
    let half = long_command(b"EXISTS", b"missing", 500);
    let requests = [half.clone(), command(&[b"PING"])].concat();
    let mut clients: Vec<Client> = (0..3).map(|_| bench.resp(0)).collect();
    bench.ask(&mut clients[2], &command(&[b"PING"]), 7);
    for (client, bytes) in clients.iter_mut().zip([&half[..half.len() - 1], &requests]) {
        assert_eq!(client.stream.write(bytes).unwrap(), bytes.len());
    }
    while bench.turn(0) {}
    assert_eq!(bench.shared.memory_budget.starved(), 2, "their buffers are full");
    bench.shared.stopping.store(true, std::sync::atomic::Ordering::Release);
    for time in 0.. {
        let Driven { shard, .. } = &mut bench.shards[0];
        shard.tick(bench.now);
        if shard.connections.is_empty() {
            break;
        }
        bench.turn(0);
        bench.now += TICK;
        assert!(TICK * time <= FLUSH_TIME + TICK, "it does not stop");
    }
    release_all_memory(other, loan);
}

#[test]
fn a_client_that_has_closed_its_side_has_ten_seconds_to_get_its_reply() {
    for seconds in [9, 11] {
        let mut bench = Bench::new(1, &with_little_memory());
        let mut client = bench.resp(0);
        bench.ask(&mut client, &command(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), 5);
        let (other, loan) = hold_all_memory(&bench);
        bench.send(&mut client, &command(&[b"GET", b"large"]));
        client.stream.shutdown(Shutdown::Write).unwrap();
        while bench.turn(0) {}
        for _ in 0..seconds {
            bench.now += Duration::from_secs(1);
            bench.shards[0].shard.tick(bench.now);
            while bench.turn(0) {}
        }
        let is_closed = bench.shards[0].shard.connections.is_empty();
        assert_eq!(is_closed, seconds > 10, "after {seconds} s");
        release_all_memory(other, loan);
        let size_max = if is_closed { 0 } else { (1 << 20) + 12 };
        let mut size = 0;
        let mut piece = vec![0; 256 << 10];
        while size < size_max {
            bench.turn_or_tick();
            size += client.stream.read(&mut piece).unwrap_or(0);
        }
        while !bench.shards[0].shard.connections.is_empty() {
            bench.turn_or_tick();
        }
        assert_eq!(client.stream.read(&mut piece).unwrap(), 0, "the end, and nothing before it");
    }
}

/// Forwarded batches may use up all reserves at once: of many values that were asked for while memory was free.
#[test]
fn connections_within_their_shares_go_on_while_the_reserves_are_used_up() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards, &with_little_memory());
        let mut client = bench.resp(0);
        for shard in 0..shards {
            let key = bench.key(shard, 0);
            bench.ask(&mut client, &command(&[b"SET", &key, b"1"]), 5);
        }
        bench.shared.memory_budget.record_batch(0, 64 << 20);
        assert!(bench.shards[0].shard.shard_budget.is_exhausted());
        for round in 0..20 {
            let key = bench.key(round % shards, 0);
            for (request, size) in [(command(&[b"PING"]), 7), (command(&[b"GET", &key]), 7)] {
                bench.send(&mut client, &request);
                let turns = bench.turns_until(&mut client, size, 1000);
                assert!(turns <= 6, "{turns} turns, {shards} shards");
                client.received.clear();
            }
        }
    }
}

/// A client that wants a large value of the other shard, whose replies find no room there.
#[test]
fn a_connection_that_waits_for_another_shard_counts_and_is_served_beside_clients_that_take_nothing() {
    const COUNT: usize = 30;
    let mut bench = Bench::new(2, &with_little_memory());
    let mut reader = bench.resp(0);
    let keys = [0, 1].map(|shard| bench.key(shard, 0));
    for key in &keys {
        bench.ask(&mut reader, &command(&[b"SET", key, &vec![b'v'; 1 << 20]]), 5);
    }
    for key in &keys {
        // While nothing is free, it waits as one that lacks memory, on which shard the value may be.
        let (other, loan) = hold_all_memory(&bench);
        bench.send(&mut reader, &command(&[b"GET", key]));
        for _ in 0..20 {
            (0..2).for_each(|shard| _ = bench.turn(shard));
        }
        assert_eq!((bench.shared.memory_budget.starved(), bench.shared.memory_budget.is_scarce()), (1, true));
        let Driven { shard, .. } = &bench.shards[0];
        assert!(shard.waits.starved.iter().all(|token| shard.connections.connection(*token).unwrap().is_starved()));
        release_all_memory(other, loan);
        while reader.receive() < (1 << 20) + 12 {
            bench.turn_or_tick();
        }
        reader.received.clear();
    }
    let gets = [command(&[b"GET", &keys[0]]), command(&[b"GET", &keys[1]])].concat().repeat(COUNT / 2);
    let hogs: Vec<Client> = (0..40).map(|number| bench.resp(number % 2)).collect();
    let hogs: Vec<Client> = hogs
        .into_iter()
        .map(|mut hog| {
            bench.send(&mut hog, &gets);
            hog
        })
        .collect();
    (0..500).for_each(|_| (0..2).for_each(|shard| _ = bench.turn(shard)));
    bench.send(&mut reader, &gets);
    let (begun, mut received) = (bench.now, 0);
    while received < COUNT * ((1 << 20) + 12) {
        bench.turn_or_tick();
        received += reader.receive();
        reader.received.clear();
        let ticks = (bench.now - begun).as_nanos() / TICK.as_nanos();
        // As many are closed as hold all memory, a few at a time.
        assert!(ticks < 40 * 20, "{received} bytes in {ticks} ticks");
    }
    drop(hogs);
}

#[test]
fn connections_that_wait_for_room_are_tried_in_the_order_in_which_they_began_to_wait() {
    let mut bench = Bench::new(1, &with_little_memory());
    let mut clients: Vec<Client> = (0..8).map(|_| bench.resp(0)).collect();
    bench.ask(&mut clients[0], &command(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), 5);
    let (other, loan) = hold_all_memory(&bench);
    // Each begins to wait after the one before it; the one that has moved bytes last is the last one.
    for client in &mut clients {
        bench.send(client, &command(&[b"GET", b"large"]));
        (0..4).for_each(|_| _ = bench.turn(0));
    }
    // Some tries fail, which changes nothing.
    for _ in 0..25 {
        bench.now += TICK;
        bench.shards[0].tick(bench.now);
        while bench.turn(0) {}
    }
    assert_eq!(bench.shared.memory_budget.starved(), 8);
    release_all_memory(other, loan);
    let mut order = Vec::new();
    while order.len() < 8 {
        bench.turn_or_tick();
        for (number, client) in clients.iter_mut().enumerate() {
            if client.receive() > 0 && !order.contains(&number) {
                order.push(number);
            }
        }
    }
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// Returns the numbers of the connections that wait in the queue of the server, the first one first.
fn queue_of(bench: &Bench) -> Vec<usize> {
    bench.shared.memory_budget.queued_connections().iter().map(|&number| number as usize).collect()
}

#[test]
fn a_request_waits_in_the_order_of_its_arrival_although_its_connection_waits_already() {
    let mut bench = Bench::new(1, &with_little_memory());
    let mut clients: Vec<Client> = (0..3).map(|_| bench.resp(0)).collect();
    bench.ask(&mut clients[0], &command(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), 5);
    let (other, loan) = hold_all_memory(&bench);
    // The first one waits for room for a reply. It is tried again, and then its next request waits.
    bench.send(&mut clients[1], &command(&[b"GET", b"large"]));
    (0..4).for_each(|_| _ = bench.turn(0));
    let token = bench.shards[0].shard.waits.starved[0];
    let endpoint = bench.shards[0].shard.connections.get_mut(token).unwrap();
    endpoint.connection.wait_for_request(100_000);
    bench.shards[0].shard.starve(token);
    assert_eq!(queue_of(&bench).len(), 1, "it joins the queue at once");
    assert_eq!(bench.shared.memory_budget.starved(), 1, "it counts once");
    bench.send(&mut clients[2], &command(&[b"SET", b"k", &vec![b'v'; 100_000]])[..40_000]);
    (0..4).for_each(|_| _ = bench.turn(0));
    assert!(queue_of(&bench).len() == 2 && queue_of(&bench).is_sorted());
    // The first one ends: it leaves nothing, and the next one is admitted in the same turn.
    bench.shards[0].shard.close(token);
    assert_eq!((queue_of(&bench).len(), bench.shared.memory_budget.starved()), (1, 1));
    release_all_memory(other, loan);
    bench.shards[0].shard.tick(bench.now + TICK);
    assert_eq!((queue_of(&bench).len(), bench.shared.memory_budget.starved()), (0, 0));
}

#[test]
fn the_next_request_is_admitted_when_the_first_one_that_waits_ends() {
    let mut bench = Bench::new(1, &with_little_memory());
    let mut clients: Vec<Client> = (0..3).map(|_| bench.resp(0)).collect();
    (0..4).for_each(|_| _ = bench.turn(0));
    let (mut other, mut loan) = (ShardBudget::new(bench.shared.memory_budget.clone()), Loan::default());
    other.record(&mut loan, 3 << 20, 0, 3 << 20);
    // The first one needs more than is free, the others do not.
    for (client, size) in clients.iter_mut().zip([900_000, 120_000, 120_000]) {
        bench.send(client, &command(&[b"SET", b"k", &vec![b'v'; size]]));
        (0..4).for_each(|_| _ = bench.turn(0));
    }
    assert_eq!(queue_of(&bench).len(), 3);
    let first = queue_of(&bench)[0];
    let shard = &mut bench.shards[0].shard;
    let token = shard.connections.iter_mut().find(|(_, it)| it.connection.number as usize == first).unwrap().0;
    shard.close(token);
    assert_eq!((queue_of(&bench).len(), bench.shared.memory_budget.starved()), (0, 0), "at once, without a turn");
    other.leave(&mut loan, 1 << 40);
}

#[test]
fn a_held_shard_serves_small_requests_although_the_account_of_the_turn_is_spent() {
    let mut bench = Bench::new(2, &ServerSettings::default());
    let mut clients: Vec<Client> = (0..3).map(|_| bench.resp(0)).collect();
    (0..4).for_each(|_| _ = bench.turn(0));
    clients.iter_mut().for_each(|client| bench.send(client, b"PING\r\n"));
    let now = bench.now;
    let Driven { shard, stores, .. } = &mut bench.shards[0];
    shard.poll(now);
    shard.turn.account.spend(TURN_WORK);
    assert!(shard.turn.account.is_spent());
    assert!(shard.serve_beside_hold(stores, now));
    let replied = clients.iter_mut().filter_map(|client| (client.receive() == 7).then_some(()));
    assert_eq!(replied.count(), 3);
    // But no more than a part of a turn: the command that has the store goes on.
    let mut others: Vec<Client> = (0..20).map(|_| bench.resp(0)).collect();
    (0..4).for_each(|_| _ = bench.turn(0));
    others.iter_mut().for_each(|client| client.stream.write_all(&b"PING\r\n".repeat(10_000)).unwrap());
    let Driven { shard, stores, .. } = &mut bench.shards[0];
    shard.poll(now);
    shard.turn.account.spend(TURN_WORK);
    assert!(shard.serve_beside_hold(stores, now));
    let spent = shard.turn.account.spent() - TURN_WORK;
    assert!(spent < 2 * BESIDE_WORK && others.iter_mut().any(|client| client.receive() == 0), "{spent} bytes");
}
