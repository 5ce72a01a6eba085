//! The value that a write leaves: the outcome of its operation, in the form that a leaf holds (KV-Direct, Table 1).
//!
//! ```text
//! find the key ─▶ apply ─▶ decide ─▶ refuse │ set │ remove ─▶ only if the leaf is unchanged, else again
//! ```
//!
//! [`apply`] says what the operation does. A value that is stored outside its node is written to its frames before the leaf is
//! locked. While other writers are in the way these frames are kept, for as long as the value that they were computed from
//! is there: under one guard the same reference is the same value.

use super::epoch::Guard;
use super::outside::{self, OutsideValue, REFERENCE_SIZE, VALUE_INSIDE_SIZE_MAX};
use super::segment::Value;
use super::space::Claim;
use super::trace::Trace;
use super::tree::OrderedStore;
use crate::apply::{Edit, Found, NewValue, Outcome, apply, update_piece};
use skep_core::operation::{Operation, Reply, Update};

/// An operation that writes.
pub(super) type Change<'a> = Operation<'a>;

/// What becomes of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Decision<'a> {
    /// Nothing; the answer says why.
    Refuse(Reply<'static>),
    /// It has this value.
    Set(Value<'a>),
    /// It has none.
    Remove,
    /// There is no memory for its value, taken for this.
    NoMemory(Claim),
}

/// The values of a write, while it tries to take place. Kept from write to write.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The value before.
    pub(super) old: Vec<u8>,
    /// The value behind.
    pub(super) new: Vec<u8>,
    /// The value behind, in its frames.
    outside: Option<(OutsideValue, Origin)>,
    /// The value in the reply to a write that was done.
    replies_with: RepliesWith,
    /// The size of the value behind.
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

/// What an outside value was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// From nothing that the store holds.
    Request,
    /// From the value that this refers to.
    Outside([u8; REFERENCE_SIZE]),
}

impl Draft {
    /// Returns the reply to the last write, given its outcome, and the size of the value that it has written.
    pub(super) fn reply(&self, outcome: Reply<'static>) -> (Reply<'_>, usize) {
        let reply = match (outcome, self.replies_with) {
            (Reply::Done, RepliesWith::Old) => Reply::Value(&self.old),
            (Reply::Done, RepliesWith::New) => Reply::Value(&self.new),
            _ => outcome,
        };
        (reply, self.new_size)
    }

    /// The reference is in a leaf: the frames are no longer ours.
    pub(super) fn settle(&mut self) {
        self.outside = None;
    }

    /// Gives frames back that were written in vain.
    #[inline]
    pub(super) fn discard<T: Trace>(&mut self, store: &OrderedStore<T>) {
        if self.outside.is_some() {
            self.discard_outside(store);
        }
    }

    #[cold]
    fn discard_outside<T: Trace>(&mut self, store: &OrderedStore<T>) {
        if let Some((outside, _)) = self.outside.take() {
            store.discard_outside(&outside);
        }
    }
}

/// Decides what becomes of a key. `found` is there if the key exists, and returns its value.
#[inline]
pub(super) fn decide<'d, 'g, T: Trace>(
    change: &'d Change<'_>,
    store: &'g OrderedStore<T>,
    exists: bool,
    value: impl Fn() -> Option<Value<'g>>,
    draft: &'d mut Draft,
    guard: &'g Guard<'_>,
) -> Decision<'d> {
    let found = || found_of(value().expect("the key exists"));
    (draft.replies_with, draft.new_size) = (RepliesWith::Nothing, 0);
    match apply(change, exists.then_some(found)) {
        Outcome::Reply(reply) => Decision::Refuse(reply),
        Outcome::Update(update) => update_value(update, store, value(), draft, guard),
        Outcome::Edit(Edit::Remove) => Decision::Remove,
        Outcome::Edit(Edit::Store(NewValue::Put(new))) => {
            draft.new_size = new.len();
            if new.len() <= VALUE_INSIDE_SIZE_MAX {
                return Decision::Set(inside(new));
            }
            let claim = claim_of(value(), new.len());
            set_outside(store, &mut draft.outside, (Origin::Request, claim), new)
        }
        Outcome::Edit(Edit::Store(new)) => store_new(&new, store, value(), draft),
        Outcome::Read(_) => unreachable!("reads go in groups"),
    }
}

/// Returns what the outcome of an operation depends on.
#[inline]
pub(super) fn found_of(value: Value<'_>) -> Found<'_> {
    match value {
        Value { bytes, is_outside: false } => Found::Bytes(bytes),
        Value { bytes, is_outside: true } => Found::InPieces(outside::value_size(bytes)),
    }
}

/// Stores a value that is computed from the operation, or is a number.
fn store_new<'d, T: Trace>(
    computed: &NewValue<'_>,
    store: &OrderedStore<T>,
    found: Option<Value<'_>>,
    draft: &'d mut Draft,
) -> Decision<'d> {
    let Draft { old, new, outside, replies_with, new_size } = draft;
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
    if new.len() <= VALUE_INSIDE_SIZE_MAX {
        return Decision::Set(inside(new));
    }
    let claim = claim_of(found, new.len());
    set_outside(store, outside, (Origin::Request, claim), new)
}

/// Updates a value.
fn update_value<'d, 'g, T: Trace>(
    update: &Update<'_>,
    store: &'g OrderedStore<T>,
    found: Option<Value<'g>>,
    draft: &'d mut Draft,
    guard: &'g Guard<'_>,
) -> Decision<'d> {
    let Draft { old, new, outside, replies_with, new_size } = draft;
    let found = found.expect("the key exists");
    let origin = match found.is_outside {
        true => Origin::Outside(*found.bytes.first_chunk().expect("a reference has eight bytes")),
        false => Origin::Request,
    };
    let is_written = matches!(outside, Some((_, from)) if *from == origin && origin != Origin::Request);
    if !is_written {
        new.clear();
        if found.is_outside {
            outside::visit(&store.frames, found.bytes, guard, |_, part| new.extend_from_slice(part));
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
    if new.len() <= VALUE_INSIDE_SIZE_MAX {
        return Decision::Set(inside(new));
    }
    set_outside(store, outside, (origin, claim_of(Some(found), new.len())), new)
}

/// What the frames of a value of this size are taken for, which takes the place of another.
fn claim_of(old: Option<Value<'_>>, size: usize) -> Claim {
    match old {
        Some(Value { bytes, is_outside: true }) if outside::value_size(bytes) == size => Claim::Overwrite,
        _ => Claim::Growth,
    }
}

/// Writes a value to frames of its own, unless they hold it already.
fn set_outside<'d, T: Trace>(
    store: &OrderedStore<T>,
    outside: &'d mut Option<(OutsideValue, Origin)>,
    (origin, claim): (Origin, Claim),
    value: &[u8],
) -> Decision<'d> {
    if outside.as_ref().is_none_or(|(_, from)| *from != origin) {
        if let Some((stale, _)) = outside.take() {
            store.discard_outside(&stale);
        }
        *outside = store.write_outside(value, claim).map(|written| (written, origin));
    }
    match outside {
        Some((written, _)) => Decision::Set(Value { bytes: &written.reference, is_outside: true }),
        None => Decision::NoMemory(claim),
    }
}

fn inside(bytes: &[u8]) -> Value<'_> {
    Value { bytes, is_outside: false }
}
