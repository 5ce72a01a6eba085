//! The listeners of the server. The first shard listens for all shards.
//!
//! RESP and memcached connections are distributed over the shards in rotation. A native one stays at the first shard
//! until its hello has named a shard. Then it is handed over to that shard, with the bytes that have arrived since.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Instant;

use rustix::event::epoll::EventFlags;
use socket2::{Domain, Protocol, Socket, Type};

use crate::front_end::FrontEnd;
use crate::limits::{ACCEPT_PAUSE, ACCEPTED_IN_TURN_MAX, BACKLOG};
use crate::start::Steps;
use crate::start_error::StartError;
use crate::transport::poller::{Poller, Source};
use crate::transport::shared_memory::{SharedMemory, SharedMemoryListener};
use crate::transport::tcp::{Tcp, prepare};

/// The sockets that accept connections.
#[derive(Debug)]
pub(crate) struct Listeners {
    native: TcpListener,
    resp: Option<TcpListener>,
    shared_memory: Option<SharedMemoryListener>,
    memcached: Option<TcpListener>,
    paused_until: Option<Instant>,
}

impl Listeners {
    /// Listens on the addresses, and sets them to those that were bound.
    pub(crate) fn bind(
        native: &mut SocketAddr,
        resp: &mut Option<SocketAddr>,
        memcached: &mut Option<SocketAddr>,
        shared_memory: Option<&Path>,
        steps: &mut Steps,
    ) -> Result<Self, StartError> {
        let resp = resp.as_mut().map(|address| listen("RESP", address, steps)).transpose()?;
        let memcached = memcached.as_mut().map(|address| listen("memcached", address, steps)).transpose()?;
        let native = listen("native", native, steps)?;
        let shared_memory = shared_memory.map(|path| SharedMemoryListener::bind(path, steps)).transpose()?;
        Ok(Listeners { native, resp, memcached, shared_memory, paused_until: None })
    }

    /// Returns the listeners whose clients are answered while the data directory is read.
    pub(crate) fn while_loading(&self) -> (&TcpListener, Option<&TcpListener>) {
        (&self.native, self.resp.as_ref())
    }

    /// Lets the poller report when connections arrive.
    pub(crate) fn register(&self, poller: &Poller) -> rustix::io::Result<()> {
        self.front_ends()
            .try_for_each(|(front_end, listener)| poller.add(listener, Source::Listener(front_end), EventFlags::IN))?;
        let mut shared_memory = self.shared_memory.iter();
        shared_memory.try_for_each(|listener| poller.add(listener, Source::SharedMemoryListener, EventFlags::IN))
    }

