//! The soak: runs all attacks against one server at once, while two witnesses check that they are not affected.
//!
//! ```text
//!                 ┌─ floods, long pipelines, EXISTS of 1 MiB a million times
//!  skep serve ◀───┼─ slow readers, half requests, unfinished MSETs, churn, garbage
//!  two shards     ├─ both spaces filled until OUT_OF_MEMORY and emptied, by turns
//!  256 + 64 MiB   ├─ INFO, CLIENT LIST, leases that are abandoned
//!  cache: 32 MiB  ├─ costly transactions, patterns, folds, statistics; silent readers, slow senders, large values
//!                 └─ two witnesses, RESP and native: single operations, every reply compared with a model
//! ```
//!
//! 1. The server starts as a child on free ports of the loopback; attacks and witnesses start.
//! 2. Until the time is over, its resident memory is recorded every second. If the server exits, or does not reply to a
//!    witness for 30 s, the soak ends early.
//! 3. The witnesses stop after their last reply. SIGTERM is sent while the attacks continue. Then all threads end and the
//!    report is made.
//!
//! Everything is bounded: threads, connections, the bytes of each connection, and all waits.

mod attack;
mod costly;
mod crowd;
mod fill;
mod flood;
mod monitor;
mod report;
pub(crate) mod resp;
mod server;
mod turn;
mod witness;

pub use report::Report;
pub(crate) use report::is_growing;
pub(crate) use resp::append;
pub(crate) use server::{End, Server};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skep_measure::Progress;

use self::attack::ATTACKS;
use self::turn::{Stage, Tally};
use self::witness::{Protocol, Signals};

/// The longest time without a reply to a witness. After that the server counts as hanging.
const HANG: Duration = Duration::from_secs(30);
/// How often the main thread checks the server and the witnesses.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The server program and the duration of a soak.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// Duration of the soak, without the start and the end.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    pub skep: PathBuf,
    /// Fail also if a witness waits too long (p99 of 20 ms), memory grows, or the server takes 3 s to end.
    #[arg(long)]
    pub judge: bool,
    /// Set to true to end the soak early, so that the server is stopped before this program ends.
    #[arg(skip)]
    pub interrupted: Arc<AtomicBool>,
}

/// Runs the soak. An error says why it could not begin.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    progress.begin("attacking a server", plan.seconds as f64);
    let time = Duration::from_secs(plan.seconds);
    let mut server = Server::start(&plan.skep)?;
    let stage =
        Stage { native: server.native, resp: server.resp, memcached: server.memcached, stop: AtomicBool::new(false) };
    stage.prepare()?;
    let tallies: Vec<Tally> = ATTACKS.iter().map(|_| Tally::default()).collect();
    let signals = [(); 2].map(|()| Signals {
        begun: Instant::now(),
        stop: AtomicBool::new(false),
        ended: AtomicBool::new(false),
        last_reply: AtomicU64::new(0),
    });
    let begun = Instant::now();
    let (mut resident, mut cut, mut end) = (Vec::new(), None, None);
    let mut witnesses = Vec::new();
    thread::scope(|scope| {
        let of = [("RESP", Protocol::Resp, server.resp), ("native", Protocol::Native, server.native)];
        let started: Vec<_> = of
            .into_iter()
            .zip(&signals)
            .map(|((name, protocol, address), signals)| {
                (name, scope.spawn(move || witness::run(protocol, address, protocol as u64, signals)))
            })
            .collect();
        attack::start(scope, &stage, &tallies);
        cut = watch(&mut server, &signals, plan, &mut resident, || begun.elapsed() >= time);
        for signals in &signals {
            signals.stop.store(true, Ordering::Relaxed);
        }
        // Each witness still waits for its last reply, so a missing reply is found in a short soak too.
        let are_finished = || started.iter().all(|(_, witness)| witness.is_finished());
        if cut.is_none() {
            cut = watch(&mut server, &signals, plan, &mut resident, are_finished);
        }
        if cut.is_some() {
            server.kill();
        } else {
            end = Some(server.terminate());
        }
        stage.stop.store(true, Ordering::Relaxed);
        for (name, witness) in started {
            witnesses.push((name, witness.join().expect("a witness does not panic")));
        }
    });
    Ok(Report { time: begun.elapsed(), witnesses, resident, tallies, end, cut })
}

/// Records the server's memory every second until `is_over` returns true. Returns the reason if the soak must end
/// early.
fn watch(
    server: &mut Server,
    signals: &[Signals],
    plan: &Plan,
    resident: &mut Vec<u64>,
    is_over: impl Fn() -> bool,
) -> Option<String> {
    while !is_over() {
        thread::sleep(CHECK_INTERVAL);
        if plan.interrupted.load(Ordering::Relaxed) {
            return Some("interrupted".to_owned());
        }
        if signals[0].begun.elapsed().as_secs() >= resident.len() as u64 {
            resident.push(server.resident_size());
        }
        if let Some(status) = server.exited() {
            return Some(format!("server: ended by itself, {status}"));
        }
        for signals in signals {
            let last = Duration::from_millis(signals.last_reply.load(Ordering::Relaxed));
            // A witness that has ended waits for no reply.
            if !signals.ended.load(Ordering::Relaxed) && signals.begun.elapsed().saturating_sub(last) > HANG {
                return Some(format!("server: no reply to a witness for {HANG:?}, since {last:.1?} after the start"));
            }
        }
    }
    None
}
