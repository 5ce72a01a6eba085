//! The operands of reads and writes of strings.
//!
//! ```text
//! read    | kind | ...                                                       kinds
//!           u8                                                               0 size
//! slice   | 1 | start i64 | end i64 |                                        1 slice
//! bits    | 2 | 0   | range |                                                2 count bits
//!         | 3 | bit | range |            range | start i64 | end i64 | flags 3 find bit
//! fields  | 4 | fields of 20 bytes |     flags 1: in bits, 2: has an end     4 fields, 5 digest, 6 expiry
//!
//! write   | kind | condition | return | expiry | operand size | operand | bytes |
//!           u8     u8          u8       u64      u32
//! kinds   0 set, 1 remove, 2 expire, 3 append, 4 overwrite, 5 fields,
//!         6 add fraction
//! ```
//!
//! - All writes have the same header. What a kind does not use is zero.
//! - The *expiry* is in milliseconds since 1970. The largest number means none, the one below it that it is kept. For
//!   `overwrite` it is the offset.
//! - The *condition* is the code of a [`ConditionKind`], or for `expire` of an [`ExpiryCondition`]. The *operand* is that of
//!   the condition. *Return* is 1 if the old value is returned.
//! - A field is `| kind | bits, 128 if signed | overflow | 0 | offset u64 | number i64 |`. Kinds are 0 get, 1 set, 2 add;
//!   overflow is 0 wrap, 1 saturate, 2 fail.

use skep_core::function::{BitFields, BitRange};
use skep_core::operation::{Condition, ConditionKind, ExpiryChange, ExpiryCondition, StringRead, StringWrite};

use super::{Cursor, WireError};

/// Bytes of a write before the operand of its condition.
pub(super) const WRITE_HEADER_SIZE: usize = 15;
/// Most bytes of a read before its fields.
pub(super) const READ_HEADER_SIZE_MAX: usize = 19;

const IN_BITS: u8 = 1;
const HAS_END: u8 = 2;

/// The bytes of a read before its fields.
pub(super) struct ReadHeader {
    bytes: [u8; READ_HEADER_SIZE_MAX],
    size: usize,
}

impl ReadHeader {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.size..][..bytes.len()].copy_from_slice(bytes);
        self.size += bytes.len();
    }

    fn push_range(&mut self, range: BitRange) {
        let flags = if range.in_bits { IN_BITS } else { 0 } | if range.end.is_some() { HAS_END } else { 0 };
        self.push(&range.start.to_le_bytes());
        self.push(&range.end.unwrap_or(0).to_le_bytes());
        self.push(&[flags]);
    }
}

/// Returns the bytes of a read before its fields.
pub(super) fn encode_read(read: &StringRead<'_>) -> ReadHeader {
    let mut header = ReadHeader { bytes: [0; READ_HEADER_SIZE_MAX], size: 0 };
    match read {
        StringRead::Size => header.push(&[0]),
        StringRead::Slice { start, end } => {
            header.push(&[1]);
            header.push(&start.to_le_bytes());
            header.push(&end.to_le_bytes());
        }
        StringRead::CountBits(range) => {
            header.push(&[2, 0]);
            header.push_range(*range);
        }
        StringRead::FindBit { bit, range } => {
            header.push(&[3, u8::from(*bit)]);
            header.push_range(*range);
        }
        StringRead::Fields(_) => header.push(&[4]),
        StringRead::Digest => header.push(&[5]),
        StringRead::Expiry => header.push(&[6]),
    }
    header
}

/// Decodes the operand of a read.
pub(super) fn decode_read(operand: &[u8]) -> Result<StringRead<'_>, WireError> {
    let mut cursor = Cursor { rest: operand };
    let read = match cursor.take_u8().ok_or(WireError::Malformed)? {
        0 => StringRead::Size,
        1 => StringRead::Slice { start: take_i64(&mut cursor)?, end: take_i64(&mut cursor)? },
        kind @ 2..=3 => {
            let bit = cursor.take_u8().filter(|bit| *bit < kind - 1).ok_or(WireError::Malformed)?;
            let (start, end) = (take_i64(&mut cursor)?, take_i64(&mut cursor)?);
            let flags = cursor.take_u8().filter(|flags| *flags <= IN_BITS | HAS_END).ok_or(WireError::Malformed)?;
            if end != 0 && flags & HAS_END == 0 {
                return Err(WireError::Malformed);
            }
            let range = BitRange { start, end: (flags & HAS_END != 0).then_some(end), in_bits: flags & IN_BITS != 0 };
            if kind == 2 { StringRead::CountBits(range) } else { StringRead::FindBit { bit: bit == 1, range } }
        }
        4 => StringRead::Fields(BitFields::new(std::mem::take(&mut cursor.rest))),
        5 => StringRead::Digest,
        6 => StringRead::Expiry,
        _ => return Err(WireError::Malformed),
    };
    if cursor.rest.is_empty() { Ok(read) } else { Err(WireError::Malformed) }
}

