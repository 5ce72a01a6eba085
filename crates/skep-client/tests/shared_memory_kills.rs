//! Kills processes that are clients over shared memory, in the middle of everything. The server and another client go
//! on, and no memory, mapping or descriptor is lost.
//!
//! This file has one test, because it counts the descriptors and mappings of its process.

#[expect(dead_code, reason = "this file has no client without rules")]
#[path = "support/shared_memory.rs"]
mod shared_memory;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use shared_memory::{connect, metric, path_of, settings, start, wait_until};
use skep_client::{
    Client, HASH_SPACE, KeyRange, ORDERED_SPACE, Operation, PutCondition, Request, Responses, ServerAddress,
};

/// The variable with the path of the server, in a process that is a client.
const VARIABLE: &str = "SKEP_TEST_SHARED_MEMORY";
const TEST: &str = "killed_clients_leave_nothing_behind";

#[test]
fn killed_clients_leave_nothing_behind() {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return work_until_killed(ServerAddress::SharedMemory(path.into()));
    }
    let kills = 10 * std::env::var("SKEP_LONG").map_or(1, |factor| factor.parse().expect("SKEP_LONG is a number"));
    let server = start(&settings(2));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut witness = connect(&server);
        witness.put(b"sum", b"0").unwrap();
        // Counted before the first connection of RESP, which may be open for a moment after its reply.
        let before = [descriptors(), mappings()];
        let connections = metric(&server, "skep_shared_memory_connections");
        let memory = metric(&server, "skep_connection_memory_used");
        let witness = scope.spawn(|| {
            let mut sum = 0;
            while !stop.load(Ordering::Relaxed) {
                sum += 1;
                assert_eq!(witness.add_decimal(b"sum", 1).unwrap(), sum);
            }
            assert_eq!(witness.reconnection_count(), 0);
            witness
        });
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..kills {
            kill_after(path_of(&server), random.random_range(1..60));
        }
        wait_until(|| metric(&server, "skep_shared_memory_connections") == connections);
        stop.store(true, Ordering::Relaxed);
        let _witness = witness.join().unwrap();
        wait_until(|| [descriptors(), mappings()] == before);
        wait_until(|| metric(&server, "skep_connection_memory_used") <= memory + (64 << 10));
    });
}

/// Starts a process that is a client, and kills it after this number of batches, in the middle of the next one.
fn kill_after(path: &std::path::Path, batches: usize) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(VARIABLE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let count = lines.map(Result::unwrap).filter(|line| line.ends_with("batch done")).take(batches).count();
    assert_eq!(count, batches, "the client has ended before it was killed");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Sends batches of all kinds for ever.
fn work_until_killed(address: ServerAddress) {
    let mut client = Client::connect(address, HASH_SPACE).unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(std::process::id().into());
    let mut responses = Responses::new();
    loop {
        client.select(if random.random_range(0..2) == 0 { HASH_SPACE } else { ORDERED_SPACE });
        let size = [0, 8, 100, 10_000, 300_000][random.random_range(0..5)];
        let value = vec![1; size];
        let keys: Vec<[u8; 2]> = (0..if size > 10_000 { 8 } else { 500 }).map(|_| random.random()).collect();
        let operation = |key: &[u8; 2]| match key[0] % 3 {
            0 => Operation::Put { value: &value, condition: PutCondition::Always },
            1 => Operation::Get,
            _ => Operation::Delete,
        };
        let requests: Vec<_> = keys.iter().map(|key| Request { key, operation: operation(key) }).collect();
        client.execute(&requests, &mut responses).unwrap();
        client.select(ORDERED_SPACE);
        client.scan(KeyRange::all().limit(20)).unwrap();
        println!("batch done");
    }
}

/// Returns the number of open descriptors of this process.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns the number of files of rings that are mapped in this process.
fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:skep-").count()
}
