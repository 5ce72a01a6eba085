//! Lines on standard error that say how much of a measurement is done, and how long the rest takes.

use std::time::{Duration, Instant};

/// The time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The progress of a measurement whose steps take about the same time.
#[derive(Debug)]
pub struct Progress {
    steps: usize,
    done: usize,
    begun: Instant,
    next_line: Instant,
}

impl Progress {
    /// Begins a measurement of this many steps.
    pub fn new(steps: usize) -> Progress {
        let now = Instant::now();
        Progress { steps, done: 0, begun: now, next_line: now + LINE_INTERVAL }
    }

    /// Notes that a step is done. Prints a line if the last one was printed some time ago.
    pub fn step(&mut self) {
        self.done += 1;
        let now = Instant::now();
        if now >= self.next_line && self.done < self.steps {
            self.next_line = now + LINE_INTERVAL;
            eprintln!("{}", self.line(now - self.begun));
        }
    }

    /// Returns the line after this time.
    fn line(&self, spent: Duration) -> String {
        let left = spent.mul_f64((self.steps - self.done) as f64 / self.done as f64);
        format!("measured {} of {}, about {} s left", self.done, self.steps, left.as_secs().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        let mut progress = Progress::new(10);
        (0..4).for_each(|_| progress.step());
        assert_eq!(progress.line(Duration::from_secs(20)), "measured 4 of 10, about 30 s left");
        (0..5).for_each(|_| progress.step());
        assert_eq!(progress.line(Duration::from_millis(900)), "measured 9 of 10, about 1 s left");
    }
}
