//! Decodes commands on keys from their arguments.

use skep_core::operation::PutCondition;

use super::key_command::KeyCommand;
use super::table::CommandName;
use super::{Arguments, Operands, scan_command, vector_command, wrong_argument_count};

/// Decodes the command: `None` if it is not on keys, or the error message that refuses it. The number of arguments
/// has been checked against the table.
pub(super) fn key_command(
    name: CommandName,
    arguments: Arguments<'_>,
    operands: &mut Operands,
) -> Result<Option<KeyCommand>, String> {
    Ok(Some(match name {
        CommandName::Get => KeyCommand::Get,
        CommandName::MGet => KeyCommand::GetMany,
        CommandName::Set => KeyCommand::Set(put_condition(arguments)?),
        CommandName::SetNx => KeyCommand::SetNew,
        CommandName::MSet if arguments.count().is_multiple_of(2) => return Err(wrong_argument_count("mset")),
        CommandName::MSet => KeyCommand::SetMany,
        CommandName::Del => KeyCommand::Delete,
        CommandName::Exists => KeyCommand::Exists,
        CommandName::Incr => KeyCommand::Add { delta: 1 },
        CommandName::Decr => KeyCommand::Add { delta: -1 },
        CommandName::IncrBy => KeyCommand::Add { delta: delta(arguments)? },
        CommandName::DecrBy => {
            let delta = delta(arguments)?.checked_neg();
            KeyCommand::Add { delta: delta.ok_or("ERR decrement would overflow")? }
        }
        CommandName::SkepSet => vector_command::set(arguments, operands)?,
        CommandName::SkepGetV => vector_command::get(arguments)?,
        CommandName::SkepUpdate => vector_command::update(arguments, operands)?,
        CommandName::SkepReduce => vector_command::reduce(arguments, operands)?,
        CommandName::SkepFilter => vector_command::filter(arguments, operands)?,
        CommandName::SkepScan => KeyCommand::Scan(scan_command::scan(arguments)?),
        CommandName::SkepPrefix => KeyCommand::Scan(scan_command::prefix(arguments)?),
        CommandName::SkepCount => KeyCommand::Scan(scan_command::count(arguments)?),
        CommandName::SkepFloor => KeyCommand::Scan(scan_command::floor()),
        _ => return Ok(None),
    }))
}

/// Returns the condition of a `SET`.
fn put_condition(arguments: Arguments<'_>) -> Result<PutCondition, String> {
    let mut condition = PutCondition::Always;
    for index in 3..arguments.count() {
        let word = |word| arguments.is(index, word);
        condition = if word("NX") && condition != PutCondition::IfPresent {
            PutCondition::IfAbsent
        } else if word("XX") && condition != PutCondition::IfAbsent {
            PutCondition::IfPresent
        } else if ["EX", "PX", "EXAT", "PXAT", "KEEPTTL"].into_iter().any(word) {
            return Err("ERR expiry is not supported: a key lives until it is deleted".to_owned());
        } else if word("GET") {
            return Err("ERR SET with the option GET is not supported".to_owned());
        } else {
            return Err("ERR syntax error".to_owned());
        };
    }
    Ok(condition)
}

fn delta(arguments: Arguments<'_>) -> Result<i64, String> {
    arguments.integer(2).ok_or_else(|| "ERR value is not an integer or out of range".to_owned())
}
