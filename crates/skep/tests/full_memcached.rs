//! Runs clients of memcached, unmodified, against the program: `memccapable` of libmemcached, and pymemcache from PyPI
//! (`memcached/pymemcache_tests.py`). Compares the replies of the program with those of `memcached`.
//!
//! `SKEP_LONG` multiplies the random commands that are compared, and `SKEP_SEED` is their seed.

#[path = "memcached/commands.rs"]
mod commands;
mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;
mod setting;
#[path = "memcached/wire.rs"]
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use commands::Commands;
use full_run::is_full_run;
use process::Server;
use setting::setting;
use wire::{Connection, Memcached};

/// The version of pymemcache that is installed.
const VERSION: &str = "4.0.0";
/// Random commands that are compared. `SKEP_LONG` multiplies them.
const COMMAND_COUNT: u64 = 100_000;
/// Commands that are sent before their replies are read, at most.
const PIPELINE_MAX: u64 = 64;

/// Starts a server with a cache that evicts nothing in these tests.
fn server(shards: &str) -> Server {
    let mut command =
        process::skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--memory", "64MiB"]);
    command.args(["--memcached", "127.0.0.1:0", "--cache-memory", "256MiB", "--ordered-memory", "off"]);
    Server::start_command(command.args(["--shards", shards]))
}

/// Returns the address of a server's memcached port.
fn address(server: &Server) -> &str {
    let line = server.screen.lines().find_map(|line| line.trim_start().strip_prefix("memcached "));
    line.expect("the screen names the port").trim()
}

fn port(server: &Server) -> &str {
    address(server).rsplit_once(':').expect("an address has a port").1
}

/// Runs a program that must succeed. Returns its standard output.
fn run(command: &mut Command, package: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; Debian has it in {package}"));
    let (out, err) = (process::text(&output.stdout), process::text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out
}

/// The option `-a` leaves out the binary protocol.
#[test]
fn memccapable_passes() {
    if !is_full_run() {
        return;
    }
    for shards in ["1", "2"] {
        let server = server(shards);
        let mut command = Command::new("memccapable");
        let report = run(command.args(["-a", "-h", "127.0.0.1", "-p", port(&server)]), "libmemcached-tools");
        assert!(report.contains("All tests passed") && report.matches("[pass]").count() == 27, "{report}");
    }
}

/// Runs a test of the script on a server of its own, with a Python that has pymemcache.
fn run_script(test: &str) {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    let python = PYTHON.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pymemcache-{VERSION}"));
        let (python, mark) = (folder.join("bin/python"), folder.join("installed"));
        if !mark.exists() {
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder), "python3-venv");
            let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
            run(Command::new(&python).args(install).arg(format!("pymemcache=={VERSION}")), "python3-venv");
            fs::write(mark, "").expect("the folder can be written");
        }
        python
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/memcached/pymemcache_tests.py");
    let server = server("2");
    run(Command::new(python).arg(&script).args([port(&server), test]), "python3");
}

/// Defines a test for each test of the script.
macro_rules! script_tests {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                if is_full_run() {
                    run_script(stringify!($name));
                }
            }
        )*
    };
}

script_tests!(values, numbers, conditions, several_keys, expiry, meta, statistics, many_clients);

#[test]
fn random_commands_have_the_replies_of_memcached() {
    if !is_full_run() {
        return;
    }
    let first_seed = setting("SKEP_SEED", 1);
    let count = COMMAND_COUNT * setting("SKEP_LONG", 1);
    for (seed, shards) in (first_seed..).zip(["1", "2"]) {
        println!("seed {seed}: {shards} shards");
        let memcached = Memcached::start(&format!("random-{shards}"));
        let server = server(shards);
        let (mut memcached, mut skep) = (memcached.connect(), Connection::to_address(address(&server)));
        let mut commands = Commands::new(seed);
        let mut left = count / 2;
        while left > 0 {
            let pipeline = commands.pipeline(PIPELINE_MAX.min(left));
            left -= pipeline.len() as u64;
            let (expected, found) = (memcached.run(&pipeline), skep.run(&pipeline));
            for (index, command) in pipeline.iter().enumerate() {
                if !wire::agree(&expected[index], &found[index]) {
                    let before: String = pipeline[..index].iter().map(|command| show(command)).collect();
                    panic!(
                        "seed {seed}, {shards} shards, {left} commands before the end:\n{before}{}  memcached: {}  skep: {}",
                        show(command),
                        show(&expected[index]),
                        show(&found[index])
                    );
                }
            }
        }
    }
}

fn show(bytes: &[u8]) -> String {
    format!("{}\n", bytes[..bytes.len().min(300)].escape_ascii())
}
