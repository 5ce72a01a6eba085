//! The ordered space over RESP: its commands, byte for byte, and their refusals; several shards that write and scan one
//! space. The simulation has leases that expire.

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use skep_core::operation::{
    Operation, OperationError, Page, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};
use skep_server::{Server, ServerSettings};
use skep_wire::native::{HASH_SPACE, ORDERED_SPACE, WireError};
use support::{Native, Resp, command, frame_in, server};

const SMALL: u64 = 16 << 20;

/// All pairs, in pages of what fits.
const WHOLE: Scan<'_> = Scan {
    start: ScanStart::AtOrAbove,
    end: ScanEnd::Last,
    reverse: false,
    limit: u32::MAX,
    answer: ScanAnswer::Pairs,
    lease: ScanLease::None,
};

/// Starts a small server on free ports, otherwise with these settings.
fn server_with(settings: &ServerSettings) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings =
        ServerSettings { native: any, resp: Some(any), memory: SMALL, pin_threads: false, ..settings.clone() };
    Server::start(&settings).unwrap()
}

/// Connects, and chooses the ordered space.
fn ordered(server: &Server) -> Resp {
    let mut resp = Resp::connect(server);
    resp.expect("SELECT 1\r\n", "+OK\r\n");
    resp
}

/// Returns the array of these bulk strings.
fn bulks(strings: &[&str]) -> String {
    let bulks: String = strings.iter().map(|string| format!("${}\r\n{string}\r\n", string.len())).collect();
    format!("*{}\r\n{bulks}", strings.len())
}

/// Returns a page that no other follows.
fn last(strings: &[&str]) -> String {
    format!("*2\r\n$-1\r\n{}", bulks(strings))
}

/// Returns a page that another one after this key follows.
fn page(next: &str, strings: &[&str]) -> String {
    format!("*2\r\n${}\r\n{next}\r\n{}", next.len(), bulks(strings))
}

#[test]
fn ranges() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut resp = ordered(&server);
        resp.expect("SKEP.SCAN - +\r\n", last(&[]));
        resp.expect("MSET b 2 a 1 c 3 ca 4 d 5\r\n", "+OK\r\n");
        resp.expect("SKEP.SCAN - +\r\n", last(&["a", "1", "b", "2", "c", "3", "ca", "4", "d", "5"]));
        resp.expect("SKEP.SCAN - + KEYS\r\n", last(&["a", "b", "c", "ca", "d"]));
        resp.expect("SKEP.SCAN [b [ca KEYS\r\n", last(&["b", "c", "ca"]));
        resp.expect("SKEP.SCAN (b (ca KEYS\r\n", last(&["c"]));
        resp.expect("skep.scan [b + rev keys\r\n", last(&["d", "ca", "c", "b"]));
        resp.expect("SKEP.SCAN + + KEYS\r\nSKEP.SCAN - - KEYS\r\n", last(&[]).repeat(2));
        resp.expect("SKEP.SCAN - + LIMIT 2\r\n", page("b", &["a", "1", "b", "2"]));
        resp.expect("SKEP.SCAN - + LIMIT 2 AFTER b KEYS\r\n", page("ca", &["c", "ca"]));
        resp.expect("SKEP.SCAN - + LIMIT 2 AFTER ca KEYS\r\n", last(&["d"]));
        resp.expect("SKEP.SCAN - + REV LIMIT 2 KEYS\r\n", page("ca", &["d", "ca"]));
        resp.expect("SKEP.SCAN - + REV AFTER ca KEYS\r\n", last(&["c", "b", "a"]));
        // Outside of the range it changes nothing.
        resp.expect("SKEP.SCAN [c + AFTER a KEYS\r\nSKEP.SCAN - [b REV AFTER d KEYS\r\n", {
            last(&["c", "ca", "d"]) + &last(&["b", "a"])
        });
        resp.expect("SKEP.PREFIX c\r\n", last(&["c", "3", "ca", "4"]));
        resp.expect("SKEP.PREFIX c REV LIMIT 1 KEYS\r\n", page("ca", &["ca"]));
        resp.expect("SKEP.PREFIX c REV LIMIT 1 KEYS AFTER ca\r\n", last(&["c"]));
        resp.expect("SKEP.PREFIX c AFTER c KEYS\r\n", last(&["ca"]));
        // Nothing follows a key beyond the range.
        for beyond in ["[a [b AFTER zz", "[a [b AFTER b", "- (a AFTER b", "[b [c REV AFTER a", "[b [c REV AFTER b"] {
            resp.expect(format!("SKEP.SCAN {beyond} KEYS\r\n"), last(&[]));
        }
        resp.expect("SKEP.PREFIX c AFTER d KEYS\r\nSKEP.PREFIX c REV AFTER b KEYS\r\n", last(&[]).repeat(2));
        resp.expect("SKEP.PREFIX x\r\n", last(&[]));
        resp.expect("SKEP.COUNT - +\r\nSKEP.COUNT [b (ca\r\nSKEP.COUNT PREFIX c\r\nSKEP.COUNT prefix x\r\n", {
            ":5\r\n:2\r\n:2\r\n:0\r\n"
        });
        resp.expect("SKEP.FLOOR cb\r\nSKEP.FLOOR b\r\nSKEP.FLOOR A\r\n", {
            bulks(&["ca", "4"]) + &bulks(&["b", "2"]) + "$-1\r\n"
        });
        // A pipeline is executed in its order.
        resp.expect("SET e 6\r\nSKEP.COUNT - +\r\nDEL e\r\nSKEP.COUNT - +\r\n", "+OK\r\n:6\r\n:1\r\n:5\r\n");
        resp.expect("HELLO 3\r\nSKEP.FLOOR A\r\n", {
            let hello = "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.4\r\n$5\r\nproto\r\n:3\r\n";
            let rest = "$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";
            format!("{hello}{rest}_\r\n")
        });
        let floor = command(&[b"SKEP.FLOOR", &[b'k'; 461]]);
        resp.expect(floor, "-ERR key is longer than 460 bytes\r\n");
    }
}

