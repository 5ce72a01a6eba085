//! The rounds of a measurement: a table of rows, whose sides are measured in turn, round by round. Every comparison
//! passes through here, so each shows its progress and treats noise in the same way.
//!
//! ```text
//! row "get"   side 0 │ side 1 │ side 2      round 0: every row, every side, each after a warm-up
//! row "put"   side 1 │ side 2 │ side 0      the first side changes from round to round
//!   …
//! row "put"   side 0 │ side 1 │ side 2      further rounds: only of the rows that are still noisy
//! ```
//!
//! A row is noisy if the rounds of one of its sides differ by more than [`SPREAD_MAX`](crate::SPREAD_MAX). Such a row
//! gets more rounds: [`ROUNDS_FACTOR`] times as many at most, and all such rows together take no longer than
//! [`FURTHER_SHARE`] of the planned time. A row that is noisy even then is shown, and marked.

use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;

use crate::{Figure, Progress, Times, Work};

/// How many times as many rounds as planned a noisy row has, at most.
const ROUNDS_FACTOR: usize = 3;
/// The time of all further rounds, as a share of the time of the planned ones.
const FURTHER_SHARE: f64 = 0.25;

/// The rounds of a measurement and the slice of a side in each of them, as programs take them.
#[derive(clap::Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Rounds of every case, each side after a warm-up; a noisy case gets up to three times as many.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=101))]
    pub rounds: usize,
    /// Milliseconds of each measured slice; below 200 the rate of a machine is not steady.
    #[arg(long = "milliseconds", value_name = "N", default_value = "200", value_parser = milliseconds)]
    pub slice: Duration,
}

impl Effort {
    /// Returns the times of a side in a round.
    pub fn times(&self) -> Times {
        Times::for_slice(self.slice)
    }
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().filter(|number| (1..=60_000).contains(number));
    number.map(Duration::from_millis).ok_or_else(|| "write 1 to 60000".to_owned())
}

/// A row: its name, and the number of sides that are measured in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    name: String,
    sides: usize,
}

impl Row {
    /// Returns a row.
    pub fn new(name: impl Into<String>, sides: usize) -> Row {
        Row { name: name.into(), sides }
    }
}

/// One side of a row in one round.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Index of the row.
    pub row: usize,
    /// Index of the side.
    pub side: usize,
    /// Number of the round.
    pub round: usize,
    times: Times,
}

impl Turn {
    /// Warms the side up and measures a slice of it.
    pub fn work<E>(&self, run: impl FnMut(Duration) -> Result<Work, E>) -> Result<Work, E> {
        self.times.measure(run)
    }

    /// Warms the side up and measures a slice of it. Returns the operations per second.
    pub fn rate<E>(&self, run: impl FnMut(Duration) -> Result<Work, E>) -> Result<f64, E> {
        self.work(run).map(Work::rate)
    }
}

/// The result of one side in one round.
pub trait Sample {
    /// Returns the number whose spread decides if the row is noisy.
    fn number(&self) -> f64;
}

impl Sample for f64 {
    fn number(&self) -> f64 {
        *self
    }
}

/// A side that is about to be measured.
#[derive(Clone, Debug)]
pub struct Step {
    /// The row and the round.
    pub name: String,
    /// The share of the planned rounds that is done; 1 in further rounds.
    pub share: f64,
    /// The number of sides, from this one on, that have been added to those that were planned.
    pub further_sides: usize,
}

/// The samples of a measurement: for each row and side, those of all rounds. The sides of a row have equally many.
pub type Samples<T> = Vec<Vec<Vec<T>>>;

/// A measurement that is about to begin.
#[derive(Clone, Debug)]
pub struct Rounds {
    rows: Vec<Row>,
    rounds: usize,
    times: Times,
    /// The expected seconds of a side in a round.
    seconds: f64,
}

impl Rounds {
    /// Prepares the measurement of these rows.
    pub fn new(effort: Effort, rows: Vec<Row>) -> Rounds {
        let times = effort.times();
        Rounds { rows, rounds: effort.rounds, times, seconds: times.expected_seconds() }
    }

