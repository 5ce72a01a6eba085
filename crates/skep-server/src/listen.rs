//! Where connections come in. The first shard listens for all.
//!
//! A RESP connection goes to the shards in turn. A native one stays here until its hello has named a shard, and then
//! moves there with whatever else has arrived.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::settings::StartError;
use crate::start::Steps;

/// Connections that the kernel completes before we accept them.
const BACKLOG: i32 = 1024;
/// Connections accepted in one turn.
const ACCEPT_MAX: usize = 64;
/// How long a connection is silent before the kernel asks whether the peer is still there, and how often it asks
/// then: a machine that was switched off says no goodbye, and would hold its connections' places for ever.
const KEEPALIVE: Duration = Duration::from_secs(300);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(100);
/// How long nothing is accepted after the system refused, for want of file descriptors as a rule.
const PAUSE: Duration = Duration::from_millis(100);

/// A door of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// The native protocol.
    Native,
    /// RESP.
    Resp,
}

/// The sockets that connections come in by.
#[derive(Debug)]
pub(crate) struct Listeners {
    native: TcpListener,
    resp: Option<TcpListener>,
    paused_until: Option<Instant>,
}

impl Listeners {
    /// Listens on the addresses, and sets them to those that were bound.
    pub(crate) fn bind(
        native: &mut SocketAddr,
        resp: &mut Option<SocketAddr>,
        steps: &mut Steps,
    ) -> Result<Self, StartError> {
        let resp = resp.as_mut().map(|address| listen("RESP", address, steps)).transpose()?;
        Ok(Listeners { native: listen("native", native, steps)?, resp, paused_until: None })
    }

    /// Asks `poll` to tell when connections arrive, with the word that `word` gives each door.
    pub(crate) fn register(&self, poll: impl std::os::fd::AsFd, word: impl Fn(Door) -> u64) -> rustix::io::Result<()> {
        for (door, listener) in self.doors() {
            epoll::add(&poll, listener, epoll::EventData::new_u64(word(door)), epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Accepts what has arrived at a door.
    pub(crate) fn accept(&mut self, poll: impl std::os::fd::AsFd, door: Door, mut adopt: impl FnMut(TcpStream)) {
        let Some((_, listener)) = self.doors().find(|(other, _)| *other == door) else { return };
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL);
        for _ in 0..ACCEPT_MAX {
            match listener.accept() {
                Ok((stream, _)) => {
                    // A socket that refuses these is one that is gone already.
                    if stream.set_nonblocking(true).is_ok()
                        && stream.set_nodelay(true).is_ok()
                        && SockRef::from(&stream).set_tcp_keepalive(&keepalive).is_ok()
                    {
                        adopt(stream);
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        tracing::warn!(%error, "cannot accept connections");
                        for (_, listener) in self.doors() {
                            // The only failure is a listener that is not registered.
                            let _ = epoll::delete(&poll, listener);
                        }
                        self.paused_until = Some(Instant::now() + PAUSE);
                    }
                    return;
                }
            }
        }
    }

    /// Whether nothing is accepted for a while.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// Listens again when a pause is over.
    pub(crate) fn resume(
        &mut self,
        poll: impl std::os::fd::AsFd,
        now: Instant,
        word: impl Fn(Door) -> u64,
    ) -> rustix::io::Result<()> {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.register(poll, word)?;
            self.paused_until = None;
        }
        Ok(())
    }

    fn doors(&self) -> impl Iterator<Item = (Door, &TcpListener)> {
        std::iter::once((Door::Native, &self.native)).chain(self.resp.as_ref().map(|resp| (Door::Resp, resp)))
    }
}

/// Listens on an address, and sets it to the one that was bound.
fn listen(door: &'static str, address: &mut SocketAddr, steps: &mut Steps) -> Result<TcpListener, StartError> {
    let wanted = *address;
    let socket = steps.open(format!("a socket for the {door} port"), || {
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
        ErrorKind::AddrInUse => StartError::AddressInUse { door, address: wanted },
        _ => StartError::Listen { door, address: wanted, source },
    })
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    use rustix::event::epoll;
    use socket2::SockRef;

    use super::{Door, Listeners};
    use crate::start::Steps;

    #[test]
    fn peers_that_are_gone_are_noticed() {
        let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut listeners = Listeners::bind(&mut address, &mut None, &mut Steps::default()).unwrap();
        let _peer = TcpStream::connect(address).unwrap();
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut streams = Vec::new();
        while streams.is_empty() {
            listeners.accept(&poll, Door::Native, |stream| streams.push(stream));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(SockRef::from(&streams[0]).keepalive().unwrap());
    }
}
