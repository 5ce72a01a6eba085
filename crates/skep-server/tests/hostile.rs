//! Bytes without meaning on both ports. The server continues after each, and a well-behaved connection notices
//! nothing.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{
    Operation, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart, Shape, Update,
};
use skep_server::Server;
use skep_wire::native::{Hello, ORDERED_SPACE, REQUEST_FRAME_SIZE_MAX, WireError};
use support::{Native, Resp, command, connect, frame, frame_in, seeds, server};

/// Sends bytes, perhaps in two pieces, then the end; reads until the server closes. Replies what came back.
fn throw(address: SocketAddr, bytes: &[u8], cut: usize) -> Vec<u8> {
    let mut stream = connect(address);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    // The server may have closed already.
    let _ = stream.write_all(first).and_then(|()| stream.write_all(second));
    let _ = stream.shutdown(Shutdown::Write);
    let mut reply = Vec::new();
    match stream.read_to_end(&mut reply) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the server neither replies nor closes: {error}"),
    }
    reply
}

/// A connection on each port that must always get what it asks for.
struct Witness {
    resp: Resp,
    native: Native,
    count: u64,
}

impl Witness {
    fn new(server: &Server) -> Witness {
        let mut resp = Resp::connect(server);
        resp.expect(command(&[b"SET", b"w:\xff\0", b"precious"]), "+OK\r\n");
        Witness { resp, native: Native::connect(server, None), count: 0 }
    }

    #[track_caller]
    fn check(&mut self) {
        self.count += 1;
        self.resp.expect(command(&[b"GET", b"w:\xff\0"]), "$8\r\nprecious\r\n");
        let add = Request { key: b"w:\xff\x01", operation: Operation::AddDecimal { delta: 1 } };
        let expected = self.count.to_string();
        self.native.execute(self.count as u32, &[add], |_, response| {
            assert_eq!(response, Ok(Reply::Value(expected.as_bytes())));
        });
    }
}

/// Returns a good native conversation, without the replies.
fn native_conversation() -> Vec<u8> {
    let put = |key, value| Request { key, operation: Operation::Put { value, condition: PutCondition::Always } };
    let update = Update {
        function: UpdateFunction::Add,
        element: Element::I32,
        shape: Shape::ScalarToVector,
        operand: &[1, 0, 0, 0],
        initial: Some(&[0; 8]),
        return_old: true,
    };
    let requests = [
        put(b"h1", b"value"),
        put(b"h2", b"value"),
        Request { key: b"h1", operation: Operation::Get },
        Request { key: b"h3", operation: Operation::Update(update) },
        Request { key: b"h4", operation: Operation::AddDecimal { delta: 5 } },
    ];
    let mut bytes = Hello::new(None).encode().to_vec();
    bytes.extend_from_slice(&frame(1, &requests));
    bytes.extend_from_slice(&frame(2, &requests));
    let scan = Scan {
        start: ScanStart::Floor,
        end: ScanEnd::AtOrBelow(b"h9"),
        reverse: true,
        limit: 3,
        answer: ScanAnswer::Pairs,
        lease: ScanLease::Open,
    };
    let ordered = [
        put(b"h1", b"value"),
        Request { key: b"h1", operation: Operation::Scan(scan) },
        Request { key: b"", operation: Operation::Scan(Scan { lease: ScanLease::Continue(1), ..scan }) },
        requests[3],
    ];
    bytes.extend_from_slice(&frame_in(ORDERED_SPACE, 3, &ordered));
    bytes
}

/// Returns a good RESP conversation, without the replies.
fn resp_conversation() -> Vec<u8> {
    [
        command(&[b"HELLO", b"3"]),
        command(&[b"MSET", b"h1", b"value", b"h2", b"other"]),
        command(&[b"MGET", b"h1", b"h2", b"h3"]),
        b"SET 'h 1' \"a\\x00b\"\r\n".to_vec(),
        command(&[b"SKEP.UPDATE", b"h5", b"add", b"i64", b"1", b"INIT", b"0"]),
        command(&[b"CLIENT", b"SETNAME", b"x"]),
        command(&[b"SELECT", b"1"]),
        command(&[b"MSET", b"h1", b"value", b"h2", b"other"]),
        command(&[b"SKEP.SCAN", b"[h1", b"(h9", b"REV", b"LIMIT", b"5", b"LEASE", b"OPEN", b"AFTER", b"h2"]),
        command(&[b"SKEP.COUNT", b"PREFIX", b"h"]),
        command(&[b"SKEP.FLOOR", b"h3"]),
    ]
    .concat()
}

