//! Commands about connections and about the server, with one shard and with several.

mod support;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_server::Server;
use support::{Native, Resp, command, receive, server};

const SMALL: u64 = 48 << 20;

/// Connections that are on all shards of a server with three: RESP connections are distributed in rotation.
fn connections(server: &Server) -> Vec<(i64, Resp)> {
    (0..6)
        .map(|_| {
            let mut resp = Resp::connect(server);
            let number = integer(&mut resp, "CLIENT ID");
            (number, resp)
        })
        .collect()
}

/// Sends a line. Returns the line of the reply, without its end.
fn line(resp: &mut Resp, line: &str) -> String {
    resp.0.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut reply = Vec::new();
    while !reply.ends_with(b"\r\n") {
        let mut byte = [0];
        resp.0.read_exact(&mut byte).unwrap();
        reply.push(byte[0]);
    }
    String::from_utf8(reply).unwrap().trim_end().to_owned()
}

fn integer(resp: &mut Resp, command: &str) -> i64 {
    let reply = line(resp, command);
    reply.strip_prefix(':').unwrap_or_else(|| panic!("{command}: {reply}")).parse().unwrap()
}

/// Expects that nothing arrives for a while. That is no proof that nothing ever arrives, but a fault is found at last.
fn expect_silence(resp: &mut Resp) {
    resp.0.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    let read = receive(&resp.0, &mut [0]);
    assert!(read.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "{read:?}");
    resp.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
}

/// Commands with wrong arguments, and the errors that Redis returns.
const WRONG_ARGUMENTS: &[(&str, &str)] = &[
    ("CLIENT", "wrong number of arguments for 'client' command"),
    ("CLIENT NOSUCH", "unknown subcommand 'NOSUCH'. Try CLIENT HELP."),
    ("client Id x", "wrong number of arguments for 'client|id' command"),
    ("CLIENT LIST TYPE foo", "Unknown client type 'foo'"),
    ("CLIENT LIST ID 1 x", "Invalid client ID"),
    ("CLIENT LIST FOO", "syntax error"),
    ("CLIENT LIST ID", "syntax error"),
    ("CLIENT KILL", "wrong number of arguments for 'client|kill' command"),
    ("CLIENT KILL foo", "No such client"),
    ("CLIENT KILL ID x", "client-id should be greater than 0"),
    ("CLIENT KILL ID 0", "client-id should be greater than 0"),
    ("CLIENT KILL TYPE foo", "Unknown client type 'foo'"),
    ("CLIENT KILL USER foo", "No such user 'foo'"),
    ("CLIENT KILL SKIPME maybe", "syntax error"),
    ("CLIENT KILL FOO bar", "syntax error"),
    ("CLIENT KILL ID 1 ADDR", "syntax error"),
    ("CLIENT PAUSE", "wrong number of arguments for 'client|pause' command"),
    ("CLIENT PAUSE x", "timeout is not an integer or out of range"),
    ("CLIENT PAUSE -1", "timeout is negative"),
    ("CLIENT PAUSE 1 FOO", "CLIENT PAUSE mode must be WRITE or ALL"),
    ("CLIENT UNPAUSE x", "wrong number of arguments for 'client|unpause' command"),
    ("CLIENT REPLY foo", "syntax error"),
    ("CLIENT NO-EVICT foo", "syntax error"),
    ("CLIENT TRACKING on", "unknown subcommand 'TRACKING'. Try CLIENT HELP."),
    ("CONFIG", "wrong number of arguments for 'config' command"),
    ("CONFIG GET", "wrong number of arguments for 'config|get' command"),
    ("CONFIG SET timeout", "wrong number of arguments for 'config|set' command"),
    ("CONFIG SET timeout 1 x", "syntax error"),
    ("CONFIG SET nosuch 1", "Unknown option or number of arguments for CONFIG SET - 'nosuch'"),
    ("CONFIG REWRITE", "Skep does not write its configuration file"),
    ("COMMAND LIST x", "syntax error"),
    ("COMMAND LIST FILTERBY FOO bar", "syntax error"),
    ("COMMAND COUNT x", "wrong number of arguments for 'command|count' command"),
    ("COMMAND GETKEYS", "wrong number of arguments for 'command|getkeys' command"),
    ("COMMAND GETKEYS nosuch a", "Invalid command specified"),
    ("COMMAND GETKEYS ping x", "The command has no key arguments"),
    ("COMMAND GETKEYS get a b", "Invalid number of arguments specified for command"),
    ("CLUSTER INFO", "This instance has cluster support disabled"),
    ("ACL NOSUCH", "unknown subcommand 'NOSUCH'. Try ACL HELP."),
    ("ACL WHOAMI x", "wrong number of arguments for 'acl|whoami' command"),
    ("ACL CAT foo", "Unknown category 'foo'"),
    ("WAIT x 1", "value is not an integer or out of range"),
    ("WAIT 1 x", "timeout is not an integer or out of range"),
    ("WAIT 1 -1", "timeout is negative"),
    ("DEBUG NOSUCH", "unknown subcommand or wrong number of arguments for 'NOSUCH'. Try DEBUG HELP."),
    ("DEBUG SLEEP", "unknown subcommand or wrong number of arguments for 'SLEEP'. Try DEBUG HELP."),
    ("SHUTDOWN FOO", "syntax error"),
    ("SHUTDOWN SAVE NOSAVE", "syntax error"),
    ("SHUTDOWN ABORT NOW", "syntax error"),
    ("SHUTDOWN ABORT", "No shutdown in progress."),
    ("SHUTDOWN SAVE", "Errors trying to SHUTDOWN. Check logs."),
    ("SHUTDOWN", "Errors trying to SHUTDOWN. Check logs."),
];

