//! Whether an operation has changed its key.

use skep_core::operation::{ConditionKind, Operation, Reply, StringWrite};

/// Returns true if an operation with this reply has changed its key. In doubt it has: if the reply is the value whether or not
/// a condition on it held.
#[inline]
pub(crate) fn has_changed(operation: &Operation<'_>, reply: Reply<'_>) -> bool {
    let is_done = matches!(reply, Reply::Done | Reply::Value(_));
    match operation {
        _ if operation.is_read() => false,
        Operation::Scan(_) | Operation::StringWrite(StringWrite::Overwrite { bytes: [], .. }) => false,
        // The value is returned if the key exists, and then it is not set.
        Operation::StringWrite(StringWrite::Set { condition, .. }) if condition.kind == ConditionKind::IfAbsent => {
            reply == Reply::Done
        }
        _ => is_done,
    }
}
