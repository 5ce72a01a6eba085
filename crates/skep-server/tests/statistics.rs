//! What the server tells about commands: counts, delays, the slow log, and `MONITOR`.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use skep_server::{Server, ServerSettings};
use support::{Resp, command, server};

const SMALL: u64 = 48 << 20;

/// Returns the value of a field, if it is there.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned()))
}

/// Returns the numbers of `cmdstat`: calls, rejected and failed ones.
fn counts(text: &str, name: &str) -> [u64; 3] {
    let line = field(text, &format!("cmdstat_{name}")).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    let number = |part: &str| {
        line.split(',').find_map(|field| field.strip_prefix(part)?.strip_prefix('=')).unwrap().parse().unwrap()
    };
    assert!(line.contains(",usec=") && line.contains(",usec_per_call="), "{line}");
    ["calls", "rejected_calls", "failed_calls"].map(number)
}

#[test]
fn commands_and_errors_are_counted() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut resp = Resp::connect(&server);
        resp.expect("SET a 1\r\nGET a\r\nGET b\r\nMGET a b c\r\nGET\r\nSET a b NOSUCH\r\nINCR a\r\nSET w word\r\n", {
            "+OK\r\n$1\r\n1\r\n$-1\r\n*3\r\n$1\r\n1\r\n$-1\r\n$-1\r\n\
             -ERR wrong number of arguments for 'get' command\r\n-ERR syntax error\r\n:2\r\n+OK\r\n"
        });
        resp.expect("INCR w\r\nNOSUCH\r\nAUTH me x\r\nSKEP.COUNT - +\r\nCLIENT FOO\r\nPING\r\n", {
            "-ERR value is not an integer or out of range\r\n\
             -ERR unknown command 'NOSUCH', with args beginning with: \r\n\
             -WRONGPASS invalid username-password pair or user is disabled.\r\n\
             -ERR this space has no order: scans need the ordered space (SELECT 1)\r\n\
             -ERR unknown subcommand 'FOO'. Try CLIENT HELP.\r\n+PONG\r\n"
        });
        let info = resp.text("INFO everything");
        for (name, expected) in [
            ("get", [2, 1, 0]),
            ("set", [3, 0, 1]),
            ("mget", [1, 0, 0]),
            ("incr", [2, 0, 1]),
            ("auth", [1, 0, 1]),
            ("client", [0, 1, 0]),
            ("ping", [1, 0, 0]),
            ("skep.count", [1, 0, 1]),
        ] {
            assert_eq!(counts(&info, name), expected, "{name}");
        }
        assert_eq!(field(&info, "errorstat_ERR"), Some("count=6".to_owned()));
        assert_eq!(field(&info, "errorstat_WRONGPASS"), Some("count=1".to_owned()));
        assert_eq!(field(&info, "total_error_replies"), Some("7".to_owned()));
        assert_eq!(field(&info, "total_commands_processed"), Some("11".to_owned()));
        assert_eq!(field(&info, "cmdstat_info"), None, "the command itself is counted after its reply is made");
        let info = resp.text("INFO latencystats commandstats");
        let line = field(&info, "latency_percentiles_usec_get").unwrap();
        assert!(line.starts_with("p50=") && line.contains(",p99=") && line.contains(",p99.9="), "{line}");
        assert!(!info.contains("# Stats") && !resp.text("INFO").contains("cmdstat"));
        server.stop();
    }
}

#[test]
fn a_reset_lets_the_statistics_begin_at_zero() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut others: Vec<Resp> = (0..4).map(|_| Resp::connect(&server)).collect();
        for resp in &mut others {
            resp.expect("SET a 1\r\nGET a\r\nGET b\r\nGET\r\n", {
                "+OK\r\n$1\r\n1\r\n$-1\r\n-ERR wrong number of arguments for 'get' command\r\n"
            });
        }
        let mut resp = Resp::connect(&server);
        let info = resp.text("INFO stats");
        assert_eq!(field(&info, "keyspace_hits"), Some("4".to_owned()));
        resp.expect("CONFIG RESETSTAT\r\n", "+OK\r\n");
        let info = resp.text("INFO everything");
        for name in ["keyspace_hits", "keyspace_misses", "total_error_replies", "total_connections_received"] {
            assert_eq!(field(&info, name), Some("0".to_owned()), "{name}");
        }
        for name in ["cmdstat_get", "errorstat_ERR", "latency_percentiles_usec_get"] {
            assert_eq!(field(&info, name), None, "{name}");
        }
        others[1].expect("GET a\r\n", "$1\r\n1\r\n");
        assert_eq!(counts(&resp.text("INFO commandstats"), "get"), [1, 0, 0]);
        assert!(resp.text("INFO errorstats").ends_with("# Errorstats\r\n"));
        server.stop();
    }
}