    /// Accepts the connections that have arrived at a front end. If the system refuses one, accepts none for a while
    /// from `now` on. After `keepalive` seconds of silence, unless it is 0, the kernel asks for the peer of a connection.
    pub(crate) fn accept(
        &mut self,
        poller: &Poller,
        front_end: FrontEnd,
        keepalive: i64,
        now: Instant,
        mut f: impl FnMut(Tcp),
    ) {
        let Some((_, listener)) = self.front_ends().find(|(other, _)| *other == front_end) else { return };
        for _ in 0..ACCEPTED_IN_TURN_MAX {
            match listener.accept() {
                Ok((stream, _)) => match prepare(&stream, keepalive) {
                    Ok(()) => f(Tcp::new(stream)),
                    Err(error) => tracing::warn!(%error, "cannot serve a connection without blocking"),
                },
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    self.pause(poller, &error, now);
                    return;
                }
            }
        }
    }

    /// Accepts the clients that ask for shared memory, as long as there is room for them. Refuses the others, and calls
    /// `f` with `None` for each.
    pub(crate) fn accept_shared_memory(
        &mut self,
        poller: &Poller,
        mut room: usize,
        now: Instant,
        mut f: impl FnMut(Option<SharedMemory>),
    ) {
        let Some(listener) = &self.shared_memory else { return };
        for _ in 0..ACCEPTED_IN_TURN_MAX {
            let accepted = if room == 0 { listener.refuse().map(|()| None) } else { listener.accept().map(Some) };
            match accepted {
                Ok(shared) => {
                    room -= usize::from(shared.is_some());
                    f(shared);
                }
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    self.pause(poller, &error, now);
                    return;
                }
            }
        }
    }

    /// Accepts nothing for a while, if the error of a listener is one of the system.
    fn pause(&mut self, poller: &Poller, error: &std::io::Error, now: Instant) {
        if error.kind() != ErrorKind::WouldBlock {
            tracing::warn!(%error, "cannot accept connections");
            self.front_ends().for_each(|(_, listener)| poller.remove(listener));
            self.shared_memory.iter().for_each(|listener| poller.remove(listener));
            self.paused_until = Some(now + ACCEPT_PAUSE);
        }
    }

    /// Returns true if nothing is accepted for a while.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// Listens again when a pause is over.
    pub(crate) fn resume(&mut self, poller: &Poller, now: Instant) -> rustix::io::Result<()> {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.register(poller)?;
            self.paused_until = None;
        }
        Ok(())
    }

    fn front_ends(&self) -> impl Iterator<Item = (FrontEnd, &TcpListener)> {
        let resp = self.resp.as_ref().map(|resp| (FrontEnd::Resp, resp));
        let memcached = self.memcached.as_ref().map(|memcached| (FrontEnd::Memcached, memcached));
        std::iter::once((FrontEnd::Native, &self.native)).chain(resp).chain(memcached)
    }
}

/// Listens on an address, and sets it to the one that was bound.
fn listen(front_end: &'static str, address: &mut SocketAddr, steps: &mut Steps) -> Result<TcpListener, StartError> {
    let wanted = *address;
    let socket = steps.open(format!("a socket for the {front_end} port"), || {
        Socket::new(Domain::for_address(wanted), Type::STREAM, Some(Protocol::TCP))
    })?;
    let bind = || {
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&wanted.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        *address = listener.local_addr()?;
        Ok::<_, std::io::Error>(listener)
    };
    steps.take(bind, |source| match source.kind() {
        ErrorKind::AddrInUse => StartError::AddressInUse { front_end, address: wanted },
        _ => StartError::Listen { front_end, address: wanted, source },
    })
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};
    use std::time::{Duration, Instant};

    use socket2::Socket;

    use super::{FrontEnd, Listeners};
    use crate::start::Steps;
    use crate::transport::poller::Poller;

    #[test]
    fn peers_that_are_gone_are_noticed() {
        assert!(accepted(300).keepalive().unwrap());
        assert_eq!(accepted(300).tcp_keepalive_time().unwrap(), Duration::from_secs(300));
        assert_eq!(accepted(1).tcp_keepalive_interval().unwrap(), Duration::from_secs(1));
        assert!(!accepted(0).keepalive().unwrap());
        // Linux refuses more. Each of these is accepted by `CONFIG SET`.
        for seconds in [32_767, 32_768, 40_000, i32::MAX.into(), i64::MAX] {
            assert_eq!(accepted(seconds).tcp_keepalive_time().unwrap(), Duration::from_secs(32_767), "{seconds}");
        }
    }

    /// Returns a socket that was accepted with this number of seconds.
    fn accepted(keepalive: i64) -> Socket {
        let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut listeners = Listeners::bind(&mut address, &mut None, &mut None, None, &mut Steps::default()).unwrap();
        let _peer = TcpStream::connect(address).unwrap();
        let poller = Poller::new().unwrap();
        let mut accepted = Vec::new();
        while accepted.is_empty() {
            listeners.accept(&poller, FrontEnd::Native, keepalive, Instant::now(), |tcp| accepted.push(tcp));
            std::thread::sleep(Duration::from_millis(1));
        }
        accepted[0].stream().try_clone().unwrap().into()
    }
}
