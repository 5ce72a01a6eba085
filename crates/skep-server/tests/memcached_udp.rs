//! memcached's protocol over UDP: a datagram has a whole request, and its reply has as many datagrams as it needs.

mod support;

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use skep_server::{Password, Server, ServerSettings};
use support::{Resp, connect};

/// The longest datagram of a reply.
const DATAGRAM_SIZE_MAX: usize = 1400;

/// Starts a server with a cache on free ports.
fn server(settings: ServerSettings) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings {
        native: any,
        resp: Some(any),
        memcached: Some(any),
        memcached_udp: Some(any),
        memory: u64::from(settings.shards) * (16 << 20),
        ordered_memory: 0,
        cache_memory: u64::from(settings.shards) * (8 << 20),
        ..settings
    };
    Server::start(&settings).expect("the server starts")
}

/// A client with a socket of its own.
struct Client(UdpSocket);

impl Client {
    fn connect(server: &Server) -> Client {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        socket.connect(server.memcached_udp_address().expect("the server has the port")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(socket)
    }

    fn send(&self, number: u16, count: u16, request: &[u8]) {
        let header = [number, 0, count, 0].map(u16::to_be_bytes).concat();
        self.0.send(&[&header, request].concat()).unwrap();
    }

    /// Receives the whole reply to a request. On loopback, datagrams arrive in order.
    fn receive(&self, number: u16) -> String {
        let (mut reply, mut buffer, mut next, mut count) = (Vec::new(), [0; 2 * DATAGRAM_SIZE_MAX], 0, 1);
        while next < count {
            let size = match self.0.recv(&mut buffer) {
                // As in `support::receive`.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                received => received.unwrap(),
            };
            assert!((9..=DATAGRAM_SIZE_MAX).contains(&size), "{size}");
            let word = |index: usize| u16::from_be_bytes([buffer[2 * index], buffer[2 * index + 1]]);
            assert_eq!([word(0), word(1), word(3)], [number, next, 0]);
            (next, count) = (next + 1, word(2));
            reply.extend_from_slice(&buffer[8..size]);
        }
        String::from_utf8(reply).unwrap()
    }

    #[track_caller]
    fn expect(&self, number: u16, request: &str, reply: &str) {
        self.send(number, 1, request.as_bytes());
        assert_eq!(self.receive(number), reply);
    }

    /// Returns a line of `stats`.
    fn count(&self, name: &str) -> u64 {
        self.send(7, 1, b"stats\r\n");
        let statistics = self.receive(7);
        let line = statistics.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("{name}: {statistics}")).parse().unwrap()
    }
}

#[test]
fn a_datagram_has_whole_requests_and_its_reply_is_divided() {
    for shards in [1, 3] {
        let server = server(ServerSettings { shards, ..ServerSettings::default() });
        let client = Client::connect(&server);
        client.expect(0, "set a 5 0 3\r\nabc\r\n", "STORED\r\n");
        client.expect(u16::MAX, "get a x a\r\n", "VALUE a 5 3\r\nabc\r\nVALUE a 5 3\r\nabc\r\nEND\r\n");
        client.expect(1, "get a\nincr n 1\r\nmn\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\nNOT_FOUND\r\nMN\r\n");
        client.expect(2, "nonsense\r\n", "ERROR\r\n");
        client.expect(2, "mn\r\nquit\r\nmn\r\n", "MN\r\n");
        // Neither these nor a request without its end have a reply.
        for silent in ["set q 0 0 1 noreply\r\nq\r\n", "set a 0 0 9\r\nabc\r\n", "get a", ""] {
            client.send(3, 1, silent.as_bytes());
        }
        client.expect(4, "get q a\r\n", "VALUE q 0 1\r\nq\r\nVALUE a 5 3\r\nabc\r\nEND\r\n");
        let value = "v".repeat(10_000);
        client.expect(5, &format!("set long 0 0 10000\r\n{value}\r\n"), "STORED\r\n");
        client.expect(6, "get long\r\n", &format!("VALUE long 0 10000\r\n{value}\r\nEND\r\n"));
        client.expect(8, "flush_all\r\nget a\r\n", "OK\r\nEND\r\n");
        let port = server.memcached_udp_address().unwrap().port();
        client.send(9, 1, b"stats settings\r\n");
        assert!(client.receive(9).contains(&format!("STAT udpport {port}\r\n")));
        server.stop();
    }
}

#[test]
fn datagrams_without_a_whole_request_are_dropped_and_counted() {
    let server = server(ServerSettings::default());
    let client = Client::connect(&server);
    for size in 0..8 {
        client.0.send(&[0; 8][..size]).unwrap();
    }
    for count in [0, 2, u16::MAX] {
        client.send(1, count, b"set a 0 0 1\r\na\r\n");
    }
    client.expect(2, "get a\r\n", "END\r\n");
    assert_eq!(["udp_dropped_short", "udp_dropped_in_parts"].map(|name| client.count(name)), [8, 3]);
    assert_eq!((client.count("udp_dropped_refused"), client.count("udp_requests")), (0, 5));
    assert_eq!(client.count("total_connections"), 0, "a datagram is no connection of a client");
}

