//! A sequencer and a ticket lock: fetch-and-add on one key by several clients at once (KV-Direct, section 3.2).
//!
//! ```text
//! cargo run --release --example sequencer
//! ```
//!
//! - **Sequencer.** Each client takes numbers from one counter, as many as a batch has. No two get the same, and none is
//!   left out. Without functions, a client gets the counter, and sets the next number if it has not changed.
//! - **Ticket lock.** A client takes a ticket from one counter and waits until another one, of the client that is served,
//!   has come to it. While it holds the lock, it reads a number and writes the next one, in two steps that the server does
//!   not join. If two clients had the lock, numbers would be lost. It is compared with a key: the client that can insert it
//!   has the lock, and removes it afterwards. That is shorter, but only tickets are served in the order of their clients.

mod application;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use application::{
    CountingClient, Options, Target, WAYS, fetch_add, measure, number, on_threads, print_costs, put, unexpected,
};
use clap::Parser;
use skep::{HASH_SPACE, Operation, PutCondition, Reply, Request};

/// Takes numbers from a counter, and locks, with several clients of a Skep server.
#[derive(Parser)]
struct Arguments {
    /// Numbers that each client takes.
    #[arg(long, default_value_t = 100_000)]
    numbers: usize,
    /// Numbers that a client takes with one batch.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    batch: u32,
    /// Numbers that each client takes without functions: one at a time.
    #[arg(long, default_value_t = 2_000)]
    slow_numbers: usize,
    /// How often each client takes the lock.
    #[arg(long, default_value_t = 500)]
    locks: usize,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    application::exit("sequencer", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let target = Target::open(&arguments.options)?;
    let mut clients = target.clients(&arguments.options, HASH_SPACE)?;
    let (counter, slow_counter) = (target.key("sequencer"), target.key("slow"));
    put(&mut clients[0], &slow_counter, &[0; 8])?;
    let (taken, by_functions) = measure(&mut clients, |clients| {
        on_threads(clients, |_, client| take_numbers(client, &counter, arguments.numbers, arguments.batch as usize))
    })?;
    check_numbers(&taken, arguments.numbers)?;
    let (slow, by_clients) = measure(&mut clients, |clients| {
        on_threads(clients, |_, client| take_slowly(client, &slow_counter, arguments.slow_numbers))
    })?;
    check_numbers(&slow, arguments.slow_numbers)?;
    println!("sequencer: {} clients; no number twice, and none left out", clients.len());
    let (numbers, slow_numbers) = (arguments.numbers * clients.len(), arguments.slow_numbers * clients.len());
    for (name, numbers, cost) in [(WAYS[0], numbers, by_functions), (WAYS[1], slow_numbers, by_clients)] {
        let (rate, bytes) = (numbers as f64 / cost.seconds / 1e6, cost.bytes() as f64 / numbers as f64);
        println!("{name}: {rate:.3} million numbers a second, {bytes:.0} bytes for a number");
    }

    let keys = ["next", "served", "shared", "flag", "other"].map(|name| target.key(name));
    let [next, served, shared, flag, other] = &keys;
    for key in [next, served, shared, other] {
        put(&mut clients[0], key, &[0; 8])?;
    }
    let (waits, by_tickets) = measure(&mut clients, |clients| {
        on_threads(clients, |_, client| {
            longest(arguments.locks, || {
                let begun = Instant::now();
                let ticket = take_numbers(client, next, 1, 1)?[0];
                while number(&client.value(served, Operation::Get)?)? != ticket {
                    thread::yield_now();
                }
                let waited = begun.elapsed();
                count(client, shared)?;
                client.done(&[Request { key: served, operation: fetch_add(&ONE, false) }])?;
                Ok(waited)
            })
        })
    })?;
    let (waits_for_key, by_key) = measure(&mut clients, |clients| {
        on_threads(clients, |_, client| {
            longest(arguments.locks, || {
                let begun = Instant::now();
                while !insert(client, flag)? {
                    thread::yield_now();
                }
                let waited = begun.elapsed();
                count(client, other)?;
                client.done(&[Request { key: flag, operation: Operation::Delete }])?;
                Ok(waited)
            })
        })
    })?;
    let locks = (arguments.locks * clients.len()) as u64;
    for key in [shared, other] {
        let counted = number(&clients[0].value(key, Operation::Get)?)?;
        if counted != locks {
            return Err(format!("two clients had the lock at the same time: {counted} of {locks} numbers are left"));
        }
    }
    println!("lock: taken {locks} times by tickets and as often by a key, by one client at a time");
    let longest = |waits: &[Duration]| waits.iter().max().copied().unwrap_or_default();
    println!("longest wait: {:.1?} with tickets, {:.1?} with a key", longest(&waits), longest(&waits_for_key));
    print_costs(["lock by tickets", "lock by a key"], [by_tickets, by_key]);
    application::delete(&mut clients[0], [&counter, &slow_counter, next, served, shared, other].into_iter())
}

/// Takes a lock some times. Returns the longest of the waits.
fn longest(times: usize, mut lock: impl FnMut() -> Result<Duration, String>) -> Result<Duration, String> {
    (0..times).try_fold(Duration::ZERO, |longest, _| Ok(longest.max(lock()?)))
}

const ONE: [u8; 8] = 1_u64.to_le_bytes();

/// Takes numbers by fetch-and-add.
fn take_numbers(client: &mut CountingClient, counter: &[u8], count: usize, batch: usize) -> Result<Vec<u64>, String> {
    let mut taken = Vec::with_capacity(count);
    let requests = vec![Request { key: counter, operation: fetch_add(&ONE, true) }; batch];
    while taken.len() < count {
        client.execute(&requests[..batch.min(count - taken.len())], |_, reply| match reply {
            Reply::Value(value) => {
                taken.push(number(value)?);
                Ok(())
            }
            reply => Err(unexpected(reply)),
        })?;
    }
    Ok(taken)
}

/// Takes numbers by get and compare-and-set.
fn take_slowly(client: &mut CountingClient, counter: &[u8], count: usize) -> Result<Vec<u64>, String> {
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count {
        let mut last = 0;
        client.get_compute_set(&[counter], |_, old| {
            last = number(old.unwrap_or_default())?;
            Ok((last + 1).to_le_bytes().to_vec())
        })?;
        taken.push(last);
    }
    Ok(taken)
}

/// Checks that the numbers of all clients are those from zero on, and that those of each client ascend.
fn check_numbers(taken: &[Vec<u64>], of_each: usize) -> Result<(), String> {
    let mut all = taken.concat();
    all.sort_unstable();
    if !taken.iter().all(|numbers| numbers.is_sorted()) {
        return Err("a client got a number that is lower than its last one".to_owned());
    }
    if !all.iter().copied().eq(0..(of_each * taken.len()) as u64) {
        return Err("a number was given twice, or left out".to_owned());
    }
    Ok(())
}

/// Reads a number and writes the next one, in two steps.
fn count(client: &mut CountingClient, key: &[u8]) -> Result<(), String> {
    let next = number(&client.value(key, Operation::Get)?)? + 1;
    put(client, key, &next.to_le_bytes())
}

/// Inserts a key. Returns false if it exists.
fn insert(client: &mut CountingClient, key: &[u8]) -> Result<bool, String> {
    let mut is_new = false;
    let operation = Operation::Put { value: b"", condition: PutCondition::IfAbsent };
    client.execute(&[Request { key, operation }], |_, reply| {
        is_new = reply == Reply::Done;
        if is_new || reply == Reply::Exists { Ok(()) } else { Err(unexpected(reply)) }
    })?;
    Ok(is_new)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, check_numbers, run};

    #[test]
    fn numbers_and_locks_are_exclusive() {
        for clients in ["1", "4"] {
            let settings = ["--numbers", "5000", "--batch", "64", "--slow-numbers", "50", "--locks", "30"];
            let arguments = ["sequencer", "--clients", clients].into_iter().chain(settings);
            assert_eq!(run(&Arguments::parse_from(arguments)), Ok(()), "{clients} clients");
        }
    }

    #[test]
    fn wrong_numbers_are_found() {
        assert_eq!(check_numbers(&[vec![0, 3], vec![1, 2]], 2), Ok(()));
        for wrong in [[vec![0, 1], vec![1, 2]], [vec![0, 1], vec![3, 4]], [vec![1, 0], vec![2, 3]]] {
            assert!(check_numbers(&wrong, 2).is_err(), "{wrong:?}");
        }
    }
}
