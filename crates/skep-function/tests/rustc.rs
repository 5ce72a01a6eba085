//! The proof of the compiler: random functions have the same results as when rustc compiles them, bit for bit.
//!
//! `SKEP_LONG` multiplies the functions: 10⁴ without it, 10⁶ with `SKEP_LONG=100`.

mod equality;
mod run;
mod seeds;

use equality::{Counts, compare, compare_examples};
use seeds::seeds;

/// Functions of one seed.
const FUNCTIONS: usize = 5000;

/// Compares random functions of these seeds, or of that of `SKEP_SEED`.
fn compare_seeds(own: &[u64]) {
    let long: usize = std::env::var("SKEP_LONG").map_or(1, |factor| factor.parse().expect("SKEP_LONG is a number"));
    for seed in seeds(own) {
        let counts = compare(seed, FUNCTIONS * long, |source| source);
        let Counts { functions, cases, failures, refused, differences } = &counts;
        println!(
            "SKEP_SEED={seed}: {functions} functions, {cases} cases, {failures} of them fail, {refused} modules refused"
        );
        assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
        assert!(*failures > cases / 1000, "some functions fail: {counts:?}");
        assert!(*refused <= functions / 100, "most modules are short enough: {counts:?}");
    }
}

// Two tests, so that two cores share the work.
#[test]
fn random_functions_have_the_results_of_rustc() {
    compare_seeds(&[1]);
}

#[test]
fn other_random_functions_have_the_results_of_rustc() {
    compare_seeds(&[2]);
}

#[test]
fn the_examples_have_the_results_of_rustc() {
    for seed in seeds(&[4]) {
        let counts = compare_examples(seed);
        assert!(counts.functions >= 15, "{} functions", counts.functions);
        assert!(counts.differences.is_empty(), "{}", counts.differences.join("\n"));
    }
}

/// A compiler that wraps where it should saturate is caught.
#[test]
fn a_wrong_compiler_is_caught() {
    let counts = compare(3, 500, |source| source.replace("saturating_sub", "wrapping_sub"));
    assert!(!counts.differences.is_empty(), "the comparison does not see a wrong subtraction: {counts:?}");
}
