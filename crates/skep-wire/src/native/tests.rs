//! Tests frames that round-trip, and frames that arrive incomplete or damaged.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::select;
use skep_core::function::{Element, Fold, FunctionHandle, Predicate, UpdateFunction};
use skep_core::operation::{
    CallReply, KEY_SIZE_MAX, Operation, OperationError, PAGE_SIZE_MAX, PutCondition, Reduce, Reply, Request, Scan,
    ScanAnswer, ScanEnd, ScanLease, ScanStart, Shape, Update,
};
use skep_store::naive::{Generator, GeneratorSettings, Mix, OwnedOperation, OwnedRequest};

use super::code::Coded;
use super::{
    ProtocolError, REPLY_FRAME_SIZE_FULL, REPLY_FRAME_SIZE_MAX, REQUEST_FRAME_SIZE_MAX, ReplyFrame, ReplyFrameWriter,
    RequestFrame, RequestFrameWriter, Response, SIZE_FIELD, VALUE_SIZE_MAX, WireError, operation_size,
};

const GET: Operation<'_> = Operation::Get;

pub(super) fn encode(requests: &[Request<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = RequestFrameWriter::new(&mut bytes, 7, 0);
    for request in requests {
        assert!(writer.push(request));
    }
    writer.finish();
    bytes
}

pub(super) fn encode_replies(responses: &[Response<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ReplyFrameWriter::new(&mut bytes, 7);
    for response in responses {
        writer.push(*response);
    }
    writer.finish();
    bytes
}

/// Returns a request frame that contains operations written by hand.
fn frame_of(count: u16, operations: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(8 + operations.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(operations);
    bytes
}

pub(super) fn decode(bytes: &[u8]) -> Vec<Result<Request<'_>, WireError>> {
    let (frame, consumed) = RequestFrame::decode(bytes).unwrap().unwrap();
    assert_eq!(consumed, bytes.len());
    frame.operations().collect()
}

/// Decodes any bytes as a server does. Checks that the number of replies never exceeds the count.
fn survive_requests(bytes: &[u8]) {
    if let Ok(Some((frame, consumed))) = RequestFrame::decode(bytes) {
        assert!(consumed <= bytes.len());
        assert_eq!(frame.operations().count(), usize::from(frame.count));
    }
}

/// Decodes any bytes as a client does.
fn survive_replies(bytes: &[u8]) {
    if let Ok(Some((frame, consumed))) = ReplyFrame::decode(bytes) {
        assert!(consumed <= bytes.len());
        let replies: Vec<_> = frame.replies().collect();
        let good = replies.iter().filter(|reply| reply.is_ok()).count();
        assert!(replies.len() <= usize::from(frame.count));
        assert!(good == usize::from(frame.count) || good + 1 == replies.len(), "an error is the last");
    }
}

#[test]
fn generated_requests_round_trip() {
    for seed in 1..=8 {
        let mix = Mix { call: 0, scan: 10, ..Mix::default() };
        let settings = GeneratorSettings { seed, mix, invalid_per_mille: 100, ..Default::default() };
        let mut generator = Generator::new(settings);
        let requests: Vec<OwnedRequest> = generator.by_ref().take(2000).collect();
        for batch in requests.chunks(50) {
            let (mut bytes, mut sent) = (Vec::new(), Vec::new());
            let mut writer = RequestFrameWriter::new(&mut bytes, 0, 0);
            for request in batch {
                if writer.push(&request.as_request()) {
                    sent.push(request);
                } else {
                    assert!(request.as_request().validate().is_err(), "seed {seed}: a valid request was refused");
                }
            }
            writer.finish();
            assert!(2 * sent.len() > batch.len());
            for (request, decoded) in sent.iter().zip(decode(&bytes)) {
                assert_eq!(Ok(request.as_request()), decoded, "seed {seed}");
            }
        }
    }
}

#[test]
fn copied_fields_take_no_bytes() {
    let put = |key, value| Request { key, operation: Operation::Put { value, condition: PutCondition::Always } };
    let one = encode(&[put(b"a", b"value")]).len();
    // Same sizes: opcode, key, value. If the value is the same too: opcode, key.
    assert_eq!(encode(&[put(b"a", b"value"), put(b"b", b"other")]).len(), one + 1 + 1 + 5);
    assert_eq!(encode(&[put(b"a", b"value"), put(b"b", b"value")]).len(), one + 1 + 1);
    // The value is the same but the key size differs, so the sizes are stated.
    assert_eq!(encode(&[put(b"a", b"value"), put(b"bc", b"value")]).len(), one + 1 + 2 + 4 + 2);
    // The get between them has no operand, so the operand of the put is still the last one.
    let gap = encode(&[put(b"a", b"value"), Request { key: b"b", operation: GET }, put(b"c", b"value")]);
    assert_eq!(gap.len(), one + 2 + 2);
    assert_eq!(decode(&gap)[2], Ok(put(b"c", b"value")));

    let add = Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::U64,
        shape: Shape::ScalarToScalar,
        operand: &[1, 0, 0, 0, 0, 0, 0, 0],
        initial: None,
        return_old: true,
    });
    let adds = [b"8 bytes.", b"8 more b"].map(|key| Request { key, operation: add });
    assert_eq!(encode(&adds).len(), 12 + 25 + 11);
}

