//! A thousand connections to one server at full load: half of them work, half are slow or silent, and connections of
//! both halves are reset all the time.
//!
//! ```text
//!                 ┌─ 500 workers: batches of 16 SETs and GETs, one in flight on each, every reply compared
//!  skep serve ◀───┼─ 250 slow readers: request 256 KiB, read 1 KiB at a time
//!  two shards     ├─ 250 silent ones: send nothing, or half a request
//!                 └─ ten of the thousand are reset and opened again every second
//! ```
//!
//! The workers first run alone (the calm phase), then beside the others (the crowded phase). They always wait for
//! replies only, so the server is at full load in both phases. A worker that is reset forgets its batch; the others must
//! not notice.

mod idlers;
mod report;
mod workers;

pub use report::Report;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skep_measure::Progress;

use self::idlers::Idlers;
use self::workers::Workers;
use crate::soak::Server;

/// Connections that work.
const WORKERS: usize = 500;
/// Connections that read slowly.
const SLOW: usize = 250;
/// Connections that send nothing or half a request.
const SILENT: usize = 250;
/// Time between two resets among the workers, and among the others. Together they reset a tenth of all connections in
/// ten seconds.
const RESET_INTERVAL: Duration = Duration::from_millis(200);
/// Time between two samples of the server's memory.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The server program and the duration of a run.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// Duration of the crowded phase. The calm phase takes a fifth of it.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    pub skep: PathBuf,
    /// Fail also if latencies are more than twice those of the calm phase, or memory grows.
    #[arg(long)]
    pub judge: bool,
    /// Set to true to end the run early, so that the server is stopped before this program ends.
    #[arg(skip)]
    pub interrupted: Arc<AtomicBool>,
}

/// Runs both phases. An error says why they could not begin or end.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    let crowded_time = Duration::from_secs(plan.seconds);
    let calm_time = crowded_time / 5;
    progress.expect(calm_time.as_secs_f64() + crowded_time.as_secs_f64());
    progress.begin("calm phase", calm_time.as_secs_f64());
    let mut server = Server::start(&plan.skep)?;
    let failed = |error: std::io::Error| format!("cannot connect: {error}");
    let mut workers = Workers::connect(server.resp, WORKERS).map_err(failed)?;
    let calm = workers.run(calm_time, None, &plan.interrupted)?;
    progress.begin("crowded phase", crowded_time.as_secs_f64());
    let mut idlers = Idlers::connect(server.resp, SLOW, SILENT).map_err(failed)?;
    let is_over = AtomicBool::new(false);
    let (crowded, tally, resident) = thread::scope(|scope| {
        let idling = scope.spawn(|| idlers.run(&is_over));
        let sampling = scope.spawn(|| {
            let (begun, mut resident) = (Instant::now(), Vec::new());
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(SAMPLE_INTERVAL / 10);
                if begun.elapsed() >= SAMPLE_INTERVAL * resident.len() as u32 {
                    resident.push(server.resident_size());
                }
            }
            resident
        });
        let crowded = workers.run(crowded_time, Some(RESET_INTERVAL), &plan.interrupted);
        is_over.store(true, Ordering::Relaxed);
        let panicked = "a thread that panics ends the run";
        (crowded, idling.join().expect(panicked), sampling.join().expect(panicked))
    });
    let (crowded, tally) = (crowded?, tally.map_err(failed)?);
    let end = server.terminate();
    Ok(Report { calm, crowded, idlers: tally, resident, end })
}
