//! Measures all figures of durability quickly: every server starts, keeps its data and replies as expected. No figure
//! is compared with its bar here.
//!
//! The test uses the program that `cargo test --workspace` has built next to it, with the checks of the development
//! profile. If only this package is tested (`-p skep-benches`), run `cargo build -p skep` first.

use std::path::{Path, PathBuf};

use skep_benches::durability::{Plan, run};
use skep_benches::program::Measured;
use skep_measure::Progress;

#[test]
fn all_figures_of_durability_can_be_measured() {
    if std::env::var_os("SKEP_FULL").is_none() {
        println!("skipped: set SKEP_FULL=1 to measure durability quickly");
        return;
    }
    let skep = built();
    let dir = skep.parent().expect("a program is in a folder").to_owned();
    let plan = Plan { sections: Vec::new(), dir, keys: 0, seconds: 0.0, rounds: 0, quick: true, skep };
    let report = run(&plan, &Progress::shown()).expect("all figures");
    println!("{}", report.tables().text());
    assert_eq!(report.rows.len(), 19, "{:?}", report.rows);
}

/// Returns the program in the parent folder of the tests.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let skep = test.parent().and_then(Path::parent).expect("target/debug/deps").join("skep");
    assert!(skep.is_file(), "{} is not built: cargo build -p skep", skep.display());
    skep
}
