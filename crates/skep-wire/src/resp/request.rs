//! The parser of RESP requests.
//!
//! The parser works in the receive buffer. An [`Argument`] is a range of that buffer. The caller passes the buffer from
//! the first byte of a request on. If the request is incomplete, the caller passes the same bytes again with more bytes
//! after them, and parsing continues where it stopped. So the parser checks each byte of a request once, even if it
//! arrives in a million pieces. One exception follows below: some lines may be read a second time.
//!
//! Quoted words of an inline request lose their quotes and escapes in the buffer itself. This works because the
//! unquoted word is never longer than the quoted one.
//!
//! The parser allocates nothing. It appends arguments to a vector of the caller as far as its capacity allows. If a
//! request is incomplete, nothing is appended. When the rest has arrived, the parser reads the lines with the argument
//! sizes a second time to find the arguments. If the capacity is too small, it does the same when the caller has made
//! room, and reads an inline request again. A long request is read in parts ([`Parsed::Part`]). So an incomplete request of
//! a million arguments occupies only its bytes.
//! The caller learns how much memory the arguments need before it allocates any.
//!
//! Most requests arrive as a whole, and are arrays of a few short arguments. [`parse_whole`] takes those and nothing else;
//! all others take the steps of [`RequestParser::parse`].
//!
//! The error messages are those of Redis 7, because clients depend on them.

use std::ops::Range;

use memchr::memchr;

use super::argument::Argument;
use super::request_error::RequestError;
use super::whole::parse_whole;
use super::words::split_words;
use super::{
    ARGUMENT_COUNT_MAX, ARGUMENTS_PART, BULK_SIZE_MAX, LINE_SIZE_MAX, LOCKED_ARGUMENT_COUNT_MAX, LOCKED_BULK_SIZE_MAX,
    REQUEST_SIZE_MAX,
};

/// The result of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The request is incomplete: the next call must pass the same bytes and more.
    Incomplete,
    /// The request is complete and has this size. Its arguments were appended, the name of the command first. An empty
    /// request has no arguments and no reply. The next call must pass the bytes after the request.
    Complete(usize),
    /// The request is complete, but its arguments need capacity for this many: the next call must pass the same bytes.
    NeedsCapacity(usize),
    /// This many bytes of a request of more than [`ARGUMENTS_PART`] arguments were read. The next call may pass the same bytes,
    /// and must pass the arguments that were appended.
    Part(usize),
}

/// The known part of the size of a request that is arriving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arriving {
    /// Bytes that the request has at least.
    pub size_min: usize,
    /// It has no more bytes.
    pub is_size_known: bool,
    /// Arguments that its head promises.
    pub argument_count: usize,
}

/// Bytes of the shortest argument of an array: `$0`, and two ends of line.
const ARGUMENT_SIZE_MIN: usize = 6;

/// The parsed part of the request that is arriving.
#[derive(Clone, Copy, Debug, Default)]
enum Progress {
    /// No byte yet.
    #[default]
    Nothing,
    /// A `*`, without the end of its line.
    CountLine,
    /// The number of arguments.
    Arguments { missing: u32 },
    /// The size of the argument at `position`.
    Bulk { missing: u32, size: u32 },
    /// All arguments were checked, and some may have been appended.
    Collecting,
    /// The start of a line.
    Inline,
}

/// Parses the requests of a receive buffer, one after another.
#[derive(Debug, Default)]
pub struct RequestParser {
    progress: Progress,
    /// Bytes of the request that are parsed.
    position: usize,
    /// Bytes from `position` on that contain no end of line.
    searched: usize,
    /// Offset of the line with the size of the first argument, and the number of arguments.
    body: usize,
    count: u32,
    /// The arguments that were appended, and the offset of the line of the next one.
    collected: usize,
    next: usize,
    /// The last call has read a part.
    is_partial: bool,
    /// The client has not sent the password: its requests must be small.
    is_restricted: bool,
}

