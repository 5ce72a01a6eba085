//! Clients that change pairs until their server is killed, and count what it acknowledges.

use std::sync::atomic::{AtomicI64, Ordering};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_client::{
    CACHE_SPACE, Client, ClientSettings, FunctionHandle, Operation, Reply, Request, Response, Responses, WireError,
};

use crate::calls::{Calls, KeyCall};
use crate::pairs::{Change, Pairs};
use crate::wire::{Arguments, Connection};

const HOT_COUNT: usize = 4;
pub(crate) const ACCOUNTS: usize = 12;
pub(crate) const BALANCE: i64 = 1000;

/// Integers to which all native clients add 1.
#[derive(Default)]
pub(crate) struct Hot([Counter; HOT_COUNT]);

#[derive(Default)]
struct Counter {
    acknowledged: AtomicI64,
    sent: AtomicI64,
}

impl Hot {
    pub(crate) fn keys() -> Vec<Vec<u8>> {
        (0..HOT_COUNT).map(|number| format!("hot:{number}").into_bytes()).collect()
    }

    /// Compares the integers with those of the server after a restart, and goes on with these.
    pub(crate) fn check(&self, found: &[Option<Vec<u8>>]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (number, (counter, found)) in self.0.iter().zip(found).enumerate() {
            let number_of = |bytes: &Vec<u8>| i64::from_le_bytes(bytes[..].try_into().expect("8 bytes"));
            let found = found.as_ref().map_or(0, number_of);
            let sent = counter.sent.swap(found, Ordering::Relaxed);
            let acknowledged = counter.acknowledged.swap(found, Ordering::Relaxed);
            if !(acknowledged..=sent).contains(&found) {
                wrong.push(format!("hot:{number} has {found}: of {sent} added, {acknowledged} were acknowledged"));
            }
        }
        wrong
    }
}

/// Connects to the native port. Calls fail as soon as the server ends.
pub(crate) fn connect(address: &str, space: u16) -> Option<Client> {
    let settings = ClientSettings { retries_max: 0, ..ClientSettings::default() };
    Client::connect_with(address, space, &settings).ok()
}

/// Returns the values of keys.
pub(crate) fn read(client: &mut Client, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    let requests: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
    let mut responses = Responses::new();
    client.execute(&requests, &mut responses).expect("the server serves");
    let value = |response| match response {
        Ok(Reply::Value(value)) => Some(value.to_vec()),
        Ok(Reply::NotFound) => None,
        other => panic!("a get has the reply {other:?}"),
    };
    responses.iter().map(value).collect()
}

/// A client of the native protocol.
pub(crate) struct NativeClient {
    space: u16,
    pub(crate) pairs: Pairs,
    pub(crate) calls: Calls,
    random: Xoshiro256PlusPlus,
    pub(crate) acknowledged: u64,
}

/// A part of a batch.
enum Step {
    Hot(usize),
    Own(u32, Change),
    Call(KeyCall),
}

