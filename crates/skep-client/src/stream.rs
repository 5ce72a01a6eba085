//! The connection of the blocking client to one shard, on any transport: two ordered streams of bytes.
//!
//! A call that may wait has a time limit and says so. All others return at once, with [`ErrorKind::WouldBlock`] if they
//! cannot continue.
//!
//! - TCP sockets are in blocking mode, and each call states if it may block. In the common case, one shard has replies
//!   to send and the client has nothing left to send. Then the client needs one blocking `recv`, and no `poll` before
//!   it.
//! - Over TLS, a socket does not block, and a wait also ends if the session has decrypted bytes.
//! - Over shared memory, a wait polls the words of the shards for a while, and then sleeps until a doorbell.
//! - Over UDP and RDMA, a wait also ends when packets are to be repeated. What arrived is in the session, not in the socket.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::ClientConfig;
use skep_transport::datagram::DatagramStream;
#[cfg(feature = "rdma")]
use skep_transport::rdma::RdmaStream;
use skep_transport::shared::{self, End};

use crate::address::ResolvedAddress;
use crate::tls::server_name;
use crate::tls_stream::TlsStream;

/// The time after which a client asks the kernel if the server still runs, before it sends the next batch.
const TRUSTED_TIME: Duration = Duration::from_millis(10);

/// A connection to one shard.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A socket, and the time after which it ends a blocking `recv`.
    Tcp(TcpStream, Duration),
    /// A session of TLS, with its socket.
    Tls(Box<TlsStream>),
    /// Rings in shared memory, and the time of the last wait for them or question to the kernel.
    SharedMemory(Box<End>, Instant),
    /// A session over UDP, with its socket.
    Datagram(Box<DatagramStream>),
    /// A session over RDMA.
    #[cfg(feature = "rdma")]
    Rdma(Box<RdmaStream>),
}

/// A stream to wait for: its index, and true if the client has bytes to send on it.
pub(crate) type Waiting = (usize, bool);

