//! Files of Redis and Valkey (RDB): a reader of the strings and their expiries, which passes over other values, and a writer
//! of such strings.
//!
//! ```text
//! file      ┌ "REDIS" and four digits, or "VALKEY" and three ┬ records ┬ 255 ┬ checksum, 8 B ┐
//! record    ┌ opcode 107, 243 to 254 ┬ its fields ┐    database, expiry of the next pair, hints for the loader
//!           ┌ type 0 to 25 ┬ key ┬ value     ┐    a pair; type 0 is a string
//!
//! length    00nnnnnn                 n
//!           01nnnnnn  1 B            n, big-endian
//!           10000000  4 B            n, big-endian
//!           10000001  8 B            n, big-endian
//! string    length, and this many bytes; or one of these:
//!           11000000  1 B            a number, little-endian, which stands for its decimal digits
//!           11000001  2 B
//!           11000010  4 B
//!           11000011  size when compressed, size, compressed bytes (LZF)
//! ```
//!
//! - The checksum is CRC-64 with the polynomial of Jones, of all bytes before it. 0 means that there is none, and a file
//!   of a version below 5 ends without it.
//! - The reader keeps one key, one value and one compressed string of the longest sizes that a store has, and a buffer.
//!   Longer strings are passed over. So a wrong size costs no memory.
//! - What follows a checksum is ignored, as Redis does: `redis-cli --rdb - > FILE` adds the mark of its transfer, and others
//!   pad to whole blocks.
//! - A newer version is read as long as its records are known, because a string was never encoded otherwise.
//! - Every loop consumes at least a byte of the file in each turn, so a wrong count ends with the file.

pub mod payload;
mod skip;
mod source;
mod string;
mod writer;

pub use writer::RdbWriter;

use std::io::{self, Read};

use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};

use source::Source;

/// The newest versions of the format whose records this reader knows: that of Redis 8.10, and that of Valkey 9.2.
const REDIS_VERSION: u32 = 15;
const VALKEY_VERSION: u32 = 81;
/// The version that the writer and `DUMP` write: that of Redis 7.0, which later ones read.
const WRITTEN_VERSION: u16 = 10;
/// The oldest version with a checksum.
const CHECKSUM_VERSION_MIN: u32 = 5;

mod opcode {
    /// Of Redis Enterprise: a hint about the memory of the next key.
    pub(super) const RAM_LRU: u8 = 107;
    /// Of Valkey.
    pub(super) const SLOT_IMPORT: u8 = 243;
    /// Of Redis: what modules keep beside the next key.
    pub(super) const KEY_METADATA: u8 = 243;
    pub(super) const SLOT_INFO: u8 = 244;
    pub(super) const FUNCTIONS: u8 = 245;
    /// Of the release candidates of Redis 7.0.
    pub(super) const OLD_FUNCTIONS: u8 = 246;
    pub(super) const MODULE_AUXILIARY: u8 = 247;
    pub(super) const IDLE_TIME: u8 = 248;
    pub(super) const FREQUENCY: u8 = 249;
    pub(super) const AUXILIARY: u8 = 250;
    pub(super) const TABLE_SIZES: u8 = 251;
    pub(super) const EXPIRY_MILLISECONDS: u8 = 252;
    pub(super) const EXPIRY_SECONDS: u8 = 253;
    pub(super) const DATABASE: u8 = 254;
    pub(super) const END: u8 = 255;
}

/// The least number of an opcode. Those below are types of pairs.
const OPCODE_MIN: u8 = 240;

/// The type of a pair whose value is a string.
const STRING: u8 = 0;

