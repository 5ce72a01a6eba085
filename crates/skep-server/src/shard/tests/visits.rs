//! Commands on the keys of one other shard, in turns: they stop no shard, and take turns with those of the owner.

use std::io::Read as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Bench, Client, long_command, with_bound};
use crate::exchange::slot_count;
use crate::limits::{FLUSH_TIME, SHARD_RESERVE};
use crate::settings::ServerSettings;

/// Returns keys that a shard owns.
fn keys(bench: &Bench, shard: u16) -> [String; 2] {
    [0, 1].map(|number| String::from_utf8(bench.key(shard, number)).unwrap())
}

fn turn_all(bench: &mut Bench, turns: usize) {
    for _ in 0..turns {
        (0..bench.shards.len()).for_each(|shard| _ = bench.turn(shard));
    }
}

fn is_held(bench: &Bench, shard: usize) -> bool {
    bench.shards[shard].shard.holds.is_held()
}

/// Returns true if no shard has visits, and no memory is counted for any.
fn is_over(bench: &Bench) -> bool {
    bench.shards.iter().all(|driven| driven.shard.arrivals.visitors.is_empty())
        && bench.shared.memory_budget.batches() == 0
}

/// Lets a client of the first shard execute commands, while a client of the second one sends a `GET` in each turn. Returns
/// the turns of the second shard, and the number of these after which it was held or had not replied to the `GET`.
fn turns_beside(bench: &mut Bench, local: &mut Client, commands: &str, expected: &str) -> (usize, usize) {
    let mut client = bench.resp(0);
    bench.turn(0);
    bench.send(&mut client, commands.as_bytes());
    let get = format!("GET {}\r\n", String::from_utf8(bench.key(1, 2)).unwrap());
    let (mut turns, mut stopped) = (0, 0);
    while client.receive() < expected.len() {
        bench.turn(0);
        bench.send(local, get.as_bytes());
        bench.turn(1);
        turns += 1;
        stopped += usize::from(local.receive() < turns * 5 || is_held(bench, 1));
        assert!(turns < 100, "no reply to {commands}");
    }
    assert_eq!(std::str::from_utf8(&client.received), Ok(expected), "{commands}");
    bench.turns_until(local, turns * 5, 100);
    local.received.clear();
    (turns, stopped)
}

#[test]
fn commands_on_the_keys_of_another_shard_stop_no_shard() {
    let mut bench = Bench::new(2, &ServerSettings::default());
    let ([own, _], [one, other]) = (keys(&bench, 0), keys(&bench, 1));
    let mut local = bench.resp(1);
    turn_all(&mut bench, 4);
    let queued = |count: usize| format!("+OK\r\n{}", "+QUEUED\r\n".repeat(count));
    for (commands, expected) in [
        (format!("MSET {one} 1 {other} 2\r\n"), "+OK\r\n".to_owned()),
        (format!("MGET {one} {other}\r\n"), "*2\r\n$1\r\n1\r\n$1\r\n2\r\n".to_owned()),
        (format!("MULTI\r\nINCR {one}\r\nINCR {other}\r\nEXEC\r\n"), queued(2) + "*2\r\n:2\r\n:3\r\n"),
        (format!("RENAME {one} {other}\r\nCOPY {other} {one}\r\n"), "+OK\r\n:1\r\n".to_owned()),
        (format!("BITOP NOT {one} {other}\r\nGET {other}\r\n"), ":1\r\n$1\r\n2\r\n".to_owned()),
        (
            format!("WATCH {one}\r\nMULTI\r\nGET {other}\r\nEXEC\r\n"),
            "+OK\r\n".to_owned() + &queued(1) + "*1\r\n$1\r\n2\r\n",
        ),
        (
            format!("WATCH {one}\r\nSET {one} 1\r\nMULTI\r\nGET {one}\r\nEXEC\r\n"),
            "+OK\r\n+OK\r\n".to_owned() + &queued(1) + "*-1\r\n",
        ),
        (
            format!("MULTI\r\nSELECT 9\r\nECHO a\r\nGET {one}\r\nEXEC\r\nSELECT 0\r\n"),
            queued(3) + "*3\r\n-ERR DB index is out of range\r\n$1\r\na\r\n$1\r\n1\r\n+OK\r\n",
        ),
        (format!("CLIENT REPLY SKIP\r\nDEL {one} {other}\r\nEXISTS {one} {other}\r\n"), ":0\r\n".to_owned()),
    ] {
        let (turns, stopped) = turns_beside(&mut bench, &mut local, &commands, &expected);
        assert_eq!(stopped, 0, "of {turns} turns beside {commands}");
        assert!(turns <= 4, "{turns} turns for {commands}");
    }
    // A command on keys of both shards holds the other one.
    let (_, stopped) = turns_beside(&mut bench, &mut local, &format!("MSET {own} 1 {one} 2\r\n"), "+OK\r\n");
    assert!(stopped > 0);
    assert!(is_over(&bench));
}