#[test]
fn scans_from_a_floor() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut resp = ordered(&server);
        resp.expect("SKEP.SCAN ~a +\r\nSKEP.COUNT ~a +\r\n", last(&[]) + ":0\r\n");
        resp.expect("MSET b 2 d 4 f 6 ~g 7\r\n", "+OK\r\n");
        // A key that exists is its own floor.
        resp.expect("SKEP.SCAN ~d + KEYS\r\n", last(&["d", "f", "~g"]));
        resp.expect("SKEP.SCAN ~e +\r\n", last(&["d", "4", "f", "6", "~g", "7"]));
        resp.expect("SKEP.SCAN ~e [f KEYS\r\nSKEP.SCAN ~e (f KEYS\r\n", last(&["d", "f"]) + &last(&["d"]));
        // Without a floor, it begins at the lowest of all keys.
        resp.expect("SKEP.SCAN ~a (f KEYS\r\nSKEP.SCAN ~ [b KEYS\r\n", last(&["b", "d"]) + &last(&["b"]));
        resp.expect("SKEP.SCAN ~a [a\r\n", last(&[]));
        resp.expect("SKEP.SCAN ~z + KEYS\r\nSKEP.SCAN ~~z + KEYS\r\n", last(&["f", "~g"]) + &last(&["~g"]));
        // A key may begin with this byte.
        resp.expect("SKEP.SCAN [~ + KEYS\r\nSKEP.SCAN (~g + KEYS\r\n", last(&["~g"]) + &last(&[]));
        // Pages: the floor is below the start, and the next one begins after it.
        resp.expect("SKEP.SCAN ~e + LIMIT 1\r\n", page("d", &["d", "4"]));
        resp.expect("SKEP.SCAN ~e + LIMIT 1 AFTER d\r\n", page("f", &["f", "6"]));
        resp.expect("SKEP.SCAN ~e + LIMIT 1 AFTER f\r\n", last(&["~g", "7"]));
        resp.expect("SKEP.SCAN ~e [f AFTER f\r\n", last(&[]));
        // The other way, the floor is the last one.
        resp.expect("SKEP.SCAN ~e + REV KEYS\r\n", last(&["~g", "f", "d"]));
        resp.expect("SKEP.SCAN ~e + REV KEYS LIMIT 2\r\n", page("f", &["~g", "f"]));
        resp.expect("SKEP.SCAN ~e + REV KEYS AFTER f\r\n", last(&["d"]));
        resp.expect("SKEP.SCAN ~e + REV KEYS AFTER d\r\n", last(&[]));
        resp.expect("SKEP.COUNT ~e +\r\nSKEP.COUNT ~a (f\r\nSKEP.COUNT ~e [e\r\n", ":3\r\n:2\r\n:1\r\n");
        resp.expect("SKEP.SCAN ~e [d\r\n", format!("-ERR {}\r\n", OperationError::RangeReversed));
        let long = [b"~", &[b'k'; 461][..]].concat();
        resp.expect(command(&[b"SKEP.SCAN", &long, b"+"]), format!("-ERR {}\r\n", OperationError::KeyTooLong));
    }
}

