//! The median latency of one put at the level `always`, against the sum of its two parts: a bare write of 4 KiB, and one
//! put at the level `memory`. One connection, one put at a time.
//!
//! A lone flush takes longer if the cores sleep meanwhile. So all three have the same conditions: the work is on the
//! core of the servers, and a thread on the core of the client polls until it is done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use skep_measure::median;

use super::bandwidth::BareFile;
use super::report::{Bar, Row};
use super::{Run, Section};
use crate::keys::{Draw, PairForm};
use crate::process::pin_to_some;
use crate::servers::{Client, Protocol, Server, Source, Template, Verb};

/// Bytes of a bare write: a page, which the log writes for one put.
const WRITE: usize = 4 << 10;
/// The longest latency of a histogram, in nanoseconds, and its significant digits.
const LATENCY_MAX: u64 = 60_000_000_000;
const DIGITS: u8 = 3;
/// The part of a round that warms up.
const WARM_UP: f64 = 0.2;

pub(super) fn run(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let (form, keys) = (PairForm::Random, run.plan.keys);
    let memory = run.skep(form, keys, None)?;
    let always = run.skep(form, keys, Some((&run.folder.empty("latency")?, "always")))?;
    run.load(&memory, form, keys)?;
    run.load(&always, form, keys)?;
    let file = BareFile::new(run.folder.path())?;
    // Medians of each round, in microseconds.
    let samples = run.rounds("latency", 3, usize::MAX).run(run.progress, |turn| match turn.side {
        0 => puts(&always, keys, run.plan.seconds, turn.round as u64),
        1 => writes(&file, run),
        _ => puts(&memory, keys, run.plan.seconds, turn.round as u64),
    })?;
    let p50 = &samples[0];
    let sums: Vec<f64> = p50[1].iter().zip(&p50[2]).map(|(write, put)| write + put).collect();
    let name = "p50 of one put: always / (bare write of 4 KiB + memory)".to_owned();
    let mut row = Row::of_ratio(Section::Latency, name, Some(Bar::AtMost(1.5)), &p50[0], &sums);
    let [always, bare, memory] = [0, 1, 2].map(|side| median(&p50[side]));
    row.from = format!("{always:.0} µs / ({bare:.0} µs + {memory:.0} µs)");
    Ok(vec![row])
}

/// Returns the p50 of single puts in microseconds.
fn puts(server: &Server, keys: u64, seconds: f64, seed: u64) -> Result<f64, String> {
    let address = server.address(Protocol::Native).ok_or("the server has no native port")?;
    let template = Template::new(Protocol::Native, Verb::Set, PairForm::Random, 1);
    let mut client = Client::connect(address, template, 1)?;
    let mut source = Source::Drawn(Draw::uniform(Xoshiro256PlusPlus::seed_from_u64(seed), keys));
    client.run(&mut source, Some(Duration::from_secs_f64(seconds * WARM_UP)))?;
    client.latencies = Some(histogram());
    client.run(&mut source, Some(Duration::from_secs_f64(seconds)))?;
    Ok(client.latencies.map_or(0.0, |latencies| microseconds(&latencies, 0.5)))
}

/// Returns the p50 of bare writes in microseconds, while this thread polls.
fn writes(file: &BareFile, run: &Run<'_>) -> Result<f64, String> {
    let is_over = AtomicBool::new(false);
    let cores = &run.setting.server_cores;
    let seconds = run.plan.seconds;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let result = pin_to_some(cores).and_then(|()| write_for(file, seconds));
            is_over.store(true, Ordering::Release);
            result
        });
        poll_until(&is_over)?;
        writer.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
    })
}

fn write_for(file: &BareFile, seconds: f64) -> Result<f64, String> {
    let mut latencies = histogram();
    let mut position = 0;
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < seconds * (1.0 + WARM_UP) {
        let sent_at = Instant::now();
        file.write(position, WRITE)?;
        position += WRITE as u64;
        if begun.elapsed().as_secs_f64() >= seconds * WARM_UP {
            latencies.saturating_record(sent_at.elapsed().as_nanos() as u64);
        }
    }
    Ok(microseconds(&latencies, 0.5))
}

/// Polls as the client does while it waits for a reply.
fn poll_until(is_over: &AtomicBool) -> Result<(), String> {
    let failed = |error| format!("cannot poll: {error}");
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    while !is_over.load(Ordering::Acquire) {
        match epoll::wait(&epoll, spare_capacity(&mut events), Some(&at_once)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Returns a histogram of nanoseconds. A longer latency counts as the longest.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX, DIGITS).expect("these bounds are valid")
}

/// Returns a quantile in microseconds.
pub(super) fn microseconds(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1e3
}
