//! The limit: how fast one core reaches random lines, with the same prefetching and nothing else to do.
//!
//! A bare loop over a region of the same size touches the lines that an ideal store would touch for the case: one line,
//! and behind it, at an address that is only known when the line is there, one run of lines more.
//!
//! ```text
//! batch   prefetch every first line │ read each, prefetch its run │ change some runs, read the others
//! ```
//!
//! Where the lines lie and how many are changed is drawn before the clock runs. Those that are changed come first: a
//! branch that cannot be predicted would be no part of a limit.

use std::time::{Duration, Instant};

use skep_measure::Work;
use skep_store::memory::{LINE_SIZE, LocalMemory, Memory, Pointer, UNIT_SIZE};

use super::measure::Effort;

/// What an ideal store touches for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ideal {
    /// Lines of a pair outside its bucket: adjacent, at an address that the bucket holds. Zero for inline pairs.
    pub(super) dependent_lines: u64,
    /// Of 256 operations, those that change what they read.
    pub(super) writes_in_256: u16,
}

impl Ideal {
    /// Returns the lines of an operation.
    pub(super) fn lines(&self) -> u64 {
        1 + self.dependent_lines
    }
}

/// The region of the bare loop.
pub(super) struct BareLoop {
    memory: LocalMemory,
    line_count: u64,
}

impl BareLoop {
    /// A region that is touched. Its lines differ, as those of a store do: whoever runs this machine may keep pages of
    /// zeros in one place.
    pub(super) fn new(memory: LocalMemory, random: &mut impl FnMut() -> u64) -> Self {
        memory.prefault();
        let line_count = memory.size() / LINE_SIZE as u64;
        for line in 0..line_count {
            memory.with_line(Pointer::to_line(line), |line| line.0[8..16].copy_from_slice(&random().to_le_bytes()));
        }
        BareLoop { memory, line_count }
    }

    /// Warms the loop up and measures a slice of it. Returns operations per second.
    pub(super) fn rate(&self, ideal: Ideal, effort: Effort, random: &mut impl FnMut() -> u64) -> f64 {
        let run = |at_least| Ok::<_, std::convert::Infallible>(self.run(ideal, effort.batch, at_least, random));
        let Ok(work) = effort.times.measure(run);
        work.rate()
    }

    /// Runs batches over random lines, at least for this long.
    fn run(&self, ideal: Ideal, batch: usize, at_least: Duration, random: &mut impl FnMut() -> u64) -> Work {
        let mut work = Work::default();
        let mut witness = 0;
        let mut first = vec![Pointer::new(0); batch];
        let mut second = first.clone();
        while work.spent < at_least {
            let mut write_count = 0;
            for place in 0..batch {
                first[place] = self.line(random(), 1);
                second[place] = self.line(random(), ideal.dependent_lines.max(1));
                write_count += usize::from(random() & 0xff < u64::from(ideal.writes_in_256));
            }
            let begun = Instant::now();
            witness ^= self.touch(ideal.dependent_lines as u32, &first, &mut second, write_count);
            work.add(begun.elapsed(), batch);
        }
        std::hint::black_box(witness);
        work
    }

    /// Runs batches over random lines of the first so many, at least for this long. With each line goes work that touches
    /// no other: so many steps, each dependent on the one before.
    pub(super) fn run_with_work(
        &self,
        steps: u32,
        line_count: u64,
        batch: usize,
        at_least: Duration,
        random: &mut impl FnMut() -> u64,
    ) -> Work {
        let mut work = Work::default();
        let mut witness = 0;
        let mut lines = vec![Pointer::new(0); batch];
        while work.spent < at_least {
            for line in &mut lines {
                *line = Pointer::to_line(((u128::from(random()) * u128::from(line_count)) >> 64) as u64);
            }
            let begun = Instant::now();
            for line in &lines {
                self.memory.prefetch_line(*line);
            }
            for line in &lines {
                let mut word = self.visit(std::slice::from_ref(line), 1, false);
                for _ in 0..steps {
                    word = (word ^ word >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                }
                witness ^= word;
            }
            work.add(begun.elapsed(), batch);
        }
        std::hint::black_box(witness);
        work
    }

    /// Lines of the region.
    pub(super) fn line_count(&self) -> u64 {
        self.line_count
    }

    fn touch(&self, dependent_lines: u32, first: &[Pointer], second: &mut [Pointer], write_count: usize) -> u64 {
        for pointer in first {
            self.memory.prefetch_line(*pointer);
        }
        if dependent_lines == 0 {
            let (written, read) = first.split_at(write_count);
            return self.visit(written, 1, true) ^ self.visit(read, 1, false);
        }
        let run_size = dependent_lines as usize * LINE_SIZE;
        for (pointer, run) in first.iter().zip(second.iter_mut()) {
            // The first byte of every line is zero, which the compiler cannot know: the run's address depends on the line.
            let held = self.memory.with_line(*pointer, |line| line.0[0]);
            *run = Pointer::new(run.unit() + u32::from(held));
            self.memory.prefetch(run.span(run_size));
        }
        let (written, read) = second.split_at(write_count);
        self.visit(written, dependent_lines, true) ^ self.visit(read, dependent_lines, false)
    }

    /// Reads a word of every line of the runs, and stores another if they are to be changed.
    #[inline]
    fn visit(&self, runs: &[Pointer], line_count: u32, write: bool) -> u64 {
        const UNITS: u32 = (LINE_SIZE / UNIT_SIZE) as u32;
        let mut witness = 0;
        for run in runs {
            for line in 0..line_count {
                witness ^= self.memory.with_line(Pointer::new(run.unit() + line * UNITS), |line| {
                    let word: [u8; 8] = line.0[8..16].try_into().expect("eight bytes");
                    let word = u64::from_le_bytes(word);
                    if write {
                        line.0[8..16].copy_from_slice(&word.wrapping_add(1).to_le_bytes());
                    }
                    word
                });
            }
        }
        witness
    }

    /// A random line with `run` lines from it on.
    fn line(&self, random: u64, run: u64) -> Pointer {
        Pointer::to_line(((u128::from(random) * u128::from(self.line_count - run)) >> 64) as u64)
    }
}
