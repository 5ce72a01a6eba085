//! The two buffers of a connection.
//!
//! ```text
//!   input    │ consumed │ bytes that arrived │ zeroed room │ room │
//!                       └▶ consume           └▶ read
//!   output   │ sent │ bytes that wait, in blocks │
//!                   └▶ write                     └▶ append
//! ```
//!
//! Each arrow is under the boundary that the method moves.
//!
//! The input grows only when bytes have filled it, and only as far as the caller says: to the end of a request at once if
//! the memory for it was granted, never because a header promises bytes. Replies are encoded in a buffer that all
//! connections of a shard share, and are sent from there. The output holds only those that the socket did not take, in
//! blocks that are freed as they are sent.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Result, Write};

use crate::limits::{
    EMPTY_INPUT_SIZE_MAX, INPUT_GROWTH_MAX, INPUT_ROOM_MIN, OUTPUT_BLOCK_MAX, OUTPUT_BLOCK_MIN, SPARE_INPUT_SIZE_MAX,
};

/// The result of a read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Bytes that moved.
    pub(crate) size: usize,
    /// The transport may take or give more at once.
    pub(crate) more: bool,
    /// The peer has closed its side.
    pub(crate) ended: bool,
    /// The buffer is full and may not grow.
    pub(crate) full: bool,
}

/// Bytes that arrived and wait to be worked on.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Initialised up to its length; the bytes that arrived are in `start..end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// Returns the bytes that wait.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns the bytes that wait; inline requests lose their quotes in place.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Drops the first `size` bytes.
    pub(crate) fn consume(&mut self, size: usize) {
        self.start += size;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.buffer.truncate(EMPTY_INPUT_SIZE_MAX);
            self.buffer.shrink_to(EMPTY_INPUT_SIZE_MAX);
        }
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns the bytes by which a read of `size_max` bytes may make the buffer grow.
    pub(crate) fn growth_max(&self, size_max: usize) -> usize {
        let needed = self.bytes().len() + size_max + INPUT_ROOM_MIN;
        if needed > self.buffer.capacity() { needed.clamp(INPUT_ROOM_MIN, 2 * self.end + INPUT_GROWTH_MAX) } else { 0 }
    }

    /// Returns the memory that the waiting bytes do not need. Bytes are moved only if others before them were consumed: a
    /// long request calls this with each of its parts, and the allocator shortens a long buffer in place.
    pub(crate) fn fit(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.buffer.truncate(self.end);
        self.buffer.shrink_to_fit();
    }

    /// Reads the bytes that the source has, up to `size_max`; the buffer grows to no more than `capacity_max` bytes. If
    /// these have been `granted` to the request that is arriving, it grows to them at once.
    pub(crate) fn read(
        &mut self,
        mut source: impl Read,
        size_max: usize,
        capacity_max: usize,
        granted: bool,
    ) -> Result<Moved> {
        let mut size = 0;
        while size < size_max {
            self.make_room(size_max - size, capacity_max, granted);
            let end = self.buffer.len().min(self.end + size_max - size);
            let room = &mut self.buffer[self.end..end];
            if room.is_empty() {
                return Ok(Moved { size, more: true, ended: false, full: true });
            }
            match source.read(room) {
                Ok(0) => return Ok(Moved { size, more: false, ended: true, full: false }),
                Ok(count) => {
                    let filled = count == room.len();
                    self.end += count;
                    size += count;
                    if !filled {
                        return Ok(Moved { size, more: false, ended: false, full: false });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Moved { size, more: false, ended: false, full: false });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Moved { size, more: true, ended: false, full: false })
    }

    /// Leaves [`INPUT_ROOM_MIN`] after the bytes, or as much as `capacity_max` allows: by moving them to the front,
    /// else by growing the buffer. Zeroes as much of it as the next read takes, which wants `wanted` bytes.
    fn make_room(&mut self, wanted: usize, capacity_max: usize, granted: bool) {
        if self.buffer.len() - self.end >= INPUT_ROOM_MIN {
            return;
        }
        if self.buffer.capacity() - self.end < INPUT_ROOM_MIN {
            self.compact();
        }
        if self.buffer.capacity() - self.end < INPUT_ROOM_MIN {
            // In whole steps: a few more bytes than ever before do not let it grow again.
            let doubled =
                (self.end + self.end.clamp(INPUT_ROOM_MIN, INPUT_GROWTH_MAX)).next_multiple_of(INPUT_ROOM_MIN);
            let capacity = if granted { capacity_max } else { doubled.min(capacity_max) };
            self.buffer.reserve_exact(capacity.saturating_sub(self.buffer.len()));
        }
        let size = self.buffer.capacity().min(self.end + wanted.max(INPUT_ROOM_MIN));
        if size > self.buffer.len() {
            self.buffer.resize(size, 0);
        }
    }

    /// Moves the bytes to the front. Returns memory that a few bytes do not need.
    fn compact(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.capacity() > SPARE_INPUT_SIZE_MAX && self.end < EMPTY_INPUT_SIZE_MAX {
            self.buffer.truncate(SPARE_INPUT_SIZE_MAX);
            self.buffer.shrink_to(SPARE_INPUT_SIZE_MAX);
        }
    }
}

/// Bytes that wait to leave.
#[derive(Debug, Default)]
pub(crate) struct Output {
    blocks: VecDeque<Vec<u8>>,
    /// Bytes of the first block that were sent.
    sent: usize,
    /// Bytes that wait.
    waiting: usize,
    /// Bytes of all blocks.
    capacity: usize,
}

impl Output {
    /// Returns the bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity + self.blocks.capacity() * size_of::<Vec<u8>>()
    }

    /// Copies bytes to the end.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) {
        self.waiting += bytes.len();
        if let Some(last) = self.blocks.back_mut() {
            let (fitting, rest) = bytes.split_at(bytes.len().min(last.capacity() - last.len()));
            last.extend_from_slice(fitting);
            bytes = rest;
        }
        while !bytes.is_empty() {
            // As much as waits, so that small parts do not become many blocks.
            let size = bytes.len().max(self.waiting - bytes.len()).clamp(OUTPUT_BLOCK_MIN, OUTPUT_BLOCK_MAX);
            let (fitting, rest) = bytes.split_at(bytes.len().min(size));
            let mut block = Vec::with_capacity(size);
            block.extend_from_slice(fitting);
            self.capacity += block.capacity();
            self.blocks.push_back(block);
            bytes = rest;
        }
    }

    /// Writes the first `free` of the waiting bytes and then `bytes`, as far as the sink takes them, and keeps the rest.
    /// If not all that wait are free, there are no `bytes`.
    pub(crate) fn write(&mut self, free: usize, bytes: &[u8], mut sink: impl Write) -> Result<Moved> {
        debug_assert!(free == self.waiting || bytes.is_empty(), "bytes do not overtake those that wait");
        let mut moved = Moved { size: 0, more: true, ended: false, full: false };
        while moved.size < free
            && let Some(block) = self.blocks.front()
        {
            let end = block.len().min(self.sent + free - moved.size);
            let count = write_all(&block[self.sent..end], &mut sink, &mut moved)?;
            self.waiting -= count;
            self.sent += count;
            if self.sent < block.len() {
                break;
            }
            self.capacity -= block.capacity();
            self.sent = 0;
            self.blocks.pop_front();
        }
        let count = if moved.more { write_all(bytes, &mut sink, &mut moved)? } else { 0 };
        self.append(&bytes[count..]);
        if self.waiting == 0 {
            self.blocks = VecDeque::new();
        }
        Ok(moved)
    }
}

