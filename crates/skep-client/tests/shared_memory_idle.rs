//! A server with idle clients over shared memory sleeps, and each of them wakes it.
//!
//! This file has one test, because it counts how often threads of its process have slept.

#[expect(dead_code, reason = "this file needs only clients")]
#[path = "support/shared_memory.rs"]
mod shared_memory;

use std::fs;
use std::thread;
use std::time::Duration;

use shared_memory::{connect, settings, start};

/// Clients that are idle.
const CLIENT_COUNT: usize = 64;

#[test]
fn a_server_with_idle_clients_sleeps_until_one_wakes_it() {
    let server = start(&settings(1));
    let mut clients: Vec<_> = (0..CLIENT_COUNT).map(|_| connect(&server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.put(&[number as u8], &[number as u8]).unwrap();
    }
    for _ in 0..3 {
        // The shard returns the memory of empty buffers after a second. From then on, nothing wakes it.
        let is_at_rest = || {
            let before = sleeps();
            thread::sleep(Duration::from_millis(300));
            sleeps() == before
        };
        assert!((0..100).any(|_| is_at_rest()), "a shard without work does not sleep");
        let before = sleeps();
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.get(&[number as u8]).unwrap().unwrap(), [number as u8]);
        }
        // The shard may have been awake for all of these, and be counted only when it sleeps again.
        let has_slept = || {
            thread::sleep(Duration::from_millis(1));
            sleeps() > before
        };
        assert!((0..30_000).any(|_| has_slept()), "no client woke the shard, or it does not sleep again");
    }
}

/// Returns how often the shard has slept or was interrupted.
fn sleeps() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_shard = |task: &std::path::PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "skep-shard-0")
    };
    let status =
        fs::read_to_string(tasks.into_iter().find(is_shard).expect("there is a shard").join("status")).unwrap();
    let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
    switches.map(|line| line.split_whitespace().last().unwrap().parse::<u64>().unwrap()).sum()
}
