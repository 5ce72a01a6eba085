//! The two servers of the measurement, and the transports to them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use skep::{Client, Server, ServerSettings};
use skep_server::EchoSettings;

use super::Transport;
use crate::failure::Failure;

/// A server that echoes, and one with a store.
pub(super) struct Servers {
    echo: Server,
    store: Server,
    /// The client has a core of its own.
    are_apart: bool,
    _sockets: Sockets,
}

/// Bytes of the store for each record, besides its value: the hash index with room for all keys.
const MEMORY_PER_RECORD: u64 = 64;
/// Bytes of the smallest store.
const MEMORY_MIN: u64 = 64 << 20;

impl Servers {
    /// Starts both on the first core that this process may use, and moves this thread to the second one.
    pub(super) fn start(records: u64, value_size: usize) -> Result<Servers, Failure> {
        let allowed = sched_getaffinity(None).map_err(std::io::Error::from)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let (server_core, client_core) = (cores.next(), cores.next());
        // The threads of a server begin with the affinity of this one.
        pin(server_core)?;
        let sockets = Sockets::new()?;
        let settings = ServerSettings {
            native: any_port(),
            resp: None,
            shared_memory: Some(sockets.path("store")),
            udp: Some(any_port()),
            memory: (2 * records * (MEMORY_PER_RECORD + value_size as u64)).max(MEMORY_MIN),
            kv_size: 8 + value_size,
            ordered_memory: 0,
            connections_max: 16,
            prefault: true,
            ..ServerSettings::default()
        };
        let echo = ServerSettings {
            echo: Some(EchoSettings { size: value_size, accesses: 0, prefetches: false }),
            memory: MEMORY_MIN,
            shared_memory: Some(sockets.path("echo")),
            ..settings.clone()
        };
        let start = |settings: &ServerSettings| {
            Server::start(settings).map_err(|error| Failure::Runtime(format!("the server did not start: {error}")))
        };
        let servers = Servers {
            echo: start(&echo)?,
            store: start(&settings)?,
            are_apart: client_core.is_some(),
            _sockets: sockets,
        };
        pin(client_core.or(server_core))?;
        Ok(servers)
    }

    /// Returns true if server and client have a core each.
    pub(super) fn are_apart(&self) -> bool {
        self.are_apart
    }

    /// Connects to both over every transport.
    pub(super) fn connect(&self) -> Result<Vec<Transport>, Failure> {
        let transports = ["shm", "udp", "tcp"].into_iter();
        transports
            .map(|name| {
                let (echo, store) = (connect(&address(&self.echo, name))?, connect(&address(&self.store, name))?);
                Ok(Transport { name, echo, store })
            })
            .collect()
    }
}

/// Returns the address of a server on a transport.
fn address(server: &Server, transport: &str) -> String {
    match transport {
        "shm" => format!("shm:{}", server.shared_memory_path().expect("it has shared memory").display()),
        "udp" => format!("udp:{}", server.udp_address().expect("it has a UDP port")),
        _ => format!("tcp:{}", server.native_address()),
    }
}

/// A directory for the sockets of shared memory, which is removed at the end.
struct Sockets(PathBuf);

impl Sockets {
    fn new() -> Result<Sockets, Failure> {
        let path = std::env::temp_dir().join(format!("skep-bench-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Sockets(path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn connect(address: &str) -> Result<Client, Failure> {
    Client::connect(address, 0).map_err(|error| Failure::Runtime(format!("{address}: {error}")))
}

/// Lets this thread run only on this core.
fn pin(core: Option<usize>) -> Result<(), Failure> {
    let mut cores = CpuSet::new();
    core.into_iter().for_each(|core| cores.set(core));
    sched_setaffinity(None, &cores).map_err(std::io::Error::from)?;
    Ok(())
}
