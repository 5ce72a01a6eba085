//! Compares the commands of administrators with those of `redis-server`, and runs the tools that read them: `redis-cli`
//! and the exporter of Prometheus.

mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;
#[path = "redis/wire.rs"]
mod wire;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use full_run::is_full_run;
use process::Server;
use wire::{Arguments, Connection, Redis};

/// Commands whose replies do not depend on the server: most are refused.
const LINES: &[&str] = &[
    "CLIENT",
    "CLIENT NOSUCH",
    "CLIENT ID x",
    "CLIENT INFO x",
    "CLIENT GETNAME x",
    "CLIENT GETNAME",
    "CLIENT SETNAME",
    "CLIENT SETNAME a b",
    "CLIENT SETNAME a",
    "CLIENT GETNAME",
    "CLIENT LIST TYPE foo",
    "CLIENT LIST TYPE master",
    "CLIENT LIST TYPE pubsub",
    "CLIENT LIST ID x",
    "CLIENT LIST ID 1 x",
    "CLIENT LIST FOO",
    "CLIENT LIST ID",
    "CLIENT LIST TYPE",
    "CLIENT LIST ID 99999",
    "CLIENT KILL",
    "CLIENT KILL foo",
    "CLIENT KILL 1.2.3.4:5",
    "CLIENT KILL ID x",
    "CLIENT KILL ID 0",
    "CLIENT KILL ID -1",
    "CLIENT KILL ID 99999",
    "CLIENT KILL TYPE foo",
    "CLIENT KILL TYPE replica",
    "CLIENT KILL USER nosuch",
    "CLIENT KILL SKIPME maybe",
    "CLIENT KILL SKIPME yes",
    "CLIENT KILL FOO bar",
    "CLIENT KILL ID 1 ADDR",
    "CLIENT KILL ADDR 1.2.3.4:5",
    "CLIENT KILL LADDR 1.2.3.4:5",
    "CLIENT PAUSE",
    "CLIENT PAUSE x",
    "CLIENT PAUSE -1",
    "CLIENT PAUSE 1 FOO",
    "CLIENT PAUSE 1.5",
    "CLIENT PAUSE 99999999999999999999",
    "CLIENT PAUSE 1 WRITE",
    "CLIENT PAUSE 1 ALL",
    "CLIENT PAUSE 0",
    "CLIENT UNPAUSE x",
    "CLIENT UNPAUSE",
    "CLIENT REPLY",
    "CLIENT REPLY foo",
    "CLIENT REPLY ON",
    "CLIENT REPLY ON x",
    "CLIENT NO-EVICT foo",
    "CLIENT NO-EVICT",
    "CLIENT NO-EVICT on",
    "CONFIG",
    "CONFIG NOSUCH",
    "CONFIG GET",
    "CONFIG GET nosuch",
    "CONFIG SET",
    "CONFIG SET timeout",
    "CONFIG SET timeout x",
    "CONFIG SET timeout -1",
    "CONFIG SET timeout 99999999999",
    "CONFIG SET timeout 1 timeout 2",
    "CONFIG SET nosuch 1",
    "CONFIG SET timeout 1 x",
    "CONFIG SET timeout 1 nosuch 2",
    "CONFIG SET databases 3",
    "CONFIG GET timeout",
    "CONFIG SET protected-mode maybe",
    "CONFIG SET slowlog-log-slower-than -2",
    "CONFIG SET slowlog-log-slower-than x",
    "CONFIG SET tcp-keepalive 99999999999",
    "CONFIG SET tcp-keepalive 77",
    "CONFIG GET tcp-keepalive",
    "CONFIG SET slowlog-max-len x",
    "CONFIG SET SLOWLOG-MAX-LEN 5",
    "CONFIG GET slowlog-max-len",
    "CONFIG RESETSTAT x",
    "CONFIG RESETSTAT",
    "CONFIG REWRITE x",
    "CONFIG GET save",
    "CONFIG GET appendonly",
    "CONFIG SET save ''",
    "CONFIG SET appendonly no",
    "SLOWLOG",
    "SLOWLOG GET x",
    "SLOWLOG GET -2",
    "SLOWLOG GET 1 2",
    "SLOWLOG LEN x",
    "SLOWLOG RESET x",
    "SLOWLOG NOSUCH",
    "SLOWLOG RESET",
    "LATENCY",
    "LATENCY LATEST",
    "LATENCY LATEST x",
    "LATENCY HISTORY foo",
    "LATENCY HISTORY",
    "LATENCY RESET",
    "LATENCY RESET foo",
    "LATENCY GRAPH foo",
    "LATENCY GRAPH",
    "LATENCY HISTOGRAM nosuch",
    "LATENCY NOSUCH",
    "ACL",
    "ACL NOSUCH",
    "ACL WHOAMI",
    "ACL WHOAMI x",
    "ACL LIST",
    "ACL USERS",
    "ACL CAT foo",
    "ACL CAT",
    "ACL LIST x",
    "ROLE",
    "ROLE x",
    "WAIT",
    "WAIT 0 0",
    "WAIT 1 1",
    "WAIT x 1",
    "WAIT 1 x",
    "WAIT 1 -1",
    "WAIT 1 1 1",
    "TIME x",
    "SHUTDOWN ABORT",
    "SHUTDOWN FOO",
    "SHUTDOWN SAVE NOSAVE",
    "SHUTDOWN ABORT NOW",
    "DEBUG",
    "MONITOR x",
    "RESET x",
    "HELLO x",
    "HELLO 1",
    "HELLO 2 FOO",
    "HELLO 2 SETNAME",
    "HELLO 2 AUTH default",
    "HELLO 2 AUTH nosuch x",
    "HELLO 2 SETNAME 'a b'",
    "AUTH",
    "AUTH x",
    "AUTH nosuch x",
    "AUTH default x",
    "AUTH a b c",
    "COMMAND NOSUCH",
    "COMMAND COUNT x",
    "COMMAND LIST x",
    "COMMAND LIST FILTERBY",
    "COMMAND LIST FILTERBY FOO bar",
    "COMMAND LIST FILTERBY MODULE foo",
    "COMMAND LIST FILTERBY ACLCAT nosuch",
    "COMMAND LIST FILTERBY PATTERN getb*",
    "COMMAND GETKEYS",
    "COMMAND GETKEYS get",
    "COMMAND GETKEYS get a",
    "COMMAND GETKEYS mset a b c d",
    "COMMAND GETKEYS nosuch a",
    "COMMAND GETKEYS ping x",
    "COMMAND GETKEYS get a b",
    "COMMAND INFO nosuch",
    "COMMAND DOCS nosuch",
    "INFO a b",
    "SELECT",
    "SELECT x",
    "SELECT 99",
    "PING a b",
    "ECHO",
    "QUITT",
    "RESET",
    "PING",
];

