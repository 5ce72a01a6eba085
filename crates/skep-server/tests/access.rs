//! Passwords and the protected mode, on both ports.

mod support;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use skep_core::operation::{Operation, Request};
use skep_server::{Password, Server, ServerSettings};
use skep_transport::datagram::DatagramStream;
use skep_wire::native::{Hello, ProtocolError, Refusal, Welcome};
use support::{Resp, command, connect, receive, server};

const NO_AUTH: &str = "-NOAUTH Authentication required.\r\n";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
const NO_PASSWORD: &str = "-ERR AUTH <password> called without any password configured for the default user. \
                           Are you sure your configuration is correct?\r\n";
const HELLO_FIRST: &str = "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
                           <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                           version at the same time\r\n";

fn with_password(shards: u16) -> Server {
    with_settings(ServerSettings { shards, password: Password::new(b"ham"), ..ServerSettings::default() })
}

fn with_settings(settings: ServerSettings) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::start(&ServerSettings { native: any, resp: Some(any), memory: 48 << 20, ..settings }).expect("it starts")
}

/// Says hello. Returns the bytes that the server sends in return, and if the connection then ends.
fn greet(server: &Server, hello: &Hello) -> (Result<Option<Welcome>, ProtocolError>, bool) {
    let mut stream = connect(server.native_address());
    stream.write_all(&hello.encode()).unwrap();
    let mut bytes = [0; Welcome::SIZE];
    stream.read_exact(&mut bytes).unwrap();
    let decoded = Welcome::decode(&bytes);
    let is_over = decoded.is_err() && matches!(receive(&stream, &mut [0]), Ok(0));
    (decoded, is_over)
}

#[test]
fn a_password_is_needed_before_anything_else() {
    for shards in [1, 3] {
        let server = with_password(shards);
        let mut resp = Resp::connect(&server);
        for refused in ["GET a", "PING", "INFO", "CLIENT ID", "SELECT 1", "CONFIG GET *", "COMMAND"] {
            resp.expect(format!("{refused}\r\n"), NO_AUTH);
        }
        resp.expect("NOSUCH\r\n", "-ERR unknown command 'NOSUCH', with args beginning with: \r\n");
        resp.expect("GET\r\n", "-ERR wrong number of arguments for 'get' command\r\n");
        resp.expect("AUTH egg\r\nAUTH default egg\r\nAUTH cook ham\r\nAUTH ''\r\n", WRONG.repeat(4));
        resp.expect("AUTH a b c\r\n", "-ERR syntax error\r\n");
        resp.expect("HELLO 3\r\nHELLO\r\n", HELLO_FIRST.repeat(2));
        resp.expect("HELLO 3 AUTH default egg\r\n", WRONG);
        resp.expect("HELLO 4 AUTH default ham\r\n", "-NOPROTO unsupported protocol version\r\n");
        resp.expect("RESET\r\n", "+RESET\r\n");
        // The commands after it in the same bytes are allowed, and those before it are not.
        resp.expect("SET a 0\r\nAUTH ham\r\nSET a 1\r\nGET a\r\n", format!("{NO_AUTH}+OK\r\n+OK\r\n$1\r\n1\r\n"));
        resp.expect("AUTH egg\r\nGET a\r\n", format!("{WRONG}$1\r\n1\r\n"));
        resp.expect("RESET\r\nGET a\r\n", format!("+RESET\r\n{NO_AUTH}"));
        resp.expect("AUTH default ham\r\nGET a\r\nQUIT\r\n", "+OK\r\n$1\r\n1\r\n+OK\r\n");
        resp.expect_end();
        let mut resp = Resp::connect(&server);
        resp.0.write_all(b"HELLO 3 AUTH default ham SETNAME cook\r\nCLIENT GETNAME\r\nGET no\r\n").unwrap();
        let mut reply = vec![0; 300];
        let mut size = 0;
        while !reply[..size].ends_with(b"$4\r\ncook\r\n_\r\n") {
            size += receive(&resp.0, &mut reply[size..]).unwrap();
        }
        assert!(reply.starts_with(b"%7\r\n$6\r\nserver\r\n"));
        server.stop();
    }
}

