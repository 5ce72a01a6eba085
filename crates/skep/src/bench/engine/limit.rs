//! The limit: the rate at which one core reaches random lines, with the same prefetches and no other work.
//!
//! A bare loop over a region of the same size touches the lines that an ideal store would touch for the case. It
//! touches one line, then several adjacent lines. The address of the adjacent lines is only known when the first line
//! has arrived.
//!
//! ```text
//! batch   prefetch every first line │ read each, prefetch its pair │ change some pairs, read the others
//! ```
//!
//! The positions of the lines, and the number of changed ones, are drawn before the clock runs. The changed ones are
//! first, because a branch that cannot be predicted is not part of a limit.

use std::time::{Duration, Instant};

use skep_measure::Work;
use skep_store::memory::{LINE_SIZE, LocalMemory, Memory, Pointer, UNIT_SIZE};

/// The lines that an ideal store touches for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ideal {
    /// Lines of a pair outside its bucket. They are adjacent, and the bucket holds their address. Zero for inline
    /// pairs.
    pub(super) dependent_lines: u64,
    /// Number of operations, in 256, that change what they read.
    pub(super) writes_in_256: u16,
}

impl Ideal {
    /// Returns the number of lines of an operation.
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
    /// Touches the region and fills it. All lines differ, as those of a store do: a host may merge pages of zeros into
    /// one.
    pub(super) fn new(memory: LocalMemory, random: &mut impl FnMut() -> u64) -> Self {
        memory.prefault();
        let line_count = memory.size() / LINE_SIZE as u64;
        for line in 0..line_count {
            memory.with_line(Pointer::to_line(line), |line| line.0[8..16].copy_from_slice(&random().to_le_bytes()));
        }
        BareLoop { memory, line_count }
    }

    /// Runs batches over random lines, for at least this time.
    pub(super) fn run(&self, ideal: Ideal, batch: usize, at_least: Duration, random: &mut impl FnMut() -> u64) -> Work {
        let mut work = Work::default();
        let mut checksum = 0;
        let mut first = vec![Pointer::new(0); batch];
        let mut second = first.clone();
        while work.spent < at_least {
            let mut write_count = 0;
            for index in 0..batch {
                first[index] = self.line(random(), 1);
                second[index] = self.line(random(), ideal.dependent_lines.max(1));
                write_count += usize::from(random() & 0xff < u64::from(ideal.writes_in_256));
            }
            let begun = Instant::now();
            checksum ^= self.touch(ideal.dependent_lines as u32, &first, &mut second, write_count);
            work.add(begun.elapsed(), batch);
        }
        std::hint::black_box(checksum);
        work
    }

    /// Runs batches over random lines among the first `line_count`, for at least this time. After each line it does
    /// `steps` steps of work that touches no memory. Each step depends on the one before.
    pub(super) fn run_with_work(
        &self,
        steps: u32,
        line_count: u64,
        batch: usize,
        at_least: Duration,
        random: &mut impl FnMut() -> u64,
    ) -> Work {
        let mut work = Work::default();
        let mut checksum = 0;
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
                let mut word = self.access(std::slice::from_ref(line), 1, false);
                for _ in 0..steps {
                    word = (word ^ word >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                }
                checksum ^= word;
            }
            work.add(begun.elapsed(), batch);
        }
        std::hint::black_box(checksum);
        work
    }

    /// Returns the number of lines in the region.
    pub(super) fn line_count(&self) -> u64 {
        self.line_count
    }

    fn touch(&self, dependent_lines: u32, first: &[Pointer], second: &mut [Pointer], write_count: usize) -> u64 {
        for pointer in first {
            self.memory.prefetch_line(*pointer);
        }
        if dependent_lines == 0 {
            let (written, read) = first.split_at(write_count);
            return self.access(written, 1, true) ^ self.access(read, 1, false);
        }
        let pair_size = dependent_lines as usize * LINE_SIZE;
        for (pointer, pair) in first.iter().zip(second.iter_mut()) {
            // The first byte of every line is zero, which the compiler cannot know. The address of the pair therefore
            // depends on the line.
            let zero = self.memory.with_line(*pointer, |line| line.0[0]);
            *pair = Pointer::new(pair.unit() + u32::from(zero));
            self.memory.prefetch(pair.span(pair_size));
        }
        let (written, read) = second.split_at(write_count);
        self.access(written, dependent_lines, true) ^ self.access(read, dependent_lines, false)
    }

    /// Reads a word of every line of the pairs, and increments it if `write` is true. A pair has `line_count` lines.
    #[inline]
    fn access(&self, pairs: &[Pointer], line_count: u32, write: bool) -> u64 {
        const UNITS: u32 = (LINE_SIZE / UNIT_SIZE) as u32;
        let mut checksum = 0;
        for pair in pairs {
            for line in 0..line_count {
                checksum ^= self.memory.with_line(Pointer::new(pair.unit() + line * UNITS), |line| {
                    let word: [u8; 8] = line.0[8..16].try_into().expect("eight bytes");
                    let word = u64::from_le_bytes(word);
                    if write {
                        line.0[8..16].copy_from_slice(&word.wrapping_add(1).to_le_bytes());
                    }
                    word
                });
            }
        }
        checksum
    }

    /// Returns a random line that is followed by `line_count - 1` more.
    fn line(&self, random: u64, line_count: u64) -> Pointer {
        Pointer::to_line(((u128::from(random) * u128::from(self.line_count - line_count)) >> 64) as u64)
    }
}
