//! A server that does what a script says: it replies, closes a connection in the middle of a request or a reply, or
//! never replies. It records each operation that it has executed, so that a test can count them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use skep_client::{Operation, Refusal, Reply, Request, ScanAnswer, ScanLease};
use skep_core::operation::PageWriter;
use skep_store::naive::{EXPIRIES_END, NaiveStore};
use skep_wire::native::{Hello, REQUEST_FRAME_SIZE_MAX, ReplyFrameWriter, RequestFrame, Welcome};

/// The lease of all pages.
pub(crate) const LEASE: u64 = 7;

/// One step of a connection. The server closes a connection after its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Sends a welcome. A connection without this step is closed after the hello.
    Welcome,
    /// Refuses the password.
    Refuse,
    /// Executes a frame, and replies.
    Reply,
    /// Executes a frame, and sends half of the reply.
    ReplyHalf,
    /// Executes a frame.
    Execute,
    /// Reads a part of a frame, which is never executed.
    ReadPart,
    /// Replies to a scan with a page of one key, after which more follow.
    Page,
    /// Leaves the connection open while the next ones run.
    KeepOpen,
    /// Executes a frame, and replies after the welcome of the next connection.
    ReplyLate,
}

/// A server, and the operations that it has executed on each connection.
pub(crate) struct ScriptedServer {
    pub(crate) address: SocketAddr,
    record: Arc<Mutex<Record>>,
    thread: JoinHandle<()>,
}

/// The work of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The operations that were executed on each connection that was accepted.
    pub(crate) executed: Vec<Vec<String>>,
    /// Number of connections whose steps have ended.
    ended: usize,
}

impl ScriptedServer {
    /// Starts a server that accepts one connection after another, one for each list of steps. Then it refuses
    /// connections.
    pub(crate) fn start(script: &[&[Step]]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let record = Arc::new(Mutex::new(Record::default()));
        let script: Vec<Vec<Step>> = script.iter().map(|steps| steps.to_vec()).collect();
        let mut run = Run { listener, store: NaiveStore::new(), record: Arc::clone(&record), late: Vec::new() };
        run.store.set_now(EXPIRIES_END);
        let thread = thread::spawn(move || run.all(&script));
        ScriptedServer { address, record, thread }
    }

    /// Returns the operations that were executed so far, for each accepted connection.
    pub(crate) fn executed(&self) -> Vec<Vec<String>> {
        self.record.lock().unwrap().executed.clone()
    }

    /// Waits for the end of the script. Then all connections are closed, and new ones are refused.
    pub(crate) fn wait(self) -> Vec<Vec<String>> {
        self.thread.join().unwrap();
        Arc::into_inner(self.record).unwrap().into_inner().unwrap().executed
    }

    /// Waits until this many connections have ended.
    pub(crate) fn wait_for_end_of(&self, count: usize) {
        while self.record.lock().unwrap().ended < count {
            thread::yield_now();
        }
    }
}

/// The thread of a server.
struct Run {
    listener: TcpListener,
    store: NaiveStore,
    record: Arc<Mutex<Record>>,
    /// Connections that are open although another one runs, and their late replies.
    late: Vec<(TcpStream, Vec<u8>)>,
}

impl Run {
    fn all(mut self, script: &[Vec<Step>]) {
        for steps in script {
            let (mut stream, _) = self.listener.accept().unwrap();
            self.record.lock().unwrap().executed.push(Vec::new());
            let mut hello = [0; Hello::SIZE];
            stream.read_exact(&mut hello).unwrap();
            let mut bytes = Vec::new();
            let mut late = None;
            for &step in steps {
                match step {
                    Step::Welcome => self.welcome(&mut stream),
                    Step::Refuse => stream.write_all(&Refusal::PasswordWrong.encode()).unwrap(),
                    Step::ReadPart => _ = stream.read(&mut [0; 10]).unwrap(),
                    Step::KeepOpen => late = Some(Vec::new()),
                    _ => {
                        let reply = self.execute(&mut stream, &mut bytes, step);
                        let size = match step {
                            Step::Reply | Step::Page => reply.len(),
                            Step::ReplyHalf => reply.len() / 2,
                            _ => 0,
                        };
                        stream.write_all(&reply[..size]).unwrap();
                        if step == Step::ReplyLate {
                            late = Some(reply);
                        }
                    }
                }
            }
            match late {
                Some(reply) => self.late.push((stream, reply)),
                None => drop(stream),
            }
            self.record.lock().unwrap().ended += 1;
        }
    }

    fn welcome(&mut self, stream: &mut TcpStream) {
        let frame_size_max = u32::try_from(REQUEST_FRAME_SIZE_MAX).unwrap();
        let welcome = Welcome { shard_count: 1, shard: 0, frame_size_max, partition_seed: 0 };
        stream.write_all(&welcome.encode()).unwrap();
        for (stream, reply) in &mut self.late {
            // The client has closed the connection.
            _ = stream.write_all(reply);
        }
    }

    /// Reads a frame and executes it. Returns the reply.
    fn execute(&mut self, stream: &mut TcpStream, bytes: &mut Vec<u8>, step: Step) -> Vec<u8> {
        loop {
            if let Some((frame, consumed)) = RequestFrame::decode(bytes).unwrap() {
                let mut output = Vec::new();
                let mut writer = ReplyFrameWriter::new(&mut output, frame.sequence);
                for request in frame.operations().map(Result::unwrap) {
                    self.record.lock().unwrap().executed.last_mut().unwrap().push(name(&request));
                    match (step, self.store.execute(&request)) {
                        (Step::Page, _) => writer.push(Ok(Reply::Value(&page(&request)))),
                        (_, reply) => writer.push(Ok(reply.as_reply())),
                    }
                }
                writer.finish();
                bytes.drain(..consumed);
                return output;
            }
            let mut piece = [0; 4096];
            let size = stream.read(&mut piece).unwrap();
            assert!(size > 0, "the client has closed the connection before {step:?}");
            bytes.extend_from_slice(&piece[..size]);
        }
    }
}

/// Returns a page of one key, after which more follow.
fn page(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let key = [request.key, b"+"].concat();
    let mut writer = PageWriter::new(&mut bytes, ScanAnswer::Pairs);
    writer.push(&key, 0, |_| {});
    writer.finish(&key, true, Some(LEASE));
    bytes
}

/// Names an operation in the record.
fn name(request: &Request<'_>) -> String {
    let operation = match request.operation {
        Operation::Get => "get",
        Operation::Put { .. } => "put",
        Operation::AddDecimal { .. } => "add",
        Operation::Scan(scan) => match scan.lease {
            ScanLease::None => "scan",
            ScanLease::Open => "scan, open",
            ScanLease::Continue(_) => "scan, continue",
        },
        _ => "other",
    };
    format!("{operation} {}", request.key[..request.key.len().min(8)].escape_ascii())
}