#[test]
fn a_reduce_and_a_put_can_share_their_operand() {
    let reduce = Reduce { fold: Fold::Dot, element: Element::U16, initial: b"ab", constants: b"cdef" };
    let requests = [
        Request { key: b"k", operation: Operation::Reduce(reduce) },
        Request { key: b"l", operation: Operation::Put { value: b"abcdef", condition: PutCondition::IfAbsent } },
        Request { key: b"m", operation: Operation::Reduce(reduce) },
    ];
    let bytes = encode(&requests);
    assert_eq!(bytes.len(), 12 + (3 + 2 + 4 + 1 + 6) + (1 + 1) + (3 + 1));
    assert_eq!(decode(&bytes), requests.map(Ok));
}

#[test]
fn only_an_operation_that_can_be_skipped_is_refused() {
    let get = b"\x01\x01\x00k".as_slice();
    let cases: [(&str, &[u8], WireError); 10] = [
        ("update function", b"\x07\x0b\x07\x01\x00\x01\x00\x00\x00k1", WireError::UnknownFunction),
        ("fold", b"\x0a\x06\x07\x01\x00\x01\x00\x00\x00k1", WireError::UnknownFunction),
        ("predicate", b"\x0b\x04\x07\x01\x00\x01\x00\x00\x00k1", WireError::UnknownFunction),
        ("element", b"\x08\x00\x0a\x01\x00\x01\x00\x00\x00k1", WireError::UnknownElement),
        ("reserved bit", b"\x08\x00\x47\x01\x00\x01\x00\x00\x00k1", WireError::Malformed),
        ("fold that returns old", b"\x0a\x00\x17\x01\x00\x01\x00\x00\x00k1", WireError::Malformed),
        ("filter with initial", b"\x0b\x00\x27\x01\x00\x01\x00\x00\x00\x02\x00\x00\x00k1ii", WireError::Malformed),
        ("increment of two bytes", b"\x0c\x01\x00\x02\x00\x00\x00k12", WireError::Malformed),
        ("scan of three bytes", b"\x0d\x01\x00\x03\x00\x00\x00k123", WireError::Malformed),
        ("get with SAME_VALUE", b"\x81\x01\x00k", WireError::Malformed),
    ];
    for (what, operation, error) in cases {
        let expected = Ok(Request { key: b"k", operation: GET });
        let bytes = frame_of(3, &[get, operation, get].concat());
        assert_eq!(decode(&bytes), [expected, Err(error), expected], "{what}");
    }
}

