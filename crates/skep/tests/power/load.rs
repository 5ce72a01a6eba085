//! Clients that change integers and pairs, and count what their server acknowledges.
//!
//! All values are numbers that only grow, so each has a smallest and a largest value that it may have after a fault: what
//! was acknowledged, and what was sent. The sum of the accounts never changes.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep::{
    Client, ClientSettings, Element, HASH_SPACE, ORDERED_SPACE, Operation, PutCondition, Reply, Request, Responses,
    Shape, Update, UpdateFunction, WireError,
};

use crate::process::{Server, WATCHDOG};
use crate::wire::reply_end;

const SPACES: [u16; 2] = [HASH_SPACE, ORDERED_SPACE];
const HOT_COUNT: usize = 4;
const ACCOUNTS: usize = 12;
const BALANCE: i64 = 1000;
/// Integers and pairs of each client.
const INTEGERS: u32 = 20;
const PAIRS: u32 = 400;
/// Time between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(2);

/// A number that grows.
#[derive(Clone, Copy, Debug, Default)]
struct Growing {
    acknowledged: i64,
    sent: i64,
}

impl Growing {
    /// Compares it with what the server has, and goes on with that.
    fn check(&mut self, key: &str, found: i64) -> Option<String> {
        let Growing { acknowledged, sent } = std::mem::replace(self, Growing { acknowledged: found, sent: found });
        let is_wrong = !(acknowledged..=sent).contains(&found);
        is_wrong.then(|| format!("{key} has {found}: {acknowledged} was acknowledged, {sent} was sent"))
    }
}

/// What all clients have seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Operations that were acknowledged.
    pub(crate) acknowledged: AtomicU64,
    /// Those that were refused with `MISCONF`, and with `BUSY`.
    pub(crate) refused: AtomicU64,
    pub(crate) busy: AtomicU64,
    /// Connections that ended.
    pub(crate) closed: AtomicU64,
    is_over: AtomicBool,
}

impl Seen {
    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Integers to which the native clients add 1.
#[derive(Default)]
struct Hot([(AtomicI64, AtomicI64); HOT_COUNT]);

/// The clients.
pub(crate) struct Load {
    hot: Hot,
    clients: Vec<Numbers>,
    pub(crate) seen: Seen,
    seed: u64,
}

/// What one client changes.
struct Numbers {
    number: usize,
    space: u16,
    is_native: bool,
    numbers: BTreeMap<String, Growing>,
}

/// A change of a number: adds one to an integer, or writes the next number with more bytes after it.
enum Change {
    Hot(usize),
    Add(String),
    Put(String, i64, String),
    /// A reply that says nothing.
    Queued,
    Transfer(String),
}

impl Load {
    /// Creates two clients of each protocol. One of each uses the ordered space.
    pub(crate) fn new(seed: u64) -> Load {
        let clients = (0..4).map(|number| Numbers {
            number,
            space: SPACES[number % 2],
            is_native: number < 2,
            numbers: BTreeMap::new(),
        });
        Load { hot: Hot::default(), clients: clients.collect(), seen: Seen::default(), seed }
    }

    /// Writes the accounts.
    pub(crate) fn begin(&self, address: &str) {
        for space in SPACES {
            let mut connection = Connection::open(address, space).expect("the server serves");
            let accounts: String = (0..ACCOUNTS).map(|number| format!(" account:{number} {BALANCE}")).collect();
            assert_eq!(connection.run(&format!("MSET{accounts}")).expect("it replies"), b"+OK\r\n");
        }
    }

    /// Lets the clients run while `body` does, and up to the replies to what they have sent then.
    pub(crate) fn run<T>(&mut self, server: &mut Server, body: impl FnOnce(&mut Server, &Seen) -> T) -> T {
        let (native, resp) = (server.native.clone(), address(server));
        let (hot, seen) = (&self.hot, &self.seen);
        seen.is_over.store(false, Ordering::Relaxed);
        self.seed += 1;
        let seed = self.seed;
        thread::scope(|scope| {
            // The clients end with the body, also if it panics.
            let _end = End(seen);
            for client in &mut self.clients {
                let address = if client.is_native { native.clone() } else { resp.clone() };
                let random = Xoshiro256PlusPlus::seed_from_u64(seed * 100 + client.number as u64);
                scope.spawn(move || client.run(&address, hot, seen, random));
            }
            body(server, seen)
        })
    }

