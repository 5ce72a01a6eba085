//! The effect of an operation on a value, written once for all engines (KV-Direct, section 3.2, Table 1).
//!
//! ```text
//!                       ┌─▶ Reply   nothing changes
//! operation, value      ├─▶ Read    nothing changes; the reply is computed from the value
//! or missing ──▶ apply ─┼─▶ Update  every element changes in place
//!                       ├─▶ Part    a part of a value in pieces changes in place, or the value grows
//!                       ├─▶ Store   the key has another value
//!                       └─▶ Remove  the key has none
//! ```
//!
//! 1. [`apply`] returns the [`Outcome`]. It decides the conditions of puts, checks operands against the size of the value,
//!    adds decimal numbers, and computes the values that operations on strings store (`string`). Requests are valid, as
//!    [`Request::validate`] defines. Computed values are in the arena of the batch, so that an outcome can be copied.
//! 2. The engine carries the outcome out where the value is: in its bucket or slab, piece by piece, or in the log of a
//!    leaf. [`Reader`], [`InPlace`] and [`NewValue`] do this on whole values and on pieces of them. A piece begins and
//!    ends between elements.
//! 3. [`apply_short`] is the fast form for values in a register. A test compares it with [`apply`].
//!
//! The naive store does not use this module, because it checks it.
//!
//! A value in pieces is copied to one piece only if the outcome depends on its bytes: [`Outcome::Whole`].
//!
//! [`Request::validate`]: skep_core::operation::Request::validate

mod arena;
mod call;
mod call_reader;
mod in_place;
mod read;
mod string;

pub(crate) use arena::Arena;
pub(crate) use call::UNCUT_SIZE_MAX;
pub(crate) use in_place::{InPlace, update_piece};
pub(crate) use read::{Read, Reader};

use std::hint::cold_path;
use std::ops::Range;

use crate::short::load_short;
use skep_core::function::{BitFields, DecimalText, add_decimal, update_short, update_short_vector};
use skep_core::operation::{
    CallReply, Expiry, ExpiryChange, Operation, OperationError, PutCondition, Reply, Shape, Update, VALUE_SIZE_MAX,
};

/// The value and the expiry of a key, as far as an engine knows them before the outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'v> {
    /// The value.
    pub(crate) value: FoundValue<'v>,
    /// When the key expires. The time has not passed.
    pub(crate) expiry: Option<Expiry>,
}

/// The value of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FoundValue<'v> {
    /// Its bytes.
    Bytes(&'v [u8]),
    /// The size of a value that is in pieces. It is longer than any decimal number.
    InPieces(usize),
}

impl<'v> Found<'v> {
    /// Returns a value in one piece.
    #[inline(always)]
    pub(crate) fn bytes(bytes: &'v [u8], expiry: Option<Expiry>) -> Self {
        Found { value: FoundValue::Bytes(bytes), expiry }
    }

    /// Returns a value in pieces, of this size.
    pub(crate) fn in_pieces(size: usize, expiry: Option<Expiry>) -> Self {
        Found { value: FoundValue::InPieces(size), expiry }
    }
}

