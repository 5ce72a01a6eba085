//! The value that a write leaves: the outcome of its operation, in the form that a leaf holds.
//!
//! ```text
//! find the value ─▶ apply ─▶ decide ─▶ refuse │ set │ remove ─▶ change the leaf if it is unchanged, otherwise begin again
//! ```
//!
//! [`apply`] returns the outcome. A key that has expired is missing for it. An overflow value is written to its frames before the leaf is locked. If an attempt conflicts with another writer,
//! these frames are kept while the value that they were computed from is still current: under one guard the same
//! reference is the same value.

use super::super::node::overflow::{self, REFERENCE_SIZE};
use super::super::node::value::{Content, Value, is_inside, write_expiring};
use super::super::space::Claim;
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;
use super::overflow::OverflowValue;
use crate::apply::{Arena, Edit, Found, InPlace, NewValue, Outcome, Reader, apply};
use skep_core::operation::{Expiry, Operation, PutCondition, Reply};

/// The change that a write makes to its key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'o> {
    /// That of an operation.
    Execute(&'o Operation<'o>),
    /// Removes the key if it has expired.
    Reclaim,
}

/// The decision of a change for the value that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decision<'a> {
    /// Changes nothing. The reply tells the reason.
    Refuse(Reply<'static>),
    /// Sets this value.
    Set(Value<'a>),
    /// Removes the key.
    Remove,
    /// There is no memory for the value, by this claim.
    NoMemory(Claim),
}

/// The scratch buffers of a write, kept between writes.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The value before the write.
    pub(crate) old: Vec<u8>,
    /// The value after the write.
    pub(crate) new: Vec<u8>,
    /// The value after the write, in its frames.
    overflow: Option<(OverflowValue, Origin)>,
    /// The form of the value in the leaf, if the key expires.
    expiring: Vec<u8>,
    /// Selects the value in the reply to a write that was done.
    replies_with: RepliesWith,
    /// The size of the value after the write.
    new_size: usize,
}

/// The value in a reply.
#[derive(Clone, Copy, Debug, Default)]
enum RepliesWith {
    #[default]
    Nothing,
    Old,
    New,
}

/// The value that an overflow value was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// No value of the store.
    Request,
    /// A value inside its node. Nothing tells if it is still current.
    Inside,
    /// The overflow value with this reference.
    Overflow([u8; REFERENCE_SIZE]),
}

impl Scratch {
    /// Returns the reply to the last write, given its outcome, and the size of the value that it has written.
    pub(crate) fn reply(&self, outcome: Reply<'static>) -> (Reply<'_>, usize) {
        let reply = match (outcome, self.replies_with) {
            (Reply::Done, RepliesWith::Old) => Reply::Value(&self.old),
            (Reply::Done, RepliesWith::New) => Reply::Value(&self.new),
            _ => outcome,
        };
        (reply, self.new_size)
    }

    /// Returns the bytes that the last attempt has computed.
    pub(crate) fn work(&self) -> usize {
        self.new_size
    }

    /// Notes a put of this many bytes that was done, and whose reply has no value.
    #[inline(always)]
    pub(crate) fn note_put(&mut self, size: usize) {
        (self.replies_with, self.new_size) = (RepliesWith::Nothing, size);
    }

    /// Sets the value of the reply to the one before the write.
    fn reply_with_old(&mut self, old: &[u8]) {
        self.old.clear();
        self.old.extend_from_slice(old);
        self.replies_with = RepliesWith::Old;
    }

    /// Commits the overflow value: a leaf has its reference, so its frames belong to the store.
    pub(crate) fn commit(&mut self) {
        self.overflow = None;
    }

    /// Frees the frames of an overflow value that was not committed.
    #[inline]
    pub(crate) fn discard(&mut self, store: &OrderedStore) {
        if self.overflow.is_some() {
            self.discard_overflow(store);
        }
    }

    #[cold]
    fn discard_overflow(&mut self, store: &OrderedStore) {
        if let Some((overflow, _)) = self.overflow.take() {
            store.discard_overflow(&overflow);
        }
    }
}

