//! λ: the functions that run next to the data (KV-Direct, section 3.2).
//!
//! Built-in functions are named on the wire by their code. Each works on a run of elements without help from the
//! client; integers wrap, elements are little-endian and lie one behind another:
//!
//! ```text
//! value           | v0 | v1 | v2 | ...
//! operand, scalar | Δ |                          one for all elements
//!                 | expected | new |             functions of two operands
//! operand, vector | Δ0 | Δ1 | Δ2 | ...           one for each element
//!                 | expected0 | new0 | expected1 | new1 | ...
//! ```
//!
//! [`update`], [`reduce`] and [`filter`] run on byte slices and allocate nothing of their own. Each can be called
//! on a value piece by piece, as long as no element is cut in two: large values lie in slabs of 512 bytes.
//!
//! Floating point: results are the same bytes on every machine, whichever way the loop was compiled. Sums are
//! added in the order of the elements, products are rounded before they are added, and an arithmetic result that
//! is not a number is stored as the one quiet NaN with no payload (`0x7fc00000`, `0x7ff8000000000000`). What only
//! chooses between values (min, max, swap, compare-and-swap, the bits of a filtered element) leaves their bits
//! alone.

mod decimal;
mod filter;
mod names;
mod number;
mod reduce;
mod text;
mod update;

pub use decimal::{DecimalText, add_decimal};
pub use filter::filter;
pub use reduce::reduce;
pub use text::ParseError;
pub use update::{operand_piece, update, update_short};

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

/// λ(v, Δ) → v of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum UpdateFunction {
    /// `v + Δ`
    Add,
    /// `v - Δ`
    Subtract,
    /// `v · Δ`
    Multiply,
    /// The smaller of `v` and `Δ`: `Δ` if `Δ < v`, else `v`. So `v` stays where one of them is NaN, or both zero.
    Min,
    /// The larger of `v` and `Δ`: `Δ` if `Δ > v`, else `v`. So `v` stays where one of them is NaN, or both zero.
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
    /// Operands `Δ`, `refill`: `v - Δ` if that leaves at least 10, else `v - Δ + refill`. TPC-C's S_QUANTITY
    /// (clause 2.4.2.2) with `refill` 91: the paper's example of a transaction on a single object. An unsigned
    /// `v - Δ` below zero counts as less than 10; elsewhere the comparison sees `v - Δ` as the type holds it.
    WrapAround,
}

/// λ(v, Σ) → Σ of a reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fold {
    /// `Σ + v`
    Sum,
    /// The smaller of `Σ` and `v`: `v` if `v < Σ`, else `Σ`. NaN elements are passed over.
    Min,
    /// The larger of `Σ` and `v`: `v` if `v > Σ`, else `Σ`. NaN elements are passed over.
    Max,
    /// `Σ + v · c`, with a constant `c` for each element.
    Dot,
}

/// λ(v) → bool of a filter.
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

    /// Bytes of one element.
    pub fn width(self) -> usize {
        match self {
            Element::U8 | Element::I8 => 1,
            Element::U16 | Element::I16 => 2,
            Element::U32 | Element::I32 | Element::F32 => 4,
            Element::U64 | Element::I64 | Element::F64 => 8,
        }
    }

    /// Whether the type is a floating-point one.
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

    /// Operands for each element.
    pub fn operand_count(self) -> usize {
        match self {
            UpdateFunction::CompareAndSwap | UpdateFunction::WrapAround => 2,
            _ => 1,
        }
    }

    /// Whether the function is defined on elements of this type.
    pub fn is_defined_for(self, element: Element) -> bool {
        let bitwise = matches!(self, UpdateFunction::And | UpdateFunction::Or | UpdateFunction::Xor);
        !(bitwise && element.is_float())
    }
}

impl Fold {
    /// All folds, in the order of their codes.
    pub const ALL: [Fold; 4] = [Fold::Sum, Fold::Min, Fold::Max, Fold::Dot];
}

impl Predicate {
    /// All predicates, in the order of their codes.
    pub const ALL: [Predicate; 4] = [Predicate::NonZero, Predicate::Equal, Predicate::Greater, Predicate::Less];
}