impl FoundValue<'_> {
    /// Returns the number of bytes.
    fn size(self) -> usize {
        match self {
            FoundValue::Bytes(bytes) => bytes.len(),
            FoundValue::InPieces(size) => size,
        }
    }
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome<'a> {
    /// Nothing changes.
    Reply(Reply<'static>),
    /// Nothing changes. The reply is computed from the value.
    Read(Read<'a>),
    /// Every element of the value is replaced in place.
    Update(InPlace<'a>),
    /// A part of a value in pieces is written. An engine that cannot do this takes [`Outcome::Whole`].
    Part(PartWrite<'a>),
    /// The pair is stored or removed.
    Edit(Edit<'a>),
    /// The value stays as it is, in pieces, and its expiry changes. An engine that cannot do this takes [`Outcome::Whole`].
    Expire(ExpiryChange),
    /// The outcome depends on the bytes of a value in pieces: apply the operation to a copy in one piece.
    Whole,
}

/// A write of a part of a value in pieces. If the value is shorter, it first grows by zeros. The expiry stays.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PartWrite<'a> {
    /// Writes bytes from a position on. The reply is the size of the value.
    Bytes(usize, &'a [u8]),
    /// Executes fields of bits. The reply is theirs.
    Fields(BitFields<'a>),
}

impl PartWrite<'_> {
    /// Returns the size that the value needs.
    pub(crate) fn end(self) -> usize {
        match self {
            PartWrite::Bytes(offset, bytes) => offset + bytes.len(),
            PartWrite::Fields(fields) => fields.size_written(),
        }
    }

    /// Returns the bytes of a value of this size that are read and written.
    pub(crate) fn range(self, size: usize) -> Range<usize> {
        match self {
            PartWrite::Bytes(offset, bytes) => offset..offset + bytes.len(),
            PartWrite::Fields(fields) => fields.range(size),
        }
    }
}

/// A change of a whole pair.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edit<'a> {
    /// The pair is removed. Holds the value before, if the reply is that value.
    Remove(Option<&'a [u8]>),
    /// The key has this value, and the pair is inserted if it was missing.
    Store(NewValue<'a>),
}

/// The value that an operation stores.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewValue<'a> {
    /// The value of a put.
    Put(&'a [u8]),
    /// The initial value of an update, updated.
    Initial(&'a Update<'a>, &'a [u8]),
    /// The sum of decimal numbers.
    Sum(DecimalText),
    /// The value and expiry of a set.
    Set(&'a [u8], ExpiryChange),
    /// A value that was computed, and the reply.
    Written(&'a Written<'a>),
}

/// A value that was computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written<'a> {
    value: &'a [u8],
    expiry: ExpiryChange,
    /// `None` for [`Reply::Done`].
    reply: Option<&'a [u8]>,
}

/// Returns the outcome of a valid operation on the value of its key, or on a missing key. Calls `found` only if the outcome
/// depends on the value or its expiry.
#[inline(always)]
pub(crate) fn apply<'a, 'v>(
    operation: &'a Operation<'a>,
    found: Option<impl FnOnce() -> Found<'v>>,
    arena: &'a Arena,
) -> Outcome<'a> {
    let Some(found) = found else { return apply_to_missing(operation, arena) };
    apply_to_any(operation).unwrap_or_else(|| apply_to_value(operation, found(), arena))
}

/// Returns the outcome of a valid operation on an existing key, if it does not depend on the value.
#[inline(always)]
pub(crate) fn apply_to_any<'a>(operation: &'a Operation<'a>) -> Option<Outcome<'a>> {
    match operation {
        Operation::Get => Some(Outcome::Read(Read::Value)),
        Operation::Contains => Some(Outcome::Reply(Reply::Done)),
        Operation::Put { condition: PutCondition::IfAbsent, .. } => Some(Outcome::Reply(Reply::Exists)),
        Operation::Put { value, .. } => Some(Outcome::Edit(Edit::Store(NewValue::Put(value)))),
        Operation::Delete => Some(Outcome::Edit(Edit::Remove(None))),
        _ => None,
    }
}

/// Returns the update if the operation is one that can be carried out on a value of this size.
#[inline(always)]
pub(crate) fn valid_update<'a>(operation: &'a Operation<'a>, size: usize) -> Option<&'a Update<'a>> {
    match operation {
        Operation::Update(update) if update.validate_value(size).is_ok() => Some(update),
        _ => None,
    }
}

/// Returns the outcome of an operation that depends on the value.
#[inline(always)]
fn apply_to_value<'a>(operation: &'a Operation<'a>, found: Found<'_>, arena: &'a Arena) -> Outcome<'a> {
    let size = found.value.size();
    let outcome = match operation {
        Operation::Update(update) => update.validate_value(size).map(|()| Outcome::Update(InPlace::BuiltIn(update))),
        Operation::Reduce(reduce) => reduce.validate_value(size).map(|()| Outcome::Read(Read::Reduce(reduce))),
        Operation::Filter(filter) => filter.validate_value(size).map(|()| Outcome::Read(Read::Filter(filter))),
        Operation::Call(call) => call::call(call, found.value, arena),
        Operation::StringRead(read) => Ok(string::read(read, &found)),
        Operation::StringWrite(write) => string::write(write, &found, arena),
        Operation::AddDecimal { delta } => match found.value {
            FoundValue::Bytes(text) => sum(text, *delta),
            FoundValue::InPieces(_) => Err(OperationError::NotAnInteger),
        },
        Operation::Scan(_) => Err(OperationError::NotOrdered),
        Operation::Get | Operation::Contains | Operation::Put { .. } | Operation::Delete => {
            unreachable!("the outcome does not depend on the value")
        }
    };
    outcome.unwrap_or_else(|error| Outcome::Reply(Reply::Failed(error)))
}

/// Returns the outcome of a valid operation on a missing key: a reply, or a pair to insert.
#[inline(always)]
pub(crate) fn apply_to_missing<'a>(operation: &'a Operation<'a>, arena: &'a Arena) -> Outcome<'a> {
    let store = |new| Outcome::Edit(Edit::Store(new));
    if let Some(put) = put_if_missing(operation) {
        return store(put);
    }
    match operation {
        Operation::Update(update @ Update { initial: Some(initial), .. }) => store(NewValue::Initial(update, initial)),
        Operation::AddDecimal { delta } => store(NewValue::Sum(DecimalText::new(*delta))),
        Operation::StringWrite(write) => string::write_missing(write, arena),
        Operation::Call(call) => call::call_missing(call, arena),
        Operation::Scan(_) => Outcome::Reply(Reply::Failed(OperationError::NotOrdered)),
        Operation::Get | Operation::Contains | Operation::Put { .. } | Operation::Delete => {
            Outcome::Reply(Reply::NotFound)
        }
        Operation::Update(_) | Operation::Reduce(_) | Operation::Filter(_) | Operation::StringRead(_) => {
            Outcome::Reply(Reply::NotFound)
        }
    }
}

/// Returns the value that a put stores if the key is missing. `None` for other operations, and for puts that do nothing
/// then.
#[inline(always)]
pub(crate) fn put_if_missing<'a>(operation: &'a Operation<'a>) -> Option<NewValue<'a>> {
    match operation {
        Operation::Put { value, condition } if *condition != PutCondition::IfPresent => Some(NewValue::Put(value)),
        _ => None,
    }
}

/// Returns the size of the value that an operation stores if the key is missing, if this takes no computing of the value.
pub(crate) fn size_if_missing(operation: &Operation<'_>) -> Option<usize> {
    match operation {
        Operation::StringWrite(write) => string::size_if_missing(write),
        Operation::Call(call) if !call.is_read() => call.initial.map(<[u8]>::len),
        _ => None,
    }
}

#[inline(never)]
fn sum<'a>(text: &[u8], delta: i64) -> Result<Outcome<'a>, OperationError> {
    let mut sum = DecimalText::default();
    add_decimal(text, delta, &mut sum)?;
    Ok(Outcome::Edit(Edit::Store(NewValue::Sum(sum))))
}

/// The outcome of an operation on a value of at most eight bytes that keeps its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortOutcome {
    /// Selects the reply: the value before if true, else [`Reply::Done`].
    pub(crate) returns_value: bool,
    /// The value after, in the lower bytes; `None` if it is unchanged.
    pub(crate) changed: Option<u64>,
}

/// Returns the outcome of an operation on a value that is the lower `size` bytes of a number, if the operation reads,
/// overwrites or updates integers. The bytes of the changed value above `size` are undefined. For all other operations
/// there is [`apply`].
#[inline(always)]
pub(crate) fn apply_short(operation: &Operation<'_>, value: u64, size: usize) -> Option<ShortOutcome> {
    let outcome = apply_built_in_short(operation, value, size);
    if outcome.is_none()
        && let Operation::Call(call) = operation
    {
        cold_path();
        return call::call_short(call, value, size);
    }
    outcome
}

/// Does the same for operations other than calls. Were calls a case of this match, puts would need more instructions.
#[inline(always)]
fn apply_built_in_short(operation: &Operation<'_>, value: u64, size: usize) -> Option<ShortOutcome> {
    match operation {
        Operation::Contains => Some(ShortOutcome { returns_value: false, changed: None }),
        Operation::Get => Some(ShortOutcome { returns_value: true, changed: None }),
        Operation::Put { value: new, condition } if new.len() == size && *condition != PutCondition::IfAbsent => {
            Some(ShortOutcome { returns_value: false, changed: Some(load_short(new)) })
        }
        Operation::Update(update) if update.shape != Shape::VectorToVector => {
            let (function, element, operand) = (update.function, update.element, load_short(update.operand));
            let width = element.width();
            let changed = if width == size {
                update_short(function, element, operand, value)?
            } else if update.shape == Shape::ScalarToVector && size.is_multiple_of(width) {
                update_short_vector(function, element, operand, value)?
            } else {
                return None;
            };
            Some(ShortOutcome { returns_value: update.return_old, changed: Some(changed) })
        }
        _ => None,
    }
}

/// Returns the most bytes of the old value in the reply to a write, before this value is known. A single element counts as
/// none. Returns `None` if the write does not reply with the old value.
pub(crate) fn old_value_size_max(operation: &Operation<'_>) -> Option<usize> {
    match operation {
        Operation::Update(update) if update.return_old => Some(match update.shape {
            Shape::ScalarToScalar => 0,
            Shape::ScalarToVector => VALUE_SIZE_MAX,
            Shape::VectorToVector => update.operand.len(),
        }),
        Operation::StringWrite(write) => write.returns_old_value().then_some(VALUE_SIZE_MAX),
        Operation::Call(call) if call.reply != CallReply::Nothing => Some(VALUE_SIZE_MAX),
        _ => None,
    }
}

impl<'a> NewValue<'a> {
    /// Returns its bytes before [`NewValue::finish`].
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            NewValue::Put(value) | NewValue::Initial(_, value) | NewValue::Set(value, _) => value,
            NewValue::Sum(text) => text.as_bytes(),
            NewValue::Written(written) => written.value,
        }
    }

    /// Returns the change of the key's expiry.
    #[inline]
    pub(crate) fn expiry(&self) -> ExpiryChange {
        match self {
            NewValue::Put(_) | NewValue::Initial(..) => ExpiryChange::CLEAR,
            NewValue::Sum(_) => ExpiryChange::KEEP,
            NewValue::Set(_, expiry) => *expiry,
            NewValue::Written(written) => written.expiry,
        }
    }

    /// Returns its size.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.bytes().len()
    }

    /// Changes the piece that begins at `offset`, a copy of its bytes, to what is stored.
    #[inline]
    pub(crate) fn finish(&self, offset: usize, piece: &mut [u8]) {
        if let NewValue::Initial(update, _) = self {
            update_piece(update, offset, piece);
        }
    }

    /// Returns the reply to the operation that has stored it.
    #[inline]
    pub(crate) fn reply(&self) -> Reply<'_> {
        match self {
            NewValue::Put(_) | NewValue::Set(..) => Reply::Done,
            NewValue::Written(written) => written.reply.map_or(Reply::Done, Reply::Value),
            NewValue::Initial(update, initial) if update.return_old => Reply::Value(initial),
            NewValue::Initial(..) => Reply::Done,
            NewValue::Sum(text) => Reply::Value(text.as_bytes()),
        }
    }
}

