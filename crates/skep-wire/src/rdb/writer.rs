//! Writes a file of strings with their expiries, in the version of Redis 7.0.
//!
//! A record is built in a buffer of its own and then written, so the memory is that of one pair. Compression is left out: Redis
//! reads plain strings too. No hint about the number of keys is written, since it is not known before the end.

use std::io::{self, Write};

use crc_fast::{CrcAlgorithm, Digest};

use super::string::{write, write_length};
use super::{STRING, WRITTEN_VERSION, opcode};

/// Writes the pairs of a file.
#[derive(Debug)]
pub struct RdbWriter<W> {
    output: W,
    digest: Digest,
    /// The database of the last pair.
    database: Option<u32>,
    /// The record that is written next.
    record: Vec<u8>,
}

impl<W: Write> RdbWriter<W> {
    /// Writes the header.
    pub fn new(output: W) -> io::Result<Self> {
        let digest = Digest::new(CrcAlgorithm::Crc64Redis);
        let record = format!("REDIS{WRITTEN_VERSION:04}").into_bytes();
        let mut writer = RdbWriter { output, digest, database: None, record };
        writer.write_record()?;
        Ok(writer)
    }

    /// Writes a pair. The expiry is in milliseconds since 1970.
    pub fn pair(&mut self, database: u32, key: &[u8], value: &[u8], expiry: Option<i64>) -> io::Result<()> {
        if self.database != Some(database) {
            self.database = Some(database);
            self.record.push(opcode::DATABASE);
            write_length(database, &mut self.record);
        }
        if let Some(expiry) = expiry {
            self.record.push(opcode::EXPIRY_MILLISECONDS);
            self.record.extend_from_slice(&expiry.to_le_bytes());
        }
        self.record.push(STRING);
        write(key, &mut self.record);
        write(value, &mut self.record);
        self.write_record()
    }

    /// Writes the end and the checksum. Returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.record.push(opcode::END);
        self.write_record()?;
        self.output.write_all(&self.digest.finalize().to_le_bytes())?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn write_record(&mut self) -> io::Result<()> {
        self.digest.update(&self.record);
        self.output.write_all(&self.record)?;
        self.record.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::{Entry, RdbReader};

    #[test]
    fn a_written_file_is_read_again() {
        let noise: Vec<u8> = (0..70_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let pairs = [
            (0_u32, &b"a"[..], &b""[..], None),
            (0, b"-7", b"123456", Some(4_000_000_000_123)),
            (1, b"k", &noise[..63], None),
            (1, b"k2", &noise[..64], Some(1)),
            (2, b"k3", &noise[..0x3fff], None),
            (70, b"k4", &noise[..0x4000], None),
            (70_000, b"k5", &noise, None),
            (0, b"k6", b"0123", None),
        ];
        let mut writer = RdbWriter::new(Vec::new()).unwrap();
        for (database, key, value, expiry) in pairs {
            writer.pair(database, key, value, expiry).unwrap();
        }
        let file = writer.finish().unwrap();
        let mut reader = RdbReader::new(&file[..]).unwrap();
        for (database, key, value, expiry) in pairs {
            let expected = Entry::String { database: database.into(), key, value, expiry };
            assert_eq!(reader.next_entry().unwrap(), Some(expected));
        }
        assert_eq!(reader.next_entry().unwrap(), None);
        // The checksum covers all of it.
        let mut damaged = file;
        damaged[12] ^= 1;
        let mut reader = RdbReader::new(&damaged[..]).unwrap();
        assert!((0..9).any(|_| reader.next_entry().is_err()));
    }
}
