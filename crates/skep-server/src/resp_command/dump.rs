//! The payload of `DUMP` and `RESTORE`: a string as Redis's RDB files encode it, with a version and a checksum.
//!
//! ```text
//! payload   | 0: a string | string | version u16 | CRC-64 of all before, u64 |          little-endian
//! string    | 00…… …… |  size, 6 bits     | bytes |
//!           | 01…… …… |  size, 14 bits, big-endian | bytes |
//!           | 0x80 | size u32, big-endian | bytes |       0x81: u64
//!           | 0xc0 | i8 |   0xc1: i16   0xc2: i32         a decimal number
//!           | 0xc3 | size | size of the value | LZF |     sizes as those of strings; read, not written
//! LZF       | 000…… | bytes, as many as the lower bits and 1
//!           | size, 3 bits, or 7 and a byte more | distance - 1, 13 bits |     copies size + 2 bytes of the value
//! ```

use crc::{CRC_64_REDIS, Crc, Table};
use skep_core::function::DecimalText;
use skep_core::operation::{OperationError, VALUE_SIZE_MAX};

use super::{decimal, store_error};

/// The version of RDB files in Redis 7.0, which later ones read.
const VERSION: u16 = 10;
const STRING: u8 = 0;
const TRAILER_SIZE: usize = size_of::<u16>() + size_of::<u64>();
static CRC_64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Returns the payload of a value.
pub(super) fn encode(value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(value.len() + TRAILER_SIZE + 6);
    payload.push(STRING);
    match decimal(value).and_then(|number| i32::try_from(number).ok()) {
        Some(number) => encode_number(number, &mut payload),
        None => {
            match value.len() {
                size @ 0..0x40 => payload.push(size as u8),
                size @ 0x40..0x4000 => payload.extend_from_slice(&(0x4000 | size as u16).to_be_bytes()),
                size => {
                    payload.push(0x80);
                    payload.extend_from_slice(&(size as u32).to_be_bytes());
                }
            }
            payload.extend_from_slice(value);
        }
    }
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = CRC_64.checksum(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

fn encode_number(number: i32, payload: &mut Vec<u8>) {
    if let Ok(number) = i8::try_from(number) {
        payload.extend_from_slice(&[0xc0, number.cast_unsigned()]);
    } else if let Ok(number) = i16::try_from(number) {
        payload.push(0xc1);
        payload.extend_from_slice(&number.to_le_bytes());
    } else {
        payload.push(0xc2);
        payload.extend_from_slice(&number.to_le_bytes());
    }
}

/// The content of a string, before it is decompressed.
enum Content<'a> {
    Bytes(&'a [u8]),
    Number(i32),
    Compressed { size: u64, bytes: &'a [u8] },
}

/// Returns the bytes of the value in a payload, which may be wrong; none are more than the longest value.
pub(crate) fn value_size(payload: &[u8]) -> usize {
    match payload.split_first().and_then(|(_, rest)| content(&mut { rest })) {
        Some(Content::Bytes(bytes)) => bytes.len(),
        Some(Content::Compressed { size, .. }) => size.min(VALUE_SIZE_MAX as u64) as usize,
        Some(Content::Number(_)) | None => 0,
    }
}

/// Appends the value in a payload. On an error, returns the message, and may have appended a part.
pub(super) fn decode(payload: &[u8], value: &mut Vec<u8>) -> Result<(), String> {
    let split = payload.len().checked_sub(size_of::<u64>()).map(|size| payload.split_at(size));
    let checked = split.filter(|(bytes, checksum)| {
        bytes.len() > size_of::<u16>() && CRC_64.checksum(bytes).to_le_bytes() == **checksum
    });
    let (bytes, _) = checked.ok_or("ERR DUMP payload version or checksum are wrong")?;
    let (string, _) = bytes.split_at(bytes.len() - size_of::<u16>());
    let start = value.len();
    let content = match string {
        [STRING, rest @ ..] => content(&mut { rest }),
        _ => None,
    };
    let is_valid = match content {
        Some(Content::Bytes(bytes)) if bytes.len() > VALUE_SIZE_MAX => return Err(too_long()),
        Some(Content::Compressed { size, .. }) if size > VALUE_SIZE_MAX as u64 => return Err(too_long()),
        Some(Content::Bytes(bytes)) => {
            value.extend_from_slice(bytes);
            true
        }
        Some(Content::Number(number)) => {
            value.extend_from_slice(DecimalText::new(number.into()).as_bytes());
            true
        }
        Some(Content::Compressed { size, bytes }) => decompress(bytes, size as usize, start, value).is_some(),
        None => false,
    };
    if is_valid { Ok(()) } else { Err("ERR Bad data format".to_owned()) }
}

fn too_long() -> String {
    store_error(OperationError::ValueTooLong)
}

/// Takes the content of a string.
fn content<'a>(rest: &mut &'a [u8]) -> Option<Content<'a>> {
    let number = match *rest.first()? {
        0xc0 => i32::from(take::<1>(&mut &rest[1..])?[0].cast_signed()),
        0xc1 => i32::from(i16::from_le_bytes(take(&mut &rest[1..])?)),
        0xc2 => i32::from_le_bytes(take(&mut &rest[1..])?),
        0xc3 => {
            *rest = &rest[1..];
            let (compressed, size) = (take_size(rest)?, take_size(rest)?);
            let bytes = rest.get(..usize::try_from(compressed).ok()?)?;
            return Some(Content::Compressed { size, bytes });
        }
        _ => {
            let size = take_size(rest)?;
            return Some(Content::Bytes(rest.get(..usize::try_from(size).ok()?)?));
        }
    };
    Some(Content::Number(number))
}

fn take<const SIZE: usize>(rest: &mut &[u8]) -> Option<[u8; SIZE]> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*bytes)
}

