//! The cost of a server without requests. In a process of its own, so that its threads are those of the server.

mod support;

use std::io::Write;
use std::net::Shutdown;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use support::{Native, Resp, command, server};

/// Seconds after which no client is served or closed any more.
const SETTLED_AFTER: usize = 8;

/// One test at a time: the threads of all servers count.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns clock ticks, of ten milliseconds as a rule, that the shards have run.
fn ticks() -> u64 {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        let (name, fields) = stat.rsplit_once(") ").unwrap();
        if name.contains("skep-shard") {
            sum += fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum::<u64>();
        }
    }
    sum
}

#[test]
fn an_idle_server_sleeps() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = server(2, 16 << 20);
    let mut resp = Resp::connect(&server);
    let _native = Native::connect(&server, Some(1));
    resp.expect("PING\r\n", "+PONG\r\n");
    let before = ticks();
    std::thread::sleep(Duration::from_secs(1));
    // Two shards that spin would have run for about two hundred ticks.
    let ran = ticks() - before;
    assert!(ran <= 2, "{ran} ticks in a second");
    resp.expect("PING\r\n", "+PONG\r\n");
}

#[test]
fn a_server_whose_peers_wait_sleeps() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = server(2, 64 << 20);
    let mut resp = Resp::connect(&server);
    resp.expect(command(&[b"SET", b"k", &vec![b'v'; 1 << 20]]), "+OK\r\n");
    // Some read nothing, some of these have said all they had to say, some are in the middle of a request.
    let mut peers = Vec::new();
    for index in 0..12 {
        let mut peer = Resp::connect(&server);
        peer.0.write_all(&command(&[b"GET", b"k"]).repeat(30)).unwrap();
        if index % 2 == 0 {
            peer.0.write_all(b"*2\r\n$3\r\nGET\r\n$1").unwrap();
        }
        if index % 3 == 0 {
            peer.0.shutdown(Shutdown::Write).unwrap();
        }
        peers.push(peer);
        let mut unfinished = Resp::connect(&server);
        unfinished.0.write_all(b"SET a").unwrap();
        peers.push(unfinished);
        let mut gone = Resp::connect(&server);
        gone.0.write_all(b"QUIT\r\n").unwrap();
        peers.push(gone);
    }
    // Clients that are slow are closed after the time that they have earned, and others are served then. After that, shards
    // that wait have nothing to do.
    let ran_in_a_second = || {
        let before = ticks();
        std::thread::sleep(Duration::from_secs(1));
        ticks() - before
    };
    let ran: Vec<u64> = std::iter::repeat_with(ran_in_a_second).take(SETTLED_AFTER).collect();
    assert!(ran[SETTLED_AFTER - 2..].iter().all(|ran| *ran <= 2), "ticks in each second: {ran:?}");
    resp.expect("PING\r\n", "+PONG\r\n");
}
