//! Compares the examples of `docs/protocol.md` with the encoded bytes.

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{
    Operation, PageWriter, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart, Shape, Update,
};

use super::tests::{decode, encode, encode_replies};
use super::{ORDERED_SPACE, REQUEST_FRAME_SIZE_MAX, ReplyFrameWriter, RequestFrameWriter};

/// Returns three fetch-and-adds of 1 on keys of one size, and a get.
fn example_requests() -> [Request<'static>; 4] {
    let add = Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::I64,
        shape: Shape::ScalarToScalar,
        operand: &[1, 0, 0, 0, 0, 0, 0, 0],
        initial: Some(&[0; 8]),
        return_old: true,
    });
    [
        Request { key: b"ham", operation: add },
        Request { key: b"egg", operation: add },
        Request { key: b"spoon", operation: add },
        Request { key: b"egg", operation: Operation::Get },
    ]
}

/// Returns a scan for the first two keys with a prefix.
fn example_scan() -> Request<'static> {
    let scan = Scan {
        start: ScanStart::AtOrAbove,
        end: ScanEnd::Prefix(b"ham"),
        reverse: false,
        limit: 2,
        answer: ScanAnswer::Pairs,
        lease: ScanLease::None,
    };
    Request { key: b"ham", operation: Operation::Scan(scan) }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.lines().map(|line| line.split(';').next().unwrap()).collect();
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Returns the blocks of hexadecimal digits in the description of the protocol.
fn documented_hex() -> Vec<Vec<u8>> {
    let document = include_str!("../../../../docs/protocol.md");
    document.split("```hex\n").skip(1).map(|block| hex(block.split("```").next().unwrap())).collect()
}

#[test]
fn the_documented_example_is_sent() {
    let hello = super::Hello::new(None);
    let welcome = super::Welcome { shard_count: 3, shard: 0, frame_size_max: 1_114_112, partition_seed: 42 };
    assert_eq!(REQUEST_FRAME_SIZE_MAX, 1_114_112);
    let replies = encode_replies(&[
        Ok(Reply::Value(&[0; 8])),
        Ok(Reply::Value(&[4, 0, 0, 0, 0, 0, 0, 0])),
        Ok(Reply::Value(&[0; 8])),
        Ok(Reply::Value(&[5, 0, 0, 0, 0, 0, 0, 0])),
    ]);
    let mut scan = Vec::new();
    let mut writer = RequestFrameWriter::new(&mut scan, 8, ORDERED_SPACE);
    assert!(writer.push(&example_scan()));
    writer.finish();
    let mut page = Vec::new();
    let mut page_writer = PageWriter::new(&mut page, ScanAnswer::Pairs);
    page_writer.push(b"ham", 3, |out| out.extend_from_slice(b"egg"));
    page_writer.push(b"hammer", 0, |_| ());
    page_writer.finish(b"hammer", false, None);
    let mut page_reply = Vec::new();
    let mut writer = ReplyFrameWriter::new(&mut page_reply, 8);
    writer.push(Ok(Reply::Value(&page)));
    writer.finish();
    let hello_and_welcome = [hello.encode().to_vec(), welcome.encode().to_vec()];
    let frames = [encode(&example_requests()), replies, scan, page_reply];
    let sent: Vec<Vec<u8>> = hello_and_welcome.into_iter().chain(frames).collect();
    for (documented, sent) in documented_hex().iter().zip(&sent) {
        assert_eq!(documented, sent, "sent: {sent:02x?}");
    }
    assert_eq!(documented_hex().len(), sent.len());
}

#[test]
fn the_example_round_trips() {
    let bytes = encode(&example_requests());
    let expected: Vec<_> = example_requests().into_iter().map(Ok).collect();
    assert_eq!(decode(&bytes), expected);
}

#[test]
fn a_scan_from_many_keys_is_encoded_once() {
    let Request { operation: scan, .. } = example_scan();
    let requests = [b"k1", b"k2"].map(|key| Request { key, operation: scan });
    let bytes = encode(&requests);
    assert_eq!(bytes.len(), 12 + (1 + 2 + 4 + 2 + 16 + 3) + (1 + 2));
    assert_eq!(decode(&bytes), requests.map(Ok));
    let from_the_lowest = Request { key: b"", operation: scan };
    assert_eq!(decode(&encode(&[from_the_lowest])), [Ok(from_the_lowest)]);
}