#[test]
fn an_operation_that_cannot_be_skipped_ends_the_frame() {
    let get = b"\x01\x01\x00k".as_slice();
    let cases: [(&str, &[u8], WireError); 10] = [
        ("opcode 0", b"\x00\x01\x00k", WireError::UnknownOperation),
        ("opcode 17", b"\x11\x01\x00k", WireError::UnknownOperation),
        ("reserved bit", b"\x21\x01\x00k", WireError::UnknownOperation),
        ("key beyond the end", b"\x01\xff\xffk", WireError::Malformed),
        ("value beyond the end", b"\x03\x01\x00\xff\xff\xff\xffkv", WireError::Malformed),
        ("value longer than memory", b"\x03\x01\x00\xff\xff\xff\xffk", WireError::Malformed),
        ("initial beyond the end", b"\x07\x00\x27\x01\x00\x01\x00\x00\x00\xff\xff\xff\x7fk1", WireError::Malformed),
        ("same sizes, no operand before", b"\x43kv", WireError::Malformed),
        ("same value, no operand before", b"\x83\x01\x00\x01\x00\x00\x00k", WireError::Malformed),
        ("same sizes, no initial before", b"\x47\x00\x27k11", WireError::Malformed),
    ];
    for (what, operation, error) in cases {
        let bytes = frame_of(4, &[get, operation, get].concat());
        let expected = [
            Ok(Request { key: b"k", operation: GET }),
            Err(error),
            Err(WireError::Malformed),
            Err(WireError::Malformed),
        ];
        assert_eq!(decode(&bytes), expected, "{what}");
    }
}

#[test]
fn copy_flags_need_something_to_copy() {
    assert_eq!(decode(&frame_of(1, b"\x41k")), [Err(WireError::Malformed)]);
    let disagreeing = b"\x03\x01\x00\x02\x00\x00\x00kvv\x83\x01\x00\x01\x00\x00\x00k";
    assert_eq!(decode(&frame_of(2, disagreeing))[1], Err(WireError::Malformed));
}

#[test]
fn an_empty_frame_with_a_count_is_malformed_for_each_operation() {
    assert_eq!(decode(&frame_of(u16::MAX, b"")), vec![Err(WireError::Malformed); 65535]);
    assert_eq!(decode(&frame_of(0, b"")), []);
}

#[test]
fn sizes_of_frames_are_limited() {
    for size in [0u32, 7, REQUEST_FRAME_SIZE_MAX as u32 + 1, u32::MAX] {
        let error = RequestFrame::decode(&size.to_le_bytes()).map(|_| ()).unwrap_err();
        assert_eq!(error, ProtocolError::FrameSize(size));
    }
    for size in [0u32, 7, REPLY_FRAME_SIZE_MAX as u32 + 1, u32::MAX] {
        let error = ReplyFrame::decode(&size.to_le_bytes()).map(|_| ()).unwrap_err();
        assert_eq!(error, ProtocolError::FrameSize(size));
    }
    for size in [8, REQUEST_FRAME_SIZE_MAX as u32] {
        assert!(RequestFrame::decode(&size.to_le_bytes()).unwrap().is_none());
    }
}

#[test]
fn the_largest_put_fits_and_nothing_larger_than_the_limit() {
    let key = [7; KEY_SIZE_MAX];
    let value = vec![7; VALUE_SIZE_MAX];
    let put = Request { key: &key, operation: Operation::Put { value: &value, condition: PutCondition::Always } };
    assert!(operation_size(&put) + 8 <= REQUEST_FRAME_SIZE_MAX);
    assert_eq!(decode(&encode(&[put])), [Ok(put)]);

    let mut bytes = b"before".to_vec();
    let mut writer = RequestFrameWriter::new(&mut bytes, 0, 0);
    let get = Request { key: &key, operation: GET };
    while writer.push(&get) {}
    let size = writer.size() - SIZE_FIELD;
    assert!(size <= REQUEST_FRAME_SIZE_MAX && size + 1 + KEY_SIZE_MAX > REQUEST_FRAME_SIZE_MAX);
    writer.finish();
    assert!(decode(&bytes[6..]).iter().all(|&request| request == Ok(get)));
}

#[test]
fn a_frame_takes_65535_operations() {
    let mut bytes = Vec::new();
    let mut writer = RequestFrameWriter::new(&mut bytes, 0, 0);
    let get = Request { key: b"k", operation: GET };
    while writer.push(&get) {}
    assert_eq!(writer.count(), u16::MAX);
    writer.finish();
    assert_eq!(decode(&bytes).len(), 65535);
}

