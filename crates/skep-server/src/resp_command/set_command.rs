//! `SET` with its options, and its relatives that store, replace or remove a whole value.

use skep_core::operation::{ConditionKind, ExpiryChange, ExpiryCondition, PutCondition};

use super::expiry::{TimeForm, has_passed, integer};
use super::key_command::KeyCommand;
use super::string_command::{Bytes, ReplyForm, StringCommand, StringOperation};
use super::{Arguments, Operands, wrong_argument_count};
use crate::unix_time::UnixTime;

/// The options that change the expiry, as far as they are decoded.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ExpiryOption {
    None,
    /// `KEEPTTL` of `SET`, or `PERSIST` of `GETEX`.
    Word,
    /// A time, in this argument.
    Time(TimeForm, usize),
}

impl ExpiryOption {
    /// Returns true if it is a time that counts from now.
    pub(super) fn counts_from_now(self) -> bool {
        matches!(self, ExpiryOption::Time(form, _) if form.counts_from_now())
    }
}

/// A condition and the argument of its operand.
type ConditionOption = (ConditionKind, Option<usize>);

/// Decodes `SET key value [NX | XX | IFEQ v | IFNE v | IFDEQ d | IFDNE d] [GET]` and one of `[KEEPTTL]`, `[EX n]`,
/// `[PX n]`, `[EXAT n]`, `[PXAT n]`.
pub(super) fn set(arguments: Arguments<'_>, operands: &mut Operands, now: UnixTime) -> Result<KeyCommand, String> {
    let mut condition: Option<ConditionOption> = None;
    let mut return_old = false;
    let mut expiry = ExpiryOption::None;
    let mut index = 3;
    while index < arguments.count() {
        if let Some(next) = condition_option(arguments, index)
            && condition.is_none_or(|(kind, _)| kind == next.0)
        {
            condition = Some(next);
            index += usize::from(next.1.is_some());
        } else if arguments.is(index, "GET") {
            return_old = true;
        } else if arguments.is(index, "KEEPTTL") && !matches!(expiry, ExpiryOption::Time(..)) {
            expiry = ExpiryOption::Word;
        } else if let Some(time) = time_option(arguments, index, expiry) {
            expiry = time;
            index += 1;
        } else {
            return Err("ERR syntax error".to_owned());
        }
        index += 1;
    }
    let (kind, operand) = condition.unwrap_or((ConditionKind::Always, None));
    let put = match kind {
        ConditionKind::Always => Some(PutCondition::Always),
        ConditionKind::IfAbsent => Some(PutCondition::IfAbsent),
        ConditionKind::IfPresent => Some(PutCondition::IfPresent),
        _ => None,
    };
    if let Some(put) = put
        && !return_old
        && expiry == ExpiryOption::None
    {
        return Ok(KeyCommand::Set(put));
    }
    let counts_from_now = expiry.counts_from_now();
    let expiry = match expiry {
        ExpiryOption::None => ExpiryChange::CLEAR,
        ExpiryOption::Word => ExpiryChange::KEEP,
        ExpiryOption::Time(form, index) => ExpiryChange::set(form.positive(integer(arguments, index)?, "set", now)?),
    };
    let operand = condition_operand(arguments, kind, operand, operands)?;
    let operation = StringOperation::Set { value: Bytes::Argument(2), condition: kind, operand, expiry, return_old };
    let form = if return_old { ReplyForm::Value } else { ReplyForm::Status };
    Ok(KeyCommand::String(StringCommand::new(operation, form).counting_from_now(counts_from_now)))
}

/// Decodes `SETEX key seconds value` and `PSETEX key milliseconds value`.
pub(super) fn set_expiring(
    arguments: Arguments<'_>,
    form: TimeForm,
    command: &str,
    now: UnixTime,
) -> Result<KeyCommand, String> {
    let expiry = ExpiryChange::set(form.positive(integer(arguments, 2)?, command, now)?);
    Ok(KeyCommand::String(stored(Bytes::Argument(3), expiry, false).counting_from_now(form.counts_from_now())))
}

/// Decodes `GETSET key value`.
pub(super) fn get_set() -> KeyCommand {
    KeyCommand::String(stored(Bytes::Argument(2), ExpiryChange::CLEAR, true))
}

fn stored(value: Bytes, expiry: ExpiryChange, return_old: bool) -> StringCommand {
    let condition = ConditionKind::Always;
    let operation = StringOperation::Set { value, condition, operand: Bytes::None, expiry, return_old };
    StringCommand::new(operation, if return_old { ReplyForm::Value } else { ReplyForm::Status })
}

