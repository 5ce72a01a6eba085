//! The rule of a turn: no command makes it spend more than its account and one operation of the largest kind.
//!
//! The test walks through every command of the tables, with the worst arguments that the limits allow: values of a
//! mebibyte, patterns, many arguments, many connections and keys. Each is sent alone, pipelined by many connections, and
//! in transactions. A command without a case fails the test. A case also says how much work the command has at least, so
//! that one which does not spend its work fails too.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

use skep_core::operation::{Operation, PutCondition, Request};

use super::{Bench, Client, command, frame};
use crate::access::Login;
use crate::limits::{OPERATION_WORK, TURN_WORK};
use crate::memcached_batch::MemcachedBatch;
use crate::parsed_batch::ParsedBatch;
use crate::resp_command::full_names;
use crate::settings::ServerSettings;

/// Bytes of the largest values.
const LARGE: usize = 1 << 20;
/// Work of the operations that a turn may begin with a byte of its account left: a value of the largest size in each list
/// of a batch, or a wave of computations. The stores compare their budget with the work after each wave.
const LARGEST_WORK: usize = 24 << 20;
/// Connections that are only in the list of connections.
const LISTED: usize = 800;
/// Connections that send.
const SENDERS: usize = 16;
/// Turns that are watched in each way of sending.
const TURNS: usize = 12;

/// The requests of one kind, and the work of one of them at least.
struct Case {
    request: Vec<u8>,
    least: usize,
}

fn case(arguments: &[&[u8]], least: usize) -> Option<Case> {
    Some(Case { request: command(arguments), least })
}