impl NativeClient {
    pub(crate) fn new(space: u16, number: u16, seed: u64) -> NativeClient {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(1000 + 100 * space + number));
        let name = format!("native-{number}");
        let calls = Calls::new(name.clone(), space == CACHE_SPACE, random.random());
        NativeClient { space, pairs: Pairs::new(name, 20_000), calls, random, acknowledged: 0 }
    }

    /// Sends this number of batches, or as many until the server ends. Some steps call the functions, in the cache space
    /// all.
    pub(crate) fn run(&mut self, address: &str, hot: &Hot, functions: &[FunctionHandle], batches: usize) {
        let Some(mut client) = connect(address, self.space) else { return };
        let mut responses = Responses::new();
        let hot_keys = Hot::keys();
        let one = Change::Add(1_i64.to_le_bytes());
        for _ in 0..batches {
            let size = step_count(&mut self.random);
            let steps: Vec<Step> = (0..size).map(|_| self.step(functions)).collect();
            let key = |step: &Step| match step {
                Step::Hot(index) => hot_keys[*index].clone(),
                Step::Own(number, _) => self.pairs.key(*number),
                Step::Call(call) => call.key(),
            };
            let keys: Vec<Vec<u8>> = steps.iter().map(key).collect();
            let request = |index: usize| {
                let operation = match &steps[index] {
                    Step::Hot(_) => one.operation(),
                    Step::Own(_, change) => change.operation(),
                    Step::Call(call) => call.operation(),
                };
                Request { key: &keys[index], operation }
            };
            let requests: Vec<Request<'_>> = (0..size).map(request).collect();
            for step in &steps {
                if let Step::Hot(index) = step {
                    hot.0[*index].sent.fetch_add(1, Ordering::Relaxed);
                }
            }
            if client.execute(&requests, &mut responses).is_err() {
                for step in steps {
                    match step {
                        Step::Hot(_) => {}
                        Step::Own(number, change) => self.pairs.doubt(number, change),
                        Step::Call(call) => self.calls.doubt(call),
                    }
                }
                return;
            }
            for (step, response) in steps.iter().zip(responses.iter()) {
                self.note(hot, step, response);
            }
        }
    }

    fn step(&mut self, functions: &[FunctionHandle]) -> Step {
        if self.space == CACHE_SPACE {
            return Step::Call(self.calls.random(false, functions));
        }
        match self.random.random_range(0..8) {
            0 | 1 => Step::Hot(self.random.random_range(0..HOT_COUNT)),
            2 => Step::Call(self.calls.random(false, functions)),
            _ => {
                let (number, change) = self.pairs.random(false, &mut self.random);
                Step::Own(number, change)
            }
        }
    }

    fn note(&mut self, hot: &Hot, step: &Step, response: Response<'_>) {
        match (step, response) {
            (_, Err(WireError::NotDurable | WireError::Busy)) => return,
            (Step::Hot(index), Ok(Reply::Value(_))) => {
                hot.0[*index].acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            (Step::Own(number, change), Ok(Reply::Done | Reply::Value(_) | Reply::NotFound)) => {
                self.pairs.acknowledge(*number, change);
            }
            (Step::Call(call), Ok(reply)) => {
                self.calls.acknowledge(call, reply).unwrap_or_else(|error| panic!("space {}: {error}", self.space));
            }
            (_, other) => panic!("a change has the reply {other:?}"),
        }
        self.acknowledged += 1;
    }
}

/// Returns the number of steps of a batch: few of them are long.
fn step_count(random: &mut Xoshiro256PlusPlus) -> usize {
    if random.random_ratio(1, 4) { random.random_range(1..500) } else { random.random_range(1..30) }
}

/// A client of RESP.
pub(crate) struct RespClient {
    pub(crate) pairs: Pairs,
    pub(crate) calls: Calls,
    space: u16,
    number: u16,
    random: Xoshiro256PlusPlus,
    /// Transfers that were acknowledged, and sent.
    transfers: (i64, i64),
    pub(crate) acknowledged: u64,
}

/// A part of a pipeline.
enum Part {
    Own(u32, Change),
    Call(KeyCall),
    /// The commands of a transfer, without its end, or the end.
    Queued,
    Exec,
    Flush,
}

