//! Clients that ask for more than they read, send slowly, or leave; and the end of the server.

mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_wire::native::Hello;
use skep_wire::partition::shard_of;
use support::{Native, Resp, command, frame, server};

const VALUE_SIZE: usize = 300_000;

/// Returns a value that names its key.
fn value(key: u8) -> Vec<u8> {
    vec![b'a' + key; VALUE_SIZE]
}

#[test]
fn large_values_beyond_the_budget_arrive_in_order() {
    for shards in [1, 3] {
        let server = server(shards, 64 << 20);
        let mut resp = Resp::connect(&server);
        for key in 0..5 {
            resp.expect(command(&[b"SET", &[key], &value(key)]), "+OK\r\n");
        }
        // 60 MB of replies, asked for in one go: far beyond every budget.
        let mut pipeline = Vec::new();
        let mut expected: Vec<u8> = Vec::new();
        for round in 0..20_u8 {
            for key in 0..5 {
                let bulk = [format!("${VALUE_SIZE}\r\n").into_bytes(), value(key), b"\r\n".to_vec()].concat();
                pipeline.extend_from_slice(&command(&[b"GET", &[key]]));
                pipeline.extend_from_slice(&command(&[b"INCR", b"n"]));
                pipeline.extend_from_slice(&command(&[b"MGET", &[key], b"n", &[key]]));
                expected.extend_from_slice(&bulk);
                let number = u32::from(round) * 5 + u32::from(key) + 1;
                expected.extend_from_slice(format!(":{number}\r\n").as_bytes());
                expected.extend_from_slice(b"*3\r\n");
                expected.extend_from_slice(&bulk);
                let number = number.to_string();
                expected.extend_from_slice(format!("${}\r\n{number}\r\n", number.len()).as_bytes());
                expected.extend_from_slice(&bulk);
            }
        }
        resp.0.write_all(&pipeline).unwrap();
        // Another connection is served while this one does not read.
        let mut other = Resp::connect(&server);
        for _ in 0..100 {
            other.expect("PING\r\n", "+PONG\r\n");
            other.expect(command(&[b"EXISTS", &[1], &[2], b"missing"]), ":2\r\n");
        }
        let mut found = vec![0; expected.len()];
        resp.0.read_exact(&mut found).unwrap();
        assert!(found == expected, "replies of {shards} shards differ");
        resp.expect("PING\r\n", "+PONG\r\n");
    }
}

#[test]
fn large_native_replies_are_split_over_frames() {
    for shards in [1, 3] {
        let server = server(shards, 64 << 20);
        let mut connection = Native::connect(&server, Some(0));
        for key in 0..5_u8 {
            let put = Operation::Put { value: &value(key), condition: PutCondition::Always };
            connection.execute(u32::from(key), &[Request { key: &[key], operation: put }], |_, response| {
                assert_eq!(response, Ok(Reply::Done));
            });
        }
        let keys: Vec<[u8; 1]> = (0..100).map(|index| [index % 5]).collect();
        let mut requests: Vec<Request<'_>> =
            keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
        // A put after deferred gets of its key must not overtake them.
        let put = Operation::Put { value: b"new", condition: PutCondition::Always };
        requests.push(Request { key: &[4], operation: put });
        requests.push(Request { key: &[4], operation: Operation::Get });
        connection.execute(9, &requests, |index, response| match index {
            100 => assert_eq!(response, Ok(Reply::Done)),
            101 => assert_eq!(response, Ok(Reply::Value(b"new"))),
            _ => assert!(response == Ok(Reply::Value(&value((index % 5) as u8))), "reply {index}"),
        });
    }
}

#[test]
fn commands_of_a_million_keys() {
    const COUNT: usize = 1_000_000;
    for shards in [1, 3] {
        let server = server(shards, 64 << 20);
        let mut resp = Resp::connect(&server);
        resp.expect("SET 7 seven\r\n", "+OK\r\n");
        let keys: Vec<String> = (0..COUNT).map(|key| (key % 10).to_string()).collect();
        let mut request: Vec<&[u8]> = vec![b"MGET"];
        request.extend(keys.iter().map(String::as_bytes));
        let nine = ["$-1\r\n".repeat(7), "$5\r\nseven\r\n".to_owned(), "$-1\r\n".repeat(2)].concat();
        let mut writer = resp.0.try_clone().unwrap();
        let sent = command(&request);
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_all(&sent).unwrap());
            resp.expect_bytes(format!("*{COUNT}\r\n{}", nine.repeat(COUNT / 10)));
        });
        request[0] = b"EXISTS";
        resp.expect(command(&request), format!(":{}\r\n", COUNT / 10));
        request[0] = b"DEL";
        resp.expect(command(&request), ":1\r\n");
    }
}