#[test]
fn clients_that_leave_during_a_visit_leave_nothing() {
    let (mut done, mut dropped) = (0, 0);
    for (waits, is_killed, turns) in (0..32).map(|run| (run % 2 == 0, run / 2 % 2 == 0, run / 4)) {
        let mut bench = Bench::new(2, &ServerSettings::default());
        let [one, other] = keys(&bench, 1);
        let [mut leaver, mut killer] = [(); 2].map(|()| bench.resp(0));
        // A reply that it has not read lets the end of its socket be a reset.
        bench.send(&mut leaver, b"PING\r\n");
        turn_all(&mut bench, 4);
        bench.shards[1].stores.defers_puts = waits;
        bench.send(
            &mut leaver,
            format!("MULTI\r\nSET {one} v\r\nCLIENT ID\r\nEXEC\r\nMGET {one} {other}\r\n").as_bytes(),
        );
        (0..turns).for_each(|turn| _ = bench.turn(turn % 2));
        if is_killed {
            // It is closed at once, and its slot is used again.
            bench.send(&mut killer, b"CLIENT KILL TYPE normal\r\n");
            bench.turn(0);
            bench.turn(0);
            assert_eq!(killer.receive(), 4);
        }
        drop(leaver);
        bench.turn(0);
        let mut next = bench.resp(0);
        bench.send(&mut next, format!("PING\r\nEXISTS {other} {other}\r\n").as_bytes());
        turn_all(&mut bench, 20);
        bench.shards[1].stores.defers_puts = false;
        bench.turns_until(&mut next, 11, 1000);
        bench.send(&mut next, format!("EXISTS {one}\r\n").as_bytes());
        bench.turns_until(&mut next, 15, 1000);
        match &next.received[..] {
            b"+PONG\r\n:0\r\n:1\r\n" => done += 1,
            b"+PONG\r\n:0\r\n:0\r\n" => dropped += 1,
            received => panic!("waits {waits}, killed {is_killed}, {turns} turns: {}", received.escape_ascii()),
        }
        turn_all(&mut bench, 4);
        assert!(is_over(&bench), "waits {waits}, killed {is_killed}, {turns} turns");
    }
    assert!(done > 0 && dropped > 0, "{done} done, {dropped} dropped");
}

#[test]
fn visits_to_shards_that_are_held_wait_for_the_end_of_the_hold() {
    let mut bench = Bench::new(3, &ServerSettings::default());
    let ([zero, zero_missing], [one, one_missing]) = (keys(&bench, 0), keys(&bench, 1));
    let mut clients = [0, 1, 2].map(|shard| bench.resp(shard));
    turn_all(&mut bench, 2);
    // The third shard holds the others, and its command waits for memory.
    bench.shards[2].stores.defers_puts = true;
    bench.send(&mut clients[2], format!("MSET {zero} 1 {one} 2\r\n").as_bytes());
    turn_all(&mut bench, 10);
    assert!(is_held(&bench, 0) && is_held(&bench, 1));
    // The others visit each other.
    for (client, key, missing) in [(0, &one, &one_missing), (1, &zero, &zero_missing)] {
        bench.send(&mut clients[client], format!("MGET {key} {missing}\r\n").as_bytes());
    }
    turn_all(&mut bench, 10);
    assert!(clients.iter_mut().all(|client| client.receive() == 0), "a hold was not waited for");
    bench.shards[2].stores.defers_puts = false;
    for (client, expected) in
        clients.iter_mut().zip(["*2\r\n$1\r\n2\r\n$-1\r\n", "*2\r\n$1\r\n1\r\n$-1\r\n", "+OK\r\n"])
    {
        bench.turns_until(client, expected.len(), 100);
        assert_eq!(client.received, expected.as_bytes());
    }
    assert!(is_over(&bench));
}

