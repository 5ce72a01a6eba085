//! Runs `skep serve`: checks its start screen, its signals, and every error that prevents the start.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::data_directory::DataDirectory;
use crate::process::{Server, WATCHDOG, assert_refusal, output, refusal, skep, text};
use crate::wire::Connection;

/// Returns the path of a file for one test.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

/// The lines of the audit are objects too, with what was changed and whether it was done.
#[test]
fn the_log_may_be_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let password = folder.path().join("password");
    fs::write(&password, "ham\n").expect("it can be written");
    fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let log = folder.path().join("log");
    let mut command = skep(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--resp",
        "127.0.0.1:0",
        "--memory",
        "64MiB",
        "--log-format",
        "json",
    ]);
    let file = fs::File::create(&log).expect("it can be written");
    let mut server = Server::start_command(command.arg("--requirepass-file").arg(&password).stderr(file));
    let mut client = TcpStream::connect(server.resp.as_ref().expect("the RESP port is on")).expect("it listens");
    client.write_all(b"AUTH ham\r\nCONFIG SET timeout 7\r\nCONFIG SET port 7\r\nQUIT\r\n").expect("it reads");
    client.read_to_string(&mut String::new()).expect("it replies");
    server.signal("TERM");
    assert!(server.wait().success());
    let lines = fs::read_to_string(&log).expect("it is text");
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let audit: Vec<_> = lines.iter().filter(|line| line["message"] == "administrative command").collect();
    let of = |line: &serde_json::Value| (line["command"].clone(), line["target"].clone(), line["done"].clone());
    assert_eq!(audit.len(), 2, "{lines:?}");
    assert_eq!(of(audit[0]), ("config|set".into(), "timeout".into(), true.into()));
    assert_eq!(of(audit[1]), ("config|set".into(), "port".into(), false.into()));
    let warns = |line: &&serde_json::Value| line["message"].as_str().is_some_and(|text| text.contains("chmod o-r"));
    assert_eq!(lines.iter().filter(warns).count(), 1, "{lines:?}");
}

/// Bytes of clients make no line of their own, and command no terminal.
#[test]
fn the_log_escapes_bytes_of_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let file = fs::File::create(&log).expect("it can be written");
    let mut command = skep(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--resp",
        "127.0.0.1:0",
        "--memory",
        "64MiB",
        "--requirepass",
        "ham",
    ]);
    let mut server = Server::start_command(command.stderr(file));
    let mut client = TcpStream::connect(server.resp.as_ref().expect("the RESP port is on")).expect("it listens");
    let long = "y".repeat(100_000);
    for words in [
        vec!["AUTH", "a\nFAKE 0", "x"],
        vec!["AUTH", "ham"],
        vec!["CLIENT", "KILL", "b\nFAKE 1"],
        vec!["CONFIG", "SET", "c\x1b[2J\r\nFAKE 2\0", "x"],
        vec!["ACL", "SETUSER", "d\u{9b}2J\u{202e}\nFAKE 3 done=true", "on"],
        vec!["ACL", "DELUSER", "\x1b[31m"],
        vec!["SKEP.FUNCTION", "DELETE", "e\nFAKE 4"],
        vec!["CONFIG", "SET", &long, "x"],
        vec!["QUIT"],
    ] {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
        client.write_all(request.as_bytes()).expect("it reads");
    }
    client.read_to_end(&mut Vec::new()).expect("it replies");
    server.signal("TERM");
    assert!(server.wait().success());
    let log = fs::read_to_string(&log).expect("it is text");
    assert!(log.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{log}");
    assert!(log.lines().all(|line| line.contains(" INFO ") || line.contains(" WARN ")), "{log}");
    assert!(log.lines().all(|line| line.len() < 400), "{log}");
    for part in [
        r#"user="a\nFAKE 0""#,
        r#"target="b\nFAKE 1""#,
        r#"target="c\u{1b}[2J\r\nFAKE 2\0""#,
        r#"done=true" done=false"#,
    ] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
    assert_eq!(log.lines().filter(|line| line.contains("administrative command")).count(), 6, "{log}");
}