#[test]
fn every_wrong_argument_has_the_error_of_redis() {
    let server = server(1, SMALL);
    let mut resp = Resp::connect(&server);
    for (command, error) in WRONG_ARGUMENTS {
        assert_eq!(line(&mut resp, command), format!("-ERR {error}"), "{command}");
    }
    let failed =
        |name: &str, reason: &str| format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
    for (command, name, reason) in [
        ("timeout x", "timeout", "argument couldn't be parsed into an integer"),
        ("timeout -1", "timeout", "argument must be between 0 and 2147483647 inclusive"),
        ("timeout 1 timeout 2", "timeout", "duplicate parameter"),
        ("timeout 1 databases 3", "databases", "can't set immutable config"),
        ("maxmemory 1gb", "maxmemory", "can't set immutable config: restart the server with --memory SIZE"),
        ("maxclients 9", "maxclients", "can't set immutable config: restart the server with --max-clients N"),
        ("tcp-backlog 9", "tcp-backlog", "can't set immutable config"),
        ("protected-mode maybe", "protected-mode", "argument must be 'yes' or 'no'"),
        (
            "slowlog-log-slower-than -2",
            "slowlog-log-slower-than",
            "argument must be between -1 and 9223372036854775807 inclusive",
        ),
    ] {
        assert_eq!(line(&mut resp, &format!("CONFIG SET {command}")), failed(name, reason));
    }
    resp.expect("CONFIG GET timeout\r\n", "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n");
    server.stop();
}

#[test]
fn settings_change_together() {
    let server = server(2, SMALL);
    let mut resp = Resp::connect(&server);
    resp.expect("CONFIG SET tcp-keepalive 60 slowlog-max-len 7 SAVE '' appendonly no\r\n", "+OK\r\n");
    resp.expect("CONFIG GET tcp-k* slowlog-max*\r\n", {
        "*4\r\n$15\r\nslowlog-max-len\r\n$1\r\n7\r\n$13\r\ntcp-keepalive\r\n$2\r\n60\r\n"
    });
    server.stop();
}

