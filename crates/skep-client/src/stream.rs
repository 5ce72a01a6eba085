//! The connection of the blocking client to one shard, on any transport: two ordered streams of bytes.
//!
//! A call that may wait has a time limit and says so. All others return at once, with [`ErrorKind::WouldBlock`] if they
//! cannot continue.
//!
//! - TCP sockets are in blocking mode, and each call states if it may block. In the common case, one shard has replies
//!   to send and the client has nothing left to send. Then the client needs one blocking `recv`, and no `poll` before
//!   it.
//! - Over shared memory, a wait polls the words of the shards for a while, and then sleeps until a doorbell.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use skep_transport::shared::{self, End};

use crate::address::ResolvedAddress;

/// The time after which a client asks the kernel if the server still runs, before it sends the next batch.
const TRUSTED_TIME: Duration = Duration::from_millis(10);

/// A connection to one shard.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A socket, and the time after which it ends a blocking `recv`.
    Tcp(TcpStream, Duration),
    /// Rings in shared memory, and the time of the last wait for them.
    SharedMemory(Box<End>, Instant),
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
            ResolvedAddress::SharedMemory(path) => {
                Ok(Stream::SharedMemory(Box::new(End::connect(path, limit)?), Instant::now()))
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
            Stream::SharedMemory(end, _) => end.send(bytes),
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
            Stream::SharedMemory(end, _) => end.receive(buffer),
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
            Stream::SharedMemory(..) => match wait(std::slice::from_mut(self), &[(0, false)], limit)? {
                Some(_) => self.receive(buffer).map(Some),
                None => Ok(None),
            },
        }
    }

    fn poll_fd(&self, is_sending: bool) -> PollFd<'_> {
        match self {
            Stream::Tcp(socket, _) => {
                PollFd::new(socket, if is_sending { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN })
            }
            Stream::SharedMemory(end, _) => PollFd::new(&**end, PollFlags::IN),
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
            Stream::Tcp(..) => None,
        })
        .collect();
    // All streams of a client have the same transport.
    if ends.is_empty() {
        return wait_for_sockets(streams, waiting, limit, begun);
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

fn wait_for_sockets(
    streams: &[Stream],
    waiting: &[Waiting],
    limit: Duration,
    begun: Instant,
) -> io::Result<Option<Vec<usize>>> {
    let mut polled: Vec<_> = waiting.iter().map(|&(index, is_sending)| streams[index].poll_fd(is_sending)).collect();
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
/// from a server, unless the server has closed it. Over shared memory, the kernel is only asked after a while: if the
/// server was killed since, its reply is missing.
pub(crate) fn are_silent(streams: &[Stream]) -> bool {
    let mut polled = Vec::new();
    for stream in streams {
        match stream {
            Stream::Tcp(..) => polled.push(stream.poll_fd(false)),
            Stream::SharedMemory(end, used_at) => {
                let is_open = used_at.elapsed() < TRUSTED_TIME || end.take_doorbells();
                if !is_open || !end.is_silent() {
                    return false;
                }
            }
        }
    }
    polled.is_empty() || poll(&mut polled, Some(&Timespec::default())) == Ok(0)
}
