//! The bytes that a client sends on the native port.
//!
//! Looked for: a panic, a frame that is larger than the bytes it came in or than its limit, a number of operations
//! that is not the announced one, and a frame that is read differently after it was written again from what was read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skep_core::operation::{Operation, Request};
use skep_wire::native::{Hello, REQUEST_FRAME_SIZE_MAX, RequestFrame, RequestFrameWriter, WireError};

fuzz_target!(|input: &[u8]| {
    if let Ok(Some(hello)) = Hello::decode(input) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(Some(hello)));
    }
    let mut bytes = input;
    while let Ok(Some((frame, size))) = RequestFrame::decode(bytes) {
        assert!(size > 0 && size <= bytes.len() && size <= 4 + REQUEST_FRAME_SIZE_MAX);
        let operations: Vec<Result<Request<'_>, WireError>> = frame.operations().collect();
        assert_eq!(operations.len(), usize::from(frame.count));
        check_written(&frame, &operations);
        bytes = &bytes[size..];
    }
});

/// Writes the operations of a frame again and reads them back.
fn check_written(frame: &RequestFrame<'_>, operations: &[Result<Request<'_>, WireError>]) {
    // A fold whose Σ is not one element can be read, so that it gets its error, but not written.
    let writable = |request: &Request<'_>| match &request.operation {
        Operation::Reduce(reduce) => reduce.initial.len() == reduce.element.width(),
        _ => true,
    };
    let readable: Vec<Request<'_>> =
        operations.iter().filter_map(|operation| operation.ok()).filter(writable).collect();
    let mut written = Vec::new();
    let mut writer = RequestFrameWriter::new(&mut written, frame.sequence, frame.space);
    for operation in &readable {
        // What came in one frame fits into one: the writer sets the copy flags wherever they help.
        assert!(writer.push(operation), "{operation:?} does not fit");
    }
    writer.finish();
    let (again, size) = RequestFrame::decode(&written).expect("a frame").expect("a whole frame");
    assert_eq!((size, again.sequence, again.space), (written.len(), frame.sequence, frame.space));
    assert!(again.operations().eq(readable.into_iter().map(Ok)));
}