#[test]
fn the_screen_shows_addresses_and_commands() {
    let server = Server::start(&[]);
    for part in [
        "64 MiB in 2 shards",
        "256 MiB for the ordered space",
        "huge pages",
        "nothing survives a restart",
        "redis-cli -p",
        "update hits add",
    ] {
        assert!(server.screen.contains(part), "{}", server.screen);
    }
    // The examples can be copied.
    let example = server.screen.lines().find(|line| line.contains(" update hits ")).expect("there is an example");
    let words: Vec<_> = example.split_whitespace().skip(1).collect();
    let first = output(&words);
    assert_eq!((text(&first.stdout).as_str(), first.status.code()), ("0\n", Some(0)), "{}", text(&first.stderr));

    let mut resp = TcpStream::connect(server.resp.as_ref().expect("the RESP port is on")).expect("it listens");
    resp.write_all(b"*1\r\n$4\r\nPING\r\n").expect("it reads");
    let mut pong = [0; 7];
    resp.read_exact(&mut pong).expect("it replies");
    assert_eq!(&pong, b"+PONG\r\n");
}

#[test]
fn the_resp_port_can_be_off() {
    let server =
        Server::start_command(&mut skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "off", "--memory", "64MiB"]));
    assert_eq!(server.resp, None);
    assert_eq!(server.cli(&["put", "k", "v"]).status.code(), Some(0));
}

/// The buffers of large requests are used again: each page of a new one would cost a page fault.
#[test]
fn large_requests_cause_few_page_faults() {
    const ROUNDS: usize = 64;
    let server = Server::start(&[]);
    let mut connection = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    let value = vec![b'v'; 1 << 20];
    let mut run = || {
        for _ in 0..ROUNDS {
            let set: Vec<Vec<u8>> = vec![b"SET".to_vec(), b"k".to_vec(), value.clone()];
            assert_eq!(connection.run(&[set]), [b"+OK\r\n"]);
            let got = connection.run(&[vec![b"GET".to_vec(), b"k".to_vec()]]);
            assert!(got[0].ends_with(b"vv\r\n") && got[0].len() > value.len());
        }
        page_faults(server.id())
    };
    let before = run();
    let faults = run() - before;
    // New buffers: 256 pages in each of two, for each round.
    assert!(faults < 64 * ROUNDS as u64, "{faults} page faults in {ROUNDS} rounds");
}

/// Returns the page faults of a process so far that needed no disk.
fn page_faults(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("the process exists");
    let (_, fields) = stat.rsplit_once(')').expect("the name is in brackets");
    fields.split_whitespace().nth(7).expect("it is the tenth of all").parse().expect("it is a number")
}

/// A terminal that closes sends the first one, and `kill -USR1` rotates the log of other programs.
#[test]
fn signals_that_are_sent_by_mistake_do_not_end_it() {
    let directory = DataDirectory::new("signals");
    let mut server = directory.start(2, "second");
    let mut connection = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    for signal in ["HUP", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "IO", "PIPE", "XFSZ"] {
        assert_eq!(connection.run(&[words(&format!("SET {signal} v"))]), [b"+OK\r\n"]);
        server.signal(signal);
        server.signal(signal);
        assert_eq!(connection.run(&[words(&format!("EXISTS {signal}"))]), [b":1\r\n"]);
    }
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let server = directory.start(2, "second");
    let mut connection = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    assert_eq!(connection.run(&[words("DBSIZE")]), [b":9\r\n"]);
}

#[test]
fn sigterm_and_sigint_stop_it_in_order() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&[]);
        // A connected client does not delay the stop.
        let client = TcpStream::connect(&server.native).expect("it listens");
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0), "SIG{signal}");
        drop(client);
    }
}

#[test]
fn systemd_is_notified_and_a_second_sigint_exits_immediately() {
    let path = file("notify");
    _ = fs::remove_file(&path);
    let socket = UnixDatagram::bind(&path).expect("a socket can be made");
    let mut command = skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "off", "--memory", "64MiB"]);
    let mut server = Server::start_command(command.env("NOTIFY_SOCKET", &path).stderr(Stdio::piped()));
    let mut message = [0; 64];
    let size = socket.recv(&mut message).expect("a message arrives");
    assert_eq!(&message[..size], b"READY=1\n");

    // The socket is full, so the server blocks when it notifies systemd that it stops. Its last log line is written by
    // then.
    let sender = UnixDatagram::unbound().expect("a socket can be made");
    sender.set_nonblocking(true).expect("a socket can be non-blocking");
    while sender.send_to(b"full", &path).is_ok() {}
    let mut log = BufReader::new(server.child().stderr.take().expect("standard error is a pipe"));
    server.signal("TERM");
    let mut line = String::new();
    while !line.contains("stopping") {
        line.clear();
        assert!(log.read_line(&mut line).expect("the log can be read") > 0, "it ended without logging that it stops");
    }
    server.signal("INT");
    assert_eq!(server.wait().code(), Some(1));
    _ = fs::remove_file(&path);
}

