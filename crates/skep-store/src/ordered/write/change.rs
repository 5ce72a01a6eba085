//! The effect of a write on a value: conditions of puts, λ of updates, decimal numbers (KV-Direct, Table 1).
//!
//! ```text
//! find the value ─▶ decide ─▶ refuse │ set │ remove ─▶ change the leaf if it is unchanged, otherwise begin again
//! ```
//!
//! An overflow value is written to its frames before the leaf is locked. If an attempt conflicts with another writer,
//! these frames are kept while the value that they were computed from is still current: under one guard the same
//! reference is the same value.

use super::super::node::overflow::{self, REFERENCE_SIZE, VALUE_IN_NODE_SIZE_MAX};
use super::super::node::segment::Value;
use super::super::space::Claim;
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;
use super::overflow::OverflowValue;
use skep_core::function::{DecimalText, add_decimal, update};
use skep_core::operation::{OperationError, PutCondition, Reply, Update};

/// The change of a key's value.
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
}

/// The value that an overflow value was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// No value of the store.
    Request,
    /// The overflow value with this reference.
    Overflow([u8; REFERENCE_SIZE]),
}

impl Scratch {
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

impl Change<'_> {
    /// Decides the change for a key with this value.
    #[inline]
    pub(crate) fn decide<'d, 'g>(
        &'d self,
        store: &'g OrderedStore,
        exists: bool,
        value: impl FnOnce() -> Option<Value<'g>>,
        scratch: &'d mut Scratch,
        guard: &'g Guard<'_>,
    ) -> Decision<'d> {
        match self {
            Change::Put { condition: PutCondition::IfAbsent, .. } if exists => Decision::Refuse(Reply::Exists),
            Change::Put { condition: PutCondition::IfPresent, .. } | Change::Delete if !exists => {
                Decision::Refuse(Reply::NotFound)
            }
            Change::Put { value, .. } if value.len() <= VALUE_IN_NODE_SIZE_MAX => Decision::Set(inside(value)),
            Change::Put { value: new, .. } => {
                let claim = claim_of(value(), new.len());
                set_overflow(store, &mut scratch.overflow, (Origin::Request, claim), new)
            }
            Change::Delete => Decision::Remove,
            Change::Update(operation) => decide_update(operation, store, value(), scratch, guard),
            Change::AddDecimal { delta } => {
                let text = match value() {
                    Some(value) if value.is_overflow => return refuse(OperationError::NotAnInteger),
                    Some(value) => value.bytes,
                    None => b"0",
                };
                let mut sum = DecimalText::new(0);
                match add_decimal(text, *delta, &mut sum) {
                    Err(error) => refuse(error),
                    Ok(()) => {
                        scratch.new.clear();
                        scratch.new.extend_from_slice(sum.as_bytes());
                        Decision::Set(inside(&scratch.new))
                    }
                }
            }
        }
    }
}

fn decide_update<'d, 'g>(
    operation: &'d Update<'_>,
    store: &'g OrderedStore,
    found: Option<Value<'g>>,
    scratch: &'d mut Scratch,
    guard: &'g Guard<'_>,
) -> Decision<'d> {
    let Scratch { old, new, overflow } = scratch;
    let mut origin = Origin::Request;
    if let Some(found) = found.filter(|found| found.is_overflow) {
        origin = Origin::Overflow(*found.bytes.first_chunk().expect("a reference has eight bytes"));
    }
    let is_written = matches!(overflow, Some((_, from)) if *from == origin && origin != Origin::Request);
    if !is_written {
        new.clear();
        match found {
            Some(found) if found.is_overflow => {
                overflow::with_parts(&store.frames, found.bytes, guard, |_, part| new.extend_from_slice(part));
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
    if new.len() <= VALUE_IN_NODE_SIZE_MAX {
        return Decision::Set(inside(new));
    }
    set_overflow(store, overflow, (origin, claim_of(found, new.len())), new)
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
    if overflow.as_ref().is_none_or(|(_, from)| *from != origin) {
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

fn refuse(error: OperationError) -> Decision<'static> {
    Decision::Refuse(Reply::Failed(error))
}
