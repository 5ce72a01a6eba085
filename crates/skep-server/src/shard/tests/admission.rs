//! Transactions, and commands that are executed whole, are admitted whole or refused whole before anything runs.

use super::{Bench, Client, command};
use crate::limits::{OPERATION_WORK, TRANSACTION_WORK_MAX, TURN_WORK};
use crate::settings::ServerSettings;

const MEBIBYTE: usize = 1 << 20;
const END: &[u8] = b"$3\r\nend\r\n";

/// Sends commands, and returns the replies.
fn ask(bench: &mut Bench, client: &mut Client, commands: &[u8]) -> Vec<u8> {
    bench.send(client, commands);
    bench.send(client, b"ECHO end\r\n");
    for _ in 0..200_000 {
        client.receive();
        if client.received.ends_with(END) {
            let mut replies = std::mem::take(&mut client.received);
            replies.truncate(replies.len() - END.len());
            return replies;
        }
        bench.turn_or_tick();
    }
    panic!("no reply after {} bytes", client.received.len());
}

/// Runs a transaction of these lines. Returns the reply to `EXEC`.
fn exec(bench: &mut Bench, client: &mut Client, lines: &[String]) -> Vec<u8> {
    let replies = ask(bench, client, format!("MULTI\r\n{}\r\nEXEC\r\n", lines.join("\r\n")).as_bytes());
    let before = "+OK\r\n".len() + lines.len() * "+QUEUED\r\n".len();
    replies[before..].to_vec()
}

fn text(reply: &[u8]) -> String {
    reply[..reply.len().min(200)].escape_ascii().to_string()
}

fn set_values(bench: &mut Bench, client: &mut Client, count: usize, size: usize) {
    for number in 0..count {
        let key = format!("big{number}");
        let set = command(&[b"SET", key.as_bytes(), &vec![b'v'; size]]);
        assert_eq!(ask(bench, client, &set), b"+OK\r\n");
    }
}

fn settings(connection_memory: u64) -> ServerSettings {
    ServerSettings { connection_memory, connections_max: 64, ..ServerSettings::default() }
}

#[test]
fn a_transaction_with_more_replies_than_a_connection_may_hold_changes_nothing() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards, &settings(16 << 20));
        let mut client = bench.resp(0);
        set_values(&mut bench, &mut client, 12, MEBIBYTE);
        let names: Vec<String> = (0..12).map(|number| format!("big{number}")).collect();
        let all = names.join(" ");
        let each = |before: &str, after: &str| names.iter().map(|name| format!("{before}{name}{after}")).collect();
        let transactions: [Vec<String>; 6] = [
            each("GETDEL ", ""),
            each("GETSET ", " new"),
            each("SET ", " new GET"),
            each("GETEX ", " PERSIST"),
            each("DUMP ", ""),
            vec!["INCR n".to_owned(), format!("MGET {all}"), format!("DEL {all}")],
        ];
        for lines in transactions {
            let reply = exec(&mut bench, &mut client, &lines);
            assert!(
                reply.starts_with(b"-EXECABORT Transaction discarded because it may have replies of"),
                "{}",
                text(&reply)
            );
            let found = ask(&mut bench, &mut client, format!("EXISTS {all} n\r\nSTRLEN big11\r\n").as_bytes());
            assert_eq!(found, b":12\r\n:1048576\r\n");
        }
        // Half of them fit.
        let reply =
            exec(&mut bench, &mut client, &(0..5).map(|number| format!("GETDEL big{number}")).collect::<Vec<_>>());
        assert!(reply.starts_with(b"*5\r\n$1048576\r\n") && reply.len() > 5 * MEBIBYTE, "{}", text(&reply));
        assert_eq!(ask(&mut bench, &mut client, format!("EXISTS {all}\r\n").as_bytes()), b":7\r\n");
    }
}

#[test]
fn a_pipeline_of_a_hundred_values_gets_them_all() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards, &settings(32 << 20));
        let mut client = bench.resp(0);
        set_values(&mut bench, &mut client, 100, 60_000);
        let lines: Vec<String> = (0..100).map(|number| format!("GET big{number}")).collect();
        let reply = exec(&mut bench, &mut client, &lines);
        assert!(reply.starts_with(b"*100\r\n$60000\r\n"), "{}", text(&reply));
        assert_eq!(reply.len(), 6 + 100 * (8 + 60_000 + 2));
    }
}

