//! Fuzzes the bytes of a file of Redis or Valkey (RDB).
//!
//! Looks for three faults:
//! 1. a panic
//! 2. a key or value that is longer than a store accepts
//! 3. other entries, or another error, if the file is read byte by byte

use std::io::{self, Read};

use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};
use skep_wire::rdb::{Entry, RdbReader};

/// Reads one byte at a time.
struct ByteByByte<'a>(&'a [u8]);

impl Read for ByteByByte<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = buffer.len().min(1);
        self.0.read(&mut buffer[..size])
    }
}

/// Runs the target.
pub fn run(input: &[u8]) {
    assert_eq!(entries(input), entries(ByteByByte(input)));
}

/// Returns the entries as text, and the error at the end.
fn entries(input: impl Read) -> (Vec<String>, String) {
    let mut found = Vec::new();
    let mut reader = match RdbReader::new(input) {
        Ok(reader) => reader,
        Err(error) => return (found, error.to_string()),
    };
    loop {
        match reader.next_entry() {
            Ok(Some(entry)) => {
                if let Entry::String { key, value, .. } = entry {
                    assert!((1..=KEY_SIZE_MAX).contains(&key.len()) && value.len() <= VALUE_SIZE_MAX);
                }
                found.push(format!("{entry:?}"));
            }
            Ok(None) => return (found, String::new()),
            Err(error) => return (found, error.to_string()),
        }
    }
}
