//! The operations of a connection, as a front end gives them to the dispatch.

use skep_core::operation::{PlainRequest, Request};
use skep_wire::native::WireError;

/// Operations in the order of their requests, as a front end decodes them.
pub(crate) trait OperationSource<'a> {
    /// Takes the next operation if it is plain. It is to be inlined: then a plain operation stays in registers until it is
    /// written into the batch.
    fn next_plain(&mut self) -> Option<PlainRequest<'a>>;

    /// Takes the next operation, if there is one. It may be of any kind.
    fn next_other(&mut self) -> Option<Result<Request<'a>, WireError>>;
}
