//! Memory that clients can make the server take. In a process of its own, whose resident pages tell.

mod support;

use std::io::Write;
use std::time::Duration;

use support::{Native, Resp, server};

#[test]
fn what_is_only_announced_takes_no_memory() {
    let server = server(1, 32 << 20);
    let resident = || -> u64 {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
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
    // 400 MB are announced.
    assert!(resident() < before + (64 << 20), "{} bytes more", resident() - before);
    connections[0].0.write_all(&vec![b'v'; (1 << 20) - 1000]).unwrap();
    connections[0].expect("\r\nPING\r\n", "+OK\r\n+PONG\r\n");
}
