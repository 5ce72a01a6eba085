//! The front ends. Each listener, and each of its connections, belongs to one.

/// A front end of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrontEnd {
    /// The native protocol.
    Native,
    /// RESP.
    Resp,
    /// memcached's protocol.
    Memcached,
}
