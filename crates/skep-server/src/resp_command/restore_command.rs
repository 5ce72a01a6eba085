//! `RESTORE`: stores the value in a payload of `DUMP`.

use skep_core::operation::{ConditionKind, OperationError};
use skep_wire::rdb::payload::{self, PayloadError};

use super::expiry::{TimeForm, has_passed, integer};
use super::key_command::KeyCommand;
use super::string_command::{Bytes, ReplyForm, StringCommand, StringOperation};
use super::{Arguments, Operands, store_error};
use crate::unix_time::UnixTime;

/// Decodes `RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ count]`. The last two change nothing.
pub(super) fn restore(arguments: Arguments<'_>, operands: &mut Operands, now: UnixTime) -> Result<KeyCommand, String> {
    let (mut replaces, mut is_absolute, mut has_idle_time, mut has_frequency) = (false, false, false, false);
    let mut index = 4;
    while index < arguments.count() {
        let has_operand = index + 1 < arguments.count();
        if arguments.is(index, "REPLACE") {
            replaces = true;
        } else if arguments.is(index, "ABSTTL") {
            is_absolute = true;
        } else if arguments.is(index, "IDLETIME") && has_operand && !has_frequency {
            if integer(arguments, index + 1)? < 0 {
                return Err("ERR Invalid IDLETIME value, must be >= 0".to_owned());
            }
            has_idle_time = true;
            index += 1;
        } else if arguments.is(index, "FREQ") && has_operand && !has_idle_time {
            if !(0..=255).contains(&integer(arguments, index + 1)?) {
                return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".to_owned());
            }
            has_frequency = true;
            index += 1;
        } else {
            return Err("ERR syntax error".to_owned());
        }
        index += 1;
    }
    let time = integer(arguments, 2)?;
    if time < 0 {
        return Err("ERR Invalid TTL value, must be >= 0".to_owned());
    }
    let value = operands.try_append(|bytes| payload::decode(arguments.get(3), bytes).map_err(message))?;
    let form = if is_absolute { TimeForm::PXAT } else { TimeForm::PX };
    let expiry = if time == 0 { None } else { Some(form.positive(time, "restore", now)?) };
    let operation = if replaces && expiry.is_some_and(|expiry| has_passed(expiry, now)) {
        StringOperation::Delete
    } else {
        StringOperation::Set {
            value,
            condition: if replaces { ConditionKind::Always } else { ConditionKind::IfAbsent },
            operand: Bytes::None,
            expiry: expiry.into(),
            return_old: false,
        }
    };
    Ok(KeyCommand::String(StringCommand::new(operation, ReplyForm::Restored).counting_from_now(form.counts_from_now())))
}

/// Returns the message about a payload that is refused.
fn message(error: PayloadError) -> String {
    match error {
        PayloadError::Checksum => "ERR DUMP payload version or checksum are wrong".to_owned(),
        PayloadError::Format => "ERR Bad data format".to_owned(),
        PayloadError::TooLong => store_error(OperationError::ValueTooLong),
    }
}
