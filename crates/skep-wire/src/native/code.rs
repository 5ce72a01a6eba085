//! The codes of element types, functions and errors on the wire.
//!
//! Each table lists the items in the order of their codes. Appending an item is compatible, but moving one is not.
//! Codes of element types and functions begin at 0, codes of errors at 1.

use skep_core::function::{Element, Fold, Predicate, UpdateFunction};
use skep_core::operation::OperationError;

/// Implements [`Coded`] by a table. The compiler checks that the table has the order of the enum, so encoding needs no
/// search.
macro_rules! coded {
    ($type:ident, $first:literal: $($variant:ident)+) => {
        impl Coded for $type {
            #[inline]
            fn code(self) -> u8 {
                const TABLE: &[$type] = &[$($type::$variant),+];
                const _: () = {
                    let mut index = 0;
                    while index < TABLE.len() {
                        assert!(TABLE[index] as usize == index);
                        index += 1;
                    }
                    assert!(TABLE.len() == $type::ALL.len());
                };
                self as u8 + $first
            }

            #[inline]
            fn from_code(code: u8) -> Option<Self> {
                [$($type::$variant),+].get(usize::from(code.checked_sub($first)?)).copied()
            }
        }
    };
}

/// An item of the vocabulary that has a code on the wire.
pub(super) trait Coded: Sized {
    /// Returns the code of the item.
    fn code(self) -> u8;

    /// Returns the item with this code.
    fn from_code(code: u8) -> Option<Self>;
}

coded!(Element, 0: U8 U16 U32 U64 I8 I16 I32 I64 F32 F64);
coded!(UpdateFunction, 0: Add Subtract Multiply Min Max And Or Xor Swap CompareAndSwap WrapAround);
coded!(Fold, 0: Sum Min Max Dot WideSum Count);
coded!(Predicate, 0: NonZero Equal Greater Less);
coded!(
    OperationError, 1:
    KeyEmpty KeyTooLong ValueTooLong ElementWidth OperandLength NotScalar FunctionElement NotAnInteger
    DecimalOverflow IndexFull SlabFull NodesFull NotOrdered RangeReversed LimitZero LeaseExpired NotAFloat FractionOverflow
    FunctionUnknown FunctionReply FunctionWork FunctionReplyLong DivisionByZero IndexOutOfRange
);

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn check<T: Coded + Copy + Debug + PartialEq>(all: &[T], first: u8) {
        let end = first + all.len() as u8;
        for (code, item) in (first..).zip(all) {
            assert_eq!((item.code(), T::from_code(code)), (code, Some(*item)));
        }
        for code in (0..first).chain(end..=u8::MAX) {
            assert_eq!(T::from_code(code), None);
        }
    }

    #[test]
    fn codes_round_trip() {
        check(&Element::ALL, 0);
        check(&UpdateFunction::ALL, 0);
        check(&Fold::ALL, 0);
        check(&Predicate::ALL, 0);
        check(&OperationError::ALL, 1);
    }
}
