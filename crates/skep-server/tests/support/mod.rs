//! What the tests of the server share: a small server, and a RESP client that compares bytes.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use skep_core::operation::Request;
use skep_server::{Password, Server, ServerSettings};
use skep_wire::native::{HASH_SPACE, Hello, ReplyFrame, RequestFrameWriter, Response, Welcome};

/// Starts a server on free ports.
pub(crate) fn server(shards: u16, memory: u64) -> Server {
    server_with_delay_max(shards, memory, None)
}

/// Starts a server on free ports that refuses with `BUSY` rather than replies later than this, if it may.
pub(crate) fn server_with_delay_max(shards: u16, memory: u64, delay_max: Option<Duration>) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings {
        native: any,
        resp: Some(any),
        memory,
        shards,
        delay_max,
        pin_threads: false,
        ..ServerSettings::default()
    };
    Server::start(&settings).expect("the server starts")
}

/// Starts a server on free ports with some other settings.
pub(crate) fn server_with(change: impl FnOnce(&mut ServerSettings)) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut settings = ServerSettings { native: any, resp: Some(any), ..ServerSettings::default() };
    change(&mut settings);
    Server::start(&settings).expect("the server starts")
}

/// Connects a socket that does not wait without end.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Receives bytes. A process that was stopped and goes on repeats the call: the kernel interrupts one with a timeout.
pub(crate) fn receive(mut stream: impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// A RESP connection.
pub(crate) struct Resp(pub(crate) TcpStream);

impl Resp {
    pub(crate) fn connect(server: &Server) -> Resp {
        Resp(connect(server.resp_address().expect("the server speaks RESP")))
    }

    /// Sends bytes and expects exactly these in return.
    #[track_caller]
    pub(crate) fn expect(&mut self, sent: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
        self.0.write_all(sent.as_ref()).unwrap();
        self.expect_bytes(expected);
    }

    /// Sends bytes.
    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Receives an integer.
    #[track_caller]
    pub(crate) fn integer(&mut self) -> i64 {
        let line = self.line();
        line.strip_prefix(':').and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{line}"))
    }

    /// Receives a line, with its end.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// Sends bytes and receives a line.
    #[track_caller]
    pub(crate) fn text_of_line(&mut self, bytes: &str) -> String {
        self.send(bytes);
        self.line()
    }

    /// Expects exactly these bytes.
    #[track_caller]
    pub(crate) fn expect_bytes(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut found = vec![0; expected.len()];
        let mut size = 0;
        let mut same = true;
        while size < found.len() && same {
            match receive(&self.0, &mut found[size..]) {
                Ok(0) => break,
                Ok(count) => {
                    same = found[size..size + count] == expected[size..size + count];
                    size += count;
                }
                Err(error) => panic!("{error} after {:?}", found[..size].escape_ascii().to_string()),
            }
        }
        if found[..size] != *expected {
            assert_eq!(found[..size].escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }

    /// Expects the end of the connection and nothing before it.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("a clean end");
        assert_eq!(rest.escape_ascii().to_string(), "");
    }

    /// Sends a line and replies the bulk string or text in return.
    #[track_caller]
    pub(crate) fn text(&mut self, line: &str) -> String {
        self.0.write_all(line.as_bytes()).unwrap();
        self.0.write_all(b"\r\n").unwrap();
        let header = self.line();
        let size: usize = header[1..].trim().parse().unwrap_or_else(|_| panic!("{header}"));
        let mut text = vec![0; size + 2];
        self.0.read_exact(&mut text).unwrap();
        text.truncate(size);
        String::from_utf8(text).unwrap()
    }
}

/// A native connection that sends whole frames and waits for their replies.
pub(crate) struct Native {
    pub(crate) stream: TcpStream,
    pub(crate) welcome: Welcome,
    received: Vec<u8>,
    consumed: usize,
}

impl Native {
    /// Connects to a shard.
    pub(crate) fn connect(server: &Server, shard: Option<u16>) -> Native {
        let mut stream = connect(server.native_address());
        stream.write_all(&Hello::new(shard).encode()).unwrap();
        let mut welcome = [0; Welcome::SIZE];
        stream.read_exact(&mut welcome).unwrap();
        Native::welcomed(stream, Welcome::decode(&welcome).unwrap().expect("a whole welcome"))
    }

    /// Connects as a user.
    pub(crate) fn log_in(server: &Server, user: &str, password: &[u8]) -> Native {
        let mut stream = connect(server.native_address());
        let hello = Hello { shard: None, user: user.to_owned(), password: Password::new(password) };
        stream.write_all(&hello.encode()).unwrap();
        let mut welcome = [0; Welcome::SIZE];
        stream.read_exact(&mut welcome).unwrap();
        Native::welcomed(stream, Welcome::decode(&welcome).unwrap().expect("a whole welcome"))
    }

    /// Returns the connection of a stream that got this welcome.
    pub(crate) fn welcomed(stream: TcpStream, welcome: Welcome) -> Native {
        Native { stream, welcome, received: Vec::new(), consumed: 0 }
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Hands the replies to the frame of this sequence, and the number of each, to `each`.
    #[track_caller]
    pub(crate) fn receive(&mut self, sequence: u32, count: usize, mut each: impl FnMut(usize, Response<'_>)) {
        let mut replied = 0;
        loop {
            let decoded = ReplyFrame::decode(&self.received[self.consumed..]).expect("a reply frame");
            let Some((frame, size)) = decoded else {
                self.received.drain(..self.consumed);
                self.consumed = 0;
                let mut piece = vec![0; 64 << 10];
                let size = receive(&self.stream, &mut piece).expect("a reply in time");
                assert!(size > 0, "the connection ended after {replied} of {count} replies");
                self.received.extend_from_slice(&piece[..size]);
                continue;
            };
            assert_eq!(frame.sequence, sequence);
            for response in frame.replies() {
                each(replied, response.expect("a reply"));
                replied += 1;
            }
            self.consumed += size;
            if replied >= count {
                assert_eq!(replied, count);
                return;
            }
        }
    }

    /// Sends requests in one frame and hands each reply to `each`.
    pub(crate) fn execute(&mut self, sequence: u32, requests: &[Request<'_>], each: impl FnMut(usize, Response<'_>)) {
        self.send(&frame(sequence, requests));
        self.receive(sequence, requests.len(), each);
    }
}

/// Returns a frame of requests to the hash space that fit into one.
pub(crate) fn frame(sequence: u32, requests: &[Request<'_>]) -> Vec<u8> {
    frame_in(HASH_SPACE, sequence, requests)
}

/// Returns a frame of requests to a space that fit into one.
pub(crate) fn frame_in(space: u16, sequence: u32, requests: &[Request<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = RequestFrameWriter::new(&mut bytes, sequence, space);
    for request in requests {
        assert!(writer.push(request), "the requests fit into a frame");
    }
    writer.finish();
    bytes
}

/// Returns a request as clients send it.
pub(crate) fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns the seeds of random tests: `SKEP_SEED`, or a few fixed ones.
pub(crate) fn seeds() -> Vec<u64> {
    match std::env::var("SKEP_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKEP_SEED is a number")],
        Err(_) => vec![1, 2, 3],
    }
}
