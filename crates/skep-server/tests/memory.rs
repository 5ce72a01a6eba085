//! Memory that clients can make the server take. In a process of its own, whose resident pages tell; one test after
//! the other, so that each sees its own.

mod support;

use std::io::Write;
use std::time::Duration;

use skep_core::operation::{Operation, Request};
use support::{Native, Resp, command, frame, server};

/// Returns the bytes of the process that are in memory.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

#[test]
fn memory_is_bounded() {
    promised_bytes_take_no_memory();
    unread_replies_take_little_memory();
}

fn promised_bytes_take_no_memory() {
    let server = server(1, 32 << 20);
    let before = resident();
    let mut connections: Vec<Resp> = (0..200).map(|_| Resp::connect(&server)).collect();
    for resp in &mut connections {
        resp.0.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1048576\r\n").unwrap();
    }
    let mut native: Vec<Native> = (0..200).map(|_| Native::connect(&server, None)).collect();
    for connection in &mut native {
        connection.send(&1_000_000_u32.to_le_bytes());
    }
    // Slowly, in pieces.
    for _ in 0..10 {
        connections[0].0.write_all(&[b'v'; 100]).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    Resp::connect(&server).expect("PING\r\n", "+PONG\r\n");
    // The headers promise 400 MB.
    assert!(resident() < before + (64 << 20), "{} bytes more", resident() - before);
    connections[0].0.write_all(&vec![b'v'; (1 << 20) - 1000]).unwrap();
    connections[0].expect("\r\nPING\r\n", "+OK\r\n+PONG\r\n");
}

fn unread_replies_take_little_memory() {
    let server = server(2, 32 << 20);
    let mut writer = Resp::connect(&server);
    let keys: Vec<[u8; 1]> = (0..4).map(|key| [key]).collect();
    for key in &keys {
        writer.expect(command(&[b"SET", key, &vec![b'v'; 1 << 20]]), "+OK\r\n");
    }
    let before = resident();
    // Forty connections ask for 400 MiB each, and read nothing.
    let requests: Vec<Request<'_>> =
        (0..400).map(|index| Request { key: &keys[index % 4], operation: Operation::Get }).collect();
    let pipeline: Vec<u8> = requests.iter().flat_map(|request| command(&[b"GET", request.key])).collect();
    let mut resp: Vec<Resp> = (0..20).map(|_| Resp::connect(&server)).collect();
    let mut native: Vec<Native> = (0..20).map(|shard| Native::connect(&server, Some(shard % 2))).collect();
    for (resp, native) in resp.iter_mut().zip(&mut native) {
        resp.0.write_all(&pipeline).unwrap();
        native.send(&frame(1, &requests));
    }
    for _ in 0..100 {
        writer.expect("EXISTS \x01\r\nPING\r\n", ":1\r\n+PONG\r\n");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(resident() < before + 40 * (8 << 20), "{} bytes more", resident() - before);
}
