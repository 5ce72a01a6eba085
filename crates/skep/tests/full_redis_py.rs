//! Runs redis-py, unmodified and with its default settings, against the program: the tests are in `redis/redis_py.py`.
//! The library is installed from PyPI into an environment of its own, in the target folder.
//!
//! `SKEP_LONG` multiplies the transfers of each of 100 clients.

mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use full_run::is_full_run;
use process::Server;

/// The version of redis-py that is installed.
const VERSION: &str = "8.1.0";

/// Runs a program that must succeed.
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; Debian has it in python3-venv"));
    let (out, err) = (process::text(&output.stdout), process::text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
}

/// Returns a Python that has redis-py.
fn python() -> &'static PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("redis-py-{VERSION}"));
        let (python, mark) = (folder.join("bin/python"), folder.join("installed"));
        if !mark.exists() {
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
            let package = format!("redis=={VERSION}");
            run(Command::new(&python).args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                &package,
            ]));
            fs::write(mark, "").expect("the folder can be written");
        }
        python
    })
}

/// Runs a test of the script with every protocol, each on a server of its own.
fn run_script(test: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis/redis_py.py");
    for protocol in ["2", "3", "default"] {
        let server = Server::start(&[]);
        let (_, port) = server.resp.as_ref().and_then(|address| address.rsplit_once(':')).expect("it speaks RESP");
        run(Command::new(python()).arg(&script).args([port, protocol, test]));
    }
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

script_tests!(values, administration, pipelines, expiry, scan_while_others_write, lock, transactions, transfers);
