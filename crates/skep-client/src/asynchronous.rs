//! The asynchronous client: the same exchange as the blocking one, with tokio's sockets.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use skep_core::operation::{Filter, Operation, Page, PutCondition, Reduce, Request, ScanAnswer, Update};
use skep_wire::native::{Password, Welcome};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, ToSocketAddrs, lookup_host};
use tokio::time::timeout;

use crate::error::{ClientError, NotWelcome, is_closed};
use crate::exchange::Exchange;
use crate::expiries::{self, KeyExpiry, expiries};
use crate::handshake::{HANDSHAKE_TIMEOUT, Handshake};
use crate::operations::single_operations;
use crate::range::{self, KeyRange, Pair, ScanProgress};
use crate::reply;
use crate::responses::Responses;
use crate::scans::scans;

/// A client whose calls are futures on tokio, with I/O and time enabled.
///
/// A call that is dropped before it ends leaves replies in flight. The next call then returns [`ClientError::Broken`].
#[derive(Debug)]
pub struct AsyncClient {
    exchange: Exchange,
    address: SocketAddr,
    /// One connection to each shard, in the order of the shards.
    connections: Vec<TcpStream>,
}

impl AsyncClient {
    /// Connects to all shards of the server at this address, for operations on one of its spaces.
    pub async fn connect(address: impl ToSocketAddrs, space: u16) -> Result<AsyncClient, ClientError> {
        Self::connect_with(address, space, None).await
    }

    /// Connects as [`AsyncClient::connect`] does, to a server that has this password.
    pub async fn connect_with_password(
        address: impl ToSocketAddrs,
        space: u16,
        password: &Password,
    ) -> Result<AsyncClient, ClientError> {
        Self::connect_with(address, space, Some(password)).await
    }

    async fn connect_with(
        address: impl ToSocketAddrs,
        space: u16,
        password: Option<&Password>,
    ) -> Result<AsyncClient, ClientError> {
        let unresolved = |source| ClientError::Connect { address: "the address given".into(), source };
        let mut failure = unresolved(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
        for address in lookup_host(address).await.map_err(unresolved)? {
            match Self::connect_within(address, space, password, HANDSHAKE_TIMEOUT).await {
                Err(error @ ClientError::Connect { .. }) => failure = error,
                connected_or_failed => return connected_or_failed,
            }
        }
        Err(failure)
    }

    async fn connect_within(
        address: SocketAddr,
        space: u16,
        password: Option<&Password>,
        limit: Duration,
    ) -> Result<AsyncClient, ClientError> {
        let (first, welcome) = open(address, password, None, limit).await?;
        let mut first = Some(first);
        let mut connections = Vec::with_capacity(usize::from(welcome.shard_count));
        for shard in 0..welcome.shard_count {
            connections.push(match first.take_if(|_| shard == welcome.shard) {
                Some(first) => first,
                None => open(address, password, Some((shard, welcome)), limit).await?.0,
            });
        }
        Ok(AsyncClient { exchange: Exchange::new(&welcome, space), address, connections })
    }

    /// Returns the number of the server's shards.
    pub fn shard_count(&self) -> u16 {
        self.exchange.shard_count()
    }

    /// Returns the server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Chooses another space of the server for the next operations.
    pub fn select(&mut self, space: u16) {
        self.exchange.select(space);
    }

    /// Executes any number of requests and returns their replies in the order of the requests. After an error there are
    /// no replies, and the requests may or may not have taken effect.
    pub async fn execute(&mut self, requests: &[Request<'_>], responses: &mut Responses) -> Result<(), ClientError> {
        responses.clear();
        self.run(requests).await?;
        self.exchange.swap_responses(responses);
        Ok(())
    }

    async fn execute_one(&mut self, request: &Request<'_>) -> Result<(), ClientError> {
        self.run(std::slice::from_ref(request)).await
    }

    async fn run(&mut self, requests: &[Request<'_>]) -> Result<(), ClientError> {
        self.exchange.begin(requests)?;
        std::future::poll_fn(|context| self.poll_exchange(context, requests)).await
    }

    /// Sends and receives on every lane until the sockets would block. Each socket that blocks has registered the
    /// waker.
    fn poll_exchange(&mut self, context: &mut Context<'_>, requests: &[Request<'_>]) -> Poll<Result<(), ClientError>> {
        for shard in 0..self.connections.len() {
            if let Poll::Ready(Err(error)) = self.poll_lane(context, shard, requests) {
                return Poll::Ready(Err(error));
            }
        }
        if self.exchange.is_finished() {
            self.exchange.end();
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    /// Sends and receives on one lane. Ready when the shard has sent all its replies.
    fn poll_lane(
        &mut self,
        context: &mut Context<'_>,
        shard: usize,
        requests: &[Request<'_>],
    ) -> Poll<Result<(), ClientError>> {
        let address = self.address;
        let failed = |error| ClientError::of_connection(address, error);
        loop {
            // A reply makes room for another frame, so sending is tried again after each reply.
            loop {
                let bytes = self.exchange.transmit(shard, requests);
                if bytes.is_empty() {
                    break;
                }
                match Pin::new(&mut self.connections[shard]).poll_write(context, bytes) {
                    Poll::Ready(size) => self.exchange.lane(shard).transmitted(size.map_err(failed)?),
                    Poll::Pending => break,
                }
            }
            if !self.exchange.lane(shard).is_waiting() {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(self.exchange.lane(shard).receive_buffer());
            ready!(Pin::new(&mut self.connections[shard]).poll_read(context, &mut buffer)).map_err(failed)?;
            let size = buffer.filled().len();
            if size == 0 {
                return Poll::Ready(Err(ClientError::Closed { address }));
            }
            self.exchange.received(shard, size).map_err(|source| ClientError::Protocol { address, source })?;
        }
    }
}

single_operations!(AsyncClient, [async], [.await]);
expiries!(AsyncClient, [async], [.await]);
scans!(AsyncClient, AsyncPages, [async], [.await]);

/// Connects and sends a hello.
async fn open(
    address: SocketAddr,
    password: Option<&Password>,
    expected: Option<(u16, Welcome)>,
    limit: Duration,
) -> Result<(TcpStream, Welcome), ClientError> {
    let connected = timeout(limit, TcpStream::connect(address)).await;
    let mut stream = connected
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|source| ClientError::Connect { address: address.to_string(), source })?;
    let mut handshake = Handshake::new(address, password, expected);
    let welcome = timeout(limit, async {
        stream.set_nodelay(true)?;
        stream.write_all(&handshake.hello()).await?;
        loop {
            let size = stream.read(handshake.receive_buffer()).await?;
            if let Some(result) = handshake.received(size).transpose() {
                return io::Result::Ok(result);
            }
        }
    });
    match welcome.await {
        Ok(Ok(welcome)) => Ok((stream, welcome?)),
        Ok(Err(error)) if is_closed(&error) => Err(handshake.failed(NotWelcome::Closed)),
        Ok(Err(source)) => Err(ClientError::Io { address, source }),
        Err(_) => Err(handshake.failed(NotWelcome::Silent(limit))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_that_does_not_reply_causes_a_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let error = AsyncClient::connect_within(address, 0, None, Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(error, ClientError::NotWelcome { reason: NotWelcome::Silent(_), .. }), "{error}");
    }
}
