//! Memory of connections: one budget for what they have sent, what it was parsed into, and the replies that their
//! clients have not taken. What they hold is told by the server's own count, in bytes of capacity.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_server::{Server, ServerSettings};
use support::{Native, Resp, command, frame};

const MIB: u64 = 1 << 20;
/// What a shard may hold beyond the budget: the replies of one turn.
const SHARD_RESERVE: u64 = 8 * MIB;
const DEADLINE: Duration = Duration::from_secs(60);

fn server(shards: u16, connection_memory: u64, connections_max: usize) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings {
        native: any,
        resp: Some(any),
        memory: 64 * MIB,
        ordered_memory: 16 * MIB,
        shards,
        connection_memory,
        connections_max,
        pin_threads: false,
        ..ServerSettings::default()
    };
    Server::start(&settings).expect("the server starts")
}

/// Returns a number of `INFO clients`.
#[track_caller]
fn info(resp: &mut Resp, field: &str) -> u64 {
    let text = resp.text("INFO clients");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

fn used(resp: &mut Resp) -> u64 {
    info(resp, "skep_connection_memory_used")
}

/// Receives these bytes again and again; returns how often, up to `count` times.
fn receive(resp: &mut Resp, expected: &[u8], count: usize) -> usize {
    let mut found = vec![0; expected.len()];
    let is_same = |found: &[u8]| {
        let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
        assert_eq!(differs, None, "{}", found[differs.unwrap_or(0)..][..100].escape_ascii());
    };
    for received in 0..count {
        if let Err(error) = resp.0.read_exact(&mut found) {
            println!("{error} after {received}");
            return received;
        }
        is_same(&found);
    }
    count
}

/// Waits until the condition holds.
#[track_caller]
fn wait_until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "it never happens");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns an `MSET` of as many pairs, without its last byte.
fn unfinished(pairs: usize) -> Vec<u8> {
    let mut request = format!("*{}\r\n$4\r\nMSET\r\n", 2 * pairs + 1).into_bytes();
    for pair in 0..pairs {
        request.extend_from_slice(format!("$10\r\n{:010}\r\n$1\r\n1\r\n", pair % 100).as_bytes());
    }
    request.pop();
    request
}

/// Sends as much as the server takes within a while.
fn send_what_is_taken(resp: &mut Resp, bytes: &[u8]) -> usize {
    resp.0.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut sent = 0;
    while sent < bytes.len() {
        match resp.0.write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(_) => break,
        }
    }
    resp.0.set_write_timeout(Some(DEADLINE)).unwrap();
    sent
}

#[test]
fn a_pipeline_that_is_written_before_it_is_read_is_served() {
    const COUNT: usize = 150_000;
    for shards in [1, 2] {
        let server = server(shards, 256 * MIB, 10_000);
        let mut resp = Resp::connect(&server);
        let key = b"some:key:of:a:usual:length";
        resp.expect(command(&[b"SET", key, &[b'v'; 200]]), "+OK\r\n");
        resp.0.write_all(&command(&[b"GET", key]).repeat(COUNT)).unwrap();
        let reply = [&b"$200\r\n"[..], &[b'v'; 200], b"\r\n"].concat();
        resp.expect_bytes(reply.repeat(COUNT));
        assert!(info(&mut resp, "skep_connection_memory_used_max") < 128 * MIB);
        assert_eq!(info(&mut resp, "skep_connections_closed_for_memory"), 0);
    }
}

#[test]
fn unfinished_requests_stay_within_the_budget_and_end() {
    const BUDGET: u64 = 24 * MIB;
    let request = unfinished(150_000);
    for shards in [1, 2] {
        let server = server(shards, BUDGET, 500);
        let mut witness = Resp::connect(&server);
        witness.expect("SET w 1\r\n", "+OK\r\n");
        let mut native = Native::connect(&server, None);
        // Twenty times 4 MB are offered, with 300,000 arguments each.
        let mut senders: Vec<Resp> = (0..20).map(|_| Resp::connect(&server)).collect();
        let mut sent: Vec<usize> = senders.iter_mut().map(|resp| send_what_is_taken(resp, &request)).collect();
        for round in 0..50 {
            witness.expect("GET w\r\nINCR n\r\n", format!("$1\r\n1\r\n:{}\r\n", round + 1));
            let get = Request { key: b"w", operation: Operation::Get };
            native.execute(round, &[get; 20], |_, response| assert_eq!(response, Ok(Reply::Value(b"1"))));
            assert!(used(&mut witness) <= BUDGET);
        }
        // One may have half of the budget, and the others share a part that leaves it that much.
        assert!(used(&mut witness) > BUDGET / 4, "much of the budget is used");
        // All finish: each request is executed, or its connection ends with a reason.
        let mut replies = Vec::new();
        std::thread::scope(|scope| {
            let request = &request;
            let threads: Vec<_> = senders
                .iter_mut()
                .zip(&mut sent)
                .map(|(resp, sent)| {
                    scope.spawn(move || {
                        let _ = resp.0.write_all(&request[*sent..]).and_then(|()| resp.0.write_all(b"\n"));
                        let mut reply = [0; 4];
                        resp.0.read_exact(&mut reply).map(|()| reply).map_err(|error| error.kind())
                    })
                })
                .collect();
            replies.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        });
        let done = replies.iter().filter(|reply| **reply == Ok(*b"+OK\r")).count();
        let closed = info(&mut witness, "skep_connections_closed_for_memory") as usize;
        assert!(done > 0 && done + closed == replies.len(), "{closed} closed: {replies:?}");
        let others = replies.iter().filter(|reply| **reply != Ok(*b"+OK\r"));
        for reply in others {
            assert!(matches!(reply, Ok([b'-', b'E', b'R', b'R']) | Err(_)) && *reply != Err(ErrorKind::WouldBlock));
        }
        let max = info(&mut witness, "skep_connection_memory_used_max");
        assert!(max <= BUDGET + u64::from(shards) * SHARD_RESERVE, "{max}");
        wait_until(|| used(&mut witness) < MIB);
        assert_eq!(info(&mut witness, "skep_connections_waiting_for_memory"), 0);
    }
}