    /// Changes the expected time of a side in a round, which is otherwise that of its warm-up and slice.
    pub fn with_seconds(self, seconds: f64) -> Rounds {
        Rounds { seconds, ..self }
    }

    /// Returns the expected time of the planned rounds.
    pub fn expected_seconds(&self) -> f64 {
        self.seconds * (self.rounds * self.rows.iter().map(|row| row.sides).sum::<usize>()) as f64
    }

    /// Measures. A program that has not expected the time before does so here.
    pub fn run<T: Sample, E>(
        &self,
        progress: &Progress,
        measure: impl FnMut(Turn) -> Result<T, E>,
    ) -> Result<Samples<T>, E> {
        let (samples, outcome) = self.run_partly(progress, measure);
        outcome.map(|()| samples)
    }

    /// Measures. If a side fails, the samples until then are still returned; a row may then have none.
    pub fn run_partly<T: Sample, E>(
        &self,
        progress: &Progress,
        measure: impl FnMut(Turn) -> Result<T, E>,
    ) -> (Samples<T>, Result<(), E>) {
        let mut watch = |step: Step| {
            progress.expect(step.further_sides as f64 * self.seconds);
            progress.begin(step.name, self.seconds);
        };
        self.run_watched(&mut watch, measure)
    }

    /// Measures, and calls `watch` before each side. This is for a caller that shows progress itself.
    pub fn run_watched<T: Sample, E>(
        &self,
        watch: &mut dyn FnMut(Step),
        mut measure: impl FnMut(Turn) -> Result<T, E>,
    ) -> (Samples<T>, Result<(), E>) {
        let mut samples: Samples<T> =
            self.rows.iter().map(|row| (0..row.sides).map(|_| Vec::new()).collect()).collect();
        let outcome = self.measure_all(&mut samples, watch, &mut measure);
        for row in &mut samples {
            let complete = row.iter().map(Vec::len).min().unwrap_or(0);
            row.iter_mut().for_each(|side| side.truncate(complete));
        }
        (samples, outcome)
    }

    fn measure_all<T: Sample, E>(
        &self,
        samples: &mut Samples<T>,
        watch: &mut dyn FnMut(Step),
        measure: &mut impl FnMut(Turn) -> Result<T, E>,
    ) -> Result<(), E> {
        let begun = Instant::now();
        for round in 0..self.rounds {
            for row in 0..self.rows.len() {
                let share = (round * self.rows.len() + row) as f64 / (self.rounds * self.rows.len()) as f64;
                let name = format!("{}, round {} of {}", self.rows[row].name, round + 1, self.rounds);
                let mut begin = || watch(Step { name: name.clone(), share, further_sides: 0 });
                self.measure_row(row, samples, &mut begin, measure)?;
            }
        }
        let (planned, begun) = (begun.elapsed(), Instant::now());
        loop {
            let is_noisy = |row: &Vec<Vec<T>>| row.iter().any(|side| figure(side).is_noisy());
            let has_room = |row: &Vec<Vec<T>>| row[0].len() < ROUNDS_FACTOR * self.rounds;
            let noisy: Vec<usize> =
                (0..self.rows.len()).filter(|row| is_noisy(&samples[*row]) && has_room(&samples[*row])).collect();
            if noisy.is_empty() {
                return Ok(());
            }
            let mut further_sides = self.affordable(&noisy, planned, begun.elapsed());
            for row in noisy {
                if begun.elapsed() >= planned.mul_f64(FURTHER_SHARE) {
                    return Ok(());
                }
                let name = format!("{} is noisy, round {}", self.rows[row].name, samples[row][0].len() + 1);
                let mut begin = || {
                    let further_sides = std::mem::take(&mut further_sides);
                    watch(Step { name: name.clone(), share: 1.0, further_sides });
                };
                self.measure_row(row, samples, &mut begin, measure)?;
            }
        }
    }

    /// Returns the number of sides of these rows, or of those for which there is time.
    fn affordable(&self, rows: &[usize], planned: Duration, spent: Duration) -> usize {
        let count = |rows: &mut dyn Iterator<Item = usize>| rows.map(|row| self.rows[row].sides).sum::<usize>();
        let of_planned = self.rounds * count(&mut (0..self.rows.len()));
        let left = planned.mul_f64(FURTHER_SHARE).saturating_sub(spent);
        let affordable = (left.as_secs_f64() / planned.as_secs_f64() * of_planned as f64) as usize;
        count(&mut rows.iter().copied()).min(affordable)
    }

