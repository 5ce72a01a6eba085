//! Runs the tools of Redis users, unmodified, against the program: `redis-cli` and `redis-benchmark`.

#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;

use std::process::Command;

use process::Server;

/// Returns true if the full tests are enabled. A missing tool is then a failure.
fn is_full_run() -> bool {
    let is_enabled = std::env::var("SKEP_FULL").is_ok_and(|value| value == "1");
    if !is_enabled {
        println!("skipped: set SKEP_FULL=1 to run it");
    }
    is_enabled
}

/// Runs a tool on the server's RESP port. Returns its standard output.
fn tool(name: &str, server: &Server, arguments: &[&str]) -> String {
    let address = server.resp.as_ref().expect("the server listens for RESP");
    let (host, port) = address.rsplit_once(':').expect("an address has a port");
    let mut command = Command::new(name);
    command.args(["-h", host, "-p", port]).args(arguments);
    let output = command.output().unwrap_or_else(|error| panic!("{name}: {error}; Debian has it in redis-tools"));
    let (out, err) = (process::text(&output.stdout), process::text(&output.stderr));
    assert!(output.status.success() && err.is_empty(), "{command:?}: {}\n{out}{err}", output.status);
    out
}

#[test]
fn redis_cli_sets_increments_and_gets() {
    if !is_full_run() {
        return;
    }
    let server = Server::start(&[]);
    let cli = |words: &[&str]| tool("redis-cli", &server, words);
    assert_eq!(cli(&["SET", "a", "1"]), "OK\n");
    assert_eq!(cli(&["INCRBY", "a", "41"]), "42\n");
    assert_eq!(cli(&["GET", "a"]), "42\n");
    assert_eq!(cli(&["GET", "nothing"]), "\n");
    assert_eq!(cli(&["-3", "SKEP.UPDATE", "hits", "add", "i64", "5", "INIT", "0"]), "0\n");
    assert_eq!(cli(&["SKEP.SET", "v", "i64", "1", "2", "3"]), "OK\n");
    assert_eq!(cli(&["SKEP.REDUCE", "v", "sum", "i64", "0"]), "6\n");
    assert_eq!(cli(&["SKEP.FILTER", "v", "gt", "i64", "1"]), "2\n3\n");
    assert_eq!(cli(&["MSET", "x", "1", "y", "2"]), "OK\n");
    assert_eq!(cli(&["MGET", "x", "nothing", "y"]), "1\n\n2\n");
    assert_eq!(cli(&["EXISTS", "x", "y", "nothing"]), "2\n");
    assert_eq!(cli(&["DEL", "x", "y", "nothing"]), "2\n");
    assert_eq!(cli(&["DBSIZE"]), "3\n");
    assert!(cli(&["INFO"]).contains("skep_version:"));
    assert_eq!(cli(&["-n", "1", "MSET", "user:2", "alan", "user:1", "ada", "x", "1"]), "OK\n");
    assert_eq!(cli(&["-n", "1", "INCRBY", "x", "41"]), "42\n");
    assert_eq!(cli(&["-n", "1", "SKEP.PREFIX", "user:"]), "\nuser:1\nada\nuser:2\nalan\n");
    assert_eq!(cli(&["-n", "1", "SKEP.SCAN", "[user:1", "+", "REV", "KEYS", "LIMIT", "2"]), "user:2\nx\nuser:2\n");
    assert_eq!(cli(&["-n", "1", "SKEP.COUNT", "-", "+"]), "3\n");
    assert_eq!(cli(&["-n", "1", "SKEP.FLOOR", "user:9"]), "user:2\nalan\n");
    assert!(cli(&["SKEP.COUNT", "-", "+"]).starts_with("ERR this space has no order"));
    let refused = cli(&["NOSUCH", "command"]);
    assert!(refused.starts_with("ERR unknown command 'NOSUCH', with args beginning with: 'command'"), "{refused}");
}

#[test]
fn redis_benchmark_finishes_without_errors() {
    if !is_full_run() {
        return;
    }
    let server = Server::start(&[]);
    for random in [&[][..], &["-r", "100000"][..]] {
        let arguments = [&["-t", "set,get,incr", "-P", "32", "-n", "500000", "--csv"], random].concat();
        let report = tool("redis-benchmark", &server, &arguments);
        for test in ["SET", "GET", "INCR"] {
            assert!(report.contains(&format!("\"{test}\",")), "{report}");
        }
        assert!(!report.to_lowercase().contains("error"), "{report}");
    }
    assert!(tool("redis-cli", &server, &["INFO", "stats"]).contains("total_error_replies:0"));
    let total: u64 = tool("redis-cli", &server, &["GET", "counter:__rand_int__"]).trim().parse().expect("a number");
    assert_eq!(total, 500_000, "the INCRs of the run without random keys");
}
