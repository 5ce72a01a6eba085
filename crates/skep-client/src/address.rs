//! The address of a server: as its user writes it, and as a client connects to it.
//!
//! | written | transport |
//! |---|---|
//! | `HOST:PORT`, `tcp:HOST:PORT` | TCP |
//! | `tls:HOST:PORT` | TLS over TCP; the certificate of the server must be for this host |
//! | `udp:HOST:PORT` | UDP; the shards of the server have this port and those after it |
//! | `rdma:HOST:PORT` | RDMA; the shards have this TCP port and those after it. It needs the feature `rdma` |
//! | `shm:PATH` | shared memory; the path is the unix socket of a server on the same machine |

use std::fmt::{self, Display, Formatter};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// The address of a server as its user writes it. The name of a host is not yet resolved.
///
/// ```
/// use skep_client::ServerAddress;
///
/// assert_eq!(ServerAddress::from("tcp:localhost:7379"), ServerAddress::Tcp("localhost:7379".into()));
/// assert_eq!(ServerAddress::from("localhost:7379"), ServerAddress::Tcp("localhost:7379".into()));
/// assert_eq!(ServerAddress::from("tls:skep.example:7379"), ServerAddress::Tls("skep.example:7379".into()));
/// assert_eq!(ServerAddress::from("udp:localhost:7379"), ServerAddress::Udp("localhost:7379".into()));
/// assert_eq!(ServerAddress::from("rdma:10.0.0.1:7379"), ServerAddress::Rdma("10.0.0.1:7379".into()));
/// assert_eq!(ServerAddress::from("shm:/run/skep.sock"), ServerAddress::SharedMemory("/run/skep.sock".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A host and a port.
    Tcp(String),
    /// A host and a port that speaks TLS. The certificate of the server must be for this host.
    Tls(String),
    /// A host and the first UDP port of the server.
    Udp(String),
    /// A host and the first port of the server for RDMA.
    Rdma(String),
    /// The path of the unix socket over which a server on this machine gives out shared memory.
    SharedMemory(PathBuf),
}

/// The address of a server as a client connects to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedAddress {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// An IP address and a port that speaks TLS.
    Tls {
        /// The IP address and the port.
        address: SocketAddr,
        /// The name or IP address that the certificate of the server must be for.
        name: String,
    },
    /// An IP address and the first UDP port of the server.
    Udp(SocketAddr),
    /// An IP address and the first port of the server for RDMA.
    Rdma(SocketAddr),
    /// The path of a unix socket.
    SharedMemory(PathBuf),
}

impl ServerAddress {
    /// Returns the addresses to try. Asks the system for those of a host, and waits for them.
    pub(crate) fn resolve(&self) -> io::Result<Vec<ResolvedAddress>> {
        match self {
            ServerAddress::Tcp(host) => Ok(host.to_socket_addrs()?.map(ResolvedAddress::Tcp).collect()),
            ServerAddress::Tls(host) => {
                Ok(host.to_socket_addrs()?.map(|address| ResolvedAddress::secure(address, host)).collect())
            }
            ServerAddress::Udp(host) => Ok(host.to_socket_addrs()?.map(ResolvedAddress::Udp).collect()),
            ServerAddress::Rdma(host) => Ok(host.to_socket_addrs()?.map(ResolvedAddress::Rdma).collect()),
            ServerAddress::SharedMemory(path) => Ok(vec![ResolvedAddress::SharedMemory(path.clone())]),
        }
    }
}

impl ResolvedAddress {
    /// Returns the address of a port that speaks TLS, with the name in HOST:PORT.
    pub(crate) fn secure(address: SocketAddr, host: &str) -> ResolvedAddress {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        ResolvedAddress::Tls { address, name }
    }

    /// Returns the address at which a client reaches a shard first. With UDP and RDMA, each shard has a
    /// port.
    pub(crate) fn of_shard(&self, shard: u16) -> ResolvedAddress {
        match self {
            ResolvedAddress::Udp(address) => ResolvedAddress::Udp(with_port_of(*address, shard)),
            ResolvedAddress::Rdma(address) => ResolvedAddress::Rdma(with_port_of(*address, shard)),
            other => other.clone(),
        }
    }
}

/// Returns the address with the port of a shard. It keeps the scope of an IPv6 address.
fn with_port_of(mut address: SocketAddr, shard: u16) -> SocketAddr {
    address.set_port(address.port().saturating_add(shard));
    address
}

impl From<&str> for ServerAddress {
    fn from(text: &str) -> Self {
        match text.split_once(':') {
            Some(("shm", path)) => ServerAddress::SharedMemory(Path::new(path).to_owned()),
            Some(("tls", host)) => ServerAddress::Tls(host.to_owned()),
            Some(("udp", host)) => ServerAddress::Udp(host.to_owned()),
            Some(("rdma", host)) => ServerAddress::Rdma(host.to_owned()),
            Some(("tcp", host)) => ServerAddress::Tcp(host.to_owned()),
            _ => ServerAddress::Tcp(text.to_owned()),
        }
    }
}

impl From<String> for ServerAddress {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for ServerAddress {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        ServerAddress::Tcp(address.to_string())
    }
}

impl From<(IpAddr, u16)> for ServerAddress {
    fn from(address: (IpAddr, u16)) -> Self {
        SocketAddr::from(address).into()
    }
}

impl From<(&str, u16)> for ServerAddress {
    fn from((host, port): (&str, u16)) -> Self {
        ServerAddress::Tcp(format!("{host}:{port}"))
    }
}

impl Display for ServerAddress {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Tcp(host) => formatter.write_str(host),
            ServerAddress::Tls(host) => write!(formatter, "tls:{host}"),
            ServerAddress::Udp(host) => write!(formatter, "udp:{host}"),
            ServerAddress::Rdma(host) => write!(formatter, "rdma:{host}"),
            ServerAddress::SharedMemory(path) => write!(formatter, "shm:{}", path.display()),
        }
    }
}

impl Display for ResolvedAddress {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ResolvedAddress::Tcp(address) => address.fmt(formatter),
            ResolvedAddress::Tls { address, .. } => write!(formatter, "tls:{address}"),
            ResolvedAddress::Udp(address) => write!(formatter, "udp:{address}"),
            ResolvedAddress::Rdma(address) => write!(formatter, "rdma:{address}"),
            ResolvedAddress::SharedMemory(path) => write!(formatter, "shm:{}", path.display()),
        }
    }
}