impl RequestParser {
    /// Limits the arguments of the next requests to what a client needs to send its password, or ends this.
    pub fn restrict(&mut self, is_restricted: bool) {
        self.is_restricted = is_restricted;
    }

    /// Parses the request that begins with the first byte of `input`. Appends its arguments to `arguments` when it is
    /// complete. After an error the parser must not be used again.
    pub fn parse(&mut self, input: &mut [u8], arguments: &mut Vec<Argument>) -> Result<Parsed, RequestError> {
        let parsed = self.parse_part(input, arguments);
        self.is_partial = matches!(parsed, Ok(Parsed::Part(_)));
        parsed
    }

    fn parse_part(&mut self, input: &mut [u8], arguments: &mut Vec<Argument>) -> Result<Parsed, RequestError> {
        if let Progress::Nothing = self.progress
            && !self.is_restricted
            && let Some(size) = parse_whole(input, arguments)
        {
            return Ok(Parsed::Complete(size));
        }
        let first = arguments.len() - self.collected;
        // True while all arguments so far were appended.
        let mut is_collected = matches!(self.progress, Progress::Nothing);
        let (from, mut checked) = (self.position, 0);
        loop {
            match self.progress {
                Progress::Nothing => match input.first() {
                    None => return Ok(Parsed::Incomplete),
                    Some(b'*') => {
                        self.position = 1;
                        self.progress = Progress::CountLine;
                    }
                    Some(_) => self.progress = Progress::Inline,
                },
                Progress::CountLine => {
                    if let Some(end) = self.parse_count(input)? {
                        return Ok(end);
                    }
                }
                Progress::Arguments { missing: 0 } if is_collected => return Ok(self.finish()),
                Progress::Arguments { missing: 0 } => {
                    arguments.truncate(first);
                    if arguments.capacity() - first < self.count as usize {
                        return Ok(Parsed::NeedsCapacity(self.count as usize));
                    }
                    self.next = self.body;
                    self.progress = Progress::Collecting;
                }
                Progress::Collecting => return Ok(self.collect_part(input, arguments, first)),
                Progress::Arguments { .. } if checked == ARGUMENTS_PART => {
                    arguments.truncate(first);
                    return Ok(Parsed::Part(self.position - from));
                }
                Progress::Arguments { missing } => {
                    checked += 1;
                    if !self.parse_size(input, missing)? {
                        arguments.truncate(first);
                        return Ok(Parsed::Incomplete);
                    }
                }
                Progress::Bulk { missing, size } => {
                    let end = self.position + size as usize;
                    match input.get(end..end + 2) {
                        None => {
                            arguments.truncate(first);
                            return Ok(Parsed::Incomplete);
                        }
                        Some(b"\r\n") => {}
                        Some(_) => return Err(RequestError::BulkEnd),
                    }
                    is_collected &= arguments.len() < arguments.capacity();
                    if is_collected {
                        arguments.push(Argument::new(self.position, size as usize));
                    }
                    self.position = end + 2;
                    self.progress = Progress::Arguments { missing: missing - 1 };
                }
                Progress::Inline => return self.parse_inline(input, arguments, first),
            }
        }
    }

    /// Parses the line with the number of arguments. Returns the result if the call ends with it.
    fn parse_count(&mut self, input: &[u8]) -> Result<Option<Parsed>, RequestError> {
        let Some(line) = self.line(input, RequestError::CountLineTooLong)? else {
            return Ok(Some(Parsed::Incomplete));
        };
        let count = parse_number(&input[line]).ok_or(RequestError::Count)?;
        match u32::try_from(count.max(0)) {
            Ok(0) => Ok(Some(self.finish())),
            Ok(missing) if self.is_restricted && missing as usize > LOCKED_ARGUMENT_COUNT_MAX => {
                Err(RequestError::LockedCount)
            }
            Ok(missing) if missing as usize <= ARGUMENT_COUNT_MAX => {
                (self.body, self.count) = (self.position, missing);
                self.progress = Progress::Arguments { missing };
                Ok(None)
            }
            _ => Err(RequestError::Count),
        }
    }