#[test]
fn spaces_are_apart_and_each_connection_has_its_own() {
    let server = server(3, SMALL);
    let (mut first, mut second) = (Resp::connect(&server), Resp::connect(&server));
    first.expect("SET k hash\r\nSELECT 1\r\nSET k ordered\r\nGET k\r\nSELECT 0\r\nGET k\r\n", {
        "+OK\r\n+OK\r\n+OK\r\n$7\r\nordered\r\n+OK\r\n$4\r\nhash\r\n"
    });
    second.expect("GET k\r\nSELECT 1\r\nGET k\r\n", "$4\r\nhash\r\n+OK\r\n$7\r\nordered\r\n");
    // A wrong choice leaves the space as it is.
    second.expect("SELECT 7\r\nGET k\r\n", "-ERR DB index is out of range\r\n$7\r\nordered\r\n");
    assert!(second.text("CLIENT INFO").contains(" db=1 "));
    assert!(first.text("CLIENT INFO").contains(" db=0 "));
    second.expect("CONFIG GET databases\r\n", bulks(&["databases", "2"]));
    let info = first.text("INFO ordered");
    for line in ["skep_ordered_maxmemory:268435456\r\n", "skep_ordered_height:1\r\n", "skep_ordered_leases:0\r\n"] {
        assert!(info.contains(line), "{line:?} is not in\n{info}");
    }
    first.expect("SKEP.SCAN - +\r\nSKEP.PREFIX a\r\nSKEP.COUNT - +\r\nSKEP.FLOOR a\r\n", {
        format!("-ERR {} (SELECT 1)\r\n", OperationError::NotOrdered).repeat(4)
    });
}

#[test]
fn the_pairs_of_each_space_are_counted() {
    let server = server(3, SMALL);
    let (mut first, mut second) = (Resp::connect(&server), ordered(&server));
    first.expect("SET a 1\r\nDBSIZE\r\n", "+OK\r\n:1\r\n");
    second.expect("DBSIZE\r\nMSET a 1 b 2 c 3 a 4\r\nDBSIZE\r\nDEL a x\r\nDBSIZE\r\nSET a 1\r\n", {
        ":0\r\n+OK\r\n:3\r\n:1\r\n:2\r\n+OK\r\n"
    });
    second.expect("INCR n\r\nINCR n\r\nSETNX n 1\r\nSET x 1 XX\r\nDBSIZE\r\nSELECT 0\r\nDBSIZE\r\n", {
        ":1\r\n:2\r\n:0\r\n$-1\r\n:4\r\n+OK\r\n:1\r\n"
    });
    assert_eq!(first.text("INFO keyspace"), {
        "# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\ndb1:keys=4,expires=0,avg_ttl=0\r\n"
    });
    // What one shard inserts another deletes.
    let mut shards = [0, 1, 2].map(|shard| Native::connect(&server, Some(shard)));
    let keys: Vec<[u8; 2]> = (0..3000_u16).map(u16::to_be_bytes).collect();
    let put = Operation::Put { value: &[7; 100], condition: PutCondition::Always };
    for (sequence, operation) in [(1, put), (2, Operation::Delete)] {
        for (number, keys) in keys.chunks(1000).enumerate() {
            let requests: Vec<Request<'_>> = keys.iter().map(|key| Request { key, operation }).collect();
            let native = &mut shards[(number + sequence as usize) % 3];
            native.send(&frame_in(ORDERED_SPACE, sequence, &requests));
            native.receive(sequence, 1000, |_, response| assert_eq!(response, Ok(Reply::Done)));
        }
        first.expect("SELECT 1\r\nDBSIZE\r\nSKEP.COUNT - +\r\n", {
            format!("+OK\r\n{0}{0}", if sequence == 1 { ":3004\r\n" } else { ":4\r\n" })
        });
    }
}

