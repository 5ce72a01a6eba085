//! The value that a write leaves: the outcome of its operation, in the form that a leaf holds.
//!
//! ```text
//! find the value ─▶ apply ─▶ decide ─▶ refuse │ set │ remove ─▶ change the leaf if it is unchanged, otherwise begin again
//! ```
//!
//! [`apply`] returns the outcome. An overflow value is written to its frames before the leaf is locked. If an attempt conflicts with another writer,
//! these frames are kept while the value that they were computed from is still current: under one guard the same
//! reference is the same value.

use super::super::node::overflow::{self, REFERENCE_SIZE, VALUE_IN_NODE_SIZE_MAX};
use super::super::node::segment::Value;
use super::super::space::Claim;
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;
use super::overflow::OverflowValue;
use bumpalo::Bump;

use crate::apply::{Edit, Found, NewValue, Outcome, Reader, apply, update_piece};
use skep_core::operation::{Operation, Reply, Update};

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

/// Decides the change for a key. `value` returns its value if it exists.
#[inline]
pub(crate) fn decide<'d, 'g>(
    change: &'d Operation<'_>,
    store: &'g OrderedStore,
    exists: bool,
    value: impl Fn() -> Option<Value<'g>>,
    scratch: &'d mut Scratch,
    guard: &'g Guard<'_>,
) -> Decision<'d> {
    let found = || found_of(value().expect("the key exists"));
    (scratch.replies_with, scratch.new_size) = (RepliesWith::Nothing, 0);
    // Takes no memory unless a value is computed.
    let arena = Bump::new();
    let mut outcome = apply(change, exists.then_some(found), &arena);
    let mut whole = Vec::new();
    if let (Outcome::Whole, Some(found)) = (&outcome, value()) {
        overflow::with_parts(&store.frames, found.bytes, guard, |_, part| whole.extend_from_slice(part));
        outcome = apply(change, Some(|| Found::bytes(&whole, None)), &arena);
    }
    match outcome {
        Outcome::Reply(reply) => Decision::Refuse(reply),
        Outcome::Update(update) => update_value(update, store, value(), scratch, guard),
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
            if new.len() <= VALUE_IN_NODE_SIZE_MAX {
                return Decision::Set(inside(new));
            }
            let claim = claim_of(value(), new.len());
            set_overflow(store, &mut scratch.overflow, (Origin::Request, claim), new)
        }
        Outcome::Edit(Edit::Store(new)) => store_new(&new, store, value(), scratch),
        // A condition does not hold, and the reply is the value.
        Outcome::Read(read) => {
            let mut reader = Reader::new(read);
            scratch.old.clear();
            match value() {
                Some(Value { bytes, is_overflow: false }) => reader.read(0, bytes, &mut scratch.old),
                _ => reader.read(0, &whole, &mut scratch.old),
            }
            reader.finish(&mut scratch.old);
            scratch.replies_with = RepliesWith::Old;
            Decision::Refuse(Reply::Done)
        }
        Outcome::Whole => unreachable!("the value is in one piece"),
    }
}

/// Returns the form of a value that [`apply`] takes.
#[inline]
pub(crate) fn found_of(value: Value<'_>) -> Found<'_> {
    match value {
        Value { bytes, is_overflow: false } => Found::bytes(bytes, None),
        Value { bytes, is_overflow: true } => Found::in_pieces(overflow::value_size(bytes), None),
    }
}

/// Stores a value that is computed from the operation, or is a number.
fn store_new<'d>(
    computed: &NewValue<'_>,
    store: &OrderedStore,
    found: Option<Value<'_>>,
    scratch: &'d mut Scratch,
) -> Decision<'d> {
    let Scratch { old, new, overflow, replies_with, new_size } = scratch;
    new.clear();
    new.extend_from_slice(computed.bytes());
    computed.finish(0, new);
    *new_size = new.len();
    match (computed, computed.reply()) {
        (NewValue::Sum(_), _) => *replies_with = RepliesWith::New,
        (_, Reply::Value(value)) => {
            old.clear();
            old.extend_from_slice(value);
            *replies_with = RepliesWith::Old;
        }
        _ => {}
    }
    if new.len() <= VALUE_IN_NODE_SIZE_MAX {
        return Decision::Set(inside(new));
    }
    let claim = claim_of(found, new.len());
    let origin = match (computed, found) {
        (NewValue::Written(_), Some(Value { bytes, is_overflow: true })) => overflow_origin(bytes),
        (NewValue::Written(_), _) => Origin::Inside,
        _ => Origin::Request,
    };
    set_overflow(store, overflow, (origin, claim), new)
}

/// Updates a value.
fn update_value<'d, 'g>(
    update: &Update<'_>,
    store: &'g OrderedStore,
    found: Option<Value<'g>>,
    scratch: &'d mut Scratch,
    guard: &'g Guard<'_>,
) -> Decision<'d> {
    let Scratch { old, new, overflow, replies_with, new_size } = scratch;
    let found = found.expect("the key exists");
    let origin = match found.is_overflow {
        true => overflow_origin(found.bytes),
        false => Origin::Request,
    };
    let is_written = matches!(overflow, Some((_, from)) if *from == origin && origin != Origin::Request);
    if !is_written {
        new.clear();
        if found.is_overflow {
            overflow::with_parts(&store.frames, found.bytes, guard, |_, part| new.extend_from_slice(part));
        } else {
            new.extend_from_slice(found.bytes);
        }
        if update.return_old {
            old.clone_from(new);
        }
        update_piece(update, 0, new);
    }
    if update.return_old {
        *replies_with = RepliesWith::Old;
    }
    *new_size = new.len();
    if new.len() <= VALUE_IN_NODE_SIZE_MAX {
        return Decision::Set(inside(new));
    }
    set_overflow(store, overflow, (origin, claim_of(Some(found), new.len())), new)
}

fn overflow_origin(reference: &[u8]) -> Origin {
    Origin::Overflow(*reference.first_chunk().expect("a reference has eight bytes"))
}

/// Returns the claim for the frames of a value of this size that replaces another.
fn claim_of(old: Option<Value<'_>>, size: usize) -> Claim {
    match old {
        Some(Value { bytes, is_overflow: true }) if overflow::value_size(bytes) == size => Claim::Overwrite,
        _ => Claim::Growth,
    }
}

/// Writes a value to frames of its own, unless they contain it already.
fn set_overflow<'d>(
    store: &OrderedStore,
    overflow: &'d mut Option<(OverflowValue, Origin)>,
    (origin, claim): (Origin, Claim),
    value: &[u8],
) -> Decision<'d> {
    if overflow.as_ref().is_none_or(|(_, from)| *from != origin || origin == Origin::Inside) {
        if let Some((stale, _)) = overflow.take() {
            store.discard_overflow(&stale);
        }
        *overflow = store.write_overflow(value, claim).map(|written| (written, origin));
    }
    match overflow {
        Some((written, _)) => Decision::Set(Value { bytes: &written.reference, is_overflow: true }),
        None => Decision::NoMemory(claim),
    }
}

fn inside(bytes: &[u8]) -> Value<'_> {
    Value { bytes, is_overflow: false }
}
