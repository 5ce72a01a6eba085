//! User functions for tests, written as closures, and calls of them by the naive store.

use std::sync::LazyLock;

use skep_core::function::{
    Element, Field, FunctionHandle, Layout, Operands, Parameter, Scalar, ShortCode, Signature, UserCode, UserFunction,
};
use skep_core::operation::{Call, CallReply, ExpiryChange, OperationError};

use super::{Change, NaiveReply};

/// Functions of all kinds, with elements of one number and of records that fit no line. The number of each is its index and
/// one more.
static FUNCTIONS: LazyLock<Vec<&'static UserFunction>> =
    LazyLock::new(|| [scale(), take(), divide(), blend(), mean(), fold(), above(), marked()].map(leak).to_vec());

fn leak(function: UserFunction) -> &'static UserFunction {
    Box::leak(Box::new(function))
}

/// Returns the handles of the test functions.
pub fn test_functions() -> impl Iterator<Item = FunctionHandle> {
    let handle =
        |(id, function): (u32, &&'static UserFunction)| FunctionHandle { id, revision: 0, function: Some(*function) };
    (1..).zip(FUNCTIONS.iter()).map(handle)
}

fn number(element: Element) -> Layout {
    Layout::number(Scalar::Element(element))
}

fn record(elements: &[Element]) -> Layout {
    let field =
        |(index, element): (usize, &Element)| Field { name: format!("f{index}"), scalar: Scalar::Element(*element) };
    Layout::new(elements.iter().enumerate().map(field).collect())
}

fn signature(element: Layout, operands: &[Element], result: Option<Layout>, can_fail: bool) -> Signature {
    let parameter = |element: &Element| Parameter { name: "p".to_owned(), layout: number(*element) };
    Signature { element, operands: operands.iter().map(parameter).collect(), result, work: 8, can_fail }
}

/// Returns the record of an operand that belongs to an element.
fn record_of<const N: usize>(operands: &Operands<'_>, operand: usize, element: usize) -> [u8; N] {
    operands.record(operand, element).try_into().expect("N bytes")
}

/// `v: u32 → 3 v + Δ`
fn scale() -> UserFunction {
    let code = |value: &mut [u8], operands: &Operands<'_>, _: &mut [u8]| {
        for (index, v) in value.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let delta = u32::from_le_bytes(record_of(operands, 0, index));
            *v = u32::from_le_bytes(*v).wrapping_mul(3).wrapping_add(delta).to_le_bytes();
        }
        Ok(())
    };
    let short = |v: u64, operands: &[u8]| {
        let delta = u32::from_le_bytes(operands.try_into().expect("four bytes"));
        u64::from((v as u32).wrapping_mul(3).wrapping_add(delta))
    };
    let signature = signature(number(Element::U32), &[Element::U32], None, false);
    UserFunction {
        short: Some(ShortCode { element_size: 4, operands_size: 4, code: Box::new(short) }),
        ..UserFunction::new("test.scale", signature, UserCode::Update(Box::new(code)))
    }
}

/// A bucket of tokens, 12 bytes: takes some if there are as many, and returns whether it did.
fn take() -> UserFunction {
    let code = |value: &mut [u8], operands: &Operands<'_>, results: &mut [u8]| {
        for (index, bucket) in value.as_chunks_mut::<12>().0.iter_mut().enumerate() {
            let tokens = u32::from_le_bytes(*bucket.first_chunk().expect("four bytes"));
            let cost = u32::from(u16::from_le_bytes(record_of(operands, 0, index)));
            bucket[4..].copy_from_slice(&record_of::<8>(operands, 1, index));
            results[index] = u8::from(tokens >= cost);
            bucket[..4].copy_from_slice(&tokens.checked_sub(cost).unwrap_or(tokens).to_le_bytes());
        }
        Ok(())
    };
    UserFunction::new(
        "test.take",
        signature(
            record(&[Element::U32, Element::U64]),
            &[Element::U16, Element::U64],
            Some(Layout::number(Scalar::Bool)),
            false,
        ),
        UserCode::Update(Box::new(code)),
    )
}

/// `v: u8 → v / Δ`, which fails if Δ is 0.
fn divide() -> UserFunction {
    let code = |value: &mut [u8], operands: &Operands<'_>, _: &mut [u8]| {
        for (index, v) in value.iter_mut().enumerate() {
            let [delta] = record_of(operands, 0, index);
            *v = v.checked_div(delta).ok_or(OperationError::DivisionByZero)?;
        }
        Ok(())
    };
    UserFunction::new(
        "test.divide",
        signature(number(Element::U8), &[Element::U8], None, true),
        UserCode::Update(Box::new(code)),
    )
}

/// A record of 24 bytes, whose second number becomes the exclusive or of all three and of two operands.
fn blend() -> UserFunction {
    let code = |value: &mut [u8], operands: &Operands<'_>, _: &mut [u8]| {
        for (index, v) in value.as_chunks_mut::<24>().0.iter_mut().enumerate() {
            let words: &mut [[u8; 8]] = v.as_chunks_mut().0;
            let word = |index: usize| u64::from_le_bytes(words[index]);
            let small = u64::from(u32::from_le_bytes(record_of(operands, 0, index)));
            let mixed = word(0) ^ word(1) ^ word(2) ^ small ^ u64::from_le_bytes(record_of(operands, 1, index));
            words[1] = mixed.to_le_bytes();
        }
        Ok(())
    };
    UserFunction::new(
        "test.blend",
        signature(record(&[Element::U64; 3]), &[Element::U32, Element::U64], None, false),
        UserCode::Update(Box::new(code)),
    )
}

