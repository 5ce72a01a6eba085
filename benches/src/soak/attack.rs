//! The attacks: the work of one turn, the number of threads, and the loop that repeats turns until the soak ends.
//!
//! A turn is bounded: it opens connections, misbehaves for a few seconds and closes them. If the server closes a
//! connection, or does not serve it within [`super::turn::PATIENCE`], the turn ends and counts as failed. Only [`Tally::wrong`]
//! makes the soak fail. The attacks share the processor with the server and the witnesses, so they pause between turns
//! and run at a lower priority.

use std::thread;
use std::time::Duration;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::turn::{Stage, Tally, Turn};
use super::{costly, crowd, fill, flood, monitor};

/// Niceness of the attacking threads: they leave the processor to others.
const NICENESS: i32 = 10;
/// Pause after a turn that failed.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// An attack.
pub(super) struct Attack {
    pub(super) name: &'static str,
    threads: usize,
    /// Milliseconds between two turns.
    pause_ms: u64,
    run: Run,
}

/// A turn of an attack; the error says why it ended early.
type Run = fn(&mut Turn<'_>) -> Result<(), String>;

const fn attack(name: &'static str, threads: usize, pause_ms: u64, run: Run) -> Attack {
    Attack { name, threads, pause_ms, run }
}

/// All attacks: name, threads, milliseconds between two turns, and one turn.
pub(super) const ATTACKS: [Attack; 21] = [
    attack("flood, RESP", 2, 5, flood::resp),
    attack("flood, native", 2, 5, flood::native),
    attack("long pipelines, written before reading", 1, 500, flood::long_pipeline),
    attack("EXISTS of 1 MiB, a million times", 5, 1000, flood::exists),
    attack("slow readers of 1 MiB", 1, 200, crowd::slow_readers),
    attack("half requests", 1, 100, crowd::half_requests),
    attack("unfinished MSETs", 1, 1000, crowd::unfinished_msets),
    attack("connection churn", 1, 200, crowd::churn),
    attack("garbage", 1, 50, crowd::garbage),
    attack("filling and emptying", 2, 100, fill::fill_and_empty),
    attack("INFO", 1, 0, monitor::info),
    attack("CLIENT LIST", 1, 0, monitor::client_list),
    attack("abandoned leases", 1, 50, monitor::abandoned_leases),
    attack("costly transactions", 1, 200, costly::transactions),
    attack("BITOP of large values", 1, 500, costly::combinations),
    attack("long patterns", 1, 500, costly::patterns),
    attack("administration", 1, 200, costly::administration),
    attack("resets of memcached's statistics", 1, 100, costly::statistics),
    attack("silent readers of 4 MiB", 1, 500, costly::silent_readers),
    attack("slow senders of 1 MiB", 1, 500, costly::slow_senders),
    attack("writers of 1 MiB, well-behaved", 1, 500, costly::large_writers),
];

/// Starts all attacks on threads of the scope.
pub(super) fn start<'scope>(scope: &'scope thread::Scope<'scope, '_>, stage: &'scope Stage, tallies: &'scope [Tally]) {
    for (attack, tally) in ATTACKS.iter().zip(tallies) {
        for thread in 0..attack.threads {
            scope.spawn(move || repeat(attack, stage, tally, thread));
        }
    }
}

/// Repeats the turns of one thread until the soak is over.
fn repeat(attack: &Attack, stage: &Stage, tally: &Tally, thread: usize) {
    // Linux sets the niceness of this thread only. If that fails, the latencies are those of a busier machine.
    _ = rustix::process::nice(NICENESS);
    let random = Xoshiro256PlusPlus::seed_from_u64(thread as u64);
    let mut turn = Turn { stage, tally, random, thread, number: 0 };
    while !stage.is_over() {
        if (attack.run)(&mut turn).is_err() && !stage.is_over() {
            tally.fail();
            stage.pause(FAILURE_PAUSE);
        }
        turn.number += 1;
        stage.pause(Duration::from_millis(attack.pause_ms));
    }
}
