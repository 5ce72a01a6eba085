//! λ(v) → bool: the filters (KV-Direct, Table 1).

use super::number::{Number, for_element};
use super::{Element, Predicate};

/// Bytes of the value that are filtered before the elements that passed are appended. A multiple of every element
/// width.
const RUN_SIZE: usize = 512;

/// Appends the elements of `value` for which the predicate holds to `out`, in order.
///
/// Expects that [`Filter::validate`](crate::operation::Filter::validate) and
/// [`Filter::validate_value`](crate::operation::Filter::validate_value) accepted the arguments. A long value may be
/// filtered in pieces that are cut between elements.
pub fn filter(predicate: Predicate, element: Element, operand: &[u8], value: &[u8], out: &mut Vec<u8>) {
    for_element!(element, T => filter_numbers::<T>(predicate, operand, value, out));
}

fn filter_numbers<T: Number>(predicate: Predicate, operand: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let operand = T::elements(operand).first().map_or(T::ZERO, |&bytes| T::read(bytes));
    match predicate {
        Predicate::NonZero => select(value, out, |v: T| v != T::ZERO),
        Predicate::Equal => select(value, out, |v: T| v == operand),
        Predicate::Greater => select(value, out, |v: T| v > operand),
        Predicate::Less => select(value, out, |v: T| v < operand),
    }
}

/// Copies each element to the end of the elements that have passed, and advances the end only if it passed too. So no
/// branch depends on the data, which a processor could not predict.
fn select<T: Number>(value: &[u8], out: &mut Vec<u8>, passes: impl Fn(T) -> bool) {
    let mut passed = [0; RUN_SIZE];
    for run in value.chunks(RUN_SIZE) {
        let mut end = 0;
        for element in T::elements(run) {
            passed[end..][..T::WIDTH].copy_from_slice(element.as_ref());
            end += usize::from(passes(T::read(*element))) * T::WIDTH;
        }
        out.extend_from_slice(&passed[..end]);
    }
}