/// Returns the case of a command or subcommand.
#[expect(clippy::too_many_lines, reason = "a table")]
fn case_of(name: &str) -> Option<Case> {
    let large = vec![b'v'; LARGE];
    let words: Vec<&[u8]> = name.split('|').map(str::as_bytes).collect();
    let with = |arguments: &[&[u8]], least| case(&[&words, arguments].concat(), least);
    let many = |argument: &[u8], count, least| {
        let arguments: Vec<&[u8]> = vec![argument; count];
        case(&[&words[..], &arguments].concat(), least)
    };
    let plain = || with(&[], OPERATION_WORK);
    let on = |arguments: &[&[u8]]| with(&[&[&b"big"[..]], arguments].concat(), OPERATION_WORK);
    match name {
        "get" | "getex" | "digest" | "dump" | "bitcount" => with(&[b"big"], LARGE),
        "getdel" | "strlen" | "ttl" | "pttl" | "expiretime" | "pexpiretime" | "persist" | "type" | "incr" | "decr" => {
            on(&[])
        }
        "set" | "setnx" | "getset" | "append" => with(&[b"big", &large], LARGE),
        "del" | "exists" | "unlink" | "touch" | "mget" | "watch" => many(b"big", 4000, OPERATION_WORK),
        "mset" | "msetnx" => many(b"key", 4000, OPERATION_WORK),
        "msetex" => with(&[b"2", b"a", &large, b"b", &large], LARGE),
        "incrby" | "decrby" | "expire" | "pexpire" => on(&[b"100"]),
        "expireat" | "pexpireat" => on(&[b"9000000000000"]),
        "incrbyfloat" => with(&[b"float", &[&[b'1'; 5000][..], b"e-5000"].concat()], OPERATION_WORK),
        "setex" | "psetex" => with(&[b"big", b"100000", &large], LARGE),
        "delex" => on(&[b"IFEQ", &large]),
        "getrange" | "substr" => on(&[b"0", b"-1"]),
        "setrange" => on(&[b"1048575", b"x"]),
        "getbit" => on(&[b"8388607"]),
        "setbit" => on(&[b"8388607", b"1"]),
        "bitpos" => on(&[b"0"]),
        "bitfield_ro" => {
            let fields = [&b"GET"[..], b"u63", b"#4000"].repeat(4000);
            with(&[&[&b"bits"[..]], &fields[..]].concat(), OPERATION_WORK)
        }
        "bitfield" => {
            let fields = [&b"SET"[..], b"u63", b"#4000", b"1"].repeat(4000);
            with(&[&[&b"bits"[..]], &fields[..]].concat(), OPERATION_WORK)
        }
        "bitop" => with(&[&[&b"AND"[..], b"dest"], &[&b"big"[..]; 16][..]].concat(), OPERATION_WORK),
        "rename" | "renamenx" => on(&[b"other"]),
        "copy" => on(&[b"other", b"REPLACE"]),
        "object|encoding" | "object|freq" | "object|idletime" | "object|refcount" | "memory|usage" => on(&[]),
        "restore" => with(&[b"r", b"0", &compressed(), b"REPLACE"], LARGE),
        "scan" => with(&[b"0", b"COUNT", b"100000", b"MATCH", &pattern()], 16 * 1000),
        "keys" => with(&[&pattern()], 16 * 1000),
        "randomkey" | "dbsize" | "flushdb" | "flushall" => plain(),
        "skep.set" => with(&[&[&b"vector"[..], b"f64"], &[&b"1.25"[..]; 100_000][..]].concat(), 100_000),
        "skep.getv" => with(&[b"big", b"u8"], 64 * LARGE),
        "skep.update" => with(&[b"big", b"add", b"u8", b"1"], 64 * LARGE),
        "skep.reduce" => with(&[b"big", b"sum", b"u8", b"0"], LARGE),
        "skep.filter" => with(&[b"big", b"greater", b"u8", b"255"], LARGE),
        "skep.scan" | "skep.count" => with(&[b"-", b"+"], OPERATION_WORK),
        "skep.prefix" => with(&[b""], OPERATION_WORK),
        "skep.floor" => on(&[]),
        "multi" | "exec" | "discard" | "unwatch" | "reset" | "quit" | "time" | "lolwut" | "role" | "save"
        | "bgsave" | "bgrewriteaof" | "lastsave" | "monitor" | "shutdown" | "command|count" | "acl|list"
        | "acl|users" | "acl|whoami" | "acl|genpass" | "acl|load" | "acl|log" | "acl|save" | "client|id"
        | "client|getname" | "client|unpause" | "slowlog|len" | "latency|latest" | "config|rewrite" => plain(),
        "ping" | "echo" => with(&[&large], LARGE),
        "hello" => with(&[b"3", b"SETNAME", &[b'n'; 256]], OPERATION_WORK),
        "auth" => with(&[&[b'p'; 512]], OPERATION_WORK),
        "select" => with(&[b"0"], OPERATION_WORK),
        "wait" => with(&[b"0", b"0"], OPERATION_WORK),
        "waitaof" => with(&[b"0", b"0", b"0"], OPERATION_WORK),
        "debug" => with(&[b"SLEEP", b"0"], OPERATION_WORK),
        "info" => with(&[b"everything"], 500_000),
        "command" | "command|docs" | "command|info" => many(b"client", 250, 16 * 250),
        "command|list" => with(&[b"FILTERBY", b"PATTERN", &[b'?'; 64]], 64 * 256),
        "command|getkeys" => many(b"mget", 1000, 1000),
        "config|get" => many(&b"*?a".repeat(21), 32, 32 * 2048),
        "config|set" => with(&[b"timeout", b"0"], OPERATION_WORK),
        "config|resetstat" => with(&[], 100_000),
        "acl|setuser" => many(b"+@read", 1000, OPERATION_WORK),
        "acl|getuser" | "acl|deluser" => with(&[b"+@read"], OPERATION_WORK),
        "acl|dryrun" => with(&[b"default", b"GET", b"big"], OPERATION_WORK),
        "acl|cat" => with(&[b"read"], 10_000),
        "client|list" => with(&[], LISTED * 1000),
        "client|kill" => with(&[b"ADDR", b"1.2.3.4:5", b"SKIPME", b"yes"], LISTED * 1000),
        "client|info" => with(&[], 1000),
        "client|no-evict" | "client|no-touch" | "client|reply" => with(&[b"ON"], OPERATION_WORK),
        "client|pause" => with(&[b"0"], OPERATION_WORK),
        "client|setinfo" => with(&[b"lib-name", &[b'n'; 256]], OPERATION_WORK),
        "client|setname" => with(&[&[b'n'; 256]], OPERATION_WORK),
        "slowlog|get" => with(&[b"-1"], OPERATION_WORK),
        "slowlog|reset" => with(&[], OPERATION_WORK),
        "skep.function|load" => with(&[b"mod m { #[update] fn f(v: u8) -> u8 { v } }"], OPERATION_WORK),
        "skep.function|delete" | "skep.function|show" => with(&[b"nosuch"], OPERATION_WORK),
        "skep.function|list" | "skep.function|stats" => plain(),
        "latency|histogram" => many(b"nosuch", 1000, 100 * 1000),
        "latency|doctor" => plain(),
        "latency|graph" | "latency|history" | "latency|reset" => with(&[b"event"], OPERATION_WORK),
        _ if name.ends_with("|help") => plain(),
        _ => None,
    }
}

/// Returns the longest pattern, which no key matches and every key matches nearly.
fn pattern() -> Vec<u8> {
    [&b"*a".repeat(250)[..], b"*[", &[b'b'; 500], b"]"].concat()
}

