//! The memory of a transaction's replies, in turns: it is taken before anything is executed, in the order of arrival.

use std::io::{ErrorKind, Read};

use super::{Bench, Client, command};
use crate::limits::{MEMORY_SCAN_TIME, PROGRESS_TIME, TICK};
use crate::memory_budget::{Loan, ShardBudget};
use crate::settings::ServerSettings;

const MIB: usize = 1 << 20;
/// Bytes of the common part, and of what a transaction may have as replies, of the budget of these tests.
const COMMON: usize = 60 * MIB;
/// Values of 1 MiB that a transaction reads: all replies take nearly three quarters of what one connection may hold.
const READS: usize = 23;

fn settings() -> ServerSettings {
    ServerSettings { connection_memory: 64 << 20, connections_max: 512, ..ServerSettings::default() }
}

/// Sets a value of 1 MiB for each shard.
fn set_values(bench: &mut Bench) -> Vec<Vec<u8>> {
    let mut client = bench.resp(0);
    let keys: Vec<Vec<u8>> = (0..bench.shards.len()).map(|shard| bench.key(shard as u16, 0)).collect();
    for key in &keys {
        bench.ask(&mut client, &command(&[b"SET", key, &vec![b'v'; MIB]]), 5);
    }
    keys
}

/// Returns a transaction that reads this number of values.
fn transaction(keys: &[&[u8]], count: usize) -> Vec<u8> {
    let gets = (0..count).flat_map(|index| command(&[b"GET", keys[index % keys.len()]]));
    [command(&[b"MULTI"]), gets.collect(), command(&[b"EXEC"])].concat()
}

/// Returns the size of all replies of such a transaction.
fn size(count: usize) -> usize {
    5 + 9 * count + format!("*{count}\r\n").len() + count * (MIB + "$1048576\r\n\r\n".len())
}

/// Takes what has arrived. Returns the bytes, unless the connection was ended.
pub(super) fn take(client: &mut Client) -> Option<usize> {
    let (mut piece, mut taken) = (vec![0; 256 << 10], 0);
    loop {
        match client.stream.read(&mut piece) {
            Ok(0) => return None,
            Ok(size) => taken += size,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(taken),
            Err(_) => return None,
        }
    }
}

/// Lets clients read values and take none, until more than half of the common part is held, and more than a quarter is free.
fn hold_by_readers(bench: &mut Bench, key: &[u8]) -> Vec<Client> {
    let mut hogs = Vec::new();
    while bench.shared.memory_budget.free() > (COMMON / 5 * 2) as isize {
        let mut hog = bench.resp(0);
        bench.send(&mut hog, &command(&[b"GET", key]).repeat(10));
        (0..200).for_each(|_| bench.turn_all());
        hogs.push(hog);
        assert!(hogs.len() < 100, "sockets take all replies");
    }
    assert!(!bench.shared.memory_budget.is_tight());
    hogs
}

impl Bench {
    fn turn_all(&mut self) {
        (0..self.shards.len()).for_each(|shard| _ = self.turn(shard));
    }

    pub(super) fn closed(&self) -> u64 {
        (0..self.shards.len()).map(|shard| self.shared.metrics(shard).connections.closed_for_memory.get()).sum()
    }
}

#[test]
fn a_transaction_with_large_replies_does_not_wait_for_slow_readers_although_much_is_free() {
    // On keys of the own shard, of the other one, and of both.
    for (shards, owners) in [(1, &[0][..]), (2, &[0]), (2, &[1]), (2, &[0, 1])] {
        let mut bench = Bench::new(shards, &settings());
        let keys = set_values(&mut bench);
        let hogs = hold_by_readers(&mut bench, &keys[0]);
        let mut client = bench.resp(0);
        let is_visit = owners == [1];
        // A visit holds its replies twice.
        let count = if is_visit { READS / 2 } else { READS };
        let keys: Vec<&[u8]> = owners.iter().map(|&owner: &usize| &keys[owner][..]).collect();
        bench.send(&mut client, &transaction(&keys, count));
        let (begun, mut received, mut held) = (bench.now, 0, 0);
        while received < size(count) {
            bench.turn_or_tick();
            received += take(&mut client).expect("it is served");
            let waits = bench.shared.memory_budget.has_waiting();
            held += usize::from(waits && bench.shards.iter().any(|driven| driven.shard.holds.is_held()));
            let ticks = (bench.now - begun).as_nanos() / TICK.as_nanos();
            assert!(
                ticks < 4 * PROGRESS_TIME.as_nanos() / TICK.as_nanos(),
                "{owners:?} of {shards}: it waits for ever"
            );
        }
        assert!(bench.closed() > 0, "{owners:?} of {shards}: a slow reader was closed");
        assert!(held <= 2, "{owners:?} of {shards}: shards were held in {held} turns while it waited");
        assert!(bench.shared.memory_budget.free() <= COMMON as isize && received == size(count));
        drop(hogs);
    }
}

