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

impl FrontEnd {
    pub(crate) const ALL: [FrontEnd; 3] = [FrontEnd::Native, FrontEnd::Resp, FrontEnd::Memcached];

    /// Returns the name that figures have for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FrontEnd::Native => "native",
            FrontEnd::Resp => "resp",
            FrontEnd::Memcached => "memcached",
        }
    }
}
