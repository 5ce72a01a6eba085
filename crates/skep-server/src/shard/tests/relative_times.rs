//! Relative times count from the execution of a command: it may have waited since it arrived.

use std::sync::Arc;
use std::time::Duration;

use skep_store::naive::EXPIRIES_END;

use super::{Bench, Client};
use crate::access::Login;
use crate::memcached_batch::MemcachedBatch;
use crate::parsed_batch::ParsedBatch;
use crate::settings::ServerSettings;

/// The time that commands wait: longer than the lives that they give their keys.
const WAIT: Duration = Duration::from_secs(10_000);

/// Sends commands while a pause holds them, ends it after [`WAIT`], and returns the replies of this size.
fn wait(bench: &mut Bench, client: &mut Client, commands: &str, size: usize) -> String {
    let mut pauser = bench.resp(0);
    bench.ask(&mut pauser, b"CLIENT PAUSE 100000000 ALL\r\n", 5);
    bench.send(client, commands.as_bytes());
    for _ in 0..100 {
        bench.turn_or_tick();
    }
    assert_eq!(client.receive(), 0);
    bench.now += WAIT;
    bench.send(&mut pauser, b"CLIENT UNPAUSE\r\n");
    let mut turns = 0;
    while client.receive() < size {
        bench.turn_or_tick();
        turns += 1;
        assert!(turns < 10_000, "{:?}", String::from_utf8_lossy(&client.received));
    }
    String::from_utf8(std::mem::take(&mut client.received)).unwrap()
}

/// Every command of Redis with a relative time, alone, after others in its pipeline, and in a transaction.
#[test]
fn a_time_to_live_counts_from_the_execution() {
    // The payload of `DUMP` for `v`.
    let restore = "RESTORE k 1000000 \"\\x00\\x01v\\x0b\\x00\\xf8\\xd7\\x73\\xc1\\xe4\\xa7\\x63\\x47\" REPLACE";
    for shards in [1, 3] {
        for set in [
            "SET k v EX 1000",
            "SET k v PX 1000000",
            "SETEX k 1000 v",
            "PSETEX k 1000000 v",
            "GETEX k EX 1000",
            "GETEX k PX 1000000",
            "EXPIRE k 1000",
            "PEXPIRE k 1000000",
            "MSETEX 1 k v EX 1000",
            "MSETEX 2 l w k v PX 1000000",
            restore,
        ] {
            for (before, after) in [("", ""), ("PING\r\n", ""), ("MULTI\r\n", "\r\nEXEC")] {
                let mut bench = Bench::new(shards, &ServerSettings::default());
                let mut client = bench.resp(0);
                bench.ask(&mut client, b"SET k old\r\n", 5);
                let commands = format!("{before}{set}{after}\r\nPEXPIRETIME k\r\nPTTL k\r\nTTL k\r\nECHO end\r\n");
                let mut reply = wait(&mut bench, &mut client, &commands, 1);
                while !reply.ends_with("end\r\n") {
                    bench.turn_or_tick();
                    client.receive();
                    reply += &String::from_utf8(std::mem::take(&mut client.received)).unwrap();
                }
                let lines: Vec<&str> = reply.lines().collect();
                let [.., expiry, left, seconds, _, _] = lines[..] else { panic!("{reply}") };
                let number = |line: &str| line[1..].parse::<u64>().unwrap();
                // Nothing in the bench takes a second, but the wait.
                assert!((999_000..=1_000_000).contains(&number(left)), "{set}: {reply}");
                assert!((999..=1000).contains(&number(seconds)), "{set}: {reply}");
                let earliest = EXPIRIES_END + WAIT.as_millis() as u64 + 1_000_000;
                assert!((earliest..earliest + 10_000).contains(&number(expiry)), "{set}: {reply}");
            }
        }
    }
}

/// Absolute times stay what they are, and a time in the past removes the key.
#[test]
fn an_absolute_time_does_not_wait() {
    let mut bench = Bench::new(1, &ServerSettings::default());
    let mut client = bench.resp(0);
    let soon = EXPIRIES_END + 1_000_000;
    let late = EXPIRIES_END + 100_000_000;
    let commands = format!(
        "SET a v PXAT {soon}\r\nSET b v PXAT {late}\r\nSET c v\r\nPEXPIRE c -1\r\nSET d v EX 1000 NX\r\n\
         EXISTS a\r\nPEXPIRETIME b\r\nEXISTS c\r\nEXISTS d\r\n"
    );
    let expected = format!("+OK\r\n+OK\r\n+OK\r\n:1\r\n+OK\r\n:0\r\n:{late}\r\n:0\r\n:1\r\n");
    assert_eq!(wait(&mut bench, &mut client, &commands, expected.len()), expected);
}

/// memcached's commands wait too: with each of its forms of a time.
#[test]
fn an_exptime_counts_from_the_execution() {
    let settings = ServerSettings { cache_memory: 32 << 20, ..ServerSettings::default() };
    // A number of more than 30 days is absolute. It lasts three million seconds less the wait and what the bench begins at.
    const LATE: u64 = 3_000_000;
    let left = LATE - (EXPIRIES_END + WAIT.as_millis() as u64) / 1000;
    for (commands, expected) in [
        ("set k 0 1000 1\r\nx\r\n".to_owned(), "STORED\r\nHD t1000\r\n"),
        ("set k 0 0 1\r\nx\r\ntouch k 1000\r\n".to_owned(), "STORED\r\nTOUCHED\r\nHD t1000\r\n"),
        ("set k 0 0 1\r\nx\r\ngat 1000 k\r\n".to_owned(), "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\nHD t1000\r\n"),
        ("ms k 1 T1000\r\nx\r\n".to_owned(), "HD\r\nHD t1000\r\n"),
        ("mg k N1000 t\r\n".to_owned(), "HD t1000 W\r\nHD t1000 Z\r\n"),
        ("set k 0 1000 1\r\nx\r\nmg k R2000\r\n".to_owned(), "STORED\r\nHD W\r\nHD t1000 Z\r\n"),
        ("set k 0 1000 1\r\nx\r\nmg k R500\r\n".to_owned(), "STORED\r\nHD\r\nHD t1000\r\n"),
        ("ma k N1000 J5 t\r\n".to_owned(), "HD t1000\r\nHD t1000\r\n"),
        ("set k 0 0 1\r\nx\r\nmg k T1000 t\r\n".to_owned(), "STORED\r\nHD t1000\r\nHD t1000\r\n"),
        ("set k 0 -1 1\r\nx\r\n".to_owned(), "STORED\r\nEN\r\n"),
        (format!("set k 0 {LATE} 1\r\nx\r\n"), "STORED\r\nHD t1000\r\n"),
    ] {
        let mut bench = Bench::new(1, &settings);
        let parsed = ParsedBatch::Memcached(MemcachedBatch::boxed(
            &bench.shared.settings,
            Login::default(),
            Arc::clone(&bench.shared.cache_flushes),
        ));
        let mut client = bench.connect(0, parsed);
        let reply = wait(&mut bench, &mut client, &format!("{commands}mg k t\r\n"), expected.len() - 2);
        // The ticks before the wait take some seconds, and all after it less than one.
        let rounded = (left - 20..=left)
            .chain([999])
            .fold(reply, |reply, number| reply.replace(&format!("t{number}\r\n"), "t1000\r\n"));
        assert_eq!(rounded, expected, "{commands}");
    }
}
