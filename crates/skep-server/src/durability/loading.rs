//! What clients hear while the data directory is read: Redis clients get `-LOADING` for each command, and the state for
//! `INFO`; native ones are refused by name. Those of shared memory, UDP, RDMA and memcached wait.
//!
//! One thread answers. Its connections end when the server serves, so clients connect again, as after a restart. It keeps
//! nothing of a request except the beginning of its name, so a request of any size gets its reply.

mod requests;

use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skep_wire::native::Refusal;
use skep_wire::resp::{ReplyWriter, Version};

use self::requests::{Invalid, Requests};
use crate::listen::Listeners;
use crate::start::Steps;
use crate::start_error::StartError;

/// Connections that are answered at a time. Others wait until one of them ends.
const CONNECTIONS_MAX: usize = 256;
/// The progress is told again after this time.
const REPORT_TIME: Duration = Duration::from_secs(2);
const MESSAGE: &str = "LOADING Skep is loading its data directory: send the command again later";

/// How much was read.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes of the directory's files, of which recovery may read fewer.
    size: u64,
    /// Bytes of all times that they are read.
    total: AtomicU64,
    /// Bytes of the snapshot and of the log that were read.
    bytes: AtomicU64,
    /// Pairs of the snapshot that were put.
    pairs: AtomicU64,
    /// Operations of the log that were executed.
    operations: AtomicU64,
}

impl Progress {
    /// Begins to read a directory.
    pub(crate) fn of(path: &Path) -> Progress {
        let files = std::fs::read_dir(path).into_iter().flatten().flatten();
        let is_data = |name: &str| name.starts_with("snapshot-") || name.starts_with("log-");
        let size = |file: &std::fs::DirEntry| file.metadata().map_or(0, |file| file.len());
        let size = files.filter(|file| file.file_name().to_str().is_some_and(is_data)).map(|file| size(&file)).sum();
        Progress { size, total: AtomicU64::new(size), ..Progress::default() }
    }

    /// Notes that the files will be read again, this number of times.
    pub(super) fn begin_again(&self, passes: u64) {
        self.total.fetch_add(self.size * passes, Ordering::Relaxed);
    }

    /// Returns the pairs that were put, and the operations of the log that were executed.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.pairs.load(Ordering::Relaxed), self.operations.load(Ordering::Relaxed))
    }

    /// Counts a part of the snapshot.
    pub(super) fn add_pairs(&self, bytes: u64, pairs: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.pairs.fetch_add(pairs, Ordering::Relaxed);
    }

    /// Counts a part of the log.
    pub(super) fn add_operations(&self, bytes: u64, operations: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }

    fn info(&self, since: Instant) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (total, bytes) = (self.total.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let (pairs, operations) = self.counts();
        let percent = 100.0 * bytes as f64 / total.max(1) as f64;
        let started = now.saturating_sub(since.elapsed()).as_secs();
        format!(
            "# Persistence\r\nloading:1\r\nasync_loading:0\r\nloading_start_time:{started}\r\nloading_total_bytes:{total}\r\n\
             loading_loaded_bytes:{bytes}\r\nloading_loaded_perc:{percent:.2}\r\nskep_loading_pairs:{pairs}\r\nskep_loading_operations:{operations}\r\n"
        )
    }
}

/// What clients are told while the directory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing: they see the end of their connection, because they speak TLS.
    Nothing,
    /// That the server is not ready.
    Loading,
    /// The progress too, to those that ask for `INFO`: the server has no password.
    Progress,
}

/// Calls `load`, and answers clients meanwhile.
pub(crate) fn answer_during<T>(
    listeners: &Listeners,
    told: Told,
    progress: &Progress,
    steps: &mut Steps,
    load: impl FnOnce() -> T,
) -> Result<T, StartError> {
    let (end, loading): (PipeReader, PipeWriter) = steps.open("a pipe", pipe)?;
    Ok(std::thread::scope(|scope| {
        scope.spawn(|| Answering::new(listeners, told, progress).run(&end));
        let result = load();
        drop(loading);
        result
    }))
}

/// The connections of the time while the directory is read.
struct Answering<'l> {
    native: &'l TcpListener,
    resp: Option<&'l TcpListener>,
    told: Told,
    progress: &'l Progress,
    connections: Vec<Client>,
    since: Instant,
    next_report: Instant,
}

struct Client {
    stream: TcpStream,
    requests: Requests,
}

impl<'l> Answering<'l> {
    fn new(listeners: &'l Listeners, told: Told, progress: &'l Progress) -> Self {
        let (native, resp) = listeners.while_loading();
        let since = Instant::now();
        let next_report = since + REPORT_TIME;
        Answering { native, resp, told, progress, connections: Vec::new(), since, next_report }
    }

    fn run(mut self, end: &PipeReader) {
        let limit = Timespec::try_from(REPORT_TIME).expect("it is short");
        loop {
            let has_room = self.connections.len() < CONNECTIONS_MAX;
            let listeners = [Some(self.native), self.resp].into_iter().flatten().take(if has_room { 2 } else { 0 });
            let mut events: Vec<PollFd<'_>> = vec![PollFd::new(end, PollFlags::IN)];
            events.extend(self.connections.iter().map(|client| PollFd::new(&client.stream, PollFlags::IN)));
            events.extend(listeners.map(|listener| PollFd::new(listener, PollFlags::IN)));
            let _ = poll(&mut events, Some(&limit));
            if !events[0].revents().is_empty() {
                return;
            }
            let ready: Vec<bool> = events[1..].iter().map(|event| !event.revents().is_empty()).collect();
            drop(events);
            let mut ready = ready.into_iter();
            let info = (self.told == Told::Progress).then(|| self.progress.info(self.since));
            self.connections.retain_mut(|client| ready.next() != Some(true) || client.serve(info.as_deref()));
            if has_room {
                self.accept();
            }
            if Instant::now() >= self.next_report {
                self.next_report += REPORT_TIME;
                let (pairs, operations) = self.progress.counts();
                tracing::info!(
                    pairs,
                    operations,
                    seconds = self.since.elapsed().as_secs(),
                    "loading the data directory"
                );
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((mut stream, _)) = self.native.accept() {
            if self.told == Told::Nothing {
                continue;
            }
            // If the client does not take it, it sees the end of the connection.
            let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(&Refusal::Loading.encode()));
        }
        while self.connections.len() < CONNECTIONS_MAX
            && let Some(Ok((stream, _))) = self.resp.map(TcpListener::accept)
        {
            if self.told != Told::Nothing && stream.set_nonblocking(true).is_ok() {
                self.connections.push(Client { stream, requests: Requests::default() });
            }
        }
    }
}

impl Client {
    /// Replies to the requests that have arrived. Returns false at the end of the connection.
    fn serve(&mut self, info: Option<&str>) -> bool {
        let mut buffer = [0; 16 << 10];
        let size = match self.stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(size) => size,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        };
        let mut output = Vec::new();
        let taken = self.requests.take(&buffer[..size], |name| {
            let mut writer = ReplyWriter::new(&mut output, Version::Two);
            match info {
                Some(info) if name.eq_ignore_ascii_case(b"info") => writer.text(info),
                _ => writer.error(MESSAGE),
            }
        });
        if let Err(Invalid) = taken {
            ReplyWriter::new(&mut output, Version::Two).error("ERR Protocol error");
        }
        // A client that takes no replies is not served.
        self.stream.write_all(&output).is_ok() && taken.is_ok()
    }
}
