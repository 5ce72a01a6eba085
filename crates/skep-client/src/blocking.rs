//! The blocking client: one connection to each shard, and `poll` over all of them.
//!
//! Sockets are in blocking mode, and each call states if it may block. In the common case, one shard has replies to
//! send and the client has nothing left to send. Then the client needs one blocking `recv`, and no `poll` before it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use skep_core::operation::{Filter, Operation, Page, PutCondition, Reduce, Request, ScanAnswer, Update};
use skep_wire::native::Welcome;

use crate::error::{ClientError, NotWelcome, is_closed};
use crate::exchange::Exchange;
use crate::expiries::{self, KeyExpiry, expiries};
use crate::handshake::Handshake;
use crate::lane::Lane;
use crate::operations::single_operations;
use crate::range::{self, KeyRange, Pair, ScanProgress};
use crate::reply;
use crate::responses::Responses;
use crate::retries::{Retries, are_silent};
use crate::scans::scans;
use crate::settings::ClientSettings;

/// A client whose calls return when the replies have arrived.
#[derive(Debug)]
pub struct Client {
    exchange: Exchange,
    address: SocketAddr,
    settings: ClientSettings,
    /// One connection to each shard, in the order of the shards. Empty after a failure.
    connections: Vec<TcpStream>,
    reconnection_count: u64,
}

impl Client {
    /// Connects to all shards of the server at this address, for operations on one of its spaces.
    pub fn connect(address: impl ToSocketAddrs, space: u16) -> Result<Client, ClientError> {
        Self::connect_with(address, space, &ClientSettings::default())
    }

