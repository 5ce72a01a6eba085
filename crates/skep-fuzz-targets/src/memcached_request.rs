//! Fuzzes memcached's requests that arrive in pieces.
//!
//! The first byte is the size of the pieces in which the rest arrives. Looks for three faults:
//! 1. a panic
//! 2. a request without a size, or with more bytes than have arrived
//! 3. a request that is parsed differently in pieces than in one part

use skep_wire::memcached::{ErrorReply, Parsed, RequestParser};

/// The longest value: small, so that the fuzzer also finds values that are too long.
const VALUE_SIZE_MAX: usize = 64;

/// A request as text, or the reason why it was refused, and `noreply`. The last is `None` if the connection was closed.
type Outcome = Option<Result<String, (ErrorReply, bool)>>;

/// Runs the target.
pub fn run(input: &[u8]) {
    let Some((piece_size, bytes)) = input.split_first() else { return };
    let at_once = parse(bytes, bytes.len());
    let in_pieces = parse(bytes, usize::from(*piece_size));
    assert_eq!(at_once, in_pieces);
}

/// Parses all requests in the bytes. They arrive in pieces of this size; an empty piece has one byte.
fn parse(bytes: &[u8], piece_size: usize) -> Vec<Outcome> {
    let mut received = bytes.to_vec();
    let mut parser = RequestParser::new(VALUE_SIZE_MAX);
    let mut outcomes = Vec::new();
    let (mut start, mut end) = (0, 0);
    loop {
        let arrived = end - start;
        let size = match parser.parse(&mut received[start..end]) {
            Parsed::Incomplete if end == bytes.len() => return outcomes,
            Parsed::Incomplete => {
                end = bytes.len().min(end + piece_size.max(1));
                continue;
            }
            Parsed::Complete { size, request } => {
                outcomes.push(Some(Ok(format!("{request:?}"))));
                size
            }
            Parsed::Refused { size, error, is_quiet } => {
                outcomes.push(Some(Err((error, is_quiet))));
                size
            }
            Parsed::Dropped(size) => size,
            Parsed::Close => {
                outcomes.push(None);
                return outcomes;
            }
        };
        assert!(size > 0 && size <= arrived, "a request of {size} bytes in {arrived}");
        start += size;
    }
}
