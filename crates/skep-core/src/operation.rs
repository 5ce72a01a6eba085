//! The operations of KV-Direct (section 3.2, Table 1), as every engine, every door and every test sees them.
//!
//! A [`Request`] is a key and an [`Operation`]; it borrows its bytes from wherever they arrived. Values are
//! bytes: a vector operation names its element type, elements are little-endian and lie one behind another.
//!
//! Beyond Table 1: `put` may depend on whether the key exists, `contains` answers without shipping the value,
//! an update may carry the value a missing key is taken to have, and `add_decimal` serves RESP's `INCR`, whose
//! counters are decimal text. [`Scan`] is for stores whose keys have an order.

mod page;
mod scan;

pub use page::{PAGE_COUNT_MAX, PAGE_SIZE_GOAL, PAGE_SIZE_MAX, Page, PagePairs, PageWriter};
pub use scan::{Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart};

use crate::function::{Element, Fold, Predicate, UpdateFunction};

/// Longest key, in bytes. The shortest has one byte.
pub const KEY_SIZE_MAX: usize = 460;
/// Longest value, in bytes. The shortest has none.
pub const VALUE_SIZE_MAX: usize = 1 << 20;

/// A key and what is to be done with its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request<'a> {
    /// 1 to [`KEY_SIZE_MAX`] bytes; of a scan, 0 bytes too.
    pub key: &'a [u8],
    /// What is to be done.
    pub operation: Operation<'a>,
}

/// What is to be done with the value of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Answers the value.
    Get,
    /// Answers [`Reply::Done`] if the key exists.
    Contains,
    /// Inserts or replaces the value.
    Put {
        /// The new value, at most [`VALUE_SIZE_MAX`] bytes.
        value: &'a [u8],
        /// When the put takes place.
        condition: PutCondition,
    },
    /// Removes the key.
    Delete,
    /// Replaces every element `v` by `λ(v, Δ)`.
    Update(Update<'a>),
    /// Folds the vector to one element.
    Reduce(Reduce<'a>),
    /// Answers the elements for which a predicate holds.
    Filter(Filter<'a>),
    /// Takes the value as a signed decimal number in text, adds to it, stores and answers the sum as text.
    /// A missing key counts as `0`.
    AddDecimal {
        /// What is added.
        delta: i64,
    },
    /// Answers a [`Page`] of the pairs from the key on, in their order.
    Scan(Scan<'a>),
}

/// When a put takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PutCondition {
    /// Whether the key exists or not.
    #[default]
    Always,
    /// Only if the key does not exist; otherwise the answer is [`Reply::Exists`].
    IfAbsent,
    /// Only if the key exists; otherwise the answer is [`Reply::NotFound`].
    IfPresent,
}

/// An atomic update of a scalar or vector (`update_scalar2scalar`, `update_scalar2vector`,
/// `update_vector2vector`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update<'a> {
    /// λ.
    pub function: UpdateFunction,
    /// The type of the value's elements.
    pub element: Element,
    /// How the operands meet the elements.
    pub shape: Shape,
    /// Δ: [`UpdateFunction::operand_count`] elements for a scalar, as many for each element of the value for a
    /// vector (those of one element side by side).
    pub operand: &'a [u8],
    /// The value that a missing key is taken to have; without it a missing key is [`Reply::NotFound`].
    pub initial: Option<&'a [u8]>,
    /// Whether the answer is the old value or [`Reply::Done`].
    pub return_old: bool,
}

/// How the operands of an update meet the elements of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The value is one element.
    ScalarToScalar,
    /// One operand for all elements.
    ScalarToVector,
    /// An operand for each element.
    VectorToVector,
}

/// A fold of the value's elements to one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduce<'a> {
    /// λ.
    pub fold: Fold,
    /// The type of the value's elements.
    pub element: Element,
    /// Σ: the element the fold begins with.
    pub initial: &'a [u8],
    /// [`Fold::Dot`]: one constant for each element of the value. Empty for the other folds.
    pub constants: &'a [u8],
}

/// A selection of the value's elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter<'a> {
    /// λ.
    pub predicate: Predicate,
    /// The type of the value's elements.
    pub element: Element,
    /// The element compared with; empty for [`Predicate::NonZero`].
    pub operand: &'a [u8],
}

