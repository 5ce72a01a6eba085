//! More costly operations than the server can execute within its bound: each request gets exactly one reply, an exact
//! result or `BUSY`; what was refused has changed nothing, what was not has; and a client that asks for little gets it.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use skep_core::function::{Element, Fold};
use skep_core::operation::{Operation, PutCondition, Reduce, Reply, Request};
use skep_server::Server;
use skep_wire::native::WireError;
use support::{Native, Resp, command, frame, server_with_delay_max};

/// The smallest bound there is: a few hundred folds take as long.
const BOUND: Duration = Duration::from_millis(1);
/// Bytes of the value that is summed up, and the sum of its 64-bit elements.
const VALUE_SIZE: usize = 4096;
const SUM: u64 = (VALUE_SIZE as u64 / 8) * 3;

fn put(server: &Server, key: &[u8], value: &[u8]) {
    let put = Operation::Put { value, condition: PutCondition::Always };
    Native::connect(server, None).execute(1, &[Request { key, operation: put }], |_, response| {
        assert_eq!(response, Ok(Reply::Done));
    });
}

/// Returns the value of a field of `INFO`.
fn info(server: &Server, field: &str) -> u64 {
    let text = Resp::connect(server).text("INFO congestion");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{field}: {text}")).parse().expect("a whole number")
}

/// Returns that a client got.
#[derive(Default)]
struct Tally {
    replies: AtomicU64,
    refused: AtomicU64,
    /// Increments that were executed.
    increments: AtomicU64,
}

impl Tally {
    fn count(&self, counter: &AtomicU64) {
        self.replies.fetch_add(1, Ordering::Relaxed);
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends frames of `folds` folds and an increment each, without waiting for replies; returns how many operations that
/// was.
fn native_flood(server: &Server, frames: usize, folds: usize, tally: &Tally) -> usize {
    let sum = Reduce { fold: Fold::Sum, element: Element::U64, initial: &[0; 8], constants: &[] };
    let mut requests = vec![Request { key: b"vector", operation: Operation::Reduce(sum) }; folds];
    requests.push(Request { key: b"counter", operation: Operation::AddDecimal { delta: 1 } });
    let bytes = frame(1, &requests);
    let mut connection = Native::connect(server, None);
    let mut writer = connection.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..frames).for_each(|_| writer.write_all(&bytes).unwrap()));
        for _ in 0..frames {
            connection.receive(1, requests.len(), |index, response| match response {
                Ok(Reply::Value(value)) if index < folds => {
                    assert_eq!(value, SUM.to_le_bytes());
                    tally.replies.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Reply::Value(_)) => tally.count(&tally.increments),
                Err(WireError::Busy) => tally.count(&tally.refused),
                other => panic!("{other:?}"),
            });
        }
    });
    frames * requests.len()
}

/// Reads a RESP reply: its first line, and its content.
fn reply(reader: &mut BufReader<TcpStream>) -> Vec<String> {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.ends_with("\r\n"), "{line:?}");
    line.truncate(line.len() - 2);
    let mut found = vec![line.clone()];
    match line.split_at(1) {
        ("$", size) if size != "-1" => {
            let mut bytes = vec![0; size.parse::<usize>().unwrap() + 2];
            reader.read_exact(&mut bytes).unwrap();
        }
        ("*", count) => (0..count.parse().unwrap()).for_each(|_| found.extend(reply(reader))),
        _ => {}
    }
    found
}

fn is_busy(reply: &[String]) -> bool {
    assert!(!reply[0].starts_with('-') || reply.len() == 1 && reply[0].starts_with("-BUSY "), "{reply:?}");
    reply[0].starts_with('-')
}

