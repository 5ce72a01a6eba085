//! Pauses, monitors, statistics and passwords, for transactions and commands of several keys.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use skep_server::Server;
use support::{Resp, receive, server};

const SMALL: u64 = 48 << 20;

/// Connections that are on all shards of a server with three: RESP connections are distributed in rotation.
fn connections(server: &Server) -> Vec<Resp> {
    (0..6).map(|_| Resp::connect(server)).collect()
}

/// Expects that nothing arrives for a while. That is no proof that nothing ever arrives, but a fault is found at last.
fn expect_silence(resp: &mut Resp) {
    resp.0.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    let read = receive(&resp.0, &mut [0]);
    assert!(read.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "{read:?}");
    resp.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
}

/// Returns the numbers of calls, rejected calls and failed calls of a command.
fn counts(info: &str, name: &str) -> [u64; 3] {
    let beginning = format!("cmdstat_{name}:");
    let line = info.lines().find(|line| line.starts_with(&beginning)).unwrap_or_else(|| panic!("{name}: {info}"));
    ["calls=", "rejected_calls=", "failed_calls="].map(|part| {
        let field = line[beginning.len()..].split(',').find_map(|field| field.strip_prefix(part));
        field.unwrap().parse().unwrap()
    })
}

#[test]
fn a_pause_of_writes_holds_transactions_that_write_and_lets_others_through() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut admin = Resp::connect(&server);
        let mut others = connections(&server);
        admin.expect("MSET a 1 b 2 c 3\r\nCLIENT PAUSE 60000 WRITE\r\n", "+OK\r\n+OK\r\n");
        for (index, resp) in others.iter_mut().enumerate() {
            resp.expect("MGET a b c\r\nMULTI\r\nGET a\r\nEXISTS a b\r\nEXEC\r\n", {
                "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n$1\r\n1\r\n:2\r\n"
            });
            if index % 2 == 0 {
                resp.0.write_all(format!("MSET k{index} v l{index} v\r\nGET a\r\n").as_bytes()).unwrap();
            } else {
                // As in Redis, a command that writes is not even queued.
                resp.expect("MULTI\r\nGET a\r\n", "+OK\r\n+QUEUED\r\n");
                resp.0.write_all(format!("SET k{index} v\r\nSET l{index} v\r\nEXEC\r\nGET a\r\n").as_bytes()).unwrap();
            }
        }
        others.iter_mut().for_each(expect_silence);
        admin.expect("EXISTS k0 l0 k1 l1 k2 l2 k3 l3 k4 l4 k5 l5\r\nCLIENT UNPAUSE\r\n", ":0\r\n+OK\r\n");
        for (index, resp) in others.iter_mut().enumerate() {
            resp.expect_bytes(match index % 2 {
                0 => "+OK\r\n",
                _ => "+QUEUED\r\n+QUEUED\r\n*3\r\n$1\r\n1\r\n+OK\r\n+OK\r\n",
            });
            resp.expect_bytes("$1\r\n1\r\n");
        }
        admin.expect("EXISTS k0 l0 k1 l1 k2 l2 k3 l3 k4 l4 k5 l5\r\n", ":12\r\n");
        // A transaction that was queued before the pause waits with its EXEC.
        admin.expect("MULTI\r\nINCR a\r\n", "+OK\r\n+QUEUED\r\n");
        others[0].expect("CLIENT PAUSE 60000 WRITE\r\n", "+OK\r\n");
        admin.0.write_all(b"EXEC\r\n").unwrap();
        expect_silence(&mut admin);
        others[0].expect("GET a\r\nCLIENT UNPAUSE\r\n", "$1\r\n1\r\n+OK\r\n");
        admin.expect_bytes("*1\r\n:2\r\n");
        server.stop();
    }
}

#[test]
fn a_pause_holds_all_isolated_commands_and_a_transaction_may_order_it() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut admin = Resp::connect(&server);
        let mut others = connections(&server);
        admin.expect("MULTI\r\nCLIENT PAUSE 60000\r\nPING\r\nEXEC\r\n", {
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+PONG\r\n"
        });
        for resp in &mut others {
            resp.0.write_all(b"MGET a b c\r\nMULTI\r\nGET a\r\nEXEC\r\n").unwrap();
        }
        others.iter_mut().for_each(expect_silence);
        admin.expect("CLIENT UNPAUSE\r\n", "+OK\r\n");
        for resp in &mut others {
            resp.expect_bytes("*3\r\n$-1\r\n$-1\r\n$-1\r\n+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n");
        }
        server.stop();
    }
}