/// Returns the names of the threads of a process.
fn threads_of(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let names = tasks.map(|task| fs::read_to_string(task.expect("it can be listed").path().join("comm")));
    names.filter_map(|name| Some(name.ok()?.trim().to_owned())).collect()
}

#[test]
fn the_watchdog_of_systemd_is_told_that_the_shards_work() {
    let path = file("watchdog");
    _ = fs::remove_file(&path);
    let socket = UnixDatagram::bind(&path).expect("a socket can be made");
    socket.set_read_timeout(Some(WATCHDOG)).expect("a timeout can be set");
    let mut command = skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "off", "--memory", "64MiB"]);
    let mut server = Server::start_command(command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "20000"));
    let next = || {
        let mut message = [0; 64];
        let size = socket.recv(&mut message).expect("a message arrives");
        String::from_utf8_lossy(&message[..size]).into_owned()
    };
    assert_eq!(next(), "READY=1\n");
    for number in 0..20 {
        assert_eq!(next(), "WATCHDOG=1\n", "message {number}");
    }
    assert!(threads_of(server.id()).contains(&"skep-watchdog".to_owned()));
    server.signal("TERM");
    while next() != "STOPPING=1\n" {}
    assert_eq!(server.wait().code(), Some(0));
    _ = fs::remove_file(&path);

    // Without NOTIFY_SOCKET there is no thread.
    let mut command = skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "off", "--memory", "64MiB"]);
    let server = Server::start_command(command.env("WATCHDOG_USEC", "20000"));
    let threads = threads_of(server.id());
    assert!(threads.iter().any(|name| name.starts_with("skep-shard")), "{threads:?}");
    assert!(!threads.contains(&"skep-watchdog".to_owned()), "{threads:?}");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = taken.local_addr().expect("it has an address").to_string();
    let native = refusal(&["serve", "--listen", &address, "--resp", "off", "--memory", "64MiB"]);
    assert_refusal(&native, 1, &[&address, "in use", "--listen"]);
    let resp = refusal(&["serve", "--listen", "127.0.0.1:0", "--resp", &address, "--memory", "64MiB"]);
    assert_refusal(&resp, 1, &[&address, "in use", "--resp"]);
}

#[test]
fn a_udp_port_in_use_is_named_with_its_shard() {
    let serve = |first: &str| {
        refusal(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--resp",
            "off",
            "--memory",
            "64MiB",
            "--shards",
            "2",
            "--udp",
            first,
        ])
    };
    // The port before the one that is taken must be free.
    let (taken, first) = (0..100)
        .find_map(|_| {
            let taken = UdpSocket::bind("127.0.0.1:0").ok()?;
            let first = taken.local_addr().ok()?.port() - 1;
            UdpSocket::bind(("127.0.0.1", first)).is_ok().then_some((taken, first))
        })
        .expect("there is a free port before another one");
    let second = format!("UDP address {} (of shard 1) is in use: ", taken.local_addr().expect("it is bound"));
    assert_refusal(&serve(&format!("127.0.0.1:{first}")), 1, &[&second, "choose another first port with --udp"]);
    let parts = ["--udp 127.0.0.1:65535: 2 shards need 2 ports from this one on", "of at most 65534"];
    assert_refusal(&serve("127.0.0.1:65535"), 2, &parts);
}

#[test]
fn settings_that_contradict_each_other_are_refused_as_usage() {
    let afile = file("afile");
    fs::write(&afile, "a").expect("a file can be written");
    let (afile, long) = (afile.to_str().expect("the path is UTF-8"), format!("/tmp/{}", "x".repeat(104)));
    let no_socket = format!("a file that is no socket exists at {afile}: remove it, or choose another path with");
    let small =
        "--cache-memory 1 KiB gives each of 2 shards 512 B; each needs at least 2 MiB: choose at least 4 MiB, or fewer";
    for (flags, code, part) in [
        (&["--memcached", "127.0.0.1:0"][..], 2, "--memcached needs a cache"),
        (&["--memcached-udp", "127.0.0.1:0"], 2, "--memcached-udp needs a cache"),
        (&["--cache-kv-size", "16"], 2, "--cache-kv-size needs a cache: add --cache-memory SIZE"),
        (&["--memcached-udp", "192.0.2.1:0", "--cache-memory", "8MiB"], 2, "it serves only this machine"),
        (&["--memcached-value-max", "2MiB"], 2, "`2MiB` is not the size of a value"),
        (&["--memcached-value-max", "0"], 2, "1B to 1MiB, such as 64KiB"),
        (&["--cache-memory", "1KiB"], 2, small),
        (&["--shared-memory", afile], 1, &no_socket),
        (&["--shared-memory", &long], 1, "a path has at most 107 bytes: choose another path with --shared-memory"),
    ] {
        let quiet = ["serve", "--listen", "127.0.0.1:0", "--resp", "off", "--memory", "64MiB", "--shards", "2"];
        assert_refusal(&refusal(&[&quiet[..], flags].concat()), code, &[part]);
    }
    fs::remove_file(afile).expect("a file can be removed");
}

