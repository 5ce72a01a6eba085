//! Lengths and strings: plain, as a number, or compressed.

use std::io::{Read, Write};

use super::RdbError;
use super::source::Source;

/// The first of the two bytes, or of the five or nine, that a length or string begins with.
enum Prefix {
    Length(u64),
    /// The encoding of a string that has no length.
    Encoding(u8),
}

const INTEGER_8: u8 = 0;
const INTEGER_16: u8 = 1;
const INTEGER_32: u8 = 2;
const COMPRESSED: u8 = 3;

fn prefix<R: Read>(source: &mut Source<R>) -> Result<Prefix, RdbError> {
    let first = source.byte()?;
    let low = first & 0x3f;
    Ok(match first >> 6 {
        0 => Prefix::Length(u64::from(low)),
        1 => Prefix::Length(u64::from(low) << 8 | u64::from(source.byte()?)),
        2 if low == 0 => Prefix::Length(u64::from(u32::from_be_bytes(source.array()?))),
        2 if low == 1 => Prefix::Length(u64::from_be_bytes(source.array()?)),
        3 if low <= COMPRESSED => Prefix::Encoding(low),
        _ => return Err(source.damaged("no length begins with this byte")),
    })
}

/// Reads a length.
pub(super) fn length<R: Read>(source: &mut Source<R>) -> Result<u64, RdbError> {
    match prefix(source)? {
        Prefix::Length(length) => Ok(length),
        Prefix::Encoding(_) => Err(source.damaged("a string is where a length must be")),
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
    let number = match prefix(source)? {
        Prefix::Length(size) => {
            match usize::try_from(size) {
                Ok(size) if size <= size_max => source.append(size, bytes)?,
                _ => source.skip(size)?,
            }
            return Ok(size);
        }
        Prefix::Encoding(COMPRESSED) => {
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
            return Ok(size);
        }
        Prefix::Encoding(INTEGER_8) => i32::from(i8::from_le_bytes(source.array()?)),
        Prefix::Encoding(INTEGER_16) => i32::from(i16::from_le_bytes(source.array()?)),
        Prefix::Encoding(_) => i32::from_le_bytes(source.array()?),
    };
    write!(bytes, "{number}").expect("a Vec takes every byte");
    Ok(bytes.len() as u64)
}

/// Passes over a string.
pub(super) fn skip<R: Read>(source: &mut Source<R>) -> Result<(), RdbError> {
    let size = match prefix(source)? {
        Prefix::Length(size) => size,
        Prefix::Encoding(INTEGER_8) => 1,
        Prefix::Encoding(INTEGER_16) => 2,
        Prefix::Encoding(INTEGER_32) => 4,
        Prefix::Encoding(_) => compressed_sizes(source)?.0,
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

/// Decompresses a string of this size (LZF). Returns nothing if the bytes are not one.
///
/// ```text
/// 000nnnnn                     n + 1 bytes follow
/// nnnddddd     1 B             n + 2 bytes, from d + 1 bytes before; n is 1 to 6; d has 13 bits, big-endian
/// 111ddddd  m  1 B             m + 9 bytes
/// ```
fn decompress(input: &[u8], size: usize, output: &mut Vec<u8>) -> Option<()> {
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
            let begin = output.len().checked_sub(distance)?;
            if count <= distance {
                output.extend_from_within(begin..begin + count);
            } else {
                // The copied bytes are among those that it appends.
                (begin..begin + count).for_each(|index| output.push(output[index]));
            }
            input = rest;
        }
        if output.len() > size {
            return None;
        }
    }
    (output.len() == size).then_some(())
}

#[cfg(test)]
mod tests {
    use super::decompress;

    fn plain(input: &[u8], size: usize) -> Option<Vec<u8>> {
        let mut output = Vec::new();
        decompress(input, size, &mut output).map(|()| output)
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
