//! Transactions and commands of several keys, over sockets and threads.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use skep_server::Server;
use support::{Resp, command, connect, server};

const MEMORY: u64 = 64 << 20;

#[test]
fn a_transaction_replies_with_all_replies_at_once() {
    for shards in [1, 3] {
        let server = server(shards, MEMORY);
        let mut resp = Resp::connect(&server);
        resp.expect("MULTI\r\nSET a 1\r\nINCR a\r\nMGET a b\r\nPING\r\nDBSIZE\r\nEXEC\r\n", {
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n\
             *5\r\n+OK\r\n:2\r\n*2\r\n$1\r\n2\r\n$-1\r\n+PONG\r\n:1\r\n"
        });
        resp.expect("MULTI\r\nEXEC\r\nGET a\r\n", "+OK\r\n*0\r\n$1\r\n2\r\n");
        resp.expect("MULTI\r\nINCR a\r\nDISCARD\r\nGET a\r\n", "+OK\r\n+QUEUED\r\n+OK\r\n$1\r\n2\r\n");
        // A command that fails when it is executed does not end the transaction.
        resp.expect("MULTI\r\nSET a x\r\nINCR a\r\nSET a y z\r\nSET b 1\r\nEXEC\r\n", {
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*4\r\n+OK\r\n\
             -ERR value is not an integer or out of range\r\n-ERR syntax error\r\n+OK\r\n"
        });
        resp.expect("HELLO 3\r\n", resp_hello());
        resp.expect("MULTI\r\nGET none\r\nHELLO 2\r\nGET none\r\nEXEC\r\n", {
            let hello = resp_hello().replacen("%7", "*14", 1).replace("proto\r\n:3", "proto\r\n:2");
            format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n_\r\n{hello}$-1\r\n")
        });
    }
}

fn resp_hello() -> String {
    "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.4\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n\
     $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
        .to_owned()
}

#[test]
fn a_transaction_with_a_wrong_command_changes_nothing() {
    let server = server(2, MEMORY);
    let mut resp = Resp::connect(&server);
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    for wrong in [
        "NOSUCH\r\n",
        "GET\r\n",
        "OBJECT NOSUCH a\r\n",
        "OBJECT FREQ\r\n",
        "CLIENT REPLY OFF\r\n",
        "client reply skip\r\n",
    ] {
        resp.0.write_all(format!("MULTI\r\nSET a 1\r\n{wrong}SET b 1\r\nEXEC\r\nEXISTS a b\r\n").as_bytes()).unwrap();
        let mut reader = BufReader::new(resp.0.try_clone().unwrap());
        let replies: Vec<String> = (0..6).map(|_| reply(&mut reader).join("\r\n") + "\r\n").collect();
        assert!(replies[2].starts_with("-ERR "), "{replies:?}");
        assert_eq!((&replies[3][..], &replies[4][..], &replies[5][..]), ("+QUEUED\r\n", aborted, ":0\r\n"));
    }
    // Before a transaction, it applies to all of it.
    resp.expect("CLIENT REPLY OFF\r\nMULTI\r\nSET r 1\r\nEXEC\r\nCLIENT REPLY ON\r\nGET r\r\n", "+OK\r\n$1\r\n1\r\n");
    resp.expect("MULTI\r\nCLIENT REPLY SKIP\r\nPING\r\nEXEC\r\nECHO 1\r\n", {
        "+OK\r\n-ERR Command not allowed inside a transaction\r\n+QUEUED\r\n\
         -EXECABORT Transaction discarded because of previous errors.\r\n$1\r\n1\r\n"
    });
    resp.expect("EXEC\r\nDISCARD\r\nUNWATCH\r\n", "-ERR EXEC without MULTI\r\n-ERR DISCARD without MULTI\r\n+OK\r\n");
    resp.expect("MULTI\r\nMULTI\r\nWATCH a\r\nSET a 1\r\nEXEC\r\n", {
        "+OK\r\n-ERR MULTI calls can not be nested\r\n-ERR WATCH inside MULTI is not allowed\r\n+QUEUED\r\n*1\r\n+OK\r\n"
    });
    // The end of a connection and RESET discard too.
    resp.expect("MULTI\r\nSET a 2\r\nRESET\r\nGET a\r\nMULTI\r\nSET a 3\r\nQUIT\r\n", {
        "+OK\r\n+QUEUED\r\n+RESET\r\n$1\r\n1\r\n+OK\r\n+QUEUED\r\n+OK\r\n"
    });
    Resp::connect(&server).expect("GET a\r\n", "$1\r\n1\r\n");
}

