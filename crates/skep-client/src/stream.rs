//! The connection of the blocking client to one shard, on any transport: two ordered streams of bytes.
//!
//! A call that may wait has a time limit and says so. All others return at once, with [`ErrorKind::WouldBlock`] if they
//! cannot continue.
//!
//! TCP sockets are in blocking mode, and each call states if it may block. In the common case, one shard has replies to
//! send and the client has nothing left to send. Then the client needs one blocking `recv`, and no `poll` before it.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::address::ResolvedAddress;

/// A connection to one shard.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A socket, and the time after which it ends a blocking `recv`.
    Tcp(TcpStream, Duration),
}

/// A stream to wait for: its index, and true if the client has bytes to send on it.
pub(crate) type Waiting = (usize, bool);

impl Stream {
    /// Connects within this time.
    pub(crate) fn connect(address: &ResolvedAddress, limit: Duration) -> io::Result<Stream> {
        match address {
            ResolvedAddress::Tcp(address) => {
                let socket = TcpStream::connect_timeout(address, limit)?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(limit))?;
                Ok(Stream::Tcp(socket, limit))
            }
            ResolvedAddress::SharedMemory(_) => Err(ErrorKind::Unsupported.into()),
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
        }
    }

    fn poll_fd(&self, flags: PollFlags) -> PollFd<'_> {
        match self {
            Stream::Tcp(socket, _) => PollFd::new(socket, flags),
        }
    }
}

/// Waits until one of the streams has bytes or its end to receive, or takes bytes that the client has to send. Returns
/// the indexes of those to receive from, or `None` if the time is over.
pub(crate) fn wait(streams: &[Stream], waiting: &[Waiting], limit: Duration) -> io::Result<Option<Vec<usize>>> {
    let begun = Instant::now();
    let flags = |is_sending| if is_sending { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut polled: Vec<_> =
        waiting.iter().map(|&(index, is_sending)| streams[index].poll_fd(flags(is_sending))).collect();
    loop {
        // A signal does not begin the time anew. A timeout is too long for the type only if it is longer than the
        // settings allow.
        let left = limit.saturating_sub(begun.elapsed());
        match poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
            Err(Errno::INTR) => {}
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // A socket with an error is reported as ready too. The receive then returns the error.
    let is_ready = |fd: &PollFd<'_>| !(fd.revents() - PollFlags::OUT).is_empty();
    Ok(Some(std::iter::zip(waiting, &polled).filter(|(_, fd)| is_ready(fd)).map(|(&(index, _), _)| index).collect()))
}

/// Returns true if no byte and no end has arrived on these streams. A stream without a request in flight gets nothing
/// from a server, unless the server has closed it.
pub(crate) fn are_silent(streams: &[Stream]) -> bool {
    let mut polled: Vec<_> = streams.iter().map(|stream| stream.poll_fd(PollFlags::IN)).collect();
    poll(&mut polled, Some(&Timespec::default())) == Ok(0)
}
