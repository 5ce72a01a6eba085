//! Isolated commands in turns: clients that leave while theirs wait or hold shards, commands that are late, and several
//! that begin in one turn.

use std::io::Write as _;

use skep_wire::partition::Partition;
use skep_wire::resp::ARGUMENTS_PART;

use super::{Bench, Client, command, long_command, with_bound};
use crate::resp_batch::RespBatch;
use crate::resp_command::Session;
use crate::settings::ServerSettings;
use crate::unix_time::UnixTime;
use crate::vocabulary::Decoded;

fn turn_all(bench: &mut Bench, turns: usize) {
    for _ in 0..turns {
        (0..bench.shards.len()).for_each(|shard| _ = bench.turn(shard));
    }
}

#[test]
fn every_shard_goes_on_after_a_client_left_that_held_it() {
    let (mut done, mut dropped) = (0, 0);
    for (waits, home, turns) in (0..48).map(|run| (run % 2 == 0, run / 2 % 2, run / 4)) {
        let mut bench = Bench::new(2, &ServerSettings::default());
        let partition = Partition::new(bench.shared.partition_seed, 2);
        let key_of =
            |shard| (0..).map(|number| format!("k{number}")).find(|key| partition.shard_of(key.as_bytes()) == shard);
        let [one, other] = [key_of(0), key_of(1)].map(Option::unwrap);
        let mut leaver = bench.resp(home);
        // A reply that it has not read lets the end of its socket be a reset.
        bench.send(&mut leaver, b"PING\r\n");
        turn_all(&mut bench, 4);
        bench.shards[home].stores.defers_puts = waits;
        bench.send(&mut leaver, format!("MULTI\r\nSET {one} v\r\nSET {other} v\r\nEXEC\r\n").as_bytes());
        turn_all(&mut bench, turns);
        drop(leaver);
        let mut others: Vec<Client> = (0..2).map(|shard| bench.resp(shard)).collect();
        for client in &mut others {
            bench.send(client, format!("INCR n{one}\r\nEXISTS {one} {other}\r\n").as_bytes());
        }
        turn_all(&mut bench, 20);
        bench.shards[home].stores.defers_puts = false;
        for client in &mut others {
            bench.turns_until(client, 8, 1000);
            match &client.received[4..] {
                b":2\r\n" => done += 1,
                b":0\r\n" => dropped += 1,
                received => panic!("waits {waits}, {turns} turns: {received:?}"),
            }
        }
    }
    assert!(done > 0 && dropped > 0, "{done} done, {dropped} dropped");
}

#[test]
fn a_command_that_has_begun_is_not_refused() {
    const KEYS: usize = 10_000;
    let mut bench = Bench::new(1, &with_bound(1));
    let mut client = bench.resp(0);
    let mut others = [(); 2].map(|()| bench.resp(0));
    while bench.turn(0) {}
    client.stream.write_all(&long_command(b"MGET", b"missing", KEYS)).unwrap();
    // A part of it takes four times the bound, and others wait after each.
    for _ in 0..20 {
        others.iter_mut().for_each(|other| other.stream.write_all(b"GET a\r\n").unwrap());
        bench.turn_or_tick();
    }
    let whole = format!("*{KEYS}\r\n{}", "$-1\r\n".repeat(KEYS)).into_bytes();
    client.receive();
    assert!(client.received == whole, "{} bytes", client.received.len());
}