/// Writes as many bytes as the sink takes. Returns their number.
fn write_all(bytes: &[u8], sink: &mut impl Write, moved: &mut Moved) -> Result<usize> {
    let mut count = 0;
    while count < bytes.len() && moved.more {
        match sink.write(&bytes[count..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => count += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => moved.more = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    moved.size += count;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Result, Write};

    use super::{EMPTY_INPUT_SIZE_MAX, INPUT_ROOM_MIN, Input, OUTPUT_BLOCK_MAX, Output};

    const READ_MAX: usize = 256 << 10;

    /// Gives and takes `step` bytes a call, `calls` times, then would block.
    struct Socket {
        step: usize,
        calls: usize,
        written: Vec<u8>,
    }

    impl Socket {
        fn call(&mut self) -> Result<usize> {
            self.calls = self.calls.checked_sub(1).ok_or(ErrorKind::WouldBlock)?;
            Ok(self.step)
        }
    }

    impl Read for Socket {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
            let count = self.call()?.min(buffer.len());
            buffer[..count].fill(7);
            Ok(count)
        }
    }

    impl Write for Socket {
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            let count = self.call()?.min(bytes.len());
            self.written.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    fn socket(step: usize, calls: usize) -> Socket {
        Socket { step, calls, written: Vec::new() }
    }

    #[test]
    fn input_grows_with_what_arrives_only() {
        let mut input = Input::default();
        let moved = input.read(socket(100, 1), READ_MAX, usize::MAX, false).unwrap();
        assert_eq!((moved.size, moved.more, input.bytes().len()), (100, false, 100));
        assert!(input.capacity() <= INPUT_ROOM_MIN);
        let moved = input.read(socket(1 << 20, 100), READ_MAX, usize::MAX, false).unwrap();
        assert_eq!((moved.more, moved.size), (true, READ_MAX));
        assert!(input.capacity() <= 2 * (input.bytes().len() + INPUT_ROOM_MIN));
        assert!(input.bytes().iter().all(|&byte| byte == 7));
        input.consume(input.bytes().len() - 1);
        assert_eq!(input.bytes(), [7]);
        input.consume(1);
        assert!(input.bytes().is_empty() && input.capacity() <= EMPTY_INPUT_SIZE_MAX);
    }

    #[test]
    fn input_grows_in_steps() {
        let mut input = Input::default();
        let mut capacities = Vec::new();
        for waiting in (100..INPUT_ROOM_MIN).step_by(100) {
            input.read(socket(waiting, 1), READ_MAX, usize::MAX, false).unwrap();
            // The next read finds these bytes.
            input.read(socket(1, 1), READ_MAX, usize::MAX, false).unwrap();
            input.consume(waiting + 1);
            capacities.push(input.capacity());
        }
        capacities.dedup();
        assert!(capacities.len() <= 2, "{capacities:?}");
    }

    #[test]
    fn an_input_grows_once_to_what_was_granted() {
        const SIZE: usize = 1 << 20;
        let mut input = Input::default();
        input.read(socket(100, 1), READ_MAX, usize::MAX, false).unwrap();
        while input.bytes().len() < SIZE {
            input.read(socket(100_000, 1), READ_MAX, SIZE, true).unwrap();
            assert_eq!(input.capacity(), SIZE);
            let zeroed = input.buffer.len() - input.bytes().len();
            assert!(zeroed <= READ_MAX, "no more than a read takes");
        }
        assert!(input.bytes().iter().all(|&byte| byte == 7));
    }

    #[test]
    fn output_keeps_the_order_of_what_waits() {
        let mut output = Output::default();
        let mut expected = Vec::new();
        let mut sink = socket(0, 0);
        for turn in 1..100_u8 {
            let reply = vec![turn; 50];
            expected.extend_from_slice(&reply);
            (sink.step, sink.calls) = (usize::from(turn), 1);
            let moved = output.write(output.waiting(), &reply, &mut sink).unwrap();
            assert!(moved.size <= usize::from(turn));
        }
        (sink.step, sink.calls) = (usize::MAX, 100);
        assert!(output.write(output.waiting(), b"end", &mut sink).unwrap().more);
        expected.extend_from_slice(b"end");
        assert_eq!((output.waiting(), output.capacity(), sink.written), (0, 0, expected));
    }

    #[test]
    fn input_grows_no_further_than_allowed() {
        let mut input = Input::default();
        for allowed in [0, 100, 5000, 100_000] {
            let moved = input.read(socket(1 << 20, 100), READ_MAX, allowed, false).unwrap();
            assert!(moved.full && moved.more);
            assert_eq!((input.bytes().len(), input.capacity()), (allowed, allowed));
        }
        input.consume(100_000);
        input.fit();
        assert_eq!(input.capacity(), 0);
    }

    #[test]
    fn an_input_returns_the_memory_that_its_bytes_do_not_need() {
        let mut input = Input::default();
        input.read(socket(100_000, 100), READ_MAX, usize::MAX, false).unwrap();
        let before = input.bytes().len();
        input.fit();
        assert_eq!((input.capacity(), input.bytes().len()), (before, before));
        input.consume(before / 2);
        input.fit();
        assert_eq!(input.capacity(), before - before / 2);
        assert!(input.bytes().iter().all(|&byte| byte == 7));
    }

    #[test]
    fn output_holds_about_what_waits() {
        let mut output = Output::default();
        for size in [1, 10, 1000, 100_000, 1_000_000] {
            for _ in 0..50 {
                output.append(&vec![7; size]);
                assert!(output.capacity() <= 2 * output.waiting() + OUTPUT_BLOCK_MAX.min(2 * output.waiting()) + 4096);
            }
        }
        while output.waiting() > 0 {
            output.write(output.waiting(), &[], socket(100_000, 1)).unwrap();
            assert!(output.capacity() <= 2 * output.waiting() + 2 * OUTPUT_BLOCK_MAX + 4096);
        }
        assert_eq!(output.capacity(), 0);
    }
}
