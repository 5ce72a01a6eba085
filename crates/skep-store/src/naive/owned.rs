//! Requests that own their bytes.

use skep_core::function::{Element, Fold, FunctionHandle, Predicate, UpdateFunction};
use skep_core::operation::{
    Call, CallReply, Filter, Operation, PutCondition, Reduce, Request, Scan, Shape, StringRead, StringWrite, Update,
};

/// A [`Request`] that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedRequest {
    /// [`Request::key`]
    pub key: Vec<u8>,
    /// [`Request::operation`]
    pub operation: OwnedOperation,
}

/// An [`Operation`] that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the operation")]
pub enum OwnedOperation {
    Get,
    Contains,
    Put {
        value: Vec<u8>,
        condition: PutCondition,
    },
    Delete,
    Update {
        function: UpdateFunction,
        element: Element,
        shape: Shape,
        operand: Vec<u8>,
        initial: Option<Vec<u8>>,
        return_old: bool,
    },
    Reduce {
        fold: Fold,
        element: Element,
        initial: Vec<u8>,
        constants: Vec<u8>,
    },
    Filter {
        predicate: Predicate,
        element: Element,
        operand: Vec<u8>,
    },
    Call {
        function: FunctionHandle,
        vectors: u8,
        operands: Vec<u8>,
        initial: Option<Vec<u8>>,
        reply: CallReply,
    },
    AddDecimal {
        delta: i64,
    },
    /// `list` is the fields of bits, if it reads some.
    StringRead {
        read: StringRead<'static>,
        list: Vec<u8>,
    },
    /// `bytes` are the value, or the fields of bits. `operand` is that of the condition.
    StringWrite {
        write: StringWrite<'static>,
        bytes: Vec<u8>,
        operand: Vec<u8>,
    },
    /// The end of the scan is at or below `end`, for every kind of end.
    Scan {
        end: Vec<u8>,
        scan: Scan<'static>,
    },
}

impl OwnedRequest {
    /// Returns the request, borrowed from this one.
    pub fn as_request(&self) -> Request<'_> {
        Request { key: &self.key, operation: self.operation.as_operation() }
    }
}

impl OwnedOperation {
    /// Returns the operation, borrowed from this one.
    pub fn as_operation(&self) -> Operation<'_> {
        match self {
            OwnedOperation::Get => Operation::Get,
            OwnedOperation::Contains => Operation::Contains,
            OwnedOperation::Put { value, condition } => Operation::Put { value, condition: *condition },
            OwnedOperation::Delete => Operation::Delete,
            OwnedOperation::Update { function, element, shape, operand, initial, return_old } => {
                Operation::Update(Update {
                    function: *function,
                    element: *element,
                    shape: *shape,
                    operand,
                    initial: initial.as_deref(),
                    return_old: *return_old,
                })
            }
            OwnedOperation::Reduce { fold, element, initial, constants } => {
                Operation::Reduce(Reduce { fold: *fold, element: *element, initial, constants })
            }
            OwnedOperation::Filter { predicate, element, operand } => {
                Operation::Filter(Filter { predicate: *predicate, element: *element, operand })
            }
            OwnedOperation::Call { function, vectors, operands, initial, reply } => Operation::Call(Call {
                function: *function,
                vectors: *vectors,
                operands,
                initial: initial.as_deref(),
                reply: *reply,
            }),
            OwnedOperation::AddDecimal { delta } => Operation::AddDecimal { delta: *delta },
            OwnedOperation::StringRead { read, list } => Operation::StringRead(read.with_bytes(list)),
            OwnedOperation::StringWrite { write, bytes, operand } => {
                Operation::StringWrite(write.with_bytes(bytes, operand))
            }
            OwnedOperation::Scan { end, scan } => Operation::Scan(Scan { end: scan.end.with_bytes(end), ..*scan }),
        }
    }
}
