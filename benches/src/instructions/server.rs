//! Operations of a whole server: from the bytes of requests to those of replies, without the kernel.
//!
//! ```text
//! pipeline of requests ─▶ socket ─▶ │ a turn of the shard: read, decode, store, encode, write │ ─▶ socket ─▶ replies
//!                                     └─ counted
//! ```
//!
//! The client waits for all replies before it sends the next pipeline. So each turn serves one pipeline, and a count has a
//! part of what a turn costs once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use skep_client::{Client, HASH_SPACE, Operation, PutCondition, Reply, Request, Responses};
use skep_server::{Server, ServerSettings};

use super::{Case, VALUES};
use crate::keys::random_key;

/// Names of the operations, as they are given to the program under valgrind.
pub(super) const OPERATIONS: [&str; 6] =
    ["native-get", "native-put", "resp-get", "resp-set", "memcached-get", "memcached-set"];
/// Value sizes, and the pairs of them.
pub(super) const SIZES: [(usize, &str); 2] = [(VALUES[0].0, "8 + 8 B"), (VALUES[1].0, "8 + 100 B")];
/// The function whose instructions count: a turn that has something to do.
pub(super) const COUNTED: &str = "*shard::Shard::serve_turn*";
/// Requests of a pipeline of the text protocols.
const PIPELINE: usize = 64;
/// Operations of a batch of the native protocol.
const NATIVE_BATCH: usize = 256;

/// Returns the operations that the client sends at once.
pub(super) fn batch(operation: &str) -> usize {
    if operation.starts_with("native") { NATIVE_BATCH } else { PIPELINE }
}

/// Starts a server, stores `pairs` pairs, and sends `batches` pipelines. Returns the number of right replies.
pub(super) fn run(case: Case, pairs: u64, batches: usize) -> u64 {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings {
        native: any,
        resp: Some(any),
        memcached: Some(any),
        memory: 64 << 20,
        cache_memory: 64 << 20,
        ordered_memory: 0,
        kv_size: Some(8 + case.value_size),
        cache_kv_size: Some(8 + case.value_size),
        shards: 1,
        ..ServerSettings::default()
    };
    let server = Server::start(&settings).expect("there is memory for a small server");
    let keys: Vec<[u8; 8]> = (0..pairs).map(random_key).collect();
    let value = vec![b'v'; case.value_size];
    let (protocol, name) = case.operation.split_once('-').expect("a protocol and an operation");
    let is_get = name == "get";
    let address = match protocol {
        "native" => Some(server.native_address()),
        "resp" => server.resp_address(),
        _ => server.memcached_address(),
    };
    let address = address.expect("all protocols are on");
    let replies = if protocol == "native" {
        native(address, is_get, &keys, &value, batches)
    } else {
        let message = if protocol == "resp" { resp } else { memcached };
        text(address, message, is_get, &keys, &value, batches)
    };
    server.stop();
    replies
}

/// Stores the pairs, and sends batches to the native port. Returns the number of right replies.
fn native(address: SocketAddr, is_get: bool, keys: &[[u8; 8]], value: &[u8], batches: usize) -> u64 {
    let mut client = Client::connect(address, HASH_SPACE).expect("the server accepts connections");
    let mut responses = Responses::new();
    let put = Operation::Put { value, condition: PutCondition::Always };
    let mut execute = |keys: &[[u8; 8]], operation, expected: Reply<'_>| {
        let requests: Vec<Request<'_>> = keys.iter().map(|key| Request { key, operation }).collect();
        client.execute(&requests, &mut responses).expect("the server replies");
        responses.iter().filter(|reply| *reply == Ok(expected)).count() as u64
    };
    for keys in keys.chunks(NATIVE_BATCH) {
        execute(keys, put, Reply::Done);
    }
    let (operation, expected) = if is_get { (Operation::Get, Reply::Value(value)) } else { (put, Reply::Done) };
    pipelines(keys, NATIVE_BATCH).take(batches).map(|keys| execute(&keys, operation, expected)).sum()
}

/// Writes a request and its reply: a get, or else a set of the value.
type Message = fn(bool, &[u8], &[u8], &mut Vec<u8>, &mut Vec<u8>);

/// Stores the pairs, and sends pipelines of a text protocol. Returns the number of replies that are right: all of them, or
/// of a cache, which may have forgotten a few pairs, nearly all.
fn text(address: SocketAddr, message: Message, is_get: bool, keys: &[[u8; 8]], value: &[u8], batches: usize) -> u64 {
    let mut stream = TcpStream::connect(address).expect("the server accepts connections");
    let mut run = |is_get: bool, keys: &[[u8; 8]]| {
        let (mut requests, mut expected) = (Vec::new(), Vec::new());
        keys.iter().for_each(|key| message(is_get, key, value, &mut requests, &mut expected));
        stream.write_all(&requests).expect("the server reads");
        let (mut replies, mut part) = (Vec::new(), [0; 1 << 16]);
        while replies.len() < expected.len() && count(&replies, b"END\r\n") < keys.len() {
            let size = stream.read(&mut part).expect("the server replies");
            assert!(size > 0, "the server has closed the connection");
            replies.extend_from_slice(&part[..size]);
        }
        let right = if replies == expected { keys.len() } else { count(&replies, b"VALUE ") };
        assert!(100 * right >= 95 * keys.len(), "{}", replies.escape_ascii());
        right as u64
    };
    for keys in keys.chunks(PIPELINE) {
        run(false, keys);
    }
    pipelines(keys, PIPELINE).take(batches).map(|keys| run(is_get, &keys)).sum()
}

/// Returns how often a text is in the bytes.
fn count(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).filter(|window| *window == text).count()
}

/// Returns the keys of endless pipelines of this size, spread over all.
fn pipelines(keys: &[[u8; 8]], size: usize) -> impl Iterator<Item = Vec<[u8; 8]>> {
    // Coprime to the number of pairs, so that all keys take part.
    const STEP: usize = 7919;
    (0..).map(move |pipeline| (0..size).map(|number| keys[(pipeline * size + number) * STEP % keys.len()]).collect())
}

fn resp(is_get: bool, key: &[u8], value: &[u8], request: &mut Vec<u8>, reply: &mut Vec<u8>) {
    let arguments: &[&[u8]] = if is_get { &[b"GET", key] } else { &[b"SET", key, value] };
    _ = write!(request, "*{}\r\n", arguments.len());
    arguments.iter().for_each(|argument| bulk(argument, request));
    if is_get { bulk(value, reply) } else { reply.extend_from_slice(b"+OK\r\n") }
}

/// Appends a bulk string.
fn bulk(bytes: &[u8], to: &mut Vec<u8>) {
    _ = write!(to, "${}\r\n", bytes.len());
    to.extend_from_slice(bytes);
    to.extend_from_slice(b"\r\n");
}

fn memcached(is_get: bool, key: &[u8], value: &[u8], request: &mut Vec<u8>, reply: &mut Vec<u8>) {
    // The protocol allows no other bytes in a key: as many letters, of four bits each.
    let key: String = key.iter().map(|byte| char::from(b'a' + byte % 16)).collect();
    let value = value.escape_ascii();
    let size = value.clone().count();
    if is_get {
        _ = write!(request, "get {key}\r\n");
        _ = write!(reply, "VALUE {key} 0 {size}\r\n{value}\r\nEND\r\n");
    } else {
        _ = write!(request, "set {key} 0 0 {size}\r\n{value}\r\n");
        reply.extend_from_slice(b"STORED\r\n");
    }
}