#[test]
fn an_operation_that_does_not_fit_changes_nothing() {
    let mut bytes = Vec::new();
    let mut writer = RequestFrameWriter::with_size_max(&mut bytes, 0, 0, 8 + 10);
    let long = vec![0; usize::from(u16::MAX) + 1];
    let no_element = Reduce { fold: Fold::Dot, element: Element::U64, initial: &[0; 4], constants: &[0; 12] };
    for request in [
        Request { key: b"0123456789", operation: GET },
        Request { key: &long, operation: GET },
        Request { key: b"k", operation: Operation::Put { value: &long, condition: PutCondition::Always } },
        Request { key: b"k", operation: Operation::Reduce(no_element) },
    ] {
        assert!(!writer.push(&request));
    }
    assert_eq!((writer.size(), writer.count()), (12, 0));
    assert!(writer.push(&Request { key: b"0123456", operation: GET }));
    writer.finish();
    assert_eq!(bytes.len(), SIZE_FIELD + 8 + 10);
}

#[test]
fn a_full_reply_frame_and_the_longest_value_stay_within_the_limit() {
    let (small, large) = (vec![1; 4096], vec![2; PAGE_SIZE_MAX]);
    let mut bytes = Vec::new();
    let mut writer = ReplyFrameWriter::new(&mut bytes, 0);
    while writer.size() < REPLY_FRAME_SIZE_FULL - 1 {
        let missing = REPLY_FRAME_SIZE_FULL - 1 - writer.size();
        match missing {
            0..5000 => writer.push(Ok(Reply::Done)),
            _ => writer.push(Ok(Reply::Value(&small))),
        }
    }
    assert_eq!(writer.size(), REPLY_FRAME_SIZE_FULL - 1);
    writer.push(Ok(Reply::Value(&large)));
    let count = writer.count();
    writer.finish();
    let (frame, consumed) = ReplyFrame::decode(&bytes).unwrap().unwrap();
    assert_eq!((frame.count, consumed), (count, bytes.len()));
    assert_eq!(frame.replies().last(), Some(Ok(Ok(Reply::Value(&large)))));
}

#[test]
fn malformed_replies_are_refused() {
    let mut good = encode_replies(&[Ok(Reply::Value(b"v"))]);
    good[12] = 0x41;
    let cases: [(&str, Vec<u8>); 6] = [
        ("same sizes, no value before", good),
        ("status", [&encode_replies(&[])[..], &[6]].concat()),
        ("flag of another status", [&encode_replies(&[])[..], &[0x40]].concat()),
        ("operation error code", [&encode_replies(&[])[..], &[4, 99]].concat()),
        ("wire error code", [&encode_replies(&[])[..], &[5, 0]].concat()),
        ("value beyond the end", [&encode_replies(&[])[..], &[1, 2, 0, 0, 0, b'v']].concat()),
    ];
    for (what, mut bytes) in cases {
        let size = u32::try_from(bytes.len() - SIZE_FIELD).unwrap();
        bytes[..4].copy_from_slice(&size.to_le_bytes());
        bytes[8] = 2;
        let replies: Vec<_> = ReplyFrame::decode(&bytes).unwrap().unwrap().0.replies().collect();
        assert_eq!(replies, [Err(ProtocolError::Malformed)], "{what}");
    }
}

#[test]
fn codes_round_trip() {
    for (code, error) in (1..).zip(WireError::ALL) {
        assert_eq!(error.code(), code);
        assert_eq!(WireError::from_code(code), Some(error));
    }
    assert_eq!(WireError::from_code(0), None);
    assert_eq!(WireError::from_code(WireError::ALL.len() as u8 + 1), None);
}

fn bytes(size_max: usize) -> impl Strategy<Value = Vec<u8>> {
    // Only a few sizes and values, so that the copy flags are used.
    prop_oneof![vec(select(vec![0u8, 1]), 0..3), vec(any::<u8>(), 0..size_max)]
}

