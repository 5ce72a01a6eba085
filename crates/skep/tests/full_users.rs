//! Compares what users may do with `redis-server`: random users and commands that both have, by `ACL DRYRUN`.
//!
//! `SKEP_LONG` multiplies the decisions, of which there are ten thousand, and `SKEP_SEED` is the seed.

mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;
mod setting;
#[path = "redis/wire.rs"]
mod wire;

use full_run::is_full_run;
use process::Server;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use setting::setting;
use wire::{Arguments, Connection, Redis};

/// Commands that both have; `K` is a key, `N` a number, `W` a word.
const COMMANDS: &[&str] = &[
    "GET K",
    "SET K W",
    "SET K W GET",
    "SET K W EX N",
    "SET K GET",
    "SETNX K W",
    "DEL K K",
    "UNLINK K",
    "EXISTS K K",
    "MGET K K K",
    "MSET K W K W",
    "MSETNX K W K W",
    "INCR K",
    "DECR K",
    "INCRBY K N",
    "DECRBY K N",
    "INCRBYFLOAT K N",
    "SETEX K N W",
    "PSETEX K N W",
    "GETSET K W",
    "GETDEL K",
    "GETEX K",
    "STRLEN K",
    "APPEND K W",
    "GETRANGE K N N",
    "SUBSTR K N N",
    "SETRANGE K N W",
    "GETBIT K N",
    "SETBIT K N 1",
    "BITCOUNT K",
    "BITPOS K 1",
    "BITFIELD K GET u8 N",
    "BITFIELD K SET u8 N N",
    "BITFIELD K OVERFLOW FAIL GET u8 N",
    "BITFIELD_RO K GET u8 N",
    "BITOP AND K K K",
    "EXPIRE K N",
    "PEXPIRE K N",
    "EXPIREAT K N",
    "PEXPIREAT K N",
    "TTL K",
    "PTTL K",
    "EXPIRETIME K",
    "PEXPIRETIME K",
    "PERSIST K",
    "TYPE K",
    "TOUCH K K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K",
    "OBJECT ENCODING K",
    "OBJECT FREQ K",
    "OBJECT IDLETIME K",
    "OBJECT REFCOUNT K",
    "OBJECT HELP",
    "MEMORY USAGE K",
    "MEMORY HELP",
    "DUMP K",
    "RESTORE K N W",
    "SCAN N",
    "KEYS W",
    "RANDOMKEY",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH K K",
    "UNWATCH",
    "PING",
    "ECHO W",
    "HELLO",
    "AUTH W",
    "RESET",
    "SELECT N",
    "QUIT",
    "CLIENT ID",
    "CLIENT GETNAME",
    "CLIENT KILL W",
    "CLIENT LIST",
    "CLIENT PAUSE N",
    "CLIENT UNPAUSE",
    "CLIENT REPLY ON",
    "CLIENT INFO",
    "CLIENT SETNAME W",
    "CLIENT NO-EVICT ON",
    "DBSIZE",
    "FLUSHDB",
    "FLUSHALL",
    "TIME",
    "LOLWUT",
    "INFO",
    "COMMAND",
    "COMMAND COUNT",
    "COMMAND DOCS",
    "COMMAND INFO",
    "COMMAND LIST",
    "COMMAND GETKEYS GET K",
    "CONFIG GET W",
    "CONFIG SET W W",
    "CONFIG RESETSTAT",
    "CONFIG REWRITE",
    "CONFIG HELP",
    "ACL WHOAMI",
    "ACL LIST",
    "ACL USERS",
    "ACL CAT",
    "ACL GETUSER W",
    "ACL SETUSER W",
    "ACL DELUSER W",
    "ACL LOG",
    "ACL GENPASS",
    "ACL LOAD",
    "ACL SAVE",
    "ACL DRYRUN W GET K",
    "ACL HELP",
    "ROLE",
    "WAIT N N",
    "SAVE",
    "BGSAVE",
    "BGREWRITEAOF",
    "LASTSAVE",
    "SLOWLOG GET",
    "SLOWLOG LEN",
    "SLOWLOG RESET",
    "SLOWLOG HELP",
    "LATENCY DOCTOR",
    "LATENCY HISTOGRAM",
    "LATENCY LATEST",
    "LATENCY HELP",
    "MONITOR",
    "DEBUG SLEEP N",
    "SHUTDOWN",
];

const CATEGORIES: [&str; 21] = [
    "all",
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
];

/// Without an empty one, which Skep refuses, and which no star of Redis matches.
const KEYS: [&str; 7] = ["a", "ab", "abc", "b", "user:1", "user:2", "x*"];

const PATTERNS: [&str; 12] = ["*", "a*", "*b", "?b", "[a-b]*", "[^a]*", "user:?", "user:[0-1]", "x\\*", "ab", "", "**"];

