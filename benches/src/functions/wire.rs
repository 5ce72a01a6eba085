//! A client that sends encoded batches again and again, the same code for all servers: one thread, many connections, one
//! batch in flight on each. It polls, as that of `servers` does.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use skep_core::operation::Reply;
use skep_measure::Work;
use skep_wire::native::{Hello, ReplyFrame, Welcome};

use crate::servers::Protocol;

/// The most bytes in one read.
const BUFFER_SIZE: usize = 64 << 10;
/// A server that sends nothing for this long has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an integer of one digit in RESP.
const RESP_SIZE: usize = 4;

/// Encoded batches.
pub(super) struct Batches {
    pub(super) protocol: Protocol,
    /// Operations in a batch.
    pub(super) depth: usize,
    /// The batches. Every reply is a byte, or in RESP an integer of one digit.
    pub(super) bytes: Vec<Vec<u8>>,
}

/// Connections to one server.
pub(super) struct Wire {
    connections: Vec<Connection>,
    /// The batch that is sent next.
    next: usize,
}

struct Connection {
    stream: TcpStream,
    is_waiting: bool,
    /// Bytes of replies that have arrived.
    arrived: Vec<u8>,
}

impl Wire {
    /// Connects, and performs the handshake of the protocol.
    pub(super) fn connect(address: SocketAddr, protocol: Protocol, count: usize) -> Result<Wire, String> {
        let connect = || {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            if protocol == Protocol::Native {
                stream.write_all(&Hello::new(None).encode())?;
                let mut welcome = [0; Welcome::SIZE];
                stream.read_exact(&mut welcome)?;
                Welcome::decode(&welcome).map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))?;
            }
            stream.set_nonblocking(true)?;
            Ok(Connection { stream, is_waiting: false, arrived: Vec::new() })
        };
        let connections = (0..count).map(|_| connect()).collect::<Result<_, std::io::Error>>();
        let connections = connections.map_err(|error| format!("cannot connect to {address}: {error}"))?;
        Ok(Wire { connections, next: 0 })
    }

    /// Sends batches for this time, and waits for all replies.
    pub(super) fn run(&mut self, batches: &Batches, at_least: Duration) -> Result<Work, String> {
        let begun = Instant::now();
        let (mut operations, mut last) = (0, begun);
        let mut buffer = vec![0; BUFFER_SIZE];
        for connection in &mut self.connections {
            connection.send(batches, &mut self.next)?;
        }
        let mut in_flight = self.connections.len();
        while in_flight > 0 {
            let is_over = begun.elapsed() >= at_least;
            for connection in self.connections.iter_mut().filter(|connection| connection.is_waiting) {
                let Some(is_complete) = connection.receive(batches, &mut buffer)? else { continue };
                last = Instant::now();
                if is_complete {
                    operations += batches.depth;
                    match is_over {
                        true => in_flight -= 1,
                        false => connection.send(batches, &mut self.next)?,
                    }
                }
            }
            if last.elapsed() > PATIENCE {
                return Err(format!("no more replies over {:?}", batches.protocol));
            }
        }
        Ok(Work { spent: begun.elapsed(), operations })
    }
}

impl Connection {
    fn send(&mut self, batches: &Batches, next: &mut usize) -> Result<(), String> {
        let mut bytes = &batches.bytes[*next % batches.bytes.len()][..];
        *next += 1;
        self.is_waiting = true;
        self.arrived.clear();
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(size) => bytes = &bytes[size..],
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(format!("cannot send: {error}")),
            }
        }
        Ok(())
    }

    /// Reads what has arrived. Returns true if the replies are complete, `None` if nothing has arrived.
    fn receive(&mut self, batches: &Batches, buffer: &mut [u8]) -> Result<Option<bool>, String> {
        match self.stream.read(buffer) {
            Ok(0) => return Err("the server closed a connection".to_owned()),
            Ok(size) => self.arrived.extend_from_slice(&buffer[..size]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(None),
            Err(error) => return Err(format!("cannot receive: {error}")),
        }
        let count = match batches.protocol {
            Protocol::Native => count_native(&self.arrived),
            _ => count_resp(&self.arrived),
        };
        match count {
            Some(count) if count <= batches.depth => {
                self.is_waiting = count < batches.depth;
                Ok(Some(!self.is_waiting))
            }
            _ => {
                let shown = &self.arrived[..self.arrived.len().min(100)];
                Err(format!("wrong replies over {:?}: {}", batches.protocol, shown.escape_ascii()))
            }
        }
    }
}

/// Returns the number of integers that have arrived, or `None` if there is something else. Looks at the first and at the
/// last of them.
fn count_resp(arrived: &[u8]) -> Option<usize> {
    let whole = &arrived[..arrived.len() - arrived.len() % RESP_SIZE];
    let is_right = |reply: &[u8]| matches!(reply, [b':', b'0' | b'1', b'\r', b'\n']);
    let mut ends = whole.first_chunk::<RESP_SIZE>().into_iter().chain(whole.last_chunk());
    let is_begun = arrived.first().is_none_or(|first| *first == b':');
    (is_begun && ends.all(|reply| is_right(reply))).then_some(whole.len() / RESP_SIZE)
}

/// Returns the number of replies that have arrived in whole frames, or `None` if the first of a frame is no byte.
fn count_native(mut arrived: &[u8]) -> Option<usize> {
    let mut count = 0;
    while let Some((frame, size)) = ReplyFrame::decode(arrived).ok()? {
        let first = frame.replies().next()?.ok()?.ok()?;
        let Reply::Value([_]) = first else { return None };
        count += usize::from(frame.count);
        arrived = &arrived[size..];
    }
    Some(count)
}
