//! Attacks by many connections that do very little: they read slowly, stop within a request, connect and disconnect, or
//! send garbage.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt};
use rustix::net::sockopt::set_socket_linger;
use skep_wire::native::Hello;

use super::resp::append;
use super::turn::{LARGE_KEY, PATIENCE, Turn};

const SLOW_READERS: usize = 150;
/// Replies of 1 MiB that each slow reader requests.
const SLOW_READER_DEPTH: usize = 20;
/// Bytes that it reads at a time.
const SIP: usize = 4096;
const HALF_REQUESTS: usize = 300;
const UNFINISHED_MSETS: usize = 4;
/// Bytes of an MSET that are sent: about as many as a command may have.
const MSET_SIZE: usize = 16 << 20;
const CHURN: usize = 20;
/// Time for which idle connections are held open.
const HOLD: Duration = Duration::from_secs(5);

/// Opens `count` connections to the RESP port.
fn connect(turn: &Turn<'_>, count: usize) -> Result<Vec<TcpStream>, String> {
    (0..count).map(|_| Ok(turn.connect()?.stream.into_inner())).collect()
}

/// Requests large values and reads a few bytes of them now and then.
pub(super) fn slow_readers(turn: &mut Turn<'_>) -> Result<(), String> {
    let mut connections = connect(turn, SLOW_READERS)?;
    let mut bytes = Vec::new();
    (0..SLOW_READER_DEPTH).for_each(|_| append(&[b"GET", LARGE_KEY], &mut bytes));
    for connection in &mut connections {
        connection.write_all(&bytes).map_err(|error| error.to_string())?;
        turn.tally.add(SLOW_READER_DEPTH as u64);
        connection.set_nonblocking(true).map_err(|error| error.to_string())?;
    }
    let begun = Instant::now();
    while begun.elapsed() < 2 * HOLD && !turn.stage.is_over() {
        // The server may close connections that make no progress; the others are kept.
        connections.retain_mut(|connection| match connection.read(&mut [0; SIP]) {
            Ok(size) => size > 0,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        });
        turn.stage.pause(HOLD / 10);
    }
    Ok(())
}

/// Sends the beginning of a request on each connection, and no more.
pub(super) fn half_requests(turn: &mut Turn<'_>) -> Result<(), String> {
    let mut connections = connect(turn, HALF_REQUESTS)?;
    let mut request = Vec::new();
    append(&[b"SET", b"half", &[b'h'; 2000]], &mut request);
    for connection in &mut connections {
        let size = turn.random.random_range(1..request.len());
        connection.write_all(&request[..size]).map_err(|error| error.to_string())?;
        turn.tally.add(1);
    }
    turn.stage.pause(HOLD);
    Ok(())
}

/// Sends MSETs of a million short arguments without their last bytes.
pub(super) fn unfinished_msets(turn: &mut Turn<'_>) -> Result<(), String> {
    const ARGUMENT: &[u8] = b"$10\r\n0123456789\r\n";
    let count = MSET_SIZE / ARGUMENT.len();
    let mut request = format!("*{}\r\n$4\r\nMSET\r\n", count + count % 2 + 1).into_bytes();
    request.extend(ARGUMENT.repeat(count - 1));
    let mut connections = connect(turn, UNFINISHED_MSETS)?;
    for connection in &mut connections {
        connection.write_all(&request).map_err(|error| error.to_string())?;
        turn.tally.add(1);
    }
    turn.stage.pause(HOLD);
    Ok(())
}

/// Connects to both ports, sends a few bytes and disconnects; half of the connections end with a reset.
pub(super) fn churn(turn: &mut Turn<'_>) -> Result<(), String> {
    for number in 0..CHURN {
        let address = if number % 2 == 0 { turn.stage.resp } else { turn.stage.native };
        let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
        let hello = if number % 2 == 0 { b"PING\r\n".to_vec() } else { Hello::new(None).encode().to_vec() };
        stream.write_all(&hello).map_err(|error| error.to_string())?;
        if number % 4 < 2 {
            set_socket_linger(&stream, Some(Duration::ZERO)).map_err(|error| error.to_string())?;
        }
        turn.tally.add(1);
    }
    Ok(())
}

/// Sends random bytes to both ports.
pub(super) fn garbage(turn: &mut Turn<'_>) -> Result<(), String> {
    for address in [turn.stage.resp, turn.stage.native] {
        let mut bytes = vec![0; turn.random.random_range(1..3000)];
        turn.random.fill_bytes(&mut bytes);
        let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(PATIENCE / 100)).map_err(|error| error.to_string())?;
        // The server may have closed the connection after the first bytes.
        _ = stream.write_all(&bytes);
        _ = stream.read(&mut bytes);
        turn.tally.add(1);
    }
    Ok(())
}