#[test]
fn replies_that_clients_do_not_take_stay_within_the_budget() {
    const BUDGET: u64 = 32 * MIB;
    for shards in [1, 2] {
        let server = server(shards, BUDGET, 500);
        let mut witness = Resp::connect(&server);
        witness.expect(command(&[b"SET", b"big", &vec![b'v'; 1 << 20]]), "+OK\r\n");
        witness.expect("SET w 1\r\n", "+OK\r\n");
        let pipeline = command(&[b"GET", b"big"]).repeat(50);
        let mut readers: Vec<Resp> = (0..150).map(|_| Resp::connect(&server)).collect();
        for reader in &mut readers {
            reader.0.write_all(&pipeline).unwrap();
        }
        let get = Request { key: b"big", operation: Operation::Get };
        let mut native: Vec<Native> = (0..20).map(|_| Native::connect(&server, None)).collect();
        for native in &mut native {
            native.send(&frame(1, &[get; 50]));
        }
        let reply = [&b"$1048576\r\n"[..], &vec![b'v'; 1 << 20], b"\r\n"].concat();
        std::thread::scope(|scope| {
            // The first of them reads, and gets all.
            let reader = scope.spawn(|| receive(&mut readers[0], &reply, 50));
            for _ in 0..100 {
                witness.expect("GET w\r\n", "$1\r\n1\r\n");
                assert!(used(&mut witness) <= BUDGET + u64::from(shards) * SHARD_RESERVE);
            }
            assert_eq!(reader.join().unwrap(), 50);
        });
        assert!(info(&mut witness, "skep_connection_memory_used_max") > BUDGET / 2);
        drop((readers, native));
        wait_until(|| used(&mut witness) < MIB);
        let max = info(&mut witness, "skep_connection_memory_used_max");
        assert!(max <= BUDGET + u64::from(shards) * SHARD_RESERVE, "{max}");
        // And large values are served again.
        witness.0.write_all(&command(&[b"GET", b"big"])).unwrap();
        assert_eq!(receive(&mut witness, &reply, 1), 1);
    }
}

#[test]
fn connections_that_keep_memory_without_progress_are_closed_when_others_need_it() {
    let server = server(1, 8 * MIB, 100);
    let mut witness = Resp::connect(&server);
    witness.expect(command(&[b"SET", b"big", &vec![b'v'; 1 << 20]]), "+OK\r\n");
    let mut readers: Vec<Resp> = (0..20).map(|_| Resp::connect(&server)).collect();
    for reader in &mut readers {
        reader.0.write_all(&command(&[b"GET", b"big"]).repeat(50)).unwrap();
    }
    let mut idle = Resp::connect(&server);
    idle.expect("PING\r\n", "+PONG\r\n");
    // More than half of the memory is held, and this request waits for as much.
    wait_until(|| used(&mut witness) > 4 * MIB);
    let value = vec![b'w'; 1 << 20];
    witness.expect(command(&[b"MSET", b"a", &value, b"b", &value, b"c", &value]), "+OK\r\n");
    wait_until(|| info(&mut witness, "skep_connections_closed_for_memory") > 0);
    witness.expect("PING\r\n", "+PONG\r\n");
    idle.expect("PING\r\n", "+PONG\r\n");
}

