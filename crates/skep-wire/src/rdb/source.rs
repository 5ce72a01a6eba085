//! The bytes of a file, read through a buffer, with their number and their checksum.

use std::fmt;
use std::io::{ErrorKind, Read};

use crc_fast::{CrcAlgorithm, Digest};

use super::RdbError;

const BUFFER_SIZE: usize = 64 << 10;

/// The bytes of a file.
///
/// ```text
/// buffer   │ bytes in the checksum │ bytes that were read │ bytes to be read │
///          0                  summed                   begin               end
/// ```
pub(super) struct Source<R> {
    input: R,
    buffer: Box<[u8]>,
    summed: usize,
    begin: usize,
    end: usize,
    /// Number of bytes before those in the buffer.
    before: u64,
    digest: Digest,
}

impl<R> fmt::Debug for Source<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Source").field("offset", &self.offset()).finish_non_exhaustive()
    }
}

impl<R> Source<R> {
    pub(super) fn new(input: R) -> Self {
        let digest = Digest::new(CrcAlgorithm::Crc64Redis);
        Source { input, buffer: vec![0; BUFFER_SIZE].into(), summed: 0, begin: 0, end: 0, before: 0, digest }
    }

    /// Returns the number of bytes that were read.
    pub(super) fn offset(&self) -> u64 {
        self.before + self.begin as u64
    }

    /// Returns the checksum of the bytes that were read.
    pub(super) fn checksum(&mut self) -> u64 {
        self.digest.update(&self.buffer[self.summed..self.begin]);
        self.summed = self.begin;
        self.digest.finalize()
    }

    /// Returns the error about a fault in the bytes just read.
    pub(super) fn damaged(&self, fault: &'static str) -> RdbError {
        RdbError::Damaged { offset: self.offset(), fault }
    }
}

impl<R: Read> Source<R> {
    /// Reads one byte.
    pub(super) fn byte(&mut self) -> Result<u8, RdbError> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads bytes of a fixed size.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        if let Some(bytes) = self.buffer[self.begin..self.end].first_chunk() {
            self.begin += N;
            return Ok(*bytes);
        }
        let mut bytes = [0; N];
        self.take(&mut bytes)?;
        Ok(bytes)
    }

    /// Fills `bytes` with the next bytes.
    pub(super) fn take(&mut self, bytes: &mut [u8]) -> Result<(), RdbError> {
        let mut filled = 0;
        while filled < bytes.len() {
            let part = self.part((bytes.len() - filled) as u64)?;
            bytes[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
        }
        Ok(())
    }

    /// Reads bytes and appends them. Memory is allocated only for bytes that the file has.
    pub(super) fn append(&mut self, size: usize, bytes: &mut Vec<u8>) -> Result<(), RdbError> {
        let end = bytes.len() + size;
        while bytes.len() < end {
            bytes.extend_from_slice(self.part((end - bytes.len()) as u64)?);
        }
        Ok(())
    }

    /// Passes over bytes.
    pub(super) fn skip(&mut self, size: u64) -> Result<(), RdbError> {
        let mut left = size;
        while left > 0 {
            left -= self.part(left)?.len() as u64;
        }
        Ok(())
    }

    /// Returns true if no byte is left.
    pub(super) fn is_at_end(&mut self) -> Result<bool, RdbError> {
        Ok(self.begin == self.end && !self.fill()?)
    }

    /// Reads one byte or more, but at most `size_max`, which is not 0.
    fn part(&mut self, size_max: u64) -> Result<&[u8], RdbError> {
        if self.begin == self.end && !self.fill()? {
            return Err(RdbError::Truncated { offset: self.offset() });
        }
        let size = ((self.end - self.begin) as u64).min(size_max) as usize;
        self.begin += size;
        Ok(&self.buffer[self.begin - size..self.begin])
    }

    /// Fills the buffer, all of which was read. Returns false if no byte is left.
    fn fill(&mut self) -> Result<bool, RdbError> {
        self.checksum();
        self.before += self.begin as u64;
        (self.summed, self.begin, self.end) = (0, 0, 0);
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(size) => {
                    self.end = size;
                    return Ok(size > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(RdbError::Read(error)),
            }
        }
    }
}
