//! What a write makes of the value that it finds: conditions of puts, λ of updates, decimal numbers (KV-Direct, Table 1).
//!
//! ```text
//! look at the leaf ─▶ decide ─▶ refuse │ set │ remove ─▶ only if the leaf is still as it was, else again
//! ```
//!
//! A value that goes outside its node is written to its frames before the leaf is locked. While other writers are in the
//! way these frames are kept, for as long as the value that they were computed from is there: under one guard the same
//! reference is the same value.

use super::super::node::overflow::{self as outside, REFERENCE_SIZE, VALUE_INSIDE_SIZE_MAX};
use super::super::node::segment::Value;
use super::super::space::Claim;
use super::super::store::OrderedStore;
use super::super::trace::Trace;
use super::super::version::epoch::Guard;
use super::overflow::OutsideValue;
use skep_core::function::{DecimalText, add_decimal, update};
use skep_core::operation::{OperationError, PutCondition, Reply, Update};

/// What is to be done with a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    /// Sets its value.
    Put { value: &'a [u8], condition: PutCondition },
    /// Removes it.
    Delete,
    /// Replaces every element of its value by `λ(v, Δ)`.
    Update(&'a Update<'a>),
    /// Adds to its value, a number in text.
    AddDecimal { delta: i64 },
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decision<'a> {
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
pub(crate) struct Draft {
    /// The value before.
    pub(crate) old: Vec<u8>,
    /// The value behind.
    pub(crate) new: Vec<u8>,
    /// The value behind, in its frames.
    outside: Option<(OutsideValue, Origin)>,
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
    /// The reference is in a leaf: the frames are no longer ours.
    pub(crate) fn settle(&mut self) {
        self.outside = None;
    }

    /// Gives frames back that were written in vain.
    #[inline]
    pub(crate) fn discard<T: Trace>(&mut self, store: &OrderedStore<T>) {
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

impl Change<'_> {
    /// What becomes of a key with this value.
    #[inline]
    pub(crate) fn decide<'d, 'g, T: Trace>(
        &'d self,
        store: &'g OrderedStore<T>,
        exists: bool,
        value: impl FnOnce() -> Option<Value<'g>>,
        draft: &'d mut Draft,
        guard: &'g Guard<'_>,
    ) -> Decision<'d> {
        match self {
            Change::Put { condition: PutCondition::IfAbsent, .. } if exists => Decision::Refuse(Reply::Exists),
            Change::Put { condition: PutCondition::IfPresent, .. } | Change::Delete if !exists => {
                Decision::Refuse(Reply::NotFound)
            }
            Change::Put { value, .. } if value.len() <= VALUE_INSIDE_SIZE_MAX => Decision::Set(inside(value)),
            Change::Put { value: new, .. } => {
                let claim = claim_of(value(), new.len());
                set_outside(store, &mut draft.outside, (Origin::Request, claim), new)
            }
            Change::Delete => Decision::Remove,
            Change::Update(operation) => decide_update(operation, store, value(), draft, guard),
            Change::AddDecimal { delta } => {
                let text = match value() {
                    Some(value) if value.is_outside => return refuse(OperationError::NotAnInteger),
                    Some(value) => value.bytes,
                    None => b"0",
                };
                let mut sum = DecimalText::new(0);
                match add_decimal(text, *delta, &mut sum) {
                    Err(error) => refuse(error),
                    Ok(()) => {
                        draft.new.clear();
                        draft.new.extend_from_slice(sum.as_bytes());
                        Decision::Set(inside(&draft.new))
                    }
                }
            }
        }
    }
}

fn decide_update<'d, 'g, T: Trace>(
    operation: &'d Update<'_>,
    store: &'g OrderedStore<T>,
    found: Option<Value<'g>>,
    draft: &'d mut Draft,
    guard: &'g Guard<'_>,
) -> Decision<'d> {
    let Draft { old, new, outside } = draft;
    let mut origin = Origin::Request;
    if let Some(found) = found.filter(|found| found.is_outside) {
        origin = Origin::Outside(*found.bytes.first_chunk().expect("a reference has eight bytes"));
    }
    let is_written = matches!(outside, Some((_, from)) if *from == origin && origin != Origin::Request);
    if !is_written {
        new.clear();
        match found {
            Some(found) if found.is_outside => {
                outside::visit(&store.frames, found.bytes, guard, |_, part| new.extend_from_slice(part));
            }
            Some(found) => new.extend_from_slice(found.bytes),
            None => match operation.initial {
                Some(initial) => new.extend_from_slice(initial),
                None => return Decision::Refuse(Reply::NotFound),
            },
        }
        if let Err(error) = operation.validate_value(new.len()) {
            return refuse(error);
        }
        if operation.return_old {
            old.clone_from(new);
        }
        update(operation.function, operation.element, operation.shape, operation.operand, new);
    }
    if new.len() <= VALUE_INSIDE_SIZE_MAX {
        return Decision::Set(inside(new));
    }
    set_outside(store, outside, (origin, claim_of(found, new.len())), new)
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

fn refuse(error: OperationError) -> Decision<'static> {
    Decision::Refuse(Reply::Failed(error))
}
