//! Half a minute of the soak: no witness meets a wrong reply or an error, and the server ends when it is told to. How fast
//! it is, is not judged here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use skep_benches::soak::{Plan, run};

#[test]
fn witnesses_do_not_notice_the_attacks() {
    if std::env::var_os("SKEP_FULL").is_none() {
        println!("left out: set SKEP_FULL=1 to run the soak");
        return;
    }
    let report = run(&Plan { skep: built(), time: Duration::from_secs(30), interrupted: Arc::default() })
        .expect("the server starts");
    println!("{}", report.text());
    let failures = report.failures();
    assert!(failures.is_empty(), "{}\n{}", report.text(), failures.join("\n"));
}

/// The program, built as the tests of its own crate build it: with the checks of the development profile.
fn built() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let status = Command::new(env!("CARGO")).args(["build", "-p", "skep"]).current_dir(root).status();
    assert!(status.expect("cargo starts").success());
    let test = std::env::current_exe().expect("this test has a path");
    let folder = test.parent().and_then(Path::parent).expect("target/debug/deps");
    folder.join("skep")
}