#[test]
fn ordinary_commands_are_there_or_named() {
    let server = server(2, SMALL);
    let mut resp = ordered(&server);
    resp.expect("SET k 1\r\nGET k\r\nSETNX k 2\r\nSETNX l 2\r\nGET l\r\n", {
        "+OK\r\n$1\r\n1\r\n:0\r\n:1\r\n$1\r\n2\r\n"
    });
    resp.expect("SET k 3 NX\r\nSET k 3 XX\r\nMSET m 1 n 2\r\nMGET k m x n\r\n", {
        "$-1\r\n+OK\r\n+OK\r\n*4\r\n$1\r\n3\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n"
    });
    resp.expect("EXISTS k x m\r\nINCR k\r\nDECRBY k 10\r\nSET t text\r\nINCR t\r\n", {
        format!(":2\r\n:4\r\n:-6\r\n+OK\r\n-ERR {}\r\n", OperationError::NotAnInteger)
    });
    resp.expect("DEL k l x\r\nDBSIZE\r\nSKEP.SCAN - + KEYS\r\n", ":2\r\n:3\r\n".to_owned() + &last(&["m", "n", "t"]));
    resp.expect("KEYS t*\r\nFLUSHDB\r\nKEYS *\r\nGET t\r\n", "*1\r\n$1\r\nt\r\n+OK\r\n*0\r\n$-1\r\n");
}

#[test]
fn a_space_that_is_switched_off() {
    let server = server_with(&ServerSettings { ordered_memory: 0, ..ServerSettings::default() });
    let mut resp = Resp::connect(&server);
    resp.expect("SELECT 1\r\nSET k v\r\nSELECT 0\r\nGET k\r\n", {
        "-ERR DB index is out of range: the ordered space is switched off; restart with --ordered-memory SIZE\r\n+OK\r\n\
         +OK\r\n$1\r\nv\r\n"
    });
    resp.expect("CONFIG GET databases\r\n", bulks(&["databases", "1"]));
    assert_eq!(resp.text("INFO ordered"), "# Ordered\r\nskep_ordered_maxmemory:0\r\n");
    let mut native = Native::connect(&server, None);
    let get = Request { key: b"k", operation: Operation::Get };
    native.send(&frame_in(ORDERED_SPACE, 1, &[get, get]));
    native.receive(1, 2, |_, response| assert_eq!(response, Err(WireError::UnknownSpace)));
    native.execute(2, &[get], |_, response| assert_eq!(response, Ok(Reply::Value(b"v"))));
}