/// Decides the change for a key. It is in the leaf if `is_there`, perhaps with an expiry, and `value` returns its value.
#[inline(always)]
pub(crate) fn decide<'d, 'g>(
    change: Change<'d>,
    store: &'g OrderedStore,
    is_there: bool,
    expiry: Option<Expiry>,
    value: impl Fn() -> Option<Value<'g>>,
    scratch: &'d mut Scratch,
    guard: &'g Guard<'_>,
) -> Decision<'d> {
    (scratch.replies_with, scratch.new_size) = (RepliesWith::Nothing, 0);
    if let Change::Execute(Operation::Put { value: new, condition: PutCondition::Always }) = change
        && is_inside(new.len(), false)
    {
        // The outcome of `apply`, without a call.
        scratch.new_size = new.len();
        return Decision::Set(Value::inside(new));
    }
    decide_other(change, store, is_there, expiry, value, scratch, guard)
}

/// Does the same for any change.
#[inline(never)]
fn decide_other<'d, 'g>(
    change: Change<'d>,
    store: &'g OrderedStore,
    is_there: bool,
    expiry: Option<Expiry>,
    value: impl Fn() -> Option<Value<'g>>,
    scratch: &'d mut Scratch,
    guard: &'g Guard<'_>,
) -> Decision<'d> {
    let has_expired = expiry.is_some_and(|expiry| expiry.has_passed(store.clock.now()));
    let Change::Execute(change) = change else {
        return if has_expired { Decision::Remove } else { Decision::Refuse(Reply::NotFound) };
    };
    let (exists, expiry) = (is_there && !has_expired, expiry.filter(|_| !has_expired));
    let value = || if exists { value() } else { None };
    let found = || found_of(value().expect("the key exists"));
    // Takes no memory unless a value is computed.
    let arena = Arena::default();
    let mut outcome = apply(change, exists.then_some(found), &arena);
    let mut whole = Vec::new();
    if let (Outcome::Whole | Outcome::Part(_) | Outcome::Expire(_), Some(reference)) =
        (&outcome, value().and_then(Value::reference))
    {
        overflow::with_parts(&store.frames, reference, guard, |_, part| whole.extend_from_slice(part));
        outcome = apply(change, Some(|| Found::bytes(&whole, expiry)), &arena);
        // Counts as work also if nothing is written: this copy, and usually another one in the arena.
        scratch.new_size = 2 * whole.len();
    }
    scratch.new_size += arena.work();
    match outcome {
        Outcome::Reply(reply) => Decision::Refuse(reply),
        Outcome::Update(update) => update_value(update, store, value(), expiry, scratch, guard),
        Outcome::Edit(Edit::Remove(before)) => {
            if let Some(before) = before {
                scratch.reply_with_old(before);
            }
            Decision::Remove
        }
        Outcome::Edit(Edit::Store(NewValue::Put(_))) => {
            let Operation::Put { value: new, .. } = change else {
                unreachable!("only a put stores the value of a put")
            };
            scratch.new_size = new.len();
            if is_inside(new.len(), false) {
                return Decision::Set(Value::inside(new));
            }
            let claim = claim_of(value(), new.len(), false);
            let Scratch { overflow, expiring, .. } = scratch;
            set(store, overflow, expiring, Origin::Request, claim, new, None)
        }
        Outcome::Edit(Edit::Store(new)) => store_new(&new, store, value(), expiry, scratch),
        // A condition does not hold, and the reply is the value.
        Outcome::Read(read) => {
            let mut reader = Reader::new(read);
            scratch.old.clear();
            match value().map(Value::content) {
                Some(Content::Inside(bytes)) => reader.read(0, bytes, &mut scratch.old),
                _ => reader.read(0, &whole, &mut scratch.old),
            }
            reader.finish(&mut scratch.old);
            scratch.replies_with = RepliesWith::Old;
            Decision::Refuse(Reply::Done)
        }
        Outcome::Whole | Outcome::Part(_) | Outcome::Expire(_) => unreachable!("the value is in one piece"),
    }
}

/// Returns the form of a value that [`apply`] takes.
#[inline]
pub(crate) fn found_of(value: Value<'_>) -> Found<'_> {
    match value.content() {
        Content::Inside(bytes) => Found::bytes(bytes, value.expiry()),
        Content::Overflow(reference) => Found::in_pieces(overflow::value_size(reference), value.expiry()),
    }
}

/// Stores a value that is computed from the operation, or is a number.
fn store_new<'d>(
    computed: &NewValue<'_>,
    store: &OrderedStore,
    found: Option<Value<'_>>,
    expiry: Option<Expiry>,
    scratch: &'d mut Scratch,
) -> Decision<'d> {
    let Scratch { old, new, overflow, expiring, replies_with, new_size } = scratch;
    new.clear();
    new.extend_from_slice(computed.bytes());
    computed.finish(0, new);
    *new_size += new.len();
    match (computed, computed.reply()) {
        (NewValue::Sum(_), _) => *replies_with = RepliesWith::New,
        (_, Reply::Value(value)) => {
            old.clear();
            old.extend_from_slice(value);
            *replies_with = RepliesWith::Old;
        }
        _ => {}
    }
    let expiry = computed.expiry().apply(expiry);
    let claim = claim_of(found, new.len(), expiry.is_some());
    let origin = match (computed, found.and_then(Value::reference)) {
        (NewValue::Written(_), Some(reference)) => overflow_origin(reference),
        (NewValue::Written(_), _) => Origin::Inside,
        _ => Origin::Request,
    };
    set(store, overflow, expiring, origin, claim, new, expiry)
}