/// Sends folds and increments in turns, without waiting for replies; returns how many commands that was.
fn resp_flood(server: &Server, key: &str, pairs: usize, tally: &Tally) -> usize {
    let pair = [command(&[b"SKEP.REDUCE", b"vector", b"sum", b"u64", b"0"]), command(&[b"INCR", key.as_bytes()])];
    let bytes = pair.concat().repeat(pairs);
    let mut connection = Resp::connect(server);
    let mut reader = BufReader::new(connection.0.try_clone().unwrap());
    let mut last = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| connection.0.write_all(&bytes).unwrap());
        for _ in 0..pairs {
            match reply(&mut reader) {
                busy if is_busy(&busy) => tally.count(&tally.refused),
                sum => {
                    assert_eq!(sum, [format!(":{SUM}")]);
                    tally.replies.fetch_add(1, Ordering::Relaxed);
                }
            }
            match reply(&mut reader) {
                busy if is_busy(&busy) => tally.count(&tally.refused),
                number => {
                    // Nothing is lost in between, and the order is kept.
                    last += 1;
                    assert_eq!(number, [format!(":{last}")]);
                    tally.replies.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
    Resp::connect(server).expect(command(&[b"INCR", key.as_bytes()]), format!(":{}\r\n", last + 1));
    2 * pairs
}

/// Asks for one thing after another until `over`, and until it got some. What it asks for can be refused only if others
/// used up what one batch may read, or the way to another shard.
fn modest(server: &Server, over: &AtomicBool, tally: &Tally) -> u64 {
    let mut resp = Resp::connect(server);
    let mut reader = BufReader::new(resp.0.try_clone().unwrap());
    let mut native = Native::connect(server, None);
    let (mut incremented, mut found) = (0, 0);
    while !over.load(Ordering::Relaxed) || incremented < 10 || found < 10 {
        resp.0.write_all(b"INCR modest\r\n").unwrap();
        match reply(&mut reader) {
            busy if is_busy(&busy) => _ = tally.refused.fetch_add(1, Ordering::Relaxed),
            number => {
                incremented += 1;
                assert_eq!(number, [format!(":{incremented}")]);
            }
        }
        let request = Request { key: b"vector", operation: Operation::Contains };
        native.execute(1, &[request], |_, response| match response {
            Err(WireError::Busy) => _ = tally.refused.fetch_add(1, Ordering::Relaxed),
            response => {
                found += 1;
                assert_eq!(response, Ok(Reply::Done));
            }
        });
    }
    incremented + found
}

fn overload(shards: u16) {
    let server = server_with_delay_max(shards, 32 << 20, Some(BOUND));
    put(&server, b"vector", &3_u64.to_le_bytes().repeat(VALUE_SIZE / 8));
    let tally = Tally::default();
    let over = AtomicBool::new(false);
    let operations: usize = std::thread::scope(|scope| {
        let (server, tally, over) = (&server, &tally, &over);
        let modest = scope.spawn(move || modest(server, over, tally));
        let floods: Vec<_> = (0..8)
            .map(|flood| match flood % 4 {
                // Many frames, each of which can have its replies in time; frames that cannot; and commands.
                0 | 1 => scope.spawn(move || native_flood(server, 400, 50, tally)),
                2 => scope.spawn(move || native_flood(server, 2, 60_000, tally)),
                _ => scope.spawn(move || resp_flood(server, &format!("resp{flood}"), 5000, tally)),
            })
            .collect();
        let operations = floods.into_iter().map(|flood| flood.join().unwrap()).sum();
        over.store(true, Ordering::Relaxed);
        println!("the modest got {}", modest.join().unwrap());
        operations
    });
    assert_eq!(tally.replies.load(Ordering::Relaxed), operations as u64);
    let refused = tally.refused.load(Ordering::Relaxed);
    println!("{refused} of {operations} refused");
    // Sixty thousand folds read 240 MB: no machine does that in a millisecond.
    assert!(refused > 0);
    assert_eq!(refused, info(&server, "skep_operations_refused"));
    let increments = tally.increments.load(Ordering::Relaxed);
    Resp::connect(&server).expect("INCR counter\r\n", format!(":{}\r\n", increments + 1));
}

#[test]
fn every_request_has_one_reply() {
    overload(1);
}

#[test]
fn every_request_has_one_reply_from_other_shards_too() {
    overload(2);
}

#[test]
fn a_command_of_several_keys_is_refused_as_a_whole() {
    let server = server_with_delay_max(1, 32 << 20, Some(BOUND));
    put(&server, b"large", &vec![1; 1 << 20]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Nothing is refused while no other client waits.
        for _ in 0..4 {
            scope.spawn(|| {
                let mut other = Resp::connect(&server);
                let mut reader = BufReader::new(other.0.try_clone().unwrap());
                let folds = command(&[b"SKEP.REDUCE", b"large", b"sum", b"f64", b"0"]).repeat(60);
                while !over.load(Ordering::Relaxed) {
                    other.0.write_all(&folds).unwrap();
                    (0..60).for_each(|_| _ = is_busy(&reply(&mut reader)));
                }
            });
        }
        refuse_commands_of_several_keys(&server);
        over.store(true, Ordering::Relaxed);
    });
}

fn refuse_commands_of_several_keys(server: &Server) {
    let mut connection = Resp::connect(server);
    let mut reader = BufReader::new(connection.0.try_clone().unwrap());
    // All together are less than the least that is read at a time. What follows DBSIZE is done after what precedes it.
    let folds = command(&[b"SKEP.REDUCE", b"large", b"sum", b"f64", b"0"]).repeat(60);
    let both = [command(&[b"DBSIZE"]), command(&[b"DEL", b"a", b"b"]), command(&[b"MGET", b"a", b"b"])].concat();
    let mut refused = 0;
    for _ in 0..200 {
        connection.0.write_all(&command(&[b"MSET", b"a", b"1", b"b", b"2"])).unwrap();
        assert_eq!(reply(&mut reader), ["+OK"]);
        connection.0.write_all(&[&folds[..], &both].concat()).unwrap();
        for _ in 0..60 {
            let fold = reply(&mut reader);
            assert!(is_busy(&fold) || fold[0].starts_with('$'), "{fold:?}");
        }
        assert_eq!(reply(&mut reader), [":3"]);
        let deleted = reply(&mut reader);
        let left = if is_busy(&deleted) { "$1" } else { "$-1" };
        refused += u64::from(is_busy(&deleted));
        assert!(is_busy(&deleted) || deleted == [":2"], "{deleted:?}");
        let found = reply(&mut reader);
        assert!(is_busy(&found) || found == ["*2", left, left], "{found:?} after {deleted:?}");
        if refused > 2 {
            return;
        }
    }
    // Sixty folds of a megabyte are too many for a millisecond.
    panic!("{refused} of 200 were refused");
}
