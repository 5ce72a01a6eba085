//! A connection that speaks memcached's protocol to any server, and a server of memcached to compare with.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time in which memcached must start.
const WATCHDOG: Duration = Duration::from_secs(30);

/// In a command, the last number that the server has returned to `gets`.
pub(crate) const CAS: &str = "{cas}";

/// The command that follows each other one, and the end of its reply.
const MARK: &[u8] = b"mn\r\n";
const MARK_REPLY: &[u8] = b"MN\r\n";

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// A connection to a server.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    /// The last number of `gets`.
    cas: String,
}

impl Connection {
    /// Connects to an address.
    pub(crate) fn to_address(address: &str) -> Connection {
        let stream = TcpStream::connect(address).expect("the server accepts connections");
        stream.set_read_timeout(Some(WATCHDOG)).expect("a stream has timeouts");
        Connection::new(stream)
    }

    fn new(stream: impl Read + Write + 'static) -> Connection {
        Connection { stream: Box::new(stream), received: Vec::new(), cas: "1".to_owned() }
    }

    /// Sends commands. Returns the bytes of their replies. No reply has the line of the mark.
    pub(crate) fn run(&mut self, commands: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut request = Vec::new();
        for command in commands {
            let text = String::from_utf8_lossy(command).replace(CAS, &self.cas);
            request.extend_from_slice(text.as_bytes());
            request.extend_from_slice(MARK);
        }
        self.stream.write_all(&request).expect("the server takes requests");
        let replies: Vec<_> = commands.iter().map(|command| self.reply(command == b"mn\r\n")).collect();
        if let Some(index) = commands.iter().rposition(|command| command.starts_with(b"gets ")) {
            self.cas = number_of_gets(&replies[index]).unwrap_or_else(|| "1".to_owned());
        }
        replies
    }

    /// Returns the next reply. That to a mark itself ends with the second mark.
    fn reply(&mut self, is_mark: bool) -> Vec<u8> {
        let mut begin = 0;
        if is_mark {
            begin = self.end_of_mark(0);
        }
        let end = self.end_of_mark(begin);
        let mut reply: Vec<u8> = self.received.drain(..end).collect();
        reply.truncate(reply.len() - MARK_REPLY.len());
        reply
    }

    /// Returns the position after the first mark from a position on.
    fn end_of_mark(&mut self, begin: usize) -> usize {
        loop {
            let is_end = |index: &usize| *index == begin || self.received[..*index].ends_with(b"\n");
            let mut marks = begin..self.received.len();
            let found = marks.find(|index| self.received[*index..].starts_with(MARK_REPLY) && is_end(index));
            if let Some(index) = found {
                return index + MARK_REPLY.len();
            }
            let mut part = [0; 1 << 16];
            let size = match self.stream.read(&mut part) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.expect("the server replies"),
            };
            let so_far = self.received.escape_ascii();
            assert!(size > 0, "the server has closed the connection after {so_far}");
            self.received.extend_from_slice(&part[..size]);
        }
    }
}

/// Returns the number in the reply to `gets`, if it is one.
fn number_of_gets(reply: &[u8]) -> Option<String> {
    let line = reply.split(|byte| *byte == b'\r').next()?;
    let words: Vec<&str> = std::str::from_utf8(line).ok()?.split(' ').collect();
    (words.len() == 5 && words[0] == "VALUE").then(|| words[4].to_owned())
}

/// Returns true if two replies are equal, except for cas numbers, and for two seconds between the clocks of the servers.
pub(crate) fn agree(expected: &[u8], found: &[u8]) -> bool {
    let lines = |reply: &[u8]| reply.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (expected, found) = (lines(expected), lines(found));
    expected.len() == found.len() && expected.iter().zip(&found).all(|(one, other)| lines_agree(one, other))
}

fn lines_agree(expected: &[u8], found: &[u8]) -> bool {
    let words = |line: &[u8]| String::from_utf8_lossy(line).split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (expected, found) = (words(expected), words(found));
    let is_gets = expected.len() == 5 && expected[0] == "VALUE";
    let time = |word: &str| word.strip_prefix('t').and_then(|time| time.trim_end().parse::<i64>().ok());
    expected.len() == found.len()
        && expected.iter().zip(&found).enumerate().all(|(index, (one, other))| {
            let is_time = || time(one).zip(time(other)).is_some_and(|(one, other)| one.abs_diff(other) <= 2);
            one == other || is_gets && index == 4 || is_time()
        })
}

/// A server of memcached on a socket of its own.
pub(crate) struct Memcached {
    child: Child,
    socket: PathBuf,
}

impl Memcached {
    /// Starts `memcached`.
    pub(crate) fn start(name: &str) -> Memcached {
        let socket = std::env::temp_dir().join(format!("skep-{}-memcached-{name}.sock", std::process::id()));
        let mut command = Command::new("memcached");
        // As root, it wants the name of a user. Without the old form of its list of items, a second thread holds items at
        // times, and memcached does not change an item in place that is held.
        command.args(["-u", "root", "-m", "256", "-o", "no_modern", "-s"]).arg(&socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("memcached: {error}; Debian has a package of it"));
        Memcached { child, socket }
    }

    /// Connects to it as soon as it has started.
    pub(crate) fn connect(&self) -> Connection {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(WATCHDOG)).expect("a stream has timeouts");
                    return Connection::new(stream);
                }
                Err(error) => assert!(begun.elapsed() < WATCHDOG, "memcached does not start: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_file(&self.socket);
    }
}
