//! The execution engine: one operation on a value that is resident in one piece (KV-Direct, section 3.3.3, "dedicated
//! execution engine").
//!
//! It serves the first operation that has found the value, and the later ones of the key. [`apply`] says what an
//! operation does. This module does it in place if the value keeps its size and the key its expiry. So no memory is
//! needed, and the write cannot fail.
//! All other edits are returned, for the table.

use super::replies::ReplySlot;
use crate::apply::{
    Arena, Edit, Found, InPlace, NewValue, Outcome, apply, apply_to_any, apply_to_missing, valid_update,
};
use crate::hash::{Access, ResidentValue};
use crate::memory::Effect;
use crate::short::overwrite;
use skep_core::operation::Operation;

/// Executes an operation on the value of its key, if that can be done in place.
#[inline(always)]
pub(super) fn execute<'a>(
    operation: &'a Operation<'a>,
    value: ResidentValue<'_>,
    mut reply: ReplySlot<'_>,
    arena: &'a Arena,
) -> Access<'a> {
    if let Operation::Get = operation {
        // The outcome of `apply`, without a call.
        reply.set_value(value.bytes);
        return Access::Done(Effect::Unchanged);
    }
    execute_other(operation, value, reply, arena)
}

/// Does the same for any operation.
#[inline(never)]
fn execute_other<'a>(
    operation: &'a Operation<'a>,
    ResidentValue { bytes: value, expiry }: ResidentValue<'_>,
    mut reply: ReplySlot<'_>,
    arena: &'a Arena,
) -> Access<'a> {
    let overwrites = |new: &NewValue<'_>| new.size() == value.len() && new.expiry().apply(expiry) == expiry;
    // Most are puts, which are compiled by themselves.
    if let Some(Outcome::Edit(Edit::Store(put))) = apply_to_any(operation)
        && overwrites(&put)
    {
        overwrite(value, put.bytes());
        reply.set(put.reply());
        return Access::Done(Effect::Changed);
    }
    // So are updates.
    if let Some(update) = valid_update(operation, value.len()) {
        reply.set_updated(InPlace::BuiltIn(update), value);
        return Access::Done(Effect::Changed);
    }
    Access::Done(match apply(operation, Some(|| Found::bytes(value, expiry)), arena) {
        Outcome::Reply(fixed) => {
            reply.set(fixed);
            Effect::Unchanged
        }
        Outcome::Read(read) => {
            reply.set_read(read, value);
            Effect::Unchanged
        }
        Outcome::Update(update) => {
            reply.set_updated(update, value);
            Effect::Changed
        }
        Outcome::Edit(Edit::Store(new)) if overwrites(&new) => {
            overwrite(value, new.bytes());
            reply.set(new.reply());
            Effect::Changed
        }
        Outcome::Edit(edit) => return Access::Edit(edit),
        Outcome::Part(_) | Outcome::Whole | Outcome::Expire(_) => unreachable!("the value is in one piece"),
    })
}

/// Executes an operation on a missing key, unless it inserts a pair.
#[inline]
pub(super) fn execute_on_missing<'a>(
    operation: &'a Operation<'a>,
    mut reply: ReplySlot<'_>,
    arena: &'a Arena,
) -> Access<'a> {
    match apply_to_missing(operation, arena) {
        Outcome::Edit(edit) => Access::Edit(edit),
        Outcome::Reply(fixed) => {
            reply.set(fixed);
            Access::Done(Effect::Unchanged)
        }
        Outcome::Read(_) | Outcome::Update(_) | Outcome::Part(_) | Outcome::Expire(_) | Outcome::Whole => {
            unreachable!("a missing key has no value")
        }
    }
}
