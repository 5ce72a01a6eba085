//! Commands on bits: `GETBIT`, `SETBIT`, `BITCOUNT`, `BITPOS`, `BITFIELD`.

use skep_core::function::{BitField, BitRange, FieldPosition, Overflow};
use skep_core::operation::{StringRead, VALUE_SIZE_MAX};

use super::expiry::integer;
use super::key_command::KeyCommand;
use super::string_command::{BIT_OFFSET, ReplyForm, StringCommand, StringOperation};
use super::{Arguments, Operands};
use crate::limits::BIT_FIELDS_MAX;

/// Decodes `GETBIT key offset`.
pub(super) fn get(arguments: Arguments<'_>, operands: &mut Operands) -> Result<KeyCommand, String> {
    let field = BitField::Get(bit(offset(arguments, 2, None)?));
    let list = operands.append(|bytes| field.append_to(bytes));
    Ok(KeyCommand::String(StringCommand::new(StringOperation::ReadFields(list), ReplyForm::Field)))
}

/// Decodes `SETBIT key offset value`.
pub(super) fn set(arguments: Arguments<'_>, operands: &mut Operands) -> Result<KeyCommand, String> {
    let position = bit(offset(arguments, 2, None)?);
    let value = arguments.integer(3).filter(|value| matches!(value, 0 | 1));
    let value = value.ok_or("ERR bit is not an integer or out of range")?;
    let field = BitField::Set(position, Overflow::Wrap, value);
    let list = operands.append(|bytes| field.append_to(bytes));
    Ok(KeyCommand::String(StringCommand::new(StringOperation::Fields(list), ReplyForm::Field)))
}

/// Decodes `BITCOUNT key [start end [BYTE | BIT]]`.
pub(super) fn count(arguments: Arguments<'_>) -> Result<KeyCommand, String> {
    let range = match arguments.count() {
        2 => BitRange::ALL,
        4 | 5 => {
            let (start, end) = (integer(arguments, 2)?, integer(arguments, 3)?);
            BitRange { start, end: Some(end), in_bits: in_bits(arguments, 4)? }
        }
        _ => return Err("ERR syntax error".to_owned()),
    };
    let read = StringRead::CountBits(range);
    Ok(KeyCommand::String(StringCommand::read(read, ReplyForm::Number { missing: 0 })))
}

/// Decodes `BITPOS key bit [start [end [BYTE | BIT]]]`.
pub(super) fn find(arguments: Arguments<'_>) -> Result<KeyCommand, String> {
    let bit = match integer(arguments, 2)? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".to_owned()),
    };
    if arguments.count() > 6 {
        return Err("ERR syntax error".to_owned());
    }
    let start = if arguments.count() > 3 { integer(arguments, 3)? } else { 0 };
    let in_bits = in_bits(arguments, 5)?;
    let end = if arguments.count() > 4 { Some(integer(arguments, 4)?) } else { None };
    let read = StringRead::FindBit { bit, range: BitRange { start, end, in_bits } };
    Ok(KeyCommand::String(StringCommand::read(read, ReplyForm::Number { missing: if bit { -1 } else { 0 } })))
}

/// Decodes `BITFIELD key [GET type offset | [OVERFLOW WRAP|SAT|FAIL] SET type offset n | INCRBY type offset n]…` and
/// `BITFIELD_RO key [GET type offset]…`.
pub(super) fn fields(
    arguments: Arguments<'_>,
    operands: &mut Operands,
    is_read_only: bool,
) -> Result<KeyCommand, String> {
    let (mut count, mut is_read) = (0, true);
    let list = operands.try_append(|list| {
        let mut overflow = Overflow::Wrap;
        let mut index = 2;
        while index < arguments.count() {
            if arguments.is(index, "OVERFLOW") && index + 1 < arguments.count() {
                overflow = overflow_named(arguments, index + 1)?;
                index += 2;
                continue;
            }
            let field = field(arguments, index, overflow)?;
            let is_get = matches!(field, BitField::Get(_));
            is_read &= is_get;
            count += 1;
            if count > BIT_FIELDS_MAX {
                return Err(format!("ERR a BITFIELD has at most {BIT_FIELDS_MAX} fields"));
            }
            field.append_to(list);
            index += if is_get { 3 } else { 4 };
        }
        let is_refused = is_read_only && !is_read;
        if is_refused { Err("ERR BITFIELD_RO only supports the GET subcommand".to_owned()) } else { Ok(()) }
    })?;
    let operation = match is_read {
        _ if count == 0 => StringOperation::Contains,
        true => StringOperation::ReadFields(list),
        false => StringOperation::Fields(list),
    };
    Ok(KeyCommand::String(StringCommand::new(operation, ReplyForm::Fields(count as u32))))
}