fn take_size(rest: &mut &[u8]) -> Option<u64> {
    let [first] = take(rest)?;
    match first {
        0x00..0x40 => Some(first.into()),
        0x40..0x80 => Some(u64::from(first & 0x3f) << 8 | u64::from(take::<1>(rest)?[0])),
        0x80 => Some(u32::from_be_bytes(take(rest)?).into()),
        0x81 => Some(u64::from_be_bytes(take(rest)?)),
        _ => None,
    }
}

/// Appends the `size` bytes that were compressed by LZF to a value that begins at `start`.
fn decompress(mut compressed: &[u8], size: usize, start: usize, value: &mut Vec<u8>) -> Option<()> {
    let end = start + size;
    while let Some((&control, rest)) = compressed.split_first() {
        compressed = rest;
        if control < 0x20 {
            let (literal, rest) = compressed.split_at_checked(usize::from(control) + 1)?;
            compressed = rest;
            value.extend_from_slice(literal);
        } else {
            let short = usize::from(control >> 5);
            let more = if short == 7 { usize::from(take::<1>(&mut compressed)?[0]) } else { 0 };
            let low = usize::from(take::<1>(&mut compressed)?[0]);
            let distance = (usize::from(control & 0x1f) << 8 | low) + 1;
            let from = value.len().checked_sub(distance).filter(|&from| from >= start)?;
            let count = short + more + 2;
            if value.len() + count > end {
                return None;
            }
            // The copy may overlap what it appends.
            (from..from + count).for_each(|at| value.push(value[at]));
        }
        if value.len() > end {
            return None;
        }
    }
    (value.len() == end).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(payload: &[u8]) -> Result<Vec<u8>, String> {
        let mut value = b"before".to_vec();
        decode(payload, &mut value).map(|()| value.split_off(6))
    }

    fn with_trailer(string: &[u8]) -> Vec<u8> {
        let mut payload = [string, &VERSION.to_le_bytes()].concat();
        payload.extend_from_slice(&CRC_64.checksum(&payload).to_le_bytes());
        payload
    }

    #[test]
    fn payloads_are_those_of_redis() {
        // Replies of Redis 7.0.15.
        assert_eq!(encode(b"hello"), b"\x00\x05hello\n\x00cr\xdfve4 \n");
        let compressed = b"\x00\xc3\x0b<\x03abca\xe0-\x02\x01bc\n\x00o`)\xe4\xaf\xd7d\xac";
        assert_eq!(decoded(compressed).as_deref(), Ok(&b"abc".repeat(20)[..]));
        assert_eq!(CRC_64.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
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
            assert_eq!(reply, Err("ERR Bad data format".to_owned()), "{}", string.escape_ascii());
        }
        let long = with_trailer(b"\x00\xc3\x02\x80\x00\x10\x00\x01\x00a");
        assert_eq!(decoded(&long), Err("ERR value is longer than 1048576 bytes".to_owned()));
        assert_eq!(value_size(&long), VALUE_SIZE_MAX);
    }

    #[test]
    fn damaged_payloads_are_refused() {
        let payload = encode(b"hello");
        for index in 0..payload.len() {
            let mut damaged = payload.clone();
            damaged[index] ^= 1;
            assert!(decoded(&damaged).is_err_and(|message| message.contains("checksum")), "{index}");
            assert!(decoded(&payload[..index]).is_err(), "{index}");
        }
    }
}
