//! A blocking RESP connection: commands as arrays of words, and the types of replies that this program receives.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    /// `None` is the null reply.
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

/// A connection.
pub(crate) struct Resp {
    pub(crate) stream: BufReader<TcpStream>,
}

/// Appends an encoded command.
pub(crate) fn append(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

impl Resp {
    /// Connects. A read or write fails if it takes longer than `patience`.
    pub(crate) fn connect(address: SocketAddr, patience: Option<Duration>) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(patience)?;
        stream.set_write_timeout(patience)?;
        Ok(Resp { stream: BufReader::new(stream) })
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends a command and reads its reply.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        let mut bytes = Vec::new();
        append(words, &mut bytes);
        self.send(&bytes)?;
        self.reply()
    }

    /// Reads a reply.
    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        read_reply(&mut self.stream)
    }
}

fn read_reply(stream: &mut impl BufRead) -> io::Result<Reply> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line)?;
    let Some((kind, text)) = line.strip_suffix(b"\r\n").and_then(|line| line.split_first()) else {
        return Err(if line.is_empty() { io::ErrorKind::UnexpectedEof.into() } else { invalid("half a line") });
    };
    let text = std::str::from_utf8(text).map_err(|_| invalid("a line that is not UTF-8"))?;
    let number = || text.parse::<i64>().map_err(|_| invalid("not a number"));
    Ok(match kind {
        b'+' => Reply::Simple(text.to_owned()),
        b'-' => Reply::Error(text.to_owned()),
        b':' => Reply::Integer(number()?),
        b'$' if number()? < 0 => Reply::Bulk(None),
        b'$' => {
            let mut bytes = vec![0; number()? as usize + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Reply::Bulk(Some(bytes))
        }
        b'*' => Reply::Array((0..number()?).map(|_| read_reply(stream)).collect::<io::Result<_>>()?),
        _ => return Err(invalid("not a reply of RESP 2")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read() {
        let mut bytes = &b"+OK\r\n-ERR no\r\n:-7\r\n$-1\r\n$3\r\na\r\n\r\n*2\r\n$-1\r\n*1\r\n:1\r\n$5\r\nab"[..];
        let text = |text: &str| text.to_owned();
        for reply in [
            Reply::Simple(text("OK")),
            Reply::Error(text("ERR no")),
            Reply::Integer(-7),
            Reply::Bulk(None),
            Reply::Bulk(Some(b"a\r\n".to_vec())),
            Reply::Array(vec![Reply::Bulk(None), Reply::Array(vec![Reply::Integer(1)])]),
        ] {
            assert_eq!(read_reply(&mut bytes).unwrap(), reply);
        }
        assert!(read_reply(&mut bytes).is_err(), "half a reply");
    }

    #[test]
    fn a_command_is_an_array_of_words() {
        let mut bytes = Vec::new();
        append(&[b"GET", b"key"], &mut bytes);
        assert_eq!(bytes, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
    }
}