#[test]
fn of_two_transactions_that_take_several_turns_none_is_lost() {
    let mut bench = Bench::new(1, &ServerSettings::default());
    let [mut one, mut other] = [(); 2].map(|()| bench.resp(0));
    while bench.turn(0) {}
    bench.shards[0].stores.defers_puts = true;
    one.stream.write_all(b"MULTI\r\nSET k v\r\nEXEC\r\n").unwrap();
    // It needs no store, and its commands count for several turns.
    let commands = "CLIENT ID\r\n".repeat(9);
    other.stream.write_all(format!("MULTI\r\n{commands}EXEC\r\n").as_bytes()).unwrap();
    turn_all(&mut bench, 10);
    bench.shards[0].stores.defers_puts = false;
    bench.turns_until(&mut one, 23, 1000);
    assert_eq!(one.received, b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    let begin = format!("+OK\r\n{}*9\r\n", "+QUEUED\r\n".repeat(9));
    bench.turns_until(&mut other, begin.len() + 9 * ":1\r\n".len(), 1000);
    assert!(other.received.starts_with(begin.as_bytes()));
}

#[test]
fn an_isolated_command_waits_until_its_numbers_are_converted() {
    // Inline, a command of several parts is decoded with others before it. Behind `EXEC` it is isolated.
    for (last, reply) in [("1", "+OK\r\n"), ("x", "-ERR 'x' is wrong for u8: not a number of this type\r\n")] {
        let mut bench = Bench::new(1, &ServerSettings::default());
        let mut client = bench.resp(0);
        while bench.turn(0) {}
        let (value, numbers) = ("v".repeat(200_000), "1 ".repeat(16_500));
        let request = format!(
            "MULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$200000\r\n{value}\r\nEXEC\r\n\
             SKEP.SET n u8 {numbers}{last}\r\nMGET k n\r\nEXISTS k\r\n"
        );
        bench.send(&mut client, request.as_bytes());
        turn_all(&mut bench, 100);
        client.receive();
        let text = String::from_utf8_lossy(&client.received);
        assert!(text.starts_with(&format!("+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n{reply}*2\r\n$200000\r\n")));
        assert!(text.ends_with(":1\r\n"));
    }
}

#[test]
fn a_command_of_many_arguments_is_decoded_in_parts() {
    const COUNT: usize = 5 * ARGUMENTS_PART + 7;
    let mut bench = Bench::new(1, &ServerSettings::default());
    let mut request = long_command(b"EXISTS", b"k", COUNT);
    let mut parsed = RespBatch::boxed(bench.shared.spaces(), Session::default());
    let (mut sizes, mut count) = (Vec::new(), 0);
    while count == 0 {
        match parsed.decode(&mut request, usize::MAX, UnixTime::default(), &bench.shared.access) {
            Decoded::Part(size) => {
                assert!(parsed.is_decoding() && !parsed.is_finished());
                sizes.push(size);
            }
            Decoded::Requests { request_count, .. } => count = request_count,
            _ => panic!("a whole request"),
        }
    }
    // They are checked, and found when there is memory for them.
    assert_eq!(sizes.len(), 10);
    assert!(sizes.iter().all(|size| *size <= request.len() / 4), "{sizes:?}");
    // Behind other commands, it waits for the next batch.
    let mut client = bench.resp(0);
    let pipeline = [command(&[b"SET", b"k", b"v"]).repeat(3), request, command(&[b"PING"])].concat();
    let expected = format!("{}:{COUNT}\r\n+PONG\r\n", "+OK\r\n".repeat(3));
    assert_eq!(bench.ask(&mut client, &pipeline, expected.len()), expected.as_bytes());
}

#[test]
fn a_pipeline_of_long_commands_lets_others_have_turns_between_them() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards, &ServerSettings::default());
        let [from, to] = [bench.key(0, 0), bench.key(shards - 1, 1)];
        let mut hog = bench.resp(0);
        let value = vec![b'v'; 1 << 20];
        bench.ask(&mut hog, &command(&[b"SET", &from, &value]), 5);
        let copies = command(&[b"COPY", &from, &to, b"REPLACE"]).repeat(60);
        bench.send(&mut hog, &copies);
        let mut modest: Vec<Client> = (0..usize::from(shards)).map(|shard| bench.resp(shard)).collect();
        turn_all(&mut bench, 3);
        for _ in 0..10 {
            for client in &mut modest {
                client.received.clear();
                bench.send(client, &command(&[b"GET", b"small"]));
                let turns = bench.turns_until(client, 5, 1000);
                assert!(turns <= 12, "{turns} turns");
            }
        }
        assert!(hog.receive() < 60 * 4, "the pipeline was done");
        bench.turns_until(&mut hog, 60 * 4, 2000);
    }
}

#[test]
fn a_shard_without_its_store_serves_what_needs_none() {
    for waits_with in 0..2 {
        let mut bench = Bench::new(2, &ServerSettings::default());
        let [one, other] = [bench.key(0, 0), bench.key(1, 0)].map(|key| String::from_utf8(key).unwrap());
        let [mut holder, mut waiter] = [(); 2].map(|()| bench.resp(0));
        let mut clients: Vec<Client> = (0..4).map(|number| bench.resp(number % 2)).collect();
        let id = String::from_utf8(bench.ask(&mut waiter, b"CLIENT ID\r\n", 4)).unwrap();
        bench.shards[0].stores.defers_puts = true;
        let keys = [&one, &other][..2 - waits_with].iter().map(|key| format!("SET {key} v\r\n")).collect::<String>();
        bench.send(&mut holder, format!("MULTI\r\n{keys}EXEC\r\n").as_bytes());
        turn_all(&mut bench, 10);
        bench.send(&mut waiter, format!("MULTI\r\nSET {one} w\r\nGET {other}\r\nEXEC\r\n").as_bytes());
        for (number, client) in clients.iter_mut().enumerate() {
            bench.send(
                client,
                b"PING\r\nECHO hi\r\nCLIENT GETNAME\r\nHELLO 2\r\nCONFIG GET maxclients\r\nINFO server\r\nPING\r\n",
            );
            for _ in 0..10 {
                turn_all(&mut bench, 1);
            }
            client.receive();
            let text = String::from_utf8_lossy(&client.received).into_owned();
            assert!(
                text.starts_with("+PONG\r\n$2\r\nhi\r\n$-1\r\n*14\r\n") && text.ends_with("+PONG\r\n"),
                "{number}: {text}"
            );
            client.received.clear();
        }
        // What needs the store waits, and so does what follows it.
        bench.send(&mut clients[0], format!("GET {one}\r\nPING\r\n").as_bytes());
        // A transaction that waits ends with its connection.
        bench.send(&mut clients[1], format!("CLIENT KILL ID {}", &id[1..]).as_bytes());
        turn_all(&mut bench, 20);
        bench.shards.iter_mut().for_each(|driven| driven.tick(bench.now));
        assert_eq!((clients[0].receive(), holder.receive()), (0, 5 + 9 * (2 - waits_with) + "*2\r\n".len()));
        clients[1].receive();
        assert_eq!(clients[1].received, b":1\r\n");
        let closed = std::io::Read::read(&mut waiter.stream, &mut [0; 100]);
        assert!(closed.is_ok() || closed.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
        bench.shards[0].stores.defers_puts = false;
        bench.turns_until(&mut clients[0], 14, 1000);
        assert_eq!(clients[0].received, b"$1\r\nv\r\n+PONG\r\n");
    }
}