#[test]
fn commands_of_the_server() {
    let server = server(2, SMALL);
    let mut resp = Resp::connect(&server);
    resp.expect("ROLE\r\n", "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    resp.expect("WAIT 0 0\r\nWAIT 3 100000\r\n", ":0\r\n:0\r\n");
    resp.expect("ACL WHOAMI\r\nACL USERS\r\n", "$7\r\ndefault\r\n*1\r\n$7\r\ndefault\r\n");
    resp.expect("ACL LIST\r\n", "*1\r\n$34\r\nuser default on nopass ~* &* +@all\r\n");
    resp.expect("DEBUG SLEEP 0.01\r\nDEBUG SLEEP x\r\n", "+OK\r\n+OK\r\n");
    resp.expect("COMMAND GETKEYS mset a b c d\r\n", "*2\r\n$1\r\na\r\n$1\r\nc\r\n");
    resp.expect("COMMAND GETKEYS get a\r\n", "*1\r\n$1\r\na\r\n");
    resp.expect("COMMAND LIST FILTERBY PATTERN getb*\r\n", "*1\r\n$6\r\ngetbit\r\n");
    resp.expect("COMMAND LIST FILTERBY MODULE x\r\n", "*0\r\n");
    resp.expect("CONFIG SET requirepass ham\r\n", "+OK\r\n");
    let ham = "0eccfe263668d171bd19b7d491c3ef5c43559e6d3acf697ef37596181c6fdf4c";
    resp.expect("ACL LIST\r\n", format!("*1\r\n$93\r\nuser default on #{ham} ~* &* +@all\r\n"));
    server.stop();
}

#[test]
fn a_kill_ends_connections_of_all_shards() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut killer = Resp::connect(&server);
        let own = integer(&mut killer, "CLIENT ID");
        let mut others = connections(&server);
        for (number, resp) in &mut others {
            killer.expect(format!("CLIENT KILL ID {number}\r\n"), ":1\r\n");
            killer.expect(format!("CLIENT KILL ID {number}\r\n"), ":0\r\n");
            assert!(!killer.text("CLIENT LIST").contains(&format!("id={number} ")));
            resp.expect_end();
        }
        let mut others = connections(&server);
        let local = others[0].1.0.local_addr().unwrap();
        killer.expect(format!("CLIENT KILL {local}\r\n"), "+OK\r\n");
        others.remove(0).1.expect_end();
        let local = others[0].1.0.local_addr().unwrap();
        killer.expect(format!("CLIENT KILL ADDR {local} SKIPME yes\r\n"), ":1\r\n");
        others.remove(0).1.expect_end();
        killer.expect("CLIENT KILL TYPE pubsub\r\nCLIENT KILL MAXAGE 1000\r\n", ":0\r\n:0\r\n");
        let native = Native::connect(&server, None);
        let port = server.resp_address().unwrap();
        killer.expect(format!("CLIENT KILL LADDR {port} USER default TYPE normal\r\n"), ":4\r\n");
        others.iter_mut().for_each(|(_, resp)| resp.expect_end());
        killer.expect("CLIENT KILL TYPE normal\r\n", ":1\r\n");
        assert!(matches!(receive(&native.stream, &mut [0]), Ok(0)));
        killer.expect(format!("CLIENT KILL ID {own}\r\nCLIENT KILL ID {own} SKIPME no\r\n"), ":0\r\n:1\r\n");
        killer.expect_end();
        server.stop();
    }
}

#[test]
fn a_killed_connection_executes_nothing_that_is_sent_after_the_reply() {
    let server = server(3, SMALL);
    let mut killer = Resp::connect(&server);
    for round in 0..50 {
        let mut victim = Resp::connect(&server);
        let number = integer(&mut victim, "CLIENT ID");
        killer.expect(format!("CLIENT KILL ID {number}\r\n"), ":1\r\n");
        // The connection may be closed already.
        _ = victim.0.write_all(format!("SET key{round} 1\r\n").as_bytes());
        _ = victim.0.read_to_end(&mut Vec::new());
        killer.expect(format!("EXISTS key{round}\r\n"), ":0\r\n");
    }
    server.stop();
}

