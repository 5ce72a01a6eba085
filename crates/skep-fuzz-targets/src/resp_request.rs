//! Fuzzes RESP requests that arrive in pieces.
//!
//! The first byte is the size of the pieces in which the rest arrives. Looks for four faults:
//! 1. a panic
//! 2. an argument outside its request
//! 3. more arguments than the bytes can hold
//! 4. a request that is parsed differently in pieces than in one part

use skep_wire::resp::{ARGUMENT_COUNT_MAX, Parsed, RequestError, RequestParser};

/// The arguments of each request, and the error that ended parsing.
pub(crate) type Requests = (Vec<Vec<Vec<u8>>>, Option<RequestError>);

/// Runs the target.
pub fn run(input: &[u8]) {
    let Some((piece_size, bytes)) = input.split_first() else { return };
    let at_once = parse(bytes, &[bytes.len()]);
    let in_pieces = parse(bytes, &[usize::from(*piece_size)]);
    assert_eq!(at_once, in_pieces);
}

/// Parses all requests in the bytes. They arrive in pieces of these sizes in turn; an empty piece has one byte.
pub(crate) fn parse(bytes: &[u8], piece_sizes: &[usize]) -> Requests {
    let mut received = bytes.to_vec();
    let mut piece_sizes = piece_sizes.iter().cycle();
    let mut parser = RequestParser::default();
    let mut arguments = Vec::new();
    let mut requests = Vec::new();
    let mut start = 0;
    let mut end = 0;
    loop {
        match parser.parse(&mut received[start..end], &mut arguments) {
            Err(error) => return (requests, Some(error)),
            Ok(Parsed::Incomplete) if end == received.len() => return (requests, None),
            Ok(Parsed::Incomplete) => {
                let piece_size = piece_sizes.next().expect("there is a size");
                end = received.len().min(end + (*piece_size).max(1));
            }
            Ok(Parsed::NeedsCapacity(count)) => {
                assert!(count <= end - start, "{count} arguments in {} bytes", end - start);
                arguments.reserve_exact(count);
            }
            Ok(Parsed::Part(size)) => assert!(size > 0 && parser.collected() == arguments.len() && parser.is_partial()),
            Ok(Parsed::Complete(size)) => {
                assert!(size > 0 && start + size <= end, "a request of {size} bytes in {}", end - start);
                assert!(arguments.len() <= size.min(ARGUMENT_COUNT_MAX));
                let request = &received[start..start + size];
                requests.push(arguments.iter().map(|argument| request[argument.range()].to_vec()).collect());
                arguments.clear();
                start += size;
            }
        }
    }
}