/// The reason why a file cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum RdbError {
    /// It is the beginning of an append-only file.
    #[error(
        "it is the base of an append-only file, without the changes after it: run `redis-cli SAVE`, and import dump.rdb"
    )]
    AppendOnlyBase,
    /// The system does not return bytes of the file.
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    /// The first bytes are not those of an RDB file.
    #[error(
        "it is not an RDB file: it begins with neither REDIS nor VALKEY and a version; run `redis-cli SAVE`, and import \
         dump.rdb"
    )]
    NotRdb,
    /// The file ends too early.
    #[error("it is cut off: it ends at byte {offset}, within a record")]
    Truncated {
        /// The size of the file.
        offset: u64,
    },
    /// The bytes contradict the format.
    #[error("it is damaged at byte {offset}: {fault}")]
    Damaged {
        /// Where the fault was found.
        offset: u64,
        /// The fault.
        fault: &'static str,
    },
    /// A record has a type or opcode that the reader does not know. Nothing tells where it ends.
    #[error(
        "the record at byte {offset}{key} has the unknown type {number}: the file has version {version} of the format of \
         {program}; the records of Redis are known up to version {REDIS_VERSION}, and those of Valkey up to {VALKEY_VERSION}"
    )]
    UnknownType {
        /// The type or opcode.
        number: u8,
        /// Where it is.
        offset: u64,
        /// The key of the record with the words before it; empty if it has none.
        key: String,
        /// Redis or Valkey.
        program: &'static str,
        /// The version of the file.
        version: u32,
    },
    /// The checksum is that of other bytes.
    #[error("it is damaged: its checksum is {stored:#018x}, that of its bytes is {computed:#018x}")]
    Checksum {
        /// The checksum at the end of the file.
        stored: u64,
        /// That of its bytes.
        computed: u64,
    },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A key with a string.
    String {
        /// The number of its database.
        database: u64,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// The time at which it expires, in milliseconds since 1970.
        expiry: Option<i64>,
    },
    /// A key with a string, of which one has a size that no store accepts.
    OutOfBounds {
        /// The number of its database.
        database: u64,
        /// The key; empty if it is too long.
        key: &'a [u8],
        /// The size of the key.
        key_size: u64,
        /// The size of the value.
        value_size: u64,
        /// The time at which it expires, in milliseconds since 1970.
        expiry: Option<i64>,
    },
    /// A part that is not a string, and that the reader has passed over.
    Other(Kind),
}

/// What is not a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A key with a list.
    List,
    /// A key with a set.
    Set,
    /// A key with a sorted set.
    SortedSet,
    /// A key with a hash.
    Hash,
    /// A key with a stream.
    Stream,
    /// A key with a value of a module.
    Module,
    /// A library of functions.
    Functions,
}

/// Reads the entries of a file.
#[derive(Debug)]
pub struct RdbReader<R> {
    source: Source<R>,
    is_valkey: bool,
    version: u32,
    database: u64,
    is_at_end: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    /// A string before it is decompressed.
    compressed: Vec<u8>,
}

