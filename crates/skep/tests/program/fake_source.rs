//! A server of RESP that replies as a test says, for faults that no real server has.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// The payload of `DUMP` of the value `hello`.
pub(crate) const DUMP: &[u8] = b"\x00\x05hello\n\x00cr\xdfve4 \n";

/// Starts a server with one string, `k`. `reply` may return another reply to a command, whose words it sees in a
/// line; an empty one means that nothing is sent. Returns the URL. The server ends with the test program.
pub(crate) fn start(mut reply: impl FnMut(&str) -> Option<Vec<u8>> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            // An import that has seen enough closes the connection.
            _ = serve(stream.unwrap(), &mut reply);
        }
    });
    url
}

fn serve(mut stream: TcpStream, reply: &mut impl FnMut(&str) -> Option<Vec<u8>>) -> std::io::Result<()> {
    let mut input = BufReader::new(stream.try_clone()?);
    loop {
        let count = number(&mut input)?;
        let mut words = Vec::new();
        for _ in 0..count {
            let mut word = vec![0; number(&mut input)? + 2];
            input.read_exact(&mut word)?;
            words.push(String::from_utf8_lossy(&word).trim_end().to_owned());
        }
        let line = words.join(" ");
        stream.write_all(&reply(&line).unwrap_or_else(|| usual(&line)))?;
    }
}

/// Reads the number in a line after its first byte.
fn number(input: &mut impl BufRead) -> std::io::Result<usize> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    line.get(1..).and_then(|line| line.trim_end().parse().ok()).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

pub(crate) fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Returns a page of `SCAN`.
pub(crate) fn page(cursor: &str, keys: &[&str]) -> Vec<u8> {
    let keys: Vec<u8> = [format!("*{}\r\n", keys.len()).into_bytes()]
        .into_iter()
        .chain(keys.iter().map(|key| bulk(key.as_bytes())))
        .flatten()
        .collect();
    [b"*2\r\n".to_vec(), bulk(cursor.as_bytes()), keys].concat()
}

fn usual(line: &str) -> Vec<u8> {
    match line.split(' ').next().unwrap_or_default() {
        "INFO" => bulk(b"redis_version:7.0.15\r\nrun_id:00000000000000bb0000\r\ndb0:keys=1,expires=0\r\n"),
        "SELECT" if line != "SELECT 0" => b"-ERR DB index is out of range\r\n".to_vec(),
        "DBSIZE" | "STRLEN" => b":1\r\n".to_vec(),
        "SCAN" => page("0", &["k"]),
        "TYPE" => b"+string\r\n".to_vec(),
        "PEXPIRETIME" => b":-1\r\n".to_vec(),
        "DUMP" => bulk(DUMP),
        _ => b"+OK\r\n".to_vec(),
    }
}
