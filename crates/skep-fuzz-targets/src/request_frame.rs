//! Fuzzes the bytes that a client sends on the native port.
//!
//! Looks for four faults:
//! 1. a panic
//! 2. a frame that is larger than its bytes or than its limit
//! 3. a number of operations that differs from the count of the frame
//! 4. a frame that is decoded differently after it was decoded and encoded again

use skep_core::operation::{Operation, Request};
use skep_wire::native::{Hello, REQUEST_FRAME_SIZE_MAX, RequestFrame, RequestFrameWriter, WireError};

/// Runs the target.
pub fn run(input: &[u8]) {
    if let Ok(Some((hello, size))) = Hello::decode(input) {
        assert_eq!(hello.encode(), input[..size]);
    }
    let mut bytes = input;
    while let Ok(Some((frame, size))) = RequestFrame::decode(bytes) {
        assert!(size > 0 && size <= bytes.len() && size <= 4 + REQUEST_FRAME_SIZE_MAX);
        let operations: Vec<Result<Request<'_>, WireError>> = frame.operations().collect();
        assert_eq!(operations.len(), usize::from(frame.count));
        check_written(&frame, &operations);
        bytes = &bytes[size..];
    }
}

/// Encodes the operations of a frame again and decodes them.
fn check_written(frame: &RequestFrame<'_>, operations: &[Result<Request<'_>, WireError>]) {
    // A fold whose Σ is not one number can be decoded, so that it gets an error reply, but not encoded.
    let writable = |request: &Request<'_>| match &request.operation {
        Operation::Reduce(reduce) => reduce.initial.len() == reduce.sigma().width(),
        _ => true,
    };
    let readable: Vec<Request<'_>> =
        operations.iter().filter_map(|operation| operation.ok()).filter(writable).collect();
    let mut written = Vec::new();
    let mut writer = RequestFrameWriter::new(&mut written, frame.sequence, frame.space);
    for operation in &readable {
        // The operations of one frame fit one frame again: the writer sets the copy flags wherever they save bytes.
        assert!(writer.push(operation), "{operation:?} does not fit");
    }
    writer.finish();
    let (again, size) = RequestFrame::decode(&written).expect("a frame").expect("a whole frame");
    assert_eq!((size, again.sequence, again.space), (written.len(), frame.sequence, frame.space));
    assert!(again.operations().eq(readable.into_iter().map(Ok)));
}
