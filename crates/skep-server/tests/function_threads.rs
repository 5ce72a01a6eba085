//! A server that stops leaves no thread that loads functions.
//!
//! Alone in its process, so that no other test has such threads.

mod support;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use support::{Resp, command, server_with};

/// Returns the number of threads of this process that load or compile functions.
fn loading_threads() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile.
    let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
    threads.map(|thread| name(thread.unwrap())).filter(|name| name.starts_with("skep-function")).count()
}

/// Returns a module that takes a good part of a second to compile.
fn long_module(number: usize) -> String {
    let term = "(v * 3).rotate_left(v & 31).saturating_add(v ^ 5)";
    let body = format!("let v = {term};").repeat(250);
    let functions: String =
        (0..3).map(|index| format!("#[update] fn f{index}(v: u32) -> u32 {{ {body} v }}\n")).collect();
    format!("mod m{number} {{ {functions} }}")
}

#[test]
fn a_server_that_is_dropped_while_modules_compile_leaves_no_thread() {
    for round in 0..4 {
        let server = server_with(|settings| (settings.shards, settings.memory) = (2, 16 << 20));
        let mut clients: Vec<Resp> = (0..12).map(|_| Resp::connect(&server)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(command(&[b"SKEP.FUNCTION", b"LOAD", long_module(number).as_bytes()]));
        }
        // One compiles, the others wait for it.
        let end = Instant::now() + Duration::from_secs(60);
        while loading_threads() < 10 {
            assert!(Instant::now() < end, "the modules are not loaded");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(20 * round));
        drop(server);
        assert_eq!(loading_threads(), 0, "round {round}");
    }
}