#[test]
fn a_visit_that_waits_for_memory_waits_alone() {
    let mut bench = Bench::new(3, &ServerSettings::default());
    let ([zero, _], [one, _]) = (keys(&bench, 0), keys(&bench, 1));
    let mut clients = [0, 1, 2, 0].map(|shard| bench.resp(shard));
    turn_all(&mut bench, 2);
    bench.shards[1].stores.defers_puts = true;
    bench.send(&mut clients[0], format!("MULTI\r\nSET {one} 1\r\nEXEC\r\n").as_bytes());
    turn_all(&mut bench, 10);
    assert!(is_held(&bench, 1) && !is_held(&bench, 0));
    // The shard of its client goes on, and a hold of both shards waits for it.
    bench.send(&mut clients[3], b"PING\r\n");
    bench.turn(0);
    assert_eq!(clients[3].receive(), 7);
    bench.send(&mut clients[2], format!("MGET {zero} {one}\r\n").as_bytes());
    turn_all(&mut bench, 10);
    assert_eq!(clients[2].receive(), 0);
    bench.shards[1].stores.defers_puts = false;
    for (client, expected) in
        clients.iter_mut().zip(["+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n", "", "*2\r\n$-1\r\n$1\r\n1\r\n"])
    {
        bench.turns_until(client, expected.len(), 100);
        assert_eq!(client.received, expected.as_bytes());
    }
    assert!(is_over(&bench));
}

#[test]
fn a_visit_with_large_replies_waits_for_room_and_one_with_short_replies_does_not() {
    let mut bench = Bench::new(2, &ServerSettings::default());
    let [one, two] = keys(&bench, 1);
    let (mut reader, mut writer) = (bench.resp(0), bench.resp(0));
    let free = bench.shared.memory_budget.free().cast_unsigned();
    // Each shard counts its half of what is missing: more than a half of its reserve.
    let taken = free + 2 * SHARD_RESERVE / 4 * 3;
    bench.shared.memory_budget.record_batch(0, taken);
    bench.send(&mut reader, format!("MGET {one} {two}\r\n").as_bytes());
    for commands in [format!("MSET {one} 1 {two} 2\r\n"), format!("MULTI\r\nINCR {one}\r\nEXEC\r\n")] {
        bench.send(&mut writer, commands.as_bytes());
    }
    for _ in 0..100 {
        bench.turn_or_tick();
    }
    assert_eq!((reader.receive(), writer.receive()), (0, 27));
    assert_eq!(writer.received, b"+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:2\r\n");
    bench.shared.memory_budget.record_batch(taken, taken - SHARD_RESERVE);
    // Connections that wait for memory try again at a tick.
    for _ in 0..100 {
        bench.turn_or_tick();
    }
    assert_eq!(reader.receive(), 18);
    assert_eq!(reader.received, b"*2\r\n$1\r\n2\r\n$1\r\n2\r\n");
    bench.shared.memory_budget.record_batch(taken - SHARD_RESERVE, 0);
    assert!(is_over(&bench));
}

#[test]
fn long_commands_of_visitors_and_of_the_owner_take_turns() {
    // A transaction that takes three turns.
    let long = format!("MULTI\r\n{}GET missing\r\nEXEC\r\n", "CLIENT ID\r\n".repeat(9));
    let key_of_second = |bench: &Bench| keys(bench, 1)[0].clone();
    for (hog_home, home) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        let mut bench = Bench::new(2, &ServerSettings::default());
        let key = key_of_second(&bench);
        let request = long.replace("missing", &key).repeat(50);
        let mut hogs = [(); 4].map(|()| bench.resp(hog_home));
        let mut modest = bench.resp(home);
        turn_all(&mut bench, 2);
        hogs.iter_mut().for_each(|hog| bench.send(hog, request.as_bytes()));
        turn_all(&mut bench, 5);
        for _ in 0..5 {
            modest.received.clear();
            bench.send(&mut modest, format!("EXISTS {key} {key}\r\n").as_bytes());
            let turns = bench.turns_until(&mut modest, 4, 100);
            // Each of the others has a command before it, at most.
            assert!(turns <= 4 * 4 + 4, "{turns} turns of {home} beside {hog_home}");
        }
        hogs.iter_mut().for_each(|hog| assert!(hog.receive() < request.len() / 2, "the others were done"));
    }
}

