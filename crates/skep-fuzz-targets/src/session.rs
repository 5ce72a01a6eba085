//! Fuzzes the bytes of a whole connection, which arrive cut at arbitrary places.
//!
//! ```text
//! byte 0   bit 0: RESP or native; bits 1 to 4: number n of cuts
//! n bytes  the sizes of the pieces, in turn
//! rest     what the client sends
//! ```
//!
//! A native session is a hello and request frames. Their operations are executed on a hash store and an ordered store,
//! and the replies are encoded, cut and decoded as a client does it. Of a RESP session only the requests are parsed,
//! because the commands belong to the server. Looks for six faults:
//! 1. a panic
//! 2. requests or an error that depend on the cuts
//! 3. operations that are decoded differently in parts than in one run over the frame
//! 4. a reply that differs from that of the naive store
//! 5. a reply that the client decodes differently than the server encoded it
//! 6. a RESP request that changes when it is written again as clients write it

use std::time::{Duration, Instant};

use skep_core::operation::{Reply, Request};
use skep_store::hash::Settings;
use skep_store::naive::{Harness, NaiveReply, NaiveStore};
use skep_store::ordered::{OrderedSettings, OrderedStore, Session};
use skep_store::processor::Processor;
use skep_wire::native::{
    HASH_SPACE, Hello, ORDERED_SPACE, Position, ProtocolError, REPLY_FRAME_SIZE_FULL, REQUEST_FRAME_SIZE_MAX,
    ReplyFrame, ReplyFrameWriter, RequestFrame, Welcome, WireError,
};

use crate::ordered_operations::SUBMISSION_TIME;
use crate::resp_request::parse;

const WELCOME: Welcome =
    Welcome { shard_count: 1, shard: 0, frame_size_max: REQUEST_FRAME_SIZE_MAX as u32, partition_seed: 7 };

/// The hello and the bytes of each request frame of a connection, and the error that ended it.
type Frames = (Option<Hello>, Vec<Vec<u8>>, Option<ProtocolError>);

/// The reply to one operation, with its own bytes, after the sequence number of its frame.
type Replied = (u32, Result<NaiveReply, WireError>);

/// Runs the target.
pub fn run(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let Some((cuts, bytes)) = rest.split_at_checked(usize::from(first >> 1 & 15)) else { return };
    let mut cuts: Vec<usize> = cuts.iter().map(|&cut| usize::from(cut).max(1)).collect();
    if cuts.is_empty() {
        cuts.push(1);
    }
    if first & 1 == 0 { resp_session(bytes, &cuts) } else { native_session(bytes, &cuts) }
}

fn resp_session(bytes: &[u8], cuts: &[usize]) {
    let at_once = parse(bytes, &[bytes.len()]);
    assert_eq!(parse(bytes, cuts), at_once);
    let mut written = Vec::new();
    for arguments in &at_once.0 {
        written.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
        for argument in arguments {
            written.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            written.extend_from_slice(argument);
            written.extend_from_slice(b"\r\n");
        }
    }
    assert_eq!(parse(&written, cuts), (at_once.0, None));
}

fn native_session(bytes: &[u8], cuts: &[usize]) {
    let (hello, frames, error) = receive(bytes, cuts);
    let at_once = receive(bytes, &[bytes.len()]);
    assert_eq!((&hello, &frames, &error), (&at_once.0, &at_once.1, &at_once.2));
    if hello.is_none() {
        return;
    }
    let mut stores = Stores::new();
    let ordered = OrderedStore::new(&stores.ordered_settings).expect("a megabyte can be reserved");
    let mut session = ordered.session().expect("this is the first session");
    let mut output = WELCOME.encode().to_vec();
    let mut expected = Vec::new();
    for (bytes, cut) in frames.iter().zip(cuts.iter().cycle()) {
        let frame = RequestFrame::decode(bytes).expect("it was decoded before").expect("it is complete").0;
        check_parts(&frame, *cut);
        // The replies to one frame may be several frames, here of as many replies as a piece has bytes.
        let operations: Vec<_> = frame.operations().collect();
        let mut replies = operations.iter().map(|operation| stores.execute(&mut session, frame.space, operation));
        loop {
            let mut writer = ReplyFrameWriter::new(&mut output, frame.sequence);
            for reply in replies.by_ref().take(*cut) {
                writer.push(reply.as_ref().map(NaiveReply::as_reply).map_err(|error| *error));
                expected.push((frame.sequence, reply));
                if writer.size() >= REPLY_FRAME_SIZE_FULL {
                    break;
                }
            }
            writer.finish();
            if replies.len() == 0 {
                break;
            }
        }
    }
    assert_eq!(receive_replies(&output, cuts), expected);
}