fn operation() -> impl Strategy<Value = OwnedOperation> {
    let condition = select(vec![PutCondition::Always, PutCondition::IfAbsent, PutCondition::IfPresent]);
    let shape = select(vec![Shape::ScalarToScalar, Shape::ScalarToVector, Shape::VectorToVector]);
    let element = || select(Element::ALL.to_vec());
    let initial = prop::option::of(bytes(20));
    prop_oneof![
        prop::strategy::Just(OwnedOperation::Get),
        prop::strategy::Just(OwnedOperation::Contains),
        prop::strategy::Just(OwnedOperation::Delete),
        (bytes(40), condition).prop_map(|(value, condition)| OwnedOperation::Put { value, condition }),
        (select(UpdateFunction::ALL.to_vec()), element(), shape, bytes(20), initial, any::<bool>()).prop_map(
            |(function, element, shape, operand, initial, return_old)| OwnedOperation::Update {
                function,
                element,
                shape,
                operand,
                initial,
                return_old
            }
        ),
        (select(Fold::ALL.to_vec()), element(), vec(any::<u8>(), 8), bytes(20)).prop_map(
            |(fold, element, mut initial, constants)| {
                initial.truncate(fold.sigma(element).width());
                OwnedOperation::Reduce { fold, element, initial, constants }
            }
        ),
        (select(Predicate::ALL.to_vec()), element(), bytes(9))
            .prop_map(|(predicate, element, operand)| OwnedOperation::Filter { predicate, element, operand }),
        any::<i64>().prop_map(|delta| OwnedOperation::AddDecimal { delta }),
        call(),
        scan(),
    ]
}

fn call() -> impl Strategy<Value = OwnedOperation> {
    let handle =
        (any::<u32>(), any::<u32>()).prop_map(|(id, revision)| FunctionHandle { id, revision, function: None });
    (handle, any::<u8>(), bytes(20), prop::option::of(bytes(9)), select(CallReply::ALL.to_vec())).prop_map(
        |(function, vectors, operands, initial, reply)| OwnedOperation::Call {
            function,
            vectors,
            operands,
            initial,
            reply,
        },
    )
}

fn scan() -> impl Strategy<Value = OwnedOperation> {
    let end = select(vec![ScanEnd::AtOrBelow(&[][..]), ScanEnd::Below(&[]), ScanEnd::Prefix(&[])]);
    let start = select(vec![ScanStart::AtOrAbove, ScanStart::Above, ScanStart::Floor]);
    let lease =
        prop_oneof![select(vec![ScanLease::None, ScanLease::Open]), any::<u64>().prop_map(ScanLease::Continue),];
    let answer = select(ScanAnswer::ALL.to_vec());
    (bytes(12), start, end, any::<bool>(), any::<u32>(), answer, lease).prop_map(
        |(bytes, start, end, reverse, limit, answer, lease)| {
            let end = if bytes.is_empty() { ScanEnd::Last } else { end };
            OwnedOperation::Scan { end: bytes, scan: Scan { start, end, reverse, limit, answer, lease } }
        },
    )
}

fn batch() -> impl Strategy<Value = Vec<OwnedRequest>> {
    vec((bytes(12), operation()).prop_map(|(key, operation)| OwnedRequest { key, operation }), 0..40)
}

/// A reply that owns its value.
type OwnedResponse = Result<Result<Option<Vec<u8>>, u8>, WireError>;

fn responses() -> impl Strategy<Value = Vec<OwnedResponse>> {
    let value = prop_oneof![vec(any::<u8>(), 8), bytes(40)];
    let response = prop_oneof![
        (0u8..3).prop_map(|status| Ok(Err(status))),
        select(OperationError::ALL.to_vec()).prop_map(|error| Ok(Err(100 + error.code()))),
        select(WireError::ALL.to_vec()).prop_map(Err),
        value.prop_map(|value| Ok(Ok(Some(value)))),
    ];
    vec(response, 0..40)
}

fn as_response(response: &OwnedResponse) -> Response<'_> {
    Ok(match response {
        Err(error) => return Err(*error),
        Ok(Ok(value)) => Reply::Value(value.as_deref().unwrap_or_default()),
        Ok(Err(0)) => Reply::Done,
        Ok(Err(1)) => Reply::NotFound,
        Ok(Err(2)) => Reply::Exists,
        Ok(Err(code)) => Reply::Failed(OperationError::from_code(code - 100).unwrap()),
    })
}