/// Returns the bytes of a write before the operand of its condition.
pub(super) fn encode_write(write: &StringWrite<'_>, operand_size: usize) -> [u8; WRITE_HEADER_SIZE] {
    let (kind, condition, returns, number) = match *write {
        StringWrite::Set { condition, expiry, return_old, .. } => {
            (0, condition.kind as u8, return_old, expiry.to_number())
        }
        StringWrite::Remove { condition, return_old } => (1, condition.kind as u8, return_old, 0),
        StringWrite::Expire { expiry, condition, return_value } => {
            (2, condition as u8, return_value, expiry.to_number())
        }
        StringWrite::Append(_) => (3, 0, false, 0),
        StringWrite::Overwrite { offset, .. } => (4, 0, false, offset.into()),
        StringWrite::Fields(_) => (5, 0, false, 0),
        StringWrite::AddFraction(_) => (6, 0, false, 0),
    };
    let mut header = [0; WRITE_HEADER_SIZE];
    header[..3].copy_from_slice(&[kind, condition, u8::from(returns)]);
    header[3..11].copy_from_slice(&number.to_le_bytes());
    header[11..].copy_from_slice(&(operand_size as u32).to_le_bytes());
    header
}

/// Decodes the operand of a write.
pub(super) fn decode_write(encoded: &[u8]) -> Result<StringWrite<'_>, WireError> {
    let mut cursor = Cursor { rest: encoded };
    let kind = cursor.take_u8().ok_or(WireError::Malformed)?;
    let condition = usize::from(cursor.take_u8().ok_or(WireError::Malformed)?);
    let return_old = match cursor.take_u8() {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(WireError::Malformed),
    };
    let number = take_i64(&mut cursor)?.cast_unsigned();
    let operand_size = cursor.take_u32().ok_or(WireError::Malformed)? as usize;
    let operand = cursor.take(operand_size).ok_or(WireError::Malformed)?;
    let of_value = || -> Result<Condition<'_>, WireError> {
        let kind = ConditionKind::ALL.get(condition).copied().ok_or(WireError::Malformed)?;
        Ok(Condition { kind, operand })
    };
    let expiry = || ExpiryChange::from_number(number).ok_or(WireError::Malformed);
    let write = match kind {
        0 => StringWrite::Set { value: cursor.rest, condition: of_value()?, expiry: expiry()?, return_old },
        1 => StringWrite::Remove { condition: of_value()?, return_old },
        2 => {
            let condition = ExpiryCondition::ALL.get(condition).copied().ok_or(WireError::Malformed)?;
            StringWrite::Expire { expiry: expiry()?, condition, return_value: return_old }
        }
        3 => StringWrite::Append(cursor.rest),
        4 => {
            let offset = u32::try_from(number).map_err(|_| WireError::Malformed)?;
            StringWrite::Overwrite { offset, bytes: cursor.rest }
        }
        5 => StringWrite::Fields(BitFields::new(cursor.rest)),
        6 => StringWrite::AddFraction(cursor.rest),
        _ => return Err(WireError::Malformed),
    };
    // Each operation has one form on the wire.
    let (_, bytes, condition_operand) = write.split();
    let is_plain = encode_write(&write, condition_operand.len()) == encoded[..WRITE_HEADER_SIZE];
    if is_plain && bytes.len() == cursor.rest.len() { Ok(write) } else { Err(WireError::Malformed) }
}

fn take_i64(cursor: &mut Cursor<'_>) -> Result<i64, WireError> {
    let bytes = cursor.take(size_of::<i64>()).ok_or(WireError::Malformed)?;
    Ok(i64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}
