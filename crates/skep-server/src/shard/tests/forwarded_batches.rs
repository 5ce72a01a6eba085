//! Forwarded batches for which their owner has no memory, in turns: they leave the path between two shards to all
//! others.

use std::io::Write as _;

use skep_core::operation::{Operation, PutCondition, Reply, Request};

use super::{Bench, Client, MICROSECOND, command, frame, refusals};
use crate::limits::{COSTLY_WORK, FORWARDED_BATCHES_MAX, NAP};
use crate::memory_budget::{Loan, ShardBudget};
use crate::settings::ServerSettings;

/// More clients than there are slots between two shards.
const CLIENTS: usize = 300;

/// Returns the largest debt of a connection of a shard, as if others had waited in each turn.
fn debt(bench: &Bench, shard: usize) -> usize {
    let shard = &bench.shards[shard].shard;
    let tokens: Vec<_> = shard.connections.tokens().collect();
    let debts = tokens.iter().filter_map(|token| Some(shard.connections.get(*token)?.debt(shard.turn.number, 0, 0)));
    debts.max().unwrap_or(0)
}

#[test]
fn a_connection_owes_its_visits_and_what_it_does_on_all_keys() {
    const LARGE: usize = 1 << 20;
    // What the shard of the connection does itself counts alike.
    for shards in [1_u16, 2] {
        let settings =
            ServerSettings { connection_memory: 64 << 20, connections_max: 300, ..ServerSettings::default() };
        let mut bench = Bench::new(shards, &settings);
        let (own, key, new) = (usize::from(shards) - 1, bench.key(0, 0), bench.key(0, 1));
        let mut client = bench.resp(own);
        bench.ask(&mut client, &command(&[b"SET", &key, &vec![0; LARGE]]), 5);
        for (arguments, least) in [
            (&[&b"BITOP"[..], b"NOT", &new, &key][..], LARGE),
            (&[b"COPY", &key, &new, b"REPLACE"], LARGE),
            (&[b"DBSIZE"], 200_000),
            (&[b"PING"], 0),
        ] {
            // The debt before is paid, and other connections wait.
            for _ in 0..3 {
                bench.ask(&mut client, &command(&[b"PING"]), 7);
            }
            assert!(debt(&bench, own) < COSTLY_WORK);
            bench.send(&mut client, &command(arguments));
            let (mut most, mut turns) = (0, 0);
            while client.receive() == 0 {
                (0..bench.shards.len()).for_each(|shard| _ = bench.turn(shard));
                (most, turns) = (most.max(debt(&bench, own)), turns + 1);
                assert!(turns < 1000, "no reply");
            }
            client.received.clear();
            let name = arguments[0].escape_ascii();
            assert!(most >= least, "{name} with {shards} shards: a debt of {most} bytes");
            assert!(least > 0 || most < COSTLY_WORK, "{name} with {shards} shards: a debt of {most} bytes");
        }
    }
}

#[test]
fn forwarded_batches_without_memory_leave_the_path_to_others() {
    let mut bench = Bench::new(2, &ServerSettings::default());
    bench.shards[0].stores.defers_puts = true;
    let keys: Vec<Vec<u8>> = (0..500).map(|number| bench.key(0, number)).collect();
    let put = Operation::Put { value: b"value", condition: PutCondition::Always };
    let puts: Vec<Request<'_>> = keys.iter().map(|key| Request { key, operation: put }).collect();
    let mut writers: Vec<Client> = (0..CLIENTS).map(|_| bench.native(1)).collect();
    writers.iter_mut().for_each(|writer| bench.send(writer, &frame(&puts)));
    let mut reader = bench.native(1);
    let missing = bench.key(0, keys.len());
    let get = frame(&[Request { key: &missing, operation: Operation::Get }]);
    for _ in 0..20 {
        let mut executed = 0;
        while [1, 0].map(|shard| bench.turn(shard)).contains(&true) {
            executed += bench.shards[0].shard.execution.executed;
        }
        assert_eq!(executed, 0, "nothing can be carried out");
        assert!(bench.shards[1].shard.is_stuck() && !bench.shards[0].shard.has_work(), "both may sleep a little");
        bench.now = bench.shards[1].shard.waits.returned.next_retry() - MICROSECOND;
        assert!(!bench.turn(1), "nothing is sent again before a nap is over");
        bench.send(&mut reader, &get);
        let turns = bench.turns_until(&mut reader, 9, 1000);
        assert!(turns <= 6, "{turns} turns");
        reader.received.clear();
        bench.now += NAP;
    }
    bench.shards[0].stores.defers_puts = false;
    (0..2000).for_each(|_| bench.turn_or_tick());
    for writer in &mut writers {
        writer.receive();
        assert_eq!(refusals(writer, |reply| reply == Reply::Done), (puts.len(), 0));
    }
}

#[test]
fn forwarded_batches_without_memory_keep_the_order_of_their_operations() {
    let mut bench = Bench::new(2, &ServerSettings::default());
    bench.shards[0].stores.defers_puts = true;
    let keys = [bench.key(0, 0), bench.key(1, 0), bench.key(0, 1)];
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| bench.resp(1)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let value = (number + 1).to_string().into_bytes();
        let mut requests = Vec::new();
        for key in &keys {
            let name = [&key[..], &value].concat();
            requests.extend([command(&[b"SET", &name, &value]), command(&[b"INCR", &name])].concat());
            requests.extend(command(&[b"GET", &name]));
        }
        bench.send(client, &requests);
    }
    for _ in 0..200 {
        bench.turn_or_tick();
    }
    bench.shards[0].stores.defers_puts = false;
    (0..2000).for_each(|_| bench.turn_or_tick());
    for (number, client) in clients.iter_mut().enumerate() {
        client.receive();
        let value = (number + 2).to_string();
        let expected = format!("+OK\r\n:{value}\r\n${}\r\n{value}\r\n", value.len()).repeat(keys.len());
        assert_eq!(client.received.escape_ascii().to_string(), expected.escape_default().to_string());
    }
}