    /// Connects as [`Client::connect`] does, with these settings. Fails at once if no server replies: only later calls
    /// connect again.
    pub fn connect_with(
        address: impl ToSocketAddrs,
        space: u16,
        settings: &ClientSettings,
    ) -> Result<Client, ClientError> {
        let settings = settings.within_bounds();
        let unresolved = |source| ClientError::Connect { address: "the address given".into(), source };
        let mut failure = unresolved(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
        for address in address.to_socket_addrs().map_err(unresolved)? {
            match open_all(address, &settings) {
                Err(error @ ClientError::Connect { .. }) => failure = error,
                Err(error) => return Err(error),
                Ok((connections, welcome)) => {
                    let exchange = Exchange::new(&welcome, space);
                    return Ok(Client { exchange, address, settings, connections, reconnection_count: 0 });
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
    pub fn address(&self) -> SocketAddr {
        self.address
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
        if !self.exchange.begin(requests.len()) || !are_silent(&self.connections) {
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
            let (connections, welcome) = open_all(self.address, &self.settings)?;
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

    /// Sends as many bytes as the socket accepts.
    fn send(&mut self, shard: usize, requests: &[Request<'_>]) -> Result<(), ClientError> {
        loop {
            let bytes = self.exchange.transmit(shard, requests);
            if bytes.is_empty() {
                return Ok(());
            }
            match send(&self.connections[shard], bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(size) => self.exchange.transmitted(shard, size),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Waits until a socket is ready, and receives the bytes that have arrived.
    fn wait(&mut self) -> Result<(), ClientError> {
        let begun = Instant::now();
        let lanes = self.exchange.lanes();
        let waiting: Vec<usize> = (0..lanes.len()).filter(|&shard| lanes[shard].is_waiting()).collect();
        if let [shard] = waiting[..]
            && !lanes[shard].is_sending()
        {
            return self.receive(shard, RecvFlags::empty());
        }

        let events = |lane: &Lane| match lane.is_sending() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        let poll_fd = |&shard: &usize| PollFd::new(&self.connections[shard], events(&lanes[shard]));
        let mut polled: Vec<PollFd<'_>> = waiting.iter().map(poll_fd).collect();
        loop {
            // A signal does not begin the time anew. A timeout is too long for the type only if it is longer than the
            // settings allow.
            let left = self.settings.reply_timeout.saturating_sub(begun.elapsed());
            match poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(self.timed_out()),
                Ok(_) => break,
                Err(error) => return Err(self.failed(error)),
            }
        }
        // A socket with an error is reported as ready too. The read then returns the error.
        let readable: Vec<bool> = polled.iter().map(|fd| !(fd.revents() - PollFlags::OUT).is_empty()).collect();
        for (shard, _) in waiting.into_iter().zip(readable).filter(|(_, readable)| *readable) {
            self.receive(shard, RecvFlags::DONTWAIT)?;
        }
        Ok(())
    }

    fn receive(&mut self, shard: usize, flags: RecvFlags) -> Result<(), ClientError> {
        let begun = Instant::now();
        loop {
            let buffer = self.exchange.lane(shard).receive_buffer();
            return match recv(&self.connections[shard], buffer, flags) {
                Ok((_, 0)) => Err(ClientError::Closed { address: self.address }),
                Ok((_, size)) => self
                    .exchange
                    .received(shard, size)
                    .map_err(|source| ClientError::Protocol { address: self.address, source }),
                Err(Errno::INTR) if begun.elapsed() < self.settings.reply_timeout => continue,
                // A receive that may block has the timeout of the socket.
                Err(Errno::AGAIN | Errno::INTR) if flags.is_empty() => Err(self.timed_out()),
                Err(Errno::AGAIN | Errno::INTR) => Ok(()),
                Err(error) => Err(self.failed(error)),
            };
        }
    }

    fn timed_out(&self) -> ClientError {
        ClientError::TimedOut { address: self.address, limit: self.settings.reply_timeout }
    }

    fn failed(&self, error: Errno) -> ClientError {
        ClientError::of_connection(self.address, error.into())
    }
}

single_operations!(Client, [], []);
expiries!(Client, [], []);
scans!(Client, Pages, [], []);

impl Iterator for Pages<'_, '_> {
    type Item = Result<Vec<Pair>, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_page()
    }
}

/// Connects to all shards of a server.
fn open_all(address: SocketAddr, settings: &ClientSettings) -> Result<(Vec<TcpStream>, Welcome), ClientError> {
    let (first, welcome) = open(address, settings, None)?;
    let mut first = Some(first);
    let connections = (0..welcome.shard_count)
        .map(|shard| match first.take_if(|_| shard == welcome.shard) {
            Some(first) => Ok(first),
            None => open(address, settings, Some((shard, welcome))).map(|(stream, _)| stream),
        })
        .collect::<Result<_, _>>()?;
    Ok((connections, welcome))
}

/// Connects and sends a hello.
fn open(
    address: SocketAddr,
    settings: &ClientSettings,
    expected: Option<(u16, Welcome)>,
) -> Result<(TcpStream, Welcome), ClientError> {
    let timeout = settings.connect_timeout;
    let mut stream = TcpStream::connect_timeout(&address, timeout)
        .map_err(|source| ClientError::Connect { address: address.to_string(), source })?;
    let mut handshake = Handshake::new(address, settings.password.as_ref(), expected);
    let welcome = (|| {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.write_all(&handshake.hello())?;
        loop {
            match stream.read(handshake.receive_buffer()) {
                Ok(size) => match handshake.received(size).transpose() {
                    Some(result) => return Ok(result),
                    None => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    })();
    match welcome {
        Ok(welcome) => {
            let welcome = welcome?;
            let timeout = Some(settings.reply_timeout);
            stream.set_read_timeout(timeout).map_err(|source| ClientError::Io { address, source })?;
            Ok((stream, welcome))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Err(handshake.failed(NotWelcome::Silent(timeout)))
        }
        Err(error) if is_closed(&error) => Err(handshake.failed(NotWelcome::Closed)),
        Err(source) => Err(ClientError::Io { address, source }),
    }
}

#[cfg(test)]
mod tests {
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
        set_socket_recv_buffer_size(&client.connections[0], SMALL).unwrap();
        set_socket_send_buffer_size(&client.connections[0], SMALL).unwrap();

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
