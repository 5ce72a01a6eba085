//! The asynchronous client: the same exchange as the blocking one, with tokio's sockets.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use rustls::ClientConfig;
use skep_core::function::FunctionHandle;
use skep_core::operation::{Call, Filter, Operation, Page, PutCondition, Reduce, Request, ScanAnswer, Update};
use skep_wire::native::{FUNCTIONS_SPACE, Welcome};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::lookup_host;
use tokio::time::{Instant, sleep, timeout};

use crate::address::{ResolvedAddress, ServerAddress};
use crate::async_stream::{AsyncStream, are_silent};
use crate::error::{ClientError, NotWelcome, is_closed};
use crate::exchange::Exchange;
use crate::expiries::{self, KeyExpiry, expiries};
use crate::functions::{self, ListedFunction, functions};
use crate::handshake::Handshake;
use crate::operations::single_operations;
use crate::range::{self, KeyRange, Pair, ScanProgress};
use crate::reply;
use crate::responses::Responses;
use crate::retries::Retries;
use crate::scans::scans;
use crate::settings::ClientSettings;
use crate::tls::{self, server_name};

/// A client whose calls are futures on tokio, with I/O and time enabled.
///
/// An update whose call is dropped before its end may have happened. The next call connects again, so that it cannot get
/// a reply to the dropped one.
#[derive(Debug)]
pub struct AsyncClient {
    exchange: Exchange,
    address: ResolvedAddress,
    settings: ClientSettings,
    /// The configuration of TLS, if the address is one of TLS.
    tls: Option<Arc<ClientConfig>>,
    /// One connection to each shard, in the order of the shards. Empty after a failure.
    connections: Vec<AsyncStream>,
    reconnection_count: u64,
}

impl AsyncClient {
    /// Connects to all shards of the server at this address, for operations on one of its spaces. The address must be one
    /// of TCP or TLS: the transports on which the client itself polls are for the blocking client.
    pub async fn connect(address: impl Into<ServerAddress>, space: u16) -> Result<AsyncClient, ClientError> {
        Self::connect_with(address, space, &ClientSettings::default()).await
    }

