//! Fuzzes the source of user functions.
//!
//! Looks for five faults:
//! 1. a panic, or a stack overflow
//! 2. a source that is only checked and one that is compiled differ
//! 3. code that writes outside the memory that it is given, or an element that it may only read
//! 4. code that fails, although its signature says that it cannot
//! 5. other results for several elements at once than for one after another

use skep_core::function::{FunctionKind, Layout, Operands, UserCode, UserFunction};
use skep_function::{check, compile};

/// Bytes before and after all memory that code may write.
const GUARD: [u8; 32] = [0xa5; 32];
/// Elements of a value: two turns in lanes of bytes, and a rest.
const ELEMENTS: usize = 131;

/// Runs the target.
pub fn run(input: &[u8]) {
    let source = String::from_utf8_lossy(input);
    let description = check(&source);
    let module = compile(&source);
    let (module, description) = match (module, description) {
        (Ok(module), Ok(description)) => (module, description),
        (Err(one), Err(two)) => return assert_eq!(one, two),
        (one, two) => panic!("compiled: {one:?}, checked: {two:?}"),
    };
    assert_eq!((&module.name, &module.records), (&description.name, &description.records));
    assert_eq!(module.functions.len(), description.functions.len());
    for (function, described) in module.functions.iter().zip(&description.functions) {
        assert_eq!((&function.name, function.kind()), (&described.name, described.kind));
        for vectors in [0, u8::MAX, 0b1010_0101] {
            compare(function, vectors, input);
        }
    }
}

/// What code reads and writes.
#[derive(Clone, PartialEq, Debug)]
struct Call {
    elements: Vec<u8>,
    operands: Vec<Vec<u8>>,
    results: Vec<u8>,
}

/// Compares a call for all elements with one call for each.
fn compare(function: &UserFunction, vectors: u8, input: &[u8]) {
    let signature = &function.signature;
    let mut numbers = input.iter().copied().cycle();
    let mut take = |size: usize| -> Vec<u8> { (&mut numbers).take(size).collect() };
    let is_vector = |operand: usize| vectors >> operand & 1 == 1;
    let operand_sizes: Vec<usize> = signature.operands.iter().map(|operand| operand.layout.size()).collect();
    let result_size = match function.kind() {
        FunctionKind::Filter => 1,
        _ => signature.result.as_ref().map_or(0, Layout::size),
    };
    let result_count = if function.kind() == FunctionKind::Reduce { 1 } else { ELEMENTS };
    let before = Call {
        elements: take(signature.element.size() * ELEMENTS),
        operands: operand_sizes
            .iter()
            .enumerate()
            .map(|(operand, size)| take(if is_vector(operand) { size * ELEMENTS } else { *size }))
            .collect(),
        results: take(result_size * result_count),
    };
    let mut whole = before.clone();
    let ran = call(function, vectors, &mut whole);
    let mut each = before.clone();
    let mut each_ran = true;
    for index in 0..ELEMENTS {
        let part = |bytes: &[u8], size: usize| bytes[size * index..][..size].to_vec();
        let result = if result_count == 1 { 0..result_size } else { result_size * index..result_size * (index + 1) };
        let mut one = Call {
            elements: part(&before.elements, signature.element.size()),
            operands: before
                .operands
                .iter()
                .zip(&operand_sizes)
                .enumerate()
                .map(|(operand, (bytes, size))| if is_vector(operand) { part(bytes, *size) } else { bytes.clone() })
                .collect(),
            results: each.results[result.clone()].to_vec(),
        };
        each_ran &= call(function, vectors, &mut one);
        if !each_ran {
            break;
        }
        each.elements[signature.element.size() * index..][..one.elements.len()].copy_from_slice(&one.elements);
        each.results[result].copy_from_slice(&one.results);
    }
    assert_eq!(ran, each_ran, "{}", function.name);
    // An associative reduce of floats may have another result in lanes.
    if ran && function.kind() != FunctionKind::Reduce {
        assert_eq!(whole, each, "{}", function.name);
    }
}

/// Calls a function on copies with guards. Returns false if it failed.
fn call(function: &UserFunction, vectors: u8, call: &mut Call) -> bool {
    let guarded = |bytes: &[u8]| [&GUARD, bytes, &GUARD].concat();
    let own = |bytes: &[u8]| GUARD.len()..bytes.len() - GUARD.len();
    let (mut elements, mut results) = (guarded(&call.elements), guarded(&call.results));
    let operands = Operands { signature: &function.signature, bytes: &call.operands.concat(), vectors, first: 0 };
    let (element_range, result_range) = (own(&elements), own(&results));
    let ran = match &function.code {
        UserCode::Update(code) => {
            code(&mut elements[element_range.clone()], &operands, &mut results[result_range.clone()])
        }
        UserCode::Reduce(code) | UserCode::Filter(code) => {
            code(&elements[element_range.clone()], &operands, &mut results[result_range.clone()])
        }
    };
    assert!(ran.is_ok() || function.signature.can_fail, "{} failed", function.name);
    for bytes in [&elements, &results] {
        assert!(bytes.starts_with(&GUARD) && bytes.ends_with(&GUARD), "{} wrote outside", function.name);
    }
    if function.kind() != FunctionKind::Update {
        assert_eq!(elements[element_range.clone()], call.elements, "{} changed elements", function.name);
    }
    call.elements = elements[element_range].to_vec();
    call.results = results[result_range].to_vec();
    ran.is_ok()
}