#[test]
fn forwarded_batches_without_memory_for_replies_leave_the_path_to_others() {
    let settings = ServerSettings { connection_memory: 8 << 20, connections_max: 512, ..ServerSettings::default() };
    let mut bench = Bench::new(2, &settings);
    let (large, small) = (bench.key(0, 0), bench.key(0, 1));
    let mut reader = bench.resp(1);
    bench.ask(&mut reader, &command(&[b"SET", &large, &vec![b'v'; 1 << 20]]), 5);
    bench.ask(&mut reader, &command(&[b"SET", &small, b"1"]), 5);
    // All memory is held by replies that clients do not take.
    let mut other = ShardBudget::new(bench.shared.memory_budget.clone());
    let mut loan = Loan::default();
    other.record(&mut loan, 8 << 20, 0, 8 << 20);
    let mut hogs: Vec<Client> = (0..CLIENTS).map(|_| bench.resp(1)).collect();
    hogs.iter_mut().for_each(|hog| bench.send(hog, &command(&[b"GET", &large])));
    for _ in 0..20 {
        (0..10).for_each(|_| bench.turn_or_tick());
        bench.send(&mut reader, &command(&[b"GET", &small]));
        let turns = bench.turns_until(&mut reader, 7, 1000);
        assert!(turns <= 6, "{turns} turns");
        assert_eq!(std::mem::take(&mut reader.received), b"$1\r\n1\r\n");
    }
    other.leave(&mut loan, 1 << 40);
    for hog in &mut hogs {
        while hog.receive() < (1 << 20) + 12 {
            bench.turn_or_tick();
        }
    }
}

/// The owner copies one large value in a turn. Requests for the others do not wait in the slots between the shards.
#[test]
fn forwarded_batches_that_ask_for_large_values_leave_the_path_to_others() {
    let mut bench = Bench::new(2, &ServerSettings::default());
    let (large, small) = (bench.key(0, 0), bench.key(0, 1));
    let mut reader = bench.resp(1);
    bench.ask(&mut reader, &command(&[b"SET", &large, &vec![b'v'; 1 << 20]]), 5);
    bench.ask(&mut reader, &command(&[b"SET", &small, b"1"]), 5);
    reader.received.clear();
    let mut others: Vec<Client> = (0..CLIENTS).map(|_| bench.resp(1)).collect();
    let get = command(&[b"GET", &large]);
    others.iter_mut().for_each(|client| bench.send(client, &get));
    for _ in 0..8 {
        bench.send(&mut reader, &command(&[b"GET", &small]));
        let turns = bench.turns_until(&mut reader, 7, 1000);
        assert!(turns <= 12, "{turns} turns");
        assert_eq!(std::mem::take(&mut reader.received), b"$1\r\n1\r\n");
    }
    for client in &mut others {
        while client.receive() < (1 << 20) + 12 {
            bench.turn_or_tick();
        }
    }
}

#[test]
fn many_connections_reach_another_shard_in_one_turn() {
    let mut bench = Bench::new(2, &ServerSettings::default());
    let missing = bench.key(0, 0);
    let get = command(&[b"GET", &missing]);
    let mut clients: Vec<Client> = (0..FORWARDED_BATCHES_MAX).map(|_| bench.resp(1)).collect();
    // The connections are taken before the requests arrive.
    while bench.turn(1) {}
    clients.iter_mut().for_each(|client| client.stream.write_all(&get).unwrap());
    bench.turn(1);
    assert_eq!(bench.shards[1].shard.window.in_flight(), clients.len());
    bench.turn(0);
    bench.turn(1);
    for client in &mut clients {
        assert_eq!(client.receive(), b"$-1\r\n".len());
    }
}

/// A store had no memory for the large values of many connections, nor for a small one after them. When it has, the small one
/// does not wait for all of the others: a turn sends one or two of them.
#[test]
fn a_small_operation_that_was_returned_does_not_wait_for_large_ones() {
    let settings = ServerSettings { connection_memory: 128 << 20, connections_max: 300, ..ServerSettings::default() };
    let mut bench = Bench::new(2, &settings);
    bench.shards[0].stores.defers_puts = true;
    let value = vec![b'v'; 300_000];
    let mut writers: Vec<Client> = (0..200).map(|_| bench.resp(1)).collect();
    for (number, writer) in writers.iter_mut().enumerate() {
        let key = bench.key(0, number);
        bench.send(writer, &command(&[b"SET", &key, &value]));
    }
    (0..1000).for_each(|_| bench.turn_or_tick());
    let mut client = bench.resp(1);
    let key = bench.key(0, 1000);
    bench.send(&mut client, &command(&[b"SET", &key, b"1"]));
    (0..100).for_each(|_| bench.turn_or_tick());
    assert!(bench.shards[1].shard.waits.returned.len() > 150, "most of them wait");
    bench.shards[0].stores.defers_puts = false;
    let turns = bench.turns_until(&mut client, 5, 1000);
    println!("{turns} turns");
    assert!(turns <= 10, "{turns} turns");
    (0..5000).for_each(|_| bench.turn_or_tick());
    assert!(writers.iter_mut().all(|writer| writer.receive() > 0), "all have a reply");
}