#[test]
fn truncated_at_every_byte() {
    let server = server(2, 32 << 20);
    let mut witness = Witness::new(&server);
    for (address, conversation) in
        [(server.native_address(), native_conversation()), (server.resp_address().unwrap(), resp_conversation())]
    {
        for size in 0..conversation.len() {
            throw(address, &conversation[..size], size / 2);
            if size % 16 == 0 {
                witness.check();
            }
        }
    }
    witness.check();
}

#[test]
fn flipped_bits_and_random_bytes() {
    for seed in seeds() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let server = server(2, 32 << 20);
        let mut witness = Witness::new(&server);
        for round in 0..300 {
            let resp = round % 2 == 0;
            let address = if resp { server.resp_address().unwrap() } else { server.native_address() };
            let mut bytes = if resp { resp_conversation() } else { native_conversation() };
            match round % 3 {
                0 => {
                    // Behind a good hello, so that random frames are met.
                    let begin = if resp { 0 } else { Hello::SIZE };
                    random.fill(&mut bytes[begin..]);
                }
                _ => {
                    for _ in 0..random.random_range(1..6) {
                        let bit = random.random_range(0..bytes.len() * 8);
                        bytes[bit / 8] ^= 1 << (bit % 8);
                    }
                }
            }
            let cut = random.random_range(0..bytes.len());
            throw(address, &bytes, cut);
            if round % 10 == 0 {
                witness.check();
            }
        }
        println!("seed {seed} done");
    }
}

#[test]
fn oversized() {
    let server = server(2, 32 << 20);
    let mut witness = Witness::new(&server);
    let resp = server.resp_address().unwrap();
    for (sent, sentence) in [
        (vec![b'a'; 100_000], "too big inline request"),
        ([b"*".to_vec(), vec![b'1'; 100_000]].concat(), "too big mbulk count string"),
        ([b"*1\r\n$".to_vec(), vec![b'1'; 100_000]].concat(), "too big bulk count string"),
        (b"*1048577\r\n".to_vec(), "invalid multibulk length"),
        (b"*2\r\n$3\r\nGET\r\n$536870912\r\n".to_vec(), "invalid bulk length"),
        ([b"*17\r\n".to_vec(), command(&[&[b'x'; 1 << 20]])[4..].repeat(16)].concat(), "too big request"),
    ] {
        let reply = throw(resp, &sent, 10);
        assert_eq!(String::from_utf8_lossy(&reply), format!("-ERR Protocol error: {sentence}\r\n"));
        witness.check();
    }
    for size in [0, 7, REQUEST_FRAME_SIZE_MAX as u32 + 1, u32::MAX] {
        let mut bytes = Hello::new(None).encode().to_vec();
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(&[0; 100]);
        // The welcome, and nothing else.
        assert_eq!(throw(server.native_address(), &bytes, 3).len(), 32);
        witness.check();
    }
    for bad_hello in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"SKEP\x02\0\0\0\0\0\0\0\0\0\0\0"] {
        assert_eq!(throw(server.native_address(), bad_hello, 3), b"");
        witness.check();
    }
}

#[test]
fn errors_of_single_operations_leave_the_connection_alone() {
    let server = server(2, 32 << 20);
    let mut connection = Native::connect(&server, None);
    // A frame for a space that does not exist.
    let get = Request { key: b"a", operation: Operation::Get };
    let mut bytes = frame(1, &[get, get]);
    bytes[8] = 9;
    connection.send(&bytes);
    connection.receive(1, 2, |_, response| assert_eq!(response, Err(WireError::UnknownSpace)));
    // An operation that does not exist ends the frame: the operations after it begin at an unknown position.
    let mut bytes = frame(2, &[get, get]);
    bytes[12] = 31;
    connection.send(&bytes);
    connection.receive(2, 2, |index, response| {
        let expected = if index == 0 { WireError::UnknownOperation } else { WireError::Malformed };
        assert_eq!(response, Err(expected));
    });
    connection.execute(3, &[get], |_, response| assert_eq!(response, Ok(Reply::NotFound)));
}

#[test]
fn a_browser_that_is_made_to_speak_is_not_listened_to() {
    let server = server(1, 16 << 20);
    let address = server.resp_address().unwrap();
    for request in ["POST / HTTP/1.1\r\nHost: x\r\n\r\nSET a 1\r\n", "GET /\r\nhost: localhost:6379\r\n\r\nSET a 1\r\n"]
    {
        throw(address, request.as_bytes(), 3);
        Resp::connect(&server).expect("GET a\r\n", "$-1\r\n");
    }
}