#[test]
fn too_much_or_too_little_memory_is_refused() {
    let serve = |memory| refusal(&["serve", "--listen", "127.0.0.1:0", "--resp", "off", "--memory", memory]);
    assert_refusal(&serve("900TiB"), 1, &["memory", "--memory"]);
    let least = "--memory 1 KiB gives each of 2 shards 512 B; each needs at least 4 KiB: choose at least 8 KiB, or";
    assert_refusal(&refusal(&["serve", "--resp", "off", "--shards", "2", "--memory", "1KiB"]), 2, &[least]);
    assert_refusal(&refusal(&["serve", "--resp", "off", "--shards", "1", "--memory", "1KiB"]), 2, &["choose at least"]);
    let ordered = |memory| {
        let quiet = ["serve", "--listen", "127.0.0.1:0", "--resp", "off", "--memory", "64MiB"];
        refusal(&[&quiet[..], &["--ordered-memory", memory]].concat())
    };
    assert_refusal(&ordered("900TiB"), 1, &["--memory 64 MiB", "--ordered-memory 900 TiB", "together"]);
    assert_refusal(&ordered("1KiB"), 2, &["--ordered-memory 1 KiB is too little: choose at least "]);
}

#[test]
fn connections_have_their_memory_and_their_number() {
    let serve = |flags: &[&str]| {
        let quiet = ["serve", "--listen", "127.0.0.1:0", "--resp", "off", "--memory", "64MiB"];
        refusal(&[&quiet[..], flags].concat())
    };
    let many = serve(&["--connection-memory", "10MiB"]);
    assert_refusal(&many, 2, &["--connection-memory 10 MiB", "--max-clients 10000", "at least 157 MiB"]);
    assert_refusal(&serve(&["--connection-memory", "1MiB", "--max-clients", "1"]), 2, &["at least 8 MiB"]);
    assert_refusal(&serve(&["--connection-memory", "900TiB"]), 1, &["--memory 64 MiB", "for connections", "together"]);
    assert_refusal(&serve(&["--max-clients", "0"]), 2, &["`0`", "--max-clients", "at least 1"]);
    let server = Server::start(&["--max-clients", "2", "--connection-memory", "8MiB"]);
    let mut info = connect(&server);
    let mut other = connect(&server);
    assert_eq!(reply(&mut other, "PING"), "+PONG");
    let mut refused = BufReader::new(connect(&server));
    let mut line = String::new();
    refused.read_line(&mut line).expect("a reason");
    assert_eq!(line, "-ERR max number of clients reached\r\n");
    assert_eq!(field(&mut info, "maxclients"), 2);
    assert_eq!(field(&mut info, "skep_connection_memory_limit"), 8 << 20);
}

/// Checks that the system gets the buffers of slow readers of large values back when they disconnect.
#[test]
fn the_system_gets_the_memory_of_connections_back() {
    const MIB: u64 = 1 << 20;
    let server = Server::start(&["--connection-memory", "256MiB"]);
    let mut info = connect(&server);
    let value = "v".repeat(1 << 20);
    assert_eq!(reply(&mut info, &format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$1048576\r\n{value}")), "+OK");
    let before = field(&mut info, "used_memory_rss");
    for _ in 0..3 {
        let readers: Vec<TcpStream> = (0..150)
            .map(|_| {
                let mut reader = connect(&server);
                reader.write_all("GET big\r\n".repeat(50).as_bytes()).expect("the server reads");
                reader
            })
            .collect();
        wait_until(|| field(&mut info, "skep_connection_memory_used") > 100 * MIB);
        // Small buffers are allocated in the middle of the heaps and stay there.
        for number in 1..200 {
            let mut small = connect(&server);
            assert_eq!(reply(&mut small, &format!("SET {number} {}", "s".repeat(number * 50))), "+OK");
        }
        drop(readers);
        wait_until(|| field(&mut info, "skep_connection_memory_used") < MIB);
        // The buffers of the shards and the stored values remain.
        wait_until(|| field(&mut info, "used_memory_rss") < before + 32 * MIB);
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.resp.as_ref().expect("the RESP port is on")).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream
}

/// Sends a request. Returns the reply, which is one line.
fn reply(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).and_then(|()| stream.write_all(b"\r\n")).expect("it reads");
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("it replies");
        line.push(byte[0]);
    }
    text(&line).trim_end().to_owned()
}

