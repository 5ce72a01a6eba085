//! Attacks whose requests are small and whose work or memory is not: transactions, patterns, folds of large values,
//! statistics, replies that are not read, and requests that arrive byte by byte. Beside them, clients whose large requests
//! must all be served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::resp::{Reply, append};
use super::turn::{LARGE_KEY, PATIENCE, Turn};

/// Connections that ask for four large values each, and read nothing.
const SILENT_READERS: usize = 100;
/// Connections that send the most part of a large request at once, and then a byte at a time.
const SLOW_SENDERS: usize = 60;
const SENT_AT_ONCE: usize = 900 << 10;
/// Well-behaved connections that send a large value at the same time.
const LARGE_WRITERS: usize = 150;
const LARGE_SIZE: usize = 1 << 20;
/// Sources of a long BITOP.
const SOURCES: usize = 20_000;
/// Connections that scan with a long pattern.
const SCANNERS: usize = 16;
/// Requests of a pipeline of statistics.
const STATISTICS: usize = 2000;
/// The time for which connections are held open.
const HOLD: Duration = Duration::from_secs(5);

/// Transactions: the command, and how often it is in one.
const TRANSACTIONS: [(&[&[u8]], usize); 6] = [
    (&[b"KEYS", b"no-such-key"], 60),
    (&[b"BITCOUNT", LARGE_KEY], 20_000),
    (&[b"SKEP.UPDATE", LARGE_KEY, b"add", b"u8", b"0", b"NORETURN"], 2000),
    (&[b"COPY", LARGE_KEY, b"copy", b"REPLACE"], 2000),
    (&[b"GET", LARGE_KEY], 20),
    (&[b"CLIENT", b"KILL", b"ADDR", b"1.2.3.4:5", b"SKIPME", b"yes"], 5000),
];

/// Administration: commands that look at all connections, or at all that was counted.
const ADMINISTRATION: [&[&[u8]]; 5] = [
    &[b"CLIENT", b"KILL", b"ADDR", b"1.2.3.4:5", b"SKIPME", b"yes"],
    &[b"CONFIG", b"RESETSTAT"],
    &[b"LATENCY", b"HISTOGRAM"],
    &[b"SLOWLOG", b"GET", b"-1"],
    &[b"COMMAND", b"DOCS"],
];