/// The replies are those of Redis 7.0.
#[test]
fn a_client_chooses_its_replies_also_in_transactions() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        for mut resp in connections(&server) {
            resp.expect("CLIENT REPLY SKIP\r\nMSET a 1 b 2\r\nMGET a b\r\n", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
            resp.expect("MULTI\r\nCLIENT REPLY SKIP\r\nGET a\r\nEXEC\r\nPING\r\nECHO b\r\n", {
                "+OK\r\n-ERR Command not allowed inside a transaction\r\n+QUEUED\r\n\
                 -EXECABORT Transaction discarded because of previous errors.\r\n+PONG\r\n$1\r\nb\r\n"
            });
            resp.expect("MULTI\r\nCLIENT REPLY OFF\r\nGET a\r\nEXEC\r\nPING\r\nMGET a b\r\nCLIENT REPLY ON\r\n", {
                "+OK\r\n-ERR Command not allowed inside a transaction\r\n+QUEUED\r\n\
                 -EXECABORT Transaction discarded because of previous errors.\r\n+PONG\r\n*2\r\n$1\r\n1\r\n$1\r\n2\r\n+OK\r\n"
            });
            resp.expect("CLIENT REPLY OFF\r\nMULTI\r\nGET a\r\nCLIENT REPLY ON\r\nGET b\r\nEXEC\r\nPING\r\nCLIENT REPLY ON\r\nPING\r\n", {
                "+OK\r\n+PONG\r\n"
            });
        }
        server.stop();
    }
}

/// The numbers are those of Redis 7.0.
#[test]
fn commands_of_transactions_are_counted_and_logged() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut resp = Resp::connect(&server);
        resp.expect("CONFIG SET slowlog-log-slower-than 0\r\n", "+OK\r\n");
        resp.expect("MULTI\r\nSET k v\r\nINCR k\r\nMGET a k\r\nEXEC\r\nEXEC x\r\nMULTI\r\nFOO\r\nEXEC\r\n", {
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n-ERR value is not an integer or out of range\r\n\
             *2\r\n$-1\r\n$1\r\nv\r\n\
             -EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n+OK\r\n\
             -ERR unknown command 'FOO', with args beginning with: \r\n\
             -EXECABORT Transaction discarded because of previous errors.\r\n"
        });
        resp.expect("MSET a 1 b 2\r\nRENAME nosuch b\r\nDEL a b\r\n", "+OK\r\n-ERR no such key\r\n:2\r\n");
        let info = resp.text("INFO everything");
        for (name, expected) in [
            ("multi", [2, 0, 0]),
            ("set", [1, 0, 0]),
            ("incr", [1, 0, 1]),
            ("mget", [1, 0, 0]),
            ("exec", [2, 1, 1]),
            ("mset", [1, 0, 0]),
            ("rename", [1, 0, 1]),
            ("del", [1, 0, 0]),
        ] {
            assert_eq!(counts(&info, name), expected, "{name}");
        }
        for line in ["errorstat_ERR:count=3", "errorstat_EXECABORT:count=2", "total_error_replies:5"] {
            assert!(info.lines().any(|found| found == line), "{info} lacks {line}");
        }
        resp.0.write_all(b"CONFIG SET slowlog-log-slower-than -1\r\nSLOWLOG GET -1\r\nECHO end\r\n").unwrap();
        let mut text = String::new();
        let mut reader = BufReader::new(resp.0.try_clone().unwrap());
        while !text.ends_with("end\r\n") {
            reader.read_line(&mut text).unwrap();
        }
        for words in
            ["*1\r\n$5\r\nMULTI", "*3\r\n$3\r\nSET\r\n$1\r\nk", "*2\r\n$4\r\nINCR", "*3\r\n$4\r\nMGET", "$4\r\nMSET"]
        {
            assert!(text.contains(words), "{text} lacks {words}");
        }
        assert!(!text.contains("$4\r\nEXEC\r\n"), "{text}");
        server.stop();
    }
}

