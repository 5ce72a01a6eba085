//! Commands on all keys, of servers with several shards: SCAN, KEYS, RANDOMKEY, DBSIZE, FLUSHALL.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use skep_server::{Server, ServerSettings};
use support::command;

/// A reply.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(String),
    Number(i64),
    Null,
    Array(Vec<Value>),
}

/// A RESP connection that decodes replies.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &Server) -> Client {
        Client(BufReader::new(support::connect(server.resp_address().unwrap())))
    }

    fn send(&mut self, words: &[&str]) {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.0.get_mut().write_all(&command(&words)).unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse::<i64>().unwrap();
        match kind {
            "+" | "-" => Value::Text(rest.to_owned()),
            ":" => Value::Number(number()),
            "$" | "*" if number() < 0 => Value::Null,
            "$" => {
                let mut bytes = vec![0; number() as usize + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Value::Text(String::from_utf8(bytes).unwrap())
            }
            "*" => Value::Array((0..number()).map(|_| self.receive()).collect()),
            _ => panic!("{line}"),
        }
    }

    fn run(&mut self, line: &str) -> Value {
        self.send(&line.split(' ').collect::<Vec<_>>());
        self.receive()
    }

    #[track_caller]
    fn expect(&mut self, line: &str, expected: &str) {
        assert_eq!(self.run(line), Value::Text(expected.to_owned()), "{line}");
    }

    #[track_caller]
    fn number(&mut self, line: &str) -> i64 {
        let Value::Number(number) = self.run(line) else { panic!("{line} returns a number") };
        number
    }

    /// Runs a command in a space.
    fn run_in(&mut self, space: &str, line: &str) -> i64 {
        self.send(&["SELECT", space]);
        self.send(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(self.receive(), Value::Text("OK".to_owned()));
        let Value::Number(number) = self.receive() else { panic!("{line} returns a number") };
        number
    }

    #[track_caller]
    fn keys(&mut self, line: &str) -> Vec<String> {
        let reply = self.run(line);
        texts(&reply)
    }

    /// A step of a scan: the next cursor, and the keys.
    #[track_caller]
    fn step(&mut self, cursor: &str, options: &str) -> (String, Vec<String>) {
        let reply = self.run(format!("SCAN {cursor} {options}").trim_end());
        let Value::Array(parts) = &reply else { panic!("{reply:?}") };
        let [Value::Text(next), keys] = &parts[..] else { panic!("{reply:?}") };
        (next.clone(), texts(keys))
    }

    /// A whole scan. Keys may be returned more than once.
    fn scan(&mut self, options: &str) -> Vec<String> {
        let (mut cursor, mut all) = ("0".to_owned(), Vec::new());
        loop {
            let (next, keys) = self.step(&cursor, options);
            all.extend(keys);
            if next == "0" {
                return all;
            }
            cursor = next;
        }
    }
}

fn texts(reply: &Value) -> Vec<String> {
    let Value::Array(items) = reply else { panic!("{reply:?}") };
    let text = |item: &Value| if let Value::Text(text) = item { text.clone() } else { panic!("{item:?}") };
    items.iter().map(text).collect()
}

fn set(keys: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    keys.into_iter().collect()
}

fn server(connection_memory: u64) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings {
        native: any,
        resp: Some(any),
        memory: 48 << 20,
        ordered_memory: 16 << 20,
        shards: 3,
        pin_threads: false,
        connection_memory,
        connections_max: 100,
        ..ServerSettings::default()
    };
    Server::start(&settings).expect("the server starts")
}

const MEMORY: u64 = 64 << 20;
const KEYS: usize = 300;