#[test]
fn a_pause_holds_back_all_commands_of_all_shards() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut pauser = Resp::connect(&server);
        let mut others = connections(&server);
        let mut native = Native::connect(&server, Some(shards - 1));
        pauser.expect("CLIENT PAUSE 1000000\r\n", "+OK\r\n");
        for (number, resp) in &mut others {
            resp.0.write_all(format!("INCR counter\r\nSET {number} x\r\nECHO {number}\r\n").as_bytes()).unwrap();
        }
        let put = Operation::Put { value: b"v", condition: PutCondition::Always };
        native.send(&support::frame(1, &[Request { key: b"native", operation: put }]));
        others.iter_mut().for_each(|(_, resp)| expect_silence(resp));
        pauser.expect("CLIENT UNPAUSE\r\nPING\r\n", "+OK\r\n+PONG\r\n");
        for (number, resp) in &mut others {
            let counter = line(resp, "");
            assert!(counter.starts_with(':'), "{counter}");
            let number = number.to_string();
            resp.expect_bytes(format!("+OK\r\n${}\r\n{number}\r\n", number.len()));
        }
        native.receive(1, 1, |_, reply| assert_eq!(reply, Ok(Reply::Done)));
        pauser.expect("GET counter\r\nEXISTS native\r\n", "$1\r\n6\r\n:1\r\n");
        server.stop();
    }
}

#[test]
fn a_pause_of_writes_lets_reads_through() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut pauser = Resp::connect(&server);
        pauser.expect("SET a 1\r\nSET native v\r\nCLIENT PAUSE 1000000 WRITE\r\n", "+OK\r\n".repeat(3));
        let mut others = connections(&server);
        for (_, resp) in &mut others {
            resp.expect("GET a\r\nPING\r\nMGET a b\r\nINCR a\r\nGET a\r\n", {
                "$1\r\n1\r\n+PONG\r\n*2\r\n$1\r\n1\r\n$-1\r\n"
            });
        }
        let mut native = Native::connect(&server, None);
        let get = Request { key: b"native", operation: Operation::Get };
        let put =
            Request { key: b"native", operation: Operation::Put { value: b"w", condition: PutCondition::Always } };
        native.execute(1, &[get], |_, reply| assert_eq!(reply, Ok(Reply::Value(b"v"))));
        native.send(&support::frame(2, &[get, put, get]));
        others.iter_mut().for_each(|(_, resp)| expect_silence(resp));
        let mut flusher = Resp::connect(&server);
        flusher.expect("DBSIZE\r\nSELECT 1\r\nFLUSHDB\r\n", ":2\r\n+OK\r\n");
        expect_silence(&mut flusher);
        pauser.expect("EXISTS a\r\nCLIENT UNPAUSE\r\n", ":1\r\n+OK\r\n");
        flusher.expect_bytes("+OK\r\n");
        for (_, resp) in &mut others {
            assert!(line(resp, "").starts_with(':'));
        }
        let replies = [Reply::Value(b"v"), Reply::Done, Reply::Value(b"w")];
        native.receive(2, 3, |index, reply| assert_eq!(reply, Ok(replies[index])));
        pauser.expect("GET a\r\n", "$1\r\n7\r\n");
        server.stop();
    }
}