    /// Parses the line with the size of an argument. Returns false if it is incomplete.
    fn parse_size(&mut self, input: &[u8], missing: u32) -> Result<bool, RequestError> {
        match input.get(self.position) {
            None => return Ok(false),
            Some(b'$') => {}
            Some(&other) => return Err(RequestError::NoBulk(other)),
        }
        let Some(line) = self.line(input, RequestError::SizeLineTooLong)? else {
            return Ok(false);
        };
        let size = parse_number(&input[line.start + 1..line.end]).ok_or(RequestError::Size)?;
        let size = usize::try_from(size).map_err(|_| RequestError::Size)?;
        if size > BULK_SIZE_MAX {
            return Err(RequestError::Size);
        }
        if self.is_restricted && size > LOCKED_BULK_SIZE_MAX {
            return Err(RequestError::LockedSize);
        }
        if self.position + size + 2 > REQUEST_SIZE_MAX {
            return Err(RequestError::RequestTooLong);
        }
        self.progress = Progress::Bulk { missing, size: size as u32 };
        Ok(true)
    }

    /// Appends a part of the arguments of a request that has all of them.
    fn collect_part(&mut self, input: &[u8], arguments: &mut Vec<Argument>, first: usize) -> Parsed {
        let from = self.next;
        self.next = collect(&input[..self.position], from, arguments);
        if self.next == self.position {
            return self.finish();
        }
        self.collected = arguments.len() - first;
        Parsed::Part(self.next - from)
    }

    /// Parses a request of one line.
    fn parse_inline(
        &mut self,
        input: &mut [u8],
        arguments: &mut Vec<Argument>,
        first: usize,
    ) -> Result<Parsed, RequestError> {
        let Some(line) = self.line(input, RequestError::InlineTooLong)? else {
            return Ok(Parsed::Incomplete);
        };
        // Words are separated by blanks.
        let count_max = line.len().div_ceil(2);
        if arguments.capacity() - first < count_max {
            // The line is parsed again when there is capacity.
            self.position = 0;
            return Ok(Parsed::NeedsCapacity(count_max));
        }
        split_words(&mut input[line], arguments)?;
        Ok(self.finish())
    }

    /// Returns true if no byte of a request was read that is not complete.
    pub fn is_at_begin(&self) -> bool {
        matches!(self.progress, Progress::Nothing)
    }

    /// Returns true if the last call has read a part of a long request.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Returns the number of arguments that were appended of a request whose other arguments are not yet.
    pub fn collected(&self) -> usize {
        self.collected
    }

    /// Leaves a request of which a part was read. The caller has dropped its arguments, and may pass the same bytes later.
    pub fn leave_part(&mut self) {
        self.is_partial = false;
        if self.collected > 0 {
            (self.collected, self.progress) = (0, Progress::Arguments { missing: 0 });
        }
    }

    /// Returns what the bytes of an incomplete request have told of its size.
    pub fn arriving(&self) -> Arriving {
        let (missing, size) = match self.progress {
            Progress::Arguments { missing } => (missing, 0),
            Progress::Bulk { missing, size } => (missing - 1, size as usize + 2),
            _ => return Arriving { size_min: self.position + self.searched, ..Arriving::default() },
        };
        Arriving {
            size_min: self.position + size + missing as usize * ARGUMENT_SIZE_MIN,
            is_size_known: missing == 0,
            argument_count: self.count as usize,
        }
    }

