//! Operations on strings and expiries, in the plainest way: bits are characters of a text.

use super::{Change, NaiveReply};
use skep_core::function::{BitField, BitRange, FieldPosition, Overflow};
use skep_core::operation::{
    Condition, ConditionKind, Expiry, ExpiryChange, ExpiryCondition, OperationError, StringRead, StringWrite,
    VALUE_SIZE_MAX, digest,
};

/// Returns the reply to a read of a value with this expiry.
pub(super) fn read(value: &[u8], expiry: Option<Expiry>, read: &StringRead<'_>) -> NaiveReply {
    match read {
        StringRead::Size => number(value.len() as i64),
        StringRead::Slice { start, end } => NaiveReply::Value(slice(value, *start, *end)),
        StringRead::CountBits(range) if matches!(range.end, Some(end) if range.start < 0 && end < 0 && range.start > end) => {
            number(0)
        }
        StringRead::CountBits(range) => number(bits_of(value, range).1.matches('1').count() as i64),
        StringRead::FindBit { bit, range } => {
            let (first, text) = bits_of(value, range);
            let found = text.find(if *bit { '1' } else { '0' }).map(|at| (first + at) as i64);
            let after = (!bit && range.end.is_none() && !text.is_empty()).then_some(value.len() as i64 * 8);
            number(found.or(after).unwrap_or(-1))
        }
        StringRead::Fields(fields) => NaiveReply::Value(execute(fields.iter(), value).1),
        StringRead::Digest => number(digest(value) as i64),
        StringRead::Expiry => expiry.map_or(NaiveReply::Done, |expiry| number(expiry.milliseconds() as i64)),
    }
}

/// Returns the reply to a write of a value with this expiry, and its effect.
pub(super) fn write(value: Option<&[u8]>, expiry: Option<Expiry>, write: &StringWrite<'_>) -> (NaiveReply, Change) {
    let bytes = value.unwrap_or_default().to_vec();
    let refusal = if value.is_some() { NaiveReply::Exists } else { NaiveReply::NotFound };
    match *write {
        StringWrite::Set { value: new, condition, expiry, return_old } => {
            let holds = holds(condition, value);
            let reply = match (return_old, holds) {
                (true, _) if value.is_some() => NaiveReply::Value(bytes),
                (_, true) => NaiveReply::Done,
                (_, false) => refusal,
            };
            (reply, if holds { Change::Set(new.to_vec(), expiry) } else { Change::Nothing })
        }
        StringWrite::Remove { condition, return_old } => match value.is_some() && holds(condition, value) {
            true if return_old => (NaiveReply::Value(bytes), Change::Remove),
            true => (NaiveReply::Done, Change::Remove),
            false => (refusal, Change::Nothing),
        },
        StringWrite::Expire { .. } if value.is_none() => (NaiveReply::NotFound, Change::Nothing),
        StringWrite::Expire { expiry: change, condition, return_value } => {
            // No expiry is later than every other.
            let time = |expiry: Option<Expiry>| expiry.map_or(u64::MAX, Expiry::milliseconds);
            let (before, after) = (time(expiry), time(change.apply(expiry)));
            let holds = match condition {
                ExpiryCondition::Always => true,
                ExpiryCondition::IfNone => before == u64::MAX,
                ExpiryCondition::IfSome => before != u64::MAX,
                ExpiryCondition::IfLater => after > before,
                ExpiryCondition::IfEarlier => after < before,
                ExpiryCondition::IfSomeAndEarlier => before != u64::MAX && after < before,
            };
            let reply = match (return_value, holds) {
                (true, _) => NaiveReply::Value(bytes.clone()),
                (false, true) => NaiveReply::Done,
                (false, false) => refusal,
            };
            (reply, if holds { Change::Set(bytes, change) } else { Change::Nothing })
        }
        StringWrite::Append(appended) => set_with_size([&bytes, appended].concat()),
        StringWrite::Overwrite { bytes: [], .. } => (number(bytes.len() as i64), Change::Nothing),
        StringWrite::Overwrite { offset, bytes: new } => {
            let (mut bytes, offset) = (bytes, offset as usize);
            bytes.resize(bytes.len().max(offset + new.len()), 0);
            bytes.splice(offset..offset + new.len(), new.iter().copied());
            set_with_size(bytes)
        }
        StringWrite::Fields(fields) => {
            let mut bytes = bytes;
            bytes.resize(bytes.len().max(fields.size_written()), 0);
            let (bytes, reply) = execute(fields.iter(), &bytes);
            (NaiveReply::Value(reply), Change::Set(bytes, ExpiryChange::KEEP))
        }
    }
}

