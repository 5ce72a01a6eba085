//! Runs a thousand connections for half a minute: half of them are slow or silent, and the others get every reply.
//! Latencies are not checked here.
//!
//! The test uses the program that `cargo test --workspace` has built next to it, with the checks of the development
//! profile. If only this package is tested (`-p skep-benches`), run `cargo build -p skep` first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use skep_benches::connections::{Plan, run};
use skep_measure::Progress;

/// Seconds of the crowded phase. `SKEP_LONG` multiplies them.
const SECONDS: u64 = 30;

#[test]
fn slow_silent_and_reset_connections_do_not_affect_the_others() {
    if std::env::var_os("SKEP_FULL").is_none() {
        println!("skipped: set SKEP_FULL=1 to run the connections");
        return;
    }
    let factor: u64 = std::env::var("SKEP_LONG").map_or(1, |factor| factor.parse().expect("SKEP_LONG is a number"));
    let plan = Plan { seconds: SECONDS * factor, skep: built(), judge: false, interrupted: Arc::default() };
    let report = run(&plan, &Progress::shown()).expect("the server starts");
    println!("{}", report.text());
    let failures = report.failures();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Returns the program in the parent folder of the tests.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let skep = test.parent().and_then(Path::parent).expect("target/debug/deps").join("skep");
    assert!(skep.is_file(), "{} is not built: cargo build -p skep", skep.display());
    skep
}