/// Commands before and after the password is known.
const LOCKED_LINES: &[&str] = &[
    "GET a",
    "PING",
    "NOSUCH",
    "GET",
    "CLIENT ID",
    "CLIENT NOSUCH",
    "CONFIG GET x",
    "HELLO",
    "HELLO 2",
    "HELLO 9",
    "HELLO x",
    "HELLO 2 FOO",
    "HELLO 2 AUTH default wrong",
    "HELLO 2 AUTH nosuch ham",
    "HELLO 9 AUTH default ham",
    "AUTH",
    "AUTH wrong",
    "AUTH default wrong",
    "AUTH nosuch ham",
    "AUTH a b c",
    "AUTH ''",
    "RESET",
    "GET a",
    "AUTH ham",
    "GET a",
    "AUTH wrong",
    "GET a",
    "AUTH default ham",
    "RESET",
    "GET a",
];

/// Splits a line into words; '' is an empty one, and quotes join words.
fn words(line: &str) -> Arguments {
    let quoted = line.split('\'').enumerate().flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
        _ => vec![part.to_owned()],
    });
    quoted.map(String::into_bytes).collect()
}

fn differences(lines: &[&str], redis: &mut Connection, skep: &mut Connection) -> Vec<String> {
    let mut found = Vec::new();
    for line in lines {
        let command = [words(line)];
        let (expected, reply) = (redis.run(&command), skep.run(&command));
        if expected != reply {
            let show = |reply: &[Vec<u8>]| reply[0].escape_ascii().to_string();
            found.push(format!("{line}\n  redis: {}\n  skep:  {}", show(&expected), show(&reply)));
        }
    }
    found
}

fn connect(server: &Server) -> Connection {
    Connection::to_address(server.resp.as_ref().expect("the server listens for RESP"))
}