impl<R: Read> RdbReader<R> {
    /// Reads the header. The reader has a buffer of its own.
    pub fn new(input: R) -> Result<Self, RdbError> {
        let mut source = Source::new(input);
        let header: [u8; 9] = source.array().map_err(|error| match error {
            RdbError::Truncated { .. } => RdbError::NotRdb,
            error => error,
        })?;
        let (is_valkey, digits) = match &header {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => (false, &digits[..]),
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => (true, &digits[..]),
            _ => return Err(RdbError::NotRdb),
        };
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(RdbError::NotRdb);
        }
        let version = digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        Ok(RdbReader {
            source,
            is_valkey,
            version,
            database: 0,
            is_at_end: false,
            key: Vec::new(),
            value: Vec::new(),
            compressed: Vec::new(),
        })
    }

    /// Returns the number of bytes that were read as records.
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// Reads the next entry. Returns nothing after the last one, if the checksum is right.
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>, RdbError> {
        let mut expiry = None;
        while !self.is_at_end {
            match self.source.byte()? {
                opcode::END => self.end()?,
                opcode::DATABASE => self.database = self.length()?,
                opcode::EXPIRY_MILLISECONDS => expiry = Some(i64::from_le_bytes(self.source.array()?)),
                opcode::EXPIRY_SECONDS => {
                    expiry = Some(i64::from(i32::from_le_bytes(self.source.array()?)) * 1000);
                }
                opcode::FUNCTIONS => {
                    self.skip_string()?;
                    return Ok(Some(Entry::Other(Kind::Functions)));
                }
                opcode::OLD_FUNCTIONS => {
                    self.skip_old_functions()?;
                    return Ok(Some(Entry::Other(Kind::Functions)));
                }
                number if self.skip_opcode(number)? => {}
                STRING => return self.pair(expiry).map(Some),
                number => {
                    let kind = self.kind(number)?;
                    self.skip_string()?;
                    self.skip_value(number)?;
                    return Ok(Some(Entry::Other(kind)));
                }
            }
        }
        Ok(None)
    }

    /// Reads a field about the whole file.
    fn auxiliary(&mut self) -> Result<(), RdbError> {
        string::read(&mut self.source, &mut self.key, &mut self.compressed, KEY_SIZE_MAX)?;
        string::read(&mut self.source, &mut self.value, &mut self.compressed, KEY_SIZE_MAX)?;
        // The second name is that of Redis before version 7.
        let is_base = [&b"aof-base"[..], b"aof-preamble"].contains(&&self.key[..]) && self.value == b"1";
        if is_base { Err(RdbError::AppendOnlyBase) } else { Ok(()) }
    }

    /// Reads a key and its string.
    fn pair(&mut self, expiry: Option<i64>) -> Result<Entry<'_>, RdbError> {
        let database = self.database;
        let key_size = string::read(&mut self.source, &mut self.key, &mut self.compressed, KEY_SIZE_MAX)?;
        let value_size = string::read(&mut self.source, &mut self.value, &mut self.compressed, VALUE_SIZE_MAX)?;
        if key_size == 0 || key_size > KEY_SIZE_MAX as u64 || value_size > VALUE_SIZE_MAX as u64 {
            return Ok(Entry::OutOfBounds { database, key: &self.key, key_size, value_size, expiry });
        }
        Ok(Entry::String { database, key: &self.key, value: &self.value, expiry })
    }

    /// Checks the checksum.
    fn end(&mut self) -> Result<(), RdbError> {
        if self.version >= CHECKSUM_VERSION_MIN {
            let computed = self.source.checksum();
            let stored = u64::from_le_bytes(self.source.array()?);
            if stored != 0 && stored != computed {
                return Err(RdbError::Checksum { stored, computed });
            }
        }
        if self.version < CHECKSUM_VERSION_MIN && !self.source.is_at_end()? {
            // No checksum tells that these bytes are not records.
            return Err(self.source.damaged("bytes follow its end, and a file of its version has no checksum"));
        }
        self.is_at_end = true;
        Ok(())
    }

    /// Returns the error about a record of an unknown type, just after its type. A type below the opcodes has a key.
    fn unknown_type(&mut self, number: u8) -> RdbError {
        let offset = self.source.offset() - 1;
        let has_key = number < OPCODE_MIN;
        let size = has_key.then(|| string::read(&mut self.source, &mut self.key, &mut self.compressed, KEY_SIZE_MAX));
        let key = match size {
            Some(Ok(size)) if size <= KEY_SIZE_MAX as u64 => format!(" of key `{}`", self.key.escape_ascii()),
            Some(Ok(size)) => format!(" of a key of {size} B"),
            _ => String::new(),
        };
        let program = if self.is_valkey { "Valkey" } else { "Redis" };
        RdbError::UnknownType { number, offset, key, program, version: self.version }
    }

    fn length(&mut self) -> Result<u64, RdbError> {
        string::length(&mut self.source)
    }

    fn skip_string(&mut self) -> Result<(), RdbError> {
        string::skip(&mut self.source)
    }
}

#[cfg(test)]
mod tests;
