//! A command that is refused changes nothing, whichever command it is and whichever of its arguments is wrong.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};
use skep_server::Server;
use support::{command, connect, server};

/// At least one valid command for each name in the table of commands, with keys that exist and keys that do not.
const EXAMPLES: &[&str] = &[
    "get a",
    "set a new",
    "set new new NX",
    "set a new XX",
    "setnx new 1",
    "del a b n new",
    "exists a b n new",
    "mget a b n new",
    "mset a 10 b 20 new 30 n 40",
    "incr n",
    "decr n",
    "incrby n 5",
    "decrby n 5",
    "skep.set a i64 1 2 3",
    "skep.getv v i8",
    "skep.update v add i8 5 INIT 0 NORETURN",
    "skep.update new add i8 5 INIT 0 1 2",
    "skep.update v add i8 1 2 3",
    "skep.reduce v sum i8 0",
    "skep.reduce v dot i8 0 1 1 1",
    "skep.filter v gt i8 49",
    "skep.scan [a (z LIMIT 10 REV KEYS",
    "skep.scan - + LEASE OPEN AFTER b",
    "skep.prefix a LIMIT 10 AFTER a",
    "skep.scan ~b + REV LIMIT 2",
    "skep.count [a [z",
    "skep.count ~b +",
    "skep.count PREFIX a",
    "skep.floor b",
    "ping hello",
    "echo hello",
    "hello 2 AUTH default x SETNAME me",
    "auth default x",
    "select 1",
    "quit",
    "client setname me",
    "client setinfo lib-name me",
    "client no-evict on",
    "append a x",
    "bitcount a 0 -1",
    "bitfield a SET u8 0 5",
    "bitfield_ro a GET u8 0",
    "bitpos a 1 0 -1",
    "bitop OR new a b",
    "copy a new REPLACE",
    "discard",
    "exec",
    "msetex 2 a 10 new 30 EX 100",
    "msetnx new 10",
    "multi",
    "rename a new",
    "renamenx a new",
    "unwatch",
    "watch a b",
    "delex a IFEQ 1",
    "digest a",
    "dump a",
    "expire a 1000",
    "expireat a 5000000000",
    "expiretime a",
    "getbit a 3",
    "getdel a",
    "getex a EX 100",
    "getrange a 0 -1",
    "getset a x",
    "incrbyfloat n 1.5",
    "lolwut",
    "memory usage a",
    "object encoding a",
    "persist a",
    "pexpire a 100000 NX",
    "pexpireat a 5000000000000",
    "pexpiretime a",
    "psetex a 100000 x",
    "pttl a",
    "reset",
    "restore a 0 payload REPLACE",
    "set a x EX 100 GET",
    "setbit a 7 1",
    "setex a 100 x",
    "setrange a 3 x",
    "strlen a",
    "substr a 0 -1",
    "time",
    "touch a b",
    "ttl a",
    "type a",
    "unlink a b",
    "keys a*",
    "randomkey",
    "scan 0 MATCH a* COUNT 10 TYPE string",
    "dbsize",
    "flushdb ASYNC",
    "flushall SYNC",
    "info server",
    "command count",
    "command info get",
    "config get save",
    "acl whoami",
    "role",
    "wait 0 0",
    "waitaof 0 0 0",
    "save",
    "bgsave SCHEDULE",
    "bgrewriteaof",
    "lastsave",
    "debug help",
    "shutdown",
    "skep.function list",
    "skep.function stats",
    "slowlog len",
    "monitor",
    "latency latest",
];

/// What the stores hold before each command.
const PAIRS: [(&str, &str); 4] = [("a", "1"), ("b", "word"), ("n", "7"), ("v", "123")];
/// All keys of the examples.
const KEYS: [&str; 5] = ["a", "b", "n", "new", "v"];
/// Arguments that are wrong in many places, and are keys elsewhere.
const ODD: [&[u8]; 2] = [b"\xff\0", b"-99999999999999999999"];

