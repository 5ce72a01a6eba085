//! Runs the soak for half a minute, times `SKEP_LONG`: no witness gets a wrong reply or an error, and the server ends after SIGTERM.
//! Latencies are not checked here.
//!
//! The test uses the program that `cargo test --workspace` has built next to it, with the checks of the development
//! profile. If only this package is tested (`-p skep-benches`), run `cargo build -p skep` first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use skep_benches::soak::{Plan, run};
use skep_measure::Progress;

#[test]
fn attacks_do_not_affect_the_witnesses() {
    if std::env::var_os("SKEP_FULL").is_none() {
        println!("skipped: set SKEP_FULL=1 to run the soak");
        return;
    }
    let factor: u64 = std::env::var("SKEP_LONG").map_or(1, |factor| factor.parse().expect("SKEP_LONG is a number"));
    let plan = Plan { skep: built(), seconds: 30 * factor, judge: false, interrupted: Arc::default() };
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