#[test]
fn a_client_that_leaves_is_forgotten() {
    let server = server(2, 64 << 20);
    let mut resp = Resp::connect(&server);
    resp.expect(command(&[b"SET", b"k", &vec![b'v'; 1 << 20]]), "+OK\r\n");
    for _ in 0..20 {
        let mut leaver = Resp::connect(&server);
        leaver.0.write_all(&command(&[b"GET", b"k"]).repeat(100)).unwrap();
    }
    let started = Instant::now();
    while !resp.text("INFO clients").contains("connected_clients:1\r\n") {
        assert!(started.elapsed() < Duration::from_secs(30), "the connections are never forgotten");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_half_closed_connection_gets_all_its_replies() {
    let server = server(2, 32 << 20);
    let mut resp = Resp::connect(&server);
    resp.0.write_all("INCR a\r\nINCR b\r\n".repeat(3000).as_bytes()).unwrap();
    resp.0.shutdown(std::net::Shutdown::Write).unwrap();
    for number in 1..=3000 {
        resp.expect_bytes(format!(":{number}\r\n:{number}\r\n"));
    }
    resp.expect_end();
}

#[test]
fn a_stop_replies_to_requests_that_have_arrived() {
    for shards in [1, 3] {
        let server = server(shards, 32 << 20);
        let mut idle = Resp::connect(&server);
        idle.expect("PING\r\n", "+PONG\r\n");
        let mut resp = Resp::connect(&server);
        let mut native = Native::connect(&server, Some(0));
        let add = Request { key: b"n", operation: Operation::AddDecimal { delta: 1 } };
        resp.0.write_all("INCR a\r\n".repeat(1000).as_bytes()).unwrap();
        native.send(&frame(5, &[add; 1000]));
        resp.expect_bytes(":1\r\n");
        let addresses = (server.native_address(), server.resp_address().unwrap());
        server.stop();
        for number in 2..=1000 {
            resp.expect_bytes(format!(":{number}\r\n"));
        }
        resp.expect_end();
        native.receive(5, 1000, |index, response| {
            assert_eq!(response, Ok(Reply::Value((index + 1).to_string().as_bytes())));
        });
        idle.expect_end();
        assert!(std::net::TcpStream::connect(addresses.0).is_err());
        assert!(std::net::TcpStream::connect(addresses.1).is_err());
    }
}

#[test]
fn operations_are_counted_once_however_often_they_are_submitted() {
    for shards in [1, 2, 2, 2] {
        let server = server(shards, 64 << 20);
        let mut connection = Native::connect(&server, Some(0));
        let put = Operation::Put { value: &value(0), condition: PutCondition::Always };
        connection.execute(1, &[Request { key: b"k", operation: put }], |_, _| ());
        let get = Request { key: b"k", operation: Operation::Get };
        connection.execute(2, &[get; 100], |_, response| assert_eq!(response, Ok(Reply::Value(&value(0)))));
        let mut resp = Resp::connect(&server);
        let stats = resp.text("INFO stats");
        assert!(stats.contains("skep_operations:101\r\n"), "{stats}");
        let owner = shard_of(b"k", connection.welcome.partition_seed, shards);
        let forwarded = if owner == 0 { 0 } else { 101 };
        assert!(stats.contains(&format!("skep_operations_forwarded:{forwarded}\r\n")), "{stats}");
        assert!(stats.contains("keyspace_hits:100\r\n"), "{stats}");
        // Without the INFO itself, as in Redis.
        assert!(stats.contains("total_commands_processed:101\r\n"), "{stats}");
    }
}

#[test]
fn the_end_may_come_at_any_moment() {
    for round in 0..40_u32 {
        let server = server(3, 24 << 20);
        let requests: Vec<[u8; 1]> = (0..50).map(|key| [key]).collect();
        let add = |key| Request { key, operation: Operation::AddDecimal { delta: 1 } };
        let requests: Vec<Request<'_>> = requests.iter().map(|key| add(&key[..])).collect();
        let mut streams = Vec::new();
        for connection in 0..30_u16 {
            let mut stream = std::net::TcpStream::connect(server.native_address()).unwrap();
            // A connection that moves to its shard while the server stops has requests for all the others.
            stream.write_all(&Hello::new(Some(connection % 3)).encode()).unwrap();
            stream.write_all(&frame(round, &requests)).unwrap();
            streams.push(stream);
        }
        server.stop();
    }
}
