//! Asks the kernel about processes: resident memory, huge pages, processor time, and the cores that they run on. Runs
//! threads on cores of their own.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Returns the resident bytes of this process.
pub fn resident_size() -> u64 {
    resident_size_of("self")
}

/// Returns the resident bytes of a process; 0 if it does not exist.
pub fn resident_size_of(process: &str) -> u64 {
    let pages = fs::read_to_string(format!("/proc/{process}/statm")).ok().and_then(|text| nth_number(&text, 1));
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Returns the bytes of this process in huge pages.
pub fn huge_page_size() -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find(|line| line.starts_with("AnonHugePages:"));
    line.and_then(|line| nth_number(line, 1)).unwrap_or(0) * 1024
}

/// The growth of this process while something was made.
pub(crate) struct Growth {
    /// Resident bytes, at least one.
    pub(crate) resident: f64,
    /// Share of them in huge pages.
    pub(crate) huge_pages: f64,
}

/// Makes something, and returns it with the growth of this process.
pub(crate) fn growth_of<T>(make: impl FnOnce() -> Result<T, String>) -> Result<(T, Growth), String> {
    let (resident, huge) = (resident_size(), huge_page_size());
    let made = make()?;
    let resident = resident_size().saturating_sub(resident).max(1) as f64;
    let huge_pages = huge_page_size().saturating_sub(huge) as f64 / resident;
    Ok((made, Growth { resident, huge_pages }))
}

/// Returns the bytes of memory that the machine has available.
pub fn available_size() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(nth_number(text.lines().find(|line| line.starts_with("MemAvailable:"))?, 1)? * 1024)
}

/// Returns the seconds of processor time of all threads of a process.
pub fn processor_seconds_of(process: &str) -> f64 {
    seconds(&format!("/proc/{process}/stat"), [13, 14])
}

/// Returns the seconds of processor time of this thread.
pub fn processor_seconds_of_thread() -> f64 {
    seconds("/proc/thread-self/stat", [13, 14])
}

/// Returns the seconds of processor time of those child processes that have ended and were waited for.
pub fn processor_seconds_of_children() -> f64 {
    seconds("/proc/self/stat", [15, 16])
}

/// Returns the kernel's setting for huge pages: `always`, `madvise` or `never`.
pub fn huge_page_policy() -> String {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = text.split('[').nth(1).and_then(|rest| rest.split(']').next());
    chosen.unwrap_or("unknown").to_owned()
}

/// The variable that tells mimalloc to use huge pages.
pub const MIMALLOC_HUGE_PAGES: &str = "MIMALLOC_ALLOW_LARGE_OS_PAGES";

/// Executes this program again with [`MIMALLOC_HUGE_PAGES`], unless it is set. The maps allocate with mimalloc, which
/// reads the variable before `main`, and the store has huge pages too.
pub fn with_huge_pages() -> Result<(), String> {
    if std::env::var_os(MIMALLOC_HUGE_PAGES).is_some() {
        return Ok(());
    }
    let error = std::env::current_exe().map_or_else(
        |error| error,
        // Returns only if it fails.
        |program| Command::new(program).args(std::env::args_os().skip(1)).env(MIMALLOC_HUGE_PAGES, "1").exec(),
    );
    Err(format!("cannot start again with {MIMALLOC_HUGE_PAGES}: {error}"))
}

/// Sets a flag on SIGINT and SIGTERM, so that a program can stop its server before it ends.
pub fn catch_signals(flag: &Arc<AtomicBool>) -> Result<(), String> {
    [SIGINT, SIGTERM].into_iter().try_for_each(|signal| {
        let registered = signal_hook::flag::register(signal, Arc::clone(flag));
        registered.map(|_| ()).map_err(|error| format!("cannot wait for signals: {error}"))
    })
}

/// Pins this thread, and the threads and processes that it starts later, to one core.
pub fn pin_to(core: usize) -> Result<(), String> {
    pin_to_some(&[core])
}

/// Pins this thread, and the threads and processes that it starts later, to these cores.
pub fn pin_to_some(cores: &[usize]) -> Result<(), String> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).map_err(|error| format!("cannot run on cores {cores:?}: {error}"))
}

/// Runs each job on a thread of its own, which is pinned to the job's core. A job first makes what is executed, before
/// the clock runs; then all threads execute at once. Returns the sum of what they return, and the time until the last
/// one has ended. There is at least one job.
pub(crate) fn run_on_cores<E: FnMut() -> u64>(
    jobs: Vec<(usize, impl FnOnce() -> E + Send)>,
) -> Result<(u64, Duration), String> {
    let barrier = Barrier::new(jobs.len());
    let outcomes: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = jobs
            .into_iter()
            .map(|(core, prepare)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let pinned = pin_to(core);
                    let mut execute = prepare();
                    barrier.wait();
                    let begun = Instant::now();
                    let sum = execute();
                    pinned.map(|()| (sum, begun, Instant::now()))
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a thread does not panic")).collect()
    });
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, String>>()?;
    let begun = outcomes.iter().map(|outcome| outcome.1).min().expect("there is a thread");
    let ended = outcomes.iter().map(|outcome| outcome.2).max().expect("there is a thread");
    let sum = outcomes.iter().fold(0_u64, |sum, outcome| sum.wrapping_add(outcome.0));
    Ok((sum, ended - begun))
}

/// Returns the cores that this thread may run on.
pub fn cores() -> Result<Vec<usize>, String> {
    let cores = sched_getaffinity(None).map_err(|error| format!("cannot ask for the cores: {error}"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| cores.is_set(core)).collect())
}

/// Returns the sum of two fields of a `stat` file in seconds. Fields are counted from 0.
fn seconds(path: &str, fields: [usize; 2]) -> f64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The second field is a name in parentheses, which may contain spaces.
    let Some((_, rest)) = text.rsplit_once(") ") else { return 0.0 };
    let ticks: u64 = fields.iter().filter_map(|field| nth_number(rest, field - 2)).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

fn nth_number(text: &str, index: usize) -> Option<u64> {
    text.split_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_memory_becomes_resident() {
        let before = resident_size();
        let bytes = std::hint::black_box(vec![1u8; 32 << 20]);
        assert!(resident_size() >= before + (24 << 20));
        assert_eq!(bytes.len(), 32 << 20);
        assert!(available_size().is_some_and(|size| size > 0));
    }

    #[test]
    fn work_takes_processor_time() {
        let before = (processor_seconds_of("self"), processor_seconds_of_thread());
        let mut sum = 0u64;
        while processor_seconds_of_thread() <= before.1 {
            sum = (0..100_000).fold(sum, |sum, number| std::hint::black_box(sum ^ number));
        }
        assert!(processor_seconds_of("self") > before.0, "{sum}");
    }

    #[test]
    fn a_thread_can_be_pinned() {
        std::thread::spawn(|| {
            let first = cores().unwrap()[0];
            pin_to(first).unwrap();
            assert_eq!(cores().unwrap(), [first]);
        })
        .join()
        .unwrap();
    }
}
