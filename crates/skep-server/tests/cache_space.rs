//! The cache space, as RESP and native clients use it.

mod support;

use std::net::SocketAddr;

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_server::{Server, ServerSettings};
use skep_wire::native::{CACHE_SPACE, HASH_SPACE};
use support::{Native, Resp, frame_in};

fn server(shards: u16) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings {
        native: any,
        resp: Some(any),
        memory: u64::from(shards) * (16 << 20),
        ordered_memory: 8 << 20,
        cache_memory: u64::from(shards) * (8 << 20),
        shards,
        ..ServerSettings::default()
    };
    Server::start(&settings).expect("the server starts")
}

#[test]
fn commands_on_keys_work_as_in_other_spaces() {
    for shards in [1, 3] {
        let server = server(shards);
        let mut resp = Resp::connect(&server);
        resp.expect("SET a 0\r\nSELECT 2\r\n", "+OK\r\n+OK\r\n");
        for (sent, expected) in [
            ("GET a", "$-1\r\n"),
            ("SET a 1", "+OK\r\n"),
            ("INCRBY a 41", ":42\r\n"),
            ("APPEND a 0", ":3\r\n"),
            ("GETRANGE a 0 1", "$2\r\n42\r\n"),
            ("MSET b 1 c 2 d 3", "+OK\r\n"),
            ("MGET a b x c d", "*5\r\n$3\r\n420\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n$1\r\n3\r\n"),
            ("MSETNX d 4 e 5", ":0\r\n"),
            ("BITOP OR e b c", ":1\r\n"),
            ("GET e", "$1\r\n3\r\n"),
            ("EXPIRE a 100", ":1\r\n"),
            ("TTL a", ":100\r\n"),
            ("SKEP.UPDATE n add i64 5 INIT 0", ":0\r\n"),
            ("DBSIZE", ":6\r\n"),
            ("DEL b c x", ":2\r\n"),
            ("EXISTS a b d", ":2\r\n"),
            ("MULTI", "+OK\r\n"),
            ("INCR d", "+QUEUED\r\n"),
            ("GET a", "+QUEUED\r\n"),
            ("SELECT 0", "+QUEUED\r\n"),
            ("GET a", "+QUEUED\r\n"),
            ("EXEC", "*4\r\n:4\r\n$3\r\n420\r\n+OK\r\n$1\r\n0\r\n"),
            ("SELECT 2", "+OK\r\n"),
            ("FLUSHDB", "+OK\r\n"),
            ("DBSIZE", ":0\r\n"),
            ("SET a 1", "+OK\r\n"),
            ("SELECT 0", "+OK\r\n"),
            ("DBSIZE", ":1\r\n"),
            ("FLUSHALL", "+OK\r\n"),
            ("SELECT 2", "+OK\r\n"),
            ("GET a", "$-1\r\n"),
            ("SELECT 3", "-ERR DB index is out of range\r\n"),
            ("CONFIG GET databases", "*2\r\n$9\r\ndatabases\r\n$1\r\n3\r\n"),
        ] {
            resp.expect(format!("{sent}\r\n"), expected);
        }
    }
}

#[test]
fn commands_that_need_all_keys_are_refused() {
    let server = server(2);
    let mut resp = Resp::connect(&server);
    resp.expect("SET a 1\r\nSELECT 2\r\nSET a 1\r\n", "+OK\r\n+OK\r\n+OK\r\n");
    for command in ["SCAN 0", "KEYS *", "RANDOMKEY", "RENAME a b", "RENAMENX a b", "COPY a b", "WATCH a"] {
        let name = command.split(' ').next().unwrap();
        let refusal =
            format!("-ERR {name} is not for the cache space, which may forget keys at any time (SELECT 0)\r\n");
        resp.expect(format!("{command}\r\n"), &refusal);
        // In a transaction, its reply is the refusal.
        if name != "WATCH" {
            resp.expect(format!("MULTI\r\n{command}\r\nEXEC\r\n"), format!("+OK\r\n+QUEUED\r\n*1\r\n{refusal}"));
        }
    }
    resp.expect("SKEP.COUNT - +\r\n", "-ERR this space has no order: scans need the ordered space (SELECT 1)\r\n");
    resp.expect("SELECT 0\r\nCOPY a b DB 2\r\n", {
        "+OK\r\n-ERR COPY is not for the cache space, which may forget keys at any time (SELECT 0)\r\n"
    });
}

#[test]
fn a_server_without_a_cache_says_so() {
    let server = support::server(1, 16 << 20);
    let expected =
        "-ERR DB index is out of range: the cache space is switched off; restart with --cache-memory SIZE\r\n";
    Resp::connect(&server).expect("SELECT 2\r\n", expected);
}

#[test]
fn native_clients_name_the_space() {
    let server = server(3);
    let mut native = Native::connect(&server, Some(0));
    let keys: Vec<[u8; 4]> = (0..500_u32).map(u32::to_le_bytes).collect();
    let request = |key, operation| Request { key, operation };
    let puts: Vec<_> = keys
        .iter()
        .map(|key| request(&key[..], Operation::Put { value: key, condition: PutCondition::Always }))
        .collect();
    let gets: Vec<_> = keys.iter().map(|key| request(&key[..], Operation::Get)).collect();
    let spaces = [(CACHE_SPACE, &puts), (CACHE_SPACE, &gets), (HASH_SPACE, &gets)];
    for (sequence, (space, requests)) in (0..).zip(spaces) {
        native.send(&frame_in(space, sequence, requests));
        native.receive(sequence, requests.len(), |index, response| {
            let expected = match sequence {
                0 => Reply::Done,
                1 => Reply::Value(&keys[index]),
                _ => Reply::NotFound,
            };
            assert_eq!(response, Ok(expected));
        });
    }
}

#[test]
fn a_full_cache_forgets_old_keys_and_counts_them() {
    let server = server(2);
    let mut resp = Resp::connect(&server);
    resp.expect("SELECT 2\r\n", "+OK\r\n");
    let value = "x".repeat(1000);
    for number in 0..40_000 {
        resp.expect(format!("SET key:{number} {value}\r\n"), "+OK\r\n");
    }
    resp.expect("GET key:0\r\n", "$-1\r\n");
    resp.expect("GET key:39999\r\n", format!("$1000\r\n{value}\r\n"));
    let info = resp.text("INFO cache");
    let field = |name: &str| -> u64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name}: {info}")).parse().unwrap()
    };
    let (items, evictions) =
        (field("skep_cache_items"), field("skep_cache_index_evictions") + field("skep_cache_log_evictions"));
    assert_eq!((items + evictions, field("skep_cache_maxmemory")), (40_000, 16 << 20));
    // The log holds about 14,000 items, and as many that were overwritten may not be found yet.
    assert!(evictions > 10_000, "{info}");
    assert!(resp.text("INFO keyspace").contains(&format!("db2:keys={items},")));
}
