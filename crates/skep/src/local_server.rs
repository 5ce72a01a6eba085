//! A server in this process for measurements. Its shards run on some cores, its clients on others.
//!
//! ```text
//! cores that this process may use:   0 1 … n-1 │ n … 2n-1 │ …
//!                                    n shards  │ n clients │ not used
//! ```
//!
//! If there are too few cores, shards and clients share all of them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use skep::{Client, Server, ServerSettings};
use skep_server::EchoSettings;

use crate::failure::Failure;

/// The cores of the shards of a server, and of as many clients.
pub(crate) struct Cores {
    shards: Vec<usize>,
    clients: Vec<usize>,
}

impl Cores {
    /// Divides the cores that this thread may use.
    pub(crate) fn divide(shard_count: usize) -> Result<Cores, Failure> {
        let allowed = allowed()?;
        let (shards, clients) = match allowed.get(..2 * shard_count) {
            Some(used) => used.split_at(shard_count),
            None => (&allowed[..], &allowed[..]),
        };
        Ok(Cores { shards: shards.to_vec(), clients: clients.to_vec() })
    }

    /// Returns the number of cores that this thread may use.
    pub(crate) fn count() -> Result<usize, Failure> {
        Ok(allowed()?.len())
    }

    /// Returns true if shards and clients have a core each.
    pub(crate) fn are_apart(&self) -> bool {
        self.shards != self.clients
    }

    /// Lets this thread run only on the core of this client.
    pub(crate) fn pin_client(&self, number: usize) -> Result<(), Failure> {
        pin(&[self.clients[number % self.clients.len()]])
    }
}

/// What a server is started with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalServerSettings {
    pub(crate) shards: u16,
    /// Bytes of the hash space, which are touched at the start.
    pub(crate) memory: u64,
    /// Bytes of a value; keys have eight.
    pub(crate) value_size: usize,
    /// The server only echoes.
    pub(crate) echo: Option<EchoSettings>,
}

/// A server that is reachable over every transport.
pub(crate) struct LocalServer {
    server: Server,
    _socket: Socket,
}

/// The transports, by the names that [`LocalServer::connect`] takes.
pub(crate) const TRANSPORTS: [&str; 3] = ["shm", "udp", "tcp"];

impl LocalServer {
    /// Starts a server on the cores of the shards. This thread keeps its own cores.
    pub(crate) fn start(cores: &Cores, settings: LocalServerSettings) -> Result<LocalServer, Failure> {
        let LocalServerSettings { shards, memory, value_size, echo } = settings;
        let socket = Socket::new()?;
        let before = allowed()?;
        // The threads of a server begin with the affinity of this one.
        pin(&cores.shards)?;
        let server = Server::start(&ServerSettings {
            native: any_port(),
            resp: None,
            shared_memory: Some(socket.path()),
            udp: Some(any_port()),
            shards,
            memory,
            kv_size: Some(size_of::<u64>() + value_size),
            ordered_memory: 0,
            connections_max: 16,
            prefault: true,
            echo,
            ..ServerSettings::default()
        });
        pin(&before)?;
        let server = server.map_err(|error| Failure::Runtime(format!("the server did not start: {error}")))?;
        Ok(LocalServer { server, _socket: socket })
    }

    /// Connects over a transport.
    pub(crate) fn connect(&self, transport: &str) -> Result<Client, Failure> {
        let server = &self.server;
        let address = match transport {
            "shm" => format!("shm:{}", server.shared_memory_path().expect("it has shared memory").display()),
            "udp" => format!("udp:{}", server.udp_address().expect("it has a UDP port")),
            _ => format!("tcp:{}", server.native_address()),
        };
        let failure = |error: &dyn std::fmt::Display| Failure::Runtime(format!("{address}: {error}"));
        Client::connect(address.as_str(), 0).map_err(|error| failure(&error))
    }
}

/// A directory for the socket of shared memory, which is removed at the end.
struct Socket(PathBuf);

impl Socket {
    fn new() -> Result<Socket, Failure> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("skep-local-{}-{number}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Socket(path))
    }

    fn path(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Returns the cores that this thread may use.
fn allowed() -> Result<Vec<usize>, Failure> {
    let allowed = sched_getaffinity(None).map_err(std::io::Error::from)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}

/// Lets this thread run only on these cores.
fn pin(cores: &[usize]) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).map_err(std::io::Error::from)?;
    Ok(())
}