impl Outcome<'_> {
    /// Returns the most bytes that the reply can have, for a value of this size, if they may be about as many as those of the
    /// value; else 0.
    pub(crate) fn reply_size_max(&self, value_size: usize) -> usize {
        match self {
            Outcome::Read(read) => read.reply_size_max(value_size),
            Outcome::Update(update) => update.reply_size(value_size),
            Outcome::Edit(edit) => match edit.reply() {
                Reply::Value(value) => value.len(),
                _ => 0,
            },
            Outcome::Part(PartWrite::Fields(fields)) => fields.reply_size(),
            Outcome::Reply(_) | Outcome::Part(_) | Outcome::Expire(_) | Outcome::Whole => 0,
        }
    }
}

impl Edit<'_> {
    /// Returns the reply to the operation after the edit.
    #[inline]
    pub(crate) fn reply(&self) -> Reply<'_> {
        match self {
            Edit::Remove(before) => before.map_or(Reply::Done, Reply::Value),
            Edit::Store(new) => new.reply(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::{Generator, GeneratorSettings, NaiveStore, SizeWeights, test_seeds};

    /// Bytes of a piece.
    const PIECE: usize = 64;

    /// Applies an operation to a value, piece by piece. Returns the reply, and changes the value.
    fn execute(
        operation: &Operation<'_>,
        value: &mut Option<Vec<u8>>,
        expiry: Option<Expiry>,
    ) -> (Reply<'static>, Vec<u8>, Option<Expiry>) {
        let old = value.clone().unwrap_or_default();
        let found = value.as_deref().map(|value| move || Found::bytes(value, expiry));
        let arena = Arena::default();
        let mut after = expiry;
        let (reply, bytes) = match apply(operation, found, &arena) {
            Outcome::Reply(reply) => (reply, Vec::new()),
            Outcome::Read(read) => {
                let (mut reader, mut reply) = (Reader::new(read), Vec::new());
                let range = read.range(old.len());
                let size = if let Read::Call(_) = read { old.len().max(1) } else { PIECE };
                for (index, piece) in old.chunks(size).enumerate() {
                    let is_needed = index * size < range.end && range.start < index * size + piece.len();
                    if is_needed && !reader.is_done() {
                        reader.read(index * size, piece, &mut reply);
                    }
                }
                reader.finish(&mut reply);
                assert!(reply.len() <= read.reply_size_max(old.len()).max(8));
                (Reply::Value(&[]), reply)
            }
            Outcome::Update(update) => {
                // A user function may have elements that a piece would cut.
                let size = if let InPlace::User(_) = update { old.len().max(1) } else { PIECE };
                let mut reply = Vec::new();
                for (index, piece) in value.as_mut().unwrap().chunks_mut(size).enumerate() {
                    update.update_piece(index * size, piece, &mut reply);
                }
                assert!(reply.len() <= update.reply_size(old.len()));
                (if update.replies_with_value() { Reply::Value(&[]) } else { Reply::Done }, reply)
            }
            Outcome::Part(_) | Outcome::Whole | Outcome::Expire(_) => unreachable!("the value is in one piece"),
            Outcome::Edit(edit) => {
                after = match edit {
                    Edit::Remove(_) => None,
                    Edit::Store(new) => new.expiry().apply(expiry),
                };
                *value = match edit {
                    Edit::Remove(_) => None,
                    Edit::Store(new) => {
                        let mut bytes = new.bytes().to_vec();
                        assert_eq!(bytes.len(), new.size());
                        for (index, piece) in bytes.chunks_mut(PIECE).enumerate() {
                            new.finish(index * PIECE, piece);
                        }
                        Some(bytes)
                    }
                };
                match edit.reply() {
                    Reply::Value(bytes) => (Reply::Value(&[]), bytes.to_vec()),
                    _ => (Reply::Done, Vec::new()),
                }
            }
        };
        (reply, bytes, after)
    }

    fn generator(seed: u64) -> Generator {
        let sizes = SizeWeights { empty: 2, inline: 6, slab: 1, large: 0 };
        Generator::new(GeneratorSettings { seed, key_count: 40, key_size: 4..=4, sizes, ..Default::default() })
    }

    #[test]
    fn outcomes_are_those_of_the_naive_store() {
        for seed in test_seeds() {
            let mut naive = NaiveStore::new();
            let (mut changed, mut count) = (0, 0);
            for request in generator(seed).take(100_000) {
                let request = request.as_request();
                if request.validate_unordered().is_err() {
                    continue;
                }
                let before = naive.get(request.key).map(<[u8]>::to_vec);
                let mut value = before.clone();
                let expiry = naive.expiry(request.key);
                let (reply, bytes, after) = execute(&request.operation, &mut value, expiry);
                let reply = if reply == Reply::Value(&[]) { Reply::Value(&bytes) } else { reply };
                assert_eq!(naive.check(&request, reply), Ok(()), "seed {seed}: {request:?} on {before:?}");
                // The naive store removes a key whose expiry is its time, 0.
                let after = after.filter(|after| !after.has_passed(0)).or_else(|| {
                    value.take_if(|_| after.is_some());
                    None
                });
                let found = (naive.get(request.key), naive.expiry(request.key));
                assert_eq!(found, (value.as_deref(), after), "seed {seed}: {request:?} on {before:?}");
                changed += u32::from(value != before);
                count += 1;
            }
            assert!(count > 80_000 && changed > 20_000, "seed {seed}: {changed} of {count} changed a value");
        }
    }

    #[test]
    fn short_outcomes_are_those_of_apply() {
        for seed in test_seeds() {
            let mut naive = NaiveStore::new();
            let mut count = [0; 2];
            for request in generator(seed).take(200_000) {
                let request = request.as_request();
                let before = naive.get(request.key).map(<[u8]>::to_vec);
                naive.execute(&request);
                let Some(before) = before.filter(|value| (1..=8).contains(&value.len())) else { continue };
                if request.validate_unordered().is_err() {
                    continue;
                }
                let Some(short) = apply_short(&request.operation, load_short(&before), before.len()) else { continue };
                let mut value = Some(before.clone());
                let (reply, bytes, _) = execute(&request.operation, &mut value, None);
                let context = format!("seed {seed}: {request:?} on {before:?}");
                let changed = short.changed.map_or(before.clone(), |word| word.to_le_bytes()[..before.len()].to_vec());
                assert_eq!(value, Some(changed), "{context}");
                assert_eq!(reply, if short.returns_value { Reply::Value(&[]) } else { Reply::Done }, "{context}");
                assert!(!short.returns_value || bytes == before, "{context}");
                count[usize::from(short.changed.is_some())] += 1;
            }
            assert!(count.iter().all(|count| *count > 2000), "seed {seed}: {count:?} were short");
        }
    }

    #[test]
    fn a_value_in_pieces_is_no_number() {
        let arena = Arena::default();
        let outcome = apply(&Operation::AddDecimal { delta: 1 }, Some(|| Found::in_pieces(600, None)), &arena);
        assert!(matches!(outcome, Outcome::Reply(Reply::Failed(OperationError::NotAnInteger))), "{outcome:?}");
    }
}
