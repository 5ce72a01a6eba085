//! What a server costs when nobody asks for anything. In a process of its own, whose threads tell.

mod support;

use std::time::Duration;

use support::{Native, Resp, server};

/// Clock ticks, of ten milliseconds as a rule, that the shards have run.
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
