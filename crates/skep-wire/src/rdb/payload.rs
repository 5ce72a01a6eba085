//! The payload of `DUMP` and `RESTORE`: a string as RDB files have it, with a version and a checksum.
//!
//! ```text
//! payload   | 0: a string | string | version u16 | CRC-64 of all before, u64 |          little-endian
//! ```

use crc_fast::{CrcAlgorithm, checksum};
use skep_core::function::DecimalText;
use skep_core::operation::VALUE_SIZE_MAX;

use super::string::{Prefix, decompress, prefix, write};
use super::{STRING, WRITTEN_VERSION};

const TRAILER_SIZE: usize = size_of::<u16>() + size_of::<u64>();

/// The reason why a payload has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadError {
    /// Its checksum is that of other bytes, or it is too short to have one.
    Checksum,
    /// It is not a string.
    Format,
    /// The value is longer than a store accepts.
    TooLong,
}

/// Returns the payload of a value.
pub fn encode(value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(value.len() + TRAILER_SIZE + 6);
    payload.push(STRING);
    write(value, &mut payload);
    payload.extend_from_slice(&WRITTEN_VERSION.to_le_bytes());
    let checksum = checksum(CrcAlgorithm::Crc64Redis, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// The content of a string, before it is decompressed.
enum Content<'a> {
    Bytes(&'a [u8]),
    Number(i32),
    Compressed { size: u64, bytes: &'a [u8] },
}

/// Returns the bytes of the value in a payload, which may be wrong; none are more than the longest value.
pub fn value_size(payload: &[u8]) -> usize {
    match payload.split_first().and_then(|(_, rest)| content(rest)) {
        Some(Content::Bytes(bytes)) => bytes.len(),
        Some(Content::Compressed { size, .. }) => size.min(VALUE_SIZE_MAX as u64) as usize,
        Some(Content::Number(_)) | None => 0,
    }
}

/// Appends the value in a payload. On an error it may have appended a part.
pub fn decode(payload: &[u8], value: &mut Vec<u8>) -> Result<(), PayloadError> {
    let split = payload.len().checked_sub(size_of::<u64>()).map(|size| payload.split_at(size));
    let checked = split.filter(|(bytes, sum)| {
        bytes.len() > size_of::<u16>() && checksum(CrcAlgorithm::Crc64Redis, bytes).to_le_bytes() == **sum
    });
    let (bytes, _) = checked.ok_or(PayloadError::Checksum)?;
    let (string, _) = bytes.split_at(bytes.len() - size_of::<u16>());
    let [STRING, rest @ ..] = string else { return Err(PayloadError::Format) };
    match content(rest).ok_or(PayloadError::Format)? {
        Content::Bytes(bytes) if bytes.len() > VALUE_SIZE_MAX => return Err(PayloadError::TooLong),
        Content::Compressed { size, .. } if size > VALUE_SIZE_MAX as u64 => return Err(PayloadError::TooLong),
        Content::Bytes(bytes) => value.extend_from_slice(bytes),
        Content::Number(number) => value.extend_from_slice(DecimalText::new(number.into()).as_bytes()),
        Content::Compressed { size, bytes } => {
            decompress(bytes, size as usize, value).ok_or(PayloadError::Format)?;
        }
    }
    Ok(())
}

/// Returns the content of a string. Bytes after it are ignored.
fn content(mut rest: &[u8]) -> Option<Content<'_>> {
    let (size, plain_size) = match take_prefix(&mut rest)? {
        Prefix::Number(number) => return Some(Content::Number(number)),
        Prefix::Length(size) => (size, None),
        Prefix::Compressed => (take_length(&mut rest)?, Some(take_length(&mut rest)?)),
        Prefix::Invalid => return None,
    };
    let bytes = rest.get(..usize::try_from(size).ok()?)?;
    Some(plain_size.map_or(Content::Bytes(bytes), |size| Content::Compressed { size, bytes }))
}

fn take_length(rest: &mut &[u8]) -> Option<u64> {
    if let Prefix::Length(length) = take_prefix(rest)? { Some(length) } else { None }
}

fn take_prefix(rest: &mut &[u8]) -> Option<Prefix> {
    prefix(|bytes| {
        let (taken, after) = rest.split_at_checked(bytes.len()).ok_or(())?;
        bytes.copy_from_slice(taken);
        *rest = after;
        Ok::<_, ()>(())
    })
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(payload: &[u8]) -> Result<Vec<u8>, PayloadError> {
        let mut value = b"before".to_vec();
        decode(payload, &mut value).map(|()| value.split_off(6))
    }

    fn with_trailer(string: &[u8]) -> Vec<u8> {
        let mut payload = [string, &WRITTEN_VERSION.to_le_bytes()].concat();
        payload.extend_from_slice(&checksum(CrcAlgorithm::Crc64Redis, &payload).to_le_bytes());
        payload
    }

    #[test]
    fn payloads_are_those_of_redis() {
        // Replies of Redis 7.0.15.
        assert_eq!(encode(b"hello"), b"\x00\x05hello\n\x00cr\xdfve4 \n");
        let compressed = b"\x00\xc3\x0b<\x03abca\xe0-\x02\x01bc\n\x00o`)\xe4\xaf\xd7d\xac";
        assert_eq!(decoded(compressed).as_deref(), Ok(&b"abc".repeat(20)[..]));
        assert_eq!(checksum(CrcAlgorithm::Crc64Redis, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let texts: [&[u8]; 12] = [
            b"",
            b"a",
            b"0",
            b"-1",
            b"127",
            b"128",
            b"-32769",
            b"2147483647",
            b"2147483648",
            b"01",
            &[b'x'; 64],
            &[b'x'; 0x4000],
        ];
        for text in texts {
            assert_eq!(decoded(&encode(text)).as_deref(), Ok(text), "{}", text.escape_ascii());
        }
        assert_eq!(encode(b"-32769")[..6], [0, 0xc2, 0xff, 0x7f, 0xff, 0xff]);
    }

    #[test]
    fn compressed_values_are_read() {
        // Six literal bytes, then a copy that overlaps itself.
        let payload = with_trailer(b"\x00\xc3\x0a\x40\x14\x05abcabc\xe0\x05\x02");
        assert_eq!(decoded(&payload).as_deref(), Ok(&b"abcabcabcabcabcabcab"[..]));
        for string in [
            &b"\x00\xc3\x0a\x13\x05abcabc\xe0\x05\x02"[..], // one byte too many
            b"\x00\xc3\x0a\x15\x05abcabc\xe0\x05\x02",      // one too few
            b"\x00\xc3\x0a\x14\x05abcabc\xe0\x05\x06",      // from before the value
            b"\x00\xc3\x0b\x14\x05abcabc\xe0\x05\x02",      // cut
            b"\x00\xc3\x02\x03\x05ab",
            b"\x00\x05abc",
            b"\x01\x05hello", // a list
            b"\x00\xc4",
            b"\x00",
        ] {
            let reply = decoded(&with_trailer(string));
            assert_eq!(reply, Err(PayloadError::Format), "{}", string.escape_ascii());
        }
        let long = with_trailer(b"\x00\xc3\x02\x80\x00\x10\x00\x01\x00a");
        assert_eq!(decoded(&long), Err(PayloadError::TooLong));
        assert_eq!(value_size(&long), VALUE_SIZE_MAX);
    }

    #[test]
    fn damaged_payloads_are_refused() {
        let payload = encode(b"hello");
        for index in 0..payload.len() {
            let mut damaged = payload.clone();
            damaged[index] ^= 1;
            assert!(decoded(&damaged) == Err(PayloadError::Checksum), "{index}");
            assert!(decoded(&payload[..index]).is_err(), "{index}");
        }
    }
}
