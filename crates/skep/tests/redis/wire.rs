//! A connection that speaks RESP to any server, and a server of Redis to compare with.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The arguments of a command.
pub(crate) type Arguments = Vec<Vec<u8>>;

/// The longest time in which Redis must start.
const WATCHDOG: Duration = Duration::from_secs(30);

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// A connection to a server.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
}

impl Connection {
    /// Connects to an address.
    pub(crate) fn to_address(address: &str) -> Connection {
        Connection::connect(address).expect("the server accepts connections")
    }

    /// Connects to an address, if a server listens there.
    pub(crate) fn connect(address: &str) -> Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(WATCHDOG))?;
        Ok(Connection { stream: Box::new(stream), received: Vec::new() })
    }

    /// Sends commands. Returns the bytes of their replies.
    pub(crate) fn run(&mut self, commands: &[Arguments]) -> Vec<Vec<u8>> {
        self.send(commands).expect("the server takes requests");
        commands.iter().map(|_| self.reply().expect("the server replies")).collect()
    }

    /// Sends commands.
    pub(crate) fn send(&mut self, commands: &[Arguments]) -> Result<()> {
        let mut request = Vec::new();
        for arguments in commands {
            write!(request, "*{}\r\n", arguments.len())?;
            for argument in arguments {
                write!(request, "${}\r\n", argument.len())?;
                request.extend_from_slice(argument);
                request.extend_from_slice(b"\r\n");
            }
        }
        self.stream.write_all(&request)
    }

    /// Waits for the next reply.
    pub(crate) fn reply(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(end) = reply_end(&self.received, 0) {
                return Ok(self.received.drain(..end).collect());
            }
            let mut part = [0; 1 << 16];
            let size = match self.stream.read(&mut part) {
                // The kernel interrupts a read with a timeout if the process was stopped and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            };
            if size == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.received.extend_from_slice(&part[..size]);
        }
    }
}

/// Returns the position after the reply at `begin`, if all of it has arrived.
pub(crate) fn reply_end(bytes: &[u8], begin: usize) -> Option<usize> {
    let line_end = begin + bytes[begin..].windows(2).position(|pair| pair == b"\r\n")?;
    let number = || std::str::from_utf8(&bytes[begin + 1..line_end]).expect("text").parse::<i64>().expect("a number");
    let mut end = line_end + 2;
    match bytes[begin] {
        b'+' | b'-' | b':' | b'_' | b',' | b'(' | b'#' => {}
        b'$' | b'=' if number() < 0 => {}
        b'$' | b'=' => end += number() as usize + 2,
        b'*' | b'~' => {
            for _ in 0..number().max(0) {
                end = reply_end(bytes, end)?;
            }
        }
        b'%' => {
            for _ in 0..2 * number() {
                end = reply_end(bytes, end)?;
            }
        }
        other => panic!("no reply begins with {}", other.escape_ascii()),
    }
    (end <= bytes.len()).then_some(end)
}

/// A server of Redis without persistence, on a socket of its own.
pub(crate) struct Redis {
    child: Child,
    socket: PathBuf,
}

impl Redis {
    /// Starts `redis-server` with the longest value that Skep has.
    pub(crate) fn start(name: &str) -> Redis {
        Redis::start_with(name, &["--port", "0"])
    }

    /// Starts it with these arguments too. Without another port, `--port 0` is needed.
    pub(crate) fn start_with(name: &str, arguments: &[&str]) -> Redis {
        let socket = std::env::temp_dir().join(format!("skep-{}-{name}.sock", std::process::id()));
        let mut command = Command::new("redis-server");
        command.args(arguments).arg("--unixsocket").arg(&socket).args(["--save", "", "--appendonly", "no"]);
        command.args(["--proto-max-bulk-len", "1mb", "--rdbcompression", "no", "--enable-protected-configs", "yes"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("redis-server: {error}; Debian has a package of it"));
        Redis { child, socket }
    }

    /// Connects to it as soon as it has started.
    pub(crate) fn connect(&self) -> Connection {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(WATCHDOG)).expect("a stream has timeouts");
                    return Connection { stream: Box::new(stream), received: Vec::new() };
                }
                Err(error) => assert!(begun.elapsed() < WATCHDOG, "redis-server does not start: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_file(&self.socket);
    }
}