/// Decodes `GETDEL key`.
pub(super) fn get_and_delete() -> KeyCommand {
    KeyCommand::String(StringCommand::new(remove(ConditionKind::Always, Bytes::None, true), ReplyForm::Value))
}

fn remove(condition: ConditionKind, operand: Bytes, return_old: bool) -> StringOperation {
    StringOperation::Remove { condition, operand, return_old }
}

/// Decodes `GETEX key [PERSIST | EX n | PX n | EXAT n | PXAT n]`.
pub(super) fn get_and_expire(arguments: Arguments<'_>, now: UnixTime) -> Result<KeyCommand, String> {
    let mut expiry = ExpiryOption::None;
    let mut index = 2;
    while index < arguments.count() {
        if arguments.is(index, "PERSIST") && !matches!(expiry, ExpiryOption::Time(..)) {
            expiry = ExpiryOption::Word;
        } else if let Some(time) = time_option(arguments, index, expiry) {
            expiry = time;
            index += 1;
        } else {
            return Err("ERR syntax error".to_owned());
        }
        index += 1;
    }
    let counts_from_now = expiry.counts_from_now();
    let change = match expiry {
        ExpiryOption::None => return Ok(KeyCommand::Get),
        ExpiryOption::Word => ExpiryChange::CLEAR,
        ExpiryOption::Time(form, index) => {
            let expiry = form.positive(integer(arguments, index)?, "getex", now)?;
            if has_passed(expiry, now) {
                return Ok(get_and_delete());
            }
            ExpiryChange::set(expiry)
        }
    };
    let condition = ExpiryCondition::Always;
    let operation = StringOperation::Expire { expiry: change, condition, return_value: true };
    Ok(KeyCommand::String(StringCommand::new(operation, ReplyForm::Value).counting_from_now(counts_from_now)))
}

/// Decodes `DELEX key [IFEQ v | IFNE v | IFDEQ d | IFDNE d]`.
pub(super) fn delete_if(arguments: Arguments<'_>, operands: &mut Operands) -> Result<KeyCommand, String> {
    let operation = match arguments.count() {
        2 => StringOperation::Delete,
        4 => match condition_option(arguments, 2) {
            Some((kind, operand @ Some(_))) => {
                remove(kind, condition_operand(arguments, kind, operand, operands)?, false)
            }
            _ => return Err("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE".to_owned()),
        },
        _ => return Err(wrong_argument_count("delex")),
    };
    Ok(KeyCommand::String(StringCommand::new(operation, ReplyForm::Flag)))
}

/// Returns the condition that an option names, and the argument of its operand.
fn condition_option(arguments: Arguments<'_>, index: usize) -> Option<ConditionOption> {
    let options = [
        ("NX", ConditionKind::IfAbsent),
        ("XX", ConditionKind::IfPresent),
        ("IFEQ", ConditionKind::IfEqual),
        ("IFNE", ConditionKind::IfNotEqual),
        ("IFDEQ", ConditionKind::IfDigest),
        ("IFDNE", ConditionKind::IfNotDigest),
    ];
    let (_, kind) = options.into_iter().find(|(word, _)| arguments.is(index, word))?;
    match kind {
        ConditionKind::IfAbsent | ConditionKind::IfPresent => Some((kind, None)),
        _ => (index + 1 < arguments.count()).then_some((kind, Some(index + 1))),
    }
}

/// Returns the bytes to compare with. A digest is converted from its 16 digits.
fn condition_operand(
    arguments: Arguments<'_>,
    kind: ConditionKind,
    operand: Option<usize>,
    operands: &mut Operands,
) -> Result<Bytes, String> {
    let Some(index) = operand else { return Ok(Bytes::None) };
    if !matches!(kind, ConditionKind::IfDigest | ConditionKind::IfNotDigest) {
        return Ok(Bytes::Argument(index as u32));
    }
    let digits = arguments.text(index);
    let is_hexadecimal = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let digest = u64::from_str_radix(&digits, 16).ok().filter(|_| is_hexadecimal);
    let digest = digest.ok_or("ERR The digest must be exactly 16 hexadecimal characters")?;
    Ok(operands.append(|bytes| bytes.extend_from_slice(&digest.to_le_bytes())))
}

/// Returns the time in the option at `index` and its operand, if there is one, and it may follow the options before.
pub(super) fn time_option(arguments: Arguments<'_>, index: usize, before: ExpiryOption) -> Option<ExpiryOption> {
    let form = TimeForm::of_option(arguments.get(index))?;
    let may_follow = match before {
        ExpiryOption::None => true,
        ExpiryOption::Word => false,
        ExpiryOption::Time(other, _) => other == form,
    };
    (may_follow && index + 1 < arguments.count()).then_some(ExpiryOption::Time(form, index + 1))
}
