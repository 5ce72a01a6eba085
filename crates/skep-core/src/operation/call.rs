//! A call of a user function on the value of a key (KV-Direct, section 3.2, Table 1, with a user function).

use super::{OPERANDS_SIZE_MAX, VALUE_SIZE_MAX};
use crate::error::OperationError;
use crate::function::{CALL_WORK_MAX, FunctionHandle, FunctionKind, Layout, UserFunction};

/// A call of a user function: an update, a reduce or a filter, as the function is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<'a> {
    /// λ.
    pub function: FunctionHandle,
    /// Bit n is set if operand n has a record for each element. Otherwise it has one for all.
    pub vectors: u8,
    /// The operands, one after another, each with one record or one for each element of the value.
    pub operands: &'a [u8],
    /// Of an update: the value that is assumed for a missing key. Of a reduce: Σ. A filter has none.
    pub initial: Option<&'a [u8]>,
    /// Selects the reply.
    pub reply: CallReply,
}

/// What a call replies with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CallReply {
    /// Of an update: [`Reply::Done`](super::Reply::Done).
    Nothing,
    /// Of an update: the old value.
    Old,
    /// Of an update: its result for each element. Of a reduce: Σ. Of a filter: the elements that pass.
    Result,
    /// Of a filter: the index of each element that passes, as a `u32`.
    Positions,
    /// Of a filter: for each element that passes, its index as a `u32`, and the element.
    Pairs,
}

impl CallReply {
    /// All kinds of replies.
    pub const ALL: [CallReply; 5] =
        [CallReply::Nothing, CallReply::Old, CallReply::Result, CallReply::Positions, CallReply::Pairs];
}

impl Call<'_> {
    /// Returns the function.
    #[inline]
    pub fn function(&self) -> Result<&'static UserFunction, OperationError> {
        self.function.function.ok_or(OperationError::FunctionUnknown)
    }

    /// Returns true if the call is known to change nothing. Until its function is looked up, it may change something.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.function.function.is_some_and(|function| function.kind() != FunctionKind::Update)
    }

    /// Checks the call. Succeeds if it could be carried out on some value.
    #[inline]
    pub fn validate(&self) -> Result<(), OperationError> {
        if let Some(short) = self.function.function.and_then(|function| function.short.as_ref())
            && self.operands.len() == short.operands_size
            && self.vectors == 0
            && self.initial.is_none()
            && matches!(self.reply, CallReply::Nothing | CallReply::Old)
        {
            // Most calls on a counter.
            return Ok(());
        }
        self.validate_any()
    }

    #[inline(never)]
    fn validate_any(&self) -> Result<(), OperationError> {
        let function = self.function()?;
        let signature = &function.signature;
        let result_size = signature.result.as_ref().map(Layout::size);
        let has_reply = match (function.kind(), self.reply) {
            (FunctionKind::Update, CallReply::Nothing | CallReply::Old) => true,
            (FunctionKind::Update, CallReply::Result) => result_size.is_some(),
            (FunctionKind::Reduce, CallReply::Result) => true,
            (FunctionKind::Filter, CallReply::Result | CallReply::Positions | CallReply::Pairs) => true,
            _ => false,
        };
        if !has_reply {
            return Err(OperationError::FunctionReply);
        }
        let of_all = signature.operands_size(self.vectors, 0);
        let of_element = signature.operands_size_of_element(self.vectors);
        let of_elements = self.operands.len().checked_sub(of_all).ok_or(OperationError::OperandLength)?;
        let fits = if of_element == 0 { of_elements == 0 } else { of_elements.is_multiple_of(of_element) };
        let is_known = self.vectors.checked_shr(signature.operands.len() as u32).unwrap_or(0) == 0;
        if !fits || !is_known || self.operands.len() + self.initial.map_or(0, <[u8]>::len) > OPERANDS_SIZE_MAX {
            return Err(OperationError::OperandLength);
        }
        match (function.kind(), self.initial) {
            (FunctionKind::Update, None) => Ok(()),
            (FunctionKind::Update, Some(initial)) if initial.len() > VALUE_SIZE_MAX => {
                Err(OperationError::ValueTooLong)
            }
            (FunctionKind::Update, Some(initial)) => self.validate_value(initial.len()),
            (FunctionKind::Reduce, Some(initial)) if Some(initial.len()) == result_size => Ok(()),
            (FunctionKind::Filter, None) => Ok(()),
            _ => Err(OperationError::OperandLength),
        }
    }

    /// Checks the call for a value of `value_size` bytes. Expects a valid call.
    #[inline]
    pub fn validate_value(&self, value_size: usize) -> Result<(), OperationError> {
        let signature = &self.function()?.signature;
        if !value_size.is_multiple_of(signature.element.size()) {
            return Err(OperationError::ElementWidth);
        }
        let element_count = value_size / signature.element.size();
        if self.operands.len() != signature.operands_size(self.vectors, element_count) {
            Err(OperationError::OperandLength)
        } else if self.work(value_size) > CALL_WORK_MAX {
            Err(OperationError::FunctionWork)
        } else if self.reply_size_max(value_size).max(self.results_size(value_size)) > VALUE_SIZE_MAX {
            Err(OperationError::FunctionReplyLong)
        } else {
            Ok(())
        }
    }

    /// Returns the most instructions of the call, for a value of this size.
    #[inline]
    pub fn work(&self, value_size: usize) -> u64 {
        self.function.function.map_or(0, |function| {
            let signature = &function.signature;
            (value_size / signature.element.size()) as u64 * u64::from(signature.work)
        })
    }

    /// Returns the bytes of the results of an update for a value of this size, whether they are returned or not.
    fn results_size(&self, value_size: usize) -> usize {
        let function = self.function.function.filter(|function| function.kind() == FunctionKind::Update);
        function.map_or(0, |function| function.signature.results_size(value_size))
    }

    /// Returns the most bytes of the reply for a value of this size.
    pub fn reply_size_max(&self, value_size: usize) -> usize {
        let Some(function) = self.function.function else { return 0 };
        let signature = &function.signature;
        let element_count = value_size / signature.element.size();
        let result_size = signature.result.as_ref().map_or(0, Layout::size);
        match (function.kind(), self.reply) {
            (_, CallReply::Nothing) => 0,
            (FunctionKind::Update, CallReply::Result) => result_size * element_count,
            (FunctionKind::Reduce, _) => result_size,
            (_, CallReply::Old | CallReply::Result) => value_size,
            (_, CallReply::Positions) => size_of::<u32>() * element_count,
            (_, CallReply::Pairs) => value_size + size_of::<u32>() * element_count,
        }
    }
}
