//! Half a minute of the soak: no witness meets a wrong reply or an error, and the server ends when it is told to. How fast
//! it is, is not judged here.
//!
//! It takes the program that `cargo test --workspace` has built beside it, with the checks of the development profile. Run
//! alone (`-p skep-benches`), it wants `cargo build -p skep` first.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use skep_benches::soak::{Plan, run};

#[test]
fn witnesses_do_not_notice_the_attacks() {
    if std::env::var_os("SKEP_FULL").is_none() {
        println!("left out: set SKEP_FULL=1 to run the soak");
        return;
    }
    let plan = Plan { skep: built(), time: Duration::from_secs(30), interrupted: Arc::default() };
    let report = run(&plan).expect("the server starts");
    println!("{}", report.text());
    let failures = report.failures();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The program beside the folder of the tests.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let skep = test.parent().and_then(Path::parent).expect("target/debug/deps").join("skep");
    assert!(skep.is_file(), "{} is not built: cargo build -p skep", skep.display());
    skep
}
