//! The blocking client: one stream to each shard, and a wait for all of them.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use rustls::ClientConfig;
use skep_core::function::FunctionHandle;
use skep_core::operation::{Call, Filter, Operation, Page, PutCondition, Reduce, Request, ScanAnswer, Update};
use skep_wire::native::{FUNCTIONS_SPACE, Welcome};

use crate::address::{ResolvedAddress, ServerAddress};
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
use crate::stream::{Stream, Waiting, are_silent, wait};
use crate::tls;

/// A connection to one shard, over TCP or TLS: bytes of frames, without waiting. Other transports need the waits of a
/// [`Client`].
#[derive(Debug)]
pub struct ShardStream(Stream);

impl ShardStream {
    /// Sends as many of the bytes as the connection accepts now. Returns how many these are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes)
    }

    /// Receives bytes that have arrived. Returns how many these are, or 0 if the server has closed the connection. Fails with
    /// `WouldBlock` if none have.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.receive(buffer)
    }
}

/// A client whose calls return when the replies have arrived.
#[derive(Debug)]
pub struct Client {
    exchange: Exchange,
    address: ResolvedAddress,
    settings: ClientSettings,
    /// The configuration of TLS, if the address is one of TLS.
    tls: Option<Arc<ClientConfig>>,
    /// One connection to each shard, in the order of the shards. Empty after a failure.
    connections: Vec<Stream>,
    reconnection_count: u64,
}

impl Client {
    /// Connects to all shards of the server at this address, for operations on one of its spaces. The address decides
    /// the transport.
    pub fn connect(address: impl Into<ServerAddress>, space: u16) -> Result<Client, ClientError> {
        Self::connect_with(address, space, &ClientSettings::default())
    }

