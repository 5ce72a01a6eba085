//! Decodes the bytes of an input as operations and keys.
//!
//! The tests' generator draws choices from a seed. Here each choice is one or two bytes that the fuzzer can change
//! alone. There are few keys, so that operations of one batch use the same key. The bytes only decide the sizes of
//! values, not their contents, because the sizes decide where they are stored.

use arbitrary::{Result, Unstructured};
use skep_core::function::{Element, Fold, Predicate, UpdateFunction};
use skep_core::operation::{KEY_SIZE_MAX, PutCondition, Shape, VALUE_SIZE_MAX};
use skep_store::naive::OwnedOperation;

/// Number of different keys in a run.
pub(crate) const KEY_COUNT: u16 = 600;

/// Returns the number of a key. Most operations use a few keys, so that several operations use the same key.
pub(crate) fn key_number(input: &mut Unstructured<'_>) -> Result<u16> {
    Ok(match input.arbitrary::<u16>()? {
        rare if rare.is_multiple_of(4) => rare / 4 % KEY_COUNT,
        hot => hot % 48,
    })
}

/// Returns an operation, except a scan, on the key with this number.
pub(crate) fn operation(input: &mut Unstructured<'_>, number: u16) -> Result<OwnedOperation> {
    // Operations on a key mostly agree on the type of its value. Every eighth key holds decimal text.
    let home = Element::ALL[usize::from(number) % Element::ALL.len()];
    let element = if input.ratio(1, 16)? { *input.choose(&Element::ALL)? } else { home };
    Ok(match input.int_in_range(0..=11)? {
        0 => OwnedOperation::Get,
        1 => OwnedOperation::Contains,
        2 | 3 => put(input, number, element, PutCondition::Always)?,
        4 => put(input, number, element, PutCondition::IfAbsent)?,
        5 => put(input, number, element, PutCondition::IfPresent)?,
        6 => OwnedOperation::Delete,
        7 | 8 => update(input, element)?,
        9 => reduce(input, element)?,
        10 => filter(input, element)?,
        _ => OwnedOperation::AddDecimal { delta: input.arbitrary()? },
    })
}

fn put(input: &mut Unstructured<'_>, number: u16, element: Element, condition: PutCondition) -> Result<OwnedOperation> {
    let value =
        if number % 8 == 7 { input.arbitrary::<i16>()?.to_string().into_bytes() } else { vector(input, element)? };
    Ok(OwnedOperation::Put { value, condition })
}

fn update(input: &mut Unstructured<'_>, element: Element) -> Result<OwnedOperation> {
    let function = *input.choose(&UpdateFunction::ALL)?;
    let shape = *input.choose(&[Shape::ScalarToScalar, Shape::ScalarToVector, Shape::VectorToVector])?;
    let initial = match shape {
        Shape::ScalarToScalar => scalar(input, element)?,
        Shape::ScalarToVector | Shape::VectorToVector => vector(input, element)?,
    };
    let operand_size = if shape == Shape::VectorToVector { initial.len() } else { element.width() };
    let operand = bytes(operand_size * function.operand_count(), input.arbitrary()?);
    let initial = input.arbitrary::<bool>()?.then_some(initial);
    Ok(OwnedOperation::Update { function, element, shape, operand, initial, return_old: input.arbitrary()? })
}

fn reduce(input: &mut Unstructured<'_>, element: Element) -> Result<OwnedOperation> {
    let fold = *input.choose(&Fold::ALL)?;
    let constants = if fold == Fold::Dot { vector(input, element)? } else { Vec::new() };
    Ok(OwnedOperation::Reduce { fold, element, initial: scalar(input, fold.sigma(element))?, constants })
}

fn filter(input: &mut Unstructured<'_>, element: Element) -> Result<OwnedOperation> {
    let predicate = *input.choose(&Predicate::ALL)?;
    let operand = if predicate == Predicate::NonZero { Vec::new() } else { scalar(input, element)? };
    Ok(OwnedOperation::Filter { predicate, element, operand })
}

/// Returns one element. It is truncated with a probability of 1/16.
fn scalar(input: &mut Unstructured<'_>, element: Element) -> Result<Vec<u8>> {
    let size = if input.ratio(1, 16)? { element.width() - 1 } else { element.width() };
    Ok(bytes(size, input.arbitrary()?))
}

/// Returns elements. The last is truncated with a probability of 1/16. Sizes are near the bounds of slots, slab classes
/// and the kinds of values.
fn vector(input: &mut Unstructured<'_>, element: Element) -> Result<Vec<u8>> {
    let size = match input.arbitrary::<u8>()? {
        small @ 0..=199 => usize::from(small) / 4,
        200..=239 => input.int_in_range(0..=600)?,
        240..=253 => input.int_in_range(500..=9000)?,
        254 => input.int_in_range(0..=VALUE_SIZE_MAX / 4)?,
        255 => VALUE_SIZE_MAX - 4 + input.int_in_range(0..=8)?,
    };
    let whole = size.next_multiple_of(element.width());
    Ok(bytes(if input.ratio(1, 16)? { size } else { whole }, input.arbitrary()?))
}

/// Returns bytes that differ from their neighbours and from those of other fills, or zeros.
fn bytes(size: usize, fill: u8) -> Vec<u8> {
    (0..size).map(|at| (at as u8).wrapping_mul(31).wrapping_add(1).wrapping_mul(fill)).collect()
}

/// Returns the key with this number. Most keys are short, some are long, and the last two are not allowed.
pub(crate) fn key(number: u16) -> Vec<u8> {
    let size = match KEY_COUNT - number {
        1 => 0,
        2 => KEY_SIZE_MAX + 1,
        3..=9 => KEY_SIZE_MAX,
        _ => 2 + usize::from(number % 23),
    };
    number.to_be_bytes().into_iter().cycle().take(size).collect()
}