fn number(number: i64) -> NaiveReply {
    NaiveReply::Value(number.to_le_bytes().to_vec())
}

fn set_with_size(bytes: Vec<u8>) -> (NaiveReply, Change) {
    if bytes.len() > VALUE_SIZE_MAX {
        return (NaiveReply::Failed(OperationError::ValueTooLong), Change::Nothing);
    }
    (number(bytes.len() as i64), Change::Set(bytes, ExpiryChange::KEEP))
}

fn holds(condition: Condition<'_>, value: Option<&[u8]>) -> bool {
    let equals = |value: &[u8]| value == condition.operand;
    let has_digest = |value: &[u8]| digest(value).to_le_bytes() == condition.operand;
    match condition.kind {
        ConditionKind::Always => true,
        ConditionKind::IfAbsent => value.is_none(),
        ConditionKind::IfPresent => value.is_some(),
        ConditionKind::IfEqual => value.is_some_and(equals),
        ConditionKind::IfNotEqual => !value.is_some_and(equals),
        ConditionKind::IfDigest => value.is_some_and(has_digest),
        ConditionKind::IfNotDigest => !value.is_some_and(has_digest),
    }
}

fn slice(value: &[u8], start: i64, end: i64) -> Vec<u8> {
    let size = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        return Vec::new();
    }
    let from_start = |position: i64| i128::from(position) + if position < 0 { i128::from(size) } else { 0 };
    let (start, end) = (from_start(start).max(0), from_start(end).max(0));
    let is_in = |index: usize| (start..=end).contains(&(index as i128));
    value.iter().enumerate().filter(|(index, _)| is_in(*index)).map(|(_, byte)| *byte).collect()
}

fn text_of(value: &[u8]) -> String {
    value.iter().map(|byte| format!("{byte:08b}")).collect()
}

/// Returns the bits of a range as text, and the position of the first one.
fn bits_of(value: &[u8], range: &BitRange) -> (usize, String) {
    let unit = if range.in_bits { 1 } else { 8 };
    let total = i128::from(value.len() as i64 * 8 / unit);
    let from_start = |position: i64| (i128::from(position) + if position < 0 { total } else { 0 }).max(0);
    let (first, last) = (from_start(range.start), from_start(range.end.unwrap_or(-1)).min(total - 1));
    if first > last {
        return (0, String::new());
    }
    let (first, end) = (first as usize * unit as usize, (last as usize + 1) * unit as usize);
    (first, text_of(value)[first..end].to_owned())
}

/// Executes fields on a value. Returns the value and the reply.
fn execute(fields: impl Iterator<Item = BitField>, value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut text: Vec<char> = text_of(value).chars().collect();
    let mut reply = Vec::new();
    for field in fields {
        let position = field.position();
        let old = load(&text, position);
        let stored = match field {
            BitField::Get(_) => Some((old, None)),
            BitField::Set(_, overflow, new) => {
                let new = if position.is_signed { i128::from(new) } else { i128::from(new as u64) };
                fit(new, position, overflow).map(|new| (old, Some(new)))
            }
            BitField::Add(_, overflow, difference) => {
                fit(old + i128::from(difference), position, overflow).map(|sum| (sum, Some(sum)))
            }
        };
        reply.push(u8::from(stored.is_some()));
        let (returned, new) = stored.unwrap_or_default();
        reply.extend_from_slice(&(returned as i64).to_le_bytes());
        if let Some(new) = new {
            for at in 0..usize::from(position.bits) {
                let is_one = new >> (usize::from(position.bits) - 1 - at) & 1 == 1;
                text[position.offset as usize + at] = if is_one { '1' } else { '0' };
            }
        }
    }
    let byte = |bits: &[char]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit == '1'));
    (text.chunks(8).map(byte).collect(), reply)
}

fn load(text: &[char], position: FieldPosition) -> i128 {
    let bit = |at: usize| text.get(position.offset as usize + at) == Some(&'1');
    let number = (0..usize::from(position.bits)).fold(0i128, |number, at| number << 1 | i128::from(bit(at)));
    if position.is_signed && bit(0) { number - (1i128 << position.bits) } else { number }
}

/// Returns the number that a field stores in place of this one, if any.
fn fit(number: i128, position: FieldPosition, overflow: Overflow) -> Option<i128> {
    let (count, half) = (1i128 << position.bits, 1i128 << (position.bits - 1));
    let (min, max) = if position.is_signed { (-half, half - 1) } else { (0, count - 1) };
    match overflow {
        _ if number >= min && number <= max => Some(number),
        Overflow::Fail => None,
        Overflow::Saturate => Some(number.max(min).min(max)),
        Overflow::Wrap => Some((number - min).rem_euclid(count) + min),
    }
}