impl RespClient {
    pub(crate) fn new(space: u16, number: u16, seed: u64) -> RespClient {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(2000 + 100 * space + number));
        let name = format!("resp-{number}");
        let calls = Calls::new(name.clone(), space == CACHE_SPACE, random.random());
        RespClient { pairs: Pairs::new(name, 2000), calls, space, number, random, transfers: (0, 0), acknowledged: 0 }
    }

    /// Returns the key that counts its transfers.
    pub(crate) fn counter(&self) -> Vec<u8> {
        format!("transfers:{}", self.number).into_bytes()
    }

    /// Compares the number of transfers with that of the server after a restart, and goes on with this.
    pub(crate) fn check_transfers(&mut self, found: i64) -> Vec<String> {
        let (acknowledged, sent) = std::mem::replace(&mut self.transfers, (found, found));
        if (acknowledged..=sent).contains(&found) {
            return Vec::new();
        }
        vec![format!("client {} made {found} transfers: of {sent}, {acknowledged} were acknowledged", self.number)]
    }

    /// Sends this number of pipelines, or as many until the server ends: of changes of its own keys and, without functions,
    /// `FLUSHALL`. Otherwise it calls these functions, and makes transfers between accounts that all clients use. In the
    /// cache space, it only calls them.
    pub(crate) fn run(&mut self, address: &str, functions: Option<&[FunctionHandle]>, batches: usize) {
        let Ok(mut connection) = Connection::connect(address) else { return };
        let select = words(&format!("SELECT {}", self.space));
        if connection.send(&[select]).is_err() || connection.reply().is_err() {
            return;
        }
        for _ in 0..batches {
            let (mut commands, mut parts) = (Vec::new(), Vec::new());
            for _ in 0..step_count(&mut self.random).min(100) {
                let step = match functions {
                    None => self.random.random_range(0..200),
                    Some(_) if self.space == CACHE_SPACE => 1,
                    Some(_) => self.random.random_range(0..8),
                };
                match (functions, step) {
                    (None, 0) => {
                        commands.push(vec![b"FLUSHALL".to_vec()]);
                        parts.push(Part::Flush);
                    }
                    (Some(_), 0) => {
                        let transfer = self.transfer();
                        parts.extend(transfer[1..].iter().map(|_| Part::Queued));
                        parts.push(Part::Exec);
                        commands.extend(transfer);
                        self.transfers.1 += 1;
                    }
                    (Some(functions), 1) => {
                        let call = self.calls.random(true, functions);
                        commands.push(call.command());
                        parts.push(Part::Call(call));
                    }
                    _ => {
                        let (number, change) = self.pairs.random(true, &mut self.random);
                        commands.push(change.command(self.pairs.key(number)));
                        parts.push(Part::Own(number, change));
                    }
                }
            }
            let mut is_connected = connection.send(&commands).is_ok();
            for part in parts {
                let reply = if is_connected { connection.reply().ok() } else { None };
                is_connected = reply.is_some();
                self.note(part, reply.as_deref());
            }
            if !is_connected {
                return;
            }
        }
    }

    fn transfer(&mut self) -> Vec<Arguments> {
        let (from, to) = (self.random.random_range(0..ACCOUNTS), self.random.random_range(0..ACCOUNTS));
        let amount = self.random.random_range(1..100);
        let lines = [
            "MULTI".to_owned(),
            format!("INCRBY account:{from} -{amount}"),
            format!("INCRBY account:{to} {amount}"),
            format!("INCR transfers:{}", self.number),
            "EXEC".to_owned(),
        ];
        lines.iter().map(|line| words(line)).collect()
    }

    fn note(&mut self, part: Part, reply: Option<&[u8]>) {
        let is_refused = reply.is_some_and(|reply| {
            let names = [&b"-MISCONF"[..], b"-BUSY", b"-EXECABORT"];
            let is_refused = names.iter().any(|name| reply.starts_with(name));
            let may_fail = matches!(part, Part::Call(_));
            assert!(is_refused || may_fail || !reply.starts_with(b"-"), "{}", reply.escape_ascii());
            is_refused
        });
        match (part, reply) {
            (_, Some(_)) if is_refused => return,
            (Part::Own(number, change), Some(_)) => self.pairs.acknowledge(number, &change),
            (Part::Own(number, change), None) => self.pairs.doubt(number, change),
            (Part::Call(call), Some(reply)) => {
                let noted = self.calls.acknowledge_text(&call, reply);
                noted.unwrap_or_else(|error| panic!("space {}: {error}", self.space));
            }
            (Part::Call(call), None) => self.calls.doubt(call),
            (Part::Flush, Some(_)) => self.pairs.acknowledge_flush(),
            (Part::Flush, None) => self.pairs.doubt_flush(),
            (Part::Exec, Some(reply)) => {
                assert!(reply.starts_with(b"*3\r\n:"), "{}", reply.escape_ascii());
                self.transfers.0 += 1;
            }
            (Part::Queued | Part::Exec, _) => {}
        }
        self.acknowledged += u64::from(reply.is_some());
    }
}

/// Returns the arguments of a command without spaces in them.
pub(crate) fn words(line: &str) -> Arguments {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}
