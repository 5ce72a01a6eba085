//! Decodes commands on keys from their arguments.

use skep_core::function::check_fraction;
use skep_core::operation::{StringRead, VALUE_SIZE_MAX};

use super::expiry::{TimeForm, integer};
use super::key_command::KeyCommand;
use super::simple_command::SimpleCommand;
use super::string_command::{Bytes, ReplyForm, StringCommand, StringOperation, TOO_LONG};
use super::table::CommandName;
use super::{Arguments, Operands, store_error};
use super::{bit_command, expire_command, object_command, restore_command, scan_command, set_command, vector_command};
use crate::unix_time::UnixTime;
use crate::vocabulary::Functions;

/// Decodes the command: `None` if it is not on keys, or the error message that refuses it. The number
/// of arguments has been checked against the table.
pub(super) fn key_command(
    name: CommandName,
    arguments: Arguments<'_>,
    operands: &mut Operands,
    functions: &Functions,
    now: UnixTime,
) -> Result<Option<KeyCommand>, String> {
    if let Some(command) = SimpleCommand::find(name, arguments.count()) {
        return Ok(Some(command.on_key()));
    }
    Ok(Some(match name {
        CommandName::MGet => KeyCommand::GetMany,
        CommandName::Set => set_command::set(arguments, operands, now)?,
        CommandName::Del | CommandName::Unlink => KeyCommand::Delete,
        CommandName::Exists | CommandName::Touch => KeyCommand::Exists,
        CommandName::IncrBy => KeyCommand::Add { delta: delta(arguments)? },
        CommandName::DecrBy => {
            let delta = delta(arguments)?.checked_neg();
            KeyCommand::Add { delta: delta.ok_or("ERR decrement would overflow")? }
        }
        CommandName::SkepSet => vector_command::set(arguments, operands, functions)?,
        CommandName::SkepGetV => vector_command::get(arguments, functions)?,
        CommandName::SkepUpdate => vector_command::update(arguments, operands, functions)?,
        CommandName::SkepReduce => vector_command::reduce(arguments, operands, functions)?,
        CommandName::SkepFilter => vector_command::filter(arguments, operands, functions)?,
        CommandName::SkepScan => KeyCommand::Scan(scan_command::scan(arguments)?),
        CommandName::SkepPrefix => KeyCommand::Scan(scan_command::prefix(arguments)?),
        CommandName::SkepCount => KeyCommand::Scan(scan_command::count(arguments)?),
        CommandName::SkepFloor => KeyCommand::Scan(scan_command::floor()),
        CommandName::SetEx => set_command::set_expiring(arguments, TimeForm::EX, "setex", now)?,
        CommandName::PSetEx => set_command::set_expiring(arguments, TimeForm::PX, "psetex", now)?,
        CommandName::GetSet => set_command::get_set(),
        CommandName::GetDel => set_command::get_and_delete(),
        CommandName::GetEx => set_command::get_and_expire(arguments, now)?,
        CommandName::DelEx => set_command::delete_if(arguments, operands)?,
        CommandName::Digest => read(StringRead::Digest, ReplyForm::Digest),
        CommandName::StrLen => read(StringRead::Size, ReplyForm::Number { missing: 0 }),
        CommandName::Append => write(StringOperation::Append(Bytes::Argument(2)), ReplyForm::Number { missing: 0 }),
        CommandName::GetRange | CommandName::SubStr => {
            let (start, end) = (integer(arguments, 2)?, integer(arguments, 3)?);
            read(StringRead::Slice { start, end }, ReplyForm::ValueOrEmpty)
        }
        CommandName::SetRange => set_range(arguments)?,
        CommandName::IncrByFloat => {
            check_fraction(arguments.get(2)).map_err(store_error)?;
            write(StringOperation::AddFraction(Bytes::Argument(2)), ReplyForm::Value)
        }
        CommandName::GetBit => bit_command::get(arguments, operands)?,
        CommandName::SetBit => bit_command::set(arguments, operands)?,
        CommandName::BitCount => bit_command::count(arguments)?,
        CommandName::BitPos => bit_command::find(arguments)?,
        CommandName::BitField => bit_command::fields(arguments, operands, false)?,
        CommandName::BitFieldRo => bit_command::fields(arguments, operands, true)?,
        CommandName::Ttl => expire_command::time_left(true, now),
        CommandName::PTtl => expire_command::time_left(false, now),
        CommandName::Expire => expire_command::expire(arguments, TimeForm::EX, "expire", now)?,
        CommandName::PExpire => expire_command::expire(arguments, TimeForm::PX, "pexpire", now)?,
        CommandName::ExpireAt => expire_command::expire(arguments, TimeForm::EXAT, "expireat", now)?,
        CommandName::PExpireAt => expire_command::expire(arguments, TimeForm::PXAT, "pexpireat", now)?,
        CommandName::ExpireTime => expire_command::time(true),
        CommandName::PExpireTime => expire_command::time(false),
        CommandName::Persist => expire_command::persist(),
        CommandName::Type => write(StringOperation::Contains, ReplyForm::Type),
        CommandName::Dump => write(StringOperation::Get, ReplyForm::Dump),
        CommandName::Restore => restore_command::restore(arguments, operands, now)?,
        CommandName::Object => return object_command::object(arguments),
        CommandName::Memory => return object_command::memory(arguments),
        _ => return Ok(None),
    }))
}

fn delta(arguments: Arguments<'_>) -> Result<i64, String> {
    arguments.integer(2).ok_or_else(|| "ERR value is not an integer or out of range".to_owned())
}

fn read(read: StringRead<'static>, form: ReplyForm) -> KeyCommand {
    KeyCommand::String(StringCommand::read(read, form))
}

fn write(operation: StringOperation, form: ReplyForm) -> KeyCommand {
    KeyCommand::String(StringCommand::new(operation, form))
}

/// Decodes `SETRANGE key offset value`.
fn set_range(arguments: Arguments<'_>) -> Result<KeyCommand, String> {
    let offset = integer(arguments, 2)?;
    let size = arguments.get(3).len();
    let offset = match u32::try_from(offset) {
        _ if offset < 0 => return Err("ERR offset is out of range".to_owned()),
        // No bytes may be anywhere.
        _ if size == 0 => 0,
        Ok(offset) if offset as usize + size <= VALUE_SIZE_MAX => offset,
        _ => return Err(TOO_LONG.to_owned()),
    };
    let operation = StringOperation::Overwrite { offset, bytes: Bytes::Argument(3) };
    Ok(write(operation, ReplyForm::Number { missing: 0 }))
}
