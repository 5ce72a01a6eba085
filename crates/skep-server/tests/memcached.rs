//! The memcached port: text and meta commands over TCP, byte for byte.

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use skep_server::{Password, Server, ServerSettings};
use support::{Resp, connect};

/// Starts a server with a cache on free ports.
fn server(settings: ServerSettings) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings {
        native: any,
        resp: Some(any),
        memcached: Some(any),
        memory: u64::from(settings.shards) * (16 << 20),
        ordered_memory: 0,
        cache_memory: u64::from(settings.shards) * (8 << 20),
        ..settings
    };
    Server::start(&settings).expect("the server starts")
}

fn shards(shards: u16) -> Server {
    server(ServerSettings { shards, ..ServerSettings::default() })
}

/// Connects to the memcached port. The helper compares bytes of any protocol.
fn client(server: &Server) -> Resp {
    Resp(connect(server.memcached_address().expect("the server has the port")))
}

#[test]
fn text_commands() {
    for shard_count in [1, 3] {
        let server = shards(shard_count);
        let mut client = client(&server);
        for (sent, expected) in [
            ("set a 5 0 3\r\nabc\r\n", "STORED\r\n"),
            ("set b 0 0 0\r\n\r\n", "STORED\r\n"),
            ("get a x b a\r\n", "VALUE a 5 3\r\nabc\r\nVALUE b 0 0\r\n\r\nVALUE a 5 3\r\nabc\r\nEND\r\n"),
            ("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("replace x 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("append x 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("append a 9 9 2\r\nde\r\n", "STORED\r\n"),
            ("prepend a 9 9 1\r\n-\r\n", "STORED\r\n"),
            ("get a\r\n", "VALUE a 5 6\r\n-abcde\r\nEND\r\n"),
            ("incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
            ("incr n 1\r\n", "NOT_FOUND\r\n"),
            ("set n 0 0 2\r\n10\r\n", "STORED\r\n"),
            ("incr n 18446744073709551615\r\n", "9\r\n"),
            ("get n\r\n", "VALUE n 0 2\r\n9 \r\nEND\r\n"),
            ("decr n 10\r\n", "0\r\n"),
            ("touch n 100\r\n", "TOUCHED\r\n"),
            ("touch x 100\r\n", "NOT_FOUND\r\n"),
            ("gat 100 n x\r\n", "VALUE n 0 2\r\n0 \r\nEND\r\n"),
            ("delete n\r\n", "DELETED\r\n"),
            ("delete n\r\n", "NOT_FOUND\r\n"),
            ("cas n 0 0 1 5\r\nx\r\n", "NOT_FOUND\r\n"),
            ("cas a 0 0 1 5\r\nx\r\n", "EXISTS\r\n"),
            ("set b 0 0 4\r\n abc\r\nincr b 1\r\n", {
                "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
            }),
            (
                "set a 0 0 1 noreply\r\n1\r\nincr a 1 noreply\r\ndelete b noreply\r\nget a b\r\n",
                "VALUE a 0 1\r\n2\r\nEND\r\n",
            ),
            ("set a 0 -1 1\r\n1\r\nget a\r\n", "STORED\r\nEND\r\n"),
            ("flush_all\r\n", "OK\r\n"),
            ("verbosity 1\r\n", "OK\r\n"),
            ("version\r\n", "VERSION 1.6.18\r\n"),
            ("nonsense\r\n", "ERROR\r\n"),
            ("set a 0 0 x\r\n", "CLIENT_ERROR bad command line format\r\n"),
            ("stats reset\r\n", "RESET\r\n"),
            ("stats sizes\r\n", "STAT sizes_status disabled\r\nEND\r\n"),
        ] {
            client.expect(sent, expected);
        }
        client.expect("quit\r\nget a\r\n", "");
        client.expect_end();
    }
}

#[test]
fn meta_commands() {
    let server = shards(2);
    let mut client = client(&server);
    for (sent, expected) in [
        ("mn\r\n", "MN\r\n"),
        ("mg a v\r\n", "EN\r\n"),
        ("mg a v q\r\nmn\r\n", "MN\r\n"),
        ("ms a 2 T100 F7 Oxyz k\r\nhi\r\n", "HD Oxyz ka\r\n"),
        ("mg a s v t f k Oq h\r\n", "VA 2 s2 t100 f7 ka Oq h0\r\nhi\r\n"),
        ("mg a h\r\n", "HD h1\r\n"),
        ("mg YQ== b k v\r\n", "VA 2 ka\r\nhi\r\n"),
        ("ms a 2 q\r\nho\r\nmn\r\n", "MN\r\n"),
        ("ms a 1 ME\r\nx\r\n", "NS\r\n"),
        ("ms a 1 MA\r\nx\r\n", "HD\r\n"),
        ("mg a v\r\n", "VA 3\r\nhox\r\n"),
        ("ms a 1 C1\r\nx\r\n", "EX\r\n"),
        ("ms a 1 I C0\r\nx\r\n", "EX\r\n"),
        ("ma a\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ("ma n\r\n", "NF\r\n"),
        ("ma n N0 J13 v\r\n", "VA 2\r\n13\r\n"),
        ("ma n MD D3 v t\r\n", "VA 2 t-1\r\n10\r\n"),
        ("md n q\r\nmd n\r\n", "NF\r\n"),
        ("md a I T30\r\n", "HD\r\n"),
        ("mg a v t\r\n", "VA 3 t30 X W\r\nhox\r\n"),
        ("mg a\r\n", "HD Z X\r\n"),
        ("mg new t N30 v\r\n", "VA 0 t-1 W\r\n\r\n"),
        ("mg new t\r\n", "HD t30 Z\r\n"),
        ("me nothing\r\n", "EN\r\n"),
        ("mg other N30 t\r\n", "HD t30 W\r\n"),
        ("mg a vv\r\n", "VA 3 Z X\r\nhox\r\n"),
        ("mg a v v\r\n", "CLIENT_ERROR duplicate flag\r\n"),
    ] {
        client.expect(sent, expected);
    }
}

/// As memcached 1.6.18: `mg` and `me` return the key as it was stored, the other commands as it was sent.
#[test]
fn a_key_is_returned_in_the_form_in_which_it_was_stored() {
    let server = shards(2);
    let mut client = client(&server);
    for (sent, expected) in [
        ("ms Zm9v 2 b\r\n11\r\n", "HD\r\n"),
        ("mg foo v k\r\n", "VA 2 kZm9v b\r\n11\r\n"),
        ("mg foo k\r\n", "HD kZm9v b\r\n"),
        ("mg Zm9v b k\r\n", "HD kZm9v b\r\n"),
        ("ma foo k v\r\n", "VA 2 kfoo\r\n12\r\n"),
        ("get foo\r\n", "VALUE foo 0 2\r\n12\r\nEND\r\n"),
        ("md foo k C5\r\n", "EX kfoo\r\n"),
        ("set foo 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("mg Zm9v b k v Oq\r\n", "VA 1 kfoo Oq\r\nx\r\n"),
        ("ms Zm9v 1 k b ME\r\n2\r\n", "NS kZm9v b\r\n"),
        ("md Zm9v b k\r\n", "HD kZm9v b\r\n"),
        ("mg Zm9v b k\r\n", "EN kZm9v b\r\n"),
        ("mg Zm9v b k N0\r\n", "HD kfoo W\r\n"),
    ] {
        client.expect(sent, expected);
    }
    client.expect("ms Zm9v 2 b\r\n11\r\nme foo\r\n", "HD\r\n");
    assert!(read_line(&mut client).starts_with("ME Zm9v exp=-1 "));
}

/// Clients whose library has no sign for the number send −1 as 4294967295. As memcached 1.6.18 replies.
#[test]
fn an_exptime_has_32_bits() {
    let server = shards(2);
    let mut client = client(&server);
    for (exptime, is_kept) in [
        ("4294967295", false),
        ("2147483648", false),
        ("4000000000", false),
        ("9223372036854775807", false),
        ("2147483647", true),
        ("4294967296", true),
    ] {
        let found = if is_kept { "HD\r\n" } else { "EN\r\n" };
        client.expect(format!("set k 0 {exptime} 1\r\n1\r\nmg k\r\n"), format!("STORED\r\n{found}"));
        client.expect("set k 0 0 1\r\n1\r\n", "STORED\r\n");
        client.expect(format!("touch k {exptime}\r\nmg k\r\n"), format!("TOUCHED\r\n{found}"));
        client.expect(format!("ms k 1 T{exptime}\r\n1\r\nmg k\r\n"), format!("HD\r\n{found}"));
        client.expect("set k 0 0 1\r\n1\r\n", "STORED\r\n");
        client.expect(format!("gat {exptime} k\r\nmg k\r\n"), format!("VALUE k 0 1\r\n1\r\nEND\r\n{found}"));
        client.expect("set k 0 0 1\r\n1\r\n", "STORED\r\n");
        client.expect(format!("mg k T{exptime}\r\nmg k\r\n"), format!("HD\r\n{found}"));
    }
}

#[test]
fn a_number_of_gets_stores_once() {
    let server = shards(2);
    let mut client = client(&server);
    client.expect("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    let number = |client: &mut Resp| {
        client.0.write_all(b"gets a\r\n").unwrap();
        let line = read_line(client);
        read_line(client);
        assert_eq!(read_line(client), "END");
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let first = number(&mut client);
    client.expect(format!("cas a 0 0 1 {first}\r\n2\r\n"), "STORED\r\n");
    client.expect(format!("cas a 0 0 1 {first}\r\n3\r\n"), "EXISTS\r\n");
    let second = number(&mut client);
    assert_ne!(first, second);
    client.expect(format!("ms a 1 C{second} c\r\n4\r\n").as_bytes(), "");
    let stored = read_line(&mut client);
    assert_eq!(stored, format!("HD c{}", number(&mut client)));
    client.expect(format!("md a C{second}\r\nmd a C{}\r\n", &stored[4..]), "EX\r\nHD\r\n");
}

fn read_line(client: &mut Resp) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        client.0.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

#[test]
fn requests_arrive_in_pieces_and_values_have_any_bytes() {
    let server = shards(2);
    let mut client = client(&server);
    for (index, byte) in b"set a 1 0 6\r\na\r\nb\0c\r\nget a\r\nmg YQ== b v k\r\n".iter().enumerate() {
        client.0.write_all(&[*byte]).unwrap();
        if index % 7 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    client.expect_bytes("STORED\r\nVALUE a 1 6\r\na\r\nb\0c\r\nEND\r\nVA 6 ka\r\na\r\nb\0c\r\n");
}

#[test]
fn a_retrieval_has_any_number_of_keys() {
    let server = shards(3);
    let mut client = client(&server);
    let mut stores = String::new();
    let (mut line, mut expected) = ("get".to_owned(), String::new());
    for number in 0..20_000 {
        if number % 2 == 0 {
            stores += &format!("set key:{number} {number} 0 4 noreply\r\nabcd\r\n");
            expected += &format!("VALUE key:{number} {number} 4\r\nabcd\r\n");
        }
        line += &format!(" key:{number}");
    }
    client.expect(stores + "mn\r\n", "MN\r\n");
    client.expect(line + "\r\nmn\r\n", expected + "END\r\nMN\r\n");
}

#[test]
fn large_values_and_limits() {
    let server = shards(2);
    let mut client = client(&server);
    let value = "x".repeat(1 << 20);
    client.expect(format!("set a 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    client.expect("get a\r\n", format!("VALUE a 0 {}\r\n{value}\r\nEND\r\n", value.len()));
    client.expect("append a 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    client.expect("ms a 1 MA Oq k\r\nx\r\n", "NS Oq ka\r\n");
    // The old value is not left where a new one was refused.
    let too_large = format!("{}\r\n{value}x\r\n", value.len() + 1);
    client.expect(format!("add a 0 0 {too_large}"), "SERVER_ERROR object too large for cache\r\n");
    client.expect("touch a 0\r\n", "TOUCHED\r\n");
    client.expect(format!("set a 0 0 {too_large}get a\r\n"), "SERVER_ERROR object too large for cache\r\nEND\r\n");
    let (key, long) = ("k".repeat(250), "k".repeat(251));
    client.expect(format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
    client.expect(format!("get {key}\r\n"), format!("VALUE {key} 0 1\r\nx\r\nEND\r\n"));
    client.expect(format!("get {long}\r\n"), "CLIENT_ERROR bad command line format\r\n");
    let small = self::server(ServerSettings { memcached_value_max: 10, ..ServerSettings::default() });
    let mut client = self::client(&small);
    client.expect("set a 0 0 10\r\n0123456789\r\nappend a 0 0 1\r\nx\r\n", "STORED\r\nNOT_STORED\r\n");
    client.expect("set a 0 0 11\r\n0123456789a\r\nmn\r\n", "SERVER_ERROR object too large for cache\r\nMN\r\n");
}

#[test]
fn a_flush_takes_place_after_what_was_sent_before_it() {
    for shard_count in [1, 3] {
        let server = shards(shard_count);
        let mut client = client(&server);
        let keys: Vec<String> = (0..200).map(|number| format!("k{number}")).collect();
        let stores: String = keys.iter().map(|key| format!("set {key} 0 0 1 noreply\r\nx\r\n")).collect();
        let all: String = keys.iter().map(|key| format!(" {key}")).collect();
        for _ in 0..20 {
            client.expect(format!("{stores}flush_all noreply\r\nset z 0 0 1\r\ny\r\nget{all} z\r\n"), {
                "STORED\r\nVALUE z 0 1\r\ny\r\nEND\r\n"
            });
        }
        client.expect("flush_all 1000\r\nget z\r\n", "OK\r\nVALUE z 0 1\r\ny\r\nEND\r\n");
        client.expect("flush_all 2\r\n", "OK\r\n");
        thread::sleep(Duration::from_millis(2100));
        client.expect("get z\r\n", "END\r\n");
    }
}

#[test]
fn statistics_count_commands_and_outcomes() {
    let server = shards(2);
    let mut client = client(&server);
    client.expect("set a 0 0 1\r\n1\r\nget a b\r\nincr a 1\r\ndecr b 1\r\ndelete b\r\n", {
        "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n2\r\nNOT_FOUND\r\nNOT_FOUND\r\n"
    });
    client.expect("gat 0 a\r\nmg a T0\r\nme z\r\nmd a C1\r\nmd a I\r\n", {
        "VALUE a 0 1\r\n2\r\nEND\r\nHD\r\nEN\r\nEX\r\nHD\r\n"
    });
    let mut statistics = |command: &str| {
        client.0.write_all(command.as_bytes()).unwrap();
        let mut lines = String::new();
        loop {
            match read_line(&mut client).as_str() {
                "END" => return lines,
                line => lines += &format!("{line}\n"),
            }
        }
    };
    let general = statistics("stats\r\n");
    for line in [
        "STAT cmd_get 2",
        "STAT cmd_set 1",
        "STAT total_items 1",
        "STAT get_hits 1",
        "STAT get_misses 1",
        "STAT incr_hits 1",
        "STAT decr_misses 1",
        "STAT delete_misses 2",
        "STAT delete_hits 0",
        "STAT cmd_touch 2",
        "STAT touch_hits 2",
        "STAT cmd_meta 1",
        "STAT curr_items 1",
        "STAT evictions 0",
        "STAT limit_maxbytes 16777216",
        "STAT threads 2",
    ] {
        assert!(general.contains(&format!("{line}\n")), "{line}: {general}");
    }
    assert!(statistics("stats settings\r\n").contains("STAT item_size_max 1048576\n"));
    assert!(statistics("stats items\r\n").contains("STAT items:1:number 1\n"));
    assert!(statistics("stats slabs\r\n").contains("STAT 1:used_chunks 1\n"));
    assert_eq!(statistics("stats conns\r\n"), "");
}

#[test]
fn a_client_sends_the_password() {
    let settings = ServerSettings { password: Password::new(b"ham"), ..ServerSettings::default() };
    let server = server(settings);
    let mut client = client(&server);
    client.expect("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    client.expect("set x 0 0 11\r\ndefault egg\r\n", "CLIENT_ERROR authentication failure\r\n");
    client.expect("set x 0 0 11\r\ndefault ham\r\nget x\r\n", "STORED\r\nEND\r\n");
    client.expect("set x 0 0 1\r\n1\r\nget x\r\n", "STORED\r\nVALUE x 0 1\r\n1\r\nEND\r\n");
    let mut greedy = self::client(&server);
    greedy.0.write_all(format!("get {}", "k".repeat(8 << 10)).as_bytes()).unwrap();
    greedy.expect_end();
}

#[test]
fn a_client_that_speaks_http_is_dropped() {
    let server = shards(1);
    let mut client = client(&server);
    client.expect("POST / HTTP/1.1\r\nset a 0 0 1\r\nx\r\n", "");
    client.expect_end();
    self::client(&server).expect("get a\r\n", "END\r\n");
}

#[test]
fn many_clients_add_to_one_number() {
    const CLIENTS: usize = 256;
    const ADDITIONS: usize = 200;
    let server = shards(2);
    let server = &server;
    client(server).expect("set n 0 0 1\r\n0\r\n", "STORED\r\n");
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || {
                let mut client = client(server);
                let own = format!("set own:{number} {number} 0 3\r\nabc\r\n");
                client.expect(own, "STORED\r\n");
                let additions = "incr n 1 noreply\r\n".repeat(ADDITIONS);
                let own = format!("get own:{number}\r\n");
                client.expect(additions + &own, format!("VALUE own:{number} {number} 3\r\nabc\r\nEND\r\n"));
            });
        }
    });
    let sum = (CLIENTS * ADDITIONS).to_string();
    client(server).expect("get n\r\n", format!("VALUE n 0 {}\r\n{sum}\r\nEND\r\n", sum.len()));
}

#[test]
fn resp_clients_have_the_same_keys() {
    let server = shards(2);
    let (mut client, mut resp) = (client(&server), Resp::connect(&server));
    client.expect("set a 7 0 1\r\n1\r\n", "STORED\r\n");
    resp.expect("SELECT 2\r\nINCR a\r\n", "+OK\r\n:2\r\n");
    client.expect("get a\r\n", "VALUE a 7 1\r\n2\r\nEND\r\n");
    resp.expect("SET a 5\r\n", "+OK\r\n");
    client.expect("get a\r\n", "VALUE a 0 1\r\n5\r\nEND\r\n");
    client.expect("flush_all\r\n", "OK\r\n");
    resp.expect("DBSIZE\r\n", ":0\r\n");
}

#[test]
fn the_port_needs_a_cache() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let settings = ServerSettings { native: any, resp: None, memcached: Some(any), ..ServerSettings::default() };
    let error = Server::start(&settings).expect_err("there is no cache").to_string();
    assert!(error.contains("--cache-memory"), "{error}");
    let small = ServerSettings { cache_memory: 1 << 20, ..settings.clone() };
    let error = Server::start(&small).expect_err("the cache is too small").to_string();
    assert!(error.contains("choose a larger --cache-memory"), "{error}");
    let settings = ServerSettings { cache_memory: 8 << 20, memcached_value_max: 2 << 20, ..settings };
    let error = Server::start(&settings).expect_err("values are too large").to_string();
    assert!(error.contains("choose 1 to 1048576"), "{error}");
}