#[test]
fn a_client_without_the_password_sends_small_requests_only() {
    let server = with_password(1);
    for (bytes, reply) in [
        ("*11\r\n".to_owned(), "-ERR Protocol error: unauthenticated multibulk length\r\n"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n".to_owned(), "-ERR Protocol error: unauthenticated bulk length\r\n"),
    ] {
        let mut resp = Resp::connect(&server);
        resp.expect(bytes, reply);
        resp.expect_end();
    }
    let mut resp = Resp::connect(&server);
    resp.expect(command(&[b"AUTH", &vec![b'x'; 16384]]), WRONG);
    resp.expect(command(&[&b"AUTH"[..]].repeat(10)), "-ERR syntax error\r\n");
    resp.expect("AUTH ham\r\n", "+OK\r\n");
    resp.expect(command(&[b"SET", b"a", &vec![b'x'; 16385]]), "+OK\r\n");
    resp.expect(command(&[&b"EXISTS"[..]].iter().chain([&&b"a"[..]; 20]).copied().collect::<Vec<_>>()), ":20\r\n");
    server.stop();
}

#[test]
fn the_password_changes_for_new_connections() {
    let server = server(2, 32 << 20);
    let mut old = Resp::connect(&server);
    old.expect("AUTH x\r\n", NO_PASSWORD);
    old.expect("AUTH default x\r\n", "+OK\r\n");
    old.expect("CONFIG GET requirepass\r\n", "*2\r\n$11\r\nrequirepass\r\n$0\r\n\r\n");
    old.expect("CONFIG SET requirepass ham\r\n", "+OK\r\n");
    let mut new = Resp::connect(&server);
    new.expect("PING\r\nAUTH ham\r\nPING\r\n", format!("{NO_AUTH}+OK\r\n+PONG\r\n"));
    old.expect("PING\r\n", "+PONG\r\n");
    old.expect("CONFIG GET requirepass\r\n", "*2\r\n$11\r\nrequirepass\r\n$8\r\n(hidden)\r\n");
    assert_eq!(greet(&server, &Hello::new(None)), (Err(ProtocolError::Refused(Refusal::PasswordNeeded)), true));
    let mut locked = Resp::connect(&server);
    locked.expect("PING\r\n", NO_AUTH);
    old.expect("CONFIG SET requirepass ''\r\n", "+OK\r\n");
    locked.expect("PING\r\nAUTH ham\r\n", format!("+PONG\r\n{NO_PASSWORD}"));
    assert!(greet(&server, &Hello::new(None)).0.is_ok());
    old.expect(command(&[b"CONFIG", b"SET", b"requirepass", &[b'x'; 513]]), {
        "-ERR CONFIG SET failed (possibly related to argument 'requirepass') - a password has 1 to 512 bytes\r\n"
    });
    server.stop();
}

#[test]
fn a_native_client_sends_the_password_in_its_hello() {
    for shards in [1, 3] {
        let server = with_password(shards);
        let hello = |password: &[u8], shard| Hello { shard, user: String::new(), password: Password::new(password) };
        for shard in [None, Some(0), Some(shards - 1)] {
            let refused = |refusal| (Err(ProtocolError::Refused(refusal)), true);
            assert_eq!(greet(&server, &Hello::new(shard)), refused(Refusal::PasswordNeeded));
            assert_eq!(greet(&server, &hello(b"egg", shard)), refused(Refusal::PasswordWrong));
            assert_eq!(greet(&server, &hello(&[b'x'; 512], shard)), refused(Refusal::PasswordWrong));
            let welcome = greet(&server, &hello(b"ham", shard)).0.unwrap().expect("a welcome");
            assert_eq!(welcome.shard_count, shards);
        }
        server.stop();
    }
}

#[test]
fn a_refused_native_client_executes_nothing() {
    let server = with_password(1);
    let get = Request { key: b"a", operation: Operation::Get };
    let mut stream = connect(server.native_address());
    stream.write_all(&[&Hello::new(None).encode()[..], &support::frame(7, &[get])].concat()).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert_eq!(reply, Refusal::PasswordNeeded.encode());
    let mut resp = Resp::connect(&server);
    resp.expect("AUTH ham\r\n", "+OK\r\n");
    let stats = resp.text("INFO stats");
    assert!(stats.contains("skep_operations:0\r\n"), "{stats}");
    server.stop();
}

/// Returns an address of this machine that is not loopback, if it has one.
fn outer_address() -> Option<IpAddr> {
    // Nothing is sent: the system only chooses the address that it would send from.
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn without_a_password_only_this_machine_is_served() {
    let Some(outer) = outer_address() else {
        println!("this machine has only loopback addresses");
        return;
    };
    for (password, protected_mode) in [(None, true), (None, false), (Password::new(b"ham"), true)] {
        let is_denied = protected_mode && password.is_none();
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let settings =
            ServerSettings { shards: 2, memory: 32 << 20, password, protected_mode, ..ServerSettings::default() };
        let settings = ServerSettings { native: any, resp: Some(any), udp: Some(any), ..settings };
        let server = Server::start(&settings).expect("it starts");
        let resp = server.resp_address().unwrap();
        for _ in 0..3 {
            let mut stream = connect(SocketAddr::new(outer, resp.port()));
            stream.write_all(b"ECHO hello\r\nQUIT\r\n").unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            assert_eq!(reply.starts_with("-DENIED "), is_denied, "{reply}");
            assert_eq!(reply.ends_with("+OK\r\n"), !is_denied, "{reply}");
            let mut stream = connect(SocketAddr::new(outer, server.native_address().port()));
            let hello = Hello { shard: None, user: String::new(), password: Password::new(b"ham") };
            stream.write_all(&hello.encode()).unwrap();
            let mut welcome = [0; Welcome::SIZE];
            stream.read_exact(&mut welcome).unwrap();
            let udp = SocketAddr::new(outer, server.udp_address().unwrap().port());
            let mut stream = DatagramStream::connect(udp, Duration::from_secs(60)).unwrap();
            stream.send(&hello.encode()).unwrap();
            let mut over_udp = [0; Welcome::SIZE];
            assert_eq!(stream.receive_within(&mut over_udp, Duration::from_secs(60)).unwrap(), Some(Welcome::SIZE));
            for welcome in [welcome, over_udp] {
                match Welcome::decode(&welcome) {
                    Err(ProtocolError::Refused(Refusal::Protected)) => assert!(is_denied),
                    decoded => assert!(!is_denied && decoded.is_ok(), "{decoded:?}"),
                }
            }
        }
        let mut local = Resp(connect(SocketAddr::from(([127, 0, 0, 1], resp.port()))));
        local.expect("AUTH default ham\r\nPING\r\n", "+OK\r\n+PONG\r\n");
        if is_denied {
            local.expect("CONFIG SET protected-mode no\r\n", "+OK\r\n");
            let mut outer = Resp(connect(SocketAddr::new(outer, resp.port())));
            outer.expect("PING\r\n", "+PONG\r\n");
        }
        server.stop();
    }
}

#[test]
fn idle_connections_are_closed_after_the_timeout() {
    for shards in [1, 3] {
        let server = with_settings(ServerSettings { shards, timeout: 1, ..ServerSettings::default() });
        let mut idle: Vec<Resp> = (0..5).map(|_| Resp::connect(&server)).collect();
        let native = connect(server.native_address());
        for connection in &mut idle {
            connection.expect("PING\r\n", "+PONG\r\n");
        }
        idle.iter_mut().for_each(Resp::expect_end);
        assert!(matches!(receive(&native, &mut [0]), Ok(0)));
        let mut resp = Resp::connect(&server);
        resp.expect("CONFIG SET timeout 0\r\n", "+OK\r\n");
        let clients = resp.text("INFO clients");
        assert!(clients.contains("connected_clients:1\r\n"), "{clients}");
        // Shards that sleep without connections notice a change, too.
        resp.expect("CONFIG SET timeout 1\r\n", "+OK\r\n");
        resp.expect_end();
        server.stop();
    }
}
