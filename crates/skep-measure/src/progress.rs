//! The progress of a program on standard error: the share that is done, the time left, and the present step.
//!
//! A program says what it begins and how long that takes, about, on a machine as fast as those of the saved results:
//!
//! ```text
//! expect(100 s) │ begin("loading", 20 s) │ begin("get, round 1", 0.5 s) │ begin("get, round 2", 0.5 s) │ …
//!                                                        ▼ every few seconds, from a thread of its own
//!                        41% done, 2 min 10 s left: get, round 1
//! ```
//!
//! The steps that are done show how fast this machine is, and correct the time of the others. A step that knows its own
//! share calls [`Progress::advance`]. On a terminal the line is redrawn every second. Elsewhere a new one is printed
//! before ten seconds have passed, also while a step hangs, because the thread that prints does nothing else.

use std::io::{self, IsTerminal};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The time before the first line, so that short runs print none.
const FIRST_LINE: Duration = Duration::from_secs(2);
/// The time between two lines: less than ten seconds, also on a busy machine.
const LINE_INTERVAL: Duration = Duration::from_secs(9);
/// The time between two redraws on a terminal.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);
/// Seconds that are added to those of the first steps, as if they had taken as long as expected: the first steps alone say
/// little about the speed of a machine.
const PRIOR: f64 = 5.0;

/// The progress of a program. Dropping it removes the line from a terminal.
#[derive(Debug)]
pub struct Progress {
    shared: Arc<Shared>,
    ticker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the thread at the end.
    end: Condvar,
    /// The line of a terminal.
    bar: Option<ProgressBar>,
}

/// What a program has said. Times are in seconds; expected ones are those of another machine.
#[derive(Debug)]
struct State {
    /// The expected time of the whole program.
    expected: f64,
    /// The expected time of the steps that are done, and the time that they took here.
    done: f64,
    took: f64,
    step: String,
    step_expected: f64,
    step_share: f64,
    step_begun: Instant,
    is_hidden: bool,
    is_over: bool,
}

impl Progress {
    /// Begins to show progress on standard error.
    pub fn shown() -> Progress {
        let is_terminal = io::stderr().is_terminal();
        let bar = is_terminal.then(|| {
            let style = ProgressStyle::with_template("{wide_bar} {msg}").expect("the template is valid");
            ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr()).with_style(style)
        });
        let mut progress = Progress { shared: Arc::new(Shared::new(bar)), ticker: None };
        let shared = Arc::clone(&progress.shared);
        progress.ticker = Some(thread::spawn(move || shared.show()));
        progress
    }

    /// Returns a progress that is not shown, for tests.
    pub fn hidden() -> Progress {
        Progress { shared: Arc::new(Shared::new(None)), ticker: None }
    }

    /// Adds work to come that takes about this many seconds.
    pub fn expect(&self, seconds: f64) {
        self.shared.state().expected += seconds;
    }

    /// Ends the present step and begins another one, which takes about this many seconds.
    pub fn begin(&self, step: impl Into<String>, seconds: f64) {
        self.shared.state().begin(step.into(), seconds, Instant::now());
    }

    /// Notes the share of the present step that is done.
    pub fn advance(&self, share: f64) {
        self.shared.state().step_share = share;
    }

    /// Shows nothing until the next step begins: a child process shows its own progress.
    pub fn hide(&self) {
        self.shared.state().is_hidden = true;
        if let Some(bar) = &self.shared.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.end.notify_all();
        if let Some(ticker) = self.ticker.take() {
            _ = ticker.join();
        }
        if let Some(bar) = &self.shared.bar {
            bar.finish_and_clear();
        }
    }
}