    /// Measures all sides of a row once.
    fn measure_row<T: Sample, E>(
        &self,
        row: usize,
        samples: &mut Samples<T>,
        watch: &mut dyn FnMut(),
        measure: &mut impl FnMut(Turn) -> Result<T, E>,
    ) -> Result<(), E> {
        let sides = self.rows[row].sides;
        let round = samples[row][0].len();
        for side in (0..sides).map(|turn| (turn + round) % sides) {
            watch();
            samples[row][side].push(measure(Turn { row, side, round, times: self.times })?);
        }
        Ok(())
    }
}

/// Returns the figure of the samples of a side.
fn figure<T: Sample>(samples: &[T]) -> Figure {
    Figure::of(&samples.iter().map(Sample::number).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effort(rounds: usize) -> Effort {
        Effort { rounds, slice: Duration::from_micros(40) }
    }

    fn rounds(rounds: usize) -> Rounds {
        Rounds::new(effort(rounds), vec![Row::new("calm", 2), Row::new("noisy", 3)])
    }

    #[test]
    fn all_sides_take_turns_and_the_first_one_changes() {
        let mut turns = Vec::new();
        let samples = rounds(2).run(&Progress::hidden(), |turn| {
            turns.push((turn.round, turn.row, turn.side));
            Ok::<_, ()>(1.0)
        });
        assert_eq!(samples.unwrap(), [vec![vec![1.0; 2]; 2], vec![vec![1.0; 2]; 3]]);
        let first = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 1, 2)];
        let second = [(1, 0, 1), (1, 0, 0), (1, 1, 1), (1, 1, 2), (1, 1, 0)];
        assert_eq!(turns, [first, second].concat());
    }

    #[test]
    fn a_noisy_row_is_measured_longer_and_kept() {
        let measure = |turn: Turn| {
            // The planned rounds last so long that all further ones have time.
            std::thread::sleep(Duration::from_millis(if turn.round < 3 { 20 } else { 0 }));
            Ok::<_, ()>(if turn.row == 1 && turn.side == 2 { [1.0, 2.0, 4.0][turn.round % 3] } else { 1.0 })
        };
        let samples = rounds(3).run(&Progress::hidden(), measure).unwrap();
        assert_eq!(samples[0], vec![vec![1.0; 3]; 2]);
        assert_eq!(samples[1][2].len(), 9, "three times as many");
        assert_eq!(samples[1][0].len(), 9, "ratios are calculated round by round");
    }

    #[test]
    fn a_row_that_is_calm_at_last_is_not_measured_further() {
        let measure = |turn: Turn| {
            std::thread::sleep(Duration::from_millis(if turn.round < 3 { 20 } else { 0 }));
            Ok::<_, ()>(if turn.row == 1 && turn.round == 1 { 3.0 } else { 1.0 })
        };
        let samples = rounds(3).run(&Progress::hidden(), measure).unwrap();
        // One round of five may be disturbed.
        assert_eq!(samples[1][0], [1.0, 3.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn further_rounds_end_with_their_time() {
        let measure = |turn: Turn| {
            std::thread::sleep(Duration::from_millis(1 + 200 * u64::from(turn.round >= 3)));
            Ok::<_, ()>([1.0, 2.0, 4.0][turn.round % 3])
        };
        let samples = rounds(3).run(&Progress::hidden(), measure).unwrap();
        assert_eq!((samples[0][0].len(), samples[1][0].len()), (4, 3));
    }

    #[test]
    fn samples_of_complete_rounds_survive_a_failure() {
        let measure = |turn: Turn| if (turn.round, turn.row, turn.side) == (1, 1, 2) { Err("broken") } else { Ok(1.0) };
        let (samples, outcome) = rounds(2).run_partly(&Progress::hidden(), measure);
        assert_eq!(outcome, Err("broken"));
        assert_eq!(samples, [vec![vec![1.0; 2]; 2], vec![vec![1.0; 1]; 3]]);
    }
}