#[test]
fn commands_that_would_hold_a_shard_for_long_are_refused_before_they_run() {
    for shards in [1, 2] {
        let mut bench = Bench::new(shards, &settings(64 << 20));
        let mut client = bench.resp(0);
        set_values(&mut bench, &mut client, 1, MEBIBYTE);
        for line in
            ["BITCOUNT big0", "COPY big0 big1 REPLACE", "SKEP.UPDATE big0 add u8 1 NORETURN", "KEYS none", "DUMP big0"]
        {
            let mut lines = vec!["INCR n".to_owned()];
            lines.extend(std::iter::repeat_n(line.to_owned(), 600));
            let reply = exec(&mut bench, &mut client, &lines);
            assert!(
                reply.starts_with(b"-EXECABORT Transaction discarded because it may touch"),
                "{line}: {}",
                text(&reply)
            );
            assert_eq!(ask(&mut bench, &mut client, b"EXISTS n big1\r\n"), b":0\r\n");
            // A few of them are no trouble.
            let reply = exec(&mut bench, &mut client, &lines[..3]);
            assert!(reply.starts_with(b"*3\r\n:1\r\n"), "{line}: {}", text(&reply));
            ask(&mut bench, &mut client, b"DEL n big1\r\n");
        }
        // The length that a command makes counts for those after it.
        let mut lines = vec!["SETRANGE grown 1000000 v".to_owned()];
        lines.extend(std::iter::repeat_n("BITCOUNT grown".to_owned(), 600));
        let reply = exec(&mut bench, &mut client, &lines);
        assert!(reply.starts_with(b"-EXECABORT Transaction discarded because it may touch"), "{}", text(&reply));
        let mut sources = vec![&b"BITOP"[..], b"AND", b"new"];
        sources.extend(std::iter::repeat_n(&b"big0"[..], 600));
        let reply = ask(&mut bench, &mut client, &command(&sources));
        assert!(reply.starts_with(b"-ERR 'bitop' may touch"), "{}", text(&reply));
        // Too many keys are refused by their number: none is looked up.
        let operations = |bench: &Bench| -> u64 {
            (0..usize::from(shards)).map(|shard| bench.shared.metrics(shard).operations.executed.get()).sum()
        };
        let before = operations(&bench);
        let keys: Vec<String> = (0..TRANSACTION_WORK_MAX / OPERATION_WORK).map(|number| number.to_string()).collect();
        let mut sources = vec![&b"BITOP"[..], b"OR", b"new"];
        sources.extend(keys.iter().map(String::as_bytes));
        let reply = ask(&mut bench, &mut client, &command(&sources));
        assert!(reply.starts_with(b"-ERR 'bitop' may touch"), "{}", text(&reply));
        assert_eq!(operations(&bench) - before, 0);
        assert_eq!(ask(&mut bench, &mut client, b"EXISTS new grown\r\n"), b":0\r\n");
        // As many short ones take little.
        lines.remove(0);
        let reply = exec(&mut bench, &mut client, &lines);
        assert!(reply.starts_with(b"*600\r\n:0\r\n:0\r\n"), "{}", text(&reply));
    }
}

#[test]
fn a_forecast_of_many_keys_takes_many_turns() {
    const COUNT: usize = 120_000;
    let mut bench = Bench::new(1, &settings(256 << 20));
    let mut client = bench.resp(0);
    let keys: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
    let few: Vec<&[u8]> = keys[..COUNT / 60].iter().map(String::as_bytes).collect();
    let words = |before: &[&'static [u8]], each: &dyn Fn(&'static [u8]) -> Vec<&'static [u8]>| {
        [before, &keys.iter().flat_map(|key| each(key.clone().leak().as_bytes())).collect::<Vec<_>>()].concat()
    };
    let sets = keys.iter().flat_map(|key| command(&[b"SET", key.as_bytes(), b"v"]));
    let requests = [
        ("BITOP", command(&words(&[b"BITOP", b"OR", b"new"], &|key| vec![key]))),
        ("BITOP of few keys", command(&[&[&b"BITOP"[..], b"OR", b"new"], &few.repeat(COUNT / few.len())[..]].concat())),
        ("MSET", command(&words(&[b"MSET"], &|key| vec![key, b"v"]))),
        ("EXEC", [&b"MULTI\r\n"[..], &sets.collect::<Vec<_>>(), b"EXEC\r\n"].concat()),
    ];
    for (name, request) in requests {
        bench.send(&mut client, &request);
        bench.send(&mut client, b"ECHO end\r\n");
        let (mut sum, mut most) = (0, 0);
        while !client.received.ends_with(END) {
            bench.turn_or_tick();
            let spent = bench.shards[0].shard.turn.account.spent();
            (sum, most) = (sum + spent, most.max(spent));
            client.receive();
        }
        let refusal = client.received.windows(5).position(|part| part == b"-EXEC" || part == b"-ERR ");
        assert_eq!(refusal.map(|at| text(&client.received[at..])), None, "{name} was refused");
        client.received.clear();
        // Each key is looked up, added up, and used. Other work of a turn is for the reply.
        assert!(sum >= COUNT * 3 * OPERATION_WORK, "{name}: {sum} bytes of work");
        assert!(most <= 2 * TURN_WORK, "{name}: {most} bytes of work in a turn");
    }
}