/// Reads a reply of any type as lines.
fn reply_lines(resp: &mut Resp, request: &[u8]) -> Vec<String> {
    // Each call has an end of its own: the slow log may hold the last one.
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let end = format!("end-{}", CALLS.fetch_add(1, Ordering::Relaxed));
    resp.0.write_all(request).unwrap();
    resp.0.write_all(format!("ECHO {end}\r\n").as_bytes()).unwrap();
    let mut reader = BufReader::new(resp.0.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).unwrap();
        lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        if lines.last() == Some(&end) {
            lines.truncate(lines.len() - 2);
            return lines;
        }
    }
}

#[test]
fn delays_of_commands_are_told_as_a_distribution() {
    let server = server(2, SMALL);
    let mut resp = Resp::connect(&server);
    for _ in 0..10 {
        resp.expect("GET a\r\n", "$-1\r\n");
    }
    let lines = reply_lines(&mut resp, b"LATENCY HISTOGRAM get set nosuch\r\n");
    assert_eq!(&lines[..7], ["*2", "$3", "get", "*4", "$5", "calls", ":10"], "{lines:?}");
    assert_eq!(&lines[7..9], ["$14", "histogram_usec"]);
    assert_eq!(lines.last().unwrap(), ":10", "the last step has all calls");
    resp.expect("LATENCY LATEST\r\nLATENCY HISTORY x\r\nLATENCY RESET a b\r\n", "*0\r\n*0\r\n:0\r\n");
    resp.expect("LATENCY GRAPH x\r\n", "-ERR No samples available for event 'x'\r\n");
    resp.expect("LATENCY HISTORY\r\n", "-ERR wrong number of arguments for 'latency|history' command\r\n");
    assert!(resp.text("LATENCY DOCTOR").contains("SLOWLOG"));
    server.stop();
}

#[test]
fn slow_commands_are_logged() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut resp = Resp::connect(&server);
        resp.expect("SLOWLOG LEN\r\nSLOWLOG GET\r\n", ":0\r\n*0\r\n");
        resp.expect("CLIENT SETNAME cook\r\nCONFIG SET slowlog-log-slower-than 0\r\n", "+OK\r\n+OK\r\n");
        resp.expect("SLOWLOG RESET\r\n", "+OK\r\n");
        let mut set = vec![&b"MSET"[..]];
        let long = [b'v'; 200];
        set.extend([&b"key"[..], &long].repeat(20));
        resp.expect(command(&set), "+OK\r\n");
        resp.expect("AUTH default secret\r\n", "+OK\r\n");
        resp.expect("CONFIG SET requirepass secret\r\nCONFIG SET timeout 0 requirepass ''\r\n", "+OK\r\n+OK\r\n");
        resp.0.write_all(b"HELLO 2 AUTH default secret\r\n").unwrap();
        let lines = reply_lines(&mut resp, b"CONFIG SET slowlog-log-slower-than -1\r\nSLOWLOG GET -1\r\n");
        let text = lines.join(" ");
        assert!(!text.contains("secret"), "{text}");
        for part in [
            "$4 AUTH $10 (redacted) $10 (redacted)",
            "$6 CONFIG $3 SET $11 requirepass $10 (redacted)",
            "$7 timeout $1 0 $11 requirepass $10 (redacted)",
            "$5 HELLO $1 2 $4 AUTH $10 (redacted) $10 (redacted)",
            "... (72 more bytes)",
            "$23 ... (10 more arguments)",
            "$4 cook",
            "$7 SLOWLOG $5 RESET",
        ] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        let address = resp.0.local_addr().unwrap().to_string();
        assert!(text.contains(&address), "{text}");
        resp.expect("SLOWLOG GET 1 2\r\n", {
            "-ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.\r\n"
        });
        resp.expect("SLOWLOG GET x\r\nSLOWLOG GET -2\r\n", {
            "-ERR count should be greater than or equal to -1\r\n".repeat(2)
        });
        let newest = reply_lines(&mut resp, b"SLOWLOG GET 1\r\n");
        assert_eq!(newest[0], "*1");
        assert_eq!(newest[1], "*6");
        // A setting is in force from the next turn on, and the log is shortened when a command is entered.
        resp.expect("CONFIG SET slowlog-max-len 2 slowlog-log-slower-than 0\r\n", "+OK\r\n");
        resp.expect("GET a\r\n", "$-1\r\n");
        resp.expect("SLOWLOG LEN\r\n", ":2\r\n");
        resp.expect("CONFIG SET slowlog-max-len 0\r\n", "+OK\r\n");
        resp.expect("GET a\r\n", "$-1\r\n");
        resp.expect("SLOWLOG LEN\r\n", ":0\r\n");
        server.stop();
    }
}