#[test]
fn a_request_that_never_fits_gets_a_named_error() {
    let server = server(1, 8 * MIB, 10);
    let mut witness = Resp::connect(&server);
    // 5 MiB of bytes, and 3 MiB of bytes with 4 MiB of arguments.
    let value = vec![b'v'; 1 << 20];
    let mut bytes: Vec<&[u8]> = vec![b"MSET"];
    for _ in 0..5 {
        bytes.extend([b"k", &value[..]]);
    }
    let many = [&b"*500001\r\n$6\r\nEXISTS\r\n"[..], &b"$1\r\nk\r\n".repeat(500_000)].concat();
    for (request, closed) in [(command(&bytes), 1), (many, 2)] {
        let mut resp = Resp::connect(&server);
        let _ = resp.0.write_all(&request);
        resp.expect_bytes("-ERR the request needs more memory than one connection may hold (--connection-memory)\r\n");
        assert_eq!(info(&mut witness, "skep_connections_closed_for_memory"), closed);
    }
    witness.expect("EXISTS k\r\n", ":0\r\n");
}

#[test]
fn idle_connections_hold_little() {
    let server = server(2, 256 * MIB, 10_000);
    let mut witness = Resp::connect(&server);
    let mut idle: Vec<Resp> = (0..200).map(|_| Resp::connect(&server)).collect();
    for resp in &mut idle {
        resp.expect("INCR n\r\n".repeat(100).as_bytes().split_at(8).0, format!(":{}\r\n", 1).as_bytes().split_at(0).0);
        resp.0.write_all("GET none\r\n".repeat(3000).as_bytes()).unwrap();
    }
    wait_until(|| info(&mut witness, "skep_connection_memory_used_max") > 200 * 4096);
    wait_until(|| used(&mut witness) < 201 * 4096);
}

#[test]
fn half_a_request_each_of_many_connections_keeps_small_requests_going() {
    const BUDGET: u64 = 16 * MIB;
    let server = server(2, BUDGET, 1000);
    let mut witness = Resp::connect(&server);
    let mut halves: Vec<Resp> = (0..900).map(|_| Resp::connect(&server)).collect();
    let half = [&b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n"[..], &[b'v'; 50_000]].concat();
    for resp in &mut halves {
        send_what_is_taken(resp, &half);
    }
    wait_until(|| info(&mut witness, "skep_connections_waiting_for_memory") > 0);
    assert!(used(&mut witness) <= BUDGET);
    for (number, resp) in (1..).zip((0..50).map(|_| Resp::connect(&server))) {
        let mut resp = resp;
        resp.expect("INCR n\r\n", format!(":{number}\r\n"));
        resp.expect(command(&[b"SET", b"k", &[b'v'; 500]]), "+OK\r\n");
    }
    let max = info(&mut witness, "skep_connection_memory_used_max");
    assert!(max <= BUDGET + 2 * SHARD_RESERVE, "{max}");
}

#[test]
fn the_list_of_connections_is_bounded() {
    let server = server(1, 256 * MIB, 10_000);
    let mut witness = Resp::connect(&server);
    let mut named: Vec<Resp> = (0..400).map(|_| Resp::connect(&server)).collect();
    let name = vec![b'n'; 256];
    for resp in &mut named {
        resp.expect(command(&[b"CLIENT", b"SETNAME", &name]), "+OK\r\n");
        resp.expect(command(&[b"CLIENT", b"SETINFO", b"lib-name", &name]), "+OK\r\n");
        resp.expect(command(&[b"CLIENT", b"SETINFO", b"lib-ver", &name]), "+OK\r\n");
    }
    let list = witness.text("CLIENT LIST");
    assert!(list.len() <= 256 << 10 && list.len() > 255 << 10 && list.ends_with('\n'));
    assert!(list.starts_with("id=1 ") && list.lines().all(|line| line.starts_with("id=")));
}

#[test]
fn values_are_put_and_read_while_memory_is_short() {
    // Values that no share covers go on as soon as others let memory go.
    let server = server(1, 8 * MIB, 100);
    let mut witness = Resp::connect(&server);
    witness.expect(command(&[b"SET", b"big", &vec![b'v'; 1 << 20]]), "+OK\r\n");
    let mut readers: Vec<Resp> = (0..20).map(|_| Resp::connect(&server)).collect();
    for reader in &mut readers {
        reader.0.write_all(&command(&[b"GET", b"big"]).repeat(5)).unwrap();
    }
    let mut native = Native::connect(&server, None);
    let value = vec![7; 1 << 20];
    let put = Operation::Put { value: &value, condition: PutCondition::Always };
    native.send(&frame(1, &[Request { key: b"other", operation: put }]));
    let reply = [&b"$1048576\r\n"[..], &vec![b'v'; 1 << 20], b"\r\n"].concat();
    std::thread::scope(|scope| {
        for reader in &mut readers {
            scope.spawn(|| assert_eq!(receive(reader, &reply, 5), 5));
        }
    });
    native.receive(1, 1, |_, response| assert_eq!(response, Ok(Reply::Done)));
    assert_eq!(info(&mut witness, "skep_connections_closed_for_memory"), 0);
}
