//! A request costs the server no allocation: from the socket through decoding and the store to the reply, in both front
//! ends and through another shard, once the buffers have grown.
//!
//! The allocator of this program counts, for all threads. So there is one test, and its client sends and receives bytes
//! that were prepared.

#[path = "support/mod.rs"]
mod support;

use std::alloc::System;
use std::io::Write;
use std::net::TcpStream;

use skep_core::function::{Element, Fold, Predicate, UpdateFunction};
use skep_core::operation::{Filter, Operation, PutCondition, Reduce, Request, Shape, Update};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{Native, Resp, command, frame, receive, server};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Rounds before allocations are counted.
const WARM_UP: usize = 500;
/// Rounds in which they are, and how often.
const ROUNDS: usize = 200;
const STRETCHES: usize = 5;
/// Keys of a batch.
const KEY_COUNT: usize = 64;

/// Returns how often memory was allocated or grown meanwhile.
fn allocations(work: impl FnOnce()) -> usize {
    let region = Region::new(ALLOCATOR);
    work();
    let change = region.change();
    change.allocations + change.reallocations
}

/// A connection that sends the same bytes again and again.
struct Exchange {
    stream: TcpStream,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Exchange {
    fn new(stream: TcpStream, sent: Vec<u8>) -> Exchange {
        Exchange { stream, sent, received: vec![0; 1 << 20] }
    }

    /// Sends the bytes and receives until what has come ends with these.
    fn round(&mut self, last: &[u8]) {
        self.stream.write_all(&self.sent).unwrap();
        let mut size = 0;
        while !self.received[..size].ends_with(last) {
            let count = receive(&self.stream, &mut self.received[size..]).unwrap();
            assert!(count > 0, "the connection ended");
            size += count;
        }
    }
}

/// Returns every operation on keys that lie in buckets and on keys that lie in slabs; half of them are new each time.
fn native_batch() -> Vec<u8> {
    let keys: Vec<Vec<u8>> = (0..KEY_COUNT).map(|number| format!("native:{number}").into_bytes()).collect();
    let values = [vec![1; 8], vec![1; 200]];
    let one = 1u64.to_le_bytes();
    let update = Update {
        function: UpdateFunction::Add,
        element: Element::U64,
        shape: Shape::ScalarToVector,
        operand: &one,
        initial: None,
        return_old: true,
    };
    let reduce = Reduce { fold: Fold::Sum, element: Element::U64, initial: &one, constants: &[] };
    let filter = Filter { predicate: Predicate::NonZero, element: Element::U64, operand: &[] };
    let mut requests = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let put = |condition| Operation::Put { value: &values[number % 2], condition };
        let operations = [
            put(PutCondition::Always),
            put(PutCondition::IfAbsent),
            Operation::Get,
            Operation::Contains,
            Operation::Update(update),
            Operation::Reduce(reduce),
            Operation::Filter(filter),
            Operation::AddDecimal { delta: 1 },
            Operation::Delete,
        ];
        let count = operations.len() - usize::from(number % 4 < 2);
        requests.extend(operations[..count].iter().map(|operation| Request { key, operation: *operation }));
    }
    // The last reply, by which the end is known.
    let end = Operation::Put { value: b"end", condition: PutCondition::Always };
    requests.push(Request { key: b"end", operation: end });
    requests.push(Request { key: b"end", operation: Operation::Get });
    frame(7, &requests)
}

fn resp_batch() -> Vec<u8> {
    let long = [b'v'; 200];
    let mut bytes = Vec::new();
    for number in 0..KEY_COUNT {
        let key = format!("resp:{number}").into_bytes();
        let value: &[u8] = if number % 2 == 0 { b"value" } else { &long };
        for arguments in [
            &[&b"SET"[..], &key, value][..],
            &[b"GET", &key],
            &[b"EXISTS", &key, b"end"],
            &[b"MGET", &key, b"absent", &key],
            &[b"INCR", b"counter"],
            &[b"DEL", &key],
        ] {
            bytes.extend(command(arguments));
        }
    }
    bytes.extend(command(&[b"PING"]));
    bytes
}

#[test]
fn a_request_allocates_nothing() {
    assert_eq!(allocations(|| _ = std::hint::black_box(vec![1u8; 10])), 1, "the counter counts");
    // With two shards, half of the keys are forwarded.
    for shards in [1, 2] {
        let server = server(shards, 64 << 20);
        // On a busy machine, commands take long, and then they are logged.
        Resp::connect(&server).expect("CONFIG SET slowlog-log-slower-than -1\r\n", "+OK\r\n");
        let mut native = Exchange::new(Native::connect(&server, Some(0)).stream, native_batch());
        let mut resp = Exchange::new(Resp::connect(&server).0, resp_batch());
        let mut rounds = |count| {
            for _ in 0..count {
                native.round(b"end");
                resp.round(b"+PONG\r\n");
            }
        };
        rounds(WARM_UP);
        // How shards take turns decides how many forwarded batches are on their way, and how large each is. On a busy
        // machine, one more than ever before, or a larger one in the place of a small one, may come late. So a few rounds
        // may allocate, but not those of every stretch.
        let counts: Vec<usize> = (0..STRETCHES).map(|_| allocations(|| rounds(ROUNDS))).collect();
        assert!(counts.contains(&0), "{shards} shards: {counts:?}");
        assert!(counts.iter().sum::<usize>() < ROUNDS / 10, "{shards} shards: {counts:?}");
        assert!(shards > 1 || counts.iter().all(|count| *count == 0), "nothing is forwarded: {counts:?}");
    }
}
