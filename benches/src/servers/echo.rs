//! A server that executes nothing: it reads requests of one size and sends replies of another, all zeros.
//!
//! ```text
//! client ─▶ request size, reply size (u32, little-endian) │ bytes …
//! ```
//!
//! It polls while requests arrive and for one millisecond after the last one, then it sleeps.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

/// Bytes of the preface, which a client sends first.
pub(super) const PREFACE_SIZE: usize = 8;

/// Time to poll after the last event.
const POLLING: Duration = Duration::from_millis(1);
/// The most bytes in one read or write.
const BUFFER_SIZE: usize = 64 << 10;
/// The bytes of all replies.
static ZEROS: [u8; BUFFER_SIZE] = [0; BUFFER_SIZE];
/// The event of the listening socket.
const LISTENER: u64 = u64::MAX;

/// A connection.
struct Connection {
    stream: TcpStream,
    request_size: usize,
    reply_size: usize,
    /// Bytes of the last request, which is not complete.
    pending: usize,
    /// Reply bytes that are still to be sent.
    unsent: usize,
}

/// Prints a free address and serves there, until the listener fails.
pub fn serve() -> Result<(), String> {
    let listen = || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        println!("{}", listener.local_addr()?);
        serve_on(&listener)
    };
    listen().map_err(|error| error.to_string())
}

/// Serves until the listener fails.
pub(super) fn serve_on(listener: &TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut buffer = vec![0; BUFFER_SIZE];
    let mut events = Vec::with_capacity(64);
    let mut last = Instant::now();
    loop {
        events.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if last.elapsed() < POLLING { Some(&now) } else { None };
        match epoll::wait(&epoll, spare_capacity(&mut events), timeout) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if !events.is_empty() {
            last = Instant::now();
        }
        for event in &events {
            let index = event.data.u64();
            if index == LISTENER {
                // A client that only checks whether the port is open closes the connection without sending the sizes.
                if let Ok(connection) = listener.accept().and_then(|(stream, _)| Connection::begin(stream)) {
                    let data = epoll::EventData::new_u64(connections.len() as u64);
                    epoll::add(&epoll, &connection.stream, data, epoll::EventFlags::IN)?;
                    connections.push(Some(connection));
                }
                continue;
            }
            let connection = &mut connections[index as usize];
            if connection.as_mut().is_some_and(|connection| connection.serve(&mut buffer).is_err()) {
                *connection = None;
            }
        }
    }
}

impl Connection {
    /// Waits for the two sizes.
    fn begin(mut stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        let mut preface = [0; PREFACE_SIZE];
        stream.read_exact(&mut preface)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let [a, b, c, d, e, f, g, h] = preface;
        let size = |bytes| (u32::from_le_bytes(bytes) as usize).max(1);
        let (request_size, reply_size) = (size([a, b, c, d]), size([e, f, g, h]));
        Ok(Connection { stream, request_size, reply_size, pending: 0, unsent: 0 })
    }

    /// Reads the bytes that have arrived and replies to the complete requests.
    fn serve(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let size = match self.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(size) => size,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        self.pending += size;
        self.unsent += self.pending / self.request_size * self.reply_size;
        self.pending %= self.request_size;
        while self.unsent > 0 {
            match self.stream.write(&ZEROS[..self.unsent.min(BUFFER_SIZE)]) {
                Ok(size) => self.unsent -= size,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
