//! Updates that are executed in place, piece by piece.

use skep_core::function::{UserCode, operand_piece, update};
use skep_core::operation::{Call, CallReply, Update};

use super::call_reader::operands;

/// An update that is executed in place, piece by piece.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InPlace<'a> {
    /// By a built-in function.
    BuiltIn(&'a Update<'a>),
    /// By a user function that cannot fail.
    User(&'a Call<'a>),
}

impl InPlace<'_> {
    /// Returns true if the reply is a value: the old one, or the results of a user function. Otherwise it is
    /// [`Reply::Done`](skep_core::operation::Reply::Done).
    #[inline]
    pub(crate) fn replies_with_value(self) -> bool {
        match self {
            InPlace::BuiltIn(update) => update.return_old,
            InPlace::User(call) => call.reply != CallReply::Nothing,
        }
    }

    /// Returns the bytes of the reply, for a value of this size; 0 if it is not a value.
    pub(super) fn reply_size(self, value_size: usize) -> usize {
        match self {
            InPlace::BuiltIn(update) => usize::from(update.return_old) * value_size,
            InPlace::User(call) => call.reply_size_max(value_size),
        }
    }

    /// Updates the piece of a value that begins at `offset`, and appends the part of the reply that belongs to it.
    #[inline]
    pub(crate) fn update_piece(self, offset: usize, piece: &mut [u8], reply: &mut Vec<u8>) {
        match self {
            InPlace::BuiltIn(update) => {
                if update.return_old {
                    reply.extend_from_slice(piece);
                }
                update_piece(update, offset, piece);
            }
            InPlace::User(call) => update_by_call(call, offset, piece, reply),
        }
    }
}

/// Updates the piece of a value that begins at `offset`, by a built-in function.
#[inline]
pub(crate) fn update_piece(operation: &Update<'_>, offset: usize, piece: &mut [u8]) {
    let range = offset..offset + piece.len();
    let operand = operand_piece(operation.function, operation.shape, operation.operand, range);
    update(operation.function, operation.element, operation.shape, operand, piece);
}

/// Updates the piece of a value that begins at `offset`, by a function that cannot fail. Appends the part of the reply that
/// belongs to the piece.
#[inline]
fn update_by_call(call: &Call<'_>, offset: usize, piece: &mut [u8], reply: &mut Vec<u8>) {
    let Some(function) = call.function.function else { return };
    let UserCode::Update(code) = &function.code else { return };
    if call.reply == CallReply::Old {
        reply.extend_from_slice(piece);
    }
    let operands = operands(call, function, function.signature.element.count(offset));
    let start = reply.len();
    reply.resize(start + function.signature.results_size(piece.len()), 0);
    let result = code(piece, &operands, &mut reply[start..]);
    if call.reply != CallReply::Result {
        reply.truncate(start);
    }
    debug_assert_eq!(result, Ok(()), "the function cannot fail");
}
