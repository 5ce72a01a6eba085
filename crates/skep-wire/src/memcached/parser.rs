//! The parser of requests that arrive in pieces.
//!
//! The parser works in the receive buffer. The caller passes the buffer from the first byte of a request on. If the
//! request is incomplete, the caller passes the same bytes again with more bytes after them. Three steps lead to a
//! request:
//!
//! ```text
//!   1. find the line feed                  each byte is searched once
//!   2. parse the line: text.rs, meta.rs    twice if the value was incomplete the first time
//!   3. wait for the value                  only its size is compared until it is there
//! ```
//!
//! A base64 key is decoded where it is in the buffer, when the request is complete. This works because the key is
//! shorter than its text.
//!
//! A refused request may have a value. The parser then drops as many bytes as the line states, as memcached does, and
//! the next line follows. If the line does not state a size, the value is read as further lines.

use memchr::memchr;

use super::line::Line;
use super::meta::{MetaCommand, parse_meta};
use super::plain::{Plain, parse_plain};
use super::text::parse_text;
use super::words::Words;
use super::{ErrorReply, LINE_SIZE_MAX, RETRIEVAL_SIZE_MAX, Request};

/// The first byte of each request of the binary protocol.
const BINARY_MAGIC: u8 = 0x80;
/// Blanks that may precede the command of a long line.
const INDENTATION_MAX: usize = 100;

/// The result of parsing.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'b> {
    /// The request is incomplete: the next call must pass the same bytes and more.
    Incomplete,
    /// The request is complete. The next call must pass the bytes after it.
    Complete {
        /// The size of the request in the input.
        size: usize,
        /// The request.
        request: Request<'b>,
    },
    /// The request is refused. The next call must pass the bytes after it.
    Refused {
        /// The size of the request in the input.
        size: usize,
        /// The reply.
        error: ErrorReply,
        /// Sends no reply, since the line ends with `noreply`.
        is_quiet: bool,
    },
    /// This many bytes belong to the value of a refused request. The next call must pass the bytes after them.
    Dropped(usize),
    /// The line does not end, or the client speaks HTTP or the binary protocol. The server closes the connection without
    /// a reply.
    Close,
}

/// Parses the requests of a receive buffer, one after another.
#[derive(Debug)]
pub struct RequestParser {
    value_size_max: usize,
    /// Bytes of the request that contain no line feed.
    searched: usize,
    /// The size of the request, if its line was parsed.
    size: usize,
    /// Bytes to drop before the next request.
    dropped: usize,
}

impl RequestParser {
    /// Returns a parser that refuses longer values.
    pub fn new(value_size_max: usize) -> Self {
        RequestParser { value_size_max, searched: 0, size: 0, dropped: 0 }
    }

    /// Refuses values longer than this from the next line on.
    pub fn set_value_size_max(&mut self, value_size_max: usize) {
        self.value_size_max = value_size_max;
    }

    /// Returns the size of an incomplete request, when its line has told it.
    pub fn arriving_size(&self) -> Option<usize> {
        (self.size > 0).then_some(self.size)
    }

    /// Parses the request that begins with the first byte of `input`, if it is one of the most frequent ones and has
    /// arrived. Returns it and its size. If it returns `None`, [`RequestParser::parse`] parses the same bytes.
    #[inline]
    pub fn parse_plain<'b>(&mut self, input: &'b [u8]) -> Option<(usize, Plain<'b>)> {
        let is_first_attempt = self.searched | self.size | self.dropped == 0;
        if is_first_attempt { parse_plain(input, self.value_size_max) } else { None }
    }

    /// Parses the request that begins with the first byte of `input`. After `Close` the parser must not be used again.
    pub fn parse<'b>(&mut self, input: &'b mut [u8]) -> Parsed<'b> {
        if self.dropped > 0 && !input.is_empty() {
            let size = self.dropped.min(input.len());
            self.dropped -= size;
            return Parsed::Dropped(size);
        }
        if input.len() < self.size {
            return Parsed::Incomplete;
        }
        if input.first() == Some(&BINARY_MAGIC) {
            return Parsed::Close;
        }
        let Some(offset) = memchr(b'\n', &input[self.searched..]) else {
            self.searched = input.len();
            return if is_too_long(input, input.len()) { Parsed::Close } else { Parsed::Incomplete };
        };
        self.searched += offset;
        if is_too_long(input, self.searched) {
            return Parsed::Close;
        }
        let (line, body) = input.split_at_mut(self.searched + 1);
        let (line_size, body_arrived) = (line.len(), body.len());
        match parse_line(line, body, self.value_size_max) {
            Line::Complete(request, body_size) => {
                Parsed::Complete { size: self.finish(line_size, body_size, body_arrived), request }
            }
            Line::Refused(error, body_size, is_quiet) => {
                Parsed::Refused { size: self.finish(line_size, body_size, body_arrived), error, is_quiet }
            }
            Line::NeedsBody(body_size) => {
                self.size = line_size + body_size;
                Parsed::Incomplete
            }
            Line::Close => Parsed::Close,
        }
    }

    /// Resets the parser for the next request. Returns the size of this one, as far as it has arrived. The rest of its
    /// body is dropped.
    #[inline]
    fn finish(&mut self, line_size: usize, body_size: usize, body_arrived: usize) -> usize {
        (self.searched, self.size) = (0, 0);
        self.dropped = body_size.saturating_sub(body_arrived);
        line_size + body_size.min(body_arrived)
    }
}

/// Returns true if a line of this size is over the limit. Only a retrieval may have a long line.
fn is_too_long(input: &[u8], size: usize) -> bool {
    if size <= LINE_SIZE_MAX {
        return false;
    }
    let indentation = input.iter().take(INDENTATION_MAX).take_while(|&&byte| byte == b' ').count();
    let is_retrieval =
        [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|command| input[indentation..].starts_with(command));
    !is_retrieval || size > RETRIEVAL_SIZE_MAX
}

/// Parses a line, which ends with a line feed.
#[inline]
fn parse_line<'b>(line: &'b mut [u8], body: &'b [u8], value_size_max: usize) -> Line<'b> {
    let end = line.len() - 1;
    let end = if line[..end].ends_with(b"\r") { end - 1 } else { end };
    let line = &mut line[..end];
    let mut words = Words::new(line);
    let Some(name) = words.next() else { return Line::Refused(ErrorReply::Command, 0, false) };
    let Some(command) = MetaCommand::of(name) else {
        let (name_size, name_end) = (name.len(), end - words.rest().len());
        let (start, words) = line.split_at(name_end);
        return parse_text(&start[name_end - name_size..], Words::new(words), body, value_size_max);
    };
    let key_size = words.next().map_or(0, <[u8]>::len);
    let (start, flags) = line.split_at_mut(end - words.rest().len());
    let key = start.len() - key_size;
    parse_meta(command, &mut start[key..], Words::new(flags), body, value_size_max)
}
