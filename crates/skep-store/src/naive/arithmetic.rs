//! λ once more, in the slowest and plainest way: one element at a time, integers in 128 bits, floats in 64.
//!
//! It shares nothing with [`skep_core::function`] but the names, so that the two can be held against each other. Exact
//! results are cut to the width of the type at the end of each step; an `f32` is rounded from the `f64` result,
//! which is what a single rounding would give for one addition, subtraction or multiplication.

use std::cmp::Ordering;

use skep_core::function::{Element, Fold, Predicate, UpdateFunction};

/// One element: its type and its bits, zeros above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scalar {
    element: Element,
    bits: u64,
}

impl Scalar {
    /// The element with these bits; those beyond its width are dropped.
    pub(crate) fn from_bits(element: Element, bits: u64) -> Self {
        let unused = 64 - 8 * element.width();
        Scalar { element, bits: bits << unused >> unused }
    }

    /// The element that these little-endian bytes are.
    pub(crate) fn from_bytes(element: Element, bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), element.width());
        Scalar { element, bits: bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte)) }
    }

    /// The elements of a value.
    pub(crate) fn all(element: Element, value: &[u8]) -> impl Iterator<Item = Scalar> {
        value.chunks(element.width()).map(move |bytes| Scalar::from_bytes(element, bytes))
    }

    /// Appends the little-endian bytes of the element.
    pub(crate) fn append_to(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bits.to_le_bytes()[..self.element.width()]);
    }

    fn integer(self) -> i128 {
        let unused = 64 - 8 * self.element.width();
        match self.element {
            Element::U8 | Element::U16 | Element::U32 | Element::U64 => i128::from(self.bits),
            Element::I8 | Element::I16 | Element::I32 | Element::I64 => {
                i128::from((self.bits << unused) as i64 >> unused)
            }
            Element::F32 | Element::F64 => panic!("a float is no integer"),
        }
    }

    fn float(self) -> f64 {
        match self.element {
            Element::F32 => f64::from(f32::from_bits(self.bits as u32)),
            Element::F64 => f64::from_bits(self.bits),
            _ => panic!("an integer is no float"),
        }
    }

    /// The result of an operation on integers, or that on floats, as an element of this type.
    fn calculate(
        self,
        other: Scalar,
        integers: impl Fn(i128, i128) -> i128,
        floats: impl Fn(f64, f64) -> f64,
    ) -> Scalar {
        let bits = match self.element {
            Element::F32 => match floats(self.float(), other.float()) {
                nan if nan.is_nan() => 0x7fc0_0000,
                result => u64::from((result as f32).to_bits()),
            },
            Element::F64 => match floats(self.float(), other.float()) {
                nan if nan.is_nan() => 0x7ff8_0000_0000_0000,
                result => result.to_bits(),
            },
            _ => integers(self.integer(), other.integer()) as u64,
        };
        Scalar::from_bits(self.element, bits)
    }

    fn plus(self, other: Scalar) -> Scalar {
        self.calculate(other, |a, b| a + b, |a, b| a + b)
    }

    /// The sum with a number of fewer bytes.
    fn plus_wide(self, narrow: Scalar) -> Scalar {
        let bits = if narrow.element.is_float() { narrow.float().to_bits() } else { narrow.integer() as u64 };
        self.plus(self.with_bits(bits))
    }

    fn is_zero(self) -> bool {
        if self.element.is_float() { self.float() == 0.0 } else { self.bits == 0 }
    }

    fn minus(self, other: Scalar) -> Scalar {
        self.calculate(other, |a, b| a - b, |a, b| a - b)
    }

    fn times(self, other: Scalar) -> Scalar {
        self.calculate(other, i128::wrapping_mul, |a, b| a * b)
    }

    /// The order of the two as numbers; none if one of them is not a number.
    fn compare(self, other: Scalar) -> Option<Ordering> {
        if self.element.is_float() {
            self.float().partial_cmp(&other.float())
        } else {
            Some(self.integer().cmp(&other.integer()))
        }
    }

    fn with_bits(self, bits: u64) -> Scalar {
        Scalar { bits, ..self }
    }
}

/// `λ(v, Δ)`
pub(crate) fn update(function: UpdateFunction, v: Scalar, operands: &[Scalar]) -> Scalar {
    let delta = operands[0];
    match function {
        UpdateFunction::Add => v.plus(delta),
        UpdateFunction::Subtract => v.minus(delta),
        UpdateFunction::Multiply => v.times(delta),
        UpdateFunction::Min if delta.compare(v) == Some(Ordering::Less) => delta,
        UpdateFunction::Max if delta.compare(v) == Some(Ordering::Greater) => delta,
        UpdateFunction::Min | UpdateFunction::Max => v,
        UpdateFunction::And => v.with_bits(v.bits & delta.bits),
        UpdateFunction::Or => v.with_bits(v.bits | delta.bits),
        UpdateFunction::Xor => v.with_bits(v.bits ^ delta.bits),
        UpdateFunction::Swap => delta,
        UpdateFunction::CompareAndSwap if v.bits == delta.bits => operands[1],
        UpdateFunction::CompareAndSwap => v,
        UpdateFunction::WrapAround => {
            let rest = v.minus(delta);
            let below_zero = matches!(v.element, Element::U8 | Element::U16 | Element::U32 | Element::U64)
                && v.integer() < delta.integer();
            let enough = if v.element.is_float() { rest.float() >= 10.0 } else { rest.integer() >= 10 };
            if enough && !below_zero { rest } else { rest.plus(operands[1]) }
        }
    }
}