/// Returns a number of INFO.
fn field(stream: &mut TcpStream, name: &str) -> u64 {
    let size: usize = reply(stream, "INFO clients memory")[1..].parse().expect("the size of a text");
    let mut bytes = vec![0; size + 2];
    stream.read_exact(&mut bytes).expect("a text");
    let text = text(&bytes);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{text}")).parse().expect("a number")
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "it never happens");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn bad_flags_are_refused_in_one_line() {
    for (arguments, parts) in [
        (&["serve", "--memry", "1GiB"][..], &["--memry", "--memory"][..]),
        (&["serve", "--memory", "4G"], &["`4G`", "--memory", "4GiB"]),
        (&["serve", "--memory"], &["--memory", "value"]),
        (&["serve", "--ordered-memory", "4G"], &["`4G`", "--ordered-memory", "4GiB", "or off"]),
        (&["serve", "--shards", "0"], &["--shards", "1 to 256"]),
        (&["serve", "--listen", "7379"], &["--listen", "127.0.0.1:7379"]),
        (&["serve", "--resp", "no"], &["--resp", "off"]),
        (&["serve", "--hash-index-ratio", "2"], &["--hash-index-ratio", "below 1"]),
        (&["serve", "--inline-threshold", "51"], &["--inline-threshold", "50"]),
        (&["serve", "extra"], &["extra"]),
        (&["sevre"], &["sevre", "serve"]),
        (&["serve", "--shards", "two"], &["--shards", "`two`", "whole number"]),
        (&["cli", "put", "k"], &["<VALUE>", "skep cli put --help"]),
        (&["cli", "incr", "k", "x"], &["DELTA", "`x`", "write a whole number"]),
        (&["cli", "update", "k", "add", "i64"], &["add takes one operand for all"]),
        (&["cli", "filter", "k", "gt", "i64"], &["greater takes one operand"]),
        (&["cli", "update", "k", "plus", "i64", "1"], &["plus", "add, sub"]),
        (&["cli", "update", "k", "add", "i65", "1"], &["i65", "u8, u16"]),
        (&["cli", "update", "k", "add", "i64", "1.5"], &["1.5", "i64"]),
        (&["cli", "update", "k", "xor", "f64", "1"], &["not defined"]),
        (&["cli", "update", "k", "cas", "i64", "1"], &["operand", "takes two operands, expected and new"]),
        (&["cli", "put", "", "v"], &["key is empty"]),
        (&["bench", "--workload", "z"], &["--workload", "'z'"]),
        (&["bench", "--key-size", "0"], &["--key-size", "1 to 460"]),
        (&["bench", "--key-size", "1", "--records", "257"], &["--key-size"]),
        (&["bench", "--addr", "127.0.0.1:1", "--embedded"], &["--addr", "--embedded"]),
    ] {
        assert_refusal(&refusal(arguments), 2, parts);
    }
}

#[test]
fn a_bad_configuration_file_is_refused_with_its_line() {
    let path = file("bad.toml");
    let shown = path.to_str().expect("the path is UTF-8").to_owned();
    fs::write(&path, "# my settings\nmemory = \"4GiB\"\nshards = 0\n").expect("a file can be written");
    assert_refusal(&refusal(&["serve", "--config", &shown]), 2, &[&shown, "line 3", "`shards`", "1 to 256"]);
    fs::write(&path, [0xff, 0xfe]).expect("a file can be written");
    assert_refusal(&refusal(&["serve", "--config", &shown]), 2, &[&shown, "UTF-8"]);
    fs::remove_file(&path).expect("a file can be removed");
    assert_refusal(&refusal(&["serve", "--config", &shown]), 2, &[&shown, "No such file", "--print-config"]);
}

#[test]
fn the_printed_configuration_can_be_used() {
    let path = file("default.toml");
    let printed = output(&["serve", "--print-config"]);
    assert_eq!(printed.status.code(), Some(0));
    fs::write(&path, &printed.stdout).expect("a file can be written");
    let server = Server::start(&["--config", path.to_str().expect("the path is UTF-8")]);
    assert!(server.screen.contains("64 MiB in 2 shards"), "the flags override the file: {}", server.screen);
    fs::remove_file(&path).expect("a file can be removed");
}

#[test]
fn the_version_is_one_line() {
    for flag in ["-v", "-V", "--version"] {
        let version = output(&[flag]);
        assert_eq!(version.status.code(), Some(0));
        assert_eq!(text(&version.stdout), concat!("skep ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}
