//! Runs every fuzz target on the inputs in `corpus/`, which were found by fuzzing or written by hand.

use std::fs;
use std::path::Path;

use skep_fuzz_targets::TARGETS;

/// The bytes of all inputs of a target, at most: the corpus is small, so that it is replayed in every test run.
const CORPUS_SIZE_MAX: usize = 64 << 10;

#[test]
fn every_target_accepts_its_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, run) in TARGETS {
        let mut inputs: Vec<_> = fs::read_dir(corpus.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        inputs.sort();
        let mut size = 0;
        for input in &inputs {
            // Printed if the target panics.
            println!("{}", input.display());
            let bytes = fs::read(input).unwrap();
            size += bytes.len();
            run(&bytes);
        }
        println!("{name}: {} inputs, {size} B", inputs.len());
        assert!(!inputs.is_empty() && size <= CORPUS_SIZE_MAX, "{name}: {} inputs of {size} B", inputs.len());
    }
}

#[test]
fn every_folder_belongs_to_a_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in fs::read_dir(corpus).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(TARGETS.iter().any(|(target, _)| name == *target), "no target is named {}", name.display());
    }
}
