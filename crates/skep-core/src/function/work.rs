//! The work of functions on elements, for callers that bound their time.
//!
//! Work is counted in bytes that could be read one after another in the time, about four in a nanosecond. Nanoseconds for a
//! byte of a value of a mebibyte, on a processor of 2021 in an optimised build for any x86-64:
//!
//! ```text
//!   updates                 0.05 to 0.12    a loop over vectors of elements
//!   folds of integers       0.05 to 0.11    the same
//!   sum of f32              0.21            one element after another: floats are added in their order
//!   wide-sum                0.03 to 0.20    f32 takes the longest, as its sum does
//!   count                   0.03
//!   dot of f32, f64         0.45, 0.30      the same, and the order is that of a product and a sum
//!   filters, by width       0.6, 0.39, 0.28, 0.16 for 1, 2, 4, 8 bytes: each element is copied by itself
//! ```
//!
//! So most functions take less than a quarter of a nanosecond for a byte, and count as their bytes. The others have a factor.

use super::{Element, Fold, Predicate};

impl Fold {
    /// Returns the work of a fold of the elements of a value of this size, as bytes that could be read in that time.
    pub fn work(self, element: Element, value_size: usize) -> usize {
        let factor = if self == Fold::Dot && element.is_float() { 2 } else { 1 };
        factor * value_size
    }
}

impl Predicate {
    /// Returns the work of filtering the elements of a value of this size, as bytes that could be read in that time.
    pub fn work(self, element: Element, value_size: usize) -> usize {
        let factor = match element.width() {
            1 => 3,
            2 | 4 => 2,
            _ => 1,
        };
        factor * value_size
    }
}