/// A RESP connection that reads any reply of version 2.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &Server) -> Client {
        Client(BufReader::new(connect(server.resp_address().unwrap())))
    }

    /// Sends a command and returns the bytes of its reply.
    fn execute(&mut self, arguments: &[&[u8]]) -> Vec<u8> {
        self.0.get_mut().write_all(&command(arguments)).unwrap();
        let mut reply = Vec::new();
        self.read_reply(&mut reply);
        reply
    }

    fn read_reply(&mut self, reply: &mut Vec<u8>) {
        let start = reply.len();
        self.0.read_until(b'\n', reply).unwrap();
        // Errors have the bytes of the request, which may be no text.
        let line = String::from_utf8_lossy(&reply[start..]).into_owned();
        let number = || line[1..].trim().parse::<i64>().unwrap();
        match line.as_bytes().first() {
            Some(b'$') if number() >= 0 => {
                let bulk = reply.len();
                reply.resize(bulk + number() as usize + 2, 0);
                self.0.read_exact(&mut reply[bulk..]).unwrap();
            }
            Some(b'*') => (0..number()).for_each(|_| self.read_reply(reply)),
            Some(_) => {}
            None => panic!("the connection ended without a reply"),
        }
    }

    /// Sends a line of words.
    fn execute_line(&mut self, line: &str) -> Vec<u8> {
        let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.execute(&arguments)
    }

    /// Lets both spaces hold [`PAIRS`] and nothing else.
    fn restore(&mut self) {
        for space in ["0", "1"] {
            assert_eq!(self.execute(&[b"select", space.as_bytes()]), b"+OK\r\n");
            self.execute_line(&format!("del {}", KEYS.join(" ")));
            self.execute(&[b"del", ODD[0], ODD[1]]);
            for (key, value) in PAIRS {
                assert_eq!(self.execute_line(&format!("set {key} {value}")), b"+OK\r\n");
            }
        }
    }

    /// Returns the values of all keys and the number of pairs in each space.
    fn state(&mut self) -> String {
        let mut state = String::new();
        for line in ["select 0", "MGET", "dbsize", "select 1", "MGET", "dbsize"] {
            let line = line.replace("MGET", &format!("mget {}", KEYS.join(" ")));
            state += &self.execute_line(&line).escape_ascii().to_string();
        }
        state
    }
}

/// A command of the table: its name, whether it takes memory, and the places of keys in `argument_count` arguments.
struct Described {
    name: String,
    takes_memory: bool,
    keys: (i64, i64, i64),
}

impl Described {
    /// Returns all commands that the server lists.
    fn all(client: &mut Client) -> Vec<Described> {
        let listed = String::from_utf8(client.execute_line("command list")).unwrap();
        let names = listed.lines().skip(2).step_by(2).map(str::to_owned);
        names
            .map(|name| {
                let text = String::from_utf8(client.execute_line(&format!("command info {name}"))).unwrap();
                let numbers: Vec<i64> =
                    text.lines().filter_map(|line| line.strip_prefix(':')).map(|n| n.parse().unwrap()).collect();
                let [_arity, first, last, step, ..] = numbers[..] else { panic!("{text}") };
                Described { name, takes_memory: text.contains("+denyoom"), keys: (first, last, step) }
            })
            .collect()
    }

    fn is_key(&self, position: usize, argument_count: usize) -> bool {
        let (first, last, step) = self.keys;
        let last = if last < 0 { argument_count as i64 + last } else { last };
        let position = position as i64;
        first > 0 && (first..=last).contains(&position) && (position - first) % step == 0
    }
}

#[test]
fn a_refused_command_changes_nothing_whichever_argument_is_wrong() {
    let server = server(2, 64 << 20);
    let mut witness = Client::connect(&server);
    let commands = Described::all(&mut witness);
    let named: BTreeSet<&str> = commands.iter().map(|command| command.name.as_str()).collect();
    let examples: BTreeSet<&str> = EXAMPLES.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(named, examples, "each command of the table has an example here, and no other command has one");

    let key_too_long = vec![b'k'; KEY_SIZE_MAX + 1];
    let value_too_long = vec![b'1'; VALUE_SIZE_MAX + 1];
    let wrong = [b"", &key_too_long[..], &value_too_long, ODD[0], ODD[1]];
    let mut refused_count = 0;
    for line in EXAMPLES {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let described = commands.iter().find(|command| command.name.as_bytes() == words[0]).unwrap();
        for space in ["0", "1"] {
            witness.restore();
            let before = witness.state();
            for position in 1..words.len() {
                for argument in wrong {
                    let mut arguments = words.clone();
                    arguments[position] = argument;
                    let case = || format!("space {space}: {line:?} with {} B as argument {position}", argument.len());
                    let mut client = Client::connect(&server);
                    assert_eq!(client.execute(&[b"select", space.as_bytes()]), b"+OK\r\n");
                    let reply = client.execute(&arguments);
                    let refused = reply.starts_with(b"-");
                    let is_key = described.is_key(position, words.len());
                    // A range may begin at the empty key.
                    let is_empty = argument.is_empty() && described.name != "skep.floor";
                    let must_be_refused = is_key && (is_empty || argument.len() > KEY_SIZE_MAX)
                        || described.takes_memory && argument.len() > VALUE_SIZE_MAX;
                    assert!(refused || !must_be_refused, "{} was not refused", case());
                    if refused {
                        refused_count += 1;
                        assert_eq!(witness.state(), before, "{}", case());
                    } else {
                        witness.restore();
                    }
                }
            }
        }
    }
    assert!(refused_count > 400, "only {refused_count} commands were refused");
}

