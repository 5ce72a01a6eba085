//! Warm-up and slice: the two steps in which one side of a comparison is measured.
//!
//! The side is a closure. It works for at least the time that it is given, and returns the work that it has done. That
//! time excludes preparation, such as drawing keys or undoing puts.

use std::time::Duration;

use crate::steady::is_steady;

/// Operations, and the time that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Time without preparation.
    pub spent: Duration,
    /// Operations done in that time.
    pub operations: usize,
}

impl Work {
    /// Adds operations that took this time.
    pub fn add(&mut self, spent: Duration, operations: usize) {
        self.spent += spent;
        self.operations += operations;
    }

    /// Repeats steps until they have taken this time together. A step prepares its operations before it measures them.
    /// Each step has twice as many operations as the step before, so the overhead of a step soon becomes small.
    pub fn of_steps<E>(at_least: Duration, mut step: impl FnMut(usize) -> Result<Work, E>) -> Result<Work, E> {
        let mut work = Work::default();
        let mut operations = STEP_MIN;
        while work.spent < at_least {
            let done = step(operations)?;
            work.add(done.spent, done.operations);
            operations = (2 * operations).min(STEP_MAX);
        }
        Ok(work)
    }

    /// Returns the operations per second.
    pub fn rate(self) -> f64 {
        self.operations as f64 / self.spent.as_secs_f64()
    }
}

/// The durations of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A piece of the warm-up, the unit of the steadiness criterion.
    piece: Duration,
    /// The longest warm-up. A side that is not steady by then is measured anyway, and its spread shows it.
    warm_up_max: Duration,
    /// The time that is measured without a break.
    slice: Duration,
}

/// Operations of the first step, and of the largest step.
const STEP_MIN: usize = 1 << 10;
const STEP_MAX: usize = 1 << 19;
/// The shortest slice of a measurement whose figure is kept.
pub const SLICE: Duration = Duration::from_millis(200);
/// Pieces of a slice.
const PIECES: u32 = 40;
/// The longest piece. With longer pieces the warm-up would last longer than any machine needs.
const PIECE_MAX: Duration = Duration::from_millis(10);
/// Pieces of the longest warm-up.
const WARM_UP_PIECES: u32 = 60;

impl Times {
    /// Returns the times for slices of this length. Slices shorter than [`SLICE`] are for tests, because they end
    /// before the machine has reached its steady rate.
    pub fn for_slice(slice: Duration) -> Self {
        let piece = (slice / PIECES).min(PIECE_MAX);
        Times { piece, warm_up_max: WARM_UP_PIECES * piece, slice }
    }

    /// Returns about how many seconds one side takes: a warm-up, a slice, and as much again for what is not measured.
    pub fn expected_seconds(&self) -> f64 {
        2.0 * self.slice.as_secs_f64()
    }

    /// Warms up one side: runs pieces until their rates are steady, but not longer than the longest warm-up.
    pub fn warm_up<E>(&self, run: &mut impl FnMut(Duration) -> Result<Work, E>) -> Result<(), E> {
        let mut rates = Vec::new();
        let mut spent = Duration::ZERO;
        while spent < self.warm_up_max && !is_steady(&rates) {
            let work = run(self.piece)?;
            // The minimum ends the warm-up of a side that has nothing to do.
            spent += work.spent.max(self.piece);
            rates.push(work.rate());
        }
        Ok(())
    }

    /// Warms up one side and measures a slice of it.
    pub fn measure<E>(&self, mut run: impl FnMut(Duration) -> Result<Work, E>) -> Result<Work, E> {
        self.warm_up(&mut run)?;
        run(self.slice)
    }
}

impl Default for Times {
    fn default() -> Self {
        Times::for_slice(SLICE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a side with these operations per millisecond, one rate for each piece. The last rate repeats.
    fn side<'a>(rates: &'a [usize], asked: &'a mut Vec<Duration>) -> impl FnMut(Duration) -> Result<Work, ()> + 'a {
        let mut calls = 0;
        move |at_least| {
            let rate = rates[calls.min(rates.len() - 1)];
            calls += 1;
            asked.push(at_least);
            Ok(Work { spent: at_least, operations: rate * at_least.as_micros() as usize })
        }
    }

    #[test]
    fn the_warm_up_ends_when_the_rate_is_steady_and_the_slice_counts_alone() {
        let times = Times::default();
        let mut asked = Vec::new();
        let work = times.measure(side(&[17, 25, 33, 41, 50], &mut asked)).unwrap();
        assert_eq!(work, Work { spent: SLICE, operations: 50 * SLICE.as_micros() as usize });
        let (slice, pieces) = asked.split_last().unwrap();
        assert_eq!(*slice, SLICE);
        assert!((16..25).contains(&pieces.len()), "{} pieces", pieces.len());
        assert!(pieces.iter().all(|piece| *piece == Duration::from_millis(5)));
    }

    #[test]
    fn a_rate_that_never_settles_is_measured_after_the_longest_warm_up() {
        let rates: Vec<usize> = (10..1000).map(|piece: usize| piece * piece).collect();
        let mut asked = Vec::new();
        Times::default().measure(side(&rates, &mut asked)).unwrap();
        assert_eq!(asked.len(), 60 + 1);
        assert_eq!(asked[..60].iter().sum::<Duration>(), Duration::from_millis(300));
    }

    #[test]
    fn a_side_with_nothing_to_do_ends() {
        let mut calls = 0;
        let work = Times::default().measure(|_| {
            calls += 1;
            Ok::<_, ()>(Work::default())
        });
        assert_eq!((work, calls), (Ok(Work::default()), 61));
    }

    #[test]
    fn steps_grow_until_they_have_taken_the_time() {
        let mut asked = Vec::new();
        let work = Work::of_steps(Duration::from_micros(5000), |operations| {
            asked.push(operations);
            Ok::<_, ()>(Work { spent: Duration::from_micros(operations as u64), operations })
        });
        assert_eq!(asked, [1024, 2048, 4096]);
        assert_eq!(work, Ok(Work { spent: Duration::from_micros(7168), operations: 7168 }));
    }

    #[test]
    fn an_error_ends_the_warm_up() {
        assert_eq!(Times::default().measure(|_| Err("full")), Err("full"));
    }
}
