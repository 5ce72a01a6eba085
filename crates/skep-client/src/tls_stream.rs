//! A connection of the blocking client over TLS: a socket that does not block, and a session.
//!
//! ```text
//!   lane ─ send ─▶ session ─ encrypted, not yet taken ─▶ socket
//!   lane ◀ receive ─ session ◀ decrypted, not yet read ─ socket
//! ```
//!
//! So a wait for the socket is not enough: bytes that were decrypted are ready at once, and bytes that the socket has not
//! taken leave when it takes more. The session bounds both: at most 64 KiB wait for the socket, and nothing is read from
//! it before the decrypted bytes are.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

/// A socket and its session.
#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: TcpStream,
    session: ClientConnection,
    /// Bytes that were decrypted and not yet read.
    decrypted: usize,
    /// The server has ended the session, or closed the socket.
    is_ended: bool,
}

impl TlsStream {
    /// Connects, and shakes hands, within this time.
    pub(crate) fn connect(
        address: &SocketAddr,
        name: ServerName<'static>,
        config: &Arc<ClientConfig>,
        limit: Duration,
    ) -> io::Result<TlsStream> {
        let until = Instant::now() + limit;
        let socket = TcpStream::connect_timeout(address, limit)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let session = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        let mut stream = TlsStream { socket, session, decrypted: 0, is_ended: false };
        while stream.session.is_handshaking() {
            stream.flush()?;
            match stream.pump() {
                Ok(()) if stream.is_ended => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => stream.wait(until)?,
                Err(error) => return Err(error),
            }
        }
        stream.flush()?;
        Ok(stream)
    }

    /// Waits for the socket until a time.
    fn wait(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        match poll(&mut [self.poll_fd(false)], Timespec::try_from(left).ok().as_ref()) {
            Ok(0) => Err(io::Error::new(ErrorKind::TimedOut, "the server does not shake hands: does it speak TLS?")),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends as many of the bytes as the session accepts. Returns how many these are.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        if self.session.wants_write() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let size = self.session.writer().write(bytes)?;
        self.flush()?;
        Ok(size)
    }

    /// Receives bytes that have arrived. Returns how many these are, or 0 if the server has ended the session.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut size = 0;
        loop {
            if self.decrypted > 0 {
                let read = self.session.reader().read(&mut buffer[size..])?;
                self.decrypted -= read;
                size += read;
            }
            if self.is_ended || size == buffer.len() {
                return Ok(size);
            }
            match self.pump() {
                // The next call returns an error, or the end that follows it.
                Err(_) if size > 0 => return Ok(size),
                result => result?,
            }
        }
    }

    /// Returns true if there are bytes or an end to receive, even if the socket has none.
    pub(crate) fn is_readable(&self) -> bool {
        self.decrypted > 0 || self.is_ended
    }

    /// Returns true if no byte and no end has arrived. The session itself takes its own messages, such as tickets.
    pub(crate) fn is_silent(&mut self) -> bool {
        while !self.is_readable() {
            match self.pump() {
                Ok(()) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        false
    }

    /// Returns the file descriptor to wait for.
    pub(crate) fn poll_fd(&self, is_sending: bool) -> PollFd<'_> {
        let may_write = if is_sending || self.session.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
        PollFd::new(&self.socket, PollFlags::IN | may_write)
    }

    /// Acts on the end of a wait, with the flags of the file descriptor. Returns true if there may be bytes or an end to
    /// receive, and true if the session accepts bytes to send.
    pub(crate) fn on_wake(&mut self, flags: PollFlags) -> io::Result<(bool, bool)> {
        self.flush()?;
        let is_readable = self.is_readable() || !(flags - PollFlags::OUT).is_empty();
        Ok((is_readable, flags.contains(PollFlags::OUT) && !self.session.wants_write()))
    }

    /// Receives and decrypts what the socket has, up to a bound. There must be no decrypted bytes.
    fn pump(&mut self) -> io::Result<()> {
        let size = self.session.read_tls(&mut self.socket)?;
        let processed = self.session.process_new_packets();
        // After an error, this tells the server why the session ends.
        let flushed = self.flush();
        let state = processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        self.decrypted = state.plaintext_bytes_to_read();
        self.is_ended = size == 0 || state.peer_has_closed();
        flushed
    }

    /// Sends what was encrypted, as far as the socket takes it.
    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.session.send_close_notify();
        // The server may have closed the connection.
        let _ = self.flush();
    }
}