#[test]
fn transactions_of_several_shards_are_not_admitted_to_the_same_bytes() {
    for (shards, owner_of) in [(1, [0, 0]), (2, [0, 1]), (2, [1, 0]), (2, [1, 1])] {
        let mut bench = Bench::new(shards, &settings());
        let keys = set_values(&mut bench);
        let mut clients: Vec<Client> = (0..8).map(|number| bench.resp(number % usize::from(shards))).collect();
        bench.turn_all();
        for (number, client) in clients.iter_mut().enumerate() {
            let owner = owner_of[number % usize::from(shards)];
            let is_visit = owner != number % usize::from(shards);
            let count = if is_visit { READS / 2 } else { READS };
            bench.send(client, &transaction(&[&keys[owner]], count));
        }
        let (mut waited, mut left) = (0, vec![true; clients.len()]);
        let mut received = vec![0; clients.len()];
        for round in 0.. {
            bench.turn_or_tick();
            let free = bench.shared.memory_budget.free();
            assert!(free >= 0, "{owner_of:?} of {shards}: {free} bytes are free");
            waited += usize::from(bench.shared.memory_budget.has_waiting());
            for (number, client) in clients.iter_mut().enumerate() {
                let owner = owner_of[number % usize::from(shards)];
                let count = if owner == number % usize::from(shards) { READS } else { READS / 2 };
                // None is taken until some do not fit.
                if waited > 0 {
                    received[number] += take(client).expect("it is served");
                }
                left[number] = received[number] < size(count);
            }
            if !left.contains(&true) {
                break;
            }
            assert!(round < 100_000, "{owner_of:?} of {shards}: {left:?} are left");
        }
        assert!(waited > 0, "{owner_of:?} of {shards}: all fitted");
        assert_eq!(bench.closed(), 0);
        let most = bench.shared.memory_budget.used_max() as usize;
        assert!(most <= 64 * MIB, "{owner_of:?} of {shards}: {most} bytes were held");
        // Silent connections return their empty buffers.
        bench.now += 2 * MEMORY_SCAN_TIME;
        let now = bench.now;
        bench.shards.iter_mut().for_each(|driven| driven.tick(now));
        (0..4).for_each(|_| bench.turn_all());
        assert_eq!(bench.shared.memory_budget.batches(), 0);
        assert!(bench.shards.iter().all(|driven| driven.shard.shard_budget.borrowed() == 0));
    }
}

#[test]
fn a_small_transaction_does_not_wait_for_large_requests() {
    let mut bench = Bench::new(1, &settings());
    let keys = set_values(&mut bench);
    let mut small = bench.resp(0);
    bench.ask(&mut small, &command(&[b"SET", b"modest", &vec![b'v'; 100_000]]), 5);
    let (mut other, mut loan) = (ShardBudget::new(bench.shared.memory_budget.clone()), Loan::default());
    other.record(&mut loan, 40 * MIB, 0, 40 * MIB);
    // Each takes more than is free.
    let mut waiting: Vec<Client> = (0..3).map(|_| bench.resp(0)).collect();
    waiting.iter_mut().for_each(|client| bench.send(client, &transaction(&[&keys[0]], READS)));
    for _ in 0..20 {
        (0..5).for_each(|_| bench.turn_all());
        bench.send(&mut small, &transaction(&[b"modest"], 1));
        let turns = bench.turns_until(&mut small, 5 + 9 + 4 + 100_011, 100);
        assert!(turns <= 4, "{turns} turns");
        small.received.clear();
    }
    assert!(bench.shared.memory_budget.has_waiting());
    other.leave(&mut loan, 1 << 40);
    let mut received = [0; 3];
    while received != [size(READS); 3] {
        bench.turn_or_tick();
        for (received, client) in received.iter_mut().zip(&mut waiting) {
            *received += take(client).expect("it is served");
        }
    }
}

#[test]
fn the_queue_of_a_transaction_counts_until_it_is_executed() {
    let mut bench = Bench::new(1, &settings());
    let mut client = bench.resp(0);
    let key = bench.key(0, 0);
    let all = (ShardBudget::new(bench.shared.memory_budget.clone()), Loan::default());
    let (mut other, mut loan) = all;
    // Nothing is free for the replies.
    other.record(&mut loan, COMMON, 0, COMMON);
    // More than a shard keeps in pieces.
    let size = 200_000;
    let echo = command(&[b"ECHO", &vec![b'e'; size]]).repeat(4);
    bench.send(&mut client, &[command(&[b"MULTI"]), command(&[b"SET", &key, b"v"])].concat());
    bench.turns_until(&mut client, 5 + 9, 100);
    other.record(&mut loan, COMMON / 2, 0, COMMON / 2);
    bench.send(&mut client, &echo);
    bench.turns_until(&mut client, 5 + 5 * 9, 1000);
    other.record(&mut loan, COMMON, 0, COMMON);
    bench.send(&mut client, &command(&[b"EXEC"]));
    (0..20).for_each(|_| bench.turn_all());
    let used = bench.shards[0].shard.shard_budget.used();
    assert!(bench.shared.memory_budget.has_waiting() && used >= 4 * size, "{used} of {}", 4 * size);
    other.leave(&mut loan, 1 << 40);
    while client.receive() < 5 + 5 * 9 + 4 + 5 + 4 * (size + 10) {
        bench.turn_or_tick();
    }
    assert!(bench.shards[0].shard.shard_budget.used() < size);
}
