//! λ(v, Δ) → v: the updates (KV-Direct, Table 1), in place.

use std::ops::Range;

use super::number::{Number, for_element};
use super::{Element, UpdateFunction};
use crate::operation::Shape;

/// Replaces every element `v` of `value` by `λ(v, Δ)`.
///
/// Expects what [`Update::validate`](crate::operation::Update::validate) and
/// [`Update::validate_value`](crate::operation::Update::validate_value) accept; an element that is incomplete or
/// has no operand stays as it is.
///
/// `value` may also be a piece of a longer value that begins and ends between elements. Then `operand` is the
/// piece of the operand that [`operand_piece`] gives: the whole operand for scalar operands, the part that belongs
/// to these elements for [`Shape::VectorToVector`].
pub fn update(function: UpdateFunction, element: Element, shape: Shape, operand: &[u8], value: &mut [u8]) {
    for_element!(element, T => update_numbers::<T>(function, shape, operand, value));
}

/// An update of one integer in the lower bytes of `value`, whatever its width: what is above them is undefined. `None` if
/// it takes more than the lower bytes of `value` and one operand to know.
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

/// The operand of an update for the bytes `piece` of its value, whose ends lie between elements.
///
/// Panics if a vector operand does not reach to the end of the piece, which a validated one does.
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

/// Runs a λ of `N` operands over the elements. A single element has a path of its own: fetch-and-add of a counter
/// should not pay for the entry and exit of a vector loop.
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
