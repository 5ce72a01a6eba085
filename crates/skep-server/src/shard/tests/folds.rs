//! Commands that fold or copy large values: the bytes that they touch and copy.

use super::{Bench, Client, command};
use crate::settings::ServerSettings;

const SIZE: usize = 1 << 20;

/// Returns two values, and a bench whose keys have them. The keys belong to the first and the last shard.
fn bench(shards: u16) -> (Bench, Client, [Vec<u8>; 3], [Vec<u8>; 2]) {
    let settings = ServerSettings { connection_memory: 64 << 20, connections_max: 300, ..ServerSettings::default() };
    let mut bench = Bench::new(shards, &settings);
    let keys = [bench.key(0, 0), bench.key(shards - 1, 1), bench.key(0, 2)];
    let value = |seed: usize, size: usize| (0..size).map(|index| (index * seed / 7) as u8).collect::<Vec<u8>>();
    let values = [value(3, SIZE), value(11, SIZE - 100_000)];
    let mut client = bench.resp(0);
    for (key, value) in keys.iter().zip(&values) {
        bench.ask(&mut client, &command(&[b"SET", key, value]), 5);
    }
    (bench, client, keys, values)
}

/// Sends a command. Returns the reply, and the work of all turns.
fn ask(bench: &mut Bench, client: &mut Client, arguments: &[&[u8]]) -> (Vec<u8>, usize) {
    bench.send(client, &command(arguments));
    let mut work = 0;
    for _ in 0..1000 {
        if client.receive() > 0 {
            return (std::mem::take(&mut client.received), work);
        }
        for shard in 0..bench.shards.len() {
            if bench.turn(shard) {
                work += bench.shards[shard].shard.turn.account.spent();
            }
        }
    }
    panic!("no reply to {:?}", arguments[0].escape_ascii().to_string());
}

#[test]
fn a_value_is_read_once_and_written_once() {
    for shards in [1, 2] {
        let (mut bench, mut client, [one, other, new], _) = bench(shards);
        let mut check = |arguments: &[&[u8]], expected: &[u8], passes: usize| {
            let (reply, work) = ask(&mut bench, &mut client, arguments);
            assert_eq!(reply, expected);
            let name = arguments[0].escape_ascii();
            // Besides the bytes, the indexes of the values are read, and the slabs of a value are freed.
            assert!(work < passes * SIZE + SIZE / 2, "{name}: {work} bytes touched");
            let kept: usize = bench.shards.iter().map(|driven| driven.stores.bytes_kept).sum();
            assert!(kept < 100, "{name}: {kept} bytes of values were copied besides");
        };
        check(&[b"BITOP", b"XOR", &new, &one, &other], b":1048576\r\n", 3);
        check(&[b"BITOP", b"NOT", &new, &one], b":1048576\r\n", 2);
        check(&[b"COPY", &one, &new, b"REPLACE"], b":1\r\n", 2);
        check(&[b"RENAME", &one, &new], b"+OK\r\n", 2);
    }
}

#[test]
fn a_fold_that_is_interrupted_within_a_value_begins_anew() {
    for function in [&b"XOR"[..], b"AND", b"OR"] {
        let (mut bench, mut client, [one, other, new], values) = bench(1);
        let combined = (0..SIZE).map(|index| {
            let (one, other) = (values[0][index], values[1].get(index).copied().unwrap_or(0));
            match function {
                b"XOR" => one ^ other,
                b"AND" => one & other,
                _ => one | other,
            }
        });
        let combined: Vec<u8> = combined.collect();
        bench.send(&mut client, &command(&[b"BITOP", function, &new, &one, &other]));
        // The value takes some sixteen reads.
        for left in [1, 5, 20, 30] {
            bench.shards[0].stores.isolated_left = left;
            (0..4).for_each(|_| bench.turn_or_tick());
            assert_eq!(client.receive(), 0, "{left}");
        }
        bench.shards[0].stores.isolated_left = usize::MAX;
        bench.turns_until(&mut client, 10, 1000);
        client.received.clear();
        bench.send(&mut client, &command(&[b"GET", &new]));
        bench.turns_until(&mut client, SIZE + 12, 1000);
        assert!(client.received[10..][..SIZE] == combined, "{}", function.escape_ascii());
    }
}

/// Returns the most turns that a client waits for this reply to a short command, beside a hundred connections that pipeline a
/// costly one. All of them are of the first shard.
fn turns_beside(bench: &mut Bench, costly: &[&[u8]], short: &[&[u8]], reply: &[u8]) -> usize {
    let mut hogs: Vec<Client> = (0..100).map(|_| bench.resp(0)).collect();
    hogs.iter_mut().for_each(|hog| bench.send(hog, &command(costly).repeat(30)));
    // All have had their first turn.
    while hogs.iter_mut().any(|hog| hog.receive() == 0) {
        (0..bench.shards.len()).for_each(|shard| _ = bench.turn(shard));
    }
    let replies: Vec<usize> = hogs.iter_mut().map(Client::receive).collect();
    let mut client = bench.resp(0);
    let mut most = 0;
    for _ in 0..20 {
        bench.send(&mut client, &command(short));
        most = most.max(bench.turns_until(&mut client, reply.len(), 100_000));
        assert_eq!(std::mem::take(&mut client.received), reply);
    }
    // The short ones do not stop the others.
    for _ in 0..4000 {
        bench.send(&mut client, &command(short));
        (0..bench.shards.len()).for_each(|shard| _ = bench.turn(shard));
        client.receive();
        client.received.clear();
    }
    for (hog, before) in hogs.iter_mut().zip(replies) {
        assert!(hog.receive() > before || hog.received.len() >= 30 * 4, "{before} bytes of replies");
    }
    most
}