/// `λ(v, Σ)`; `constant` is that of the element, for [`Fold::Dot`].
pub(crate) fn reduce(fold: Fold, sum: Scalar, v: Scalar, constant: Option<Scalar>) -> Scalar {
    match fold {
        Fold::Sum => sum.plus(v),
        Fold::Min if v.compare(sum) == Some(Ordering::Less) => v,
        Fold::Max if v.compare(sum) == Some(Ordering::Greater) => v,
        Fold::Min | Fold::Max => sum,
        Fold::WideSum => sum.plus_wide(v),
        Fold::Count if v.is_zero() => sum,
        Fold::Count => sum.with_bits(sum.bits.wrapping_add(1)),
        Fold::Dot => sum.plus(v.times(constant.expect("a dot product has a constant for each element"))),
    }
}

/// `λ(v)`; `operand` is there for all but [`Predicate::NonZero`].
pub(crate) fn passes(predicate: Predicate, v: Scalar, operand: Option<Scalar>) -> bool {
    let order = v.compare(operand.unwrap_or(v.with_bits(0)));
    match predicate {
        Predicate::NonZero => order != Some(Ordering::Equal),
        Predicate::Equal => order == Some(Ordering::Equal),
        Predicate::Greater => order == Some(Ordering::Greater),
        Predicate::Less => order == Some(Ordering::Less),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(element: Element, number: i64) -> Scalar {
        Scalar::from_bits(element, number as u64)
    }

    fn float(number: f64) -> Scalar {
        Scalar::from_bits(Element::F64, number.to_bits())
    }

    /// The yardstick itself is held against results worked out by hand.
    #[test]
    fn known_results() {
        use Element::{I8, U8};
        use UpdateFunction::{Add, CompareAndSwap, Max, Min, Multiply, Subtract, WrapAround, Xor};
        for (function, element, v, operands, result) in [
            (Add, U8, 250, [10, 0], 4),
            (Add, I8, 127, [1, 0], -128),
            (Subtract, U8, 3, [5, 0], 254),
            (Multiply, I8, -128, [-1, 0], -128),
            (Min, U8, 255, [1, 0], 1),
            (Min, I8, -1, [1, 0], -1),
            (Max, U8, 255, [1, 0], 255),
            (Xor, I8, -1, [1, 0], -2),
            (CompareAndSwap, U8, 7, [7, 9], 9),
            (CompareAndSwap, U8, 8, [7, 9], 8),
            (WrapAround, U8, 20, [10, 91], 10),
            (WrapAround, U8, 20, [11, 91], 100),
            (WrapAround, U8, 5, [10, 91], 86),
            (WrapAround, I8, 5, [10, 91], 86),
            // An i8 that wraps past its lower end holds a large number, and is compared as that.
            (WrapAround, I8, -128, [1, 91], 127),
        ] {
            let operands = operands.map(|operand| signed(element, operand));
            let found = update(function, signed(element, v), &operands);
            assert_eq!(found, signed(element, result), "{function:?} {element:?} {v} {operands:?}");
        }
    }

    #[test]
    fn known_results_of_floats() {
        let nan = float(f64::NAN);
        assert_eq!(update(UpdateFunction::Add, float(1.0), &[nan]).bits, 0x7ff8_0000_0000_0000);
        assert_eq!(update(UpdateFunction::Min, float(1.0), &[nan]), float(1.0));
        assert_eq!(update(UpdateFunction::Min, nan, &[float(1.0)]), nan);
        assert_eq!(update(UpdateFunction::Max, float(-0.0), &[float(0.0)]), float(-0.0));
        assert_eq!(update(UpdateFunction::WrapAround, float(20.0), &[float(10.0), float(91.0)]), float(10.0));
        assert_eq!(update(UpdateFunction::WrapAround, float(20.0), &[float(10.5), float(91.0)]), float(100.5));
        assert_eq!(update(UpdateFunction::CompareAndSwap, float(-0.0), &[float(0.0), nan]), float(-0.0));
        assert!(passes(Predicate::NonZero, nan, None));
        assert!(!passes(Predicate::NonZero, float(-0.0), None));
        assert!(!passes(Predicate::Equal, nan, Some(nan)));
    }
}
