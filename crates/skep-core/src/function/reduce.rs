//! λ(v, Σ) → Σ: the folds (KV-Direct, Table 1).

use super::number::{Number, for_element};
use super::{Element, Fold};

/// Folds the elements of `value` into `accumulator`, which holds Σ: one number of the type
/// [`Fold::sigma`], little-endian.
///
/// Expects that [`Reduce::validate`](crate::operation::Reduce::validate) and
/// [`Reduce::validate_value`](crate::operation::Reduce::validate_value) accepted the arguments. For [`Fold::Dot`],
/// `constants` is as long as `value`. For the other folds it is ignored.
///
/// A long value may be folded in pieces, in order, each with its piece of the constants. The result is the same to the
/// last bit.
pub fn reduce(fold: Fold, element: Element, accumulator: &mut [u8], value: &[u8], constants: &[u8]) {
    for_element!(element, T => reduce_numbers::<T>(fold, accumulator, value, constants));
}

fn reduce_numbers<T: Number>(fold: Fold, accumulator: &mut [u8], value: &[u8], constants: &[u8]) {
    let elements = T::elements(value);
    let Some(&sum) = T::elements(accumulator).first() else { return };
    // Without elements, Σ keeps its bits, even those of a NaN.
    if elements.is_empty() {
        return;
    }
    let numbers = elements.iter().map(|&bytes| T::read(bytes));
    let start = T::read(sum);
    let result = match fold {
        Fold::Sum => numbers.fold(start, T::add_raw).canonical(),
        Fold::Min => numbers.fold(start, |sum, v| if v < sum { v } else { sum }),
        Fold::Max => numbers.fold(start, |sum, v| if v > sum { v } else { sum }),
        Fold::Dot => {
            let constants = T::elements(constants).iter().map(|&bytes| T::read(bytes));
            numbers.zip(constants).fold(start, |sum, (v, c)| sum.add_raw(v.multiply(c))).canonical()
        }
        Fold::WideSum => return add_widened::<T>(accumulator, elements),
        Fold::Count => return count::<T>(accumulator, elements),
    };
    if let Some(sum) = T::elements_mut(accumulator).first_mut() {
        *sum = result.write();
    }
}

/// Adds the elements to a number of eight bytes.
fn add_widened<T: Number>(accumulator: &mut [u8], elements: &[T::Bytes]) {
    let Some(sum) = T::Wide::elements_mut(accumulator).first_mut() else { return };
    let numbers = elements.iter().map(|&bytes| T::read(bytes).widen());
    *sum = numbers.fold(T::Wide::read(*sum), T::Wide::add_raw).canonical().write();
}

/// Adds the number of elements that are not zero.
fn count<T: Number>(accumulator: &mut [u8], elements: &[T::Bytes]) {
    let Some(sum) = u64::elements_mut(accumulator).first_mut() else { return };
    // Few enough for a sum in a byte: so the compiler compares and adds many in a register.
    let runs = elements.chunks(usize::from(u8::MAX));
    let count = runs.map(|run| run.iter().map(|&bytes| u8::from(T::read(bytes) != T::ZERO)).sum::<u8>());
    *sum = u64::read(*sum).add(count.map(u64::from).sum()).write();
}
