//! The segment: a file of the log, and its header.
//!
//! ```text
//! segment  | header page | group | group | ... | end | zeros, or groups of an earlier use |
//!          0             4096                                                         size
//!
//! header   0       8     12        14     16       24    32     40            48          64
//!          | magic | crc | version | kind | number | uid | size | first group | server id | zeros to 4096 |
//!            8 B     u32   u16       u16    u64      u64   u64    u64           16 B
//! ```
//!
//! - *crc*: CRC-32C of the bytes after it, up to 64; of those up to 48 before version 3.
//! - *kind*: 0: it continues the segment before it. 1: a recovery began it, so effects that wait are dropped. 2: it was
//!   begun after a failed write; it is part of the log if the manifest needs no group before it.
//! - *number*: that of the file's name. A file that was copied to another name is not a segment.
//! - *uid*: a random number, chosen each time the segment is prepared. Each group repeats it.
//! - *size*: bytes of the file when it was prepared. Only a group that is longer makes the file grow.
//! - *first group*: number of its first group; 0 in a segment that is prepared and not yet in use.
//! - *server id*: that of the manifest. A file with another one was copied from another directory: it is not a segment of
//!   this one. Zeros are unknown, as in headers before version 3.
//!
//! The bytes of a segment are written before it is used: the file is created and filled with zeros, or a segment that
//! the log no longer needs is renamed. So a group is written over blocks that exist, and its flush has no metadata to
//! write.
//!
//! **Why no group of an earlier use is read.** A segment gets another uid, and then a header with a first group, before
//! a group is written to it. Groups with another uid are not valid in it. If a later segment begins with group g, the
//! groups from g on in all earlier segments are not part of the log: they were cut by a recovery that began the later
//! one.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32;
use crate::pages::Pages;
use crate::{NUMBER_END, VERSION, is_readable};

const MAGIC: [u8; 8] = *b"SKEPlog\0";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    kind: U16,
    number: U64,
    uid: U64,
    size: U64,
    first_group: U64,
    server_id: [u8; 16],
}

const HEADER_SIZE: usize = size_of::<Header>();
const CRC_END: usize = 12;
const SERVER_ID_SIZE: usize = 16;
const _: () = assert!(HEADER_SIZE == 64);
/// The last version whose headers have no server id.
const WITHOUT_SERVER_ID: u16 = 2;

/// How a segment is related to the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// It continues it.
    Continued = 0,
    /// A recovery began it.
    Recovered = 1,
    /// It was begun after a failed write. It is part of the log if the manifest needs no group before it.
    Fresh = 2,
}

impl SegmentKind {
    const ALL: [SegmentKind; 3] = [SegmentKind::Continued, SegmentKind::Recovered, SegmentKind::Fresh];
}

/// What the header of a segment states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// How it is related to the segment before it.
    pub kind: SegmentKind,
    /// Number of the segment, from 1.
    pub number: u64,
    /// The random number of this use of the file.
    pub uid: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Number of the first group; 0 in a segment that is not yet in use.
    pub first_group: u64,
    /// Identity of the server whose directory it belongs to; zeros if it is unknown.
    pub server_id: [u8; 16],
}

impl SegmentHeader {
    /// Writes the page of the header into an empty buffer.
    pub(crate) fn encode(&self, pages: &mut Pages) {
        let mut header = Header {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            kind: (self.kind as u16).into(),
            number: self.number.into(),
            uid: self.uid.into(),
            size: self.size.into(),
            first_group: self.first_group.into(),
            server_id: self.server_id,
        };
        header.crc = crc32(&header.as_bytes()[CRC_END..]).into();
        pages.extend(header.as_bytes());
        pages.padded();
    }

    /// Returns true if it belongs to the directory of another server.
    pub(crate) fn is_foreign(&self, server_id: [u8; 16]) -> bool {
        self.server_id != [0; SERVER_ID_SIZE] && self.server_id != server_id
    }

    /// Decodes a header. Returns `None` if it is not valid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, _) = Header::ref_from_prefix(bytes).ok()?;
        let has_server_id = header.version.get() > WITHOUT_SERVER_ID;
        let end = if has_server_id { HEADER_SIZE } else { HEADER_SIZE - SERVER_ID_SIZE };
        let is_valid = header.magic == MAGIC
            && is_readable(header.version.get())
            && header.number.get().max(header.first_group.get()) < NUMBER_END
            && header.crc.get() == crc32(&bytes[CRC_END..end]);
        let kind = SegmentKind::ALL.into_iter().find(|kind| *kind as u16 == header.kind.get())?;
        is_valid.then_some(SegmentHeader {
            kind,
            number: header.number.get(),
            uid: header.uid.get(),
            size: header.size.get(),
            first_group: header.first_group.get(),
            server_id: if has_server_id { header.server_id } else { [0; SERVER_ID_SIZE] },
        })
    }
}

/// Returns the name of a segment's file.
pub fn name(number: u64) -> String {
    format!("log-{number:016x}")
}

/// Returns the number of the segment with this name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_prefix("log-")?, 16).ok()?;
    (self::name(number) == name && number < NUMBER_END).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_returns_and_each_changed_byte_is_found() {
        let (kind, server_id) = (SegmentKind::Recovered, [5; SERVER_ID_SIZE]);
        let header = SegmentHeader { kind, number: 3, uid: 1 << 63, size: 1 << 20, first_group: 9, server_id };
        let mut pages = Pages::default();
        header.encode(&mut pages);
        let bytes = pages.bytes().to_vec();
        assert_eq!(SegmentHeader::decode(&bytes), Some(header));
        for offset in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[offset] ^= 0x10;
            assert_eq!(SegmentHeader::decode(&changed), None, "byte {offset}");
        }
        assert_eq!((name(10).as_str(), number_of(&name(10))), ("log-000000000000000a", Some(10)));
        assert_eq!([number_of("log-a"), number_of("lock"), number_of("log-000000000000000A")], [None; 3]);
    }
}
