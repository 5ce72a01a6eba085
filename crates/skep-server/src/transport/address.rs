//! The address of one side of a transport, as `CLIENT LIST` shows it.

use std::fmt::{Display, Formatter, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// An IP address and a port.
    Network(SocketAddr),
    /// The path of the unix socket over which a client got its shared memory.
    SharedMemory(Arc<Path>),
}

impl Address {
    /// Returns the IP address that decides if a client may connect. A path is on this machine.
    pub(crate) fn ip(&self) -> IpAddr {
        match self {
            Address::Network(address) => address.ip(),
            Address::SharedMemory(_) => Ipv4Addr::LOCALHOST.into(),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Network(address)
    }
}

impl Display for Address {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Address::Network(address) => address.fmt(formatter),
            Address::SharedMemory(path) => write!(formatter, "shm:{}", path.display()),
        }
    }
}
