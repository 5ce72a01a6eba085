//! The operations of KV-Direct (section 3.2, Table 1), shared by all engines, front ends and tests.
//!
//! A [`Request`] is a key and an [`Operation`]. It borrows its bytes from the buffer in which they arrived. Values are
//! bytes. A vector operation names its element type; elements are little-endian and stored one after another.
//!
//! Some operations are not in Table 1. `put` may depend on the existence of the key. `contains` replies without sending
//! the value. An update may have an initial value for a missing key. `add_decimal` implements RESP's `INCR`, whose
//! counters are decimal text. [`StringRead`] and [`StringWrite`] are what RESP's other commands on strings need, and the
//! only operations that know the expiry of a key. [`Scan`] is for stores whose keys have an order.

mod call;
mod page;
mod range;
mod scan;
mod string;

pub use call::{Call, CallReply};
pub use page::{
    PAGE_COUNT_MAX, PAGE_SIZE_GOAL, PAGE_SIZE_MAX, PAGE_SKIPPED_MAX, Page, PagePairs, PageWriter, ScanAnswer,
};
pub use range::{Range, ScanEnd, Start};
pub use scan::{Scan, ScanLease, ScanStart};
pub use string::{
    Condition, ConditionKind, Digester, Expiry, ExpiryChange, ExpiryCondition, StringRead, StringWrite, digest,
};

pub use crate::error::OperationError;
pub use crate::function::Shape;
use crate::function::{Element, Fold, Predicate, UpdateFunction};

/// Longest key, in bytes. The shortest has one byte.
pub const KEY_SIZE_MAX: usize = 460;
/// Longest value, in bytes. The shortest has none.
pub const VALUE_SIZE_MAX: usize = 1 << 20;
/// Longest operand and initial value of an update together, in bytes: as much as fits a request of the native protocol.
pub const OPERANDS_SIZE_MAX: usize = VALUE_SIZE_MAX + (32 << 10);

/// A key and the operation on its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request<'a> {
    /// 1 to [`KEY_SIZE_MAX`] bytes. The key of a scan may be empty.
    pub key: &'a [u8],
    /// The operation.
    pub operation: Operation<'a>,
}

/// A get, or a put without a condition. Most requests are plain. Decoders make these in a few registers, where a [`Request`]
/// of any kind takes ten words of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlainRequest<'a> {
    /// As in a [`Request`].
    pub key: &'a [u8],
    /// The value of a put. A get has none.
    pub value: Option<&'a [u8]>,
}

