//! The limit of bytes of a user: which replies count, and which do not.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use skep_core::operation::{Operation, Reply, Request};
use skep_server::{Password, Server};
use skep_wire::native::WireError;
use support::{Native, Resp, command, connect, server_with};

const BYTES_MAX: usize = 100_000;
const BIG: usize = 60_000;

/// Starts a server with memcached, and logs in an administrator. The spaces have a big value and a small one.
fn start() -> (Server, Resp) {
    let server = server_with(|settings| {
        (settings.shards, settings.memory, settings.cache_memory) = (2, 32 << 20, 32 << 20);
        settings.memcached = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        settings.password = Password::new(b"egg");
    });
    let mut admin = Resp::connect(&server);
    admin.expect("AUTH egg\r\n", "+OK\r\n");
    for space in ["0", "1", "2"] {
        admin.expect(format!("SELECT {space}\r\nSET small x\r\n"), "+OK\r\n+OK\r\n");
        for key in ["big", "big2"] {
            admin.expect(command(&[b"SET", key.as_bytes(), &[b'x'; BIG]]), "+OK\r\n");
        }
    }
    (server, admin)
}

/// Makes a user with the limit, who may do everything else.
fn limit(admin: &mut Resp, name: &str) {
    admin.expect(format!("ACL SETUSER {name} on >ham allkeys +@all bytes:{BYTES_MAX}\r\n"), "+OK\r\n");
}

/// Logs in at the memcached port.
fn memcached(server: &Server, name: &str) -> BufReader<TcpStream> {
    let mut stream =
        BufReader::new(connect(server.memcached_address().expect("the server speaks memcached's protocol")));
    let login = format!("{name} ham");
    stream.get_mut().write_all(format!("set x 0 0 {}\r\n{login}\r\n", login.len()).as_bytes()).unwrap();
    assert_eq!(line(&mut stream), "STORED\r\n");
    stream
}

fn line(stream: &mut impl BufRead) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

#[test]
fn replies_of_all_kinds_count() {
    let (server, mut admin) = start();
    let elements = "SKEP.GETV big u8\r\n".repeat(3);
    for (number, requests) in [
        "GET big\r\n".repeat(10),
        "GETRANGE big 0 -1\r\n".repeat(10),
        "MGET big big2 big big2 big big2 big big2\r\n".to_owned(),
        format!("MULTI\r\n{}EXEC\r\n", "GET big\r\n".repeat(10)),
        format!("MULTI\r\n{}EXEC\r\n", "GET big\r\nGET big2\r\n".repeat(5)),
        format!("WATCH big\r\nMULTI\r\n{}EXEC\r\n", "MGET big big2\r\n".repeat(5)),
        format!("SELECT 1\r\n{}", "SKEP.SCAN - + LIMIT 10\r\n".repeat(5)),
        format!("HELLO 3\r\n{}", "MGET big big2\r\n".repeat(5)),
        elements,
        "INFO all\r\n".repeat(200),
        "COMMAND DOCS\r\n".repeat(20),
        // What was asked for before a login counts for the user who has asked.
        format!("{}RESET\r\n", "GET big\r\n".repeat(10)),
        format!("{}AUTH egg\r\n", "MGET big big2\r\n".repeat(5)),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("u{number}");
        limit(&mut admin, &name);
        let begun = Instant::now();
        let mut cook = Resp::connect(&server);
        cook.send(format!("AUTH {name} ham\r\n{requests}QUIT\r\n"));
        let mut replies = Vec::new();
        cook.0.read_to_end(&mut replies).unwrap();
        assert!(replies.len() >= BYTES_MAX, "{requests:.50}: {} bytes", replies.len());
        if replies.windows(10).any(|bytes| bytes == b"-BUSY user") {
            continue;
        }
        let owed = (replies.len() / BYTES_MAX) as u64;
        assert!(owed >= 3, "{requests:.50}: {} bytes", replies.len());
        let mut again = Resp::connect(&server);
        again.expect(format!("AUTH {name} ham\r\n"), "+OK\r\n");
        let reply = again.text_of_line("STRLEN small\r\n");
        let late = begun.elapsed() > Duration::from_secs(owed - 1);
        assert!(reply.starts_with("-BUSY user") || late, "{requests:.50}: {reply}");
    }

    limit(&mut admin, "native");
    let mut native = Native::log_in(&server, "native", b"ham");
    let get = |key| Request { key, operation: Operation::Get };
    let mut size = 0;
    native.execute(1, &[get(b"big"); 10], |_, response| {
        let Ok(Reply::Value(value)) = response else { panic!("{response:?}") };
        size += value.len();
    });
    assert_eq!(size, 10 * BIG);
    native.execute(2, &[get(b"small")], |_, response| assert_eq!(response, Err(WireError::TooFast)));

    limit(&mut admin, "cache");
    let mut cache = memcached(&server, "cache");
    cache.get_mut().write_all(b"get big big big big big big big big big big\r\nquit\r\n").unwrap();
    let mut replies = Vec::new();
    cache.read_to_end(&mut replies).unwrap();
    assert!(replies.len() > 10 * BIG, "{}", replies.len());
    let mut again = memcached(&server, "cache");
    again.get_mut().write_all(b"get small\r\n").unwrap();
    assert!(line(&mut again).starts_with("SERVER_ERROR the user has had all"));
    server.stop();
}