/// A command of many operations is submitted in parts; the wrong argument is in the last one.
#[test]
fn a_long_command_with_a_wrong_end_changes_nothing() {
    let server = server(2, 64 << 20);
    let mut client = Client::connect(&server);
    let keys: Vec<String> = (0..5000).map(|number| format!("key{number}")).collect();
    let value_too_long = vec![b'1'; VALUE_SIZE_MAX + 1];
    for space in ["0", "1"] {
        client.execute(&[b"select", space.as_bytes()]);
        let mut set: Vec<&[u8]> = vec![b"mset"];
        set.extend(keys.iter().flat_map(|key| [key.as_bytes(), b"v"]));
        set.extend([&b"last"[..], &value_too_long]);
        assert!(client.execute(&set).starts_with(b"-ERR value is longer"));
        assert_eq!(client.execute_line("dbsize"), b":0\r\n");

        *set.last_mut().unwrap() = b"v";
        assert_eq!(client.execute(&set), b"+OK\r\n");
        let mut delete: Vec<&[u8]> = vec![b"del"];
        delete.extend(keys.iter().map(String::as_bytes));
        delete.push(b"");
        assert_eq!(client.execute(&delete), b"-ERR key is empty\r\n");
        assert_eq!(client.execute_line("dbsize"), b":5001\r\n");
    }
}

/// All or nothing, also if the keys belong to several shards and only one of them is full.
#[test]
fn a_command_that_sets_keys_and_runs_out_of_memory_sets_none() {
    for (shards, space) in [(1, "0"), (2, "0"), (2, "1")] {
        let server = server(shards, 8 << 20);
        let mut client = Client::connect(&server);
        client.execute(&[b"select", space.as_bytes()]);
        let value = vec![b'v'; VALUE_SIZE_MAX / 4];
        let keys: Vec<String> = (0..2000).map(|number| format!("key{number}")).collect();
        let pairs = |names: &[&'static [u8]], keys: std::ops::Range<usize>, value: &'static [u8]| {
            let mut words: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
            words.extend(keys.flat_map(|number| [format!("key{number}").into_bytes(), value.to_vec()]));
            words
        };
        let execute = |client: &mut Client, words: &[Vec<u8>]| {
            client.execute(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        // Filled until a command of some keys does not fit.
        let value: &'static [u8] = value.leak();
        let mut next = 0;
        let mut refusal = Vec::new();
        while refusal.is_empty() && next < keys.len() {
            let reply = execute(&mut client, &pairs(&[b"mset"], next..next + 4, value));
            match &reply[..] {
                b"+OK\r\n" => next += 4,
                _ => refusal = reply,
            }
        }
        assert!(next > 0 && refusal.starts_with(b"-OOM "), "{}", refusal.escape_ascii());
        let count = format!(":{next}\r\n");
        assert_eq!(client.execute_line("dbsize"), count.as_bytes(), "{shards} shards, space {space}");
        for names in [&[&b"mset"[..]][..], &[b"msetnx"], &[b"msetex", b"40"]] {
            let reply = execute(&mut client, &pairs(names, next..next + 40, value));
            assert!(reply.starts_with(b"-OOM "), "{}", reply.escape_ascii());
            assert_eq!(client.execute_line("dbsize"), count.as_bytes());
        }
        let mut full = 0;
        while execute(&mut client, &pairs(&[b"set"], 10_000 + full..10_001 + full, &value[..400])) == b"+OK\r\n" {
            full += 1;
        }
        let before = client.execute_line("dbsize");
        let reply = execute(&mut client, &pairs(&[b"mset"], 100_000..100_000 + 5000, &value[..400]));
        assert!(reply.starts_with(b"-OOM "), "{}", reply.escape_ascii());
        assert_eq!(client.execute_line("dbsize"), before);
        // Values of the same size are replaced however full the memory is.
        let replaced = pairs(&[b"mset"], 10_000..10_000 + full.min(100), [b'w'; 400].to_vec().leak());
        assert_eq!(execute(&mut client, &replaced), b"+OK\r\n", "{shards} shards, space {space}");
        // Keys are renamed and copied as a whole or not at all.
        for command in ["rename key0 other", "copy key0 other"] {
            let reply = client.execute_line(command);
            let exists = client.execute_line("exists key0 other");
            match &reply[..] {
                b"+OK\r\n" => assert_eq!(exists, b":1\r\n"),
                b":1\r\n" => assert_eq!(exists, b":2\r\n"),
                _ => assert_eq!(exists, b":1\r\n", "{}", reply.escape_ascii()),
            }
        }
    }
}

/// One key too many or the only one: the reply is an error, not an array with an error in it.
#[test]
fn commands_of_many_keys_are_refused_as_a_whole() {
    let server = server(1, 4 << 20);
    let mut client = Client::connect(&server);
    let long = vec![b'k'; KEY_SIZE_MAX + 1];
    for invalid in [&b""[..], &long] {
        for name in [&b"mget"[..], b"del", b"exists"] {
            for arguments in [&[name, invalid][..], &[name, b"a", invalid]] {
                let reply = client.execute(arguments);
                assert!(reply.starts_with(b"-ERR key is "), "{}", reply.escape_ascii());
            }
        }
    }
}