    /// Returns what the server has and should not have, or has not and should.
    pub(crate) fn check(&mut self, address: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for space in SPACES {
            let mut connection = Connection::open(address, space).expect("the server serves");
            let accounts: Vec<_> = (0..ACCOUNTS).map(|number| format!("account:{number}")).collect();
            let balances: Vec<i64> = connection.numbers(&accounts);
            if balances.iter().sum::<i64>() != ACCOUNTS as i64 * BALANCE {
                wrong.push(format!("the accounts of space {space} have {balances:?}"));
            }
            for client in self.clients.iter_mut().filter(|client| client.space == space) {
                let keys: Vec<_> = client.numbers.keys().cloned().collect();
                let found = connection.numbers(&keys);
                let pairs = client.numbers.iter_mut().zip(found);
                wrong.extend(pairs.filter_map(|((key, number), found)| number.check(key, found)));
            }
        }
        let mut connection = Connection::open(address, HASH_SPACE).expect("the server serves");
        for (number, (acknowledged, sent)) in self.hot.0.iter().enumerate() {
            let key = format!("hot:{number}");
            let reply = connection.run(&format!("GET {key}")).expect("it replies");
            let found = match reply.strip_prefix(b"$8\r\n").and_then(|bytes| bytes.first_chunk()) {
                Some(bytes) => i64::from_le_bytes(*bytes),
                None => 0,
            };
            let mut growing = Growing { acknowledged: acknowledged.swap(found, Ordering::Relaxed), sent: 0 };
            growing.sent = sent.swap(found, Ordering::Relaxed);
            wrong.extend(growing.check(&key, found));
        }
        wrong
    }
}

struct End<'a>(&'a Seen);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// Returns the address of the RESP port.
pub(crate) fn address(server: &Server) -> String {
    server.resp.clone().expect("the server listens for RESP")
}

impl Numbers {
    fn run(&mut self, address: &str, hot: &Hot, seen: &Seen, mut random: Xoshiro256PlusPlus) {
        while !seen.is_over.load(Ordering::Relaxed) {
            let is_closed = match self.is_native {
                true => self.run_native(address, hot, seen, &mut random).is_none(),
                false => self.run_resp(address, seen, &mut random).is_err(),
            };
            if is_closed {
                Seen::count(&seen.closed);
                thread::sleep(PAUSE);
            }
        }
    }

    fn run_native(&mut self, address: &str, hot: &Hot, seen: &Seen, random: &mut Xoshiro256PlusPlus) -> Option<()> {
        let settings = ClientSettings { retries_max: 0, reply_timeout: WATCHDOG, ..ClientSettings::default() };
        let mut client = Client::connect_with(address, self.space, &settings).ok()?;
        let mut responses = Responses::new();
        let one = 1_i64.to_le_bytes();
        while !seen.is_over.load(Ordering::Relaxed) {
            let changes: Vec<_> = (0..random.random_range(1..40)).map(|_| self.next(hot, random)).collect();
            let hot_keys: Vec<_> = (0..HOT_COUNT).map(|number| format!("hot:{number}")).collect();
            let request = |change| match change {
                &Change::Hot(number) => Request {
                    key: hot_keys[number].as_bytes(),
                    operation: Operation::Update(Update {
                        function: UpdateFunction::Add,
                        element: Element::I64,
                        shape: Shape::ScalarToScalar,
                        operand: &one,
                        initial: Some(&[0; 8]),
                        return_old: true,
                    }),
                },
                Change::Add(key) => Request { key: key.as_bytes(), operation: Operation::AddDecimal { delta: 1 } },
                Change::Put(key, _, value) => Request {
                    key: key.as_bytes(),
                    operation: Operation::Put { value: value.as_bytes(), condition: PutCondition::Always },
                },
                Change::Queued | Change::Transfer(_) => unreachable!("native clients have no transactions"),
            };
            let requests: Vec<_> = changes.iter().map(request).collect();
            client.execute(&requests, &mut responses).ok()?;
            for (change, response) in changes.iter().zip(responses.iter()) {
                match response {
                    Err(WireError::NotDurable) => {
                        Seen::count(&seen.refused);
                        self.refused(change, hot);
                    }
                    Err(WireError::Busy) => {
                        Seen::count(&seen.busy);
                        self.refused(change, hot);
                    }
                    Ok(Reply::Done | Reply::Value(_)) => {
                        Seen::count(&seen.acknowledged);
                        self.acknowledged(change, hot);
                    }
                    other => panic!("a change has the reply {other:?}"),
                }
            }
        }
        Some(())
    }

