//! TLS over TCP. A connection has the same bytes as over plain TCP.
//!
//! ```text
//!   socket ─ packets ─▶ session ─ read ──▶ connection ── write ─▶ session ─ packets ─▶ socket
//!                          └ replies of the handshake ────────────────────▶ socket
//! ```
//!
//! A session holds few bytes: those of a packet that has not arrived whole, those that were decrypted and not read, and
//! those that were encrypted and not taken by the socket, each of up to about [`TLS_BUFFER_SIZE`].

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Result, Write};
use std::time::Instant;

use rustls::{Error, ServerConnection};

use super::tcp::Tcp;
use crate::certificates::Certificates;
use crate::limits::{FLUSH_TIME, TLS_BUFFER_SIZE, TLS_HANDSHAKE_WORK, TLS_OVERHEAD_WORK};

/// A TCP socket and its session.
#[derive(Debug)]
pub(crate) struct Tls {
    tcp: Tcp,
    session: RefCell<ServerConnection>,
    /// What a client is told that does not speak TLS.
    plain_reply: &'static [u8],
    /// A client without a certificate does not finish the handshake.
    proves_client: bool,
    /// The socket may have more bytes. It has none after a read that it did not fill, until the next event.
    may_have_bytes: Cell<bool>,
    /// The client has ended the session.
    is_ended: Cell<bool>,
    /// The time at which this side began to wait for the bytes that are left to leave.
    finished_at: Cell<Option<Instant>>,
    /// The work of reads that was not taken.
    work: Cell<usize>,
}

/// The socket, which tells what a read has left.
struct Source<'t>(&'t Tls);

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let result = self.0.tcp.read(buffer);
        self.0.may_have_bytes.set(result.as_ref().is_ok_and(|size| *size == buffer.len()));
        result
    }
}

/// The socket, as a sink.
struct Sink<'t>(&'t Tcp);

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> Result<usize> {
        self.0.write_vectored(parts)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Tls {
    /// Begins a session on a socket that does not block. A client that does not speak TLS gets `plain_reply`, or if that
    /// is empty, the alert of TLS.
    pub(crate) fn new(
        tcp: Tcp,
        certificates: &Certificates,
        plain_reply: &'static [u8],
    ) -> std::result::Result<Tls, Error> {
        let mut session = ServerConnection::new(certificates.config())?;
        session.set_buffer_limit(Some(TLS_BUFFER_SIZE));
        Ok(Tls {
            tcp,
            session: RefCell::new(session),
            plain_reply,
            proves_client: certificates.are_asked_of_clients(),
            may_have_bytes: Cell::new(false),
            is_ended: Cell::new(false),
            finished_at: Cell::new(None),
            work: Cell::new(0),
        })
    }

    /// Returns the socket.
    pub(super) fn tcp(&self) -> &Tcp {
        &self.tcp
    }

    /// Returns true if the client has a certificate, as soon as bytes of it are read.
    pub(super) fn proves_client(&self) -> bool {
        self.proves_client
    }

    /// Returns true if the handshake is not over.
    pub(super) fn is_handshaking(&self) -> bool {
        self.session.borrow().is_handshaking()
    }

    /// Continues the handshake, until it is over or waits for the client. A connection that ends does it too: its last
    /// reply leaves after it.
    pub(crate) fn shake_hands(&self) -> Result<()> {
        let mut session = self.session.borrow_mut();
        while session.is_handshaking() {
            match self.receive(&mut session) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns true if a read may find more, although the last one has not filled its buffer.
    pub(crate) fn may_have_more(&self) -> bool {
        self.may_have_bytes.get() || self.is_ended.get()
    }

    /// Takes the work of the reads since the last call, besides that of the bytes which they returned.
    pub(crate) fn take_work(&self) -> usize {
        self.work.take()
    }

    /// Reads bytes that have arrived. It may return fewer than there are.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut session = self.session.borrow_mut();
        loop {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The client has closed the socket without an end of the session. A request that was cut is not executed.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            self.receive(&mut session)?;
        }
    }

    /// Writes as many bytes as the session takes.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<usize> {
        let mut session = self.session.borrow_mut();
        if !self.send(&mut session)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let size = session.writer().write(bytes)?;
        // The rest leaves with a later flush.
        self.send(&mut session)?;
        if size > 0 { Ok(size) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    /// Sends what the session has encrypted, as far as the socket takes it.
    pub(crate) fn flush(&self) -> Result<()> {
        self.send(&mut self.session.borrow_mut()).map(drop)
    }

    /// Tells the peer that no more bytes will leave, when all have left.
    pub(super) fn finish(&self) -> Result<()> {
        let mut session = self.session.borrow_mut();
        if session.is_handshaking() {
            return Ok(());
        }
        session.send_close_notify();
        if self.send(&mut session)? { self.tcp.finish() } else { Ok(()) }
    }

    /// Returns true if all bytes that were written have left, or if the client has not taken them for a while.
    pub(super) fn is_delivered(&self, now: Instant) -> bool {
        let session = self.session.borrow();
        let since = self.finished_at.get().unwrap_or(now);
        self.finished_at.set(Some(since));
        !session.is_handshaking() && !session.wants_write() || now >= since + FLUSH_TIME
    }

    /// Receives and decrypts what the socket has, and sends what the handshake replies. Returns the number of bytes, which
    /// is 0 at the end.
    fn receive(&self, session: &mut ServerConnection) -> Result<usize> {
        let size = session.read_tls(&mut Source(self))?;
        let was_handshaking = session.is_handshaking();
        let state = match session.process_new_packets() {
            Ok(state) => state,
            Err(error) => return Err(self.refuse(session, error)),
        };
        self.is_ended.set(state.peer_has_closed());
        let overhead = size.saturating_sub(state.plaintext_bytes_to_read());
        let mut work = overhead * TLS_OVERHEAD_WORK;
        if state.tls_bytes_to_write() > 0 {
            work += if was_handshaking { TLS_HANDSHAKE_WORK } else { 0 };
            self.send(session)?;
        }
        self.work.set(self.work.get() + work);
        Ok(size)
    }

    /// Tells the client why the session ends, and returns the error that ends it.
    fn refuse(&self, session: &mut ServerConnection, error: Error) -> io::Error {
        // The socket has taken nothing or little so far: it has room for this, or the client has closed it.
        let is_plain = matches!(error, Error::InvalidMessage(_))
            && session.protocol_version().is_none()
            && !self.plain_reply.is_empty();
        let _ = if is_plain {
            // Instead of the packet that says the same to a client of TLS.
            session.write_tls(&mut io::sink()).and_then(|_| self.tcp.write(self.plain_reply)).map(drop)
        } else {
            self.send(session).map(drop)
        };
        // A close with bytes that were not read would destroy the reply.
        let _ = self.tcp.read(&mut [0; TLS_BUFFER_SIZE]);
        io::Error::new(ErrorKind::InvalidData, error)
    }

    /// Sends what the session has encrypted. Returns true if all of it has left.
    fn send(&self, session: &mut ServerConnection) -> Result<bool> {
        while session.wants_write() {
            match session.write_tls(&mut Sink(&self.tcp)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
