//! The limit: how fast one core reaches random lines, with the same prefetching and nothing else to do.
//!
//! A bare loop over a region of the same size touches the lines that an ideal store would touch for the case: one line,
//! and behind it, at an address that is only known when the line is there, one run of lines more.
//!
//! ```text
//! batch   announce every first line │ read each, announce its run │ read or change each run
//! ```

use std::time::{Duration, Instant};

use skep_store::memory::{GRAIN_SIZE, LINE_SIZE, LocalMemory, Pointer};

/// What an ideal store touches for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ideal {
    /// Lines of a pair outside its bucket: adjacent, at an address that the bucket holds. Zero for inline pairs.
    pub(super) dependent_lines: u64,
    /// Of 256 operations, those that change what they read.
    pub(super) writes_in_256: u8,
    /// Whether all are.
    pub(super) all_write: bool,
}

/// The region of the bare loop.
pub(super) struct BareLoop {
    memory: LocalMemory,
    line_count: u64,
}

impl BareLoop {
    /// A region that is touched.
    pub(super) fn new(memory: LocalMemory) -> Self {
        memory.prefault();
        let line_count = skep_store::memory::Memory::size(&memory) / LINE_SIZE as u64;
        BareLoop { memory, line_count }
    }

    /// Runs batches over random lines, at least for this long; how long an operation took on average, in seconds.
    pub(super) fn run(&self, ideal: Ideal, batch: usize, at_least: Duration, random: &mut impl FnMut() -> u64) -> f64 {
        let (mut spent, mut operations, mut witness) = (Duration::ZERO, 0, 0);
        let mut first = vec![Pointer::new(0); batch];
        let mut second = first.clone();
        let mut writes = vec![false; batch];
        while spent < at_least {
            for place in 0..batch {
                first[place] = self.line(random(), 1);
                second[place] = self.line(random(), ideal.dependent_lines.max(1));
                writes[place] = ideal.all_write || random() & 0xff < u64::from(ideal.writes_in_256);
            }
            let begun = Instant::now();
            witness ^= self.touch(ideal, &first, &mut second, &writes);
            spent += begun.elapsed();
            operations += batch;
        }
        std::hint::black_box(witness);
        spent.as_secs_f64() / operations as f64
    }

    fn touch(&self, ideal: Ideal, first: &[Pointer], second: &mut [Pointer], writes: &[bool]) -> u64 {
        use skep_store::memory::Memory;
        let mut witness = 0;
        for pointer in first {
            self.memory.announce(pointer.span(LINE_SIZE));
        }
        if ideal.dependent_lines == 0 {
            for (pointer, write) in first.iter().zip(writes) {
                witness ^= self.visit(*pointer, *write);
            }
            return witness;
        }
        let run_size = ideal.dependent_lines as usize * LINE_SIZE;
        for (pointer, run) in first.iter().zip(second.iter_mut()) {
            // The region holds zeros, which the compiler cannot know: the run's address depends on the line.
            let held = self.memory.with_line(*pointer, |line| line.0[0]);
            *run = Pointer::new(run.grain() + u32::from(held));
            self.memory.announce(run.span(run_size));
        }
        for (run, write) in second.iter().zip(writes) {
            for line in 0..ideal.dependent_lines as u32 {
                let grains = LINE_SIZE as u32 / GRAIN_SIZE as u32;
                witness ^= self.visit(Pointer::new(run.grain() + line * grains), *write);
            }
        }
        witness
    }

    /// Reads a word of a line, and stores it again if it is to be changed.
    fn visit(&self, pointer: Pointer, write: bool) -> u64 {
        self.memory.with_line(pointer, |line| {
            let word: [u8; 8] = line.0[8..16].try_into().expect("eight bytes");
            let word = u64::from_le_bytes(word);
            if write {
                line.0[8..16].copy_from_slice(&(word + 1).to_le_bytes());
            }
            word
        })
    }

    /// A random line with `run` lines from it on.
    fn line(&self, random: u64, run: u64) -> Pointer {
        Pointer::to_line(((u128::from(random) * u128::from(self.line_count - run)) >> 64) as u64)
    }
}
