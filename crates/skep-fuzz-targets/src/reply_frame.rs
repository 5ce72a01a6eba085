//! Fuzzes the bytes that a server sends on the native port. A client must not trust them either.
//!
//! Looks for five faults:
//! 1. a panic
//! 2. a frame that is larger than its bytes
//! 3. more replies than the count of the frame
//! 4. a frame that is decoded differently after it was decoded and encoded again
//! 5. a page of a scan whose content contradicts its header

use skep_core::operation::{Page, Reply, ScanAnswer};
use skep_wire::native::{REPLY_FRAME_SIZE_MAX, ReplyFrame, ReplyFrameWriter, Response, Welcome};

/// Runs the target.
pub fn run(input: &[u8]) {
    if let Ok(Some(welcome)) = Welcome::decode(input) {
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(Some(welcome)));
    }
    let mut bytes = input;
    while let Ok(Some((frame, size))) = ReplyFrame::decode(bytes) {
        assert!(size > 0 && size <= bytes.len() && size <= 4 + REPLY_FRAME_SIZE_MAX);
        let responses: Result<Vec<Response<'_>>, _> = frame.replies().take(1 << 16).collect();
        if let Ok(responses) = responses {
            assert_eq!(responses.len(), usize::from(frame.count));
            check_written(&frame, &responses);
            responses.iter().for_each(check_page);
        }
        bytes = &bytes[size..];
    }
}

/// Checks the content of a value that is the page of a scan.
fn check_page(response: &Response<'_>) {
    if let Ok(Reply::Value(bytes)) = response
        && let Some(page) = Page::decode(bytes)
    {
        let shown = if page.answer() == ScanAnswer::Count { 0 } else { page.count() as usize };
        assert_eq!(page.pairs().count(), shown);
        assert!(page.pairs().all(|(key, value)| !key.is_empty() && key.len() + value.len() <= bytes.len()));
    }
}

/// Encodes the replies of a frame again and decodes them.
fn check_written(frame: &ReplyFrame<'_>, responses: &[Response<'_>]) {
    let mut written = Vec::new();
    let mut writer = ReplyFrameWriter::new(&mut written, frame.sequence);
    for response in responses {
        writer.push(*response);
    }
    writer.finish();
    let (again, size) = ReplyFrame::decode(&written).expect("a frame").expect("a whole frame");
    assert_eq!((size, again.sequence), (written.len(), frame.sequence));
    let again: Result<Vec<Response<'_>>, _> = again.replies().collect();
    assert_eq!(again.as_deref(), Ok(responses));
}
