//! The address of one side of a transport, as `CLIENT LIST` shows it.

use std::fmt::{Display, Formatter, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// An address. [`Address::from`] makes those of the network.
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
    /// A client over IPv4 has an IPv6 address at a socket for both, which maps its IPv4 address. It is that one, as in Redis.
    fn from(address: SocketAddr) -> Self {
        Address::Network(SocketAddr::new(address.ip().to_canonical(), address.port()))
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use crate::vocabulary::Address;

    #[test]
    fn a_mapped_address_is_one_of_ipv4() {
        for (text, shown) in [
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ] {
            let address = Address::from(text.parse::<SocketAddr>().unwrap());
            assert_eq!(address.to_string(), shown);
            assert_eq!(address.ip(), shown.parse::<SocketAddr>().unwrap().ip());
        }
    }
}
