//! The effect of operations on strings and expiries.

use super::read::BitSearch;
use super::{Arena, Edit, Found, FoundValue, NewValue, Outcome, PartWrite, Read, Written};
use skep_core::function::{BitFields, add_fraction, fraction_work};
use skep_core::operation::{ExpiryChange, OperationError, Reply, StringRead, StringWrite, VALUE_SIZE_MAX};

/// The reply that is the number 0.
const ZERO: Reply<'static> = Reply::Value(&0i64.to_le_bytes());

/// Returns the outcome of a read of an existing value.
#[inline(never)]
pub(super) fn read<'a>(read: &StringRead<'a>, found: &Found<'_>) -> Outcome<'a> {
    let size = found.value.size();
    Outcome::Read(match read {
        StringRead::Size => Read::Number(size as i64),
        StringRead::Slice { start, end } => {
            let (start, end) = slice(*start, *end, size);
            Read::Slice(start, end)
        }
        StringRead::CountBits(range) => {
            let bits = range.counted_bits(size);
            Read::CountBits(bits.start, bits.end)
        }
        StringRead::FindBit { bit, range } => {
            let bits = range.bits(size);
            let otherwise = range.beyond(*bit, size).map_or(-1, |position| position as i64);
            Read::FindBit(BitSearch { bit: *bit, start: bits.start, end: bits.end, otherwise })
        }
        StringRead::Fields(fields) => {
            let range = fields.range(size);
            Read::Fields(*fields, range.start, range.end)
        }
        StringRead::Digest => Read::Digest(size),
        StringRead::Expiry => match found.expiry {
            Some(expiry) => Read::Number(expiry.milliseconds() as i64),
            None => return Outcome::Reply(Reply::Done),
        },
    })
}

/// Returns the bytes of a value of this size from the first to the last position, both included.
fn slice(first: i64, last: i64, size: usize) -> (usize, usize) {
    let size = size as i64;
    if first < 0 && last < 0 && first > last {
        return (0, 0);
    }
    let from_start = |position: i64| if position < 0 { position.saturating_add(size).max(0) } else { position };
    let (first, last) = (from_start(first), from_start(last).min(size - 1));
    if first > last { (0, 0) } else { (first as usize, last as usize + 1) }
}

/// Returns the outcome of a write of an existing value.
#[inline(never)]
pub(super) fn write<'a>(
    write: &StringWrite<'a>,
    found: &Found<'_>,
    arena: &'a Arena,
) -> Result<Outcome<'a>, OperationError> {
    if let FoundValue::InPieces(size) = found.value
        && let Some(part) = part_written(write, size)
    {
        return if part.end() > VALUE_SIZE_MAX { Err(OperationError::ValueTooLong) } else { Ok(Outcome::Part(part)) };
    }
    let needs_bytes = match write {
        StringWrite::Set { condition, return_old, .. } | StringWrite::Remove { condition, return_old } => {
            condition.compares() || *return_old
        }
        StringWrite::Expire { return_value, .. } => *return_value,
        StringWrite::AddFraction(_) => true,
        // Of a value in pieces, these are parts or write nothing.
        StringWrite::Append(_) | StringWrite::Overwrite { .. } | StringWrite::Fields(_) => false,
    };
    let bytes = match found.value {
        FoundValue::Bytes(bytes) => bytes,
        FoundValue::InPieces(_) if needs_bytes => return Ok(Outcome::Whole),
        FoundValue::InPieces(_) => &[],
    };
    Ok(match *write {
        StringWrite::Set { condition, return_old, .. } if !condition.holds_for(bytes) => refused(return_old),
        StringWrite::Set { value, expiry, return_old: false, .. } => {
            Outcome::Edit(Edit::Store(NewValue::Set(value, expiry)))
        }
        StringWrite::Set { value, expiry, return_old: true, .. } => {
            stored(Written { value, expiry, reply: Some(arena.copy(bytes)) }, arena)
        }
        StringWrite::Remove { condition, .. } if !condition.holds_for(bytes) => refused(false),
        StringWrite::Remove { return_old, .. } => Outcome::Edit(Edit::Remove(return_old.then(|| &*arena.copy(bytes)))),
        StringWrite::Expire { expiry, condition, return_value }
            if !condition.holds(found.expiry, expiry) || expiry.apply(found.expiry) == found.expiry =>
        {
            let holds = condition.holds(found.expiry, expiry);
            if holds && !return_value { Outcome::Reply(Reply::Done) } else { refused(return_value) }
        }
        StringWrite::Expire { expiry, .. } if matches!(found.value, FoundValue::InPieces(_)) => Outcome::Expire(expiry),
        StringWrite::Expire { expiry, return_value, .. } => {
            let value = arena.copy(bytes);
            stored(Written { value, expiry, reply: return_value.then_some(&*value) }, arena)
        }
        StringWrite::Append([]) | StringWrite::Overwrite { bytes: [], .. } => {
            Outcome::Read(Read::Number(found.value.size() as i64))
        }
        StringWrite::Append(appended) => {
            let value = grown(bytes, bytes.len() + appended.len(), arena)?;
            value[bytes.len()..].copy_from_slice(appended);
            stored_with_size(value, arena)
        }
        StringWrite::Overwrite { offset, bytes: new } => {
            let (start, end) = (offset as usize, offset as usize + new.len());
            let value = grown(bytes, bytes.len().max(end), arena)?;
            value[start..end].copy_from_slice(new);
            stored_with_size(value, arena)
        }
        StringWrite::Fields(fields) => stored_fields(fields, bytes, arena),
        StringWrite::AddFraction(delta) => stored_sum(bytes, delta, arena)?,
    })
}