/// The answer to one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reply<'a> {
    /// It was done; there is nothing to return.
    Done,
    /// A value, an old value, the result of a fold, the elements that passed, or a [`Page`].
    Value(&'a [u8]),
    /// The key does not exist. Nothing changed.
    NotFound,
    /// A put that wanted the key absent found it. Nothing changed.
    Exists,
    /// The request could not be carried out. Nothing changed.
    Failed(OperationError),
    /// The request was left for later: the reply budget of the batch was used up, or memory that it needs is not free yet (free
    /// slabs are being joined, or garbage waits for readers). Nothing changed: submit it again, in order with the other
    /// deferred requests of the same key.
    Deferred,
}

/// Why a request could not be carried out. Nothing has changed when one of these is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum OperationError {
    /// A key has at least one byte.
    #[error("key is empty")]
    KeyEmpty,
    /// A key has at most [`KEY_SIZE_MAX`] bytes.
    #[error("key is longer than 460 bytes")]
    KeyTooLong,
    /// A value has at most [`VALUE_SIZE_MAX`] bytes.
    #[error("value is longer than 1048576 bytes")]
    ValueTooLong,
    /// The width of the element does not divide the length of the value.
    #[error("element width does not divide the value's length")]
    ElementWidth,
    /// The operand is not as long as the function, the element and the value ask for.
    #[error("operand has the wrong length")]
    OperandLength,
    /// A scalar update met a value that is not one element.
    #[error("value is not one element")]
    NotScalar,
    /// The function is not defined on the element type, such as a bitwise one on floats.
    #[error("function is not defined for this element type")]
    FunctionElement,
    /// `add_decimal` met a value that is no decimal 64-bit number.
    #[error("value is not an integer or out of range")]
    NotAnInteger,
    /// `add_decimal` would leave the range of 64-bit numbers.
    #[error("increment or decrement would overflow")]
    DecimalOverflow,
    /// There is no slab left to chain another bucket to the index.
    #[error(
        "OUT_OF_MEMORY: the index is full; delete keys, or give the store more memory or a kv size nearer to your pairs"
    )]
    IndexFull,
    /// There is no slab left for the key and value.
    #[error(
        "OUT_OF_MEMORY: slab memory is full; delete keys, or give the store more memory or a kv size nearer to your pairs"
    )]
    SlabFull,
    /// There is no frame left for a node or value of an ordered store.
    #[error(
        "OUT_OF_MEMORY: the nodes of the ordered store are full; delete keys, or give the ordered store more memory"
    )]
    NodesFull,
    /// The keys of a hash store have no order.
    #[error("this space has no order: scans need the ordered space")]
    NotOrdered,
    /// A range begins above its end.
    #[error("the range begins above its end: swap the two keys; for descending order ask for a reverse scan")]
    RangeReversed,
    /// A page has room for one pair at least.
    #[error("a scan with a limit of 0 pairs shows nothing: ask for at least 1")]
    LimitZero,
    /// The state that earlier pages have shown is no longer kept.
    #[error("the lease of the scan has expired, or there never was one with this number: begin the scan again")]
    LeaseExpired,
}

impl OperationError {
    /// All errors.
    pub const ALL: [OperationError; 16] = [
        OperationError::KeyEmpty,
        OperationError::KeyTooLong,
        OperationError::ValueTooLong,
        OperationError::ElementWidth,
        OperationError::OperandLength,
        OperationError::NotScalar,
        OperationError::FunctionElement,
        OperationError::NotAnInteger,
        OperationError::DecimalOverflow,
        OperationError::IndexFull,
        OperationError::SlabFull,
        OperationError::NodesFull,
        OperationError::NotOrdered,
        OperationError::RangeReversed,
        OperationError::LimitZero,
        OperationError::LeaseExpired,
    ];

    /// Whether there was no memory for it. A store without a limit never answers such an error.
    pub fn is_out_of_memory(self) -> bool {
        matches!(self, OperationError::IndexFull | OperationError::SlabFull | OperationError::NodesFull)
    }
}

