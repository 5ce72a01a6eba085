//! The two wire formats, and λ on a vector.

use skep_core::function::{Element, UpdateFunction, update};
use skep_core::operation::{Operation, PutCondition, Reply, Request, Shape};
use skep_wire::native::{ReplyFrame, ReplyFrameWriter, RequestFrame, RequestFrameWriter};
use skep_wire::resp::{Parsed, RequestParser};

use super::{Workload, fold, fold_bytes};
use crate::keys::{random_key, random_value};

/// Number of operations in a frame, and of requests in a pipeline.
const DEPTH: u64 = 64;
/// Number of elements in the vector: 1 KiB of `i64`.
const ELEMENTS: u64 = 128;

/// A key and a value.
type Pair = ([u8; 8], [u8; 2]);

pub(super) fn workloads() -> Vec<Workload> {
    // The pairs are computed before the run. Otherwise the compiler could evaluate the run at compile time.
    let pairs: Vec<Pair> = (0..DEPTH).map(|record| (random_key(record), random_value(record))).collect();
    let reply_pairs = pairs.clone();
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    encode_requests(&pairs, &mut requests);
    encode_replies(&pairs, &mut replies);
    let (request_frame, reply_frame) = (requests.clone(), replies.clone());
    let workload = |name, operations, hash, run| Workload { name, operations, hash, run };
    vec![
        workload(
            "native/encode_requests",
            DEPTH,
            0x126b_bd8a_a694_6f66,
            Box::new(move || encode_requests(&pairs, &mut requests)),
        ),
        workload(
            "native/decode_requests",
            DEPTH,
            0xf07d_93c7_0962_dbbd,
            Box::new(move || decode_requests(&request_frame)),
        ),
        workload(
            "native/encode_replies",
            DEPTH,
            0xa11d_b4a7_bfeb_d33f,
            Box::new(move || encode_replies(&reply_pairs, &mut replies)),
        ),
        workload("native/decode_replies", DEPTH, 0x5ddc_e498_cb03_c46b, Box::new(move || decode_replies(&reply_frame))),
        workload("resp/parse_requests", DEPTH, 0x2c77_d126_4c18_5c01, parse_requests()),
        workload("function/vector_add_i64", ELEMENTS, 0x817a_ddd8_4373_452c, vector_add()),
    ]
}

/// Encodes a frame in which gets and puts alternate.
fn encode_requests(pairs: &[Pair], frame: &mut Vec<u8>) -> u64 {
    frame.clear();
    let mut writer = RequestFrameWriter::new(frame, 7, 0);
    for (index, (key, value)) in pairs.iter().enumerate() {
        let put = Operation::Put { value, condition: PutCondition::Always };
        let operation = if index % 2 == 0 { Operation::Get } else { put };
        assert!(writer.push(&Request { key, operation }), "the frame holds them");
    }
    writer.finish();
    fold_bytes(0, frame)
}

fn decode_requests(frame: &[u8]) -> u64 {
    let (frame, _) = RequestFrame::decode(frame).ok().flatten().expect("a complete frame");
    frame.operations().fold(0, |hash, operation| {
        let request = operation.expect("a valid operation");
        let value_size = if let Operation::Put { value, .. } = request.operation { value.len() } else { 0 };
        fold(hash, u64::from(request.key[7]) << 8 | value_size as u64)
    })
}

fn encode_replies(pairs: &[Pair], frame: &mut Vec<u8>) -> u64 {
    frame.clear();
    let mut writer = ReplyFrameWriter::new(frame, 7);
    for (index, (_, value)) in pairs.iter().enumerate() {
        writer.push(Ok(if index % 2 == 0 { Reply::Value(value) } else { Reply::Done }));
    }
    writer.finish();
    fold_bytes(0, frame)
}

fn decode_replies(frame: &[u8]) -> u64 {
    let (frame, _) = ReplyFrame::decode(frame).ok().flatten().expect("a complete frame");
    frame.replies().fold(0, |hash, reply| match reply {
        Ok(Ok(Reply::Value(value))) => fold(hash, u64::from(value[0])),
        Ok(Ok(Reply::Done)) => fold(hash, 1 << 8),
        _ => fold(hash, 1 << 9),
    })
}

/// Parses a pipeline in which gets and sets alternate.
fn parse_requests() -> Box<dyn FnMut() -> u64> {
    let mut pipeline = Vec::new();
    for record in 0..DEPTH {
        let (key, value) = (random_key(record), random_value(record));
        let parts: [&[u8]; 5] = if record % 2 == 0 {
            [b"*2\r\n$3\r\nGET\r\n$8\r\n", &key, b"\r\n", b"", b""]
        } else {
            [b"*3\r\n$3\r\nSET\r\n$8\r\n", &key, b"\r\n$2\r\n", &value, b"\r\n"]
        };
        parts.iter().for_each(|part| pipeline.extend_from_slice(part));
    }
    let (mut parser, mut arguments) = (RequestParser::default(), Vec::with_capacity(3));
    Box::new(move || {
        let (mut start, mut hash) = (0, 0);
        while start < pipeline.len() {
            let input = &mut pipeline[start..];
            arguments.clear();
            let Ok(Parsed::Complete(size)) = parser.parse(input, &mut arguments) else { panic!("a complete request") };
            let key = arguments[1].range();
            hash = fold(hash, u64::from(input[key.end - 1]) << 8 | arguments.len() as u64);
            start += size;
        }
        hash
    })
}

/// Adds a number to every element. Every run begins with the same vector, so that its hash is the same.
fn vector_add() -> Box<dyn FnMut() -> u64> {
    let original: Vec<u8> = (0..ELEMENTS).flat_map(|element| (element * element).to_le_bytes()).collect();
    let delta = 5i64.to_le_bytes();
    let mut vector = original.clone();
    Box::new(move || {
        vector.copy_from_slice(&original);
        update(UpdateFunction::Add, Element::I64, Shape::ScalarToVector, &delta, &mut vector);
        fold_bytes(0, &vector)
    })
}