/// Receives a hello and request frames that arrive in pieces of these sizes, as a server does.
fn receive(bytes: &[u8], cuts: &[usize]) -> Frames {
    let (mut hello, mut frames, mut received) = (None, Vec::new(), Vec::new());
    for piece in pieces(bytes, cuts) {
        received.extend_from_slice(piece);
        if hello.is_none() {
            match Hello::decode(&received) {
                Ok(Some((decoded, size))) => {
                    hello = Some(decoded);
                    received.drain(..size);
                }
                Ok(None) => continue,
                Err(error) => return (hello, frames, Some(error)),
            }
        }
        loop {
            match RequestFrame::decode(&received) {
                Ok(None) => break,
                Ok(Some((_, size))) => frames.push(received.drain(..size).collect()),
                Err(error) => return (hello, frames, Some(error)),
            }
        }
    }
    (hello, frames, None)
}

/// Receives a welcome and reply frames that arrive in pieces of these sizes, as a client does.
fn receive_replies(bytes: &[u8], cuts: &[usize]) -> Vec<Replied> {
    let (mut welcome, mut replied, mut received) = (None, Vec::new(), Vec::new());
    for piece in pieces(bytes, cuts) {
        received.extend_from_slice(piece);
        if welcome.is_none() {
            welcome = Welcome::decode(&received).expect("the welcome is valid");
            if welcome.is_none() {
                continue;
            }
            assert_eq!(welcome, Some(WELCOME));
            received.drain(..Welcome::SIZE);
        }
        while let Some((frame, size)) = ReplyFrame::decode(&received).expect("the replies are valid") {
            for response in frame.replies() {
                let response = response.expect("the reply is valid");
                replied.push((frame.sequence, response.map(owned)));
            }
            received.drain(..size);
        }
    }
    assert!(received.is_empty(), "the last reply frame is incomplete");
    replied
}

/// Divides the bytes into pieces of these sizes, in turn.
fn pieces<'a>(mut bytes: &'a [u8], cuts: &[usize]) -> impl Iterator<Item = &'a [u8]> {
    cuts.iter().cycle().map_while(move |cut| {
        let (piece, rest) = bytes.split_at((*cut).min(bytes.len()));
        bytes = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Compares the operations of a frame, decoded in parts of `part` operations, with those of one run over it.
fn check_parts(frame: &RequestFrame<'_>, part: usize) {
    let mut position = Position::default();
    let mut in_parts = Vec::new();
    while position.count() < usize::from(frame.count) {
        let mut operations = frame.operations_from(position);
        in_parts.extend(operations.by_ref().take(part));
        position = frame.position(&operations);
    }
    assert!(in_parts.into_iter().eq(frame.operations()));
}

/// The stores of a server with one shard, beside naive stores.
struct Stores {
    processor: Processor,
    hash: Harness,
    ordered: Harness,
    ordered_settings: OrderedSettings,
    now: Instant,
}

impl Stores {
    fn new() -> Self {
        let processor = Processor::new(&Settings::for_kv_size(1 << 20, 62, 1)).expect("a megabyte can be reserved");
        // The naive store knows no time, so no lease expires.
        let lease_time = Duration::from_secs(1 << 30);
        Stores {
            processor,
            hash: Harness::new(NaiveStore::new(), 1 << 20, 0),
            ordered: Harness::new(NaiveStore::ordered(), 1 << 20, 0),
            ordered_settings: OrderedSettings { lease_time, ..OrderedSettings::new(1 << 20) },
            now: Instant::now(),
        }
    }

    /// Executes one operation on the store of a space.
    fn execute(
        &mut self,
        session: &mut Session<'_>,
        space: u16,
        operation: &Result<Request<'_>, WireError>,
    ) -> Result<NaiveReply, WireError> {
        let mut replied = None;
        let on_reply = |_: &Request<'_>, reply: Reply<'_>| replied = Some(owned(reply));
        match space {
            HASH_SPACE => {
                let request = (*operation)?;
                let processor = &mut self.processor;
                self.hash.execute_with(&[request], |requests, replies| processor.execute(requests, replies), on_reply);
            }
            ORDERED_SPACE => {
                let (request, now) = ((*operation)?, &mut self.now);
                let execute = |requests: &[Request<'_>], replies: &mut _| {
                    *now += SUBMISSION_TIME;
                    session.execute(requests, replies, *now);
                };
                self.ordered.execute_with(&[request], execute, on_reply);
            }
            _ => return Err(WireError::UnknownSpace),
        }
        Ok(replied.expect("every request has a reply"))
    }
}

fn owned(reply: Reply<'_>) -> NaiveReply {
    match reply {
        Reply::Done => NaiveReply::Done,
        Reply::Value(value) => NaiveReply::Value(value.to_vec()),
        Reply::NotFound => NaiveReply::NotFound,
        Reply::Exists => NaiveReply::Exists,
        Reply::Failed(error) => NaiveReply::Failed(error),
        Reply::Deferred => unreachable!("the harness submits deferred requests again"),
    }
}
