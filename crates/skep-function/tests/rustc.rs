//! The proof of the compiler: random functions have the same results as when rustc compiles them.

mod equality;

use equality::compare;

/// The seeds of the test, or that of `SKEP_SEED`.
fn seeds() -> Vec<u64> {
    match std::env::var("SKEP_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKEP_SEED is a number")],
        Err(_) => vec![1, 2],
    }
}

#[test]
fn random_functions_have_the_results_of_rustc() {
    for seed in seeds() {
        let started = std::time::Instant::now();
        let counts = compare(seed, 500, |source| source);
        eprintln!("SKEP_SEED={seed}: {} functions, {} cases, {} failures, {} refused, {:?}", counts.functions, counts.cases, counts.failures, counts.refused, started.elapsed());
        assert!(counts.differences.is_empty(), "{} differences\n{}", counts.differences.len(), counts.differences[0]);
    }
}
