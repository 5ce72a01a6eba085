//! A reduce or a filter by a user function, on the pieces of a value in their order (KV-Direct, Table 1).

use skep_core::function::{Operand, USER_OPERANDS_MAX, UserCode, UserFunction};
use skep_core::operation::{Call, CallReply, OperationError};

/// Elements that a filter looks at before it appends those that have passed.
const RUN_COUNT: usize = 512;

/// Runs a reduce or a filter on the pieces of a value, in their order.
#[derive(Debug)]
pub(crate) struct CallReader<'a> {
    call: &'a Call<'a>,
    /// Σ so far. Empty for a filter.
    sigma: Vec<u8>,
}

impl<'a> CallReader<'a> {
    /// Returns a reader that has read no piece.
    pub(super) fn new(call: &'a Call<'a>) -> Self {
        CallReader { call, sigma: call.initial.unwrap_or_default().to_vec() }
    }

    /// Reads the piece that begins at `offset`. A filter appends to the reply.
    pub(super) fn read(&mut self, offset: usize, piece: &[u8], reply: &mut Vec<u8>) -> Result<(), OperationError> {
        let function = self.call.function()?;
        let size = function.signature.element.size();
        let (first, count) = (offset / size, piece.len() / size);
        match &function.code {
            UserCode::Reduce(code) => {
                code(piece, operands(self.call, function, first, count).as_slice(), &mut self.sigma)
            }
            UserCode::Filter(code) => {
                for (run, elements) in piece.chunks(RUN_COUNT * size).enumerate() {
                    let (first, mut passed) = (first + run * RUN_COUNT, [0; RUN_COUNT]);
                    let passed = &mut passed[..elements.len() / size];
                    code(elements, operands(self.call, function, first, passed.len()).as_slice(), passed)?;
                    append_passed(self.call.reply, first, size, elements, passed, reply);
                }
                Ok(())
            }
            UserCode::Update(_) => unreachable!("an update is no read"),
        }
    }

    /// Appends the end of the reply.
    pub(super) fn finish(&self, reply: &mut Vec<u8>) {
        reply.extend_from_slice(&self.sigma);
    }
}

/// Appends the elements that have passed, their positions, or both. `first` is the position of the first element.
fn append_passed(reply: CallReply, first: usize, size: usize, elements: &[u8], passed: &[u8], out: &mut Vec<u8>) {
    for (index, element) in elements.chunks_exact(size).enumerate() {
        if passed[index] == 0 {
            continue;
        }
        if matches!(reply, CallReply::Positions | CallReply::Pairs) {
            out.extend_from_slice(&((first + index) as u32).to_le_bytes());
        }
        if matches!(reply, CallReply::Result | CallReply::Pairs) {
            out.extend_from_slice(element);
        }
    }
}

/// The operands of some elements.
pub(super) struct Operands<'a> {
    parts: [Operand<'a>; USER_OPERANDS_MAX],
    count: usize,
}

impl<'a> Operands<'a> {
    pub(super) fn as_slice(&self) -> &[Operand<'a>] {
        &self.parts[..self.count]
    }
}

/// Returns the operands of `count` elements from the element `first` on.
pub(super) fn operands<'a>(call: &Call<'a>, function: &UserFunction, first: usize, count: usize) -> Operands<'a> {
    let signature = &function.signature;
    let parts = signature.operands_of(call.vectors, call.operands, first, count);
    Operands { parts, count: signature.operands.len() }
}
