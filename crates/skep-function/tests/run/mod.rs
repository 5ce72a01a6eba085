//! Calls functions on bytes with guards around them.

use skep_core::function::{FunctionKind, Layout, Operands, Scalar, UserCode, UserFunction};
use skep_core::operation::OperationError;
use skep_function::generate::Random;

/// Bytes before and after all memory that a function is given.
const GUARD_SIZE: usize = 64;
const GUARD: u8 = 0xa5;

/// What a function is called with. After the call, what it left.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) count: usize,
    /// Bit n is set if operand n is one for each element.
    pub(crate) vectors: u8,
    pub(crate) elements: Vec<u8>,
    pub(crate) operands: Vec<Vec<u8>>,
    /// The memory for results, or Σ.
    pub(crate) results: Vec<u8>,
}

impl Call {
    /// Returns a call with random numbers.
    pub(crate) fn random(function: &UserFunction, random: &mut Random, count: usize, vectors: u8) -> Call {
        let signature = &function.signature;
        let mut call = Call {
            count,
            vectors,
            elements: random_records(random, &signature.element, count),
            operands: Vec::new(),
            results: Vec::new(),
        };
        for (index, operand) in signature.operands.iter().enumerate() {
            let records = if call.is_vector(index) { count } else { 1 };
            call.operands.push(random_records(random, &operand.layout, records));
        }
        call.results = match (function.kind(), &signature.result) {
            (FunctionKind::Reduce, Some(sigma)) => random_records(random, sigma, 1),
            _ => vec![0; call.result_size(function) * count],
        };
        call
    }

    pub(crate) fn is_vector(&self, operand: usize) -> bool {
        self.vectors >> operand & 1 == 1
    }

    /// Returns the bytes of a result for each element, or of Σ.
    pub(crate) fn result_size(&self, function: &UserFunction) -> usize {
        match function.kind() {
            FunctionKind::Filter => 1,
            _ => function.signature.result.as_ref().map_or(0, Layout::size),
        }
    }

    /// Calls the function on copies at `offset` bytes after an aligned address, and checks that the guards are as before.
    pub(crate) fn run(&mut self, function: &UserFunction, offset: usize) -> Result<(), OperationError> {
        let mut elements = guarded(&self.elements, offset);
        let mut results = guarded(&self.results, offset + 3);
        let operands = guarded(&self.operands.concat(), offset + 5);
        let own = |bytes: &[u8], offset: usize| GUARD_SIZE + offset..bytes.len() - GUARD_SIZE;
        let bytes = &operands[own(&operands, offset + 5)];
        let arguments = Operands { signature: &function.signature, bytes, vectors: self.vectors, first: 0 };
        let (element_range, result_range) = (own(&elements, offset), own(&results, offset + 3));
        let ran = match &function.code {
            UserCode::Update(code) => {
                code(&mut elements[element_range.clone()], &arguments, &mut results[result_range.clone()])
            }
            UserCode::Reduce(code) | UserCode::Filter(code) => {
                code(&elements[element_range.clone()], &arguments, &mut results[result_range.clone()])
            }
        };
        for (bytes, range) in [(&elements, &element_range), (&results, &result_range)] {
            let (before, after) = (&bytes[..range.start], &bytes[range.end..]);
            assert!(before.iter().chain(after).all(|byte| *byte == GUARD), "{} wrote outside", function.name);
        }
        if function.kind() != FunctionKind::Update {
            assert_eq!(elements[element_range.clone()], self.elements, "{} changed elements", function.name);
        }
        self.elements = elements[element_range].to_vec();
        self.results = results[result_range].to_vec();
        ran
    }
}

fn guarded(bytes: &[u8], offset: usize) -> Vec<u8> {
    let guards = vec![GUARD; GUARD_SIZE];
    [&guards[..], &vec![GUARD; offset], bytes, &guards].concat()
}

/// Returns random numbers, many of them at the edges of their types.
pub(crate) fn random_records(random: &mut Random, layout: &Layout, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        for field in layout.fields() {
            let is_float = match field.scalar {
                Scalar::Element(element) => element.is_float(),
                Scalar::F16 | Scalar::BF16 => true,
                Scalar::Bool => false,
            };
            let width = field.scalar.width();
            bytes.extend_from_slice(&random.number_bytes(width, is_float)[..width]);
        }
    }
    bytes
}
