//! The typed tree: a checked module.
//!
//! Types of literals may be [`Type::Unknown`]; the table [`Function::unknowns`] has the types that were inferred. Calls of
//! other functions of the module are inlined when the tree is lowered.

use proc_macro2::Span;
use skep_core::function::FunctionKind;

use crate::types::{Half, Number, Records, Type};

/// A module.
pub(crate) struct Tree {
    pub(crate) name: String,
    pub(crate) records: Records,
    pub(crate) functions: Vec<Function>,
}

/// A function.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) at: Span,
    /// Its kind, unless it is only called by others.
    pub(crate) kind: Option<FunctionKind>,
    /// A reduce may be computed in lanes.
    pub(crate) is_associative: bool,
    /// The element is changed in place.
    pub(crate) is_by_reference: bool,
    /// The types of the locals. The first are the parameters.
    pub(crate) locals: Vec<Type>,
    /// The names of the parameters.
    pub(crate) parameters: Vec<String>,
    /// The type of the result, which may be a half.
    pub(crate) result: Type,
    pub(crate) body: Expr,
    /// The types that were inferred for literals.
    pub(crate) unknowns: Vec<Number>,
}

/// An expression.
#[derive(Clone)]
pub(crate) struct Expr {
    pub(crate) ty: Type,
    pub(crate) at: Span,
    pub(crate) kind: Kind,
}

/// The kinds of expressions.
#[derive(Clone)]
pub(crate) enum Kind {
    Unit,
    Bool(bool),
    Int(i128),
    /// The digits of a literal.
    Float(String),
    /// A float by its bits as an `f64`: a constant such as `f32::MAX`, exact in its type.
    FloatValue(f64),
    Local(usize),
    /// The part of a record that begins with this leaf.
    Field(Box<Expr>, usize),
    /// An element of an array.
    Index(Box<Expr>, Box<Expr>),
    Record(Vec<Initializer>),
    Array(Vec<Expr>),
    Repeat(Box<Expr>, usize),
    Block(Vec<Statement>, Option<Box<Expr>>),
    If(Box<Expr>, Box<Expr>, Option<Box<Expr>>),
    Match(Box<Expr>, Vec<Arm>),
    Negate(Box<Expr>),
    Not(Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// The second operand is evaluated only if the first is true.
    And(Box<Expr>, Box<Expr>),
    /// The second operand is evaluated only if the first is false.
    Or(Box<Expr>, Box<Expr>),
    Cast(Box<Expr>),
    /// Rounds an `f32` to a half, and keeps it as an `f32`.
    Round(Half, Box<Expr>),
    Call(usize, Vec<Expr>),
    Method(Method, Vec<Expr>),
    Assign(Box<Expr>, Box<Expr>),
    AssignBinary(Binary, Box<Expr>, Box<Expr>),
    Return(Option<Box<Expr>>),
}

/// A field of a new record, in the order in which they are written.
#[derive(Clone)]
pub(crate) struct Initializer {
    /// The number of the field's first leaf.
    pub(crate) first: usize,
    pub(crate) value: Expr,
}

/// A statement of a block.
#[derive(Clone)]
pub(crate) enum Statement {
    Let(usize, Expr),
    Expr(Expr),
}

/// An arm of a match on integers or bools.
#[derive(Clone)]
pub(crate) struct Arm {
    /// The ranges that the arm accepts; empty if it accepts all.
    pub(crate) ranges: Vec<Range>,
    /// The local that holds the value in the arm.
    pub(crate) binding: Option<usize>,
    pub(crate) guard: Option<Expr>,
    pub(crate) body: Expr,
}

/// Integers from `first` to `last`, both included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) first: i128,
    pub(crate) last: i128,
}

/// Operators with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// Methods of numbers. Those that are operators, such as `wrapping_add`, become [`Kind::Binary`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Min,
    Max,
    Clamp,
    Abs,
    AbsDiff,
    Signum,
    SaturatingAdd,
    SaturatingSubtract,
    SaturatingMultiply,
    RotateLeft,
    RotateRight,
    CountOnes,
    CountZeros,
    LeadingZeros,
    TrailingZeros,
    DivideEuclid,
    RemainderEuclid,
    Sqrt,
    Floor,
    Ceil,
    Trunc,
    Round,
    RoundTiesEven,
    MultiplyAdd,
    IsNan,
    IsFinite,
    IsInfinite,
    ToBits,
    FromBits,
    Exp,
    Ln,
    Power,
    Sin,
    Cos,
    Tanh,
}

impl Binary {
    pub(crate) fn is_comparison(self) -> bool {
        use Binary as B;
        matches!(self, B::Equal | B::NotEqual | B::Less | B::LessEqual | B::Greater | B::GreaterEqual)
    }

    pub(crate) fn is_bitwise(self) -> bool {
        matches!(self, Binary::And | Binary::Or | Binary::Xor)
    }

    pub(crate) fn is_shift(self) -> bool {
        matches!(self, Binary::ShiftLeft | Binary::ShiftRight)
    }
}

impl Function {
    /// Returns the number type of `ty`, which is one.
    pub(crate) fn number(&self, ty: &Type) -> Number {
        match ty {
            Type::Number(number) => *number,
            Type::Unknown(index) => self.unknowns[*index],
            Type::Half(_) => Number::F32,
            other => unreachable!("{other:?} is not a number"),
        }
    }
}
