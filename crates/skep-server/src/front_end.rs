//! The front ends, by which a listener and its connections are told apart.

/// A front end of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrontEnd {
    /// The native protocol.
    Native,
    /// RESP.
    Resp,
}
