//! The execution engine: one operation on a value that is resident (KV-Direct, section 3.3.3, "dedicated execution
//! engine").
//!
//! It serves the first operation that found the value and all that get it forwarded. It carries out what leaves the
//! value's size as it is, so that writing back cannot fail; the rest takes the main path through the table.

use super::replies::Replies;
use crate::memory::Effect;
use crate::short::{load_short, overwrite};
use skep_core::function::{DecimalText, add_decimal, filter, reduce, update, update_short};
use skep_core::operation::{Filter, Operation, OperationError, PutCondition, Reduce, Reply, Request, Shape, Update};

/// Whether an operation could be carried out on the value where it lies.
pub(super) enum InPlace {
    /// It was, and answered.
    Answered(Effect),
    /// It was not: the pair goes, or its size changes.
    MainPath,
}

/// What an operation does with a value of at most eight bytes that keeps its size.
pub(super) struct Short {
    /// Whether it answers the value as it was. Otherwise it answers that it was done.
    pub(super) answers_value: bool,
    /// The value that it leaves, in the lower bytes; `None`: as it was.
    pub(super) left: Option<u64>,
}

/// Carries out the operation on a value that is the lower `size` bytes of a number, if it is one that reads, overwrites or
/// counts.
#[inline(always)]
pub(super) fn execute_short(operation: &Operation<'_>, value: u64, size: usize) -> Option<Short> {
    match operation {
        Operation::Contains => Some(Short { answers_value: false, left: None }),
        Operation::Get => Some(Short { answers_value: true, left: None }),
        Operation::Put { value: new, condition } if new.len() == size && *condition != PutCondition::IfAbsent => {
            Some(Short { answers_value: false, left: Some(load_short(new)) })
        }
        Operation::Update(operation)
            if operation.shape == Shape::ScalarToScalar && operation.element.width() == size =>
        {
            let left = update_short(operation.function, operation.element, load_short(operation.operand), value)?;
            Some(Short { answers_value: operation.return_old, left: Some(left) })
        }
        _ => None,
    }
}

/// Carries out the operation on the value of its key, if it can be done in place. Otherwise, for a decimal number, `sum`
/// is its new text.
#[inline(never)]
pub(super) fn execute_in_place(
    request: &Request<'_>,
    value: &mut [u8],
    place: usize,
    replies: &mut Replies,
    sum: &mut Option<DecimalText>,
) -> InPlace {
    let (reply, effect) = match &request.operation {
        Operation::Get => (Reply::Value(value), Effect::Unchanged),
        Operation::Contains => (Reply::Done, Effect::Unchanged),
        Operation::Put { condition: PutCondition::IfAbsent, .. } => (Reply::Exists, Effect::Unchanged),
        Operation::Put { value: new, .. } if new.len() == value.len() => {
            overwrite(value, new);
            (Reply::Done, Effect::Changed)
        }
        Operation::Put { .. } | Operation::Delete => return InPlace::MainPath,
        Operation::Update(operation) => return update_in_place(operation, value, place, replies),
        Operation::Reduce(operation) => {
            answer_reduce(operation, value, place, replies);
            return InPlace::Answered(Effect::Unchanged);
        }
        Operation::Filter(operation) => {
            answer_filter(operation, value, place, replies);
            return InPlace::Answered(Effect::Unchanged);
        }
        Operation::Scan(_) => (Reply::Failed(OperationError::NotOrdered), Effect::Unchanged),
        Operation::AddDecimal { delta } => {
            let mut text = DecimalText::new(0);
            match add_decimal(value, *delta, &mut text) {
                Err(error) => (Reply::Failed(error), Effect::Unchanged),
                Ok(()) if text.as_bytes().len() == value.len() => {
                    value.copy_from_slice(text.as_bytes());
                    (Reply::Value(value), Effect::Changed)
                }
                Ok(()) => {
                    *sum = Some(text);
                    return InPlace::MainPath;
                }
            }
        }
    };
    replies.set(place, reply);
    InPlace::Answered(effect)
}

/// Folds a value.
pub(crate) fn answer_reduce(operation: &Reduce<'_>, value: &[u8], place: usize, replies: &mut Replies) {
    if let Err(error) = operation.validate_value(value.len()) {
        return replies.set(place, Reply::Failed(error));
    }
    let mut accumulator = [0; 8];
    let accumulator = &mut accumulator[..operation.element.width()];
    accumulator.copy_from_slice(operation.initial);
    reduce(operation.fold, operation.element, accumulator, value, operation.constants);
    replies.set(place, Reply::Value(accumulator));
}

/// Answers the elements of a value that pass.
pub(crate) fn answer_filter(operation: &Filter<'_>, value: &[u8], place: usize, replies: &mut Replies) {
    if let Err(error) = operation.validate_value(value.len()) {
        return replies.set(place, Reply::Failed(error));
    }
    let start = replies.bytes_mut().len();
    filter(operation.predicate, operation.element, operation.operand, value, replies.bytes_mut());
    replies.finish_value(place, start);
}

/// Carries out an atomic update.
#[inline(never)]
pub(super) fn update_in_place(
    operation: &Update<'_>,
    value: &mut [u8],
    place: usize,
    replies: &mut Replies,
) -> InPlace {
    if let Err(error) = operation.validate_value(value.len()) {
        replies.set(place, Reply::Failed(error));
        return InPlace::Answered(Effect::Unchanged);
    }
    if operation.return_old {
        replies.set_value(place, value);
    } else {
        replies.set(place, Reply::Done);
    }
    update(operation.function, operation.element, operation.shape, operation.operand, value);
    InPlace::Answered(Effect::Changed)
}