    /// Returns the line at `position` without its end, or `None` if it is incomplete. Moves `position` to the next
    /// line.
    fn line(&mut self, input: &[u8], too_long: RequestError) -> Result<Option<Range<usize>>, RequestError> {
        let unseen = &input[self.position + self.searched..];
        let Some(offset) = memchr(b'\n', unseen) else {
            self.searched += unseen.len();
            return if self.searched > LINE_SIZE_MAX { Err(too_long) } else { Ok(None) };
        };
        let start = self.position;
        let newline = start + self.searched + offset;
        if newline - start > LINE_SIZE_MAX {
            return Err(too_long);
        }
        self.searched = 0;
        self.position = newline + 1;
        if self.position > REQUEST_SIZE_MAX {
            return Err(RequestError::RequestTooLong);
        }
        let end = if newline > start && input[newline - 1] == b'\r' { newline - 1 } else { newline };
        Ok(Some(start..end))
    }

    /// Resets the parser for the next request.
    fn finish(&mut self) -> Parsed {
        (self.progress, self.collected) = (Progress::Nothing, 0);
        Parsed::Complete(std::mem::take(&mut self.position))
    }
}

/// Appends the next arguments of a checked request, at most [`ARGUMENTS_PART`]. The line with the size of the first one is at
/// `position`. Returns the position of the next line.
fn collect(request: &[u8], mut position: usize, arguments: &mut Vec<Argument>) -> usize {
    for _ in 0..ARGUMENTS_PART {
        if position == request.len() {
            break;
        }
        let newline = position + memchr(b'\n', &request[position..]).expect("the request was checked");
        let line = &request[position + 1..newline];
        let size = parse_number(line.strip_suffix(b"\r").unwrap_or(line)).expect("the request was checked") as usize;
        arguments.push(Argument::new(newline + 1, size));
        position = newline + 1 + size + 2;
    }
    position
}

