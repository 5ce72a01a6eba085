//! Runs the modes of `redis-cli` that do not end by themselves: with a terminal, `--stat` and `--latency`.
//! `full_redis.rs` and `full_administration.rs` run the others.

mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use full_run::is_full_run;
use process::Server;

fn host_and_port(server: &Server) -> (&str, &str) {
    server.resp.as_ref().expect("the server listens for RESP").rsplit_once(':').expect("an address has a port")
}

/// A tool whose output is read while it runs.
struct Tool(Child);

impl Tool {
    fn start(command: &mut Command) -> Tool {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Tool(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}; Debian has it in redis-tools")))
    }

    fn send(&mut self, text: &str) {
        self.0.stdin.as_mut().expect("a pipe").write_all(text.as_bytes()).expect("the tool reads");
    }

    /// Reads until the output ends with this text. Returns the output.
    fn read_until(&mut self, end: &str) -> String {
        let stdout = self.0.stdout.as_mut().expect("a pipe");
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            let mut byte = [0];
            stdout.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {}", bytes.escape_ascii()));
            bytes.push(byte[0]);
        }
        process::text(&bytes)
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Runs redis-cli on a terminal, which `script` makes. The tool asks a terminal without a size for the position of the
/// cursor, and waits for the reply.
fn on_terminal(server: &Server, arguments: &str) -> Tool {
    let (host, port) = host_and_port(server);
    let command = format!("stty cols 100; exec redis-cli -h {host} -p {port} {arguments}");
    Tool::start(Command::new("script").args(["--quiet", "--command", &command, "/dev/null"]).env("TERM", "xterm"))
}

#[test]
fn redis_cli_has_a_dialogue_on_a_terminal() {
    if !is_full_run() {
        return;
    }
    let server = Server::start(&[]);
    let (host, port) = host_and_port(&server);
    let mut cli = on_terminal(&server, "");
    cli.read_until(&format!("{host}:{port}> "));
    for (line, space, reply) in [
        ("SET a 1", "", "OK"),
        ("INCRBY a 41", "", "(integer) 42"),
        ("GET a", "", "\"42\""),
        ("GET missing", "", "(nil)"),
        ("MGET a missing", "", "1) \"42\"\r\n2) (nil)"),
        ("LPUSH a 1", "", "(error) ERR unknown command"),
        ("HELP GET", "", "summary:"),
        ("SELECT 1", "[1]", "OK"),
        ("SKEP.COUNT - +", "[1]", "(integer) 0"),
    ] {
        cli.send(&format!("{line}\r"));
        // The tool draws the prompt and the line again for each key, until the line ends.
        cli.read_until("\r\n");
        let printed = cli.read_until(&format!("{host}:{port}{space}> "));
        assert!(
            printed.starts_with(reply) || line.starts_with("HELP") && printed.contains(reply),
            "{line}: {printed:?}"
        );
    }
    cli.send("QUIT\r");
    assert!(process::wait(&mut cli.0).success());
}

#[test]
fn redis_cli_prints_statistics_and_latencies() {
    if !is_full_run() {
        return;
    }
    let server = Server::start(&[]);
    let (host, port) = host_and_port(&server);
    assert!(server.cli(&["put", "k", "v"]).status.success());
    let mut stat = on_terminal(&server, "--stat -i 0.05");
    let titles = stat.read_until("connections          \r\n");
    assert!(titles.contains("- data -") && titles.contains("\nkeys "), "{titles:?}");
    for _ in 0..3 {
        // Keys, memory, clients, blocked clients, requests with their increase, connections.
        let line = stat.read_until("\r\n");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.len() == 7 && words[0] == "1" && words[2] != "0" && words[3] == "0", "{line:?}");
    }
    let mut latency = Command::new("redis-cli");
    latency.args(["-h", host, "-p", port, "--latency", "-i", "0.2"]);
    let output = latency.output().expect("redis-cli ran above");
    // Minimum, maximum and average in milliseconds, and the number of samples.
    let printed = process::text(&output.stdout);
    let numbers: Vec<f64> = printed.split_whitespace().map(|word| word.parse().expect(&printed)).collect();
    assert!(
        numbers.len() == 4 && numbers[0] <= numbers[2] && numbers[2] <= numbers[1] && numbers[3] > 0.0,
        "{printed}"
    );
}
