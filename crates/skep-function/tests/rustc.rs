//! The proof of the compiler: random functions have the same results as when rustc compiles them.

mod equality;

use equality::{Counts, compare};

/// The seeds of the test, or that of `SKEP_SEED`.
fn seeds() -> Vec<u64> {
    match std::env::var("SKEP_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKEP_SEED is a number")],
        Err(_) => vec![1, 2],
    }
}

/// Compares random functions of each seed.
fn compare_seeds(functions: usize) {
    for seed in seeds() {
        let counts = compare(seed, functions, |source| source);
        let Counts { functions, cases, failures, refused, differences } = &counts;
        println!(
            "SKEP_SEED={seed}: {functions} functions, {cases} cases, {failures} of them fail, {refused} modules refused"
        );
        assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
        assert!(*failures > cases / 1000, "some functions fail: {counts:?}");
        assert!(*refused <= functions / 100, "most modules are short enough: {counts:?}");
    }
}

#[test]
fn random_functions_have_the_results_of_rustc() {
    compare_seeds(5000);
}

/// A compiler that wraps where it should saturate is caught.
#[test]
fn a_wrong_compiler_is_caught() {
    let counts = compare(3, 500, |source| source.replace("saturating_sub", "wrapping_sub"));
    assert!(!counts.differences.is_empty(), "the comparison does not see a wrong subtraction: {counts:?}");
}