/// `v: u8, Σ: u64 → Σ + v`
fn mean() -> UserFunction {
    let code = |value: &[u8], _: &Operands<'_>, sigma: &mut [u8]| {
        let sum: u64 = value.iter().map(|v| u64::from(*v)).sum();
        let before = u64::from_le_bytes(*sigma.first_chunk().expect("eight bytes"));
        sigma.copy_from_slice(&before.wrapping_add(sum).to_le_bytes());
        Ok(())
    };
    UserFunction::new(
        "test.mean",
        signature(number(Element::U8), &[], Some(number(Element::U64)), false),
        UserCode::Reduce(Box::new(code)),
    )
}

/// Records of 12 bytes, folded in their order to a Σ of 16 bytes. It fails if an operand is 0.
fn fold() -> UserFunction {
    let code = |value: &[u8], operands: &Operands<'_>, sigma: &mut [u8]| {
        for (index, v) in value.as_chunks::<12>().0.iter().enumerate() {
            let factor = u16::from_le_bytes(record_of(operands, 0, index));
            if factor == 0 {
                return Err(OperationError::IndexOutOfRange);
            }
            for (sum, byte) in sigma.iter_mut().zip(v.iter().cycle()) {
                *sum = sum.wrapping_mul(factor as u8 | 1).wrapping_add(*byte);
            }
        }
        Ok(())
    };
    UserFunction::new(
        "test.fold",
        signature(record(&[Element::U32, Element::F64]), &[Element::U16], Some(record(&[Element::U64; 2])), true),
        UserCode::Reduce(Box::new(code)),
    )
}

/// `v: u16 > Δ`
fn above() -> UserFunction {
    let code = |value: &[u8], operands: &Operands<'_>, passed: &mut [u8]| {
        for (index, v) in value.as_chunks::<2>().0.iter().enumerate() {
            passed[index] = u8::from(u16::from_le_bytes(*v) > u16::from_le_bytes(record_of(operands, 0, index)));
        }
        Ok(())
    };
    UserFunction::new(
        "test.above",
        signature(number(Element::U16), &[Element::U16], None, false),
        UserCode::Filter(Box::new(code)),
    )
}

/// Records of five bytes whose last one has a bit of the operand.
fn marked() -> UserFunction {
    let code = |value: &[u8], operands: &Operands<'_>, passed: &mut [u8]| {
        for (index, v) in value.as_chunks::<5>().0.iter().enumerate() {
            passed[index] = u8::from(v[4] & record_of::<1>(operands, 0, index)[0] != 0);
        }
        Ok(())
    };
    UserFunction::new(
        "test.marked",
        signature(record(&[Element::U32, Element::U8]), &[Element::U8], None, false),
        UserCode::Filter(Box::new(code)),
    )
}

/// Executes a call on all of a value at once.
pub(super) fn call(value: Option<&[u8]>, call: &Call<'_>) -> (NaiveReply, Change) {
    let function = call.function().expect("a valid call has a function");
    let is_update = matches!(function.code, UserCode::Update(_));
    let Some(old) = value.or(call.initial.filter(|_| is_update)) else {
        return (NaiveReply::NotFound, Change::Nothing);
    };
    execute(old, value.is_some(), call, function).unwrap_or_else(|error| (NaiveReply::Failed(error), Change::Nothing))
}

fn execute(
    old: &[u8],
    exists: bool,
    call: &Call<'_>,
    function: &UserFunction,
) -> Result<(NaiveReply, Change), OperationError> {
    call.validate_value(old.len())?;
    let signature = &function.signature;
    let size = signature.element.size();
    let count = old.len() / size;
    let operands = &Operands { signature, bytes: call.operands, vectors: call.vectors, first: 0 };
    let reply = match &function.code {
        UserCode::Update(code) => {
            let (mut new, mut results) = (old.to_vec(), vec![0; signature.results_size(old.len())]);
            code(&mut new, operands, &mut results)?;
            let reply = match call.reply {
                CallReply::Old => NaiveReply::Value(old.to_vec()),
                CallReply::Result => NaiveReply::Value(results),
                _ => NaiveReply::Done,
            };
            let expiry = if exists { ExpiryChange::KEEP } else { ExpiryChange::CLEAR };
            return Ok((reply, Change::Set(new, expiry)));
        }
        UserCode::Reduce(code) => {
            let mut sigma = call.initial.expect("a valid reduce has one").to_vec();
            code(old, operands, &mut sigma)?;
            sigma
        }
        UserCode::Filter(code) => {
            let mut passed = vec![0; count];
            code(old, operands, &mut passed)?;
            let mut reply = Vec::new();
            for index in (0..count).filter(|index| passed[*index] != 0) {
                if call.reply != CallReply::Result {
                    reply.extend((index as u32).to_le_bytes());
                }
                if call.reply != CallReply::Positions {
                    reply.extend(&old[index * size..][..size]);
                }
            }
            reply
        }
    };
    Ok((NaiveReply::Value(reply), Change::Nothing))
}