/// Returns a payload of `RESTORE`, which becomes nearly a mebibyte.
fn compressed() -> Vec<u8> {
    let copies = 3900;
    let compressed = [&b"\0A"[..], &b"\xe0\xff\0".repeat(copies)].concat();
    let size = |size: usize| [&[0x80][..], &(size as u32).to_be_bytes()].concat();
    let body = [&b"\0\xc3"[..], &size(compressed.len()), &size(1 + 264 * copies), &compressed, b"\x0a\0"].concat();
    [&body[..], &checksum(&body).to_le_bytes()].concat()
}

/// Returns the CRC-64 of Redis.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |checksum, byte| {
        (0..8).fold(checksum ^ u64::from(*byte), |checksum, _| {
            checksum >> 1 ^ if checksum & 1 == 1 { 0x95ac_9329_ac4b_c9b5 } else { 0 }
        })
    })
}

/// Commands of memcached's protocol, with the work of one of them at least.
fn memcached_cases() -> Vec<Case> {
    let keys = b" big".repeat(2000);
    let large = [b"set big 0 0 1048000\r\n", &[b'v'; 1_048_000][..], b"\r\n"].concat();
    let line = |line: &str| [line.as_bytes(), b"\r\n"].concat();
    [
        ([b"get", &keys[..], b"\r\n"].concat(), 2000 * OPERATION_WORK),
        ([b"gats 0", &keys[..], b"\r\n"].concat(), 2000 * OPERATION_WORK),
        (large, 1_000_000),
        (line("append big 0 0 1\r\nx"), OPERATION_WORK),
        (line("delete big"), OPERATION_WORK),
        (line("incr n 1"), OPERATION_WORK),
        (line("touch big 0"), OPERATION_WORK),
        (line("flush_all"), OPERATION_WORK),
        (line("stats"), 10_000),
        (line("stats settings"), 1000),
        (line("stats items"), 1000),
        (line("stats slabs"), 1000),
        (line("stats sizes"), OPERATION_WORK),
        (line("stats conns"), OPERATION_WORK),
        (line("stats reset"), 1000),
        (line("version"), OPERATION_WORK),
        (line("verbosity 1"), OPERATION_WORK),
        (line("mn"), OPERATION_WORK),
        (line("me big"), OPERATION_WORK),
        (line("mg big v"), OPERATION_WORK),
        (line("ms big 1\r\nx"), OPERATION_WORK),
        (line("md big"), OPERATION_WORK),
        (line("ma n"), OPERATION_WORK),
        (line("no such command"), OPERATION_WORK),
        (line("quit"), OPERATION_WORK),
    ]
    .map(|(request, least)| Case { request, least })
    .into()
}

/// The other end of a connection, which may end.
struct Sender {
    stream: std::net::TcpStream,
    request: Vec<u8>,
    sent: usize,
}

impl Sender {
    /// Sends more, from the begin again if it is to be repeated, and takes all replies.
    fn go_on(&mut self, repeats: bool) {
        while self.sent < self.request.len()
            && let Ok(size) = self.stream.write(&self.request[self.sent..])
        {
            self.sent += size;
            if repeats && self.sent == self.request.len() {
                self.sent = 0;
                break;
            }
        }
        let mut piece = vec![0; 64 << 10];
        while match self.stream.read(&mut piece) {
            Ok(size) => size > 0,
            Err(error) => error.kind() == ErrorKind::Interrupted,
        } {}
    }
}

/// Returns a shard with large values and keys, and with many connections in the list.
fn bench() -> Bench {
    let settings = ServerSettings { cache_memory: 16 << 20, connection_memory: 128 << 20, ..ServerSettings::default() };
    let bench = Bench::new(1, &settings);
    for number in 0..LISTED {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], number as u16 + 1));
        bench.shared.enter(address, address, 2);
    }
    bench.shared.adjustable.slow_log_from.set(0);
    bench
}

/// Restores the keys that the cases are about, after this command.
fn fill(bench: &mut Bench, after: &str) {
    let mut client = bench.resp(0);
    let large = vec![0; LARGE];
    let keys: Vec<Vec<u8>> = (0..500).map(|number| format!("{number:a>440}").into_bytes()).collect();
    let mut arguments: Vec<&[u8]> = vec![b"MSET", b"big", &large];
    keys.iter().for_each(|key| arguments.extend([&key[..], b"v"]));
    let request = [command(&[b"CLIENT", b"UNPAUSE"]), command(&arguments)].concat();
    bench.send(&mut client, &request);
    for _ in 0..20_000 {
        if client.receive() >= 10 {
            assert_eq!(client.received, b"+OK\r\n+OK\r\n", "after {after}");
            return;
        }
        bench.turn_or_tick();
    }
    panic!("no reply after {after}: {:?}", client.received.escape_ascii().to_string());
}

