//! A server that only echoes, for measurements: it replies to each operation of the hash space, and executes none.
//!
//! An ECHO is the upper bound of a transport (HERD, section 3.2). It may read random lines of the store's memory before it
//! replies, with and without HERD's prefetch pipeline (section 4.1.1, Figure 7). The number of each line follows from the
//! content of the one before, as the address of a pair follows from its bucket.
//!
//! ```text
//! with prefetching      stage 1: all requests prefetch line 1 │ stage 2: all read line 1, prefetch line 2 │ … │ reply
//! without               request 1: reads line 1, line 2, …    │ request 2: reads line 1, line 2, …        │ … │ reply
//! ```

use skep_core::operation::{Reply, Request};
use skep_store::memory::{LINE_SIZE, LocalMemory, Memory, Pointer};
use skep_store::processor::Replies;

/// What an echo does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoSettings {
    /// Bytes of the value in each reply; more than 1024 count as 1024.
    pub size: usize,
    /// Random lines that are read for each operation.
    pub accesses: u8,
    /// The lines of all operations of a batch are prefetched.
    pub prefetches: bool,
}

/// Most bytes of a value.
const SIZE_MAX: usize = 1024;
static VALUE: [u8; SIZE_MAX] = [b'e'; SIZE_MAX];

/// An echo, with the numbers of the lines to read.
#[derive(Debug)]
pub(crate) struct Echo {
    settings: EchoSettings,
    lines: Vec<u64>,
    /// The state of the random numbers.
    random: u64,
}

impl Echo {
    pub(crate) fn new(settings: EchoSettings) -> Echo {
        Echo { settings, lines: Vec::new(), random: 1 }
    }

    /// Replies to all requests.
    pub(crate) fn execute(&mut self, requests: &[Request<'_>], memory: &LocalMemory, replies: &mut Replies) {
        let EchoSettings { size, accesses, prefetches } = self.settings;
        let line_count = memory.size() / LINE_SIZE as u64;
        self.lines.clear();
        for _ in requests {
            self.random = mix(self.random);
            self.lines.push(self.random % line_count);
        }
        if prefetches {
            for _ in 0..accesses {
                self.lines.iter().for_each(|line| memory.prefetch_line(Pointer::to_line(*line)));
                self.lines.iter_mut().for_each(|line| *line = next(memory, *line) % line_count);
            }
        } else {
            for line in &mut self.lines {
                (0..accesses).for_each(|_| *line = next(memory, *line) % line_count);
            }
        }
        // The numbers are used, so no read can be left out.
        self.random ^= self.lines.last().copied().unwrap_or(0);
        replies.set_all(requests.len(), Reply::Value(&VALUE[..size.min(SIZE_MAX)]));
    }
}

/// Reads a line. Returns the number of the next one.
fn next(memory: &LocalMemory, line: u64) -> u64 {
    let content = memory.with_line(Pointer::to_line(line), |line| line.0[0]);
    mix(line ^ u64::from(content))
}

/// Returns a random number that follows from this one (SplitMix64).
fn mix(number: u64) -> u64 {
    let mut number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use skep_core::operation::Operation;

    use super::*;

    #[test]
    fn prefetching_reads_the_same_lines_and_all_replies_have_the_size() {
        let memory = LocalMemory::new(1 << 20).unwrap();
        let requests = [Request { key: b"key", operation: Operation::Get }; 100];
        let mut replies = Replies::with_budget(1 << 20);
        let mut lines = Vec::new();
        for prefetches in [false, true] {
            for accesses in [0, 1, 2, 8] {
                let mut echo = Echo::new(EchoSettings { size: 60, accesses, prefetches });
                echo.execute(&requests, &memory, &mut replies);
                assert!(replies.iter().all(|reply| matches!(reply, Reply::Value(value) if value.len() == 60)));
                assert_eq!(replies.len(), requests.len());
                lines.push(echo.lines);
            }
        }
        let prefetched = lines.split_off(lines.len() / 2);
        assert_eq!(lines, prefetched);
        assert!(lines.windows(2).all(|two| two[0] != two[1]), "each access leads to another line");
    }
}