/// Parses a decimal number of up to 18 digits in the form of Redis: no sign except a minus, no leading zeros.
fn parse_number(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 || (digits[0] == b'0' && (digits.len() > 1 || negative)) {
        return None;
    }
    let mut number = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    Some(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::{ARGUMENTS_PART, Argument, BULK_SIZE_MAX, LINE_SIZE_MAX, Parsed, RequestError, RequestParser};

    /// Parses all requests of `bytes`, given to the parser `step` bytes at a time. Returns them with the error that
    /// stopped the parser.
    fn parse_all(bytes: &[u8], step: usize) -> (Vec<Vec<Vec<u8>>>, Option<RequestError>) {
        let mut parser = RequestParser::default();
        let (mut buffer, mut arguments) = (Vec::new(), Vec::new());
        let mut requests = Vec::new();
        for piece in bytes.chunks(step) {
            buffer.extend_from_slice(piece);
            loop {
                match parser.parse(&mut buffer, &mut arguments) {
                    Ok(Parsed::Complete(consumed)) => {
                        let owned = |argument: &Argument| buffer[argument.range()].to_vec();
                        requests.push(arguments.iter().map(owned).collect());
                        arguments.clear();
                        buffer.drain(..consumed);
                    }
                    Ok(Parsed::NeedsCapacity(count)) => arguments.reserve_exact(count),
                    Ok(Parsed::Part(_)) => {}
                    Ok(Parsed::Incomplete) => break,
                    Err(error) => return (requests, Some(error)),
                }
            }
        }
        (requests, None)
    }

    fn words(line: &str) -> Result<Vec<Vec<u8>>, RequestError> {
        let (mut requests, error) = parse_all(format!("{line}\r\n").as_bytes(), 1);
        error.map_or_else(|| Ok(requests.remove(0)), Err)
    }

    fn error_of(bytes: &[u8]) -> RequestError {
        parse_all(bytes, bytes.len()).1.expect("an error")
    }

    fn encode(arguments: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    #[test]
    fn inline_words() {
        assert_eq!(words("SET a 41").unwrap(), [b"SET".to_vec(), b"a".to_vec(), b"41".to_vec()]);
        assert_eq!(words("  PING\t").unwrap(), [b"PING"]);
        assert_eq!(words("").unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(words(r#"a "b c" ''"#).unwrap(), [b"a".to_vec(), b"b c".to_vec(), b"".to_vec()]);
        assert_eq!(words(r#""\x00\xfF\n\r\t\a\b\"\\\q\xg0""#).unwrap(), [b"\x00\xff\n\r\t\x07\x08\"\\qxg0"]);
        assert_eq!(words(r"'\'\n\x00'").unwrap(), [br"'\n\x00"]);
        assert_eq!(words(r#"a"b c""#).unwrap(), [b"ab c"]);
        for unbalanced in [r#""a"#, "'a", r#""a"b"#, r#""a\""#, r"'a\'", "\"\\"] {
            assert_eq!(words(unbalanced), Err(RequestError::Quotes), "{unbalanced}");
        }
    }

    #[test]
    fn empty_requests_have_no_arguments() {
        assert_eq!(
            parse_all(b"*0\r\n*-1\r\n\r\n\n*1\r\n$0\r\n\r\n", 1).0,
            [vec![], vec![], vec![], vec![], vec![vec![]]]
        );
    }

    #[test]
    fn error_messages() {
        assert_eq!(error_of(b"*x\r\n").to_string(), "Protocol error: invalid multibulk length");
        assert_eq!(error_of(b"*1048577\r\n"), RequestError::Count);
        assert_eq!(error_of(b"*18446744073709551617\r\n"), RequestError::Count);
        assert_eq!(error_of(b"*1\r\n:1\r\n").to_string(), "Protocol error: expected '$', got ':'");
        assert_eq!(error_of(b"*1\r\n\r\n").to_string(), r"Protocol error: expected '$', got '\r'");
        assert_eq!(error_of(b"*1\r\n$-1\r\n").to_string(), "Protocol error: invalid bulk length");
        assert_eq!(error_of(b"*1\r\n$01\r\n"), RequestError::Size);
        assert_eq!(error_of(format!("*1\r\n${}\r\n", BULK_SIZE_MAX + 1).as_bytes()), RequestError::Size);
        assert_eq!(error_of(b"*1\r\n$1\r\nab\r\n"), RequestError::BulkEnd);
        let endless = vec![b'1'; LINE_SIZE_MAX + 2];
        assert_eq!(error_of(&endless).to_string(), "Protocol error: too big inline request");
        assert_eq!(error_of(&[b"*", &endless[..]].concat()).to_string(), "Protocol error: too big mbulk count string");
        let endless_size = [b"*1\r\n$", &endless[..]].concat();
        assert_eq!(error_of(&endless_size).to_string(), "Protocol error: too big bulk count string");
        assert_eq!(error_of(b"GET 'a\r\n").to_string(), "Protocol error: unbalanced quotes in request");
    }

    #[test]
    fn a_request_over_the_limit_is_refused_at_its_size_line() {
        let megabyte = [b"$1048576\r\n".to_vec(), vec![0; 1 << 20], b"\r\n".to_vec()].concat();
        let request = [b"*17\r\n".to_vec(), megabyte.repeat(16)].concat();
        let (requests, error) = parse_all(&request, request.len());
        assert_eq!((requests.len(), error), (0, Some(RequestError::RequestTooLong)));
    }

    #[test]
    fn stated_sizes_reserve_no_memory() {
        let mut arguments = Vec::new();
        let parsed = RequestParser::default().parse(&mut b"*1048576\r\n$1048576\r\nab".to_vec(), &mut arguments);
        assert_eq!((parsed, arguments.capacity()), (Ok(Parsed::Incomplete), 0));
    }

    #[test]
    fn arguments_take_no_memory_before_the_request_is_complete() {
        const COUNT: usize = 100_000;
        let mut request = encode(&vec![b"x".to_vec(); COUNT]);
        let (mut parser, mut arguments) = (RequestParser::default(), Vec::new());
        let end = request.len();
        let mut parts = 0;
        for size in [end / 3, end / 2, end - 1] {
            while let Ok(Parsed::Part(_)) = parser.parse(&mut request[..size], &mut arguments) {
                parts += 1;
            }
            assert_eq!(parser.parse(&mut request[..size], &mut arguments), Ok(Parsed::Incomplete));
            assert_eq!((arguments.len(), arguments.capacity()), (0, 0));
        }
        assert_eq!(parts, 2);
        for _ in 0..2 {
            assert_eq!(parser.parse(&mut request, &mut arguments), Ok(Parsed::NeedsCapacity(COUNT)));
        }
        arguments.reserve_exact(COUNT);
        let mut parts = 0;
        while let Ok(Parsed::Part(_)) = parser.parse(&mut request, &mut arguments) {
            parts += 1;
            assert!(parser.is_partial());
            assert_eq!((arguments.len(), parser.collected()), (parts * ARGUMENTS_PART, parts * ARGUMENTS_PART));
            if parts == 2 {
                // The caller had no use for them yet.
                arguments.clear();
                parser.leave_part();
                assert!(!parser.is_partial());
                assert!(matches!(parser.parse(&mut request, &mut arguments), Ok(Parsed::Part(_))));
                parts = 1;
                while let Ok(Parsed::Part(_)) = parser.parse(&mut request, &mut arguments) {
                    parts += 1;
                }
                break;
            }
        }
        assert_eq!((parts, parser.collected()), (COUNT / ARGUMENTS_PART, 0));
        assert!(arguments.len() == COUNT && arguments.iter().all(|argument| &request[argument.range()] == b"x"));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            requests in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 1..6),
            step in 1_usize..50,
        ) {
            let bytes: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
            prop_assert_eq!(parse_all(&bytes, step), (requests, None));
        }

        #[test]
        fn a_truncated_request_is_incomplete(arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6)) {
            let bytes = encode(&arguments);
            for size in 0..bytes.len() {
                let parsed = RequestParser::default().parse(&mut bytes[..size].to_vec(), &mut Vec::new());
                prop_assert_eq!(parsed, Ok(Parsed::Incomplete));
            }
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(
            bytes in prop::collection::vec(prop_oneof![prop::sample::select(&b"*$-0123 \r\n\n\"'\\x"[..]), any::<u8>()], 0..400),
            step in 1_usize..50,
        ) {
            // The same requests and the same error for all piece sizes, and every argument is in its request.
            prop_assert_eq!(parse_all(&bytes, step), parse_all(&bytes, 400));
        }

        #[test]
        fn flipped_bits_are_parsed_or_refused(
            arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..6),
            flips in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
            step in 1_usize..50,
        ) {
            let mut bytes = encode(&arguments).repeat(3);
            for flip in flips {
                let bit = flip.index(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let (requests, error) = parse_all(&bytes, step);
            prop_assert_eq!((&requests, error), (&parse_all(&bytes, bytes.len()).0, error));
            prop_assert!(requests.len() <= bytes.len());
        }
    }

    #[test]
    fn the_head_of_a_request_tells_its_size() {
        let head = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\n";
        let full = head.len() + 102;
        let expected =
            [(0, 0, false), (1, 1, false), (4, 4 + 18, false), (8, 4 + 9 + 12, false), (head.len(), full, true)];
        for (arrived, size_min, is_size_known) in expected {
            let mut parser = RequestParser::default();
            assert_eq!(parser.parse(&mut head[..arrived].to_vec(), &mut Vec::new()), Ok(Parsed::Incomplete));
            let arriving = parser.arriving();
            assert_eq!((arriving.size_min, arriving.is_size_known), (size_min, is_size_known), "after {arrived} bytes");
            assert_eq!(arriving.argument_count, if arrived < 4 { 0 } else { 3 });
        }
    }
}