#[test]
fn all_keys_are_found_in_both_spaces() {
    let server = server(MEMORY);
    let mut client = Client::connect(&server);
    for space in ["0", "1"] {
        client.expect(&format!("SELECT {space}"), "OK");
        assert_eq!(client.run("RANDOMKEY"), Value::Null);
        assert_eq!((client.number("DBSIZE"), client.step("0", "")), (0, ("0".to_owned(), Vec::new())));
        assert_eq!(client.keys("KEYS *"), [""; 0]);
        let mut keys = BTreeSet::new();
        for number in 0..KEYS {
            let key = format!("key:{number}{}", "x".repeat(number % 7 * 50));
            client.send(&["SET", &key, &"v".repeat([0, 5, 40, 300, 700, 9000][number % 6])]);
            keys.insert(key);
        }
        (0..KEYS).for_each(|_| assert_eq!(client.receive(), Value::Text("OK".to_owned())));
        assert_eq!(client.number("DBSIZE"), KEYS as i64);
        for options in ["", "COUNT 1", "COUNT 100 MATCH *", "COUNT 9223372036854775807", "TYPE STRING"] {
            let found = client.scan(options);
            // Without other commands, each key is returned once.
            assert_eq!((found.len(), set(found) == keys), (KEYS, true), "space {space}, {options}");
        }
        let matching = |start: &str| set(keys.iter().filter(|key| key.starts_with(start)).cloned());
        assert_eq!(set(client.scan("MATCH key:1*")), matching("key:1"));
        let in_class = |key: &&String| matches!(key.as_bytes()[4..], [b'1' | b'2', _, _, ..]);
        let expected = set(keys.iter().filter(in_class).cloned());
        assert_eq!(set(client.scan("match key:[12]??* count 50")), expected);
        assert_eq!(client.step("0", "TYPE list"), ("0".to_owned(), Vec::new()));
        assert_eq!(set(client.keys("KEYS *")), keys);
        assert_eq!(set(client.keys("KEYS key:29*")), matching("key:29"));
        assert_eq!(client.keys("KEYS nothing*"), [""; 0]);
        let random: BTreeSet<String> = (0..100)
            .map(|_| match client.run("RANDOMKEY") {
                Value::Text(key) if keys.contains(&key) => key,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(random.len() > 30, "{} different keys", random.len());
    }
    client.expect("SELECT 0", "OK");
    let keyspace = client.run("INFO keyspace");
    let line = |space| format!("db{space}:keys={KEYS},expires=0,avg_ttl=0");
    assert!(
        matches!(&keyspace, Value::Text(text) if text.contains(&line(0)) && text.contains(&line(1))),
        "{keyspace:?}"
    );
}

#[test]
fn pipelined_commands_take_effect_in_their_order() {
    let server = server(MEMORY);
    let mut client = Client::connect(&server);
    for space in ["0", "1"] {
        client.expect(&format!("SELECT {space}"), "OK");
        // One write, so that all commands arrive together; their keys belong to different shards.
        let mut bytes = Vec::new();
        let mut push = |words: &[&str]| {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            bytes.extend_from_slice(&command(&words));
        };
        for number in 0..100 {
            let key = number.to_string();
            push(&["SET", &key, "1"]);
            push(&["DBSIZE"]);
            push(&["KEYS", "*"]);
            push(&["DEL", &key]);
            push(&["SCAN", "0", "COUNT", "1000"]);
            push(&["RANDOMKEY"]);
            push(&["SET", &key, "2"]);
            push(&["RANDOMKEY"]);
            push(&["DEL", &key]);
            push(&["DBSIZE"]);
        }
        bytes.extend_from_slice(b"DBSIZE\r\nSET inline 1\r\nDBSIZE\r\nDEL inline\r\nDBSIZE\r\n");
        client.0.get_mut().write_all(&bytes).unwrap();
        let text = |text: &str| Value::Text(text.to_owned());
        for number in 0..100 {
            let key = number.to_string();
            let expected = [text("OK"), Value::Number(1), Value::Array(vec![text(&key)]), Value::Number(1)];
            expected.into_iter().for_each(|expected| assert_eq!(client.receive(), expected, "space {space}, {key}"));
            let Value::Array(parts) = client.receive() else { panic!("a page") };
            assert_eq!(parts[1], Value::Array(Vec::new()));
            let expected = [Value::Null, text("OK"), text(&key), Value::Number(1), Value::Number(0)];
            expected.into_iter().for_each(|expected| assert_eq!(client.receive(), expected, "space {space}, {key}"));
        }
        let expected = [Value::Number(0), text("OK"), Value::Number(1), Value::Number(1), Value::Number(0)];
        expected.into_iter().for_each(|expected| assert_eq!(client.receive(), expected));
    }
}

#[test]
fn expired_keys_are_not_returned_and_not_counted() {
    let server = server(MEMORY);
    let mut client = Client::connect(&server);
    for space in ["0", "1"] {
        client.expect(&format!("SELECT {space}"), "OK");
        for number in 0..200 {
            client.expect(&format!("SET expires:{number} v PX 20"), "OK");
        }
        client.expect("SET stays v EX 1000", "OK");
        client.expect("SET stays:too v", "OK");
        while client.number("EXISTS expires:199") == 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let stays = || set(["stays".to_owned(), "stays:too".to_owned()]);
        // Another shard may be about to remove the last ones, or to look at its clock.
        assert!((0..1000).any(|_| client.number("DBSIZE") == 2));
        assert_eq!(set(client.scan("COUNT 7")), stays());
        assert_eq!(set(client.keys("KEYS *")), stays());
        for _ in 0..20 {
            assert!(matches!(client.run("RANDOMKEY"), Value::Text(key) if stays().contains(&key)));
        }
        let keyspace = client.run("INFO keyspace");
        let line = format!("db{space}:keys=2,expires=1,avg_ttl=0");
        assert!(matches!(&keyspace, Value::Text(text) if text.contains(&line)), "{keyspace:?}");
        // Another shard publishes what it has removed before it sleeps.
        let removed = format!("expired_keys:{}", if space == "0" { 200 } else { 400 });
        let is_counted = |_| matches!(client.run("INFO stats"), Value::Text(text) if text.contains(&removed));
        assert!((0..1000).any(is_counted), "{removed}");
    }
}

#[test]
fn keys_that_exist_during_a_scan_are_returned_while_others_come_and_go() {
    let server = server(MEMORY);
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    for space in ["0", "1"] {
        client.expect(&format!("SELECT {space}"), "OK");
        other.expect(&format!("SELECT {space}"), "OK");
        let stable: BTreeSet<String> = (0..150).map(|number| format!("stable:{number}")).collect();
        for key in &stable {
            client.expect(&format!("SET {key} v"), "OK");
        }
        let (mut cursor, mut found, mut step) = ("0".to_owned(), BTreeSet::new(), 0);
        loop {
            let (next, keys) = client.step(&cursor, "COUNT 5");
            found.extend(keys);
            // A step may be repeated.
            let (again, keys) = client.step(&cursor, "COUNT 5");
            found.extend(keys);
            assert!(again == next || cursor == "0", "nothing has changed in between");
            if next == "0" {
                break;
            }
            cursor = next;
            for number in 0..20 {
                let number = step * 20 + number;
                other.send(&["SET", &format!("key:{number}"), &"v".repeat(number % 600)]);
                other.send(&["DEL", &format!("key:{}", number / 2)]);
                other.send(&["APPEND", &format!("stable:{}", number % 150), &"w".repeat(number % 90)]);
            }
            (0..60).for_each(|_| assert_ne!(other.receive(), Value::Null));
            step += 1;
        }
        assert!(stable.is_subset(&found), "space {space}: {:?}", stable.difference(&found));
        assert!(step > 20);
    }
}

#[test]
fn wrong_cursors_and_options_are_refused() {
    let server = server(MEMORY);
    let mut client = Client::connect(&server);
    client.expect("MSET a 1 b 2 c 3 d 4", "OK");
    client.expect("SELECT 1", "OK");
    client.expect("MSET a 1 b 2 c 3 d 4", "OK");
    let (of_ordered, _) = client.step("0", "COUNT 1");
    assert_ne!(of_ordered, "0");
    for (line, error) in [
        ("SCAN 2", "ERR invalid cursor"),
        ("SCAN x", "ERR invalid cursor"),
        ("SCAN 18446744073709551616", "ERR invalid cursor"),
        ("SCAN 12345", "ERR invalid cursor"),
        ("SCAN 0 COUNT", "ERR syntax error"),
        ("SCAN 0 COUNT 0", "ERR syntax error"),
        ("SCAN 0 COUNT x", "ERR value is not an integer or out of range"),
        ("SCAN 0 NOSUCH 1", "ERR syntax error"),
        ("SCAN", "ERR wrong number of arguments for 'scan' command"),
        ("KEYS", "ERR wrong number of arguments for 'keys' command"),
        ("RANDOMKEY x", "ERR wrong number of arguments for 'randomkey' command"),
    ] {
        client.expect(line, error);
        client.expect("GET a", "1");
    }
    client.expect(&format!("KEYS {}", "x".repeat(2000)), "ERR the pattern has more than 1024 bytes");
    client.expect("SELECT 0", "OK");
    client.expect(&format!("SCAN {of_ordered}"), "ERR invalid cursor");
    // Of a shard that does not exist.
    client.expect(&format!("SCAN {}", 3_u64 << 41), "ERR invalid cursor");
    // The end of the last shard.
    assert_eq!(client.step(&((3_u64 << 41) - 2).to_string(), ""), ("0".to_owned(), Vec::new()));
}

#[test]
fn a_list_of_keys_that_exceeds_the_memory_of_connections_is_refused() {
    let server = server(8 << 20);
    let mut client = Client::connect(&server);
    client.expect("SELECT 1", "OK");
    for number in 0..16_000 {
        client.send(&["SET", &format!("{number}:{}", "k".repeat(400)), "1"]);
        if number % 100 == 99 {
            (0..100).for_each(|_| assert_eq!(client.receive(), Value::Text("OK".to_owned())));
        }
    }
    let Value::Text(error) = client.run("KEYS *") else { panic!("6 MiB of keys exceed the memory") };
    assert_eq!(error, "ERR the keys take more than the memory that is free for this connection (--connection-memory)");
    assert_eq!(client.keys("KEYS 15*").len(), 1111);
    assert_eq!(set(client.scan("COUNT 1000")).len(), 16_000);
    assert_eq!(client.number("DBSIZE"), 16_000);
}

#[test]
fn flushes_remove_all_keys_of_a_space_or_of_all() {
    let server = server(MEMORY);
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    let fill = |client: &mut Client| {
        for space in ["0", "1"] {
            client.send(&["SELECT", space]);
            for number in 0..500_usize {
                client.send(&["SET", &format!("key:{number}"), &"v".repeat([3, 100, 2000][number % 3])]);
                client.send(&["EXPIRE", &format!("key:{}", number / 10), "1000"]);
            }
        }
        for _ in 0..2 {
            (0..1001).for_each(|_| assert_ne!(client.receive(), Value::Null));
        }
    };
    let mut sizes = |client: &mut Client| {
        ["0", "1"].map(|space| {
            client.expect(&format!("SELECT {space}"), "OK");
            let size = client.number("DBSIZE");
            assert_eq!(
                (client.keys("KEYS *").len(), set(client.scan("COUNT 100")).len()),
                (size as usize, size as usize)
            );
            assert_eq!(client.run("RANDOMKEY") == Value::Null, size == 0);
            let exists = (0..500).filter(|number| other.run_in(space, &format!("EXISTS key:{number}")) == 1).count();
            assert_eq!(exists as i64, size);
            size
        })
    };
    for (space, line, left) in [
        ("0", "FLUSHDB", [0, 500]),
        ("1", "FLUSHDB ASYNC", [500, 0]),
        ("0", "flushall sync", [0, 0]),
        ("1", "FLUSHALL", [0, 0]),
        ("0", "FLUSHALL ASYNC", [0, 0]),
    ] {
        fill(&mut client);
        assert_eq!(sizes(&mut client), [500, 500]);
        client.expect(&format!("SELECT {space}"), "OK");
        for wrong in ["FLUSHDB NOW", "FLUSHALL ASYNC SYNC", "FLUSHALL x"] {
            client.expect(wrong, "ERR syntax error");
        }
        // In one write: what is set before is gone, what is set after stays.
        for words in [&["SET", "before", "1"][..], &line.split(' ').collect::<Vec<_>>(), &["SET", "after", "1"]] {
            client.send(words);
        }
        (0..3).for_each(|_| assert_eq!(client.receive(), Value::Text("OK".to_owned())));
        assert_eq!(client.keys("KEYS *"), ["after"], "{line}");
        assert_eq!(client.number("DEL before after"), 1);
        assert_eq!(sizes(&mut client), left, "{line}");
    }
}