#[test]
fn a_transaction_may_choose_another_space() {
    let server = server(2, MEMORY);
    let mut resp = Resp::connect(&server);
    resp.expect("MULTI\r\nSET a hash\r\nSELECT 1\r\nSET a ordered\r\nSKEP.COUNT - +\r\nEXEC\r\nGET a\r\n", {
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*4\r\n+OK\r\n+OK\r\n+OK\r\n:1\r\n$7\r\nordered\r\n"
    });
    // A transaction that is not executed chooses none.
    let mut other = Resp::connect(&server);
    resp.expect("SELECT 0\r\nWATCH a\r\n", "+OK\r\n+OK\r\n");
    other.expect("SET a new\r\n", "+OK\r\n");
    resp.expect("MULTI\r\nSELECT 1\r\nEXEC\r\nGET a\r\n", "+OK\r\n+QUEUED\r\n*-1\r\n$3\r\nnew\r\n");
    resp.expect("COPY a b DB 1\r\nCOPY a b DB 1\r\nSELECT 1\r\nGET b\r\n", ":1\r\n:0\r\n+OK\r\n$3\r\nnew\r\n");
}

#[test]
fn a_change_of_a_watched_key_refuses_the_transaction() {
    for (shards, space) in [(1, 0), (2, 0), (2, 1)] {
        let server = server(shards, MEMORY);
        let mut resp = Resp::connect(&server);
        let mut other = Resp::connect(&server);
        let select = format!("SELECT {space}\r\n");
        resp.expect(&select, "+OK\r\n");
        other.expect(&select, "+OK\r\n");
        let mut exec = |other: &mut Resp, change: &str, changed: &str, result: &str| {
            resp.expect("WATCH a b c\r\n", "+OK\r\n");
            other.expect(change, changed);
            resp.expect("MULTI\r\nPING\r\nEXEC\r\n", format!("+OK\r\n+QUEUED\r\n{result}"));
        };
        let (done, refused) = ("*1\r\n+PONG\r\n", "*-1\r\n");
        exec(&mut other, "GET a\r\nSET d 1\r\nDEL a\r\n", "$-1\r\n+OK\r\n:0\r\n", done);
        exec(&mut other, "SET b 1\r\n", "+OK\r\n", refused);
        exec(&mut other, "SET b 2 NX\r\nEXPIRE a 10\r\n", "$-1\r\n:0\r\n", done);
        exec(&mut other, "MSET c 1 d 1\r\n", "+OK\r\n", refused);
        exec(&mut other, "RENAME b e\r\n", "+OK\r\n", refused);
        exec(&mut other, "MULTI\r\nINCR c\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n*1\r\n:2\r\n", refused);
        exec(&mut other, "SET a 1 PX 1\r\n", "+OK\r\n", refused);
        // A key that expires has changed.
        other.expect("SET a 1 PX 30\r\n", "+OK\r\n");
        resp.expect("WATCH a\r\n", "+OK\r\n");
        let mut probe = Client::connect(&server);
        probe.ask(&select);
        while probe.ask("EXISTS a\r\n") != [":0"] {}
        resp.expect("MULTI\r\nPING\r\nEXEC\r\n", format!("+OK\r\n+QUEUED\r\n{refused}"));
        // Its own writes count, and UNWATCH, DISCARD and EXEC end the watch.
        resp.expect(
            "WATCH a\r\nSET a 1\r\nMULTI\r\nPING\r\nEXEC\r\n",
            format!("+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n{refused}"),
        );
        resp.expect("MULTI\r\nPING\r\nEXEC\r\n", format!("+OK\r\n+QUEUED\r\n{done}"));
        for end in ["UNWATCH", "MULTI\r\nDISCARD"] {
            let replies = "+OK\r\n".repeat(1 + end.lines().count());
            resp.expect(format!("WATCH a\r\n{end}\r\n"), replies);
            other.expect("SET a 1\r\n", "+OK\r\n");
            resp.expect("MULTI\r\nPING\r\nEXEC\r\n", format!("+OK\r\n+QUEUED\r\n{done}"));
        }
    }
}

