//! The seeds of a test.

/// Returns the seeds of a test, or that of `SKEP_SEED`.
pub(crate) fn seeds(own: &[u64]) -> Vec<u64> {
    match std::env::var("SKEP_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKEP_SEED is a number")],
        Err(_) => own.to_vec(),
    }
}
