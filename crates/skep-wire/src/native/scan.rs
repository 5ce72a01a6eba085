//! The operand of a scan: all of its fields except the key at which its range begins.
//!
//! ```text
//! 0       1        2   4       8       16
//! | range | answer | 0 | limit | lease | end |
//!   u8      u8      u16  u32     u64
//!
//! range    7 6 5   4         3 2   1 0
//!          | 0   | REVERSE | end | start |     start  0 at or above   1 above   2 floor
//! answer   7 ... 4   3 2     1 0               end    0 last   1 at or below   2 below   3 prefix
//!          | 0     | lease | answer |          lease  0 none   1 open   2 continue
//!                                              answer 0 pairs   1 keys   2 count
//! ```
//!
//! The number of the lease is copied from the page before. It is zero unless the lease is continued. The end is a key
//! or a prefix, and is empty for `last`. With the copy flags, a client that sends the same scan from many keys sends
//! the operand only once.

use skep_core::operation::{Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart};

use super::WireError;

/// Bytes before the end.
pub(super) const HEADER_SIZE: usize = 16;

const LIMIT_PLACE: usize = 4;
const LEASE_PLACE: usize = 8;

const START_MASK: u8 = 0x03;
const END_SHIFT: u32 = 2;
const END_MASK: u8 = 0x03 << END_SHIFT;
const REVERSE: u8 = 0x10;
const ANSWER_MASK: u8 = 0x03;
const LEASE_SHIFT: u32 = 2;
const LEASE_MASK: u8 = 0x03 << LEASE_SHIFT;

const _: () = assert!(START_MASK & END_MASK == 0 && (START_MASK | END_MASK) & REVERSE == 0);
const _: () = assert!(ANSWER_MASK & LEASE_MASK == 0);
const _: () = assert!(LEASE_PLACE == LIMIT_PLACE + size_of::<u32>() && HEADER_SIZE == LEASE_PLACE + size_of::<u64>());

/// Returns the bytes of the operand before the end.
pub(super) fn encode_header(scan: &Scan<'_>) -> [u8; HEADER_SIZE] {
    let start = match scan.start {
        ScanStart::AtOrAbove => 0,
        ScanStart::Above => 1,
        ScanStart::Floor => 2,
    };
    let end = match scan.end {
        ScanEnd::Last => 0,
        ScanEnd::AtOrBelow(_) => 1,
        ScanEnd::Below(_) => 2,
        ScanEnd::Prefix(_) => 3,
    };
    let answer = match scan.answer {
        ScanAnswer::Pairs => 0,
        ScanAnswer::Keys => 1,
        ScanAnswer::Count => 2,
    };
    let (lease, number) = match scan.lease {
        ScanLease::None => (0, 0),
        ScanLease::Open => (1, 0),
        ScanLease::Continue(number) => (2, number),
    };
    let mut header = [0; HEADER_SIZE];
    header[0] = start | end << END_SHIFT | if scan.reverse { REVERSE } else { 0 };
    header[1] = answer | lease << LEASE_SHIFT;
    header[LIMIT_PLACE..LEASE_PLACE].copy_from_slice(&scan.limit.to_le_bytes());
    header[LEASE_PLACE..].copy_from_slice(&u64::to_le_bytes(number));
    header
}

