//! Checks that no program measures without the runner: `program::main` shows progress, and `skep_measure::Rounds` takes
//! every comparison through its rounds, so that none is silent for long or treats noise in its own way.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that must not occur in the sources, with what to use instead.
const BANNED: [(&str, &str); 3] = [
    ("Times::", "measure the sides of rows with skep_measure::Rounds"),
    ("for round in", "measure the sides of rows with skep_measure::Rounds"),
    ("ProgressBar", "say what begins with skep_measure::Progress"),
];

/// Returns the sources in a folder, and those in its folders.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let all = paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    all.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

#[test]
fn every_measurement_passes_through_the_runner() {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [benches.join("src"), benches.join("../crates/skep/src/bench")];
    for path in folders.iter().flat_map(|folder| sources(folder)) {
        let text = fs::read_to_string(&path).expect("a source file");
        for (word, instead) in BANNED {
            assert!(!text.contains(word), "{}: \"{word}\": {instead}", path.display());
        }
    }
}

#[test]
fn every_program_shows_its_progress() {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut programs = sources(&benches.join("src/bin"));
    programs.push(benches.join("src/main.rs"));
    for path in programs {
        let text = fs::read_to_string(&path).expect("a source file");
        assert!(text.contains("program::main("), "{}: begin with program::main", path.display());
    }
}
