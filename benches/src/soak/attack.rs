//! The attacks: the work of one turn, the number of threads, and the loop that repeats turns until the soak ends.
//!
//! A turn is bounded: it opens connections, misbehaves for a few seconds and closes them. If the server closes a
//! connection, or does not serve it within [`PATIENCE`], the turn ends and counts as failed. Only [`Tally::wrong`]
//! makes the soak fail. The attacks share the processor with the server and the witnesses, so they pause between turns
//! and run at a lower priority.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::resp::{Reply, Resp};
use super::{crowd, fill, flood, monitor};

/// How long a read or write of an attack may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Niceness of the attacking threads: they leave the processor to others.
const NICENESS: i32 = 10;
/// Pause after a turn that failed.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// Most wrong replies that are reported in words.
const WRONG_SHOWN: usize = 5;
/// The key whose value is 1 MiB.
pub(super) const LARGE_KEY: &[u8] = b"large";
/// The key whose value is 200 B.
pub(super) const SMALL_KEY: &[u8] = b"small";

/// The server that is attacked, and the end of the soak.
pub(super) struct Stage {
    pub(super) native: SocketAddr,
    pub(super) resp: SocketAddr,
    pub(super) stop: AtomicBool,
}

/// Statistics of an attack, over all its threads.
#[derive(Default)]
pub(super) struct Tally {
    /// Requests sent, or connections made by those that send none.
    pub(super) operations: AtomicU64,
    /// Turns that ended early, because of the server or of [`PATIENCE`].
    pub(super) failures: AtomicU64,
    pub(super) wrong_count: AtomicU64,
    /// Descriptions of the first wrong replies.
    pub(super) wrong: Mutex<Vec<String>>,
}

/// The context of a turn.
pub(super) struct Turn<'a> {
    pub(super) stage: &'a Stage,
    pub(super) tally: &'a Tally,
    pub(super) random: Xoshiro256PlusPlus,
    /// Index of this thread among those of its attack.
    pub(super) thread: usize,
    /// Number of earlier turns on this thread.
    pub(super) number: usize,
}

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
pub(super) const ATTACKS: [Attack; 13] = [
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
];

impl Stage {
    /// Puts the values that the attacks read, before the stores are full.
    pub(super) fn prepare(&self) -> Result<(), String> {
        let mut resp = Resp::connect(self.resp, Some(PATIENCE)).map_err(|error| error.to_string())?;
        for (space, key, size) in [("0", LARGE_KEY, 1 << 20), ("0", SMALL_KEY, 200), ("1", LARGE_KEY, 1 << 20)] {
            for words in [&[b"SELECT", space.as_bytes()][..], &[b"SET", key, &vec![b'x'; size]]] {
                match resp.call(words) {
                    Ok(Reply::Simple(_)) => {}
                    other => return Err(format!("cannot put {} of {size} B: {other:?}", key.escape_ascii())),
                }
            }
        }
        Ok(())
    }

    /// Returns true if the soak is over.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps for this time, or until the soak is over.
    pub(super) fn pause(&self, time: Duration) {
        let begun = Instant::now();
        while !self.is_over() && begun.elapsed() < time {
            thread::sleep((time - begun.elapsed().min(time)).min(Duration::from_millis(50)));
        }
    }
}

impl Tally {
    /// Counts operations.
    pub(super) fn add(&self, operations: u64) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }

    /// Records a wrong reply.
    pub(super) fn wrong(&self, description: String) {
        self.wrong_count.fetch_add(1, Ordering::Relaxed);
        let mut wrong = self.wrong.lock().expect("a thread that panics ends the soak");
        if wrong.len() < WRONG_SHOWN {
            wrong.push(description);
        }
    }
}

impl Turn<'_> {
    /// Connects to the RESP port.
    pub(super) fn connect(&self) -> Result<Resp, String> {
        Resp::connect(self.stage.resp, Some(PATIENCE)).map_err(|error| error.to_string())
    }
}

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
            tally.failures.fetch_add(1, Ordering::Relaxed);
            stage.pause(FAILURE_PAUSE);
        }
        turn.number += 1;
        stage.pause(Duration::from_millis(attack.pause_ms));
    }
}