/// Decodes the scan of an operand.
pub(super) fn decode(operand: &[u8]) -> Result<Scan<'_>, WireError> {
    let (header, end_bytes) = operand.split_first_chunk::<HEADER_SIZE>().ok_or(WireError::Malformed)?;
    let [range, answer, 0, 0, limit @ .., _, _, _, _, _, _, _, _] = *header else { return Err(WireError::Malformed) };
    let number = u64::from_le_bytes(std::array::from_fn(|index| header[LEASE_PLACE + index]));
    if range & !(START_MASK | END_MASK | REVERSE) != 0 || answer & !(ANSWER_MASK | LEASE_MASK) != 0 {
        return Err(WireError::Malformed);
    }
    let start = match range & START_MASK {
        0 => ScanStart::AtOrAbove,
        1 => ScanStart::Above,
        2 => ScanStart::Floor,
        _ => return Err(WireError::Malformed),
    };
    let end = match (range & END_MASK) >> END_SHIFT {
        0 if end_bytes.is_empty() => ScanEnd::Last,
        1 => ScanEnd::AtOrBelow(end_bytes),
        2 => ScanEnd::Below(end_bytes),
        3 => ScanEnd::Prefix(end_bytes),
        _ => return Err(WireError::Malformed),
    };
    let lease = match ((answer & LEASE_MASK) >> LEASE_SHIFT, number) {
        (0, 0) => ScanLease::None,
        (1, 0) => ScanLease::Open,
        (2, number) => ScanLease::Continue(number),
        _ => return Err(WireError::Malformed),
    };
    let answer = match answer & ANSWER_MASK {
        0 => ScanAnswer::Pairs,
        1 => ScanAnswer::Keys,
        2 => ScanAnswer::Count,
        _ => return Err(WireError::Malformed),
    };
    Ok(Scan { start, end, reverse: range & REVERSE != 0, limit: u32::from_le_bytes(limit), answer, lease })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every kind of scan.
    fn scans() -> impl Iterator<Item = Scan<'static>> {
        let starts = [ScanStart::AtOrAbove, ScanStart::Above, ScanStart::Floor];
        let ends = [ScanEnd::Last, ScanEnd::AtOrBelow(b"end"), ScanEnd::Below(b""), ScanEnd::Prefix(b"p")];
        let leases =
            [ScanLease::None, ScanLease::Open, ScanLease::Continue(0x0102_0304_0506_0708), ScanLease::Continue(0)];
        starts.into_iter().flat_map(move |start| {
            ends.into_iter().flat_map(move |end| {
                leases.into_iter().flat_map(move |lease| {
                    ScanAnswer::ALL.into_iter().flat_map(move |answer| {
                        [false, true].map(|reverse| Scan { start, end, reverse, limit: 0x0a0b_0c0d, answer, lease })
                    })
                })
            })
        })
    }

    fn encode(scan: &Scan<'_>) -> Vec<u8> {
        [&encode_header(scan)[..], scan.end.bytes()].concat()
    }

    #[test]
    fn scans_round_trip() {
        for scan in scans() {
            assert_eq!(decode(&encode(&scan)), Ok(scan));
        }
        assert_eq!(scans().count(), 3 * 4 * 4 * 3 * 2);
    }

    #[test]
    fn bytes_match_the_picture() {
        let scan = Scan {
            start: ScanStart::Floor,
            end: ScanEnd::Prefix(b"end"),
            reverse: true,
            limit: 0x0a0b_0c0d,
            answer: ScanAnswer::Keys,
            lease: ScanLease::Continue(0x0102_0304_0506_0708),
        };
        assert_eq!(encode(&scan), b"\x1e\x09\0\0\x0d\x0c\x0b\x0a\x08\x07\x06\x05\x04\x03\x02\x01end");
    }

    #[test]
    fn invalid_operands_are_refused() {
        let good = encode(&Scan {
            start: ScanStart::AtOrAbove,
            end: ScanEnd::Last,
            reverse: false,
            limit: 10,
            answer: ScanAnswer::Pairs,
            lease: ScanLease::None,
        });
        assert!(decode(&good).is_ok());
        for size in 0..HEADER_SIZE {
            assert_eq!(decode(&good[..size]), Err(WireError::Malformed), "{size} bytes");
        }
        assert_eq!(decode(&[&good[..], b"x"].concat()), Err(WireError::Malformed), "an end after the last");
        for (offset, byte) in
            [(0, 3), (0, 0x20), (0, 0x80), (1, 3), (1, 0x0c), (1, 0x10), (2, 1), (3, 1), (8, 1), (15, 1)]
        {
            let mut bytes = good.clone();
            bytes[offset] = byte;
            assert_eq!(decode(&bytes), Err(WireError::Malformed), "byte {offset} is {byte}");
        }
    }
}