#[test]
fn a_monitor_gets_the_commands_of_all_shards() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut monitor = Resp::connect(&server);
        monitor.expect("MONITOR\r\n", "+OK\r\n");
        let mut others: Vec<Resp> = (0..6).map(|_| Resp::connect(&server)).collect();
        let mut reader = BufReader::new(monitor.0.try_clone().unwrap());
        let mut next = || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line
        };
        for (index, resp) in others.iter_mut().enumerate() {
            let address = resp.0.local_addr().unwrap();
            resp.expect(format!("SELECT 1\r\nSET key{index} \"a\\n\\x01\"\r\n"), "+OK\r\n+OK\r\n");
            for words in
                ["[1 ADDRESS] \"SELECT\" \"1\"".to_owned(), format!("[1 ADDRESS] \"SET\" \"key{index}\" \"a\\n\\x01\"")]
            {
                let line = next();
                let (time, rest) = line.split_once(' ').unwrap();
                assert!(time[1..].parse::<f64>().unwrap() > 1e9, "{line}");
                assert_eq!(rest, words.replace("ADDRESS", &address.to_string()) + "\r\n");
            }
        }
        // Administrative commands and passwords are not shown.
        others[0].expect("CONFIG SET timeout 0\r\nAUTH default secret\r\nNOSUCH secret\r\n", {
            "+OK\r\n+OK\r\n-ERR unknown command 'NOSUCH', with args beginning with: 'secret' \r\n"
        });
        assert!(next().ends_with("] \"AUTH\" \"(redacted)\" \"(redacted)\"\r\n"));
        others[1].expect(command(&[b"ECHO", &[b'x'; 1030]]), format!("$1030\r\n{}\r\n", "x".repeat(1030)));
        assert!(next().ends_with("xx... (6 more bytes)\"\r\n"));
        assert!(others[2].text("CLIENT LIST").contains(" flags=O "));
        assert!(next().ends_with("\"CLIENT\" \"LIST\"\r\n"));
        server.stop();
    }
}

/// The reply to `KEYS` is made over many turns. Lines for the monitor wait until it is complete.
#[test]
fn a_monitor_gets_its_own_replies_whole() {
    let server = server(1, SMALL);
    let (mut monitor, mut other) = (Resp::connect(&server), Resp::connect(&server));
    let keys: Vec<Vec<u8>> = (0..30_000).map(|number| format!("key{number:08}").into_bytes()).collect();
    let pairs = keys.iter().flat_map(|key| [&key[..], b"v"]);
    let words: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
    other.expect(command(&words), "+OK\r\n");
    monitor.expect("MONITOR\r\n", "+OK\r\n");
    monitor.0.write_all(b"KEYS *\r\n").unwrap();
    let mut reader = BufReader::new(monitor.0.try_clone().unwrap());
    let mut line = String::new();
    while !line.starts_with('*') {
        other.expect("PING\r\n", "+PONG\r\n");
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    assert_eq!(line, "*30000\r\n");
    for number in 0..30_000 {
        if number % 100 == 0 {
            other.expect("PING\r\n", "+PONG\r\n");
        }
        for expected in ["$11\r\n", "key"] {
            line.clear();
            reader.read_line(&mut line).unwrap();
            assert!(line.starts_with(expected), "key {number}: {line}");
        }
    }
    server.stop();
}

#[test]
fn a_monitor_that_does_not_read_is_closed() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings {
        native: any,
        resp: Some(any),
        memory: SMALL,
        shards: 2,
        connections_max: 100,
        connection_memory: 8 << 20,
        ..ServerSettings::default()
    };
    let server = Server::start(&settings).unwrap();
    let mut monitor = Resp::connect(&server);
    monitor.expect("MONITOR\r\n", "+OK\r\n");
    let mut others: Vec<Resp> = (0..2).map(|_| Resp::connect(&server)).collect();
    let value = vec![b'v'; 900];
    let closed = |resp: &mut Resp| field(&resp.text("INFO clients"), "skep_monitors_closed").unwrap();
    let mut rounds = 0;
    while closed(&mut others[0]) == "0" {
        for resp in &mut others {
            resp.expect(command(&[b"SET", b"key", &value]).repeat(50), "+OK\r\n".repeat(50));
        }
        rounds += 1;
        assert!(rounds < 10_000, "the monitor is never closed");
    }
    assert_eq!(closed(&mut others[1]), "1");
    // What was sent before can still be read.
    let mut rest = Vec::new();
    _ = monitor.0.read_to_end(&mut rest);
    assert!(rest.starts_with(b"+"));
    let clients = others[0].text("INFO clients");
    assert_eq!(field(&clients, "connected_clients"), Some("2".to_owned()), "{clients}");
    server.stop();
}
