//! Changes vectors in all ways, quickly: `skep bench vectors` checks that those in redis-server increment each element.
//! No figure is compared here.
//!
//! The test uses the program that `cargo test --workspace` has built next to it, with the checks of the development
//! profile. If only this package is tested (`-p skep-benches`), run `cargo build -p skep` first.

use std::path::{Path, PathBuf};

use skep_benches::program::Measured;
use skep_benches::vectors::{Plan, run};
use skep_measure::{Progress, VectorLine};

#[test]
fn all_ways_to_change_vectors_can_be_measured() {
    if std::env::var_os("SKEP_FULL").is_none() {
        println!("skipped: set SKEP_FULL=1 to change vectors in all ways");
        return;
    }
    let tiny = "--sizes 64,8192 --memory 64KiB --cached 8KiB --rounds 1 --milliseconds 1";
    let plan = Plan { skep: built(), arguments: tiny.split(' ').map(str::to_owned).collect() };
    let report = run(&plan, &Progress::shown()).expect("all figures");
    println!("{}", report.tables().text());
    for lines in [&report.vectors.in_cache, &report.vectors.out_of_cache] {
        let count_of = |size| {
            let has_size = |line: &&VectorLine| line.speeds.iter().any(|speed| speed.size == size);
            lines.iter().filter(has_size).count()
        };
        assert_eq!((count_of(64), count_of(8192)), (15, 14), "BITFIELD has no large vectors: {lines:?}");
    }
}

/// Returns the program in the parent folder of the tests.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let skep = test.parent().and_then(Path::parent).expect("target/debug/deps").join("skep");
    assert!(skep.is_file(), "{} is not built: cargo build -p skep", skep.display());
    skep
}