/// Returns a random rule that both understand.
fn rule(random: &mut Xoshiro256PlusPlus) -> String {
    let sign = if random.random_bool(0.65) { '+' } else { '-' };
    let command: Vec<String> =
        COMMANDS.choose(random).expect("there are some").split(' ').map(str::to_lowercase).collect();
    match random.random_range(0..20) {
        0..5 => format!("{sign}@{}", CATEGORIES.choose(random).expect("there are some")),
        5..9 => format!("{sign}{}", command[0]),
        9..11 if has_subcommands(&command[0]) && command.len() > 1 => format!("{sign}{}|{}", command[0], command[1]),
        9..11 => format!("{sign}{}", command[0].to_uppercase()),
        11..14 => format!("~{}", PATTERNS.choose(random).expect("there are some")),
        14..16 => format!("%R~{}", PATTERNS.choose(random).expect("there are some")),
        16..18 => format!("%w~{}", PATTERNS.choose(random).expect("there are some")),
        18 => {
            (*["allkeys", "resetkeys", "allcommands", "nocommands"].choose(random).expect("there are some")).to_owned()
        }
        _ => {
            (*["on", "off", "nopass", "~", "%~a", "+@nosuch", "nonsense", "&a"].choose(random).expect("there are some"))
                .to_owned()
        }
    }
}

fn has_subcommands(command: &str) -> bool {
    ["object", "memory", "client", "command", "config", "acl", "slowlog", "latency"].contains(&command)
}

/// Returns a random command of the list.
fn random_command(random: &mut Xoshiro256PlusPlus) -> Arguments {
    let line = COMMANDS.choose(random).expect("there are some");
    let mut word = |word: &str| match word {
        "K" => (*KEYS.choose(random).expect("there are some")).to_owned(),
        "N" => random.random_range(0..3).to_string(),
        "W" => "word".to_owned(),
        word => word.to_owned(),
    };
    line.split(' ').map(|part| word(part).into_bytes()).collect()
}

/// What is decided of a command.
fn decision(reply: &[u8]) -> &'static str {
    let text = String::from_utf8_lossy(reply);
    match () {
        () if text == "+OK\r\n" => "allowed",
        () if text.contains("permissions to run") => "the command is denied",
        () if text.contains("permissions to access") => "a key is denied",
        () => "error",
    }
}

#[test]
fn redis_decides_the_same() {
    if !is_full_run() {
        return;
    }
    let decisions = 10_000 * setting("SKEP_LONG", 1);
    let seed = setting("SKEP_SEED", 1);
    println!("SKEP_SEED={seed}, {decisions} decisions");
    let (server, redis) = (Server::start(&[]), Redis::start("users"));
    let mut skep = Connection::to_address(server.resp.as_ref().expect("the server listens for RESP"));
    let mut redis = redis.connect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let arguments = |words: &[&str]| -> Arguments { words.iter().map(|word| word.as_bytes().to_vec()).collect() };
    let (mut allowed, mut denied) = (0, 0);
    for _ in 0..decisions.div_ceil(50) {
        let mut set = vec![arguments(&["ACL", "SETUSER", "u", "reset"])];
        let rules: Vec<String> = (0..random.random_range(0..10)).map(|_| rule(&mut random)).collect();
        set.extend(rules.iter().map(|rule| arguments(&["ACL", "SETUSER", "u", rule])));
        let (ours, theirs) = (skep.run(&set), redis.run(&set));
        for ((ours, theirs), command) in ours.iter().zip(&theirs).zip(&set) {
            let command = command.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
            assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string(), "{command} after {rules:?}");
        }
        let commands: Vec<Arguments> = (0..50).map(|_| random_command(&mut random)).collect();
        let dry: Vec<Arguments> =
            commands.iter().map(|command| [arguments(&["ACL", "DRYRUN", "u"]), command.clone()].concat()).collect();
        let (ours, theirs) = (skep.run(&dry), redis.run(&dry));
        for ((ours, theirs), command) in ours.iter().zip(&theirs).zip(&commands) {
            let command = command.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
            let (ours, theirs) = (decision(ours), decision(theirs));
            assert!(ours == theirs && ours != "error", "{command}: {ours}, Redis: {theirs}; rules {rules:?}");
            *if ours == "allowed" { &mut allowed } else { &mut denied } += 1;
        }
    }
    println!("{allowed} allowed, {denied} denied");
    assert!(allowed > decisions / 20 && denied > decisions / 20);
}

/// The program reads its file of users again when it gets SIGHUP, and keeps the users if the file is wrong.
#[test]
fn a_signal_reads_the_users_again() {
    if !is_full_run() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users.acl");
    let file = path.to_str().expect("text");
    let write = |text: &str| std::fs::write(&path, text).expect("a file");
    write("user cook on >ham ~* +nosuch\n");
    let refused = process::refusal(&["serve", "--acl-file", file]);
    process::assert_refusal(&refused, 2, &["users.acl, line 1: the rule '+nosuch': Unknown command", "choose rules"]);
    write("user default off\nuser cook on >ham ~* +get\n");
    let server = Server::start(&["--acl-file", file]);
    let words = |line: &str| -> Arguments { line.split(' ').map(|word| word.as_bytes().to_vec()).collect() };
    let mut cook = Connection::to_address(server.resp.as_ref().expect("the server listens for RESP"));
    let mut run = |line: &str| String::from_utf8(cook.run(&[words(line)]).remove(0)).expect("text");
    assert_eq!(run("AUTH cook ham"), "+OK\r\n");
    assert!(run("SET a 1").starts_with("-NOPERM User cook has no permissions to run the 'set' command"));
    write("user default off\nuser cook on >ham ~* +get +set\n");
    server.signal("HUP");
    assert!((0..100_000).any(|_| run("SET a 1") == "+OK\r\n"), "the file is read again");
    write("user cook on nonsense\n");
    server.signal("HUP");
    assert_eq!(run("SET a 2"), "+OK\r\n");
    assert_eq!(run("GET a"), "$1\r\n2\r\n");
}
