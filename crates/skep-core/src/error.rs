//! The reasons why requests are refused, with the words that clients get.

/// The reason why a request could not be carried out. An operation that returns an error has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum OperationError {
    /// A key has at least one byte.
    #[error("key is empty")]
    KeyEmpty,
    /// A key has at most [`KEY_SIZE_MAX`](crate::operation::KEY_SIZE_MAX) bytes.
    #[error("key is longer than 460 bytes")]
    KeyTooLong,
    /// A value has at most [`VALUE_SIZE_MAX`](crate::operation::VALUE_SIZE_MAX) bytes.
    #[error("value is longer than 1048576 bytes")]
    ValueTooLong,
    /// The width of the element does not divide the length of the value.
    #[error("element width does not divide the value's length")]
    ElementWidth,
    /// The length of the operand does not fit the function, the element and the value.
    #[error("operand has the wrong length")]
    OperandLength,
    /// A scalar update was applied to a value that is not one element.
    #[error("value is not one element")]
    NotScalar,
    /// The function is not defined on the element type, such as a bitwise one on floats.
    #[error("function is not defined for this element type")]
    FunctionElement,
    /// `add_decimal` was applied to a value that is not a decimal 64-bit number.
    #[error("value is not an integer or out of range")]
    NotAnInteger,
    /// The sum of `add_decimal` is outside the range of 64-bit numbers.
    #[error("increment or decrement would overflow")]
    DecimalOverflow,
    /// No slab is left for another bucket of the index.
    #[error("OUT_OF_MEMORY: the index is full; delete keys, or give the store more memory")]
    IndexFull,
    /// No slab is left for the key and value.
    #[error("OUT_OF_MEMORY: slab memory is full; delete keys, or give the store more memory")]
    SlabFull,
    /// No frame is left for a node or a value of an ordered store.
    #[error(
        "OUT_OF_MEMORY: the nodes of the ordered store are full; delete keys, or give the ordered store more memory"
    )]
    NodesFull,
    /// The keys of a hash store and of a cache have no order.
    #[error("this space has no order: scans need the ordered space")]
    NotOrdered,
    /// A range begins above its end.
    #[error("the range begins above its end: swap the two keys; for descending order ask for a reverse scan")]
    RangeReversed,
    /// The limit of a scan is at least one pair.
    #[error("the limit of a scan must be at least 1")]
    LimitZero,
    /// The version of the store that earlier pages have shown is no longer kept.
    #[error("the lease of the scan has expired, or there never was one with this number: begin the scan again")]
    LeaseExpired,
    /// `add_fraction` was applied to a value or an operand that is not a number.
    #[error("value is not a valid float")]
    NotAFloat,
    /// The sum of `add_fraction` is infinite or not a number.
    #[error("increment would produce NaN or Infinity")]
    FractionOverflow,
    /// No function has the number, or the name, of the call.
    #[error("no such function: it was never loaded, or it was deleted")]
    FunctionUnknown,
    /// The function returns nothing of the kind that the call asks for.
    #[error("the function has no such reply: only a filter returns positions, and only an update an old value")]
    FunctionReply,
    /// A call would take more instructions than a call may ([`CALL_WORK_MAX`](crate::function::CALL_WORK_MAX)).
    #[error("the function would run too long on this value: split the value, or make the function shorter")]
    FunctionWork,
    /// The reply to a call could have more than [`VALUE_SIZE_MAX`](crate::operation::VALUE_SIZE_MAX) bytes.
    #[error("the function could return more than 1048576 bytes for this value: split the value")]
    FunctionReplyLong,
    /// A function divided an integer by zero.
    #[error("the function divides by zero")]
    DivisionByZero,
    /// A function used an index that the array does not have.
    #[error("the function uses an index that is not in the array")]
    IndexOutOfRange,
}

impl OperationError {
    /// All errors.
    pub const ALL: [OperationError; 24] = [
        OperationError::KeyEmpty,
        OperationError::KeyTooLong,
        OperationError::ValueTooLong,
        OperationError::ElementWidth,
        OperationError::OperandLength,
        OperationError::NotScalar,
        OperationError::FunctionElement,
        OperationError::NotAnInteger,
        OperationError::DecimalOverflow,
        OperationError::IndexFull,
        OperationError::SlabFull,
        OperationError::NodesFull,
        OperationError::NotOrdered,
        OperationError::RangeReversed,
        OperationError::LimitZero,
        OperationError::LeaseExpired,
        OperationError::NotAFloat,
        OperationError::FractionOverflow,
        OperationError::FunctionUnknown,
        OperationError::FunctionReply,
        OperationError::FunctionWork,
        OperationError::FunctionReplyLong,
        OperationError::DivisionByZero,
        OperationError::IndexOutOfRange,
    ];

    /// Returns true if the store has run out of memory. A store without a limit never returns such an error.
    pub fn is_out_of_memory(self) -> bool {
        matches!(self, OperationError::IndexFull | OperationError::SlabFull | OperationError::NodesFull)
    }
}