#[test]
fn a_short_command_of_several_shards_does_not_wait_for_all_long_ones() {
    let (mut bench, _, [one, other, new], _) = bench(2);
    let costly: [&[u8]; 5] = [b"BITOP", b"XOR", &new, &one, &other];
    let [first, second] = [bench.key(0, 5), bench.key(1, 5)];
    let turns = turns_beside(&mut bench, &costly, &[b"MSET", &first, b"1", &second, b"2"], b"+OK\r\n");
    assert!(turns <= 20, "{turns} turns");
}

#[test]
fn short_commands_of_several_shards_take_turns_with_long_ones_of_a_shard_and_with_each_other() {
    let (mut bench, _, [one, ..], _) = bench(2);
    let new = bench.key(0, 9);
    let sources = std::iter::repeat_n(&one[..], 40);
    let long: Vec<&[u8]> = [&b"BITOP"[..], b"AND", &new].into_iter().chain(sources).collect();
    let mut hogs: Vec<Client> = (0..6).map(|_| bench.resp(0)).collect();
    hogs.iter_mut().for_each(|hog| bench.send(hog, &command(&long).repeat(100)));
    let [first, second] = [bench.key(0, 5), bench.key(1, 5)];
    let short = command(&[b"MSET", &first, b"1", &second, b"2"]);
    // Six clients on each shard set keys of both. Two on each read a key of the first one.
    let mut clients: Vec<Client> = (0..16).map(|number| bench.resp(number % 2)).collect();
    let mut counts = vec![0; clients.len()];
    let get = command(&[b"GET", &bench.key(0, 20)]);
    let requests: Vec<&[u8]> = (0..16).map(|number| if number < 12 { &short[..] } else { &get[..] }).collect();
    clients.iter_mut().zip(&requests).for_each(|(client, request)| bench.send(client, request));
    for _ in 0..3000 {
        (0..2).for_each(|shard| _ = bench.turn(shard));
        for ((client, count), request) in clients.iter_mut().zip(&mut counts).zip(&requests) {
            if client.receive() == 5 {
                client.received.clear();
                *count += 1;
                bench.send(client, request);
            }
        }
    }
    let replies: Vec<usize> = hogs.iter_mut().map(|hog| hog.receive() / ":1048576\r\n".len()).collect();
    assert!(replies.iter().all(|count| (3..100).contains(count)), "{replies:?}");
    assert!(counts.iter().all(|count| *count >= 20), "{counts:?} beside {replies:?}");
}

#[test]
fn a_short_command_that_visits_a_shard_does_not_wait_for_all_long_ones() {
    let (mut bench, _, [_, other, _], _) = bench(2);
    let [copy, first, second] = [bench.key(1, 4), bench.key(1, 5), bench.key(1, 6)];
    let costly: [&[u8]; 4] = [b"COPY", &other, &copy, b"REPLACE"];
    let turns = turns_beside(&mut bench, &costly, &[b"MSET", &first, b"1", &second, b"2"], b"+OK\r\n");
    assert!(turns <= 20, "{turns} turns");
}

#[test]
fn a_small_request_does_not_wait_for_all_large_ones() {
    let (mut bench, _, [one, ..], _) = bench(1);
    let costly = [command(&[b"BITCOUNT", &one]), command(&[b"COPY", &one, b"copy", b"REPLACE"])];
    let mut hogs: Vec<Client> = (0..200).map(|_| bench.resp(0)).collect();
    for (number, hog) in hogs.iter_mut().enumerate() {
        bench.send(hog, &costly[number % 2].repeat(60));
    }
    // All have had their first turn.
    for _ in 0..1000 {
        bench.turn(0);
    }
    let replies: Vec<usize> = hogs.iter_mut().map(Client::receive).collect();
    assert!(replies.iter().all(|size| *size > 0));
    // The first request of a client, those of one that asks again and again, and of one whose pipeline is never empty.
    let [mut one, mut other] = [(); 2].map(|()| bench.resp(0));
    bench.send(&mut other, &command(&[b"GET", b"small"]).repeat(20_000));
    for _ in 0..20 {
        bench.send(&mut one, &command(&[b"GET", b"small"]));
        let turns = bench.turns_until(&mut one, 5, 1000);
        assert!(turns <= 6, "{turns} turns");
        one.received.clear();
    }
    // Those that were costly long ago do not keep others waiting: a turn takes them all, and the small request with them.
    let idle: Vec<Client> = {
        let mut idle: Vec<Client> = (0..100).map(|_| bench.resp(0)).collect();
        for client in &mut idle {
            bench.send(client, &costly[0]);
            bench.turns_until(client, 4, 10_000);
        }
        (0..2000).for_each(|_| _ = bench.turn(0));
        idle.iter_mut().for_each(|client| bench.send(client, &command(&[b"GET", b"small"])));
        idle
    };
    bench.send(&mut one, &command(&[b"GET", b"small"]));
    let turns = bench.turns_until(&mut one, 5, 1000);
    assert!(turns <= 6, "{turns} turns beside {} that were costly", idle.len());
    one.received.clear();
    // The costly ones have their turns beside those that are cheap.
    for _ in 0..2000 {
        bench.send(&mut one, &command(&[b"GET", b"small"]));
        bench.turn(0);
        one.receive();
        one.received.clear();
    }
    for (hog, before) in hogs.iter_mut().zip(replies) {
        assert!(hog.receive() > before || hog.received.len() >= 60 * 4, "{before} bytes of replies");
    }
}
