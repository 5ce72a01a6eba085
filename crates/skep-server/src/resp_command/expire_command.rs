//! `EXPIRE`, `TTL` and their relatives.

use skep_core::operation::{ExpiryChange, ExpiryCondition, StringRead};

use super::expiry::{TimeForm, has_passed, integer};
use super::key_command::KeyCommand;
use super::string_command::{ReplyForm, StringCommand, StringOperation};
use super::{Arguments, excerpt};
use crate::unix_time::UnixTime;

/// Decodes `EXPIRE key seconds [NX | XX | GT | LT]…` and its relatives.
pub(super) fn expire(
    arguments: Arguments<'_>,
    form: TimeForm,
    command: &str,
    now: UnixTime,
) -> Result<KeyCommand, String> {
    let condition = condition(arguments)?;
    let expiry = form.any(integer(arguments, 2)?, command, now)?;
    let operation = if has_passed(expiry, now) && condition == ExpiryCondition::Always {
        StringOperation::Delete
    } else {
        StringOperation::Expire { expiry: ExpiryChange::set(expiry), condition, return_value: false }
    };
    Ok(KeyCommand::String(StringCommand::new(operation, ReplyForm::Flag).counting_from_now(form.counts_from_now())))
}

fn condition(arguments: Arguments<'_>) -> Result<ExpiryCondition, String> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for index in 3..arguments.count() {
        let options = [("NX", &mut nx), ("XX", &mut xx), ("GT", &mut gt), ("LT", &mut lt)];
        match options.into_iter().find(|(word, _)| arguments.is(index, word)) {
            Some((_, is_set)) => *is_set = true,
            None => return Err(format!("ERR Unsupported option {}", excerpt(arguments.get(index), 128))),
        }
    }
    match (nx, xx, gt, lt) {
        (true, true, ..) | (true, _, true, _) | (true, _, _, true) => {
            Err("ERR NX and XX, GT or LT options at the same time are not compatible".to_owned())
        }
        (_, _, true, true) => Err("ERR GT and LT options at the same time are not compatible".to_owned()),
        (true, ..) => Ok(ExpiryCondition::IfNone),
        // No expiry is later than all, so a later one needs one before.
        (_, _, true, _) => Ok(ExpiryCondition::IfLater),
        (_, true, _, true) => Ok(ExpiryCondition::IfSomeAndEarlier),
        (_, _, _, true) => Ok(ExpiryCondition::IfEarlier),
        (_, true, ..) => Ok(ExpiryCondition::IfSome),
        _ => Ok(ExpiryCondition::Always),
    }
}

/// Decodes `PERSIST key`.
pub(super) fn persist() -> KeyCommand {
    let condition = ExpiryCondition::IfSome;
    let operation = StringOperation::Expire { expiry: ExpiryChange::CLEAR, condition, return_value: false };
    KeyCommand::String(StringCommand::new(operation, ReplyForm::Flag))
}

/// Decodes `TTL key` and `PTTL key`.
pub(super) fn time_left(in_seconds: bool, now: UnixTime) -> KeyCommand {
    KeyCommand::String(expiry(in_seconds, now.milliseconds()).counting_from_now(true))
}

/// Decodes `EXPIRETIME key` and `PEXPIRETIME key`.
pub(super) fn time(in_seconds: bool) -> KeyCommand {
    KeyCommand::String(expiry(in_seconds, 0))
}

fn expiry(in_seconds: bool, from: i64) -> StringCommand {
    StringCommand::read(StringRead::Expiry, ReplyForm::Expiry { in_seconds, from })
}