impl Shared {
    fn new(bar: Option<ProgressBar>) -> Shared {
        Shared { state: Mutex::new(State::new(Instant::now())), end: Condvar::new(), bar }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the state until the program ends.
    fn show(&self) {
        let mut pause = if self.bar.is_some() { REDRAW_INTERVAL } else { FIRST_LINE };
        let mut state = self.state();
        loop {
            let waited = self.end.wait_timeout_while(state, pause, |state| !state.is_over);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_over {
                return;
            }
            if state.is_hidden {
                continue;
            }
            let (share, line) = state.line(Instant::now());
            match &self.bar {
                Some(bar) => {
                    bar.set_position((1000.0 * share) as u64);
                    bar.set_message(line);
                }
                None => {
                    eprintln!("{line}");
                    pause = LINE_INTERVAL;
                }
            }
        }
    }
}

impl State {
    fn new(now: Instant) -> State {
        State {
            expected: 0.0,
            done: 0.0,
            took: 0.0,
            step: "starting".to_owned(),
            step_expected: 0.0,
            step_share: 0.0,
            step_begun: now,
            is_hidden: false,
            is_over: false,
        }
    }

    fn begin(&mut self, step: String, seconds: f64, now: Instant) {
        self.done += self.step_expected;
        self.took += (now - self.step_begun).as_secs_f64();
        self.expected = self.expected.max(self.done + seconds);
        (self.step, self.step_expected, self.step_share, self.step_begun) = (step, seconds, 0.0, now);
        self.is_hidden = false;
    }

    /// Returns the seconds that are left.
    fn left(&self, now: Instant) -> f64 {
        let pace = (self.took + PRIOR) / (self.done + PRIOR);
        let spent = (now - self.step_begun).as_secs_f64();
        let of_step = match self.step_share {
            share if share > 0.0 => spent * (1.0 - share) / share,
            _ => (pace * self.step_expected - spent).max(0.0),
        };
        of_step + pace * (self.expected - self.done - self.step_expected).max(0.0)
    }

    /// Returns the share of the time that has passed, and the line.
    fn line(&self, now: Instant) -> (f64, String) {
        let left = self.left(now).max(1.0);
        let passed = self.took + (now - self.step_begun).as_secs_f64();
        let share = passed / (passed + left);
        (share, format!("{:.0}% done, {} left: {}", 100.0 * share, time(left), self.step))
    }
}

/// Returns a time as text.
fn time(seconds: f64) -> String {
    match seconds.round() as u64 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(begun: Instant, seconds: u64) -> Instant {
        begun + Duration::from_secs(seconds)
    }

    #[test]
    fn the_rest_takes_as_long_as_expected_until_steps_are_done() {
        let begun = Instant::now();
        let mut state = State::new(begun);
        state.expected = 100.0;
        state.begin("loading".to_owned(), 20.0, begun);
        assert_eq!(state.line(begun).1, "0% done, 1 min 40 s left: loading");
        assert_eq!(state.line(after(begun, 10)).1, "10% done, 1 min 30 s left: loading");
        // The step takes longer than expected. It is not known how long.
        assert_eq!(state.line(after(begun, 30)).1, "27% done, 1 min 20 s left: loading");
    }

    #[test]
    fn a_slow_machine_takes_longer_for_the_rest_too() {
        let begun = Instant::now();
        let mut state = State::new(begun);
        state.expected = 100.0;
        state.begin("loading".to_owned(), 20.0, begun);
        state.begin("get".to_owned(), 1.0, after(begun, 45));
        // Twice as long: (45 + 5) / (20 + 5).
        assert_eq!(state.line(after(begun, 45)).1, "22% done, 2 min 40 s left: get");
    }

    #[test]
    fn a_step_that_knows_its_share_knows_its_end() {
        let begun = Instant::now();
        let mut state = State::new(begun);
        state.begin("loading".to_owned(), 2.0, begun);
        state.step_share = 0.25;
        assert_eq!(state.line(after(begun, 10)).1, "25% done, 30 s left: loading");
        // What was not planned is added to the plan.
        state.begin("again".to_owned(), 3.0, after(begun, 40));
        assert_eq!((state.expected, state.done), (5.0, 2.0));
    }

    #[test]
    fn the_end_is_not_delayed() {
        let begun = Instant::now();
        let progress = Progress::shown();
        progress.begin("nothing", 100.0);
        drop(progress);
        assert!(begun.elapsed() < FIRST_LINE);
    }
}
