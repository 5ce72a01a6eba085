//! A server that the system refuses file descriptors. In a process of its own, because it uses them all up.

mod support;

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use support::{Resp, server};

#[test]
fn connections_are_accepted_again_when_there_are_descriptors() {
    let server = server(2, 16 << 20);
    let mut before = Resp::connect(&server);
    before.expect("PING\r\n", "+PONG\r\n");
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(200);
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(files.len() < 200);
    // One descriptor is left for our side of a connection, none for the server's.
    files.pop();
    let mut waiting = Resp::connect(&server);
    waiting.0.write_all(b"PING\r\n").unwrap();
    waiting.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(std::io::Read::read(&mut waiting.0, &mut [0]).is_err());
    before.expect("PING\r\n", "+PONG\r\n");
    drop(files);
    waiting.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    waiting.expect_bytes("+PONG\r\n");
}
