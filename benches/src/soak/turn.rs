//! One turn of an attack: the server that it attacks, its statistics and its random numbers.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand_xoshiro::Xoshiro256PlusPlus;

use super::resp::{Reply, Resp};

/// How long a read or write of an attack may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
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
    pub(super) memcached: SocketAddr,
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

    /// Counts a turn, or a part of one, that ended early.
    pub(super) fn fail(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
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