#[test]
fn commands_that_touch_a_part_of_a_value_count_that_part() {
    let mut bench = Bench::new(1, &settings(64 << 20));
    let mut client = bench.resp(0);
    set_values(&mut bench, &mut client, 1, MEBIBYTE);
    // Each fills a part of a long value, or reads it. Passes over the whole value would be half a gibibyte.
    for line in [
        "SETBIT big0 8000000 1",
        "GETBIT big0 8000000",
        "SETRANGE big0 1000000 part",
        "BITFIELD big0 SET u8 100 1",
        "GETRANGE big0 1000000 1000010",
        "EXPIRE big0 1000",
        "PERSIST big0",
    ] {
        let lines = vec![line.to_owned(); 500];
        let reply = exec(&mut bench, &mut client, &lines);
        assert!(reply.starts_with(b"*500\r\n"), "{line}: {}", text(&reply));
    }
    ask(&mut bench, &mut client, b"DEL big0\r\n");
    let lines = vec!["APPEND big0 abc".to_owned(); 20_000];
    assert!(exec(&mut bench, &mut client, &lines).starts_with(b"*20000\r\n"));
    // If another command removes the value, each of them makes a long one.
    for between in ["DEL grown", "SET grown v", "FLUSHDB", "RENAME grown other", "EXPIRE grown 0"] {
        let lines: Vec<String> =
            (0..600).map(|number| [between, "SETRANGE grown 1000000 v"][number % 2].to_owned()).collect();
        let reply = exec(&mut bench, &mut client, &lines);
        let refusal = b"-EXECABORT Transaction discarded because it may touch";
        assert!(reply.starts_with(refusal), "{between}: {}", text(&reply));
    }
}

/// Returns a random line of a transaction.
fn line(random: &mut impl FnMut(usize) -> usize) -> String {
    let keys = ["a", "b", "c", "d", "e"];
    let [key, other] = [(); 2].map(|()| keys[random(keys.len())]);
    let offset = [3, 100, 20_000, 400_000][random(4)];
    let value = "v".repeat([1, 10, 500, 3000][random(4)]);
    match random(33) {
        0 => format!("SET {key} {value}"),
        1 => format!("SET {key} {value} GET"),
        2 => format!("APPEND {key} {value}"),
        3 => format!("SETRANGE {key} {offset} {value}"),
        4 => format!("SETBIT {key} {} 1", 8 * offset),
        5 => format!("BITFIELD {key} SET u8 #{offset} 255 GET u16 {offset}"),
        6 => format!("COPY {key} {other} REPLACE"),
        7 => format!("RENAME {key} {other}"),
        8 => format!("BITOP XOR {key} {other} {key} c"),
        9 => format!("BITCOUNT {key}"),
        10 => format!("GETDEL {key}"),
        11 => format!("MGET {key} {other} none {key}"),
        12 => format!("MSET {key} {value} {other} 1"),
        13 => format!("GETRANGE {key} 0 {offset}"),
        14 => format!("GETRANGE {key} -{offset} -1"),
        15 => format!("DUMP {key}"),
        16 => "KEYS *".to_owned(),
        17 => "SCAN 0 COUNT 100 MATCH *a*".to_owned(),
        18 => "DBSIZE".to_owned(),
        19 => "RANDOMKEY".to_owned(),
        20 => format!("SKEP.SET {key} u16 1 65535 3"),
        21 => format!("SKEP.GETV {key} u8"),
        22 => format!("SKEP.UPDATE {key} add u8 1"),
        23 => format!("SKEP.REDUCE {key} sum u8 0"),
        24 => format!("INCRBYFLOAT {other} 1.5"),
        25 => format!("EXPIRE {key} 1000"),
        26 => format!("GETEX {key} PERSIST"),
        27 => format!("DEL {key} {other}"),
        28 => "COMMAND DOCS".to_owned(),
        29 => "CLIENT LIST".to_owned(),
        30 => "INFO".to_owned(),
        31 => "LATENCY HISTOGRAM".to_owned(),
        _ => format!("EXISTS {key} {other}"),
    }
}

/// The run itself compares what a transaction takes with its forecast, while debug assertions are on.
#[test]
fn a_transaction_takes_no_more_than_its_forecast() {
    for seed in 1..=3_u64 {
        let mut state = seed;
        let mut random = |limit: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1442695040888963407);
            (state >> 33) as usize % limit
        };
        for shards in [1, 2] {
            let mut bench = Bench::new(shards, &settings(64 << 20));
            let mut client = bench.resp(0);
            let (mut done, mut refused) = (0, 0);
            for _ in 0..150 {
                let lines: Vec<String> = (0..1 + random(40)).map(|_| line(&mut random)).collect();
                let reply = exec(&mut bench, &mut client, &lines);
                match reply.starts_with(b"-EXECABORT") {
                    true => refused += 1,
                    false => done += 1,
                }
                let is_array = reply.starts_with(format!("*{}\r\n", lines.len()).as_bytes());
                assert!(is_array || reply.starts_with(b"-EXECABORT"), "{}", text(&reply));
            }
            assert!(done > 50, "{done} done and {refused} refused");
        }
    }
}