    /// Connects as [`Client::connect`] does, with these settings. Fails at once if no server replies: only later calls
    /// connect again.
    pub fn connect_with(
        address: impl Into<ServerAddress>,
        space: u16,
        settings: &ClientSettings,
    ) -> Result<Client, ClientError> {
        let settings = settings.within_bounds();
        let given = address.into();
        let unresolved = |source| ClientError::Connect { address: given.to_string(), source };
        let tls = match given {
            ServerAddress::Tls(_) => Some(
                tls::configure(&settings.tls)
                    .map_err(|reason| ClientError::Tls { address: given.to_string(), reason })?,
            ),
            _ => None,
        };
        let mut failure = unresolved(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
        for address in given.resolve().map_err(unresolved)? {
            match open_all(&address, &settings, tls.as_ref()) {
                Err(error @ ClientError::Connect { .. }) => failure = error,
                Err(error) => return Err(error),
                Ok((connections, welcome)) => {
                    let exchange = Exchange::new(&welcome, space);
                    return Ok(Client { exchange, address, settings, tls, connections, reconnection_count: 0 });
                }
            }
        }
        Err(failure)
    }

    /// Returns its connections, one to each shard in their order, for a program that encodes frames itself. They do not
    /// connect again.
    pub fn into_streams(self) -> Vec<ShardStream> {
        self.connections.into_iter().map(ShardStream).collect()
    }

    /// Returns the number of the server's shards.
    pub fn shard_count(&self) -> u16 {
        self.exchange.shard_count()
    }

    /// Returns the server's address.
    pub fn address(&self) -> &ResolvedAddress {
        &self.address
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
    pub fn execute(&mut self, requests: &[Request<'_>], responses: &mut Responses) -> Result<(), ClientError> {
        responses.clear();
        self.run(requests)?;
        self.exchange.swap_responses(responses);
        Ok(())
    }

    fn execute_one(&mut self, request: &Request<'_>) -> Result<(), ClientError> {
        self.run(std::slice::from_ref(request))
    }

    /// Executes the requests. Connects again after a failure, if that repeats no update.
    fn run(&mut self, requests: &[Request<'_>]) -> Result<(), ClientError> {
        if !self.exchange.begin(requests.len()) || !are_silent(&mut self.connections) {
            self.connections.clear();
        }
        let mut retries = Retries::new(&self.settings);
        while let Err(error) = self.attempt(requests) {
            thread::sleep(retries.delay_after(error, &self.exchange, requests)?);
        }
        Ok(())
    }

    /// Connects if there are no connections, and executes the requests that have no reply.
    fn attempt(&mut self, requests: &[Request<'_>]) -> Result<(), ClientError> {
        if self.connections.is_empty() {
            let (connections, welcome) = open_all(&self.address, &self.settings, self.tls.as_ref())?;
            self.exchange.reconnected(&welcome, requests);
            self.connections = connections;
            self.reconnection_count += 1;
        }
        self.exchange.assign(requests)?;
        self.transfer(requests).inspect_err(|_| self.connections.clear())
    }

    /// Alternates between sending and waiting for replies, until all replies have arrived.
    fn transfer(&mut self, requests: &[Request<'_>]) -> Result<(), ClientError> {
        loop {
            for shard in 0..self.connections.len() {
                self.send(shard, requests)?;
            }
            if self.exchange.is_finished() {
                self.exchange.end();
                return Ok(());
            }
            self.wait()?;
        }
    }

    /// Sends as many bytes as the connection accepts.
    fn send(&mut self, shard: usize, requests: &[Request<'_>]) -> Result<(), ClientError> {
        loop {
            let bytes = self.exchange.transmit(shard, requests);
            if bytes.is_empty() {
                return Ok(());
            }
            match self.connections[shard].send(bytes) {
                Ok(size) => self.exchange.transmitted(shard, size),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Waits until a connection is ready, and receives the bytes that have arrived.
    fn wait(&mut self) -> Result<(), ClientError> {
        let limit = self.settings.reply_timeout;
        let lanes = self.exchange.lanes().iter().enumerate();
        let waiting: Vec<Waiting> =
            lanes.filter(|(_, lane)| lane.is_waiting()).map(|(shard, lane)| (shard, lane.is_sending())).collect();
        if let [(shard, false)] = waiting[..] {
            let buffer = self.exchange.lane(shard).receive_buffer();
            let received = self.connections[shard].receive_within(buffer, limit);
            let size = received.map_err(|error| self.failed(error))?.ok_or_else(|| self.timed_out())?;
            return self.received(shard, size);
        }

        let readable = wait(&mut self.connections, &waiting, limit).map_err(|error| self.failed(error))?;
        for shard in readable.ok_or_else(|| self.timed_out())? {
            match self.connections[shard].receive(self.exchange.lane(shard).receive_buffer()) {
                Ok(size) => self.received(shard, size)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    /// Decodes bytes that have arrived.
    fn received(&mut self, shard: usize, size: usize) -> Result<(), ClientError> {
        if size == 0 {
            return Err(ClientError::Closed { address: self.address.clone() });
        }
        let decoded = self.exchange.received(shard, size);
        decoded.map_err(|source| ClientError::Protocol { address: self.address.clone(), source })
    }

    fn timed_out(&self) -> ClientError {
        ClientError::TimedOut { address: self.address.clone(), limit: self.settings.reply_timeout }
    }

    fn failed(&self, error: io::Error) -> ClientError {
        ClientError::of_connection(&self.address, error)
    }
}

single_operations!(Client, [], []);
expiries!(Client, [], []);
functions!(Client, [], []);
scans!(Client, Pages, [], []);

impl Iterator for Pages<'_, '_> {
    type Item = Result<Vec<Pair>, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_page()
    }
}

/// Connects to all shards of a server.
fn open_all(
    address: &ResolvedAddress,
    settings: &ClientSettings,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<(Vec<Stream>, Welcome), ClientError> {
    let (first, welcome) = open(address, settings, tls, None)?;
    let mut first = Some(first);
    let connections = (0..welcome.shard_count)
        .map(|shard| match first.take_if(|_| shard == welcome.shard) {
            Some(first) => Ok(first),
            None => open(address, settings, tls, Some((shard, welcome))).map(|(stream, _)| stream),
        })
        .collect::<Result<_, _>>()?;
    Ok((connections, welcome))
}

/// Connects and sends a hello.
fn open(
    address: &ResolvedAddress,
    settings: &ClientSettings,
    tls: Option<&Arc<ClientConfig>>,
    expected: Option<(u16, Welcome)>,
) -> Result<(Stream, Welcome), ClientError> {
    let limit = settings.connect_timeout;
    let shard = expected.map_or(0, |(shard, _)| shard);
    let mut stream = Stream::connect(&address.of_shard(shard), tls, limit)
        .map_err(|source| ClientError::of_connect(address, source))?;
    let mut handshake = Handshake::new(address, settings, expected);
    let welcome = (|| {
        let hello = handshake.hello();
        let mut sent = 0;
        while sent < hello.len() {
            // A new connection takes the bytes of a hello at once.
            sent += stream.send(&hello[sent..])?;
        }
        loop {
            let Some(size) = stream.receive_within(handshake.receive_buffer(), limit)? else { return Ok(None) };
            if let Some(result) = handshake.received(size).transpose() {
                return io::Result::Ok(Some(result));
            }
        }
    })();
    match welcome {
        Ok(Some(welcome)) => Ok((stream, welcome?)),
        Ok(None) => Err(handshake.failed(NotWelcome::Silent(limit))),
        Err(error) if is_closed(&error) => Err(handshake.failed(NotWelcome::Closed)),
        Err(source) => Err(ClientError::of_connection(address, source)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
    use skep_core::operation::Reply;
    use skep_wire::native::{Hello, REQUEST_FRAME_SIZE_MAX, ReplyFrameWriter, RequestFrame};

    use super::*;

    #[test]
    fn a_server_that_does_not_reply_causes_a_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let settings = ClientSettings { connect_timeout: Duration::from_millis(50), ..Default::default() };
        let error = Client::connect_with(address, 0, &settings).unwrap_err();
        assert!(matches!(error, ClientError::NotWelcome { reason: NotWelcome::Silent(_), .. }), "{error}");
        assert!(error.to_string().contains(&address.to_string()));
    }

    /// Replies to every operation with this value. Reads no frame before the last reply of the previous one was
    /// received.
    fn serve_value(listener: &TcpListener, value: &[u8]) -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.read_exact(&mut [0; Hello::SIZE])?;
        let frame_size_max = u32::try_from(REQUEST_FRAME_SIZE_MAX).expect("the limit fits the welcome");
        stream.write_all(&Welcome { shard_count: 1, shard: 0, frame_size_max, partition_seed: 0 }.encode())?;
        let mut bytes = Vec::new();
        loop {
            let mut piece = [0; 4096];
            match stream.read(&mut piece)? {
                0 => return Ok(()),
                size => bytes.extend_from_slice(&piece[..size]),
            }
            while let Some((frame, consumed)) = RequestFrame::decode(&bytes).map_err(io::Error::other)? {
                let mut output = Vec::new();
                let mut writer = ReplyFrameWriter::new(&mut output, frame.sequence);
                frame.operations().for_each(|_| writer.push(Ok(Reply::Value(value))));
                writer.finish();
                stream.write_all(&output)?;
                bytes.drain(..consumed);
            }
        }
    }

    /// Size of the socket buffers in bytes, far less than a value.
    const SMALL: usize = 128 << 10;

    #[test]
    fn small_socket_buffers_do_not_cause_a_deadlock() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Accepted sockets inherit the buffer sizes.
        set_socket_recv_buffer_size(&listener, SMALL).unwrap();
        set_socket_send_buffer_size(&listener, SMALL).unwrap();
        let value = vec![7; 1 << 20];
        let server = thread::spawn({
            let value = value.clone();
            move || serve_value(&listener, &value)
        });
        let mut client = Client::connect(address, 0).unwrap();
        let Stream::Tcp(socket, _) = &client.connections[0] else { panic!("the address is one of TCP") };
        set_socket_recv_buffer_size(socket, SMALL).unwrap();
        set_socket_send_buffer_size(socket, SMALL).unwrap();

        // The values differ, because otherwise the copy flag would let them share a frame.
        let other = vec![8; 1 << 20];
        let values = [&value, &other, &value, &other, &value, &other];
        let put = |value| Operation::Put { value, condition: PutCondition::Always };
        let requests = values.map(|value| Request { key: b"k", operation: put(value) });
        let mut responses = Responses::new();
        client.execute(&requests, &mut responses).unwrap();
        assert!(responses.iter().all(|response| response == Ok(Reply::Value(&value))));
        drop(client);
        server.join().unwrap().unwrap();
    }
}
