//! Sends SIGTERM during each kind of attack: the server stops in order and exits with 0, regardless of its clients.
//!
//! Times are not asserted, since machines differ. The time of each stop is printed (`cargo test … stop:: --
//! --nocapture`).

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{Server, WATCHDOG};

const MIB: usize = 1 << 20;

/// The progress of an attack.
#[derive(Default)]
struct Progress {
    count: AtomicU64,
    /// True after the server has ended.
    over: AtomicBool,
}

impl Progress {
    fn add(&self, count: usize) {
        self.count.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Waits until the server has ended. The caller keeps its connections open for that time.
    fn wait_until_over(&self) {
        while !self.over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A client that runs until its connection fails.
type Attacker = fn(&str, &Progress) -> Result<()>;

/// Starts a server and its attackers. Sends SIGTERM when they have counted to `middle` together, and checks the exit
/// code.
fn stops_during(arguments: &[&str], attackers: &[(usize, Attacker)], middle: u64) {
    let mut server = Server::start(arguments);
    let address = server.resp.clone().expect("the RESP port is on");
    let progress = Progress::default();
    let (code, time) = thread::scope(|scope| {
        let (address, progress) = (&address, &progress);
        for &(count, attacker) in attackers {
            for _ in 0..count {
                // An attacker ends when its connection fails.
                scope.spawn(move || attacker(address, progress));
            }
        }
        let begun = Instant::now();
        while progress.count.load(Ordering::Relaxed) < middle && begun.elapsed() < WATCHDOG {
            thread::sleep(Duration::from_millis(1));
        }
        let signalled = Instant::now();
        server.signal("TERM");
        // The server is killed if it does not end, so that the attackers end too.
        let code = server.wait().code();
        progress.over.store(true, Ordering::Relaxed);
        (code, signalled.elapsed())
    });
    let count = progress.count.load(Ordering::Relaxed);
    let name = thread::current().name().unwrap_or_default().to_owned();
    println!("{name}: exit {code:?} {time:.2?} after SIGTERM; counted to {count}");
    assert_eq!(code, Some(0));
    assert!(count >= middle, "the attack counted to {count} only, not to {middle}");
}

/// Encodes a command as an array of bulk strings.
fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Sends a command whose reply is one line, and waits for it.
fn execute(mut stream: &TcpStream, arguments: &[&[u8]]) -> Result<()> {
    stream.write_all(&command(arguments))?;
    let mut byte = [0];
    while byte != *b"\n" {
        stream.read_exact(&mut byte)?;
    }
    Ok(())
}

/// Sends the same bytes repeatedly while another thread reads the replies. `count` returns how much a piece of the
/// replies adds to the progress.
fn repeat(stream: &TcpStream, bytes: &[u8], progress: &Progress, count: fn(&[u8]) -> usize) -> Result<()> {
    let (mut writer, mut reader) = (stream, stream);
    thread::scope(|scope| {
        scope.spawn(move || while writer.write_all(bytes).is_ok() {});
        let mut piece = vec![0; 64 << 10];
        loop {
            match reader.read(&mut piece)? {
                0 => return Ok(()),
                size => progress.add(count(&piece[..size])),
            }
        }
    })
}

/// Counts errors about full memory.
fn full_count(replies: &[u8]) -> usize {
    replies.windows(4).filter(|bytes| bytes == b"-OOM").count()
}

/// Connects and selects a space.
fn connect(address: &str, space: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    execute(&stream, &[b"SELECT", space.as_bytes()])?;
    Ok(stream)
}

/// Encodes a `SET` of each of `key_count` keys, with values of one size.
fn sets(key_count: usize, value_size: usize) -> Vec<u8> {
    let value = vec![b'v'; value_size];
    (0..key_count).flat_map(|key| command(&[b"SET", format!("key:{key}").as_bytes(), &value])).collect()
}

fn flood_of_gets(address: &str, progress: &Progress) -> Result<()> {
    let gets: Vec<u8> = (0..1000).flat_map(|key| command(&[b"GET", format!("key:{key}").as_bytes()])).collect();
    repeat(&connect(address, "0")?, &gets, progress, <[u8]>::len)
}

fn commands_over_both_shards(address: &str, progress: &Progress) -> Result<()> {
    let keys: Vec<String> = (0..1000).map(|key| format!("key:{key}")).collect();
    let mut set: Vec<&[u8]> = vec![b"MSET"];
    set.extend(keys.iter().flat_map(|key| [key.as_bytes(), b"some value"]));
    let mut get: Vec<&[u8]> = vec![b"MGET"];
    get.extend(keys.iter().map(String::as_bytes));
    repeat(&connect(address, "0")?, &[command(&set), command(&get)].concat(), progress, <[u8]>::len)
}

/// Executes transactions on keys of all shards and of both spaces.
fn transactions(address: &str, progress: &Progress) -> Result<()> {
    let keys: Vec<String> = (0..100).map(|key| format!("counter:{key}")).collect();
    let increments: Vec<u8> = keys.iter().flat_map(|key| command(&[b"INCR", key.as_bytes()])).collect();
    let [multi, exec] = [&b"MULTI"[..], b"EXEC"].map(|name| command(&[name]));
    let [first, second] = [&b"0"[..], b"1"].map(|space| command(&[b"SELECT", space]));
    let in_both = [&multi[..], &increments, &second, &increments, &first, &exec].concat();
    let of_one = [&command(&[b"WATCH", b"counter:0"])[..], &multi, &increments, &exec].concat();
    repeat(&connect(address, "0")?, &[in_both, of_one].concat(), progress, <[u8]>::len)
}

fn slow_reader(address: &str, progress: &Progress) -> Result<()> {
    let mut stream = connect(address, "0")?;
    execute(&stream, &[b"SET", b"big", &vec![b'v'; MIB]])?;
    stream.write_all(&command(&[b"GET", b"big"]).repeat(200))?;
    progress.add(1);
    progress.wait_until_over();
    Ok(())
}

fn half_requests(address: &str, progress: &Progress) -> Result<()> {
    let mut streams = Vec::new();
    for number in 0..200 {
        let mut stream = TcpStream::connect(address)?;
        let request = command(&[b"MSET", b"a", &[b'v'; 1000], b"b", &[b'v'; 1000]]);
        stream.write_all(&request[..request.len() * (number % 20) / 20])?;
        streams.push(stream);
        progress.add(1);
    }
    progress.wait_until_over();
    Ok(())
}

/// Sends the first half of a request with a million arguments, then the rest, and repeats that.
fn giant(address: &str, progress: &Progress, name: &[u8], argument: &[u8]) -> Result<()> {
    let mut stream = connect(address, "0")?;
    execute(&stream, &[b"SET", b"big", &vec![b'v'; MIB]])?;
    let mut arguments = vec![argument; 1_000_000];
    arguments.insert(0, name);
    let bytes = command(&arguments);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    loop {
        stream.write_all(first)?;
        progress.add(1);
        stream.write_all(second)?;
        progress.add(1);
    }
}

fn giant_exists(address: &str, progress: &Progress) -> Result<()> {
    giant(address, progress, b"EXISTS", b"big")
}

fn giant_mset(address: &str, progress: &Progress) -> Result<()> {
    giant(address, progress, b"MSET", b"small")
}

fn writer_of_a_full_hash_space(address: &str, progress: &Progress) -> Result<()> {
    repeat(&connect(address, "0")?, &sets(2000, 50_000), progress, full_count)
}

fn writer_of_small_pairs(address: &str, progress: &Progress) -> Result<()> {
    repeat(&connect(address, "0")?, &sets(150_000, 480), progress, full_count)
}

fn writer_of_a_full_ordered_space(address: &str, progress: &Progress) -> Result<()> {
    repeat(&connect(address, "1")?, &sets(200_000, 300), progress, full_count)
}

fn writer_beside_scans(address: &str, progress: &Progress) -> Result<()> {
    repeat(&connect(address, "1")?, &sets(10_000, 100), progress, |_| 0)
}

/// Opens leases and leaves most of them open.
fn scans_with_leases(address: &str, progress: &Progress) -> Result<()> {
    let scan = command(&[b"SKEP.SCAN", b"-", b"+", b"LEASE", b"OPEN"]);
    let count = command(&[b"SKEP.COUNT", b"-", b"+"]);
    repeat(&connect(address, "1")?, &[scan, count].concat(), progress, <[u8]>::len)
}

fn churn(address: &str, progress: &Progress) -> Result<()> {
    loop {
        execute(&TcpStream::connect(address)?, &[b"PING"])?;
        progress.add(1);
    }
}

#[test]
fn sigterm_during_a_flood_of_gets() {
    stops_during(&[], &[(8, flood_of_gets)], 10 << 20);
}

#[test]
fn sigterm_while_operations_are_forwarded() {
    stops_during(&[], &[(8, commands_over_both_shards)], 20 << 20);
}

#[test]
fn sigterm_during_transactions() {
    stops_during(&["--ordered-memory", "32MiB"], &[(8, transactions)], 2 << 20);
}

#[test]
fn sigterm_while_readers_do_not_take_their_replies() {
    stops_during(&[], &[(50, slow_reader)], 50);
}

#[test]
fn sigterm_among_half_requests() {
    stops_during(&[], &[(4, half_requests)], 800);
}

#[test]
fn sigterm_during_giant_commands() {
    stops_during(&[], &[(3, giant_exists), (2, giant_mset)], 8);
}

#[test]
fn sigterm_while_the_hash_space_is_full() {
    stops_during(&[], &[(2, writer_of_a_full_hash_space)], 1000);
    stops_during(&[], &[(2, writer_of_small_pairs)], 1000);
}

#[test]
fn sigterm_while_the_ordered_space_is_full() {
    stops_during(&["--ordered-memory", "32MiB"], &[(2, writer_of_a_full_ordered_space)], 1000);
}

#[test]
fn sigterm_during_scans_with_leases() {
    stops_during(&["--ordered-memory", "32MiB"], &[(4, scans_with_leases), (2, writer_beside_scans)], 50 << 20);
}

#[test]
fn sigterm_during_connection_churn() {
    stops_during(&[], &[(8, churn)], 2000);
}

#[test]
fn the_command_shutdown_stops_the_server() {
    for words in ["SHUTDOWN", "SHUTDOWN NOSAVE NOW"] {
        let mut server = Server::start(&["--requirepass", "ham"]);
        let mut resp = TcpStream::connect(server.resp.as_ref().expect("the RESP port is on")).unwrap();
        resp.set_read_timeout(Some(WATCHDOG)).unwrap();
        resp.write_all(format!("SHUTDOWN\r\nAUTH ham\r\nSHUTDOWN SAVE\r\n{words}\r\n").as_bytes()).unwrap();
        let mut replies = String::new();
        resp.read_to_string(&mut replies).unwrap();
        assert_eq!(
            replies,
            "-NOAUTH Authentication required.\r\n+OK\r\n-ERR Errors trying to SHUTDOWN. Check logs.\r\n"
        );
        assert_eq!(server.wait().code(), Some(0));
    }
}
