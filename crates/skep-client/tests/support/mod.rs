//! A server for the tests of the client, with the codec and a naive store. It runs one thread for each connection.
//!
//! It replies to a frame before it reads the next one, and blocks while the client does not receive its replies. So a
//! client that writes all of its requests before it reads never ends here.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use skep_client::{Response, WireError};
use skep_store::naive::{EXPIRIES_END, NaiveReply, NaiveStore};
use skep_wire::native::{
    Hello, REPLY_FRAME_SIZE_FULL, REQUEST_FRAME_SIZE_MAX, ReplyFrameWriter, RequestFrame, Welcome,
};
use skep_wire::partition::Partition;

/// The seed of the partition of every test server.
const PARTITION_SEED: u64 = 0x5eed;

/// The behaviour of a test server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// Number of shards.
    pub(crate) shard_count: u16,
    /// Largest number of replies in one reply frame.
    pub(crate) replies_max: usize,
    /// The request frame limit of the welcome.
    pub(crate) frame_size_max: usize,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour { shard_count: 1, replies_max: usize::MAX, frame_size_max: REQUEST_FRAME_SIZE_MAX }
    }
}

/// Starts a server that serves until the test process ends. Its only space is 0.
pub(crate) fn start(behaviour: Behaviour) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut store = NaiveStore::new();
    store.set_now(EXPIRIES_END);
    let store = Arc::new(Mutex::new(store));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let store = Arc::clone(&store);
            thread::spawn(move || serve(stream.unwrap(), behaviour, &store));
        }
    });
    address
}

/// Starts a server that is not Skep: it sends these bytes to every client that connects, and closes the connection.
pub(crate) fn start_stranger(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut hello = [0; Hello::SIZE];
            let _ = stream.read_exact(&mut hello);
            let _ = stream.write_all(bytes);
        }
    });
    address
}

/// Serves one connection. An error of the socket ends it, as in a real server.
fn serve(mut stream: TcpStream, behaviour: Behaviour, store: &Mutex<NaiveStore>) {
    let mut hello = [0; Hello::SIZE];
    if stream.read_exact(&mut hello).is_err() {
        return;
    }
    let (hello, _) = Hello::decode(&hello).unwrap().unwrap();
    let shard = hello.shard.unwrap_or(behaviour.shard_count - 1);
    let welcome = Welcome {
        shard_count: behaviour.shard_count,
        shard,
        frame_size_max: u32::try_from(behaviour.frame_size_max).unwrap(),
        partition_seed: PARTITION_SEED,
    };
    let _ = stream.write_all(&welcome.encode());

    let partition = Partition::new(PARTITION_SEED, behaviour.shard_count);
    let mut bytes = Vec::new();
    loop {
        let consumed = loop {
            if let Some((frame, consumed)) = RequestFrame::decode(&bytes).unwrap() {
                assert!(consumed <= behaviour.frame_size_max + 4);
                for operation in frame.operations() {
                    assert_eq!(partition.shard_of(operation.unwrap().key), shard, "sent to a shard that owns the key");
                }
                if stream.write_all(&reply_to(&frame, behaviour, store)).is_err() {
                    return;
                }
                break consumed;
            }
            let mut piece = [0; 4096];
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(size) => bytes.extend_from_slice(&piece[..size]),
            }
        };
        bytes.drain(..consumed);
    }
}

fn reply_to(frame: &RequestFrame<'_>, behaviour: Behaviour, store: &Mutex<NaiveStore>) -> Vec<u8> {
    let mut store = store.lock().unwrap();
    let replies: Vec<_> = frame.operations().map(|operation| store.execute(&operation.unwrap())).collect();
    let mut output = Vec::new();
    let mut writer = ReplyFrameWriter::new(&mut output, frame.sequence);
    for reply in &replies {
        if usize::from(writer.count()) == behaviour.replies_max || writer.size() >= REPLY_FRAME_SIZE_FULL {
            writer.finish();
            writer = ReplyFrameWriter::new(&mut output, frame.sequence);
        }
        writer.push(if frame.space == 0 { as_response(reply) } else { Err(WireError::UnknownSpace) });
    }
    writer.finish();
    output
}

/// Converts the naive reply to the form that a client sees.
pub(crate) fn as_response(reply: &NaiveReply) -> Response<'_> {
    Ok(reply.as_reply())
}