proptest! {
    #[test]
    fn batches_round_trip(batch in batch()) {
        let requests: Vec<_> = batch.iter().map(OwnedRequest::as_request).collect();
        let bytes = encode(&requests);
        let most: usize = requests.iter().map(operation_size).sum();
        prop_assert!(bytes.len() <= 12 + most);
        let expected: Vec<_> = requests.into_iter().map(Ok).collect();
        prop_assert_eq!(decode(&bytes), expected);
    }

    #[test]
    fn decoding_continues_at_a_position(batch in batch()) {
        let requests: Vec<_> = batch.iter().map(OwnedRequest::as_request).collect();
        let bytes = encode(&requests);
        let (frame, _) = RequestFrame::decode(&bytes).unwrap().unwrap();
        let mut operations = frame.operations();
        for count in 0..=requests.len() {
            let position = frame.position(&operations);
            prop_assert_eq!(position.count(), count);
            let rest: Vec<_> = frame.operations_from(position).map(Result::unwrap).collect();
            prop_assert_eq!(&rest[..], &requests[count..]);
            operations.next();
        }
    }

    #[test]
    fn a_frame_that_is_cut_is_incomplete_or_malformed_from_there(batch in batch()) {
        let requests: Vec<_> = batch.iter().map(OwnedRequest::as_request).collect();
        let bytes = encode(&requests);
        for size in 0..bytes.len() {
            prop_assert!(RequestFrame::decode(&bytes[..size]).unwrap().is_none());
        }
        // The same with a corrected size field: operations before the cut are unchanged, the others are malformed.
        for size in 12..bytes.len() {
            let mut cut = bytes[..size].to_vec();
            cut[..4].copy_from_slice(&u32::try_from(size - SIZE_FIELD).unwrap().to_le_bytes());
            let decoded = decode(&cut);
            prop_assert_eq!(decoded.len(), requests.len());
            let whole = decoded.iter().take_while(|request| request.is_ok()).count();
            prop_assert!(whole < requests.len());
            for (index, request) in decoded.into_iter().enumerate() {
                let expected = if index < whole { Ok(requests[index]) } else { Err(WireError::Malformed) };
                prop_assert_eq!(request, expected);
            }
        }
    }

    #[test]
    fn flipped_bits_are_survived(batch in batch(), flips in vec(any::<u32>(), 1..8)) {
        let requests: Vec<_> = batch.iter().map(OwnedRequest::as_request).collect();
        let mut bytes = encode(&requests);
        for flip in flips {
            let bit = flip as usize % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            survive_requests(&bytes);
        }
    }

    #[test]
    fn random_bytes_are_survived(count in any::<u16>(), bytes in vec(any::<u8>(), 0..300)) {
        survive_requests(&bytes);
        survive_replies(&bytes);
        // The same after a valid header, so that the operations are decoded.
        let bytes = frame_of(count, &bytes);
        survive_requests(&bytes);
        survive_replies(&bytes);
    }

    #[test]
    fn responses_round_trip(responses in responses()) {
        let expected: Vec<_> = responses.iter().map(as_response).collect();
        let bytes = encode_replies(&expected);
        let (frame, consumed) = ReplyFrame::decode(&bytes).unwrap().unwrap();
        prop_assert_eq!((frame.sequence, consumed), (7, bytes.len()));
        let decoded: Result<Vec<_>, _> = frame.replies().collect();
        prop_assert_eq!(decoded.unwrap(), expected);
    }

    #[test]
    fn damaged_replies_are_survived(responses in responses(), flips in vec(any::<u32>(), 1..8)) {
        let responses: Vec<_> = responses.iter().map(as_response).collect();
        let mut bytes = encode_replies(&responses);
        for size in 0..bytes.len() {
            prop_assert!(ReplyFrame::decode(&bytes[..size]).unwrap().is_none());
            if size >= 12 {
                let mut cut = bytes[..size].to_vec();
                cut[..4].copy_from_slice(&u32::try_from(size - SIZE_FIELD).unwrap().to_le_bytes());
                survive_replies(&cut);
            }
        }
        for flip in flips {
            let bit = flip as usize % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            survive_replies(&bytes);
        }
    }
}

#[test]
fn a_deferred_reply_is_sent_as_busy() {
    let bytes = encode_replies(&[Ok(Reply::Deferred)]);
    let (frame, _) = ReplyFrame::decode(&bytes).unwrap().unwrap();
    assert_eq!(frame.replies().collect::<Vec<_>>(), [Ok(Err(WireError::Busy))]);
}
