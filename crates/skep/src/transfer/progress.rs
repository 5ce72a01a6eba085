//! The progress of an import or an export, on standard error: a bar on a terminal, else a line every ten seconds.
//!
//! From the first progress on, a thread waits for a signal that ends the program, until its end. It removes a file that
//! has not all pairs, and prints a line, which tells how to continue.

use std::fmt::Write;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// What the progress is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Keys,
}

/// The progress. Dropping it ends the display.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    counts: Arc<Counts>,
    lines: Option<(Sender<()>, JoinHandle<()>)>,
}

/// The state that a signal finds.
struct AtSignal {
    /// The progress that is shown.
    shown: Option<(ProgressBar, Arc<Counts>)>,
    /// A file that is removed.
    part: Option<PathBuf>,
}

static AT_SIGNAL: Mutex<AtSignal> = Mutex::new(AtSignal { shown: None, part: None });

/// The numbers that a line shows.
#[derive(Debug)]
struct Counts {
    name: &'static str,
    unit: Unit,
    total: Option<u64>,
    begun: Instant,
    position: AtomicU64,
    keys: AtomicU64,
    /// The flag that continues from here.
    resume: Mutex<String>,
}

impl Progress {
    /// Shows the beginning. The total of a pipe is not known.
    pub(crate) fn start(name: &'static str, unit: Unit, total: Option<u64>) -> Progress {
        let counts = Arc::new(Counts {
            name,
            unit,
            total,
            begun: Instant::now(),
            position: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            resume: Mutex::default(),
        });
        let template = match (unit, total) {
            (Unit::Bytes, Some(_)) => {
                "{prefix} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left {msg}"
            }
            (Unit::Bytes, None) => "{prefix} {binary_bytes} {binary_bytes_per_sec} {msg}",
            (Unit::Keys, Some(_)) => "{prefix} {wide_bar} {human_pos}/{human_len} keys {per_sec} {eta} left",
            (Unit::Keys, None) => "{prefix} {human_pos} keys {per_sec}",
        };
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        let bar = bar.with_style(ProgressStyle::with_template(template).expect("the template is valid"));
        let (bar, lines) = (bar.with_prefix(name), (!io::stderr().is_terminal()).then(|| print_lines(counts.clone())));
        end_by_signals();
        at_signal().shown = Some((bar.clone(), counts.clone()));
        Progress { bar, counts, lines }
    }

    /// Sets how much is done, in the unit, and the number of keys.
    pub(crate) fn set(&self, position: u64, keys: u64) {
        self.bar.set_position(position);
        if self.counts.unit == Unit::Bytes && !self.bar.is_hidden() {
            self.bar.set_message(format!("{keys} keys"));
        }
        self.counts.position.store(position, Ordering::Relaxed);
        self.counts.keys.store(keys, Ordering::Relaxed);
    }

    /// Sets the position from which an interrupted run can continue.
    pub(crate) fn set_resume(&self, position: String) {
        *self.counts.resume.lock().unwrap_or_else(PoisonError::into_inner) = position;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Some((stop, thread)) = self.lines.take() {
            drop(stop);
            _ = thread.join();
        }
        at_signal().shown = None;
    }
}

/// Sets the file that is removed if a signal ends the program, or none.
pub(crate) fn remove_at_signal(part: Option<&Path>) {
    end_by_signals();
    at_signal().part = part.map(Path::to_owned);
}

fn at_signal() -> MutexGuard<'static, AtSignal> {
    AT_SIGNAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that ends the program at a signal, if it does not run. Without it, a signal ends the program too.
fn end_by_signals() {
    static START: Once = Once::new();
    START.call_once(|| {
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                end(signal);
            }
        });
    });
}

/// Ends the program because of a signal.
fn end(signal: i32) -> ! {
    let state = at_signal();
    if let Some(part) = &state.part {
        // It can be removed by hand too.
        _ = fs::remove_file(part);
    }
    let resume = state.shown.as_ref().map_or_else(String::new, |(bar, counts)| {
        bar.finish_and_clear();
        counts.resume.lock().unwrap_or_else(PoisonError::into_inner).clone()
    });
    match resume.as_str() {
        "" => eprintln!("skep: interrupted"),
        resume => eprintln!("skep: interrupted: --resume {resume} continues"),
    }
    process::exit(128 + signal)
}

/// Prints lines until the sender is dropped.
fn print_lines(counts: Arc<Counts>) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = channel();
    let thread = thread::spawn(move || {
        while stopped.recv_timeout(LINE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            eprintln!("skep: {}", counts.line(counts.begun.elapsed()));
        }
    });
    (stop, thread)
}

impl Counts {
    /// Describes the progress after a time: how much is done, the rate, and the time that is left.
    fn line(&self, elapsed: Duration) -> String {
        let position = self.position.load(Ordering::Relaxed);
        let rate = position as f64 / elapsed.as_secs_f64().max(0.001);
        let shown = |amount: u64| match self.unit {
            Unit::Bytes => BinaryBytes(amount).to_string(),
            Unit::Keys => amount.to_string(),
        };
        let mut line = format!("{}: {}", self.name, shown(position));
        let mut add = |text: String| line.push_str(&text);
        if let Some(total) = self.total {
            add(format!(" of {} ({:.0} %)", shown(total), 100.0 * position as f64 / total.max(1) as f64));
        }
        add(match self.unit {
            Unit::Bytes => format!(", {} keys, {}/s", self.keys.load(Ordering::Relaxed), shown(rate as u64)),
            Unit::Keys => format!(" keys, {}/s", shown(rate as u64)),
        });
        if let Some(total) = self.total.filter(|_| rate > 0.0) {
            let left = Duration::from_secs((total.saturating_sub(position) as f64 / rate) as u64);
            add(format!(", {} left", humantime::format_duration(left)));
        }
        let resume = self.resume.lock().unwrap_or_else(PoisonError::into_inner);
        if !resume.is_empty() {
            write!(line, "; if it is interrupted, --resume {resume} continues").expect("a String takes every text");
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_rate_and_the_time_that_is_left() {
        let counts = |unit, total| Counts {
            name: "importing",
            unit,
            total,
            begun: Instant::now(),
            position: AtomicU64::new(1 << 20),
            keys: AtomicU64::new(70),
            resume: Mutex::new("64".to_owned()),
        };
        let line = |unit, total| counts(unit, total).line(Duration::from_secs(16));
        let known = line(Unit::Bytes, Some(4 << 20));
        let expected = "importing: 1.00 MiB of 4.00 MiB (25 %), 70 keys, 64.00 KiB/s, 48s left; if it is interrupted, \
                        --resume 64 continues";
        assert_eq!(known, expected);
        assert!(line(Unit::Bytes, None).starts_with("importing: 1.00 MiB, 70 keys, 64.00 KiB/s; if"));
        assert!(line(Unit::Keys, Some(1 << 20)).contains("1048576 of 1048576 (100 %) keys, 65536/s, 0s left"));
    }
}