impl Stream {
    /// Connects within this time. An address of TLS needs its configuration.
    pub(crate) fn connect(
        address: &ResolvedAddress,
        tls: Option<&Arc<ClientConfig>>,
        limit: Duration,
    ) -> io::Result<Stream> {
        match address {
            ResolvedAddress::Tcp(address) => {
                let socket = TcpStream::connect_timeout(address, limit)?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(limit))?;
                Ok(Stream::Tcp(socket, limit))
            }
            ResolvedAddress::Tls { address, name } => {
                let config = tls.expect("the files were read for this address");
                let name = server_name(name).map_err(io::Error::other)?;
                Ok(Stream::Tls(Box::new(TlsStream::connect(address, name, config, limit)?)))
            }
            ResolvedAddress::SharedMemory(path) => {
                Ok(Stream::SharedMemory(Box::new(End::connect(path, limit)?), Instant::now()))
            }
            ResolvedAddress::Udp(address) => Ok(Stream::Datagram(Box::new(DatagramStream::connect(*address, limit)?))),
            #[cfg(feature = "rdma")]
            ResolvedAddress::Rdma(address) => Ok(Stream::Rdma(Box::new(RdmaStream::connect(*address, limit)?))),
            #[cfg(not(feature = "rdma"))]
            ResolvedAddress::Rdma(_) => {
                let message = "this program was built without RDMA (the feature `rdma` of the client)";
                Err(io::Error::new(ErrorKind::Unsupported, message))
            }
        }
    }

    /// Sends as many of the bytes as the transport accepts. Returns how many these are.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket, _) => loop {
                match send(&*socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Err(Errno::INTR) => {}
                    sent => return Ok(sent?),
                }
            },
            Stream::Tls(tls) => tls.send(bytes),
            Stream::SharedMemory(end, _) => end.send(bytes),
            Stream::Datagram(datagram) => datagram.send(bytes),
            #[cfg(feature = "rdma")]
            Stream::Rdma(rdma) => rdma.send(bytes),
        }
    }

    /// Receives bytes that have arrived. Returns how many these are, or 0 if the server has closed the connection.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket, _) => match recv(&*socket, buffer, RecvFlags::DONTWAIT) {
                Ok((_, size)) => Ok(size),
                Err(Errno::INTR) => Err(ErrorKind::WouldBlock.into()),
                Err(error) => Err(error.into()),
            },
            Stream::Tls(tls) => tls.receive(buffer),
            Stream::SharedMemory(end, _) => end.receive(buffer),
            Stream::Datagram(datagram) => datagram.receive(buffer),
            #[cfg(feature = "rdma")]
            Stream::Rdma(rdma) => rdma.receive(buffer),
        }
    }

    /// Waits until bytes arrive, and receives them as [`Stream::receive`] does. Returns `None` if the time is over.
    pub(crate) fn receive_within(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<Option<usize>> {
        match self {
            Stream::Tcp(socket, current) => {
                if *current != limit {
                    socket.set_read_timeout(Some(limit))?;
                    *current = limit;
                }
                let begun = Instant::now();
                loop {
                    return match recv(&*socket, &mut *buffer, RecvFlags::empty()) {
                        Ok((_, size)) => Ok(Some(size)),
                        Err(Errno::INTR) if begun.elapsed() < limit => continue,
                        // A receive that may block has the timeout of the socket.
                        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
                        Err(error) => Err(error.into()),
                    };
                }
            }
            Stream::Tls(..) => {
                let until = Instant::now() + limit;
                loop {
                    let left = until.saturating_duration_since(Instant::now());
                    if wait(std::slice::from_mut(self), &[(0, false)], left)?.is_none() {
                        return Ok(None);
                    }
                    match self.receive(buffer) {
                        // The rest of a packet is missing, or it was one of the session itself.
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        result => return result.map(Some),
                    }
                }
            }
            Stream::SharedMemory(..) => match wait(std::slice::from_mut(self), &[(0, false)], limit)? {
                Some(_) => self.receive(buffer).map(Some),
                None => Ok(None),
            },
            Stream::Datagram(datagram) => datagram.receive_within(buffer, limit),
            #[cfg(feature = "rdma")]
            Stream::Rdma(rdma) => rdma.receive_within(buffer, limit),
        }
    }

    /// Prepares a wait for the stream. Returns the time at which it has something to do, even if nothing arrives.
    fn prepare_wait(&mut self, is_sending: bool) -> io::Result<Option<Instant>> {
        match self {
            Stream::Tcp(..) | Stream::SharedMemory(..) => Ok(None),
            Stream::Tls(tls) => Ok(tls.is_readable().then(Instant::now)),
            Stream::Datagram(datagram) => {
                let wake_at = datagram.prepare_wait()?;
                // An earlier wait may have taken more packets than the lane had room for.
                let is_ready = datagram.is_readable() || is_sending && datagram.is_writable();
                Ok(if is_ready { Some(Instant::now()) } else { wake_at })
            }
            #[cfg(feature = "rdma")]
            Stream::Rdma(rdma) => {
                let wake_at = rdma.prepare_wait();
                Ok(if is_sending && rdma.is_writable() { Some(Instant::now()) } else { wake_at })
            }
        }
    }

    /// Returns the file descriptor to wait for, until there are bytes to receive, or it takes bytes to send.
    fn poll_fd(&self, is_sending: bool) -> PollFd<'_> {
        match self {
            Stream::Tcp(socket, _) if is_sending => PollFd::new(socket, PollFlags::IN | PollFlags::OUT),
            Stream::Tcp(socket, _) => PollFd::new(socket, PollFlags::IN),
            Stream::Tls(tls) => tls.poll_fd(is_sending),
            Stream::SharedMemory(end, _) => PollFd::new(&**end, PollFlags::IN),
            // What it sends depends on the packets that arrive.
            Stream::Datagram(datagram) => PollFd::new(&**datagram, PollFlags::IN),
            #[cfg(feature = "rdma")]
            Stream::Rdma(rdma) => PollFd::new(&**rdma, PollFlags::IN),
        }
    }

    /// Acts on the end of a wait, with the flags of its file descriptor. Returns true if there may be bytes or an end to
    /// receive, and true if it may take bytes to send.
    fn on_wake(&mut self, flags: PollFlags) -> io::Result<(bool, bool)> {
        match self {
            // A socket with an error is reported as ready too. The receive then returns the error.
            Stream::Tcp(..) => Ok((!(flags - PollFlags::OUT).is_empty(), flags.contains(PollFlags::OUT))),
            Stream::Tls(tls) => tls.on_wake(flags),
            Stream::SharedMemory(end, _) => Ok((end.is_ready(false), false)),
            Stream::Datagram(datagram) => {
                datagram.on_wake()?;
                Ok((datagram.is_readable(), datagram.is_writable()))
            }
            #[cfg(feature = "rdma")]
            Stream::Rdma(rdma) => {
                rdma.on_wake();
                Ok((rdma.is_readable(), rdma.is_writable()))
            }
        }
    }
}