    /// Connects as [`AsyncClient::connect`] does, with these settings. Fails at once if no server replies: only later
    /// calls connect again.
    pub async fn connect_with(
        address: impl Into<ServerAddress>,
        space: u16,
        settings: &ClientSettings,
    ) -> Result<AsyncClient, ClientError> {
        let settings = settings.within_bounds();
        let given = address.into();
        let unresolved = |source| ClientError::Connect { address: given.to_string(), source };
        let (addresses, tls) = match &given {
            ServerAddress::Tcp(host) => {
                let found = lookup_host(host).await.map_err(unresolved)?;
                (found.map(ResolvedAddress::Tcp).collect::<Vec<_>>(), None)
            }
            ServerAddress::Tls(host) => {
                let failed = |reason| ClientError::Tls { address: given.to_string(), reason };
                let config = tls::configure(&settings.tls).map_err(failed)?;
                let found = lookup_host(host).await.map_err(unresolved)?;
                (found.map(|address| ResolvedAddress::secure(address, host)).collect(), Some(config))
            }
            _ => {
                let reason = "only the blocking client supports this transport";
                return Err(unresolved(io::Error::new(io::ErrorKind::Unsupported, reason)));
            }
        };
        let mut failure = unresolved(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
        for address in addresses {
            match open_all(&address, &settings, tls.as_ref()).await {
                Err(error @ ClientError::Connect { .. }) => failure = error,
                Err(error) => return Err(error),
                Ok((connections, welcome)) => {
                    let exchange = Exchange::new(&welcome, space);
                    return Ok(AsyncClient { exchange, address, settings, tls, connections, reconnection_count: 0 });
                }
            }
        }
        Err(failure)
    }

    /// Returns the number of the server's shards.
    pub fn shard_count(&self) -> u16 {
        self.exchange.shard_count()
    }

    /// Returns the server's address.
    pub fn address(&self) -> ResolvedAddress {
        self.address.clone()
    }

    /// Returns how often the client has connected again.
    pub fn reconnection_count(&self) -> u64 {
        self.reconnection_count
    }

    /// Chooses another space of the server for the next operations.
    pub fn select(&mut self, space: u16) {
        self.exchange.select(space);
    }

    /// Executes any number of requests and returns their replies in the order of the requests. After an error there are
    /// no replies. After [`ClientError::MayHaveHappened`], some updates may have happened and others not; after all other
    /// errors, none has.
    pub async fn execute(&mut self, requests: &[Request<'_>], responses: &mut Responses) -> Result<(), ClientError> {
        responses.clear();
        self.run(requests).await?;
        self.exchange.swap_responses(responses);
        Ok(())
    }

    async fn execute_one(&mut self, request: &Request<'_>) -> Result<(), ClientError> {
        self.run(std::slice::from_ref(request)).await
    }

    /// Executes the requests. Connects again after a failure, if that repeats no update.
    async fn run(&mut self, requests: &[Request<'_>]) -> Result<(), ClientError> {
        if !self.exchange.begin(requests.len()) || !are_silent(&mut self.connections) {
            self.connections.clear();
        }
        let mut retries = Retries::new(&self.settings);
        while let Err(error) = self.attempt(requests).await {
            sleep(retries.delay_after(error, &self.exchange, requests)?).await;
        }
        Ok(())
    }

    /// Connects if there are no connections, and executes the requests that have no reply.
    async fn attempt(&mut self, requests: &[Request<'_>]) -> Result<(), ClientError> {
        if self.connections.is_empty() {
            let (connections, welcome) = open_all(&self.address, &self.settings, self.tls.as_ref()).await?;
            self.exchange.reconnected(&welcome, requests);
            self.connections = connections;
            self.reconnection_count += 1;
        }
        self.exchange.assign(requests)?;
        self.transfer(requests).await.inspect_err(|_| self.connections.clear())
    }

    /// Sends and receives until all replies have arrived, or no byte has moved for too long.
    async fn transfer(&mut self, requests: &[Request<'_>]) -> Result<(), ClientError> {
        let (address, limit) = (self.address(), self.settings.reply_timeout);
        let mut timer = pin!(sleep(limit));
        std::future::poll_fn(|context| {
            let before = self.exchange.moved_bytes();
            if let Poll::Ready(result) = self.poll_exchange(context, requests) {
                return Poll::Ready(result);
            }
            if self.exchange.moved_bytes() > before {
                timer.as_mut().reset(Instant::now() + limit);
            }
            ready!(timer.as_mut().poll(context));
            Poll::Ready(Err(ClientError::TimedOut { address: address.clone(), limit }))
        })
        .await
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
        let address = &self.address;
        let failed = |error| ClientError::of_connection(address, error);
        loop {
            // A reply makes room for another frame, so sending is tried again after each reply.
            loop {
                let bytes = self.exchange.transmit(shard, requests);
                if bytes.is_empty() {
                    break;
                }
                match Pin::new(&mut self.connections[shard]).poll_write(context, bytes) {
                    Poll::Ready(size) => self.exchange.transmitted(shard, size.map_err(failed)?),
                    Poll::Pending => break,
                }
            }
            // What a session has encrypted may wait for the socket, which then wakes this task.
            if let Poll::Ready(flushed) = Pin::new(&mut self.connections[shard]).poll_flush(context) {
                flushed.map_err(failed)?;
            }
            if !self.exchange.lane(shard).is_waiting() {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(self.exchange.lane(shard).receive_buffer());
            ready!(Pin::new(&mut self.connections[shard]).poll_read(context, &mut buffer)).map_err(failed)?;
            let size = buffer.filled().len();
            if size == 0 {
                return Poll::Ready(Err(ClientError::Closed { address: address.clone() }));
            }
            let decoded = self.exchange.received(shard, size);
            decoded.map_err(|source| ClientError::Protocol { address: address.clone(), source })?;
        }
    }
}

single_operations!(AsyncClient, [async], [.await]);
expiries!(AsyncClient, [async], [.await]);
functions!(AsyncClient, [async], [.await]);
scans!(AsyncClient, AsyncPages, [async], [.await]);

/// Connects to all shards of a server.
async fn open_all(
    address: &ResolvedAddress,
    settings: &ClientSettings,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<(Vec<AsyncStream>, Welcome), ClientError> {
    let (first, welcome) = open(address, settings, tls, None).await?;
    let mut first = Some(first);
    let mut connections = Vec::with_capacity(usize::from(welcome.shard_count));
    for shard in 0..welcome.shard_count {
        connections.push(match first.take_if(|_| shard == welcome.shard) {
            Some(first) => first,
            None => open(address, settings, tls, Some((shard, welcome))).await?.0,
        });
    }
    Ok((connections, welcome))
}

/// Connects, and shakes hands if there is a configuration of TLS.
async fn connect(address: &ResolvedAddress, tls: Option<&Arc<ClientConfig>>) -> io::Result<AsyncStream> {
    match (address, tls) {
        (ResolvedAddress::Tcp(address), _) => AsyncStream::connect(*address).await,
        (ResolvedAddress::Tls { address, name }, Some(config)) => {
            let name = server_name(name).map_err(io::Error::other)?;
            AsyncStream::connect_secure(*address, name, config.clone()).await
        }
        _ => unreachable!("the client has refused other addresses, and has read the files for TLS"),
    }
}

/// Connects and sends a hello.
async fn open(
    address: &ResolvedAddress,
    settings: &ClientSettings,
    tls: Option<&Arc<ClientConfig>>,
    expected: Option<(u16, Welcome)>,
) -> Result<(AsyncStream, Welcome), ClientError> {
    let limit = settings.connect_timeout;
    let connected = timeout(limit, connect(address, tls)).await;
    let mut stream = connected
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|source| ClientError::of_connect(address, source))?;
    let mut handshake = Handshake::new(address, settings, expected);
    let welcome = timeout(limit, async {
        stream.write_all(&handshake.hello()).await?;
        stream.flush().await?;
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
        Ok(Err(source)) => Err(ClientError::of_connection(address, source)),
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
        let settings = ClientSettings { connect_timeout: Duration::from_millis(50), ..Default::default() };
        let error = AsyncClient::connect_with(address, 0, &settings).await.unwrap_err();
        assert!(matches!(error, ClientError::NotWelcome { reason: NotWelcome::Silent(_), .. }), "{error}");
    }
}
