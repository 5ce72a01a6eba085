//! A connection of the client: TCP, or TLS over it.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// The name in the server's certificate.
const NAME: &str = "localhost";

/// What a server and its clients need for TLS.
pub(super) struct TlsFiles {
    /// The certificate of the server, and its private key, which only its owner can read.
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    /// The configuration of clients, who trust this certificate alone.
    pub(super) clients: Arc<ClientConfig>,
}

impl TlsFiles {
    /// Makes a certificate in this folder.
    pub(super) fn make(folder: &Path) -> Result<TlsFiles, String> {
        let failed = |error: &dyn std::fmt::Display| format!("cannot make a certificate: {error}");
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(|error| failed(&error))?;
        let [certificate, key] = ["server.pem", "server.key"].map(|name| folder.join(name));
        fs::write(&certificate, made.cert.pem()).map_err(|error| failed(&error))?;
        let mut own =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key).map_err(|error| failed(&error))?;
        own.write_all(made.signing_key.serialize_pem().as_bytes()).map_err(|error| failed(&error))?;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).map_err(|error| failed(&error))?;
        let clients = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsFiles { certificate, key, clients: Arc::new(clients) })
    }
}

/// A socket, and its session if it has one.
pub(super) struct Stream {
    socket: TcpStream,
    session: Option<Box<ClientConnection>>,
}

impl Stream {
    /// Connects, and shakes hands if there is a configuration of TLS.
    pub(super) fn connect(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> io::Result<Stream> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let session = match tls {
            None => None,
            Some(config) => {
                let name = NAME.try_into().expect("it is a name of a host");
                let mut session = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                while session.is_handshaking() {
                    session.complete_io(&mut socket)?;
                }
                Some(Box::new(session))
            }
        };
        Ok(Stream { socket, session })
    }

    /// Lets calls wait, or not.
    pub(super) fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(is_nonblocking)
    }
}

impl Read for Stream {
    /// Reads all bytes that were decrypted, if the buffer has the size of a packet of TLS, 16 KiB. So bytes that the poll
    /// does not see wait for no call.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Stream { socket, session: Some(session) } = self else { return self.socket.read(buffer) };
        loop {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            session.read_tls(socket)?;
            session.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

impl Write for Stream {
    /// Encrypts and sends; of TLS, all that the session takes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Stream { socket, session: Some(session) } = self else { return self.socket.write(bytes) };
        let size = session.writer().write(bytes)?;
        while session.wants_write() {
            match session.write_tls(socket) {
                Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