/// A held connection gets the replies that were made before, and ends when its client resets it.
#[test]
fn clients_may_leave_during_a_pause_and_take_their_replies() {
    let server = server(2, SMALL);
    let mut pauser = Resp::connect(&server);
    let large = vec![b'v'; 200_000];
    pauser.expect(command(&[b"SET", b"large", &large]), "+OK\r\n");
    pauser.expect("CLIENT PAUSE 1000000 WRITE\r\n", "+OK\r\n");
    let mut reader = Resp::connect(&server);
    reader.0.write_all(&[b"GET large\r\n".repeat(40), b"SET a 1\r\n".to_vec()].concat()).unwrap();
    let reply = [b"$200000\r\n".to_vec(), large, b"\r\n".to_vec()].concat();
    for _ in 0..40 {
        let mut received = vec![0; reply.len()];
        reader.0.read_exact(&mut received).unwrap();
        assert!(received == reply);
    }
    expect_silence(&mut reader);
    let count = |pauser: &mut Resp| pauser.text("CLIENT LIST").lines().filter(|line| line.contains("id=")).count();
    assert_eq!(count(&mut pauser), 2);
    for sleeps in [false, true] {
        for index in 0..20 {
            let mut resp = Resp::connect(&server);
            let words = if sleeps { "DEBUG SLEEP 1000000\r\n".to_owned() } else { format!("SET key{index} v\r\n") };
            resp.0.write_all(words.as_bytes()).unwrap();
            if index % 2 == 0 {
                expect_silence(&mut resp);
            }
            // A client that only closes its end may still read. This one resets the connection.
            rustix::net::sockopt::set_socket_linger(&resp.0, Some(Duration::ZERO)).unwrap();
        }
        while count(&mut pauser) > 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    pauser.expect("CLIENT UNPAUSE\r\n", "+OK\r\n");
    let mut received = [0; 5];
    reader.0.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"+OK\r\n");
    // The reader's write was executed, and none of those whose clients have reset their connections.
    pauser.expect("DBSIZE\r\n", ":2\r\n");
    server.stop();
}

/// As `printf … | nc` does: the client sends all it has to say, and ends its side.
#[test]
fn a_client_that_only_ends_its_requests_gets_all_replies() {
    for shards in [1, 3] {
        let server = server(shards, SMALL);
        let mut pauser = Resp::connect(&server);
        for ends_first in [true, false] {
            let end = |resp: &Resp, is_now| {
                if is_now {
                    resp.0.shutdown(std::net::Shutdown::Write).unwrap();
                }
            };
            pauser.expect("CLIENT PAUSE 1000000 WRITE\r\n", "+OK\r\n");
            let mut paused: Vec<Resp> = (0..6).map(|_| Resp::connect(&server)).collect();
            for (index, resp) in paused.iter_mut().enumerate() {
                let commands =
                    format!("PING\r\nSET key{index} v\r\nMSET a 1 b 2 c 3\r\nDEBUG SLEEP 0.01\r\nGET key{index}\r\n");
                resp.0.write_all(commands.as_bytes()).unwrap();
                end(resp, ends_first);
                resp.expect_bytes("+PONG\r\n");
                end(resp, !ends_first);
            }
            let mut sleeper = Resp::connect(&server);
            sleeper.0.write_all(b"PING\r\nDEBUG SLEEP 0.01\r\nPING\r\n").unwrap();
            end(&sleeper, true);
            sleeper.expect_bytes("+PONG\r\n+OK\r\n+PONG\r\n");
            sleeper.expect_end();
            pauser.expect("CLIENT UNPAUSE\r\n", "+OK\r\n");
            for mut resp in paused {
                resp.expect_bytes("+OK\r\n+OK\r\n+OK\r\n$1\r\nv\r\n");
                resp.expect_end();
            }
        }
        server.stop();
    }
}

#[test]
fn a_pause_ends_by_itself_and_with_the_server() {
    let server = server(2, SMALL);
    let mut resp = Resp::connect(&server);
    resp.expect("CLIENT PAUSE 50 ALL\r\nSET a 1\r\nGET a\r\n", "+OK\r\n+OK\r\n$1\r\n1\r\n");
    resp.expect("CLIENT PAUSE 1000000\r\n", "+OK\r\n");
    let mut others = connections_without_id(&server);
    for resp in &mut others {
        resp.0.write_all(b"INCR a\r\nDEBUG SLEEP 1000\r\n").unwrap();
        expect_silence(resp);
    }
    // A stopping server executes what has arrived.
    server.stop();
    for mut resp in others {
        let mut reply = String::new();
        resp.0.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with(':') && reply.ends_with("\r\n+OK\r\n"), "{reply:?}");
    }
}

