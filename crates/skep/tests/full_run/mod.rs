//! Whether the tests run that need more than the toolchain.

/// Returns true if the full tests are enabled. A missing tool is then a failure.
pub(crate) fn is_full_run() -> bool {
    let is_enabled = std::env::var("SKEP_FULL").is_ok_and(|value| value == "1");
    if !is_enabled {
        println!("skipped: set SKEP_FULL=1 to run it");
    }
    is_enabled
}
