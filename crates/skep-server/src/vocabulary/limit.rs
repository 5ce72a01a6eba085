//! How much a connection may submit in a turn, and which operations are refused.

use skep_core::operation::{Operation, Request};
use skep_wire::native::WireError;

use super::KeyspaceOperation;

/// The operations that are refused before they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// None are.
    Nothing,
    /// It is too late for them.
    Late,
    /// Those that may change keys are refused, for this reason.
    Writes(WireError),
}

impl Refusal {
    /// Returns the error for an operation, if it is refused.
    #[inline]
    pub(crate) fn of(self, operation: &Operation<'_>) -> Option<WireError> {
        match self {
            Refusal::Nothing => None,
            Refusal::Late => Some(WireError::Busy),
            Refusal::Writes(error) => may_change(operation).then_some(error),
        }
    }

    /// Returns the error for an operation on all keys, if it is refused.
    pub(crate) fn of_keyspace(self, operation: &KeyspaceOperation) -> Option<WireError> {
        match (self, operation) {
            (Refusal::Writes(error), KeyspaceOperation::Flush { .. }) => Some(error),
            _ => None,
        }
    }

    /// Returns the error for a command, if it is refused: one that may change keys if it `writes`.
    pub(crate) fn of_command(self, writes: bool) -> Option<WireError> {
        match self {
            Refusal::Nothing => None,
            Refusal::Late => Some(WireError::Busy),
            Refusal::Writes(error) => writes.then_some(error),
        }
    }
}

/// Returns true if an operation may change its key.
#[inline]
fn may_change(operation: &Operation<'_>) -> bool {
    !operation.is_read() && !matches!(operation, Operation::Scan(_))
}

/// How much a connection may submit in a turn: it stops when it reaches one of the limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Operations that are left.
    pub(crate) count: usize,
    /// Bytes of operations. The last one may exceed it.
    pub(crate) size_max: usize,
    /// Bytes of the operations so far.
    pub(crate) size: usize,
    /// Operations that may change keys must wait.
    pub(crate) holds_writes: bool,
    /// One of them waits, and those after it.
    pub(crate) is_held: bool,
}

impl Limit {
    /// Returns true if no more operations may be submitted.
    #[inline]
    pub(crate) fn is_reached(&self) -> bool {
        self.count == 0 || self.size >= self.size_max || self.is_held
    }

    /// Returns true if the operation must wait, because it may change keys.
    pub(crate) fn holds(&self, operation: &Operation<'_>) -> bool {
        self.holds_writes && may_change(operation)
    }

    /// Counts an operation.
    #[inline]
    pub(crate) fn count(&mut self, operation: &Result<Request<'_>, WireError>) {
        self.count -= 1;
        self.size += operation.as_ref().map_or(0, Request::size);
    }
}
