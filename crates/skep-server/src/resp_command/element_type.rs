//! The numbers that an element has: one of a built-in type, or those of a record of a user function.
//!
//! A record is written and read as its numbers, one after another:
//!
//! ```text
//!   SKEP.SET k limits.Bucket 10 0 20 0       two records of two numbers
//!   SKEP.GETV k limits.Bucket                10 0 20 0
//! ```

use skep_core::function::{Element, Layout, Scalar};

/// The type of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ElementType {
    /// One number of a built-in type.
    Number(Element),
    /// The numbers of a record.
    Record(&'static Layout),
    /// The position of an element as a `u32`, and then its numbers.
    Positioned(&'static Layout),
}

impl ElementType {
    /// Returns how many numbers an element has.
    pub(super) fn number_count(self) -> usize {
        match self {
            ElementType::Number(_) => 1,
            ElementType::Record(layout) => layout.fields().len(),
            ElementType::Positioned(layout) => 1 + layout.fields().len(),
        }
    }

    /// Returns the bytes of an element.
    pub(crate) fn size(self) -> usize {
        match self {
            ElementType::Number(element) => element.width(),
            ElementType::Record(layout) => layout.size(),
            ElementType::Positioned(layout) => size_of::<u32>() + layout.size(),
        }
    }

    /// Returns the type of the number at this index of an element.
    pub(super) fn number(self, index: usize) -> Scalar {
        match self {
            ElementType::Number(element) => Scalar::Element(element),
            ElementType::Record(layout) => layout.fields()[index].scalar,
            ElementType::Positioned(_) if index == 0 => Scalar::Element(Element::U32),
            ElementType::Positioned(layout) => layout.fields()[index - 1].scalar,
        }
    }
}