/// Decodes `GET type offset`, `SET type offset number` or `INCRBY type offset number` at `index`.
fn field(arguments: Arguments<'_>, index: usize, overflow: Overflow) -> Result<BitField, String> {
    let is_get = arguments.is(index, "GET");
    let is_set = arguments.is(index, "SET");
    let is_known = is_get || is_set || arguments.is(index, "INCRBY");
    let left = arguments.count() - index - 1;
    if !is_known || left < if is_get { 2 } else { 3 } {
        return Err("ERR syntax error".to_owned());
    }
    let (bits, is_signed) = field_type(arguments.get(index + 1))?;
    let position = FieldPosition { offset: offset(arguments, index + 2, Some(bits))?, bits, is_signed };
    Ok(match () {
        () if is_get => BitField::Get(position),
        () if is_set => BitField::Set(position, overflow, integer(arguments, index + 3)?),
        () => BitField::Add(position, overflow, integer(arguments, index + 3)?),
    })
}

fn overflow_named(arguments: Arguments<'_>, index: usize) -> Result<Overflow, String> {
    let names = [("WRAP", Overflow::Wrap), ("SAT", Overflow::Saturate), ("FAIL", Overflow::Fail)];
    let mut names = names.into_iter();
    let named = names.find(|(word, _)| arguments.is(index, word)).map(|(_, overflow)| overflow);
    named.ok_or_else(|| "ERR Invalid OVERFLOW type specified".to_owned())
}

fn bit(offset: u64) -> FieldPosition {
    FieldPosition { offset, bits: 1, is_signed: false }
}

/// Returns true if the argument, which may be missing, selects positions in bits.
fn in_bits(arguments: Arguments<'_>, index: usize) -> Result<bool, String> {
    if index >= arguments.count() || arguments.is(index, "BYTE") {
        Ok(false)
    } else if arguments.is(index, "BIT") {
        Ok(true)
    } else {
        Err("ERR syntax error".to_owned())
    }
}

/// Returns the bits of a field, and true if it is signed.
fn field_type(text: &[u8]) -> Result<(u8, bool), String> {
    let (is_signed, bits) = match text {
        [b'i', bits @ ..] => (true, super::decimal(bits)),
        [b'u', bits @ ..] => (false, super::decimal(bits)),
        _ => (false, None),
    };
    let bits = bits.filter(|bits| (1..=if is_signed { 64 } else { 63 }).contains(bits));
    let error = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
    Ok((bits.ok_or(error)? as u8, is_signed))
}

/// Returns the offset of a bit; `#n` is that of the n-th field of this number of bits.
fn offset(arguments: Arguments<'_>, index: usize, bits: Option<u8>) -> Result<u64, String> {
    let (text, factor) = match (arguments.get(index), bits) {
        ([b'#', text @ ..], Some(bits)) => (text, i64::from(bits)),
        (text, _) => (text, 1),
    };
    let offset = super::decimal(text).and_then(|offset| offset.checked_mul(factor));
    let is_valid = |offset: &i64| (0..VALUE_SIZE_MAX as i64 * 8).contains(offset);
    Ok(offset.filter(is_valid).ok_or(BIT_OFFSET)?.cast_unsigned())
}