#[test]
fn commands_of_several_keys() {
    for (shards, space) in [(1, 0), (3, 0), (2, 1)] {
        let server = server(shards, MEMORY);
        let mut resp = Resp::connect(&server);
        resp.expect(format!("SELECT {space}\r\n"), "+OK\r\n");
        resp.expect(
            "MSETNX a 1 b 2\r\nMSETNX b 3 c 3\r\nMGET a b c\r\n",
            ":1\r\n:0\r\n*3\r\n$1\r\n1\r\n$1\r\n2\r\n$-1\r\n",
        );
        resp.expect("RENAME a b\r\nRENAME a b\r\nMGET a b\r\n", "+OK\r\n-ERR no such key\r\n*2\r\n$-1\r\n$1\r\n1\r\n");
        resp.expect("SET a 5\r\nRENAMENX a b\r\nRENAMENX a c\r\n", "+OK\r\n:0\r\n:1\r\n");
        resp.expect(
            "EXPIRE c 1000\r\nCOPY c d\r\nRENAME c e\r\nTTL d\r\nTTL e\r\n",
            ":1\r\n:1\r\n+OK\r\n:1000\r\n:1000\r\n",
        );
        resp.expect(
            "COPY d e\r\nSET d 7\r\nCOPY d e REPLACE\r\nGET e\r\nTTL e\r\n",
            ":0\r\n+OK\r\n:1\r\n$1\r\n7\r\n:-1\r\n",
        );
        resp.expect("COPY d d\r\n", "-ERR source and destination objects are the same\r\n");
        resp.expect("SET x abc\r\nSET y \"a b\"\r\nBITOP AND z x y none\r\nBITOP OR z x y\r\nGET z\r\n", {
            "+OK\r\n+OK\r\n:3\r\n:3\r\n$3\r\nabc\r\n"
        });
        resp.expect("BITOP NOT z none\r\nEXISTS z\r\n", ":0\r\n:0\r\n");
        resp.expect("MSETEX 2 m 1 n 2 EX 1000\r\nTTL m\r\nMSETEX 1 m 2 NX\r\nMSETEX 2 m 3 o 3 XX\r\nMSETEX 1 m 4 XX KEEPTTL\r\nTTL m\r\n", {
            ":1\r\n:1000\r\n:0\r\n:0\r\n:1\r\n:1000\r\n"
        });
        resp.expect("MSETEX 2 m 1\r\nMSETEX 0 m 1\r\nMSETEX 1 m 1 NX XX\r\n", {
            "-ERR wrong number of key-value pairs\r\n-ERR invalid numkeys value\r\n-ERR syntax error\r\n"
        });
    }
}