/// Returns the part of a value in pieces that a write writes, if it leaves the others as they are.
fn part_written<'a>(write: &StringWrite<'a>, size: usize) -> Option<PartWrite<'a>> {
    match *write {
        StringWrite::Append([]) | StringWrite::Overwrite { bytes: [], .. } => None,
        StringWrite::Append(bytes) => Some(PartWrite::Bytes(size, bytes)),
        StringWrite::Overwrite { offset, bytes } => Some(PartWrite::Bytes(offset as usize, bytes)),
        StringWrite::Fields(fields) => Some(PartWrite::Fields(fields)),
        StringWrite::Set { .. }
        | StringWrite::Remove { .. }
        | StringWrite::Expire { .. }
        | StringWrite::AddFraction(_) => None,
    }
}

/// Returns the outcome of a write of a missing key.
#[inline(never)]
pub(super) fn write_missing<'a>(write: &StringWrite<'a>, arena: &'a Arena) -> Outcome<'a> {
    match *write {
        StringWrite::Set { value, condition, expiry, .. } if condition.holds_for_missing() => {
            Outcome::Edit(Edit::Store(NewValue::Set(value, expiry)))
        }
        StringWrite::Set { .. } | StringWrite::Remove { .. } | StringWrite::Expire { .. } => {
            Outcome::Reply(Reply::NotFound)
        }
        StringWrite::Append(value) => stored_with_size(value, arena),
        StringWrite::Overwrite { bytes: [], .. } => Outcome::Reply(ZERO),
        StringWrite::Overwrite { offset, bytes } => {
            let value = arena.zeros(offset as usize + bytes.len());
            value[offset as usize..].copy_from_slice(bytes);
            stored_with_size(value, arena)
        }
        StringWrite::Fields(fields) => stored_fields(fields, &[], arena),
        StringWrite::AddFraction(delta) => {
            stored_sum(b"0", delta, arena).unwrap_or_else(|error| Outcome::Reply(Reply::Failed(error)))
        }
    }
}

/// Returns the size of the value that a write stores if the key is missing, if this takes no computing of the value.
pub(super) fn size_if_missing(write: &StringWrite<'_>) -> Option<usize> {
    match write {
        StringWrite::Append(value) => Some(value.len()),
        StringWrite::Overwrite { bytes: [], .. } => None,
        StringWrite::Overwrite { offset, bytes } => Some(*offset as usize + bytes.len()),
        StringWrite::Fields(fields) => Some(fields.size_written()),
        StringWrite::Set { .. }
        | StringWrite::Remove { .. }
        | StringWrite::Expire { .. }
        | StringWrite::AddFraction(_) => None,
    }
}

/// Returns the outcome of a write whose condition does not hold for an existing key.
fn refused<'a>(return_old: bool) -> Outcome<'a> {
    if return_old { Outcome::Read(Read::Value) } else { Outcome::Reply(Reply::Exists) }
}

pub(super) fn stored<'a>(written: Written<'a>, arena: &'a Arena) -> Outcome<'a> {
    Outcome::Edit(Edit::Store(NewValue::Written(arena.put(written))))
}

/// Returns the outcome of a write that returns the size of the value.
fn stored_with_size<'a>(value: &'a [u8], arena: &'a Arena) -> Outcome<'a> {
    let size = arena.copy(&(value.len() as i64).to_le_bytes());
    stored(Written { value, expiry: ExpiryChange::KEEP, reply: Some(size) }, arena)
}

fn stored_fields<'a>(fields: BitFields<'_>, bytes: &[u8], arena: &'a Arena) -> Outcome<'a> {
    let value = arena.zeros(bytes.len().max(fields.size_written()));
    value[..bytes.len()].copy_from_slice(bytes);
    let reply = arena.zeros(fields.reply_size());
    fields.execute(0, value, reply);
    let reply = Some(&*reply);
    stored(Written { value, expiry: ExpiryChange::KEEP, reply }, arena)
}

fn stored_sum<'a>(old: &[u8], delta: &[u8], arena: &'a Arena) -> Result<Outcome<'a>, OperationError> {
    arena.count_work(fraction_work(old, delta));
    let value = &*arena.copy(&add_fraction(old, delta)?);
    Ok(stored(Written { value, expiry: ExpiryChange::KEEP, reply: Some(value) }, arena))
}

/// Returns a copy of a value that has `size` bytes, zeros after its own.
fn grown<'a>(value: &[u8], size: usize, arena: &'a Arena) -> Result<&'a mut [u8], OperationError> {
    if size > VALUE_SIZE_MAX {
        return Err(OperationError::ValueTooLong);
    }
    let copy = arena.zeros(size);
    copy[..value.len()].copy_from_slice(value);
    Ok(copy)
}
