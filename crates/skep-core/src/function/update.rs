//! λ(v, Δ) → v: the updates (KV-Direct, Table 1), in place.

use std::ops::Range;

use super::number::{Number, for_element};
use super::{Element, UpdateFunction};

/// How the operands of an update are combined with the elements of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The value is one element.
    ScalarToScalar,
    /// One operand for all elements.
    ScalarToVector,
    /// One operand for each element.
    VectorToVector,
}

/// Replaces every element `v` of `value` by `λ(v, Δ)`.
///
/// Expects that [`Update::validate`](crate::operation::Update::validate) and
/// [`Update::validate_value`](crate::operation::Update::validate_value) accepted the arguments. Leaves an element
/// unchanged if it is incomplete or has no operand.
///
/// `value` may also be a piece of a longer value, if the piece begins and ends between elements. Then `operand` is the
/// piece of the operand that [`operand_piece`] returns. For scalar operands this is the whole operand, for
/// [`Shape::VectorToVector`] the operands of these elements.
pub fn update(function: UpdateFunction, element: Element, shape: Shape, operand: &[u8], value: &mut [u8]) {
    for_element!(element, T => update_numbers::<T>(function, shape, operand, value));
}

/// Updates one integer of any width that is in the lower bytes of `value`. The bytes above the integer are undefined in
/// the result. Returns `None` if the function needs more than the lower bytes of `value` and one operand.
#[inline(always)]
pub fn update_short(function: UpdateFunction, element: Element, operand: u64, value: u64) -> Option<u64> {
    if element.is_float() {
        return None;
    }
    Some(match function {
        UpdateFunction::Add => value.wrapping_add(operand),
        UpdateFunction::Subtract => value.wrapping_sub(operand),
        UpdateFunction::Multiply => value.wrapping_mul(operand),
        UpdateFunction::And => value & operand,
        UpdateFunction::Or => value | operand,
        UpdateFunction::Xor => value ^ operand,
        UpdateFunction::Swap => operand,
        _ => return None,
    })
}

/// Updates all integers of a vector in `value` with one operand. Bytes above the last whole integer are undefined in the
/// result. Returns `None` where [`update_short`] does, and for products.
///
/// The highest bit of each integer is added by itself, so that no carry goes from one integer to the next.
pub fn update_short_vector(function: UpdateFunction, element: Element, operand: u64, value: u64) -> Option<u64> {
    let lowest_bits = match element.width() {
        1 => u64::MAX / 0xff,
        2 => u64::MAX / 0xffff,
        4 => u64::MAX / 0xffff_ffff,
        _ => 1,
    };
    let highest_bits = lowest_bits << (8 * element.width() - 1);
    let operands = operand.wrapping_mul(lowest_bits);
    match function {
        _ if element.is_float() => None,
        UpdateFunction::Add => {
            Some(((value & !highest_bits) + (operands & !highest_bits)) ^ ((value ^ operands) & highest_bits))
        }
        UpdateFunction::Subtract => {
            Some(((value | highest_bits) - (operands & !highest_bits)) ^ ((value ^ !operands) & highest_bits))
        }
        UpdateFunction::Multiply => None,
        function => update_short(function, element, operands, value),
    }
}

/// Returns the operand of an update for the bytes `piece` of its value. Expects that the piece begins and ends between
/// elements.
///
/// # Panics
/// If a vector operand is too short for the piece. A validated operand is long enough.
pub fn operand_piece(function: UpdateFunction, shape: Shape, operand: &[u8], piece: Range<usize>) -> &[u8] {
    match shape {
        Shape::ScalarToScalar | Shape::ScalarToVector => operand,
        Shape::VectorToVector => {
            let count = function.operand_count();
            &operand[piece.start * count..piece.end * count]
        }
    }
}

fn update_numbers<T: Number>(function: UpdateFunction, shape: Shape, operand: &[u8], value: &mut [u8]) {
    match function {
        UpdateFunction::Add => apply(shape, operand, value, |v: T, [delta]| v.add(delta)),
        UpdateFunction::Subtract => apply(shape, operand, value, |v: T, [delta]| v.subtract(delta)),
        UpdateFunction::Multiply => apply(shape, operand, value, |v: T, [delta]| v.multiply(delta)),
        UpdateFunction::Min => apply(shape, operand, value, |v: T, [delta]| if delta < v { delta } else { v }),
        UpdateFunction::Max => apply(shape, operand, value, |v: T, [delta]| if delta > v { delta } else { v }),
        UpdateFunction::And => {
            apply(shape, operand, value, |v: T, [delta]| T::from_bits(v.to_bits() & delta.to_bits()));
        }
        UpdateFunction::Or => {
            apply(shape, operand, value, |v: T, [delta]| T::from_bits(v.to_bits() | delta.to_bits()));
        }
        UpdateFunction::Xor => {
            apply(shape, operand, value, |v: T, [delta]| T::from_bits(v.to_bits() ^ delta.to_bits()));
        }
        UpdateFunction::Swap => apply(shape, operand, value, |_: T, [delta]| delta),
        UpdateFunction::CompareAndSwap => {
            apply(
                shape,
                operand,
                value,
                |v: T, [expected, new]| if v.to_bits() == expected.to_bits() { new } else { v },
            );
        }
        UpdateFunction::WrapAround => {
            apply(shape, operand, value, |v: T, [delta, refill]| v.wrap_around(delta, refill));
        }
    }
}

/// Runs a λ of `N` operands over the elements. A single element has a separate path, so that fetch-and-add of a counter
/// does not pay for the entry and exit of a vector loop.
fn apply<T: Number, const N: usize>(shape: Shape, operand: &[u8], value: &mut [u8], lambda: impl Fn(T, [T; N]) -> T) {
    let elements = T::elements_mut(value);
    let operands = T::elements(operand).as_chunks::<N>().0;
    match shape {
        Shape::ScalarToScalar => {
            if let (Some(element), Some(operand)) = (elements.first_mut(), operands.first()) {
                *element = lambda(T::read(*element), operand.map(T::read)).write();
            }
        }
        Shape::ScalarToVector => {
            let Some(operand) = operands.first() else { return };
            let operand = operand.map(T::read);
            for element in elements {
                *element = lambda(T::read(*element), operand).write();
            }
        }
        Shape::VectorToVector => {
            for (element, operand) in elements.iter_mut().zip(operands) {
                *element = lambda(T::read(*element), operand.map(T::read)).write();
            }
        }
    }
}