/// An operation on the value of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Returns the value.
    Get,
    /// Returns [`Reply::Done`] if the key exists.
    Contains,
    /// Inserts or replaces the value.
    Put {
        /// The new value, at most [`VALUE_SIZE_MAX`] bytes.
        value: &'a [u8],
        /// The condition under which the put takes place.
        condition: PutCondition,
    },
    /// Removes the key.
    Delete,
    /// Replaces every element `v` by `λ(v, Δ)`.
    Update(Update<'a>),
    /// Folds the vector to one element.
    Reduce(Reduce<'a>),
    /// Returns the elements for which a predicate holds.
    Filter(Filter<'a>),
    /// Runs a user function on the elements.
    Call(Call<'a>),
    /// Reads the value as a signed decimal number in text and adds to it. Stores the sum as text and returns it. A
    /// missing key counts as `0`.
    AddDecimal {
        /// The number to add.
        delta: i64,
    },
    /// Returns a part or a property of the value, as a string of bytes.
    StringRead(StringRead<'a>),
    /// Changes the value, as a string of bytes, or its expiry.
    StringWrite(StringWrite<'a>),
    /// Returns a [`Page`] of the pairs from the key on, in their order.
    Scan(Scan<'a>),
}

/// The condition under which a put takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PutCondition {
    /// Always.
    #[default]
    Always,
    /// Only if the key does not exist. Otherwise the reply is [`Reply::Exists`].
    IfAbsent,
    /// Only if the key exists. Otherwise the reply is [`Reply::NotFound`].
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
    /// How the operands are combined with the elements.
    pub shape: Shape,
    /// Δ. For a scalar operand, it has [`UpdateFunction::operand_count`] elements. For a vector operand, it has that
    /// number of elements for each element of the value, and those of one element are adjacent.
    pub operand: &'a [u8],
    /// The value that is assumed for a missing key. Without it, the reply for a missing key is [`Reply::NotFound`].
    pub initial: Option<&'a [u8]>,
    /// Selects the reply: the old value if true, else [`Reply::Done`].
    pub return_old: bool,
}

/// A fold of the value's elements to one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduce<'a> {
    /// λ.
    pub fold: Fold,
    /// The type of the value's elements.
    pub element: Element,
    /// Σ: the number that the fold begins with, of the type [`Reduce::sigma`]. The reply has this type too.
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
    /// The element to compare with. Empty for [`Predicate::NonZero`].
    pub operand: &'a [u8],
}

/// The reply to one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reply<'a> {
    /// The operation was done and returns nothing.
    Done,
    /// A value, an old value, the result of a fold, the elements that passed, or a [`Page`].
    Value(&'a [u8]),
    /// The key does not exist. Nothing changed.
    NotFound,
    /// The key exists, but does not fulfil the condition of the operation, such as to be absent. Nothing changed.
    Exists,
    /// The request could not be carried out. Nothing changed.
    Failed(OperationError),
    /// The request was deferred. Either the reply budget of the batch was used up, or the memory that it needs is not
    /// free yet. In the second case, free slabs are being merged, or readers still use the memory to be freed. Nothing
    /// changed. Submit the request again, in order with the other deferred requests of the same key.
    Deferred,
}

impl<'a> PlainRequest<'a> {
    /// Returns the bytes of the key and of the value.
    #[inline(always)]
    pub fn size(&self) -> usize {
        self.key.len() + self.value.map_or(0, <[u8]>::len)
    }

    /// Returns it as a request.
    #[inline(always)]
    pub fn request(self) -> Request<'a> {
        let put = |value| Operation::Put { value, condition: PutCondition::Always };
        Request { key: self.key, operation: self.value.map_or(Operation::Get, put) }
    }

    /// Appends it to a list of requests. A get and a put are written apart, so that neither is copied.
    #[inline(always)]
    pub fn push_to(self, requests: &mut Vec<Request<'a>>) {
        match self.value {
            None => requests.push(Request { key: self.key, operation: Operation::Get }),
            Some(_) => requests.push(self.request()),
        }
    }
}

impl Request<'_> {
    /// Checks the request without its value. Succeeds if the request could be carried out on some value.
    #[inline]
    pub fn validate(&self) -> Result<(), OperationError> {
        match self.key.len() {
            0 if matches!(self.operation, Operation::Scan(_)) => {}
            0 => return Err(OperationError::KeyEmpty),
            1..=KEY_SIZE_MAX => {}
            _ => return Err(OperationError::KeyTooLong),
        }
        match &self.operation {
            Operation::Scan(scan) => scan.validate(self.key),
            operation => operation.validate_unordered(),
        }
    }

    /// Returns the bytes of the key and of all that the operation carries.
    #[inline]
    pub fn size(&self) -> usize {
        self.key.len() + self.operation.size()
    }

    /// Checks the request as [`Request::validate`] does, for a store whose keys have no order.
    #[inline]
    pub fn validate_unordered(&self) -> Result<(), OperationError> {
        match self.operation {
            Operation::Scan(_) => Err(OperationError::NotOrdered),
            _ => self.validate(),
        }
    }
}

impl<'a> Operation<'a> {
    /// Returns the write that stores a value in any case: a put if the key never expires afterwards, otherwise a
    /// [`StringWrite::Set`].
    #[inline]
    pub fn put(value: &'a [u8], expiry: ExpiryChange) -> Self {
        match expiry {
            ExpiryChange::CLEAR => Operation::Put { value, condition: PutCondition::Always },
            expiry => {
                let condition = Condition::ALWAYS;
                Operation::StringWrite(StringWrite::Set { value, condition, expiry, return_old: false })
            }
        }
    }
}

impl Operation<'_> {
    /// Returns the bytes that the operation carries. Most operations are looked at without a call.
    #[inline]
    fn size(&self) -> usize {
        match self {
            Operation::Get | Operation::Contains | Operation::Delete => 0,
            Operation::Put { value, .. } => value.len(),
            other => other.size_of_other(),
        }
    }

    fn size_of_other(&self) -> usize {
        match self {
            Operation::Get | Operation::Contains | Operation::Delete => 0,
            Operation::Put { value, .. } => value.len(),
            Operation::Update(update) => update.operand.len() + update.initial.map_or(0, <[u8]>::len),
            Operation::Reduce(reduce) => reduce.initial.len() + reduce.constants.len(),
            Operation::Filter(filter) => filter.operand.len(),
            Operation::Call(call) => call.operands.len() + call.initial.map_or(0, <[u8]>::len),
            Operation::AddDecimal { .. } => size_of::<i64>(),
            Operation::StringRead(read) => read.split().1.len(),
            Operation::StringWrite(write) => {
                let (_, bytes, operand) = write.split();
                bytes.len() + operand.len()
            }
            Operation::Scan(scan) => scan.end.bytes().len(),
        }
    }

    /// Returns true if the operation reads the value of one key and changes nothing.
    #[inline]
    pub fn is_read(&self) -> bool {
        match self {
            Operation::Get
            | Operation::Contains
            | Operation::Reduce(_)
            | Operation::Filter(_)
            | Operation::StringRead(_) => true,
            Operation::Call(call) => call.is_read(),
            _ => false,
        }
    }

    /// Returns true if the operation may compute a value or a reply in memory of its own, or by a user function.
    #[inline]
    pub fn computes(&self) -> bool {
        match self {
            Operation::StringWrite(write) => write.computes_value(),
            Operation::Call(_) => true,
            _ => false,
        }
    }

    /// Checks the operation without its key and value, for a store whose keys have no order.
    #[inline]
    pub fn validate_unordered(&self) -> Result<(), OperationError> {
        match self {
            Operation::Put { value, .. } if value.len() > VALUE_SIZE_MAX => Err(OperationError::ValueTooLong),
            Operation::Update(update) => update.validate(),
            Operation::Reduce(reduce) => reduce.validate(),
            Operation::Filter(filter) => filter.validate(),
            Operation::Call(call) => call.validate(),
            Operation::StringRead(read) => read.validate(),
            Operation::StringWrite(write) => write.validate(),
            Operation::Scan(_) => Err(OperationError::NotOrdered),
            _ => Ok(()),
        }
    }
}

impl Update<'_> {
    /// Checks the update. Succeeds if it could be carried out on some value.
    #[inline]
    pub fn validate(&self) -> Result<(), OperationError> {
        if !self.function.is_defined_for(self.element) {
            return Err(OperationError::FunctionElement);
        }
        let operand_width = self.element.width() * self.function.operand_count();
        let operand_fits = match self.shape {
            Shape::ScalarToScalar | Shape::ScalarToVector => self.operand.len() == operand_width,
            Shape::VectorToVector => self.operand.len().is_multiple_of(operand_width),
        };
        let size = self.operand.len() + self.initial.map_or(0, <[u8]>::len);
        if !operand_fits || size > OPERANDS_SIZE_MAX {
            return Err(OperationError::OperandLength);
        }
        match self.initial {
            Some(initial) if initial.len() > VALUE_SIZE_MAX => Err(OperationError::ValueTooLong),
            Some(initial) => self.validate_value(initial.len()),
            None => Ok(()),
        }
    }

    /// Checks the update for a value of `value_size` bytes. Expects a valid update.
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
    /// Returns the type of Σ.
    pub fn sigma(&self) -> Element {
        self.fold.sigma(self.element)
    }

    /// Checks the fold. Succeeds if it could be carried out on some value.
    pub fn validate(&self) -> Result<(), OperationError> {
        let width = self.element.width();
        let constants_fit = match self.fold {
            Fold::Dot => self.constants.len().is_multiple_of(width),
            _ => self.constants.is_empty(),
        };
        if self.initial.len() == self.sigma().width() && constants_fit {
            Ok(())
        } else {
            Err(OperationError::OperandLength)
        }
    }

    /// Checks the fold for a value of `value_size` bytes. Expects a valid fold.
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
    /// Checks the filter. Succeeds if it could be carried out on some value.
    pub fn validate(&self) -> Result<(), OperationError> {
        let operand_size = if self.predicate == Predicate::NonZero { 0 } else { self.element.width() };
        if self.operand.len() == operand_size { Ok(()) } else { Err(OperationError::OperandLength) }
    }

    /// Checks the filter for a value of `value_size` bytes. Expects a valid filter.
    pub fn validate_value(&self, value_size: usize) -> Result<(), OperationError> {
        if value_size.is_multiple_of(self.element.width()) { Ok(()) } else { Err(OperationError::ElementWidth) }
    }
}