#[test]
fn refusals() {
    let server = server(2, SMALL);
    let mut resp = ordered(&server);
    let [start, end] = ["[key, (key, ~key, - or +", "[key, (key, - or +"];
    let bound = |forms| format!("-ERR min or max not valid string range item: write {forms}\r\n");
    resp.expect("SKEP.SCAN a b\r\nSKEP.SCAN [a \"\"\r\nSKEP.COUNT a +\r\n", bound(start) + &bound(end) + &bound(start));
    resp.expect("SKEP.SCAN - ~b\r\nSKEP.COUNT ~a ~b\r\n", {
        format!("-ERR ~key is a start, not an end: write {end}\r\n").repeat(2)
    });
    resp.expect("SKEP.SCAN -\r\n", "-ERR wrong number of arguments for 'skep.scan' command\r\n");
    let options = "the options are LIMIT n, REV, KEYS, LEASE OPEN or LEASE n, AFTER key\r\n";
    resp.expect("SKEP.SCAN - + FOO\r\nSKEP.SCAN - + LIMIT\r\n", {
        format!("-ERR syntax error at 'FOO': {options}-ERR syntax error at 'LIMIT': {options}")
    });
    resp.expect("SKEP.SCAN - + LIMIT -1\r\nSKEP.PREFIX a LIMIT 4294967296\r\n", {
        "-ERR LIMIT is not an integer or out of range\r\n".repeat(2)
    });
    resp.expect("SKEP.SCAN - + LIMIT 0\r\n", format!("-ERR {}\r\n", OperationError::LimitZero));
    resp.expect("SKEP.SCAN [b [a\r\nSKEP.COUNT [a -\r\n", {
        format!("-ERR {}\r\n", OperationError::RangeReversed).repeat(2)
    });
    resp.expect("SKEP.SCAN - + LEASE x\r\n", "-ERR LEASE is neither OPEN nor the number of a lease\r\n");
    resp.expect("SKEP.SCAN - + LEASE 7\r\nSKEP.SCAN - + LEASE 0\r\nSKEP.SCAN - + LEASE -1\r\n", {
        format!("-ERR {}\r\n", OperationError::LeaseExpired).repeat(3)
    });
    // By the native protocol too; each has a reply, and the connection continues.
    let scan = |key, scan| Request { key, operation: Operation::Scan(scan) };
    let cases: [(Request<'_>, OperationError); 5] = [
        (scan(b"b", Scan { end: ScanEnd::Below(b"a"), ..WHOLE }), OperationError::RangeReversed),
        (scan(b"", Scan { limit: 0, ..WHOLE }), OperationError::LimitZero),
        (scan(b"", Scan { lease: ScanLease::Continue(u64::MAX), ..WHOLE }), OperationError::LeaseExpired),
        (scan(&[1; 461], WHOLE), OperationError::KeyTooLong),
        (scan(b"", Scan { end: ScanEnd::Prefix(&[1; 461]), ..WHOLE }), OperationError::KeyTooLong),
    ];
    let requests = cases.map(|(request, _)| request);
    let mut native = Native::connect(&server, Some(1));
    native.send(&frame_in(ORDERED_SPACE, 1, &requests));
    native.receive(1, cases.len(), |index, response| assert_eq!(response, Ok(Reply::Failed(cases[index].1))));
    // A hash space has no order, whichever shard the key belongs to.
    let requests: Vec<Request<'_>> = [&b"a"[..], b"b", b"c", b"d"].into_iter().map(|key| scan(key, WHOLE)).collect();
    native.send(&frame_in(HASH_SPACE, 2, &requests));
    native.receive(2, 4, |_, response| assert_eq!(response, Ok(Reply::Failed(OperationError::NotOrdered))));
}

#[test]
fn keys_that_are_too_long_are_refused_at_both_front_ends() {
    let server = server(2, SMALL);
    let (longest, long) = (&[b'k'; 460][..], &[b'k'; 461][..]);
    let mut resp = ordered(&server);
    let refusal = format!("-ERR {}\r\n", OperationError::KeyTooLong);
    let with = |mark: &[u8], key: &[u8]| [mark, key].concat();
    resp.expect(command(&[b"SET", longest, b"v"]), "+OK\r\n");
    let wrong: [&[&[u8]]; 13] = [
        &[b"GET", long],
        &[b"MGET", longest, long],
        &[b"SET", long, b"v"],
        &[b"SETNX", long, b"v"],
        &[b"DEL", longest, long],
        &[b"EXISTS", long],
        &[b"MSET", b"a", b"1", long, b"v"],
        &[b"INCR", long],
        &[b"SKEP.SCAN", &with(b"[", long), b"+"],
        &[b"SKEP.SCAN", b"-", &with(b"(", long)],
        &[b"SKEP.SCAN", b"-", b"+", b"AFTER", long],
        &[b"SKEP.PREFIX", long],
        &[b"SKEP.COUNT", b"PREFIX", long],
    ];
    for arguments in wrong {
        resp.expect(command(arguments), &refusal);
    }
    // A command of several keys was refused as a whole: the key that it could have deleted is there, and no other is.
    let longest_text = "k".repeat(460);
    resp.expect("DBSIZE\r\nSKEP.SCAN - + KEYS\r\n", ":1\r\n".to_owned() + &last(&[&longest_text]));
    resp.expect(command(&[b"DEL", longest]), ":1\r\n");
    let put = Operation::Put { value: b"v", condition: PutCondition::Always };
    let add = Operation::AddDecimal { delta: 1 };
    let scan = |start, end| Operation::Scan(Scan { start, end, ..WHOLE });
    let operations = [
        (long, Operation::Get),
        (long, put),
        (long, Operation::Delete),
        (long, Operation::Contains),
        (long, add),
        (long, scan(ScanStart::Above, ScanEnd::Last)),
        (long, scan(ScanStart::Floor, ScanEnd::AtOrBelow(long))),
        (b"a", scan(ScanStart::AtOrAbove, ScanEnd::Below(long))),
    ];
    let requests = operations.map(|(key, operation)| Request { key, operation });
    let mut native = Native::connect(&server, Some(1));
    native.send(&frame_in(ORDERED_SPACE, 1, &requests));
    let refused = Ok(Reply::Failed(OperationError::KeyTooLong));
    native.receive(1, requests.len(), |index, response| assert_eq!(response, refused, "{:?}", requests[index]));
    let empty = [Request { key: b"", operation: Operation::Get }, Request { key: b"", operation: put }];
    native.send(&frame_in(ORDERED_SPACE, 2, &empty));
    native.receive(2, 2, |_, response| assert_eq!(response, Ok(Reply::Failed(OperationError::KeyEmpty))));
}

#[test]
fn a_range_that_is_longer_than_a_reply_comes_in_pages() {
    let server = server(2, SMALL);
    let mut resp = ordered(&server);
    // Two of the values fit a page, and of the longest one alone.
    let (value, longest) = ("v".repeat(30_000), "w".repeat(1 << 20));
    let values: Vec<&str> = (0..7).map(|number| if number == 4 { &longest[..] } else { &value[..] }).collect();
    let keys: Vec<String> = (0..7).map(|number| format!("key{number}")).collect();
    for (key, value) in keys.iter().zip(&values) {
        resp.expect(command(&[b"SET", key.as_bytes(), value.as_bytes()]), "+OK\r\n");
    }
    let pairs =
        |range: std::ops::Range<usize>| -> Vec<&str> { range.flat_map(|n| [&keys[n][..], values[n]]).collect() };
    resp.expect("SKEP.SCAN - +\r\n", page("key1", &pairs(0..2)));
    resp.expect("SKEP.SCAN - + AFTER key1\r\n", page("key3", &pairs(2..4)));
    resp.expect("SKEP.SCAN - + AFTER key3\r\n", page("key4", &pairs(4..5)));
    resp.expect("SKEP.SCAN - + AFTER key4\r\n", last(&pairs(5..7)));
    resp.expect("SKEP.PREFIX key REV LIMIT 100\r\n", page("key5", &[&keys[6], &value, &keys[5], &value]));
    resp.expect("SKEP.SCAN - + KEYS\r\n", last(&keys.iter().map(String::as_str).collect::<Vec<_>>()));
    // The same by the native protocol, and many at once: each has its page.
    let mut native = Native::connect(&server, Some(0));
    for reverse in [false, true] {
        let mut found: Vec<(Vec<u8>, usize)> = Vec::new();
        let (mut key, mut end, mut start) = (Vec::new(), None, ScanStart::AtOrAbove);
        for sequence in 0.. {
            let end_at = end.as_deref().map_or(ScanEnd::Last, ScanEnd::Below);
            let operation = Operation::Scan(Scan { start, end: end_at, reverse, ..WHOLE });
            native.send(&frame_in(ORDERED_SPACE, sequence, &[Request { key: &key, operation }; 20]));
            let mut next = None;
            native.receive(sequence, 20, |index, response| {
                let Ok(Reply::Value(bytes)) = response else { panic!("{response:?}") };
                let page = Page::decode(bytes).unwrap();
                assert!(page.count() == 1 || bytes.len() <= 64 << 10, "{} bytes", bytes.len());
                if index == 0 {
                    found.extend(page.pairs().map(|(key, value)| (key.to_vec(), value.len())));
                    next = page.more().then(|| page.last_key().to_vec());
                }
            });
            match next {
                Some(last) if reverse => end = Some(last),
                Some(last) => (key, start) = (last, ScanStart::Above),
                None => break,
            }
        }
        if reverse {
            found.reverse();
        }
        let expected = keys.iter().zip(&values).map(|(key, value)| (key.as_bytes().to_vec(), value.len()));
        assert!(expected.eq(found));
    }
}

/// Opens a lease with a page of one pair, that of the key `a`. Returns its number.
fn open_lease(resp: &mut Resp, first: &[&str]) -> u64 {
    resp.expect("SKEP.SCAN - + LIMIT 1 LEASE OPEN\r\n", format!("*3\r\n$1\r\na\r\n{}", bulks(first)));
    resp.integer().cast_unsigned()
}

#[test]
fn a_lease_shows_one_moment_until_it_expires() {
    let server = server(3, SMALL);
    let mut resp = ordered(&server);
    resp.expect("MSET a 1 b 2 c 3 d 4\r\n", "+OK\r\n");
    let open = |resp: &mut Resp| open_lease(resp, &["a", "1"]);
    let lease = open(&mut resp);
    resp.expect("MSET b new bb new\r\nDEL d\r\n", "+OK\r\n:1\r\n");
    // Other connections, on other shards, do not know it.
    let expired = format!("-ERR {}\r\n", OperationError::LeaseExpired);
    for _ in 0..3 {
        ordered(&server).expect(format!("SKEP.SCAN - + LIMIT 1 AFTER a LEASE {lease}\r\n"), &expired);
        ordered(&server).expect(format!("SKEP.SCAN - - LEASE {lease}\r\n"), &expired);
    }
    resp.expect(format!("SKEP.SCAN - + LIMIT 1 AFTER a LEASE {lease}\r\n"), {
        format!("*3\r\n$1\r\nb\r\n{}:{lease}\r\n", bulks(&["b", "2"]))
    });
    assert!(resp.text("INFO ordered").contains("skep_ordered_leases:1\r\n"));
    resp.expect(format!("SKEP.SCAN - + AFTER b LEASE {lease}\r\n"), {
        format!("*3\r\n$-1\r\n{}$-1\r\n", bulks(&["c", "3", "d", "4"]))
    });
    resp.expect(format!("SKEP.SCAN - + AFTER b LEASE {lease}\r\n"), &expired);
    resp.expect("SKEP.SCAN - + KEYS\r\n", last(&["a", "b", "bb", "c"]));
    // The floor too is that of the first page.
    resp.expect("SKEP.SCAN ~bbb + LIMIT 1 LEASE OPEN\r\n", format!("*3\r\n$2\r\nbb\r\n{}", bulks(&["bb", "new"])));
    let lease = resp.integer();
    resp.expect("MSET bbb new cc new\r\n", "+OK\r\n");
    resp.expect(format!("SKEP.SCAN ~bbb + AFTER bb LEASE {lease}\r\n"), {
        format!("*3\r\n$-1\r\n{}$-1\r\n", bulks(&["c", "3"]))
    });
    resp.expect("DEL bbb cc\r\n", ":2\r\n");
    // An empty range gives a lease back.
    let lease = open(&mut resp);
    resp.expect(format!("SKEP.SCAN - - LEASE {lease}\r\n"), "*3\r\n$-1\r\n*0\r\n$-1\r\n");
    resp.expect(format!("SKEP.SCAN - + LEASE {lease}\r\n"), &expired);
    // More leases than a space keeps: the oldest ends.
    let first = open(&mut resp);
    let leases: Vec<u64> = (0..skep_store::ordered::LEASE_COUNT_MAX).map(|_| open(&mut resp)).collect();
    resp.expect(format!("SKEP.SCAN - + LEASE {first}\r\n"), &expired);
    resp.expect(format!("SKEP.SCAN - + AFTER c LEASE {}\r\n", leases[0]), "*3\r\n$-1\r\n*0\r\n$-1\r\n");
    let info = resp.text("INFO ordered");
    assert!(info.contains("skep_ordered_leases_expired:1\r\n"), "{info}");
}

#[test]
fn a_count_goes_through_as_many_pages_as_it_takes() {
    let server = server(2, SMALL);
    let mut native = Native::connect(&server, Some(0));
    let keys: Vec<[u8; 4]> = (0..150_000_u32).map(u32::to_be_bytes).collect();
    let put = Operation::Put { value: b"", condition: PutCondition::Always };
    for part in keys.chunks(10_000) {
        let requests: Vec<Request<'_>> = part.iter().map(|key| Request { key, operation: put }).collect();
        native.send(&frame_in(ORDERED_SPACE, 1, &requests));
        native.receive(1, requests.len(), |_, response| assert_eq!(response, Ok(Reply::Done)));
    }
    let mut resp = ordered(&server);
    // What is deleted after it in the pipeline was there.
    resp.expect(
        "SKEP.COUNT - +\r\nDEL \"\\x00\\x00\\x00\\x00\"\r\nSKEP.COUNT - +\r\nSKEP.COUNT PREFIX \"\\x00\\x01\"\r\n",
        ":150000\r\n:1\r\n:149999\r\n:65536\r\n",
    );
    assert!(resp.text("INFO ordered").contains("skep_ordered_leases:0\r\n"));
    // A page holds as much as is sensible, and says so.
    native.send(&frame_in(ORDERED_SPACE, 2, &[Request { key: b"", operation: Operation::Scan(WHOLE) }]));
    native.receive(2, 1, |_, response| {
        let Ok(Reply::Value(bytes)) = response else { panic!("{response:?}") };
        let page = Page::decode(bytes).unwrap();
        assert!(page.more() && page.count() > 1000 && bytes.len() <= 64 << 10, "{} pairs", page.count());
    });
}

#[test]
fn shards_write_and_scan_one_space() {
    // Writers move a token from key to key, each write a new one before the old one goes: a scan of one moment sees one
    // or two of each writer, and their numbers follow each other.
    const WRITERS: u16 = 3;
    const MOVES: u32 = 2000;
    let server = server(2, SMALL);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let server = &server;
                scope.spawn(move || {
                    let mut native = Native::connect(server, Some(writer % 2));
                    let put = Operation::Put { value: &[writer as u8; 600], condition: PutCondition::IfAbsent };
                    for number in 0..MOVES {
                        let key = |number: u32| [&[writer as u8][..], &number.to_be_bytes()].concat();
                        let (next, before) = (key(number), key(number.wrapping_sub(1)));
                        let requests = [
                            Request { key: &next, operation: put },
                            Request { key: &before, operation: Operation::Delete },
                        ];
                        native.send(&frame_in(ORDERED_SPACE, number, &requests));
                        native.receive(number, 2, |index, response| {
                            let missing = index == 1 && number == 0;
                            assert_eq!(response, Ok(if missing { Reply::NotFound } else { Reply::Done }));
                        });
                    }
                })
            })
            .collect();
        for shard in 0..2 {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                let mut native = Native::connect(server, Some(shard));
                let mut last = [0; WRITERS as usize];
                let mut scans = 0;
                while !done.load(Ordering::Relaxed) || scans < 10 {
                    let reverse = scans % 2 == 1;
                    let scan = Operation::Scan(Scan { reverse, ..WHOLE });
                    native.send(&frame_in(ORDERED_SPACE, scans, &[Request { key: b"", operation: scan }]));
                    native.receive(scans, 1, |_, response| {
                        let Ok(Reply::Value(bytes)) = response else { panic!("{response:?}") };
                        check_moment(&Page::decode(bytes).unwrap(), reverse, &mut last);
                    });
                    scans += 1;
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    ordered(&server).expect("SKEP.COUNT - +\r\n", format!(":{WRITERS}\r\n"));
}

/// Checks what a scan has seen of each writer, who was seen at `last` before.
fn check_moment(page: &Page<'_>, reverse: bool, last: &mut [u32]) {
    let mut found: Vec<(usize, u32)> = Vec::new();
    for (key, value) in page.pairs() {
        assert!(value.len() == 600 && value.iter().all(|&byte| byte == key[0]));
        found.push((usize::from(key[0]), u32::from_be_bytes(key[1..].try_into().unwrap())));
    }
    if reverse {
        found.reverse();
    }
    assert!(found.is_sorted());
    for (writer, last) in last.iter_mut().enumerate() {
        let numbers: Vec<u32> = found.iter().filter(|(of, _)| *of == writer).map(|(_, number)| *number).collect();
        match numbers[..] {
            [] => assert_eq!(*last, 0, "writer {writer} has begun and is gone"),
            [number] => assert!(number >= *last),
            [first, second] => assert!(first >= *last && second == first + 1),
            _ => panic!("{numbers:?} of one writer"),
        }
        *last = numbers.first().copied().unwrap_or(0);
    }
}

/// The leases of a connection end with it: no other connection could continue them.
#[test]
fn leases_end_with_their_connection() {
    let server = server(2, SMALL);
    let mut resp = ordered(&server);
    resp.expect("MSET a 1 b 2 c 3\r\n", "+OK\r\n");
    for _ in 0..3 {
        let mut other = ordered(&server);
        open_lease(&mut other, &["a", "1"]);
        open_lease(&mut other, &["a", "1"]);
        assert!(resp.text("INFO ordered").contains("skep_ordered_leases:2\r\n"));
        drop(other);
        while !resp.text("INFO ordered").contains("skep_ordered_leases:0\r\n") {}
    }
    let info = resp.text("INFO ordered");
    assert!(info.contains("skep_ordered_leases_expired:0\r\n"), "{info}");
}

/// An exporter asks for `INFO` all the time while two shards write: everybody gets every reply.
#[test]
fn info_beside_writers() {
    const FRAMES: u32 = 400;
    let server = server(2, SMALL);
    let is_done = AtomicBool::new(false);
    let write = |shard: u16| {
        let mut native = Native::connect(&server, Some(shard));
        let put = Operation::Put { value: &[1; 16], condition: PutCondition::Always };
        for sequence in 0..FRAMES {
            let key = |number: u32| (sequence * 500 + number).wrapping_mul(0x9e37_79b9).to_be_bytes();
            let keys: Vec<[u8; 4]> = (0..500).map(|number| key(number + u32::from(shard) * 7)).collect();
            let requests: Vec<Request<'_>> = keys.iter().map(|key| Request { key, operation: put }).collect();
            native.send(&frame_in(ORDERED_SPACE, sequence, &requests));
            native.receive(sequence, requests.len(), |_, response| assert_eq!(response, Ok(Reply::Done)));
        }
    };
    let ask = || {
        let mut resp = Resp::connect(&server);
        let mut count = 0;
        while !is_done.load(Ordering::Relaxed) {
            assert!(resp.text("INFO").contains("skep_ordered_garbage:"));
            count += 1;
        }
        count
    };
    let count = std::thread::scope(|scope| {
        let exporter = scope.spawn(ask);
        let writers = [0, 1].map(|shard| scope.spawn(move || write(shard)));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
        exporter.join().unwrap()
    });
    assert!(count > 100, "INFO got a reply {count} times");
}