#[test]
fn a_visit_that_is_late_is_refused_unless_it_has_begun() {
    const KEYS: usize = 10_000;
    let mut bench = Bench::new(2, &with_bound(1));
    let [key, _] = keys(&bench, 1);
    let mut long = bench.resp(0);
    let mut others = [1, 1, 0].map(|shard| bench.resp(shard));
    turn_all(&mut bench, 4);
    bench.send(&mut long, &long_command(b"MGET", key.as_bytes(), KEYS));
    let short = long_command(b"MGET", key.as_bytes(), 200);
    // A part of it takes four times the bound, and others wait after each. Sometimes a visit waits for as long on its way.
    for round in 0..20 {
        others.iter_mut().for_each(|other| bench.send(other, &short));
        bench.turn(0);
        if round % 4 == 3 {
            bench.now += Duration::from_millis(4);
        }
        bench.turn_or_tick();
    }
    while bench.turn(0) || bench.turn(1) {}
    let whole = format!("*{KEYS}\r\n{}", "$-1\r\n".repeat(KEYS)).into_bytes();
    long.receive();
    assert!(long.received == whole, "{} bytes", long.received.len());
    let [.., visitor] = &mut others;
    visitor.receive();
    let replies = String::from_utf8(visitor.received.clone()).unwrap();
    assert!(replies.contains("-BUSY"), "{replies}");
    assert_eq!(replies.matches("-BUSY").count() + replies.matches("*200\r\n").count(), 20);
}

