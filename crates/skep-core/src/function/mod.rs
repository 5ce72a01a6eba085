//! λ: the functions that run next to the data (KV-Direct, section 3.2).
//!
//! Requests name built-in functions by their code. Each function works on a range of elements without help from the
//! client. Integers wrap. Elements are little-endian and stored one after another:
//!
//! ```text
//! value           | v0 | v1 | v2 | ...
//! operand, scalar | Δ |                          one for all elements
//!                 | expected | new |             functions of two operands
//! operand, vector | Δ0 | Δ1 | Δ2 | ...           one for each element
//!                 | expected0 | new0 | expected1 | new1 | ...
//! ```
//!
//! [`update`], [`reduce`] and [`filter`] work on byte slices and allocate nothing of their own. Each can be called on
//! the pieces of a value, if no element is cut in two. The stores need this because a value may span several slabs of
//! 512 bytes.
//!
//! Floating-point results have the same bytes on every machine, however the loop was compiled. Sums are added in the
//! order of the elements, and products are rounded before they are added. If an arithmetic result is not a number, the
//! stored value is the quiet NaN without payload (`0x7fc00000`, `0x7ff8000000000000`). Functions that only choose
//! between values keep the bits of these values: min, max, swap, compare-and-swap and filters.

mod bits;
mod calls;
mod decimal;
mod filter;
mod fraction;
mod names;
mod number;
mod reduce;
mod text;
mod update;
mod user;
mod work;

pub use bits::{BitField, BitFields, BitRange, FieldPosition, Overflow, count_bits, field_replies, find_bit};
pub use calls::{CallCounts, CallTotals, count_calls_of_shard};
pub use decimal::{DecimalText, add_decimal};
pub use filter::filter;
pub use fraction::{add_fraction, check_fraction, fraction_work};
pub use reduce::reduce;
pub use text::{NumberText, ParseError};
pub use update::{Shape, operand_piece, update, update_short, update_short_vector};
pub use user::{
    CALL_WORK_MAX, FUNCTION_WORK_MAX, Field, FunctionHandle, FunctionKind, Layout, Operands, Parameter,
    RECORD_SIZE_MAX, ReduceCode, Scalar, ShortCode, Signature, USER_OPERANDS_MAX, UpdateCode, UserCode, UserFunction,
    WordCode,
};

/// The type of a vector's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the types")]
pub enum Element {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

/// λ(v, Δ) → v: the function of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum UpdateFunction {
    /// `v + Δ`
    Add,
    /// `v - Δ`
    Subtract,
    /// `v · Δ`
    Multiply,
    /// The smaller of `v` and `Δ`: `Δ` if `Δ < v`, else `v`. So `v` is kept if one of them is NaN, or if both are zero.
    Min,
    /// The larger of `v` and `Δ`: `Δ` if `Δ > v`, else `v`. So `v` is kept if one of them is NaN, or if both are zero.
    Max,
    /// Bitwise and; integers only.
    And,
    /// Bitwise or; integers only.
    Or,
    /// Bitwise exclusive or; integers only.
    Xor,
    /// `Δ`
    Swap,
    /// Operands `expected`, `new`: `new` if `v` has the bits of `expected`, else `v`.
    CompareAndSwap,
    /// Operands `Δ`, `refill`: `v - Δ` if that leaves at least 10, else `v - Δ + refill`. With `refill` 91 this is
    /// TPC-C's S_QUANTITY (clause 2.4.2.2), the paper's example of a transaction on a single object. For unsigned
    /// types, a `v - Δ` below zero counts as less than 10. For the other types, the comparison uses `v - Δ` as the type
    /// holds it.
    WrapAround,
}

/// λ(v, Σ) → Σ: the function of a reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fold {
    /// `Σ + v`
    Sum,
    /// The smaller of `Σ` and `v`: `v` if `v < Σ`, else `Σ`. NaN elements are skipped.
    Min,
    /// The larger of `Σ` and `v`: `v` if `v > Σ`, else `Σ`. NaN elements are skipped.
    Max,
    /// `Σ + v · c`, with a constant `c` for each element.
    Dot,
    /// `Σ + v`, where Σ has eight bytes: a `u64` for unsigned integers, an `i64` for signed ones, an `f64` for floats.
    WideSum,
    /// `Σ + 1` for each `v ≠ 0`, where Σ is a `u64`. NaN counts, `-0.0` does not.
    Count,
}

/// λ(v) → bool: the predicate of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Predicate {
    /// `v ≠ 0`. NaN passes, `-0.0` does not.
    NonZero,
    /// `v = Δ` as numbers: NaN equals nothing, `-0.0` equals `0.0`.
    Equal,
    /// `v > Δ`
    Greater,
    /// `v < Δ`
    Less,
}

impl Element {
    /// All element types, in the order of their codes.
    pub const ALL: [Element; 10] = [
        Element::U8,
        Element::U16,
        Element::U32,
        Element::U64,
        Element::I8,
        Element::I16,
        Element::I32,
        Element::I64,
        Element::F32,
        Element::F64,
    ];

    /// Returns the bytes of one element.
    pub fn width(self) -> usize {
        match self {
            Element::U8 | Element::I8 => 1,
            Element::U16 | Element::I16 => 2,
            Element::U32 | Element::I32 | Element::F32 => 4,
            Element::U64 | Element::I64 | Element::F64 => 8,
        }
    }

    /// Returns the type of eight bytes that has all numbers of this type.
    fn widest(self) -> Element {
        match self {
            Element::U8 | Element::U16 | Element::U32 | Element::U64 => Element::U64,
            Element::I8 | Element::I16 | Element::I32 | Element::I64 => Element::I64,
            Element::F32 | Element::F64 => Element::F64,
        }
    }

    /// Returns true if the type is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Element::F32 | Element::F64)
    }
}

impl UpdateFunction {
    /// All functions, in the order of their codes.
    pub const ALL: [UpdateFunction; 11] = [
        UpdateFunction::Add,
        UpdateFunction::Subtract,
        UpdateFunction::Multiply,
        UpdateFunction::Min,
        UpdateFunction::Max,
        UpdateFunction::And,
        UpdateFunction::Or,
        UpdateFunction::Xor,
        UpdateFunction::Swap,
        UpdateFunction::CompareAndSwap,
        UpdateFunction::WrapAround,
    ];

    /// Returns the number of operands for each element.
    pub fn operand_count(self) -> usize {
        match self {
            UpdateFunction::CompareAndSwap | UpdateFunction::WrapAround => 2,
            _ => 1,
        }
    }

    /// Returns true if the function is defined on elements of this type.
    pub fn is_defined_for(self, element: Element) -> bool {
        let bitwise = matches!(self, UpdateFunction::And | UpdateFunction::Or | UpdateFunction::Xor);
        !(bitwise && element.is_float())
    }
}

impl Fold {
    /// All folds, in the order of their codes.
    pub const ALL: [Fold; 6] = [Fold::Sum, Fold::Min, Fold::Max, Fold::Dot, Fold::WideSum, Fold::Count];

    /// Returns the type of Σ, for elements of this type.
    pub fn sigma(self, element: Element) -> Element {
        match self {
            Fold::Sum | Fold::Min | Fold::Max | Fold::Dot => element,
            Fold::WideSum => element.widest(),
            Fold::Count => Element::U64,
        }
    }
}

impl Predicate {
    /// All predicates, in the order of their codes.
    pub const ALL: [Predicate; 4] = [Predicate::NonZero, Predicate::Equal, Predicate::Greater, Predicate::Less];
}
