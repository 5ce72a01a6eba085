//! A server with shared memory for the tests, its metrics, and a client over shared memory that obeys no rule.

use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use skep_client::{Client, HASH_SPACE, ServerAddress};
use skep_server::{Server, ServerSettings};

/// Returns a path that no other test uses.
pub(crate) fn unused_path() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("skep-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(name)
}

/// Returns the settings of a server with shared memory, on free ports.
pub(crate) fn settings(shards: u16) -> ServerSettings {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    ServerSettings {
        native: any,
        resp: Some(any),
        shared_memory: Some(unused_path()),
        memory: u64::from(shards) << 26,
        ordered_memory: 64 << 20,
        shards,
        pin_threads: false,
        ..ServerSettings::default()
    }
}

/// Starts a server with these settings.
pub(crate) fn start(settings: &ServerSettings) -> Server {
    Server::start(settings).expect("the server starts")
}

/// Returns the path of the server's socket.
pub(crate) fn path_of(server: &Server) -> &Path {
    server.shared_memory_path().expect("the server has shared memory")
}

/// Connects a client over shared memory.
pub(crate) fn connect(server: &Server) -> Client {
    Client::connect(ServerAddress::SharedMemory(path_of(server).to_owned()), HASH_SPACE).expect("the server replies")
}

/// Sends a RESP command, and returns the text of the reply.
pub(crate) fn ask(server: &Server, command: &str) -> String {
    let mut stream = TcpStream::connect(server.resp_address().expect("the server has a RESP port")).unwrap();
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Returns a metric of `INFO clients`.
pub(crate) fn metric(server: &Server, name: &str) -> u64 {
    let text = ask(server, "INFO clients");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}: {text}")).trim().parse().unwrap()
}

/// The time after which a test gives up.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < WATCHDOG, "the condition does not hold after {WATCHDOG:?}");
        std::thread::yield_now();
    }
}

/// The words of a file, and its ring, in bytes.
pub(crate) const TAIL: u64 = 0;
pub(crate) const TAKEN: u64 = 64;
pub(crate) const WAIT: u64 = 128;
pub(crate) const RING: u64 = 4096;

/// A client that writes the bytes of its file itself.
pub(crate) struct RawClient {
    pub(crate) socket: UnixStream,
    pub(crate) requests: File,
    pub(crate) replies: File,
}

impl RawClient {
    /// Connects, and receives the files.
    pub(crate) fn connect(server: &Server) -> RawClient {
        let socket = UnixStream::connect(path_of(server)).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        recvmsg(&socket, &mut [IoSliceMut::new(&mut [0; 16])], &mut control, RecvFlags::empty()).unwrap();
        let files: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .collect();
        let [requests, replies] = files.try_into().expect("the greeting has two files");
        RawClient { socket, requests: requests.into(), replies: replies.into() }
    }

    /// Writes a word of the file of requests.
    pub(crate) fn set(&self, word: u64, value: u64) {
        self.requests.write_all_at(&value.to_le_bytes(), word).unwrap();
    }

    /// Reads a word of the file of replies.
    pub(crate) fn word_of_server(&self, word: u64) -> u64 {
        let mut bytes = [0; 8];
        self.replies.read_exact_at(&mut bytes, word).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Rings the doorbell, unless the server has closed the connection.
    pub(crate) fn ring(&self) -> bool {
        (&self.socket).write_all(&[1]).is_ok()
    }

    /// Writes bytes at the start of the ring, and rings.
    pub(crate) fn begin(&self, bytes: &[u8]) {
        self.requests.write_all_at(bytes, RING).unwrap();
        self.set(TAIL, bytes.len() as u64);
        self.ring();
    }
}
