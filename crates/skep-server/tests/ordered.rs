//! The ordered space over RESP: its commands, byte for byte, and what they refuse; leases that expire; several shards
//! that write and scan one space.

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use skep_server::{Server, ServerSettings};
use skep_store::operation::{
    Operation, OperationError, Page, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};
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

/// A connection that has chosen the ordered space.
fn ordered(server: &Server) -> Resp {
    let mut resp = Resp::connect(server);
    resp.expect("SELECT 1\r\n", "+OK\r\n");
    resp
}

/// The array of these bulk strings.
fn bulks(strings: &[&str]) -> String {
    let bulks: String = strings.iter().map(|string| format!("${}\r\n{string}\r\n", string.len())).collect();
    format!("*{}\r\n{bulks}", strings.len())
}

/// A page that nothing follows.
fn last(strings: &[&str]) -> String {
    format!("*2\r\n$-1\r\n{}", bulks(strings))
}

/// A page that is followed by what lies behind this key.
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
        resp.expect("SKEP.PREFIX x\r\n", last(&[]));
        resp.expect("SKEP.COUNT - +\r\nSKEP.COUNT [b (ca\r\nSKEP.COUNT PREFIX c\r\nSKEP.COUNT prefix x\r\n", {
            ":5\r\n:2\r\n:2\r\n:0\r\n"
        });
        resp.expect("SKEP.FLOOR cb\r\nSKEP.FLOOR b\r\nSKEP.FLOOR A\r\n", {
            bulks(&["ca", "4"]) + &bulks(&["b", "2"]) + "$-1\r\n"
        });
        // A pipeline is carried out in its order.
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
    second.expect("DBSIZE\r\n", {
        "-ERR the pairs of the ordered space are not counted; SKEP.COUNT - + goes through them\r\n"
    });
    first.expect("DBSIZE\r\n", ":1\r\n");
    let info = first.text("INFO ordered");
    for line in ["skep_ordered_maxmemory:268435456\r\n", "skep_ordered_height:1\r\n", "skep_ordered_leases:0\r\n"] {
        assert!(info.contains(line), "{line:?} is not in\n{info}");
    }
    first.expect("SKEP.SCAN - +\r\nSKEP.PREFIX a\r\nSKEP.COUNT - +\r\nSKEP.FLOOR a\r\n", {
        format!("-ERR {}\r\n", OperationError::NotOrdered).repeat(4)
    });
    first.expect("SCAN 0\r\n", "-ERR unknown command 'SCAN', with args beginning with: '0' \r\n");
}

#[test]
fn a_space_that_is_switched_off() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings {
        native: any,
        resp: Some(any),
        memory: SMALL,
        ordered_memory: 0,
        pin_threads: false,
        ..ServerSettings::default()
    };
    let server = Server::start(&settings).unwrap();
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
    let bound = "-ERR min or max not valid string range item: write [key, (key, - or +\r\n";
    resp.expect("SKEP.SCAN a b\r\nSKEP.SCAN [a \"\"\r\nSKEP.COUNT a +\r\n", bound.repeat(3));
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
    // By the native protocol too; each is answered, and the connection goes on.
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

/// The number behind the `:` of a reply's last line.
fn lease_of(reply: &str) -> u64 {
    reply.rsplit(':').next().and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{reply}"))
}

#[test]
fn a_lease_shows_one_moment_until_it_expires() {
    let server = server(3, SMALL);
    let mut resp = ordered(&server);
    resp.expect("MSET a 1 b 2 c 3 d 4\r\n", "+OK\r\n");
    let open = |resp: &mut Resp| {
        let expected = format!("*3\r\n$1\r\na\r\n{}:", bulks(&["a", "1"]));
        resp.expect("SKEP.SCAN - + LIMIT 1 LEASE OPEN\r\n", expected);
        let mut rest = Vec::new();
        while !rest.ends_with(b"\r\n") {
            let mut byte = [0];
            std::io::Read::read_exact(&mut resp.0, &mut byte).unwrap();
            rest.push(byte[0]);
        }
        lease_of(&format!(":{}", String::from_utf8(rest).unwrap()))
    };
    let lease = open(&mut resp);
    resp.expect("MSET b new bb new\r\nDEL d\r\n", "+OK\r\n:1\r\n");
    // Another connection, on another shard, goes on with it.
    let mut other = ordered(&server);
    other.expect(format!("SKEP.SCAN - + LIMIT 1 AFTER a LEASE {lease}\r\n"), {
        format!("*3\r\n$1\r\nb\r\n{}:{lease}\r\n", bulks(&["b", "2"]))
    });
    assert!(other.text("INFO ordered").contains("skep_ordered_leases:1\r\n"));
    other.expect(format!("SKEP.SCAN - + AFTER b LEASE {lease}\r\n"), {
        format!("*3\r\n$-1\r\n{}$-1\r\n", bulks(&["c", "3", "d", "4"]))
    });
    let expired = format!("-ERR {}\r\n", OperationError::LeaseExpired);
    other.expect(format!("SKEP.SCAN - + AFTER b LEASE {lease}\r\n"), &expired);
    resp.expect("SKEP.SCAN - + KEYS\r\n", last(&["a", "b", "bb", "c"]));
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
    // What is deleted behind it in the pipeline was there.
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
