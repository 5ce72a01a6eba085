//! The effect of a call of a user function (KV-Direct, section 3.2).
//!
//! | function | executed |
//! |---|---|
//! | an update | in place, piece by piece |
//! | a reduce or a filter | on the pieces, in their order |
//! | one that can fail | on a copy in the arena |
//! | one whose elements a piece may cut | on a value of more than 512 bytes: on a copy |
//!
//! - If a function fails on the copy, the value is what it was.
//! - Pieces of a value begin at multiples of [`PIECE_ALIGNMENT`] bytes. So no piece cuts an element whose size divides that.

use super::call_reader::{CallReader, operands};
use super::string::stored;
use super::{Arena, FoundValue, InPlace, Outcome, Read, ShortOutcome, Written};
use skep_core::function::{UserCode, UserFunction};
use skep_core::operation::{Call, CallReply, ExpiryChange, OperationError, Reply};

/// The pieces of a value begin at multiples of this many bytes.
const PIECE_ALIGNMENT: usize = 64;
/// The most bytes of a value that is always in one piece.
pub(crate) const UNCUT_SIZE_MAX: usize = 512;

/// Returns the outcome of a valid call on a value that is the lower `size` bytes of a number, if it is one element and the
/// function has a form for that.
#[inline(never)]
pub(super) fn call_short(call: &Call<'_>, value: u64, size: usize) -> Option<ShortOutcome> {
    let function = call.function.function?;
    let short = function.short.as_ref()?;
    // Operands for all elements and for each have the same bytes then.
    if short.element_size != size || short.operands_size != call.operands.len() {
        return None;
    }
    function.note_call(1);
    let changed = (short.code)(value, call.operands);
    Some(ShortOutcome { returns_value: call.reply == CallReply::Old, changed: Some(changed) })
}

/// Returns the outcome of a valid call on an existing value.
#[inline(never)]
pub(super) fn call<'a>(
    call: &'a Call<'a>,
    value: FoundValue<'_>,
    arena: &'a Arena,
) -> Result<Outcome<'a>, OperationError> {
    call.validate_value(value.size())?;
    let function = call.function()?;
    let can_fail = function.signature.can_fail;
    match (value, &function.code) {
        (FoundValue::InPieces(_), _) if can_fail || is_cut(function) => return Ok(Outcome::Whole),
        // The bytes of a long value may be a copy of its pieces.
        (FoundValue::Bytes(bytes), _) if can_fail || is_cut(function) && bytes.len() > UNCUT_SIZE_MAX => {
            return execute_on_copy(call, function, bytes, arena);
        }
        _ => {}
    }
    count_call(call, function, value.size(), arena);
    Ok(match function.code {
        UserCode::Update(_) => Outcome::Update(InPlace::User(call)),
        UserCode::Reduce(_) | UserCode::Filter(_) => Outcome::Read(Read::Call(call)),
    })
}

/// Returns the outcome of a valid call on a missing key: the pair to insert if it is an update with an initial value, else a
/// reply.
#[inline(never)]
pub(super) fn call_missing<'a>(call: &'a Call<'a>, arena: &'a Arena) -> Outcome<'a> {
    let (Ok(function), Some(initial)) = (call.function(), call.initial) else { return Outcome::Reply(Reply::NotFound) };
    if call.is_read() {
        return Outcome::Reply(Reply::NotFound);
    }
    // Not as a call: this is computed again when a slot or a slab was found for the pair.
    count_work(call, initial.len(), arena);
    update_copy(call, function, initial, ExpiryChange::CLEAR, arena)
        .unwrap_or_else(|error| Outcome::Reply(Reply::Failed(error)))
}

/// Returns true if the pieces of a value may cut an element in two.
fn is_cut(function: &UserFunction) -> bool {
    !PIECE_ALIGNMENT.is_multiple_of(function.signature.element.size())
}

/// Counts the call of a function on a value of this size.
fn count_call(call: &Call<'_>, function: &UserFunction, value_size: usize, arena: &Arena) {
    function.note_call(value_size / function.signature.element.size());
    count_work(call, value_size, arena);
}

/// Counts an instruction as a byte that could be read in the time, and the bytes of the reply.
fn count_work(call: &Call<'_>, value_size: usize, arena: &Arena) {
    arena.count_work(call.work(value_size) as usize + call.reply_size_max(value_size));
}

fn execute_on_copy<'a>(
    call: &'a Call<'a>,
    function: &'static UserFunction,
    value: &[u8],
    arena: &'a Arena,
) -> Result<Outcome<'a>, OperationError> {
    count_call(call, function, value.len(), arena);
    let outcome = match function.code {
        UserCode::Update(_) => update_copy(call, function, value, ExpiryChange::KEEP, arena),
        UserCode::Reduce(_) | UserCode::Filter(_) => read_copy(call, value, arena),
    };
    outcome.inspect_err(|_| function.note_failure())
}

fn read_copy<'a>(call: &'a Call<'a>, value: &[u8], arena: &'a Arena) -> Result<Outcome<'a>, OperationError> {
    let mut reader = CallReader::new(call);
    let mut reply = Vec::new();
    reader.read(0, value, &mut reply)?;
    reader.finish(&mut reply);
    Ok(Outcome::Read(Read::Computed(arena.copy(&reply))))
}

fn update_copy<'a>(
    call: &'a Call<'a>,
    function: &'static UserFunction,
    old: &[u8],
    expiry: ExpiryChange,
    arena: &'a Arena,
) -> Result<Outcome<'a>, OperationError> {
    let value = arena.copy(old);
    let results = arena.zeros(function.signature.results_size(old.len()));
    let UserCode::Update(code) = &function.code else { unreachable!("an update") };
    code(value, &operands(call, function, 0), results)?;
    let reply: Option<&[u8]> = match call.reply {
        CallReply::Old => Some(arena.copy(old)),
        CallReply::Result => Some(results),
        _ => None,
    };
    Ok(stored(Written { value, expiry, reply }, arena))
}
