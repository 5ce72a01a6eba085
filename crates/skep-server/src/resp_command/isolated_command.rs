//! Decodes commands whose keys are changed together, and those of transactions.

use skep_core::operation::{ConditionKind, ExpiryChange, Operation, PutCondition, Request};

use super::expiry::integer;
use super::set_command::{ExpiryOption, time_option};
use super::table::CommandName;
use super::{Arguments, BitFunction, Isolated, SetMany, not_for_caches, store_error, wrong_argument_count};
use crate::limits::ISOLATED_OPERATIONS_MAX;
use crate::unix_time::UnixTime;
use crate::vocabulary::{Space, Spaces};

const SYNTAX: &str = "ERR syntax error";

/// Decodes the command: `None` if it is another one, or the error message that refuses it.
pub(super) fn decode(
    name: CommandName,
    arguments: Arguments<'_>,
    space: Space,
    spaces: Spaces,
    now: UnixTime,
) -> Result<Option<Isolated>, String> {
    let pairs = |has_flag, condition| SetMany {
        first: 1,
        count: arguments.count() / 2,
        condition,
        expiry: ExpiryChange::CLEAR,
        counts_from_now: false,
        has_flag,
    };
    Ok(Some(match name {
        CommandName::MSet | CommandName::MSetNx if arguments.count().is_multiple_of(2) => {
            return Err(wrong_argument_count(name.info().name));
        }
        CommandName::MSet => set_many(pairs(false, ConditionKind::Always), arguments)?,
        CommandName::MSetNx => set_many(pairs(true, ConditionKind::IfAbsent), arguments)?,
        CommandName::MSetEx => set_many(set_expiring(arguments, now)?, arguments)?,
        CommandName::Rename => Isolated::Rename { if_absent: false },
        CommandName::RenameNx => Isolated::Rename { if_absent: true },
        CommandName::Copy => copy(arguments, space, spaces)?,
        CommandName::BitOp => Isolated::Combine(bit_function(arguments)?),
        CommandName::Watch => Isolated::Watch,
        CommandName::Exec => return Err("ERR EXEC without MULTI".to_owned()),
        CommandName::Discard => return Err("ERR DISCARD without MULTI".to_owned()),
        _ => return Ok(None),
    }))
}

/// Checks all keys and values of a command that sets many keys.
fn set_many(command: SetMany, arguments: Arguments<'_>) -> Result<Isolated, String> {
    if command.count > ISOLATED_OPERATIONS_MAX {
        return Err(format!("ERR a command sets at most {ISOLATED_OPERATIONS_MAX} keys"));
    }
    for index in (command.first..).step_by(2).take(command.count) {
        let operation = Operation::Put { value: arguments.get(index + 1), condition: PutCondition::Always };
        Request { key: arguments.get(index), operation }.validate().map_err(store_error)?;
    }
    Ok(Isolated::SetMany(command))
}

/// Decodes `MSETEX count key value… [NX | XX] [EX n | PX n | EXAT n | PXAT n | KEEPTTL]`.
fn set_expiring(arguments: Arguments<'_>, now: UnixTime) -> Result<SetMany, String> {
    let count = arguments.integer(1).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| (1..=i32::MAX as usize).contains(count)).ok_or("ERR invalid numkeys value")?;
    if 2 + 2 * count > arguments.count() {
        return Err("ERR wrong number of key-value pairs".to_owned());
    }
    let (mut condition, mut expiry) = (ConditionKind::Always, ExpiryOption::None);
    let mut index = 2 + 2 * count;
    while index < arguments.count() {
        if arguments.is(index, "NX") && condition != ConditionKind::IfPresent {
            condition = ConditionKind::IfAbsent;
        } else if arguments.is(index, "XX") && condition != ConditionKind::IfAbsent {
            condition = ConditionKind::IfPresent;
        } else if arguments.is(index, "KEEPTTL") && !matches!(expiry, ExpiryOption::Time(..)) {
            expiry = ExpiryOption::Word;
        } else if let Some(time) = time_option(arguments, index, expiry) {
            expiry = time;
            index += 1;
        } else {
            return Err(SYNTAX.to_owned());
        }
        index += 1;
    }
    let counts_from_now = expiry.counts_from_now();
    let expiry = match expiry {
        ExpiryOption::None => ExpiryChange::CLEAR,
        ExpiryOption::Word => ExpiryChange::KEEP,
        ExpiryOption::Time(form, index) => {
            ExpiryChange::set(form.positive(integer(arguments, index)?, "msetex", now)?)
        }
    };
    Ok(SetMany { first: 2, count, condition, expiry, counts_from_now, has_flag: true })
}

/// Decodes `COPY key new-key [DB space] [REPLACE]`.
fn copy(arguments: Arguments<'_>, space: Space, spaces: Spaces) -> Result<Isolated, String> {
    let (mut to, mut replace) = (space, false);
    let mut index = 3;
    while index < arguments.count() {
        if arguments.is(index, "REPLACE") {
            replace = true;
        } else if arguments.is(index, "DB") && index + 1 < arguments.count() {
            let number = u16::try_from(integer(arguments, index + 1)?).ok();
            to = number.and_then(|number| spaces.find(number)).ok_or("ERR DB index is out of range")?;
            index += 1;
        } else {
            return Err(SYNTAX.to_owned());
        }
        index += 1;
    }
    if to == Space::Cache {
        return Err(not_for_caches("copy"));
    }
    if to == space && arguments.get(1) == arguments.get(2) {
        return Err("ERR source and destination objects are the same".to_owned());
    }
    Ok(Isolated::Copy { to, replace })
}

fn bit_function(arguments: Arguments<'_>) -> Result<BitFunction, String> {
    let functions =
        [("AND", BitFunction::And), ("OR", BitFunction::Or), ("XOR", BitFunction::Xor), ("NOT", BitFunction::Not)];
    let function = functions.into_iter().find(|(word, _)| arguments.is(1, word)).ok_or(SYNTAX)?.1;
    if function == BitFunction::Not && arguments.count() > 4 {
        return Err("ERR BITOP NOT must be called with a single source key.".to_owned());
    }
    Ok(function)
}
