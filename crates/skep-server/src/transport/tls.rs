//! TLS over TCP. A connection has the same bytes as over plain TCP.
//!
//! ```text
//!   socket ─ packets ─▶ session ─ read ──▶ connection ── write ─▶ session ─ packets ─▶ socket
//!                          └ replies of the handshake ────────────────────▶ socket
//! ```
//!
//! A session holds few bytes: those of a packet that has not arrived whole, those that were decrypted and not read, and
//! those that were encrypted and not taken by the socket, each of up to about [`TLS_BUFFER_SIZE`]. A packet is what TLS
//! calls a record (RFC 8446, section 5): elsewhere in Skep, a record is an element of several numbers.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Result, Write};
use std::time::Instant;

use rustls::{Error, ServerConnection};

use super::tcp::Tcp;
use crate::certificates::Certificates;
use crate::limits::{
    FLUSH_TIME, TLS_BUFFER_SIZE, TLS_HANDSHAKE_WORK, TLS_OVERHEAD_WORK, TLS_PACKET_MAX, TLS_READ_WORK_MAX,
    TLS_RECEIVE_WORK,
};

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
    /// Why the session was refused.
    failure: RefCell<Option<String>>,
    /// The client has ended the session.
    is_ended: Cell<bool>,
    /// The time at which this side began to wait for the bytes that are left to leave.
    finished_at: Cell<Option<Instant>>,
    /// Bytes of packets that were received, beyond those that were decrypted and those whose work was counted.
    overhead: Cell<usize>,
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
        // For one part, a call that costs the system less.
        if let [part] = parts { self.0.write(part) } else { self.0.write_vectored(parts) }
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
            failure: RefCell::new(None),
            is_ended: Cell::new(false),
            finished_at: Cell::new(None),
            overhead: Cell::new(0),
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

    /// Returns why the session was refused, if it was.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Continues the handshake, until it is over or waits for the client. A connection that ends does it too: its last
    /// reply leaves after it.
    pub(crate) fn shake_hands(&self) -> Result<()> {
        let mut session = self.session.borrow_mut();
        while session.is_handshaking() && self.may_receive() {
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

    /// Reads bytes that have arrived, until the buffer is full or the packets were too much work. Then it may return fewer
    /// than there are, or none: packets need not have bytes.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut session = self.session.borrow_mut();
        let (mut size, mut has_received) = (0, false);
        while size < buffer.len() {
            match session.reader().read(&mut buffer[size..]) {
                Ok(0) => return Ok(size),
                Ok(count) => size += count,
                // The client has closed the socket without an end of the session. A request that was cut is not executed.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(size),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                // This call has taken all that the socket had. Since an earlier call, more may have arrived.
                Err(_) if has_received && !self.may_have_bytes.get() => break,
                Err(_) if !self.may_receive() => break,
                Err(_) => match self.receive(&mut session) {
                    Ok(_) => has_received = true,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                },
            }
        }
        if size > 0 { Ok(size) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    /// Returns true if the work of packets is not too much for a turn. Otherwise a later turn receives more.
    fn may_receive(&self) -> bool {
        let may_receive = self.work.get() < TLS_READ_WORK_MAX;
        self.may_have_bytes.set(self.may_have_bytes.get() || !may_receive);
        may_receive
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
        self.is_ended.set(size == 0 || state.peer_has_closed());
        // A packet that has not arrived whole may yet have bytes.
        let overhead = (self.overhead.get() + size).saturating_sub(state.plaintext_bytes_to_read());
        self.overhead.set(overhead.min(TLS_PACKET_MAX));
        let mut work = TLS_RECEIVE_WORK + (overhead - self.overhead.get()) * TLS_OVERHEAD_WORK;
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
        let is_plain = matches!(error, Error::InvalidMessage(_)) && session.protocol_version().is_none();
        let _ = if is_plain && !self.plain_reply.is_empty() {
            // Instead of the packet that says the same to a client of TLS.
            session.write_tls(&mut io::sink()).and_then(|_| self.tcp.write(self.plain_reply)).map(drop)
        } else {
            self.send(session).map(drop)
        };
        // A close with bytes that were not read would destroy the reply.
        let _ = self.tcp.read(&mut [0; TLS_BUFFER_SIZE]);
        let failure = if is_plain { "the client did not speak TLS".to_owned() } else { error.to_string() };
        self.failure.replace(Some(failure));
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::CertificateDer;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::Tls;
    use crate::certificates::{Certificates, TlsSettings};
    use crate::limits::{TLS_OVERHEAD_WORK, TLS_READ_WORK_MAX};
    use crate::transport::tcp::Tcp;

    /// Connects a socket and the server's end. Returns the certificate of the server too.
    fn sockets() -> (TcpStream, Tls, CertificateDer<'static>) {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let [certificate, key] = ["server.pem", "server.key"].map(|name| directory.path().join(name));
        fs::write(&certificate, cert.pem()).unwrap();
        fs::write(&key, signing_key.serialize_pem()).unwrap();
        let certificates = Certificates::read(&TlsSettings { certificate, key, client_ca: None }).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let tls = Tls::new(Tcp::new(accepted), &certificates, b"").unwrap();
        (socket, tls, cert.der().clone())
    }

    /// Connects a client and the server's end, and finishes the handshake.
    fn connect() -> (ClientConnection, TcpStream, Tls) {
        let (mut socket, tls, certificate) = sockets();
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let mut client =
            ClientConnection::new(Arc::new(config.with_no_client_auth()), "localhost".try_into().unwrap()).unwrap();
        let shaking = thread::spawn(move || {
            client.complete_io(&mut socket).unwrap();
            (client, socket)
        });
        while tls.is_handshaking() {
            tls.shake_hands().unwrap();
            tls.take_work();
        }
        let (client, socket) = shaking.join().unwrap();
        (client, socket, tls)
    }

    #[test]
    fn a_client_that_does_not_speak_tls_is_named() {
        let (mut socket, tls, _) = sockets();
        assert_eq!(tls.failure(), None);
        socket.write_all(b"GET greeting\r\n").unwrap();
        while tls.shake_hands().is_ok() {
            tls.take_work();
        }
        assert_eq!(tls.failure().as_deref(), Some("the client did not speak TLS"));
    }

    /// A read that does not fill its buffer has taken all that has arrived, also behind bytes that an earlier one left.
    #[test]
    fn bytes_that_arrive_behind_decrypted_ones_are_read_with_them() {
        let (mut client, mut socket, tls) = connect();
        let mut send = |bytes: &[u8]| {
            client.writer().write_all(bytes).unwrap();
            client.complete_io(&mut socket).unwrap();
            thread::sleep(Duration::from_millis(50));
        };
        let mut buffer = [0; 8192];
        send(&[1; 6000]);
        assert_eq!(tls.read(&mut buffer[..4096]).unwrap(), 4096);
        send(&[2; 1000]);
        assert_eq!(tls.read(&mut buffer).unwrap(), 6000 - 4096 + 1000);
        assert_eq!(tls.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn a_turn_receives_a_bounded_number_of_packets() {
        const BYTES: usize = 3000;
        // A packet for each byte, and for each byte the most other packets that a session takes in a row.
        for updates in [0, 30] {
            let (mut client, mut socket, tls) = connect();
            let sending = thread::spawn(move || {
                for _ in 0..BYTES {
                    (0..updates).for_each(|_| client.refresh_traffic_keys().unwrap());
                    client.writer().write_all(b"x").unwrap();
                    while client.wants_write() {
                        client.write_tls(&mut socket).unwrap();
                    }
                }
                client.send_close_notify();
                client.write_tls(&mut socket).unwrap();
                socket
            });
            let (mut size, mut reads, mut most) = (0, 0, 0);
            let mut buffer = vec![0; 64 << 10];
            loop {
                match tls.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => size += count,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                most = most.max(tls.take_work());
                reads += 1;
            }
            assert_eq!(size, BYTES);
            // One call receives about 4 KiB more than the bound.
            assert!(most < TLS_READ_WORK_MAX + 5000 * TLS_OVERHEAD_WORK, "{most}");
            assert!(reads >= BYTES * (1 + updates) * 22 / 8192, "{reads}");
            drop(sending.join().unwrap());
        }
    }
}