/// Sends requests again and again, without a pause, until `is_served`. Returns the time that it took.
fn retry(mut is_served: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_served() {
        assert!(begun.elapsed() < Duration::from_secs(30), "refusals have used up what was left");
    }
    begun.elapsed()
}

#[test]
fn refusals_do_not_count() {
    let (server, mut admin) = start();
    let names = ["commands", "transactions", "native", "cache"];
    names.iter().for_each(|name| limit(&mut admin, name));
    let server = &server;
    // Each user owes the next two seconds, and does not wait for them.
    let owe = |name: &str| {
        let mut cook = Resp::connect(server);
        cook.expect(format!("AUTH {name} ham\r\n"), "+OK\r\n");
        cook.send("GET big\r\n".repeat(5) + "QUIT\r\n");
        cook.0.read_to_end(&mut Vec::new()).unwrap();
        let mut cook = Resp::connect(server);
        cook.expect(format!("AUTH {name} ham\r\n"), "+OK\r\n");
        cook
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut cook = BufReader::new(owe(names[0]).0);
            retry(|| {
                // What is refused for another reason does not count either.
                cook.get_mut().write_all("STRLEN small\r\nNOSUCH\r\nHELLO 4\r\n".repeat(8).as_bytes()).unwrap();
                let replies: Vec<String> = (0..24).map(|_| line(&mut cook)).collect();
                replies.iter().any(|reply| reply == ":1\r\n")
            });
        });
        scope.spawn(|| {
            let mut cook = BufReader::new(owe(names[1]).0);
            retry(|| {
                cook.get_mut().write_all(b"MULTI\r\nSTRLEN small\r\nEXEC\r\n").unwrap();
                let replies: Vec<String> = (0..3).map(|_| line(&mut cook)).collect();
                replies[2] == "*1\r\n" && line(&mut cook) == ":1\r\n"
            });
        });
        scope.spawn(|| {
            drop(owe(names[2]));
            let mut native = Native::log_in(server, names[2], b"ham");
            let get = Request { key: b"small", operation: Operation::Get };
            retry(|| {
                let mut is_served = false;
                native.execute(1, &[get; 16], |_, response| is_served |= response.is_ok());
                is_served
            });
        });
        scope.spawn(|| {
            drop(owe(names[3]));
            let mut cache = memcached(server, names[3]);
            retry(|| {
                cache.get_mut().write_all(b"get small\r\nmn\r\nnosuch\r\n").unwrap();
                let first = line(&mut cache);
                if first.starts_with("VALUE small") {
                    return true;
                }
                assert_eq!(line(&mut cache) + &line(&mut cache), "MN\r\nERROR\r\n");
                false
            });
        });
    });
}

#[test]
fn a_memcached_user_with_patterns_is_told_how_many_keys_it_may_send() {
    let (server, mut admin) = start();
    admin.expect("ACL SETUSER some on >ham ~a* +get\r\nACL SETUSER all on >ham allkeys +get\r\n", "+OK\r\n+OK\r\n");
    let get = |name: &str, count: usize| {
        let mut cache = memcached(&server, name);
        cache.get_mut().write_all(format!("get{}\r\n", " a".repeat(count)).as_bytes()).unwrap();
        line(&mut cache)
    };
    assert_eq!(get("some", 1024), "END\r\n");
    assert_eq!(get("some", 1025), "CLIENT_ERROR a user with key patterns sends at most 1024 keys in a command\r\n");
    assert_eq!(get("all", 1025), "END\r\n");
}
