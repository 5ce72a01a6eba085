//! The two buffers of a connection.
//!
//! ```text
//!   input    │ used up │ bytes that arrived │ room, already zeroed │        consume ──▶  ◀── read
//!   output   │ sent    │ bytes that wait    │                               write ──▶
//! ```
//!
//! The input grows only when bytes have filled it, never because bytes are announced. Both give memory back after
//! a large request or reply has passed.

use std::io::{ErrorKind, Read, Result, Write};

/// What an input buffer begins with, and the least room a read is given.
const ROOM_MIN: usize = 16 << 10;
/// Bytes that an empty buffer keeps.
const KEPT_SIZE_MAX: usize = 64 << 10;
/// Bytes that a nearly empty buffer keeps: enough for a stream of the largest values.
const SPARE_SIZE_MAX: usize = 4 << 20;

/// What reading or writing came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Bytes that moved.
    pub(crate) size: usize,
    /// Whether the socket may take or give more at once.
    pub(crate) more: bool,
    /// Whether the peer has closed its side.
    pub(crate) ended: bool,
}

/// Bytes that arrived and wait to be worked on.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Initialised as far as it is long; what arrived lies in `start..end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// The bytes that wait.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The bytes that wait; inline requests lose their quotes in place.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Drops the first `size` bytes.
    pub(crate) fn consume(&mut self, size: usize) {
        self.start += size;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.buffer.truncate(KEPT_SIZE_MAX);
            self.buffer.shrink_to(KEPT_SIZE_MAX);
        }
    }

    /// Bytes of memory held.
    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Reads what the source has, up to `size_max`.
    pub(crate) fn read(&mut self, mut source: impl Read, size_max: usize) -> Result<Moved> {
        let mut size = 0;
        while size < size_max {
            self.make_room();
            let end = self.buffer.len().min(self.end + size_max - size);
            let room = &mut self.buffer[self.end..end];
            match source.read(room) {
                Ok(0) => return Ok(Moved { size, more: false, ended: true }),
                Ok(count) => {
                    let filled = count == room.len();
                    self.end += count;
                    size += count;
                    if !filled {
                        return Ok(Moved { size, more: false, ended: false });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Moved { size, more: false, ended: false });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Moved { size, more: true, ended: false })
    }

    /// Leaves at least [`ROOM_MIN`] behind the bytes: by moving them to the front, else by doubling the buffer.
    fn make_room(&mut self) {
        if self.buffer.len() - self.end >= ROOM_MIN {
            return;
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() > SPARE_SIZE_MAX && self.end < KEPT_SIZE_MAX {
            self.buffer.truncate(SPARE_SIZE_MAX);
            self.buffer.shrink_to(SPARE_SIZE_MAX);
        }
        if self.buffer.len() - self.end < ROOM_MIN {
            let size = (2 * self.end).max(ROOM_MIN).max(self.end + ROOM_MIN);
            self.buffer.reserve_exact(size - self.buffer.len());
            self.buffer.resize(size, 0);
        }
    }
}

/// Bytes that wait to leave.
#[derive(Debug, Default)]
pub(crate) struct Output {
    buffer: Vec<u8>,
    sent: usize,
}

impl Output {
    /// Where replies are appended.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.buffer.len() - self.sent
    }

    /// Writes what the sink takes.
    pub(crate) fn write(&mut self, mut sink: impl Write) -> Result<Moved> {
        let mut size = 0;
        let mut more = true;
        while self.waiting() > 0 && more {
            match sink.write(&self.buffer[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent += count;
                    size += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => more = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.waiting() == 0 {
            self.buffer.clear();
            self.buffer.shrink_to(KEPT_SIZE_MAX);
            self.sent = 0;
        } else if self.sent >= self.buffer.len() / 2 {
            // A peer that always leaves something waiting must not make the buffer grow for ever.
            self.buffer.drain(..self.sent);
            self.sent = 0;
        }
        Ok(Moved { size, more, ended: false })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Result, Write};

    use super::{Input, KEPT_SIZE_MAX, Output, ROOM_MIN};

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
        let moved = input.read(socket(100, 1), READ_MAX).unwrap();
        assert_eq!((moved.size, moved.more, input.bytes().len()), (100, false, 100));
        assert!(input.capacity() <= ROOM_MIN);
        let moved = input.read(socket(1 << 20, 100), READ_MAX).unwrap();
        assert_eq!((moved.more, moved.size), (true, READ_MAX));
        assert!(input.capacity() <= 2 * (input.bytes().len() + ROOM_MIN));
        assert!(input.bytes().iter().all(|&byte| byte == 7));
        input.consume(input.bytes().len() - 1);
        assert_eq!(input.bytes(), [7]);
        input.consume(1);
        assert!(input.bytes().is_empty() && input.capacity() <= KEPT_SIZE_MAX);
    }

    #[test]
    fn output_keeps_the_order_of_what_waits() {
        let mut output = Output::default();
        let mut expected = Vec::new();
        let mut sink = socket(0, 0);
        for turn in 1..100_u8 {
            let reply = vec![turn; 50];
            expected.extend_from_slice(&reply);
            output.buffer().extend_from_slice(&reply);
            (sink.step, sink.calls) = (usize::from(turn), 1);
            let moved = output.write(&mut sink).unwrap();
            assert!(moved.size <= usize::from(turn));
        }
        (sink.step, sink.calls) = (usize::MAX, 2);
        assert!(output.write(&mut sink).unwrap().more);
        assert_eq!((output.waiting(), sink.written), (0, expected));
    }
}
