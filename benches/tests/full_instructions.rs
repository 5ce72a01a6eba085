//! Compares the instructions of each operation with the recorded ones, so that they can only fall: a change that needs more
//! fails, and so does one that needs fewer, until its counts are recorded.
//!
//! Callgrind counts the release build, which the test makes first. The load of the machine does not matter, another
//! compiler does.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The recorded counts: a line for each case, with the operation, the bytes of a value and the instructions.
const RECORDED: &str = include_str!("../instructions.csv");
/// By how much a count may differ from the recorded one.
const ROOM: f64 = 0.03;
/// The same for whole servers: the kernel decides how many requests a turn receives. Two runs have differed by 0.07.
const ROOM_OF_SERVERS: f64 = 0.15;

#[test]
fn operations_take_the_recorded_instructions() {
    if std::env::var_os("SKEP_FULL").is_none() {
        println!("skipped: set SKEP_FULL=1 to count instructions");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let target = root.join("target/instructions");
    let build = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["build", "--release", "--package", "skep-benches", "--bin", "skep-benches", "--target-dir"])
        .arg(&target)
        .status();
    assert!(build.expect("cargo runs").success(), "the release build");
    let counted = Command::new(target.join("release/skep-benches")).args(["instructions", "--csv"]).output();
    let counted = counted.expect("the program runs");
    let text = String::from_utf8_lossy(&counted.stdout);
    println!("{text}");
    assert!(counted.status.success(), "{}", String::from_utf8_lossy(&counted.stderr));
    let differences = differences(&counts_of(RECORDED), &counts_of(&text));
    assert!(differences.is_empty(), "just record-instructions records the new counts:\n{}", differences.join("\n"));
}

/// Returns the instructions of each case.
fn counts_of(text: &str) -> BTreeMap<&str, f64> {
    let row = |line| str::rsplit_once(line, ',').expect("a line has a count");
    text.lines().map(row).map(|(case, count)| (case, count.parse().expect("a count is a number"))).collect()
}

/// Returns a line for each case that is in one list only, or whose counts differ.
fn differences(recorded: &BTreeMap<&str, f64>, counted: &BTreeMap<&str, f64>) -> Vec<String> {
    let missing = recorded.keys().filter(|case| !counted.contains_key(*case));
    let missing = missing.map(|case| format!("{case}: recorded, and not counted"));
    let differing = counted.iter().filter_map(|(case, count)| match recorded.get(case) {
        None => Some(format!("{case}: {count} is not recorded")),
        Some(before) if (count / before - 1.0).abs() > room(case) => {
            Some(format!("{case}: {before} recorded, now {count}"))
        }
        Some(_) => None,
    });
    missing.chain(differing).collect()
}

fn room(case: &str) -> f64 {
    let is_of_server = ["native-", "resp-", "memcached-"].iter().any(|front_end| case.starts_with(front_end));
    if is_of_server { ROOM_OF_SERVERS } else { ROOM }
}

#[test]
fn counts_that_differ_are_noticed() {
    let counts = counts_of("get,8,100.0\nput,8,200.0\nresp-get,8,1000.0\n");
    assert_eq!(differences(&counts, &counts_of("get,8,102.9\nput,8,194.1\nresp-get,8,1149")), [""; 0]);
    let found = differences(&counts, &counts_of("get,8,103.1\nresp-get,8,849\nnew,8,1"));
    assert_eq!(
        found,
        [
            "put,8: recorded, and not counted",
            "get,8: 100 recorded, now 103.1",
            "new,8: 1 is not recorded",
            "resp-get,8: 1000 recorded, now 849"
        ]
    );
}