/// Waits until one of the streams has bytes or its end to receive, or takes bytes that the client has to send. Returns
/// the indexes of those to receive from, or `None` if the time is over.
pub(crate) fn wait(streams: &mut [Stream], waiting: &[Waiting], limit: Duration) -> io::Result<Option<Vec<usize>>> {
    let begun = Instant::now();
    let ends: Vec<_> = waiting
        .iter()
        .filter_map(|&(index, is_sending)| match &streams[index] {
            Stream::SharedMemory(end, _) => Some((&**end, is_sending)),
            _ => None,
        })
        .collect();
    // All streams of a client have the same transport.
    if ends.is_empty() {
        return wait_for_sockets(streams, waiting, begun + limit);
    }
    let is_ready = shared::wait(&ends, limit)?;
    let readable = std::iter::zip(waiting, ends).filter(|(_, (end, _))| end.is_ready(false));
    let readable: Vec<usize> = readable.map(|(&(index, _), _)| index).collect();
    for &(index, _) in waiting {
        if let Stream::SharedMemory(_, used_at) = &mut streams[index] {
            *used_at = begun;
        }
    }
    Ok(is_ready.then_some(readable))
}

/// Does the same for streams that have a socket each.
fn wait_for_sockets(streams: &mut [Stream], waiting: &[Waiting], until: Instant) -> io::Result<Option<Vec<usize>>> {
    loop {
        let mut wake_at = until;
        for &(index, is_sending) in waiting {
            wake_at = streams[index].prepare_wait(is_sending)?.map_or(wake_at, |time| time.min(wake_at));
        }
        let mut polled: Vec<_> =
            waiting.iter().map(|&(index, is_sending)| streams[index].poll_fd(is_sending)).collect();
        // A signal does not begin the time anew. A timeout is too long for the type only if it is longer than the
        // settings allow.
        let left = wake_at.saturating_duration_since(Instant::now());
        match poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let flags: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        let (mut readable, mut may_send) = (Vec::new(), false);
        for (&(index, is_sending), flags) in std::iter::zip(waiting, flags) {
            let (is_readable, is_writable) = streams[index].on_wake(flags)?;
            readable.extend(is_readable.then_some(index));
            may_send |= is_sending && is_writable;
        }
        if !readable.is_empty() || may_send {
            return Ok(Some(readable));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
    }
}

/// Returns true if no byte and no end has arrived on these streams. A stream without a request in flight gets nothing
/// from a server, unless the server has closed it. Over shared memory, the kernel is only asked after a while: if the
/// server was killed since, its reply is missing.
pub(crate) fn are_silent(streams: &mut [Stream]) -> bool {
    let is_silent = |stream: &mut Stream| match stream {
        Stream::Tcp(..) => true,
        Stream::Tls(tls) => tls.is_silent(),
        Stream::SharedMemory(end, used_at) => {
            if used_at.elapsed() >= TRUSTED_TIME {
                if !end.take_doorbells() {
                    return false;
                }
                *used_at = Instant::now();
            }
            end.has_nothing_to_receive()
        }
        Stream::Datagram(datagram) => datagram.is_silent(),
        #[cfg(feature = "rdma")]
        Stream::Rdma(rdma) => rdma.is_silent(),
    };
    if !streams.iter_mut().all(is_silent) {
        return false;
    }
    let sockets = streams.iter().filter(|stream| matches!(stream, Stream::Tcp(..)));
    let mut polled: Vec<_> = sockets.map(|stream| stream.poll_fd(false)).collect();
    polled.is_empty() || poll(&mut polled, Some(&Timespec::default())) == Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use rustix::io::ioctl_fionread;

    use super::*;

    #[test]
    fn the_kernel_is_asked_about_an_idle_stream_only_after_a_while() {
        let path = std::env::temp_dir().join(format!("skep-stream-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let (mut streams, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let connecting = std::thread::spawn({
                let address = ResolvedAddress::SharedMemory(path.clone());
                move || Stream::connect(&address, None, Duration::from_secs(10)).unwrap()
            });
            let socket = listener.accept().unwrap().0;
            servers.push((socket.try_clone().unwrap(), End::offer(socket).unwrap()));
            streams.push(connecting.join().unwrap());
        }
        std::fs::remove_file(&path).unwrap();
        std::thread::sleep(TRUSTED_TIME);
        // A question takes the doorbell that waits in the socket.
        let begun = Instant::now();
        let (mut calls, mut questions) = (0, 0);
        servers[1].0.write_all(&[1]).unwrap();
        while calls < 10_000 {
            assert!(are_silent(&mut streams));
            calls += 1;
            let Stream::SharedMemory(end, _) = &streams[1] else { unreachable!() };
            if ioctl_fionread(&**end).unwrap() == 0 {
                questions += 1;
                servers[1].0.write_all(&[1]).unwrap();
            }
        }
        let questions_max = 1 + begun.elapsed().as_nanos() / TRUSTED_TIME.as_nanos();
        assert!((1..=questions_max).contains(&questions), "{questions} questions in {calls} calls");
    }
}