#[test]
fn wrong_arguments_have_the_errors_of_redis() {
    if !is_full_run() {
        return;
    }
    for version in ["2", "3"] {
        let redis = Redis::start(&format!("administration-{version}"));
        let server = Server::start(&[]);
        let (mut redis, mut skep) = (redis.connect(), connect(&server));
        for connection in [&mut redis, &mut skep] {
            connection.run(&[words(&format!("HELLO {version}"))]);
        }
        let found = differences(LINES, &mut redis, &mut skep);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn a_password_is_asked_for_as_by_redis() {
    if !is_full_run() {
        return;
    }
    let redis = Redis::start("password");
    let server = Server::start(&[]);
    for connection in [&mut redis.connect(), &mut connect(&server)] {
        assert_eq!(connection.run(&[words("CONFIG SET requirepass ham")]), [b"+OK\r\n"]);
    }
    let found = differences(LOCKED_LINES, &mut redis.connect(), &mut connect(&server));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns the lines of a reply: numbers and texts.
fn flat(reply: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(reply).into_owned();
    text.lines().filter(|line| !line.starts_with(['$', '*'])).map(str::to_owned).collect()
}

#[test]
fn commands_are_described_as_by_redis() {
    if !is_full_run() {
        return;
    }
    let redis = Redis::start("descriptions");
    let server = Server::start(&[]);
    let (mut redis, mut skep) = (redis.connect(), connect(&server));
    let names = flat(&skep.run(&[words("COMMAND LIST")])[0]);
    let mut compared = 0;
    for name in names {
        let command = [words(&format!("COMMAND INFO {name}"))];
        let (expected, reply) = (flat(&redis.run(&command)[0]), flat(&skep.run(&command)[0]));
        // Redis describes commands with subcommands by these alone.
        let has_subcommands = expected.iter().any(|line| line.starts_with(&format!("{name}|")));
        if expected.is_empty() || has_subcommands && name != "command" {
            continue;
        }
        compared += 1;
        let described = |lines: &[String]| {
            let mut lines: Vec<String> = lines
                .iter()
                .take_while(|line| !matches!(line.as_str(), "flags" | "notes") && !line.contains('|'))
                .cloned()
                .collect();
            // Redis goes on with tips.
            lines.retain(|line| {
                !["request_policy", "response_policy", "nondeterministic"].iter().any(|tip| line.starts_with(tip))
            });
            lines.sort();
            lines
        };
        assert_eq!(described(&reply), described(&expected), "{name}");
    }
    assert!(compared > 50, "only {compared} commands were compared");
}

fn redis_cli(server: &Server, arguments: &[&str], input: &str) -> String {
    let (host, port) = server.resp.as_ref().expect("the server listens for RESP").rsplit_once(':').expect("a port");
    let mut command = Command::new("redis-cli");
    command.args(["-h", host, "-p", port]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("redis-cli: {error}; Debian has it in redis-tools"));
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("redis-cli reads");
    process::text(&child.wait_with_output().expect("redis-cli ends").stdout)
}

#[test]
fn redis_cli_reads_what_the_server_tells() {
    if !is_full_run() {
        return;
    }
    let server = Server::start(&["--requirepass", "ham"]);
    let pipe: String = (0..1000).map(|key| format!("SET key{key} value\r\n")).collect();
    let printed = redis_cli(&server, &["-a", "ham", "--no-auth-warning", "--pipe"], &pipe);
    assert!(printed.contains("errors: 0, replies: 1000"), "{printed}");
    let printed = redis_cli(&server, &["--no-auth-warning", "-a", "ham"], "SELECT 1\nSET a 1\nGET a\nACL WHOAMI\n");
    assert_eq!(printed, "OK\nOK\n1\ndefault\n");
}

/// Ends a process when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn the_exporter_of_prometheus_reads_info_without_an_error() {
    if !is_full_run() {
        return;
    }
    let server = Server::start(&["--requirepass", "ham"]);
    let mut resp = connect(&server);
    for line in ["AUTH ham", "SET a 1", "GET a", "GET", "SELECT 1", "SET b 1"] {
        resp.run(&[words(line)]);
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = server.resp.as_ref().expect("the server listens for RESP");
    let mut command = Command::new("prometheus-redis-exporter");
    command.arg(format!("-redis.addr=redis://{address}")).arg("-redis.password=ham");
    command.arg(format!("-web.listen-address=127.0.0.1:{port}")).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn();
    let _exporter = Running(
        child.unwrap_or_else(|error| panic!("prometheus-redis-exporter: {error}; Debian has a package of this name")),
    );
    let begun = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "the exporter does not start: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    for line in [
        "redis_up 1",
        "redis_exporter_last_scrape_error{err=\"\"} 0",
        "redis_commands_total{cmd=\"get\"} 1",
        "redis_commands_rejected_calls_total{cmd=\"get\"} 1",
        "redis_errors_total{err=\"ERR\"} 1",
        "redis_db_keys{db=\"db0\"} 1",
        "redis_db_keys{db=\"db1\"} 1",
        "redis_config_maxclients 10000",
    ] {
        assert!(metrics.lines().any(|other| other == line), "{line} is not in\n{metrics}");
    }
    for part in ["redis_latency_percentiles_usec{cmd=\"get\",quantile=\"99.9\"}", "\nredis_slowlog_length "] {
        assert!(metrics.contains(part), "{part} is not in\n{metrics}");
    }
}