fn connections_without_id(server: &Server) -> Vec<Resp> {
    (0..4).map(|_| Resp::connect(server)).collect()
}

#[test]
fn a_sleep_delays_its_own_connection_only() {
    let server = server(1, SMALL);
    let mut sleeper = Resp::connect(&server);
    let mut other = Resp::connect(&server);
    sleeper.0.write_all(b"PING\r\nDEBUG SLEEP 1000\r\nPING\r\n").unwrap();
    sleeper.expect_bytes("+PONG\r\n");
    for _ in 0..100 {
        assert!(line(&mut other, "INCR a").starts_with(':'));
    }
    expect_silence(&mut sleeper);
    server.stop();
    sleeper.expect_bytes("+OK\r\n+PONG\r\n");
    sleeper.expect_end();
}

#[test]
fn a_client_chooses_its_replies() {
    let server = server(2, SMALL);
    let mut resp = Resp::connect(&server);
    resp.expect("CLIENT REPLY ON\r\nCLIENT REPLY SKIP\r\nSET a 1\r\nGET a\r\n", "+OK\r\n$1\r\n1\r\n");
    resp.expect("CLIENT REPLY SKIP\r\nNOSUCH\r\nGET a\r\n", "$1\r\n1\r\n");
    resp.expect("CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nINCR a\r\nGET a\r\n", "$1\r\n2\r\n");
    let values: Vec<Vec<u8>> = (0..2000).map(|key| format!("key{key}").into_bytes()).collect();
    let arguments: Vec<&[u8]> = [&b"MGET"[..]].into_iter().chain(values.iter().map(Vec::as_slice)).collect();
    resp.0.write_all(b"CLIENT REPLY OFF\r\nPING\r\nGET a\r\nSET a\r\n").unwrap();
    resp.0.write_all(&command(&arguments)).unwrap();
    resp.expect("CLIENT REPLY ON\r\nGET a\r\n", "+OK\r\n$1\r\n2\r\n");
    resp.expect("CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\n", "+OK\r\n");
    resp.expect("CLIENT REPLY OFF\r\nRESET\r\nPING\r\n", "+RESET\r\n+PONG\r\n");
    server.stop();
}

#[test]
fn a_shutdown_calls_the_program() {
    for words in ["", " NOSAVE", " now force", " SAVE FORCE"] {
        let server = server(2, SMALL);
        let called = Arc::new(AtomicBool::new(false));
        let in_program = called.clone();
        server.on_shutdown(move || in_program.store(true, Ordering::Release));
        let mut resp = Resp::connect(&server);
        resp.expect(format!("SHUTDOWN{words}\r\nPING\r\n"), "");
        resp.expect_end();
        assert!(called.load(Ordering::Acquire));
        server.stop();
    }
}

#[test]
fn the_list_of_connections_tells_what_they_do() {
    let server = server(3, SMALL);
    let mut resp = Resp::connect(&server);
    let others = connections(&server);
    for (number, _) in &others {
        let text = resp.text(&format!("CLIENT LIST ID {number} 4711"));
        for part in [format!("id={number} "), " idle=0 ".into(), " flags=N ".into(), " cmd=client ".into()] {
            assert!(text.contains(&part), "{text} lacks {part}");
        }
        assert_eq!(text.lines().count(), 1);
    }
    assert_eq!(resp.text("CLIENT LIST TYPE normal").lines().count(), 7);
    assert_eq!(resp.text("CLIENT LIST TYPE replica"), "");
    server.stop();
}