impl Request<'_> {
    /// Whether the request could be carried out on some value: checks everything that does not depend on it.
    #[inline]
    pub fn validate(&self) -> Result<(), OperationError> {
        match self.key.len() {
            0 if matches!(self.operation, Operation::Scan(_)) => {}
            0 => return Err(OperationError::KeyEmpty),
            1..=KEY_SIZE_MAX => {}
            _ => return Err(OperationError::KeyTooLong),
        }
        match &self.operation {
            Operation::Get => Ok(()),
            Operation::Put { value, .. } if value.len() > VALUE_SIZE_MAX => Err(OperationError::ValueTooLong),
            Operation::Update(update) => update.validate(),
            Operation::Reduce(reduce) => reduce.validate(),
            Operation::Filter(filter) => filter.validate(),
            Operation::Scan(scan) => scan.validate(self.key),
            _ => Ok(()),
        }
    }

    /// As [`Request::validate`], for a store whose keys have no order.
    #[inline]
    pub fn validate_unordered(&self) -> Result<(), OperationError> {
        match self.operation {
            Operation::Scan(_) => Err(OperationError::NotOrdered),
            _ => self.validate(),
        }
    }
}

impl Update<'_> {
    /// Whether the update could be carried out on some value.
    pub fn validate(&self) -> Result<(), OperationError> {
        if !self.function.is_defined_for(self.element) {
            return Err(OperationError::FunctionElement);
        }
        let operand_width = self.element.width() * self.function.operand_count();
        let operand_fits = match self.shape {
            Shape::ScalarToScalar | Shape::ScalarToVector => self.operand.len() == operand_width,
            Shape::VectorToVector => self.operand.len().is_multiple_of(operand_width),
        };
        if !operand_fits {
            return Err(OperationError::OperandLength);
        }
        match self.initial {
            Some(initial) if initial.len() > VALUE_SIZE_MAX => Err(OperationError::ValueTooLong),
            Some(initial) => self.validate_value(initial.len()),
            None => Ok(()),
        }
    }

    /// Whether the update can be carried out on a value of `value_size` bytes. Expects a valid update.
    #[inline]
    pub fn validate_value(&self, value_size: usize) -> Result<(), OperationError> {
        let width = self.element.width();
        match self.shape {
            Shape::ScalarToScalar if value_size != width => Err(OperationError::NotScalar),
            Shape::ScalarToScalar => Ok(()),
            _ if !value_size.is_multiple_of(width) => Err(OperationError::ElementWidth),
            Shape::VectorToVector if self.operand.len() != value_size * self.function.operand_count() => {
                Err(OperationError::OperandLength)
            }
            _ => Ok(()),
        }
    }
}

impl Reduce<'_> {
    /// Whether the fold could be carried out on some value.
    pub fn validate(&self) -> Result<(), OperationError> {
        let width = self.element.width();
        let constants_fit = match self.fold {
            Fold::Dot => self.constants.len().is_multiple_of(width),
            _ => self.constants.is_empty(),
        };
        if self.initial.len() == width && constants_fit { Ok(()) } else { Err(OperationError::OperandLength) }
    }

    /// Whether the fold can be carried out on a value of `value_size` bytes. Expects a valid fold.
    pub fn validate_value(&self, value_size: usize) -> Result<(), OperationError> {
        if !value_size.is_multiple_of(self.element.width()) {
            Err(OperationError::ElementWidth)
        } else if self.fold == Fold::Dot && self.constants.len() != value_size {
            Err(OperationError::OperandLength)
        } else {
            Ok(())
        }
    }
}

impl Filter<'_> {
    /// Whether the filter could be carried out on some value.
    pub fn validate(&self) -> Result<(), OperationError> {
        let operand_size = if self.predicate == Predicate::NonZero { 0 } else { self.element.width() };
        if self.operand.len() == operand_size { Ok(()) } else { Err(OperationError::OperandLength) }
    }

    /// Whether the filter can be carried out on a value of `value_size` bytes. Expects a valid filter.
    pub fn validate_value(&self, value_size: usize) -> Result<(), OperationError> {
        if value_size.is_multiple_of(self.element.width()) { Ok(()) } else { Err(OperationError::ElementWidth) }
    }
}
