//! A reduce or a filter by a user function, on the pieces of a value in their order (KV-Direct, Table 1).

use skep_core::function::{Operands, UserCode, UserFunction};
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
        let first = function.signature.element.count(offset);
        match &function.code {
            UserCode::Reduce(code) => code(piece, &operands(self.call, function, first), &mut self.sigma),
            UserCode::Filter(code) => {
                for (run, elements) in piece.chunks(RUN_COUNT * size).enumerate() {
                    let (first, mut passed) = (first + run * RUN_COUNT, [0; RUN_COUNT]);
                    let passed = &mut passed[..elements.len() / size];
                    code(elements, &operands(self.call, function, first), passed)?;
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

/// Returns the operands of a call, for the elements from `first` on.
pub(super) fn operands<'a>(call: &'a Call<'_>, function: &'a UserFunction, first: usize) -> Operands<'a> {
    Operands { signature: &function.signature, bytes: call.operands, vectors: call.vectors, first }
}