    fn run_resp(&mut self, address: &str, seen: &Seen, random: &mut Xoshiro256PlusPlus) -> io::Result<()> {
        let hot = Hot::default();
        let mut connection = Connection::open(address, self.space)?;
        while !seen.is_over.load(Ordering::Relaxed) {
            let (mut commands, mut changes) = (String::new(), Vec::new());
            for _ in 0..random.random_range(1..30) {
                if random.random_ratio(1, 5) {
                    let key = format!("transfers:{}", self.number);
                    self.numbers.entry(key.clone()).or_default().sent += 1;
                    let [from, to, amount] = [ACCOUNTS, ACCOUNTS, 99].map(|end| random.random_range(0..end));
                    let amount = amount + 1;
                    commands +=
                        &format!("MULTI\r\nINCRBY account:{from} -{amount}\r\nINCRBY account:{to} {amount}\r\n");
                    commands += &format!("INCR {key}\r\nEXEC\r\n");
                    changes.extend([const { Change::Queued }; 4]);
                    changes.push(Change::Transfer(key));
                    continue;
                }
                let change = self.next(&hot, random);
                match &change {
                    Change::Add(key) => commands += &format!("INCR {key}\r\n"),
                    Change::Put(key, _, value) => commands += &format!("SET {key} {value}\r\n"),
                    _ => unreachable!("RESP has no such change"),
                }
                changes.push(change);
            }
            connection.stream.write_all(commands.as_bytes())?;
            for change in &changes {
                let reply = connection.reply()?;
                let text = reply.escape_ascii();
                let is_refused = [&b"-MISCONF"[..], b"-EXECABORT"].iter().any(|name| reply.starts_with(name));
                let is_busy = reply.starts_with(b"-BUSY");
                match change {
                    Change::Queued => {
                        assert!(
                            is_refused || is_busy || [&b"+OK\r\n"[..], b"+QUEUED\r\n"].contains(&&reply[..]),
                            "{text}"
                        );
                        continue;
                    }
                    _ if is_refused || is_busy => {
                        Seen::count(if is_busy { &seen.busy } else { &seen.refused });
                        self.refused(change, &hot);
                        continue;
                    }
                    Change::Transfer(_) => assert!(reply.starts_with(b"*3\r\n:"), "{text}"),
                    _ => assert!(reply == b"+OK\r\n" || reply[0] == b':', "{text}"),
                }
                Seen::count(&seen.acknowledged);
                self.acknowledged(change, &hot);
            }
        }
        Ok(())
    }

    /// Returns a change at random, and notes that it is sent.
    fn next(&mut self, hot: &Hot, random: &mut Xoshiro256PlusPlus) -> Change {
        let number = self.number;
        match random.random_range(0..4) {
            0 if self.is_native && self.space == HASH_SPACE => {
                let number = random.random_range(0..HOT_COUNT);
                hot.0[number].1.fetch_add(1, Ordering::Relaxed);
                Change::Hot(number)
            }
            0 | 1 => {
                let key = format!("integer:{number}:{}", random.random_range(0..INTEGERS));
                self.numbers.entry(key.clone()).or_default().sent += 1;
                Change::Add(key)
            }
            _ => {
                let key = format!("pair:{number}:{}", random.random_range(0..PAIRS));
                let growing = self.numbers.entry(key.clone()).or_default();
                growing.sent += 1;
                let value = format!("{}{}", growing.sent, "x".repeat(random.random_range(0..300)));
                Change::Put(key, growing.sent, value)
            }
        }
    }

    /// Notes a change that was acknowledged.
    fn acknowledged(&mut self, change: &Change, hot: &Hot) {
        match change {
            Change::Hot(number) => _ = hot.0[*number].0.fetch_add(1, Ordering::Relaxed),
            Change::Add(key) | Change::Transfer(key) => self.growing(key).acknowledged += 1,
            Change::Put(key, number, _) => self.growing(key).acknowledged = *number,
            Change::Queued => {}
        }
    }

    /// Notes a change that was refused, so it has not happened.
    fn refused(&mut self, change: &Change, hot: &Hot) {
        match change {
            Change::Hot(number) => _ = hot.0[*number].1.fetch_sub(1, Ordering::Relaxed),
            Change::Add(key) | Change::Transfer(key) => self.growing(key).sent -= 1,
            // A later put may have been sent, so the largest number remains.
            Change::Put(..) | Change::Queued => {}
        }
    }

    fn growing(&mut self, key: &str) -> &mut Growing {
        self.numbers.get_mut(key).expect("it was sent")
    }
}

/// A connection to the RESP port, which may end at any time.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    /// Connects for commands on a space.
    pub(crate) fn open(address: &str, space: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(WATCHDOG))?;
        let mut connection = Connection { stream, received: Vec::new() };
        connection.run(&format!("SELECT {space}"))?;
        Ok(connection)
    }

    /// Sends a command without spaces in its words. Returns the bytes of its reply.
    pub(crate) fn run(&mut self, line: &str) -> io::Result<Vec<u8>> {
        self.stream.write_all(format!("{line}\r\n").as_bytes())?;
        self.reply()
    }

    /// Returns the bytes of the next reply.
    pub(crate) fn reply(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.end() {
                return Ok(self.received.drain(..end).collect());
            }
            let mut part = [0; 1 << 14];
            let size = match self.stream.read(&mut part) {
                // The kernel interrupts a read with a timeout if the process was stopped and goes on.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if size == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.received.extend_from_slice(&part[..size]);
        }
    }

    fn end(&self) -> Option<usize> {
        if self.received.is_empty() { None } else { reply_end(&self.received, 0) }
    }

    /// Returns the numbers with which the values of keys begin: 0 for keys that do not exist.
    fn numbers(&mut self, keys: &[String]) -> Vec<i64> {
        let mut numbers = Vec::new();
        for keys in keys.chunks(100) {
            let reply = self.run(&format!("MGET {}", keys.join(" "))).expect("it replies");
            let text = String::from_utf8(reply).expect("values are text");
            let mut lines = text.lines().skip(1);
            while let Some(line) = lines.next() {
                let value = if line == "$-1" { "0" } else { lines.next().expect("a value follows") };
                numbers.push(value.trim_end_matches('x').parse().expect("it begins with a number"));
            }
        }
        numbers
    }
}