/// With a forged address, the replies of two servers would be requests to each other without end.
#[test]
fn a_reply_has_no_reply() {
    let password = Password::new(b"ham");
    for password in [None, password] {
        let login = if password.is_some() { "set x 0 0 11\r\ndefault ham\r\n" } else { "" };
        let stored = if password.is_some() { "STORED\r\n" } else { "" };
        let server = server(ServerSettings { password, ..ServerSettings::default() });
        let client = Client::connect(&server);
        client.expect(1, &format!("{login}set a 0 0 7\r\nget a\r\n\r\n"), &format!("{stored}STORED\r\n"));
        client.expect(2, &format!("{login}set n 0 0 1\r\n4\r\n"), &format!("{stored}STORED\r\n"));
        let mut count = 0;
        for request in
            ["get a", "mg a v", "me a", "mn", "md x", "incr n 1", "nonsense", "get", "version", "verbosity 1"]
        {
            for login in ["", login] {
                client.send(3, 1, format!("{login}{request}\r\n").as_bytes());
                let reply = client.receive(3);
                client.send(4, 1, reply.as_bytes());
                count += 1;
            }
        }
        client.send(5, 1, format!("{login}stats\r\n").as_bytes());
        let statistics = client.receive(5);
        assert!(statistics.contains(&format!("STAT udp_dropped_forged {count}\r\n")), "{statistics}");
    }
}

/// A request of a few bytes asks for values of many mebibytes.
#[test]
fn a_reply_has_a_bound() {
    let server = server(ServerSettings { shards: 2, ..ServerSettings::default() });
    let mut tcp = Resp(connect(server.memcached_address().unwrap()));
    let value = "v".repeat(1 << 20);
    tcp.expect(format!("set large 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    tcp.expect(format!("set fits 0 0 65000\r\n{}\r\n", &value[..65_000]), "STORED\r\n");
    let client = Client::connect(&server);
    let refused = "SERVER_ERROR the reply is too large for UDP: the request may be executed in part; read over TCP\r\n";
    client.expect(1, "get fits\r\n", &format!("VALUE fits 0 65000\r\n{}\r\nEND\r\n", &value[..65_000]));
    client.expect(2, "get large\r\n", refused);
    client.expect(3, &format!("get{}\r\n", " large".repeat(5000)), refused);
    client.expect(4, "get fits fits\r\n", refused);
    client.expect(5, "get x\r\n", "END\r\n");
    // The error message says that the rest may be executed. It is executed at most once.
    client.expect(6, "set n 0 0 1\r\n0\r\n", "STORED\r\n");
    client.expect(7, "get large\r\nincr n 1\r\n", refused);
    client.send(8, 1, b"get n\r\n");
    let executed = client.receive(8);
    assert!(["0", "1"].map(|n| format!("VALUE n 0 1\r\n{n}\r\nEND\r\n")).contains(&executed), "{executed}");
}

/// More datagrams than the server takes at once: some are lost, and it serves on. None is in work for long.
#[test]
fn a_flood_leaves_nothing_behind() {
    let server = server(ServerSettings { shards: 2, ..ServerSettings::default() });
    let client = Client::connect(&server);
    client.expect(0, "set n 0 0 1\r\n0\r\n", "STORED\r\n");
    for number in 0..50_000_u16 {
        client.send(number, 1, b"incr n 1 noreply\r\nincr m 1\r\n");
    }
    client.0.set_nonblocking(true).unwrap();
    let mut buffer = [0; DATAGRAM_SIZE_MAX];
    loop {
        match client.0.recv(&mut buffer) {
            Ok(size) => assert_eq!(&buffer[8..size], b"NOT_FOUND\r\n"),
            Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    // Until the last ones are executed, this one may be lost too.
    let other = Client::connect(&server);
    other.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let size = loop {
        other.send(0, 1, b"get n\r\n");
        if let Ok(size) = other.0.recv(&mut buffer) {
            break size;
        }
    };
    let reply = std::str::from_utf8(&buffer[8..size]).unwrap();
    let executed: u64 = reply.split("\r\n").nth(1).and_then(|number| number.trim().parse().ok()).expect(reply);
    let mut tcp = Resp(connect(server.memcached_address().unwrap()));
    let requests = loop {
        tcp.0.write_all(b"stats\r\n").unwrap();
        let mut lines = BufReader::new(&tcp.0).lines().map(Result::unwrap).take_while(|line| line != "END");
        let mut count = |name: &str| -> u64 {
            lines
                .find_map(|line| line.strip_prefix(&format!("STAT {name} ")).map(|text| text.parse().unwrap()))
                .unwrap()
        };
        let (connections, requests) = (count("curr_connections"), count("udp_requests"));
        lines.for_each(drop);
        // The other one is this over TCP.
        if connections == 1 {
            break requests;
        }
    };
    // The `set` and the last `get` are datagrams too. One that lacks memory is counted and not executed.
    assert!(requests >= executed + 2, "{requests} requests: {reply}");
}

/// Each datagram begins with the password.
#[test]
fn a_datagram_has_the_password() {
    let server = server(ServerSettings { password: Password::new(b"ham"), ..ServerSettings::default() });
    let client = Client::connect(&server);
    client.expect(1, "get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    let password = "set x 0 0 11\r\ndefault ham\r\n";
    client.expect(
        2,
        &format!("{password}set a 0 0 1\r\n1\r\nget a\r\n"),
        "STORED\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    );
    client.expect(3, "get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
}

#[test]
fn only_this_machine_is_served() {
    let start = |address: SocketAddr, cache_memory| {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = ServerSettings {
            native: any,
            resp: None,
            memcached_udp: Some(address),
            cache_memory,
            memory: 16 << 20,
            ..ServerSettings::default()
        };
        Server::start(&settings).map(drop).map_err(|error| error.to_string())
    };
    for open in ["0.0.0.0:11211", "[::]:11211", "192.0.2.1:11211"] {
        let error = start(open.parse().unwrap(), 8 << 20).unwrap_err();
        assert!(error.contains("serves only this machine") && error.contains("127.0.0.1:11211"), "{error}");
    }
    let loopback = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    assert_eq!(start(loopback, 8 << 20), Ok(()));
    assert!(start(loopback, 0).unwrap_err().contains("needs a cache"));
}
