//! The connection of the asynchronous client to one shard: a socket of tokio, perhaps with a session of TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A connection to one shard.
#[derive(Debug)]
pub(crate) enum AsyncStream {
    /// A socket.
    Tcp(TcpStream),
    /// A session of TLS, with its socket.
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncStream {
    /// Connects without TLS.
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<AsyncStream> {
        Ok(AsyncStream::Tcp(connect_socket(address).await?))
    }

    /// Connects, and shakes hands.
    pub(crate) async fn connect_secure(
        address: SocketAddr,
        name: ServerName<'static>,
        config: Arc<ClientConfig>,
    ) -> io::Result<AsyncStream> {
        let session = TlsConnector::from(config).connect(name, connect_socket(address).await?).await?;
        Ok(AsyncStream::Tls(Box::new(session)))
    }

    /// Returns true if the session has no byte and no end. It takes its own messages, such as tickets. A socket without
    /// a session is not looked at.
    fn is_session_silent(&mut self) -> bool {
        let AsyncStream::Tls(session) = self else { return true };
        let (mut byte, mut context) = ([0], Context::from_waker(Waker::noop()));
        Pin::new(session).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Returns the socket, if there is no session.
    fn plain(&self) -> Option<&TcpStream> {
        if let AsyncStream::Tcp(socket) = self { Some(socket) } else { None }
    }
}

async fn connect_socket(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Returns true if no byte and no end has arrived on these connections. A connection without a request in flight gets
/// nothing from a server, unless the server has closed it.
pub(crate) fn are_silent(connections: &mut [AsyncStream]) -> bool {
    let sockets = connections.iter().filter_map(AsyncStream::plain);
    let mut polled: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    let are_sockets_silent = polled.is_empty() || poll(&mut polled, Some(&Timespec::default())) == Ok(0);
    are_sockets_silent && connections.iter_mut().all(AsyncStream::is_session_silent)
}

impl AsyncRead for AsyncStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            AsyncStream::Tcp(socket) => Pin::new(socket).poll_read(context, buffer),
            AsyncStream::Tls(session) => Pin::new(session).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for AsyncStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            AsyncStream::Tcp(socket) => Pin::new(socket).poll_write(context, bytes),
            AsyncStream::Tls(session) => Pin::new(session).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // A socket keeps nothing back.
            AsyncStream::Tcp(_) => Poll::Ready(Ok(())),
            AsyncStream::Tls(session) => Pin::new(session).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            AsyncStream::Tcp(socket) => Pin::new(socket).poll_shutdown(context),
            AsyncStream::Tls(session) => Pin::new(session).poll_shutdown(context),
        }
    }
}
