//! Codes and names: how element types and functions are written on the wire and by people.
//!
//! A code is the place in `ALL`. Names are matched without regard to case, as RESP does with its keywords; the
//! short ones in common use are understood too.

use super::{Element, Fold, Predicate, UpdateFunction};

/// `from_code`, `code` and `from_name` for an enum with `ALL` and `name`; after it other names that are understood.
macro_rules! coded {
    ($type:ident, $what:literal $(, $alias:literal => $variant:ident)*) => {
        impl $type {
            #[doc = concat!("The ", $what, " with this code on the wire.")]
            pub fn from_code(code: u8) -> Option<Self> {
                Self::ALL.get(usize::from(code)).copied()
            }

            #[doc = concat!("The code of the ", $what, " on the wire.")]
            pub fn code(self) -> u8 {
                self as u8
            }

            #[doc = concat!("The ", $what, " with this name, in upper or lower case.")]
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

coded!(Element, "element type");
coded!(
    UpdateFunction, "update function",
    "sub" => Subtract, "mul" => Multiply, "cas" => CompareAndSwap, "wrap" => WrapAround
);
coded!(Fold, "fold");
coded!(Predicate, "predicate", "nonzero" => NonZero, "eq" => Equal, "gt" => Greater, "lt" => Less);

impl Element {
    /// The name of the type, as in Rust.
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
    /// The name of the function.
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

    /// The operands that the function takes, in words.
    pub fn operands(self) -> &'static str {
        match self {
            UpdateFunction::CompareAndSwap => "two operands, expected and new, for all elements, or two for each",
            UpdateFunction::WrapAround => "two operands, delta and refill, for all elements, or two for each",
            _ => "one operand for all elements, or one for each",
        }
    }
}

impl Fold {
    /// The name of the fold.
    pub fn name(self) -> &'static str {
        match self {
            Fold::Sum => "sum",
            Fold::Min => "min",
            Fold::Max => "max",
            Fold::Dot => "dot",
        }
    }

    /// The operands that the fold takes, in words.
    pub fn operands(self) -> &'static str {
        match self {
            Fold::Dot => "an initial element and a constant for each element of the value",
            _ => "one operand, the initial element",
        }
    }
}

impl Predicate {
    /// The name of the predicate.
    pub fn name(self) -> &'static str {
        match self {
            Predicate::NonZero => "non-zero",
            Predicate::Equal => "equal",
            Predicate::Greater => "greater",
            Predicate::Less => "less",
        }
    }

    /// The operands that the predicate takes, in words.
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

    macro_rules! codes_and_names_round_trip {
        ($type:ident) => {
            for (code, item) in (0u8..).zip($type::ALL) {
                assert_eq!(item.code(), code);
                assert_eq!($type::from_code(code), Some(item));
                assert_eq!($type::from_name(item.name()), Some(item));
                assert_eq!($type::from_name(&item.name().to_uppercase()), Some(item));
            }
            for code in $type::ALL.len() as u8..=255 {
                assert_eq!($type::from_code(code), None);
            }
            for name in ["", "x", "add ", "u", "u128", "sums"] {
                assert_eq!($type::from_name(name), None);
            }
        };
    }

    #[test]
    fn codes_and_names_round_trip() {
        codes_and_names_round_trip!(Element);
        codes_and_names_round_trip!(UpdateFunction);
        codes_and_names_round_trip!(Fold);
        codes_and_names_round_trip!(Predicate);
    }

    #[test]
    fn short_names_are_understood() {
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