/// Returns all that the client gets until its connection ends.
fn rest(client: &mut Client) -> String {
    let mut bytes = Vec::new();
    client.stream.set_nonblocking(false).unwrap();
    client.stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_server_that_stops_waits_for_visits_for_a_while() {
    for ends in [true, false] {
        let mut bench = Bench::new(2, &ServerSettings::default());
        let [key, _] = keys(&bench, 1);
        let mut client = bench.resp(0);
        turn_all(&mut bench, 2);
        bench.shards[1].stores.defers_puts = true;
        bench.send(&mut client, format!("MULTI\r\nSET {key} v\r\nEXEC\r\n").as_bytes());
        turn_all(&mut bench, 4);
        if ends {
            // It arrives before the server stops.
            bench.send(&mut client, b"PING\r\n");
        }
        bench.shared.stopping.store(true, Ordering::Release);
        bench.shards.iter_mut().for_each(|driven| driven.tick(bench.now));
        turn_all(&mut bench, 4);
        assert!(bench.shards.iter().any(|driven| !driven.is_empty()) && is_held(&bench, 1));
        if ends {
            bench.shards[1].stores.defers_puts = false;
        } else {
            bench.now += FLUSH_TIME;
        }
        for _ in 0..100 {
            bench.shards.iter_mut().for_each(|driven| driven.tick(bench.now));
            bench.turn_or_tick();
        }
        assert!(bench.shared.have_shards_finished());
        let replies = rest(&mut client);
        assert_eq!(replies, if ends { "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n+PONG\r\n" } else { "+OK\r\n+QUEUED\r\n" });
    }
}

#[test]
fn more_connections_than_slots_visit_a_shard_one_after_another() {
    let mut bench = Bench::new(2, &ServerSettings::default());
    let [one, other] = keys(&bench, 1);
    let slots = slot_count(2);
    let mut clients: Vec<Client> = (0..slots + 40).map(|_| bench.resp(0)).collect();
    bench.turn(0);
    for client in &mut clients {
        bench.send(client, format!("MGET {one} {other}\r\nMULTI\r\nINCR {one}\r\nEXEC\r\n").as_bytes());
    }
    (0..20).for_each(|_| _ = bench.turn(0));
    bench.shards[1].shard.receive(bench.now);
    assert_eq!(bench.shards[1].shard.arrivals.visitors.len(), slots);
    let mut turns = 0;
    let mut counts = Vec::new();
    for client in &mut clients {
        while !client.received.ends_with(b"\r\n") || !client.received.windows(3).any(|part| part == b"*1\r") {
            turn_all(&mut bench, 1);
            client.receive();
            turns += 1;
            assert!(turns < 1000, "no end");
        }
        let replies = std::str::from_utf8(&client.received).unwrap();
        counts.push(replies.rsplit(':').next().unwrap().trim_end().parse::<usize>().unwrap());
    }
    counts.sort_unstable();
    assert_eq!(counts, (1..=clients.len()).collect::<Vec<_>>(), "each has counted once");
    assert!(is_over(&bench));
}

#[test]
fn a_hold_takes_turns_with_long_commands_of_visitors() {
    let mut bench = Bench::new(3, &ServerSettings::default());
    let ([one, _], [two, _]) = (keys(&bench, 1), keys(&bench, 2));
    // Transactions that take three turns each.
    let long = format!("MULTI\r\n{}GET {one}\r\nEXEC\r\n", "CLIENT ID\r\n".repeat(9)).repeat(50);
    let mut hogs = [(); 4].map(|()| bench.resp(0));
    let mut modest = bench.resp(2);
    turn_all(&mut bench, 2);
    hogs.iter_mut().for_each(|hog| bench.send(hog, long.as_bytes()));
    turn_all(&mut bench, 5);
    for _ in 0..5 {
        modest.received.clear();
        bench.send(&mut modest, format!("MSET {one} 1 {two} 2\r\n").as_bytes());
        let turns = bench.turns_until(&mut modest, 5, 100);
        assert!(turns <= 12, "{turns} turns");
    }
    hogs.iter_mut().for_each(|hog| assert!(hog.receive() < long.len() / 2, "the others were done"));
}

#[test]
fn a_visit_that_has_not_begun_waits_for_the_end_of_a_pause() {
    let mut bench = Bench::new(2, &ServerSettings::default());
    let [one, other] = keys(&bench, 1);
    let [mut writer, mut administrator, mut reader] = [(); 3].map(|()| bench.resp(0));
    turn_all(&mut bench, 4);
    bench.send(&mut writer, format!("MSET {one} 1 {other} 2\r\n").as_bytes());
    bench.turn(0);
    // It is on its way.
    bench.send(&mut administrator, b"CLIENT PAUSE 100000 WRITE\r\n");
    bench.turn(0);
    assert_eq!(administrator.receive(), 5);
    bench.send(&mut reader, format!("EXISTS {one} {other}\r\n").as_bytes());
    bench.turns_until(&mut reader, 4, 10);
    turn_all(&mut bench, 10);
    assert_eq!((&reader.received[..], writer.receive()), (&b":0\r\n"[..], 0));
    bench.send(&mut administrator, b"CLIENT UNPAUSE\r\n");
    (0..20).for_each(|_| bench.turn_or_tick());
    assert_eq!(writer.receive(), 5);
    bench.send(&mut reader, format!("EXISTS {one} {other}\r\n").as_bytes());
    bench.turns_until(&mut reader, 8, 10);
    assert_eq!(reader.received, b":0\r\n:2\r\n");
    assert!(is_over(&bench));
}

#[test]
fn commands_that_follow_each_other_make_one_visit() {
    let mut bench = Bench::new(2, &ServerSettings::default());
    let [one, other] = keys(&bench, 1);
    let mut client = bench.resp(0);
    turn_all(&mut bench, 4);
    bench.send(&mut client, format!("MGET {one} {other}\r\n").repeat(50).as_bytes());
    let turns = bench.turns_until(&mut client, 50 * 14, 10);
    assert!(turns <= 3, "{turns} turns");
    // Their replies are measured without a turn for the client.
    while bench.turn(0) || bench.turn(1) {}
    assert!(bench.shards[0].shard.execution.replied.is_empty() && is_over(&bench));
}