/// Updates a value.
fn update_value<'d, 'g>(
    update: InPlace<'_>,
    store: &'g OrderedStore,
    found: Option<Value<'g>>,
    expiry: Option<Expiry>,
    scratch: &'d mut Scratch,
    guard: &'g Guard<'_>,
) -> Decision<'d> {
    let Scratch { old, new, overflow, expiring, replies_with, new_size } = scratch;
    let found = found.expect("the key exists");
    let origin = found.reference().map_or(Origin::Inside, overflow_origin);
    let is_written = matches!(overflow, Some((_, from)) if *from == origin && origin != Origin::Inside);
    if !is_written {
        new.clear();
        match found.content() {
            Content::Inside(bytes) => new.extend_from_slice(bytes),
            Content::Overflow(reference) => {
                overflow::with_parts(&store.frames, reference, guard, |_, part| new.extend_from_slice(part));
            }
        }
        old.clear();
        update.update_piece(0, new, old);
    }
    if update.replies_with_value() {
        *replies_with = RepliesWith::Old;
    }
    // Besides the work of a user function.
    *new_size += new.len();
    let claim = claim_of(Some(found), new.len(), expiry.is_some());
    set(store, overflow, expiring, origin, claim, new, expiry)
}

fn overflow_origin(reference: &[u8]) -> Origin {
    Origin::Overflow(*reference.first_chunk().expect("a reference has eight bytes"))
}

/// Returns the claim for the frames of a value that replaces another.
fn claim_of(old: Option<Value<'_>>, size: usize, expires: bool) -> Claim {
    // A key that loses its expiry takes less.
    let is_alike = |old: Value<'_>| old.size() == size && (old.expiry().is_some() || !expires);
    match old.filter(|old| old.reference().is_some()) {
        Some(old) if is_alike(old) => Claim::Overwrite,
        _ => Claim::Growth,
    }
}

/// Returns the form of a value in its leaf. Writes a value that does not fit there to frames of its own, unless they
/// contain it already.
fn set<'d>(
    store: &OrderedStore,
    overflow: &'d mut Option<(OverflowValue, Origin)>,
    expiring: &'d mut Vec<u8>,
    origin: Origin,
    claim: Claim,
    value: &'d [u8],
    expiry: Option<Expiry>,
) -> Decision<'d> {
    let content = match is_inside(value.len(), expiry.is_some()) {
        true => Content::Inside(value),
        false => match set_overflow(store, overflow, origin, claim, value) {
            Some(reference) => Content::Overflow(reference),
            None => return Decision::NoMemory(claim),
        },
    };
    Decision::Set(match (content, expiry) {
        (Content::Inside(bytes), None) => Value::inside(bytes),
        (Content::Overflow(bytes), None) => Value { bytes, is_marked: true },
        (_, Some(expiry)) => {
            store.clock.need();
            write_expiring(expiring, expiry, content);
            Value { bytes: expiring, is_marked: true }
        }
    })
}

/// Writes a value to frames of its own, unless they contain it already. Returns its reference, or `None` if there is no
/// memory.
fn set_overflow<'d>(
    store: &OrderedStore,
    overflow: &'d mut Option<(OverflowValue, Origin)>,
    origin: Origin,
    claim: Claim,
    value: &[u8],
) -> Option<&'d [u8]> {
    if overflow.as_ref().is_none_or(|(_, from)| *from != origin || origin == Origin::Inside) {
        if let Some((stale, _)) = overflow.take() {
            store.discard_overflow(&stale);
        }
        *overflow = store.write_overflow(value, claim).map(|written| (written, origin));
    }
    overflow.as_ref().map(|(written, _)| &written.reference[..])
}
