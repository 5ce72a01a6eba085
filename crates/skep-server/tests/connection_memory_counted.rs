//! What the server counts as memory of connections is what they take. The allocator of this program counts too, so
//! there is one test, and its clients send bytes that were prepared.

mod support;

use std::alloc::System;
use std::io::Write;
use std::time::{Duration, Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{Resp, command, server};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn used(resp: &mut Resp) -> isize {
    let text = resp.text("INFO clients");
    let line = text.lines().find_map(|line| line.strip_prefix("skep_connection_memory_used:"));
    line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

/// Returns the count when it has not changed for a while.
fn settled(resp: &mut Resp) -> isize {
    let (mut last, mut since) = (used(resp), Instant::now());
    while since.elapsed() < Duration::from_millis(300) {
        std::thread::sleep(Duration::from_millis(10));
        let now = used(resp);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

#[test]
fn the_count_is_what_connections_take() {
    let server = server(1, 64 << 20);
    let mut witness = Resp::connect(&server);
    witness.expect(command(&[b"SET", b"big", &vec![b'v'; 1 << 20]]), "+OK\r\n");
    witness.0.write_all(&command(&[b"GET", b"big"])).unwrap();
    let mut value = vec![0; (1 << 20) + 12];
    std::io::Read::read_exact(&mut witness.0, &mut value).unwrap();
    let unfinished = [b"*100001\r\n$4\r\nMSET\r\n".to_vec(), b"$5\r\nkey:1\r\n".repeat(99_000)].concat();
    let unread = command(&[b"GET", b"big"]).repeat(20);
    for (sent, count) in [(unfinished, 20), (unread, 10), (b"PING\r\nGET ".to_vec(), 300)] {
        let mut connections: Vec<Resp> = Vec::with_capacity(count);
        let before = settled(&mut witness);
        let region = Region::new(ALLOCATOR);
        for _ in 0..count {
            let mut resp = Resp::connect(&server);
            resp.0.write_all(&sent).unwrap();
            connections.push(resp);
        }
        let counted = settled(&mut witness) - before;
        let change = region.change();
        let taken = change.bytes_allocated as isize - change.bytes_deallocated as isize;
        assert!(counted >= taken * 9 / 10 && counted <= taken * 11 / 10 + (1 << 20), "{counted} for {taken}");
        drop(connections);
        let after = settled(&mut witness);
        assert!(after < before + (64 << 10), "{after} after {before}");
    }
}
