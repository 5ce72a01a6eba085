//! The names of element types and functions, as users and RESP clients write them.
//!
//! Names are matched without regard to case, as RESP does with its keywords. Common short names are accepted too.

use super::{Element, Fold, Predicate, UpdateFunction};

/// Implements `from_name` for an enum with `ALL` and `name`. The names after the enum are accepted too.
macro_rules! named {
    ($type:ident, $what:literal $(, $alias:literal => $variant:ident)*) => {
        impl $type {
            #[doc = concat!("Returns the ", $what, " with this name, in upper or lower case.")]
            pub fn from_name(name: &str) -> Option<Self> {
                $(
                    if name.eq_ignore_ascii_case($alias) {
                        return Some(Self::$variant);
                    }
                )*
                Self::ALL.into_iter().find(|candidate| name.eq_ignore_ascii_case(candidate.name()))
            }
        }
    };
}

named!(Element, "element type");
named!(
    UpdateFunction, "update function",
    "sub" => Subtract, "mul" => Multiply, "cas" => CompareAndSwap, "wrap" => WrapAround
);
named!(Fold, "fold", "widesum" => WideSum);
named!(Predicate, "predicate", "nonzero" => NonZero, "eq" => Equal, "gt" => Greater, "lt" => Less);

impl Element {
    /// Returns the name of the type, as in Rust.
    pub fn name(self) -> &'static str {
        match self {
            Element::U8 => "u8",
            Element::U16 => "u16",
            Element::U32 => "u32",
            Element::U64 => "u64",
            Element::I8 => "i8",
            Element::I16 => "i16",
            Element::I32 => "i32",
            Element::I64 => "i64",
            Element::F32 => "f32",
            Element::F64 => "f64",
        }
    }
}

impl UpdateFunction {
    /// Returns the name of the function.
    pub fn name(self) -> &'static str {
        match self {
            UpdateFunction::Add => "add",
            UpdateFunction::Subtract => "subtract",
            UpdateFunction::Multiply => "multiply",
            UpdateFunction::Min => "min",
            UpdateFunction::Max => "max",
            UpdateFunction::And => "and",
            UpdateFunction::Or => "or",
            UpdateFunction::Xor => "xor",
            UpdateFunction::Swap => "swap",
            UpdateFunction::CompareAndSwap => "compare-and-swap",
            UpdateFunction::WrapAround => "wrap-around",
        }
    }

    /// Returns the short name of the function, which errors and examples use.
    pub fn short_name(self) -> &'static str {
        match self {
            UpdateFunction::Subtract => "sub",
            UpdateFunction::Multiply => "mul",
            UpdateFunction::CompareAndSwap => "cas",
            UpdateFunction::WrapAround => "wrap",
            _ => self.name(),
        }
    }

    /// Describes the operands that the function takes.
    pub fn operands(self) -> &'static str {
        match self {
            UpdateFunction::CompareAndSwap => "two operands, expected and new, for all elements, or two for each",
            UpdateFunction::WrapAround => "two operands, delta and refill, for all elements, or two for each",
            _ => "one operand for all elements, or one for each",
        }
    }
}

impl Fold {
    /// Returns the name of the fold.
    pub fn name(self) -> &'static str {
        match self {
            Fold::Sum => "sum",
            Fold::Min => "min",
            Fold::Max => "max",
            Fold::Dot => "dot",
            Fold::WideSum => "wide-sum",
            Fold::Count => "count",
        }
    }

    /// Describes the operands that the fold takes.
    pub fn operands(self) -> &'static str {
        match self {
            Fold::Dot => "an initial element and a constant for each element of the value",
            Fold::WideSum => "one operand, the initial sum: a u64, i64 or f64",
            Fold::Count => "one operand, the initial count: a u64",
            _ => "one operand, the initial element",
        }
    }
}

impl Predicate {
    /// Returns the name of the predicate.
    pub fn name(self) -> &'static str {
        match self {
            Predicate::NonZero => "non-zero",
            Predicate::Equal => "equal",
            Predicate::Greater => "greater",
            Predicate::Less => "less",
        }
    }

    /// Returns the short name of the predicate, which errors and examples use.
    pub fn short_name(self) -> &'static str {
        match self {
            Predicate::NonZero => "nonzero",
            Predicate::Equal => "eq",
            Predicate::Greater => "gt",
            Predicate::Less => "lt",
        }
    }

    /// Describes the operands that the predicate takes.
    pub fn operands(self) -> &'static str {
        match self {
            Predicate::NonZero => "no operand",
            _ => "one operand",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! names_round_trip {
        ($type:ident) => {
            for item in $type::ALL {
                assert_eq!($type::from_name(item.name()), Some(item));
                assert_eq!($type::from_name(&item.name().to_uppercase()), Some(item));
            }
            for name in ["", "x", "add ", "u", "u128", "sums"] {
                assert_eq!($type::from_name(name), None);
            }
        };
    }

    #[test]
    fn names_round_trip() {
        names_round_trip!(Element);
        names_round_trip!(UpdateFunction);
        names_round_trip!(Fold);
        names_round_trip!(Predicate);
    }

    #[test]
    fn short_names_are_understood() {
        for function in UpdateFunction::ALL {
            assert_eq!(UpdateFunction::from_name(function.short_name()), Some(function));
        }
        for predicate in Predicate::ALL {
            assert_eq!(Predicate::from_name(predicate.short_name()), Some(predicate));
        }
        assert_eq!(UpdateFunction::from_name("sub"), Some(UpdateFunction::Subtract));
        assert_eq!(UpdateFunction::from_name("mul"), Some(UpdateFunction::Multiply));
        assert_eq!(UpdateFunction::from_name("CAS"), Some(UpdateFunction::CompareAndSwap));
        assert_eq!(UpdateFunction::from_name("wrap"), Some(UpdateFunction::WrapAround));
        assert_eq!(Predicate::from_name("nonzero"), Some(Predicate::NonZero));
        assert_eq!(Predicate::from_name("eq"), Some(Predicate::Equal));
        assert_eq!(Predicate::from_name("gt"), Some(Predicate::Greater));
        assert_eq!(Predicate::from_name("Lt"), Some(Predicate::Less));
    }
}
