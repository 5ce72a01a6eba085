//! Finds the ends of requests without keeping them: a connection that is only told to wait needs no memory for what it
//! sends. An array request has any number of arguments of any size; an inline request is one line.

/// Bytes of a name that are kept, to find out which command it is.
const NAME_SIZE: usize = 8;
/// Bytes of a line of an array request: a sign, a number, the end of the line.
const NUMBER_SIZE_MAX: usize = 32;

/// The state of a request that is arriving.
#[derive(Debug, Default)]
pub(super) struct Requests {
    position: Position,
    /// Arguments of the array request that have not begun.
    arguments_left: u64,
    /// The first bytes of the line that is arriving, or of the first argument.
    head: Vec<u8>,
    /// The next argument is the first one.
    is_first: bool,
    name: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Position {
    /// At the first byte of a request.
    #[default]
    Begin,
    /// In a line that is an inline request.
    Inline,
    /// In a line of an array request.
    Line,
    /// Before this number of bytes of an argument and the end of its line.
    Argument(u64),
}

/// What is not a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid;

impl Requests {
    /// Takes bytes, and calls `f` with the first bytes of each command's name, at its end.
    pub(super) fn take(&mut self, mut bytes: &[u8], mut f: impl FnMut(&[u8])) -> Result<(), Invalid> {
        while let Some(&first) = bytes.first() {
            match self.position {
                Position::Begin => {
                    self.head.clear();
                    self.name.clear();
                    self.position = if first == b'*' { Position::Line } else { Position::Inline };
                }
                Position::Argument(left) => {
                    let size = left.min(bytes.len() as u64);
                    let (taken, rest) = bytes.split_at(size as usize);
                    if self.is_first {
                        let room = NAME_SIZE - self.name.len();
                        self.name.extend_from_slice(&taken[..taken.len().min(room)]);
                    }
                    bytes = rest;
                    self.position = Position::Argument(left - size);
                    if left == size {
                        self.is_first = false;
                        self.end_argument(&mut f);
                    }
                }
                Position::Inline | Position::Line => {
                    let is_inline = matches!(self.position, Position::Inline);
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                    bytes = rest;
                    let room = NUMBER_SIZE_MAX.saturating_sub(self.head.len());
                    self.head.extend_from_slice(&part[..part.len().min(room)]);
                    if !is_inline && part.len() > room {
                        return Err(Invalid);
                    }
                    if end.is_some() && is_inline {
                        self.end_inline(&mut f);
                    } else if end.is_some() {
                        self.end_line()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends an inline request; a line of blanks is none.
    fn end_inline(&mut self, f: &mut impl FnMut(&[u8])) {
        let mut words = self.head.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        if let Some(name) = words.next() {
            f(&name[..name.len().min(NAME_SIZE)]);
        }
        self.position = Position::Begin;
    }

    /// Ends a line of an array request: the number of its arguments, or the size of one.
    fn end_line(&mut self) -> Result<(), Invalid> {
        let line = self.head.trim_ascii_end();
        let (kind, digits) = line.split_first().ok_or(Invalid)?;
        let number: i32 = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Invalid)?;
        match (kind, u64::try_from(number)) {
            (b'*', Ok(count @ 1..)) if self.arguments_left == 0 => {
                (self.arguments_left, self.is_first) = (count, true);
                self.head.clear();
            }
            // As in Redis, a request without arguments is none.
            (b'*', _) if self.arguments_left == 0 => self.position = Position::Begin,
            (b'$', Ok(size)) if self.arguments_left > 0 => {
                self.arguments_left -= 1;
                self.position = Position::Argument(size + 2);
            }
            _ => return Err(Invalid),
        }
        Ok(())
    }

    /// Ends an argument, and the request if it is its last one.
    fn end_argument(&mut self, f: &mut impl FnMut(&[u8])) {
        self.head.clear();
        if self.arguments_left > 0 {
            self.position = Position::Line;
            return;
        }
        f(self.name.trim_ascii_end());
        self.position = Position::Begin;
    }
}

#[cfg(test)]
mod tests {
    use super::{Invalid, Requests};

    /// Returns the names of the commands, if their bytes arrive in parts of this size.
    fn names(bytes: &[u8], part: usize) -> Result<Vec<String>, Invalid> {
        let (mut requests, mut names) = (Requests::default(), Vec::new());
        for bytes in bytes.chunks(part) {
            requests.take(bytes, |name| names.push(String::from_utf8_lossy(name).into_owned()))?;
            assert!(requests.head.capacity() + requests.name.capacity() < 100);
        }
        Ok(names)
    }

    #[test]
    fn requests_of_any_size_end() {
        let value = vec![b'\n'; 20_000];
        let keys = "$3\r\nkey\r\n".repeat(5000);
        let line = format!("SET a {}\r\n", "b".repeat(70_000));
        let bytes = [
            &b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$3\r\nset\r\n$1\r\na\r\n$20000\r\n"[..],
            &value,
            b"\r\n*0\r\n*-1\r\n\r\n  \r\n*5001\r\n$4\r\nMGET\r\n",
            keys.as_bytes(),
            line.as_bytes(),
            b"INFO\r\n*1\r\n$4\r\ninfo\r\nPING\n*1\r\n$0\r\n\r\n*2\r\n$12\r\nBITFIELD_RO2\r\n$0\r\n\r\n",
        ]
        .concat();
        let expected = ["GET", "set", "MGET", "SET", "INFO", "info", "PING", "", "BITFIELD"];
        for part in [1, 2, 7, 1000, bytes.len()] {
            assert_eq!(names(&bytes, part).unwrap(), expected, "parts of {part} bytes");
        }
    }

    #[test]
    fn what_is_no_request_is_invalid() {
        for text in [
            "*1\r\nGET\r\n",
            "*x\r\n",
            "*1\r\n$-1\r\n",
            "*1\r\n*1\r\n",
            "*\r\n",
            "*1\r\n$99999999999\r\n",
            "*1000000000000000000000000000000000000",
        ] {
            assert_eq!(names(text.as_bytes(), 5), Err(Invalid), "{text}");
        }
    }
}
