//! Backups of a server under load: what was acknowledged before a backup began is in it, and it is the state of one moment.
//!
//! Clients transfer money between accounts, each in a transaction with a count of its transfers. Others fill segments of
//! the log, take snapshots and write to the ordered space meanwhile. A server is started on each backup.

mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use full_run::is_full_run;
use tempfile::TempDir;

use process::{Server, output, text};

const CLIENTS: usize = 4;
const ACCOUNTS: u64 = 20;
const BALANCE: i64 = 1000;
const BACKUPS: usize = 12;

/// A client of the RESP port.
struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Client {
    fn connect(server: &str) -> Client {
        let stream = TcpStream::connect(server).expect("the server listens");
        Client { replies: BufReader::new(stream.try_clone().expect("a stream can be shared")), stream }
    }

    /// Sends commands, which are one line each, and returns the lines of the replies.
    fn run(&mut self, commands: &str, lines: usize) -> Vec<String> {
        self.stream.write_all(commands.as_bytes()).expect("the server reads");
        let mut line = || {
            let mut line = String::new();
            self.replies.read_line(&mut line).expect("the server replies");
            assert!(!line.starts_with("-ERR") && !line.starts_with("-EXEC"), "{line}");
            line.trim_end().to_owned()
        };
        (0..lines).map(|_| line()).collect()
    }

    /// Returns a number that is stored as text; 0 for a missing key.
    fn number(&mut self, key: &str) -> i64 {
        match self.run(&format!("GET {key}\r\n"), 1)[0].as_str() {
            "$-1" => 0,
            _ => self.run("", 1)[0].parse().expect("a number"),
        }
    }
}

fn start(directory: &str) -> Server {
    Server::start(&["--data-dir", directory, "--ordered-memory", "16MiB"])
}

/// What the clients know.
#[derive(Default)]
struct Known {
    /// Transfers of each client that were acknowledged.
    transfers: [AtomicU64; CLIENTS],
    /// The last number in the ordered space that was acknowledged.
    ordered: AtomicU64,
    is_over: AtomicBool,
}

impl Known {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }
}

/// Transfers until the end.
fn transfer(address: &str, number: usize, known: &Known) {
    let mut client = Client::connect(address);
    let mut random = number as u64;
    while known.goes_on() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (from, to, amount) = ((random >> 33) % ACCOUNTS, (random >> 43) % ACCOUNTS, (random >> 53) % 100);
        let commands = format!(
            "MULTI\r\nDECRBY account:{from} {amount}\r\nINCRBY account:{to} {amount}\r\nINCR client:{number}\r\nEXEC\r\n"
        );
        let replies = client.run(&commands, 8);
        assert_eq!(replies[4], "*3", "{replies:?}");
        known.transfers[number].fetch_add(1, Ordering::SeqCst);
    }
}

/// Writes large values, so that segments of the log are filled.
fn fill(address: &str, known: &Known) {
    let mut client = Client::connect(address);
    let value = "f".repeat(50_000);
    for number in 0_u64.. {
        if !known.goes_on() {
            return;
        }
        let commands: String =
            (0..8).map(|key| format!("SET fill:{}:{key} {number}{value}\r\n", number % 25)).collect();
        client.run(&commands, 8);
    }
}

fn write_ordered(address: &str, known: &Known) {
    let mut client = Client::connect(address);
    client.run("SELECT 1\r\n", 1);
    for number in 1_u64.. {
        if !known.goes_on() {
            return;
        }
        client.run(&format!("SET number {number}\r\nSET copy:{} {number}\r\n", number % 100), 2);
        known.ordered.store(number, Ordering::SeqCst);
    }
}

/// Takes one snapshot after another, with pauses.
fn take_snapshots(address: &str, known: &Known) {
    let mut client = Client::connect(address);
    while known.goes_on() {
        client.run("SAVE\r\n", 1);
        thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn backups_under_load_have_all_that_was_acknowledged() {
    if !is_full_run() {
        return;
    }
    let folder = TempDir::new().expect("there is room for a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("the path is UTF-8").to_owned();
    let data = path("data");
    let server = start(&data);
    let address = server.resp.clone().expect("the RESP port is on");
    let mut client = Client::connect(&address);
    (0..ACCOUNTS).for_each(|account| _ = client.run(&format!("SET account:{account} {BALANCE}\r\n"), 1));
    let known = Known::default();
    thread::scope(|scope| {
        let (address, known) = (&address, &known);
        (0..CLIENTS).for_each(|number| _ = scope.spawn(move || transfer(address, number, known)));
        scope.spawn(|| fill(address, known));
        scope.spawn(|| write_ordered(address, known));
        scope.spawn(|| take_snapshots(address, known));
        let mut reports = Vec::new();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while known.ordered.load(Ordering::SeqCst) < 200 {
                thread::sleep(Duration::from_millis(1));
            }
            for number in 0..BACKUPS {
                thread::sleep(Duration::from_millis(200 + 150 * (number as u64 % 4)));
                let (backup, restored) = (path(&format!("backup {number}")), path(&format!("restored {number}")));
                let before: Vec<i64> =
                    known.transfers.iter().map(|count| count.load(Ordering::SeqCst) as i64).collect();
                let ordered = known.ordered.load(Ordering::SeqCst) as i64;
                let made = output(&["backup", &data, &backup]);
                assert_eq!((made.status.code(), text(&made.stderr)), (Some(0), String::new()));
                let after: Vec<i64> = known.transfers.iter().map(|count| count.load(Ordering::SeqCst) as i64).collect();
                reports.push(text(&made.stdout));
                assert_eq!(output(&["log", "check", &backup]).status.code(), Some(0));
                assert_eq!(output(&["restore", &backup, &restored]).status.code(), Some(0));
                check(&restored, &before, &after, ordered);
                std::fs::remove_dir_all(&backup).expect("it was written");
                std::fs::remove_dir_all(&restored).expect("it was written");
            }
        }));
        known.is_over.store(true, Ordering::SeqCst);
        println!("{}", reports.join("\n"));
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Starts a server on a copy, and checks what it has.
fn check(directory: &str, before: &[i64], after: &[i64], ordered: i64) {
    let server = start(directory);
    let mut client = Client::connect(server.resp.as_ref().expect("the RESP port is on"));
    let sum: i64 = (0..ACCOUNTS).map(|account| client.number(&format!("account:{account}"))).sum();
    assert_eq!(sum, ACCOUNTS as i64 * BALANCE, "a transfer is there in part");
    for (number, (&before, &after)) in std::iter::zip(before, after).enumerate() {
        let found = client.number(&format!("client:{number}"));
        // One may have been executed and not been acknowledged.
        assert!((before..=after + 1).contains(&found), "client {number}: {found} of {before} to {after} transfers");
    }
    client.run("SELECT 1\r\n", 1);
    let found = client.number("number");
    assert!(found >= ordered, "{found} of {ordered} numbers");
    // The second write of a number follows the first.
    let copy = client.number(&format!("copy:{}", found % 100));
    assert!(copy == found || copy == found - 100, "{copy} after {found}");
    let before = client.number(&format!("copy:{}", (found - 1) % 100));
    assert_eq!(before, found - 1);
}