/// A shard under attack, and what has failed.
struct Attack {
    bench: Bench,
    connect: fn(&mut Bench) -> Client,
    failures: Vec<String>,
}

impl Attack {
    fn new(connect: fn(&mut Bench) -> Client) -> Attack {
        Attack { bench: bench(), connect, failures: Vec::new() }
    }

    /// Lets a connection send each of the requests, once or again and again. Returns the work of all turns. Notes if a
    /// turn has done more than it may.
    fn run(&mut self, name: &str, requests: &[Vec<u8>], repeats: bool) -> usize {
        let bench = &mut self.bench;
        let connect = |request: &Vec<u8>| {
            let stream = (self.connect)(bench).stream;
            Sender { stream, request: request.clone(), sent: 0 }
        };
        let mut senders: Vec<Sender> = requests.iter().map(connect).collect();
        let (mut sum, mut most, mut idle, mut turns) = (0, 0, 0, 0);
        while idle < 3 && turns < if repeats { TURNS } else { 2000 } {
            senders.iter_mut().for_each(|sender| sender.go_on(repeats));
            idle = if bench.turn(0) { 0 } else { idle + 1 };
            turns += 1;
            let spent = bench.shards[0].shard.turn.account.spent();
            (sum, most) = (sum + spent, most.max(spent));
        }
        drop(senders);
        for _ in 0..3000 {
            bench.turn_or_tick();
            if bench.shards[0].is_empty() {
                break;
            }
        }
        if most > TURN_WORK + LARGEST_WORK {
            self.failures.push(format!("{name}: {most} bytes of work in a turn"));
        }
        sum
    }

    /// Sends a case alone, and pipelined by many connections.
    fn check(&mut self, name: &str, case: &Case) {
        let sum = self.run(name, std::slice::from_ref(&case.request), false);
        if sum < case.least {
            self.failures.push(format!("{name}: {sum} bytes of work, and at least {} were expected", case.least));
        }
        let count = (150_000 / case.request.len()).max(1);
        self.run(name, &vec![case.request.repeat(count); SENDERS], true);
    }

    fn assert(self) {
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
    }
}

#[test]
fn no_command_makes_a_turn_long() {
    let mut attack = Attack::new(|bench| bench.resp(0));
    for name in full_names() {
        let Some(case) = case_of(&name) else {
            attack.failures.push(format!("{name} has no case"));
            continue;
        };
        fill(&mut attack.bench, &name);
        attack.check(&name, &case);
        fill(&mut attack.bench, &name);
        let count = (200_000 / case.request.len()).clamp(1, 10);
        let transaction = [command(&[b"MULTI"]), case.request.repeat(count), command(&[b"EXEC"])].concat();
        attack.run(&format!("{name} in a transaction"), &vec![transaction; 8], true);
    }
    attack.assert();
}

#[test]
fn no_command_of_memcached_makes_a_turn_long() {
    let mut attack = Attack::new(|bench| {
        let parsed = ParsedBatch::Memcached(MemcachedBatch::boxed(
            &bench.shared.settings,
            Login::default(),
            Arc::clone(&bench.shared.cache_flushes),
        ));
        bench.connect(0, parsed)
    });
    for case in memcached_cases() {
        let name = case.request[..case.request.len().min(20)].escape_ascii().to_string();
        attack.check(&name, &case);
    }
    attack.assert();
}

#[test]
fn no_native_operation_makes_a_turn_long() {
    let mut attack = Attack::new(|bench| bench.native(0));
    let large = vec![1; LARGE];
    let put = Operation::Put { value: &large, condition: PutCondition::Always };
    for (operation, least) in [(put, LARGE), (Operation::Get, LARGE), (Operation::Contains, OPERATION_WORK)] {
        let request = frame(&[Request { key: b"big", operation }]);
        attack.check(rule_of(&operation), &Case { request, least });
    }
    attack.assert();
}

/// Returns the command of RESP that executes the same operation: the cases of commands are those of operations too.
fn rule_of(operation: &Operation<'_>) -> &'static str {
    match operation {
        Operation::Get => "get",
        Operation::Contains => "exists",
        Operation::Put { .. } => "set",
        Operation::Delete => "del",
        Operation::Update(_) => "skep.update",
        Operation::Reduce(_) => "skep.reduce",
        Operation::Filter(_) => "skep.filter",
        Operation::Call(_) => "skep.update",
        Operation::AddDecimal { .. } => "incr",
        Operation::StringRead(_) => "bitcount",
        Operation::StringWrite(_) => "setrange",
        Operation::Scan(_) => "skep.scan",
    }
}

#[test]
fn an_unknown_command_has_no_case() {
    assert!(case_of("nosuch").is_none() && case_of("client|nosuch").is_none());
}