fn text<T>(result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Sends one command many times, in a pipeline. Reads all replies.
fn pipeline(turn: &Turn<'_>, words: &[&[u8]], count: usize) -> Result<(), String> {
    let mut bytes = Vec::new();
    (0..count).for_each(|_| append(words, &mut bytes));
    let mut resp = turn.connect()?;
    text(resp.send(&bytes))?;
    for _ in 0..count {
        text(resp.reply())?;
        turn.tally.add(1);
    }
    Ok(())
}

/// Runs a transaction of costly commands. It is executed or refused as a whole.
pub(super) fn transactions(turn: &mut Turn<'_>) -> Result<(), String> {
    let (words, count) = TRANSACTIONS[turn.number % TRANSACTIONS.len()];
    let mut bytes = Vec::new();
    append(&[b"MULTI"], &mut bytes);
    (0..count).for_each(|_| append(words, &mut bytes));
    append(&[b"EXEC"], &mut bytes);
    let mut resp = turn.connect()?;
    text(resp.send(&bytes))?;
    for _ in 0..=count {
        text(resp.reply())?;
    }
    turn.tally.add(count as u64);
    match text(resp.reply())? {
        Reply::Array(replies) => {
            let full = |reply: &Reply| matches!(reply, Reply::Error(error) if !error.contains("OUT_OF_MEMORY"));
            if let Some(error) = replies.iter().find(|reply| full(reply)) {
                turn.tally.wrong(format!("a part of a transaction of {count} commands has {error:?}"));
            }
        }
        Reply::Error(error) if error.starts_with("EXECABORT") => {}
        other => turn.tally.wrong(format!("EXEC of {count} commands has {other:?}")),
    }
    Ok(())
}

/// Combines many large values, in one command and in a pipeline.
pub(super) fn combinations(turn: &mut Turn<'_>) -> Result<(), String> {
    let count = [SOURCES, 16][turn.number % 2];
    let sources = std::iter::repeat_n(LARGE_KEY, count);
    let words: Vec<&[u8]> = [&b"BITOP"[..], b"AND", b"combined"].into_iter().chain(sources).collect();
    pipeline(turn, &words, SOURCES / count.max(100))
}

/// Scans with a pattern that takes long to compare.
pub(super) fn patterns(turn: &mut Turn<'_>) -> Result<(), String> {
    let pattern = [&b"*["[..], &[b'b'; 1000], b"]"].concat();
    let mut bytes = Vec::new();
    append(&[b"SCAN", b"0", b"MATCH", &pattern, b"COUNT", b"100000"], &mut bytes);
    let mut connections = (0..SCANNERS).map(|_| turn.connect()).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..4 {
        for resp in &mut connections {
            text(resp.send(&bytes))?;
        }
        for resp in &mut connections {
            text(resp.reply())?;
            turn.tally.add(1);
        }
    }
    Ok(())
}

/// Pipelines commands of administration.
pub(super) fn administration(turn: &mut Turn<'_>) -> Result<(), String> {
    pipeline(turn, ADMINISTRATION[turn.number % ADMINISTRATION.len()], 100)
}

/// Pipelines resets of memcached's statistics.
pub(super) fn statistics(turn: &mut Turn<'_>) -> Result<(), String> {
    const RESET: &[u8] = b"RESET\r\n";
    let mut stream = text(TcpStream::connect(turn.stage.memcached))?;
    text(stream.set_read_timeout(Some(PATIENCE)))?;
    text(stream.set_write_timeout(Some(PATIENCE)))?;
    text(stream.write_all(&b"stats reset\r\n".repeat(STATISTICS)))?;
    let mut replies = vec![0; STATISTICS * RESET.len()];
    text(stream.read_exact(&mut replies))?;
    if replies.chunks(RESET.len()).any(|reply| reply != RESET) {
        turn.tally.wrong("stats reset has another reply than RESET".to_owned());
    }
    turn.tally.add(STATISTICS as u64);
    Ok(())
}

/// Asks for four large values on each of many connections, and reads nothing.
pub(super) fn silent_readers(turn: &mut Turn<'_>) -> Result<(), String> {
    let mut bytes = Vec::new();
    append(&[b"MGET", LARGE_KEY, LARGE_KEY, LARGE_KEY, LARGE_KEY], &mut bytes);
    let mut connections = Vec::new();
    for _ in 0..SILENT_READERS {
        let mut resp = turn.connect()?;
        text(resp.send(&bytes))?;
        connections.push(resp);
        turn.tally.add(1);
    }
    turn.stage.pause(HOLD);
    Ok(())
}

/// Sends the most part of large requests, and the rest a byte at a time.
pub(super) fn slow_senders(turn: &mut Turn<'_>) -> Result<(), String> {
    let begin = [&b"*3\r\n$3\r\nSET\r\n$4\r\nslow\r\n$1048576\r\n"[..], &vec![b's'; SENT_AT_ONCE]].concat();
    let mut connections = Vec::new();
    for _ in 0..SLOW_SENDERS {
        let mut stream = turn.connect()?.stream.into_inner();
        text(stream.set_write_timeout(Some(Duration::from_millis(100))))?;
        // The server reads no more than it has memory for.
        _ = stream.write_all(&begin);
        connections.push(stream);
        turn.tally.add(1);
    }
    let begun = Instant::now();
    while begun.elapsed() < HOLD && !turn.stage.is_over() {
        // The server may close the slowest.
        connections.retain_mut(|stream| stream.write_all(b"s").is_ok());
        turn.stage.pause(HOLD / 5);
    }
    Ok(())
}

/// Sends large values on many connections at the same time. All must be stored, or refused because the store is full.
pub(super) fn large_writers(turn: &mut Turn<'_>) -> Result<(), String> {
    let mut bytes = Vec::new();
    append(&[b"SET", b"writer", &vec![b'w'; LARGE_SIZE]], &mut bytes);
    let mut connections = (0..LARGE_WRITERS).map(|_| turn.connect()).collect::<Result<Vec<_>, _>>()?;
    let tally = turn.tally;
    std::thread::scope(|scope| {
        for resp in &mut connections {
            let bytes = &bytes;
            scope.spawn(move || match resp.send(bytes).and_then(|()| resp.reply()) {
                Ok(Reply::Simple(_)) => tally.add(1),
                Ok(Reply::Error(error)) if error.contains("OUT_OF_MEMORY") => tally.add(1),
                Ok(other) => tally.wrong(format!("a SET of 1 MiB has {other:?}")),
                // The soak may be over.
                Err(_) => tally.fail(),
            });
        }
    });
    Ok(())
}
