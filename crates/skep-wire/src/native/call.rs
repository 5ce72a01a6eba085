//! The operand of a call of a user function.
//!
//! ```text
//! | function | revision | vectors | reply, flags | operands size | operands | initial |
//!   u32        u32        u8        u8             u32
//! reply, flags   7 6 5   4         3 ..... 0
//!                | 0 0 0 | INITIAL | reply |
//! ```
//!
//! - *function* is the number of a name, and *revision* says which of the functions that had the name is meant: 0 for the
//!   newest. Only the log names others.
//! - *reply* is the code of a [`CallReply`].
//! - The initial value is what is left after the operands. It is there if `INITIAL` is set.

use skep_core::function::FunctionHandle;
use skep_core::operation::{Call, CallReply};

use super::{Cursor, WireError};

/// Bytes of a call before its operands.
pub(super) const HEADER_SIZE: usize = 14;

const REPLY_MASK: u8 = 0x0F;
const INITIAL: u8 = 0x10;

const _: () = assert!(CallReply::ALL.len() <= REPLY_MASK as usize + 1 && REPLY_MASK & INITIAL == 0);

/// Returns the bytes of a call before its operands.
pub(super) fn encode_header(call: &Call<'_>) -> [u8; HEADER_SIZE] {
    let mut header = [0; HEADER_SIZE];
    header[..4].copy_from_slice(&call.function.id.to_le_bytes());
    header[4..8].copy_from_slice(&call.function.revision.to_le_bytes());
    header[8] = call.vectors;
    header[9] = call.reply as u8 | if call.initial.is_some() { INITIAL } else { 0 };
    // Operands that are too long do not fit a frame.
    header[10..].copy_from_slice(&(call.operands.len() as u32).to_le_bytes());
    header
}

/// Decodes the operand of a call. The function is not looked up.
pub(super) fn decode(operand: &[u8]) -> Result<Call<'_>, WireError> {
    fn parts(cursor: &mut Cursor<'_>) -> Option<(u32, u32, u8, u8, u32)> {
        let (id, revision) = (cursor.take_u32()?, cursor.take_u32()?);
        Some((id, revision, cursor.take_u8()?, cursor.take_u8()?, cursor.take_u32()?))
    }
    let mut cursor = Cursor { rest: operand };
    let (id, revision, vectors, reply, size) = parts(&mut cursor).ok_or(WireError::Malformed)?;
    let operands = cursor.take(size as usize).ok_or(WireError::Malformed)?;
    let has_initial = reply & INITIAL != 0;
    if reply & !(REPLY_MASK | INITIAL) != 0 || !has_initial && !cursor.rest.is_empty() {
        return Err(WireError::Malformed);
    }
    let reply = CallReply::ALL.get(usize::from(reply & REPLY_MASK)).ok_or(WireError::Malformed)?;
    let function = FunctionHandle { id, revision, function: None };
    Ok(Call { function, vectors, operands, initial: has_initial.then_some(cursor.rest), reply: *reply })
}
