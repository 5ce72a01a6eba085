//! Lengths and strings: plain, as a number, or compressed. They are read from a file, whose bytes arrive in parts, and from a
//! payload of `DUMP`, which is whole.

use std::io::Read;

use skep_core::function::DecimalText;

use super::RdbError;
use super::source::Source;

/// What a length or a string begins with.
pub(super) enum Prefix {
    /// A length, or the size of a string.
    Length(u64),
    /// A string that is the decimal digits of this number.
    Number(i32),
    /// A compressed string: its compressed size and its size follow, as lengths.
    Compressed,
    /// No length or string begins with this byte.
    Invalid,
}

/// Reads a prefix. `take` fills a buffer with the next bytes.
pub(super) fn prefix<E>(mut take: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Prefix, E> {
    let mut bytes = [0; size_of::<u64>()];
    let mut next = |size: usize| take(&mut bytes[..size]).map(|()| bytes);
    let first = next(1)?[0];
    Ok(match first {
        0x00..0x40 => Prefix::Length(first.into()),
        0x40..0x80 => Prefix::Length(u64::from(first & 0x3f) << 8 | u64::from(next(1)?[0])),
        0x80 => Prefix::Length(u64::from_be_bytes(next(4)?) >> u32::BITS),
        0x81 => Prefix::Length(u64::from_be_bytes(next(8)?)),
        0xc0 => Prefix::Number(next(1)?[0].cast_signed().into()),
        0xc1 => Prefix::Number(i16::from_le_bytes(prefix_of(next(2)?)).into()),
        0xc2 => Prefix::Number(i32::from_le_bytes(prefix_of(next(4)?))),
        0xc3 => Prefix::Compressed,
        _ => Prefix::Invalid,
    })
}

/// Appends a string: as a number if it is the decimal digits of one, else plain.
pub(super) fn write(string: &[u8], bytes: &mut Vec<u8>) {
    match number_of(string) {
        Some(number) => write_number(number, bytes),
        None => {
            write_length(string.len() as u32, bytes);
            bytes.extend_from_slice(string);
        }
    }
}

/// Appends a length.
pub(super) fn write_length(length: u32, bytes: &mut Vec<u8>) {
    match length {
        0..0x40 => bytes.push(length as u8),
        0x40..0x4000 => bytes.extend_from_slice(&(0x4000 | length as u16).to_be_bytes()),
        _ => {
            bytes.push(0x80);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
    }
}

fn write_number(number: i32, bytes: &mut Vec<u8>) {
    if let Ok(number) = i8::try_from(number) {
        bytes.extend_from_slice(&[0xc0, number.cast_unsigned()]);
    } else if let Ok(number) = i16::try_from(number) {
        bytes.push(0xc1);
        bytes.extend_from_slice(&number.to_le_bytes());
    } else {
        bytes.push(0xc2);
        bytes.extend_from_slice(&number.to_le_bytes());
    }
}

/// Returns the number that a string is the decimal digits of, if it is one of 32 bits.
fn number_of(string: &[u8]) -> Option<i32> {
    let number = str::from_utf8(string).ok()?.parse().ok()?;
    (DecimalText::new(i64::from(number)).as_bytes() == string).then_some(number)
}

/// Returns the first bytes.
fn prefix_of<const SIZE: usize>(bytes: [u8; size_of::<u64>()]) -> [u8; SIZE] {
    *bytes.first_chunk().expect("a number has at most eight bytes")
}

fn prefix_in<R: Read>(source: &mut Source<R>) -> Result<Prefix, RdbError> {
    match prefix(|bytes| source.take(bytes))? {
        Prefix::Invalid => Err(source.damaged("no length begins with this byte")),
        prefix => Ok(prefix),
    }
}

/// Reads a length.
pub(super) fn length<R: Read>(source: &mut Source<R>) -> Result<u64, RdbError> {
    match prefix_in(source)? {
        Prefix::Length(length) => Ok(length),
        _ => Err(source.damaged("a string is where a length must be")),
    }
}

/// Reads a string into `bytes`, or passes over it if it is longer than `size_max`. Returns its size.
pub(super) fn read<R: Read>(
    source: &mut Source<R>,
    bytes: &mut Vec<u8>,
    compressed: &mut Vec<u8>,
    size_max: usize,
) -> Result<u64, RdbError> {
    bytes.clear();
    match prefix_in(source)? {
        Prefix::Length(size) => {
            match usize::try_from(size) {
                Ok(size) if size <= size_max => source.append(size, bytes)?,
                _ => source.skip(size)?,
            }
            Ok(size)
        }
        Prefix::Number(number) => {
            bytes.extend_from_slice(DecimalText::new(number.into()).as_bytes());
            Ok(bytes.len() as u64)
        }
        _ => {
            let (compressed_size, size) = compressed_sizes(source)?;
            match usize::try_from(size) {
                Ok(plain_size) if plain_size <= size_max => {
                    compressed.clear();
                    source.append(compressed_size as usize, compressed)?;
                    decompress(compressed, plain_size, bytes)
                        .ok_or_else(|| source.damaged("a compressed string cannot be decompressed"))?;
                }
                _ => source.skip(compressed_size)?,
            }
            Ok(size)
        }
    }
}

/// Passes over a string.
pub(super) fn skip<R: Read>(source: &mut Source<R>) -> Result<(), RdbError> {
    let size = match prefix_in(source)? {
        Prefix::Length(size) => size,
        Prefix::Number(_) => return Ok(()),
        _ => compressed_sizes(source)?.0,
    };
    source.skip(size)
}

/// Reads the two sizes of a compressed string: in the file, and decompressed. The first one is not the larger one,
/// because Redis compresses a string only if that makes it smaller.
fn compressed_sizes<R: Read>(source: &mut Source<R>) -> Result<(u64, u64), RdbError> {
    let (compressed_size, size) = (length(source)?, length(source)?);
    if compressed_size > size {
        return Err(source.damaged("a compressed string is longer than its content"));
    }
    Ok((compressed_size, size))
}

/// Appends a string of this size that was compressed by LZF. Returns nothing if the bytes are not one; a part of them may be
/// appended.
///
/// ```text
/// 000nnnnn                     n + 1 bytes follow
/// nnnddddd     1 B             n + 2 bytes, from d + 1 bytes before; n is 1 to 6; d has 13 bits, big-endian
/// 111ddddd  m  1 B             m + 9 bytes
/// ```
pub(super) fn decompress(input: &[u8], size: usize, output: &mut Vec<u8>) -> Option<()> {
    let start = output.len();
    let end = start + size;
    let mut input = input;
    while let Some((&control, rest)) = input.split_first() {
        if control < 32 {
            let (literal, rest) = rest.split_at_checked(usize::from(control) + 1)?;
            output.extend_from_slice(literal);
            input = rest;
        } else {
            let mut count = usize::from(control >> 5) + 2;
            let mut rest = rest;
            if control >> 5 == 7 {
                let (&more, after) = rest.split_first()?;
                count += usize::from(more);
                rest = after;
            }
            let (&low, rest) = rest.split_first()?;
            let distance = (usize::from(control & 0x1f) << 8 | usize::from(low)) + 1;
            let begin = output.len().checked_sub(distance).filter(|&begin| begin >= start)?;
            if count > end - output.len() {
                return None;
            }
            if count <= distance {
                output.extend_from_within(begin..begin + count);
            } else {
                // The copied bytes are among those that it appends.
                (begin..begin + count).for_each(|index| output.push(output[index]));
            }
            input = rest;
        }
        if output.len() > end {
            return None;
        }
    }
    (output.len() == end).then_some(())
}

#[cfg(test)]
mod tests {
    use super::decompress;

    fn plain(input: &[u8], size: usize) -> Option<Vec<u8>> {
        let mut output = b"before".to_vec();
        decompress(input, size, &mut output).map(|()| output.split_off(6))
    }

    #[test]
    fn literals_and_copies_are_decompressed() {
        assert_eq!(plain(b"\x02abc", 3).unwrap(), b"abc");
        assert_eq!(plain(b"\x02abc\x20\x02", 6).unwrap(), b"abcabc", "a copy of three bytes");
        assert_eq!(plain(b"\x00a\x40\x00", 5).unwrap(), b"aaaaa", "a copy of bytes that it appends");
        assert_eq!(plain(b"\x00a\xe0\x0a\x00", 20).unwrap(), [b'a'; 20], "a long copy");
        assert_eq!(plain(b"", 0).unwrap(), b"");
    }

    #[test]
    fn what_is_not_compressed_is_refused() {
        for (input, size) in [
            (&b"\x02abc"[..], 2),
            (b"\x02abc", 4),
            (b"\x02ab", 3),
            (b"\x20\x00", 3),
            (b"\x00a\x20\x01", 4),
            (b"\x00a\x20", 4),
            (b"\x00a\xe0", 4),
            (b"\x00a\xe0\xff\x00", 100),
        ] {
            assert_eq!(plain(input, size), None, "{}", input.escape_ascii());
        }
    }
}