/// The lines, and their order, are those of Redis 7.0.
#[test]
fn a_monitor_gets_the_commands_of_a_transaction_before_its_exec() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut monitor = Resp::connect(&server);
        monitor.expect("MONITOR\r\n", "+OK\r\n");
        let mut reader = BufReader::new(monitor.0.try_clone().unwrap());
        for mut resp in connections(&server) {
            resp.expect("MULTI\r\nSELECT 1\r\nSET k v\r\nCONFIG GET nosuch\r\nEXEC\r\n", {
                "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n+OK\r\n*0\r\n"
            });
            resp.expect("MSET a 1 b 2\r\nWATCH a\r\nSELECT 0\r\nMULTI\r\nFOO\r\n", {
                "+OK\r\n+OK\r\n+OK\r\n+OK\r\n-ERR unknown command 'FOO', with args beginning with: \r\n"
            });
            let address = resp.0.local_addr().unwrap();
            for (space, words) in [
                (0, "\"MULTI\""),
                (1, "\"SELECT\" \"1\""),
                (1, "\"SET\" \"k\" \"v\""),
                (1, "\"EXEC\""),
                (1, "\"MSET\" \"a\" \"1\" \"b\" \"2\""),
                (1, "\"WATCH\" \"a\""),
                (0, "\"SELECT\" \"0\""),
                (0, "\"MULTI\""),
            ] {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                assert_eq!(line.split_once(' ').unwrap().1, format!("[{space} {address}] {words}\r\n"));
            }
        }
        server.stop();
    }
}

#[test]
fn commands_that_a_transaction_must_not_have_are_refused() {
    let server = server(2, SMALL);
    let mut resp = Resp::connect(&server);
    for (command, error) in [
        ("CLIENT FOO", "unknown subcommand 'FOO'. Try CLIENT HELP."),
        ("OBJECT FOO", "unknown subcommand 'FOO'. Try OBJECT HELP."),
        ("CONFIG SET", "wrong number of arguments for 'config|set' command"),
        ("MEMORY USAGE", "wrong number of arguments for 'memory|usage' command"),
        ("COMMAND BAR", "unknown subcommand 'BAR'. Try COMMAND HELP."),
        ("SHUTDOWN NOSAVE", "Command not allowed inside a transaction"),
    ] {
        resp.expect(format!("MULTI\r\n{command}\r\nEXEC\r\n"), {
            format!("+OK\r\n-ERR {error}\r\n-EXECABORT Transaction discarded because of previous errors.\r\n")
        });
    }
    resp.expect("MULTI\r\nMONITOR\r\nDEBUG SLEEP 60\r\nGET a\r\nEXEC\r\n", {
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n-ERR MONITOR isn't allowed for DENY BLOCKING client\r\n\
         -ERR DEBUG SLEEP isn't allowed in a transaction\r\n$-1\r\n"
    });
    // A connection that a transaction ends gets the replies.
    resp.expect("MULTI\r\nCLIENT KILL TYPE normal SKIPME no\r\nPING\r\nEXEC\r\nPING\r\n", {
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n+PONG\r\n"
    });
    resp.expect_end();
    server.stop();
}

#[test]
fn a_client_without_the_password_begins_no_transaction() {
    let server = server(2, SMALL);
    let mut admin = Resp::connect(&server);
    admin.expect("MULTI\r\nCONFIG SET requirepass secret\r\nGET a\r\nEXEC\r\n", {
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$-1\r\n"
    });
    let needed = "NOAUTH Authentication required.\r\n";
    let mut resp = Resp::connect(&server);
    resp.expect("EXEC\r\nMULTI\r\nMSET a 1 b 2\r\nWATCH a\r\nEXEC x\r\n", {
        let beginning = "-EXECABORT Transaction discarded because of:";
        format!(
            "{beginning} {needed}-{needed}-{needed}-{needed}\
             {beginning} wrong number of arguments for 'exec' command\r\n"
        )
    });
    resp.expect("AUTH secret\r\nMULTI\r\nAUTH wrong\r\nSET a 1\r\nEXEC\r\n", {
        "+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n\
         -WRONGPASS invalid username-password pair or user is disabled.\r\n+OK\r\n"
    });
    // RESET ends the transaction and forgets the password.
    resp.expect("WATCH a\r\nMULTI\r\nSET a 2\r\nRESET\r\nGET a\r\n", {
        format!("+OK\r\n+OK\r\n+QUEUED\r\n+RESET\r\n-{needed}")
    });
    admin.expect("GET a\r\nEXEC\r\n", "$1\r\n1\r\n-ERR EXEC without MULTI\r\n");
    server.stop();
}