#[test]
fn large_values_are_copied_renamed_and_read_together() {
    let server = server(2, MEMORY);
    let mut resp = Resp::connect(&server);
    for space in ["0", "1"] {
        resp.expect(format!("SELECT {space}\r\n"), "+OK\r\n");
        let value = vec![b'v'; 1 << 20];
        resp.expect(command(&[b"SET", b"a", &value]), "+OK\r\n");
        resp.expect("COPY a b\r\nRENAME a c\r\nBITOP AND d b c\r\n", format!(":1\r\n+OK\r\n:{}\r\n", value.len()));
        let bulk = [&b"$1048576\r\n"[..], &value, b"\r\n"].concat();
        // More than a transaction may return, so it is read in parts.
        let keys = ["b", "c", "d"].repeat(4).join(" ");
        resp.0.write_all(format!("MGET {keys}\r\nPING\r\n").as_bytes()).unwrap();
        resp.expect_bytes([&b"*12\r\n"[..], &bulk.repeat(12), b"+PONG\r\n"].concat());
        resp.expect(
            "MULTI\r\nGET b\r\nGET c\r\nEXEC\r\n",
            [&b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n"[..], &bulk, &bulk].concat(),
        );
    }
    // So does a transaction, because a connection may hold as many bytes.
    let gets = "GET b\r\n".repeat(10);
    resp.0.write_all(format!("MULTI\r\n{gets}EXEC\r\n").as_bytes()).unwrap();
    let mut reader = BufReader::new(resp.0.try_clone().unwrap());
    let exec = (0..12).fold(Vec::new(), |_, _| reply(&mut reader));
    assert!(exec.len() == 11 && exec[1..].iter().all(|value| value.len() == 1 << 20), "{} replies", exec.len());
}

/// Errors are cut if there are many of them. What follows an error is not a part of it.
#[test]
fn replies_after_an_error_are_whole() {
    for shards in [1, 2] {
        let server = server(shards, MEMORY);
        let mut resp = Resp::connect(&server);
        let value = vec![b'v'; 300_000];
        resp.expect(command(&[b"SET", b"a", &value]), "+OK\r\n");
        resp.expect("SET b x\r\n", "+OK\r\n");
        let error = &b"-ERR value is not an integer or out of range\r\n"[..];
        let bulk = [&b"$300000\r\n"[..], &value, b"\r\n"].concat();
        resp.expect(
            "MULTI\r\nINCR b\r\nGET a\r\nINCR b\r\nEXEC\r\nPING\r\n",
            [b"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n", error, &bulk, error, b"+PONG\r\n"].concat(),
        );
    }
}

/// Reads a reply. Returns its lines: values without their sizes, and elements after the header of their array.
fn reply(reader: &mut BufReader<TcpStream>) -> Vec<String> {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let line = line.trim_end().to_owned();
    let count = || line[1..].parse::<i64>().unwrap().max(0) as usize;
    match line.as_bytes()[0] {
        b'$' if line != "$-1" => {
            let mut value = vec![0; count() + 2];
            reader.read_exact(&mut value).unwrap();
            vec![String::from_utf8_lossy(&value[..count()]).into_owned()]
        }
        b'*' => {
            let elements: Vec<String> = (0..count()).flat_map(|_| reply(reader)).collect();
            [vec![line], elements].concat()
        }
        _ => vec![line],
    }
}

const ACCOUNTS: u64 = 50;
const CLIENTS: u64 = 100;
const BALANCE: i64 = 100;
/// Transfers that each client tries. `SKEP_LONG` multiplies them.
const TRANSFERS: u64 = 200;

/// A client that reads each reply before it sends on.
struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    fn connect(server: &Server) -> Client {
        let stream = connect(server.resp_address().unwrap());
        Client { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    fn ask(&mut self, lines: &str) -> Vec<String> {
        self.stream.write_all(lines.as_bytes()).unwrap();
        lines.lines().fold(Vec::new(), |_, _| reply(&mut self.reader))
    }
}

fn sum(values: &[String]) -> i64 {
    // The header of the array, and the sizes of the values.
    values[1..].iter().filter_map(|value| value.parse::<i64>().ok()).sum()
}

#[test]
fn clients_that_move_money_keep_the_sum() {
    let transfers: u64 =
        TRANSFERS * std::env::var("SKEP_LONG").map_or(1_u64, |factor| factor.parse().expect("SKEP_LONG is a number"));
    for (shards, space) in [(2, 0), (3, 0), (2, 1)] {
        let server = server(shards, MEMORY);
        let accounts: Vec<String> = (0..ACCOUNTS).map(|number| format!("account:{number}")).collect();
        let mut first = Client::connect(&server);
        first.ask(&format!("SELECT {space}\r\n"));
        let all: Vec<String> = accounts.iter().map(|account| format!("{account} {BALANCE}")).collect();
        assert_eq!(first.ask(&format!("MSETNX {}\r\n", all.join(" "))), [":1"]);
        let (done, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let read_all = format!("MGET {}\r\n", accounts.join(" "));
        std::thread::scope(|scope| {
            let (server, accounts, done, refused) = (&server, &accounts, &done, &refused);
            let movers: Vec<_> = (0..CLIENTS)
                .map(|seed| {
                    scope.spawn(move || {
                        let mut client = Client::connect(server);
                        client.ask(&format!("SELECT {space}\r\n"));
                        let mut random = seed + 1;
                        for _ in 0..transfers {
                            let mut next = |end: u64| {
                                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                                (random >> 33) % end
                            };
                            let from = next(ACCOUNTS);
                            let to = (from + 1 + next(ACCOUNTS - 1)) % ACCOUNTS;
                            let (from, to) = (&accounts[from as usize], &accounts[to as usize]);
                            let values = client.ask(&format!("WATCH {from} {to}\r\nMGET {from} {to}\r\n"));
                            let numbers: Vec<i64> = values[1..].iter().filter_map(|value| value.parse().ok()).collect();
                            let amount = 1 + next(10) as i64;
                            let [one, other] = [numbers[0] - amount, numbers[1] + amount];
                            let replies =
                                client.ask(&format!("MULTI\r\nSET {from} {one}\r\nSET {to} {other}\r\nEXEC\r\n"));
                            let count = if replies[0] == "*-1" { refused } else { done };
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                        // The last one goes without waiting for its reply.
                        let _ = client.stream.write_all(
                            format!("MULTI\r\nDECRBY {0} 1\r\nINCRBY {1} 1\r\nEXEC\r\n", accounts[0], accounts[1])
                                .as_bytes(),
                        );
                    })
                })
                .collect();
            let read_all = &read_all;
            let reader = scope.spawn(move || {
                let mut client = Client::connect(server);
                client.ask(&format!("SELECT {space}\r\n"));
                for _ in 0..300 {
                    assert_eq!(sum(&client.ask(read_all)), ACCOUNTS as i64 * BALANCE);
                }
            });
            movers.into_iter().for_each(|mover| mover.join().unwrap());
            reader.join().unwrap();
        });
        assert_eq!(sum(&first.ask(&read_all)), ACCOUNTS as i64 * BALANCE);
        let (done, refused) = (done.into_inner(), refused.into_inner());
        assert!(done > 0 && done + refused == CLIENTS * transfers, "{done} done, {refused} refused");
    }
}

/// A command that sets many keys of the ordered space sets all or none, until the space is full and beyond.
#[test]
fn keys_of_a_full_ordered_space_are_set_together_or_not_at_all() {
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = skep_server::ServerSettings {
        native: any,
        resp: Some(any),
        memory: MEMORY,
        ordered_memory: 16 << 20,
        shards: 2,
        pin_threads: false,
        ..skep_server::ServerSettings::default()
    };
    let server = Server::start(&settings).unwrap();
    let mut client = Client::connect(&server);
    client.ask("SELECT 1\r\n");
    let mut random = 1_u64;
    let mut next = |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % end
    };
    let (mut set, mut refused, mut full) = (0, 0, 0);
    for round in 0..3000 {
        // Single keys fill the space beyond what is left to commands of several keys.
        for _ in 0..20 {
            let line = format!("SET {} {}\r\n", next(1 << 40), "v".repeat(1 + next(900) as usize));
            full += u64::from(client.ask(&line)[0].starts_with("-OOM"));
        }
        let size = 1 + next(900) as usize;
        let keys: Vec<String> = (0..1 + next(20)).map(|index| format!("{round}:{index}:{}", next(1 << 40))).collect();
        let pairs: Vec<String> = keys.iter().map(|key| format!("{key} {}", "w".repeat(size))).collect();
        let reply = client.ask(&format!("MSET {}\r\n", pairs.join(" ")));
        let found = client.ask(&format!("EXISTS {}\r\n", keys.join(" ")));
        match &reply[0][..] {
            "+OK" => assert_eq!(found, [format!(":{}", keys.len())], "round {round}"),
            _ => assert_eq!((&reply[0][..4], &found[0][..]), ("-OOM", ":0"), "round {round}"),
        }
        set += u64::from(reply == ["+OK"]);
        refused += u64::from(reply != ["+OK"]);
    }
    assert!(set > 100 && refused > 100 && full > 100, "{set} set, {refused} refused, {full} times full");
    server.stop();
}
