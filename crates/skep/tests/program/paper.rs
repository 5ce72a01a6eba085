//! `skep paper`: what it lists, prints and writes, and that the same seed writes the same bytes.

use std::fs;
use std::path::PathBuf;

use crate::process::{assert_refusal, output, text};

/// A directory of its own, taken away when the test is over.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        Directory(std::env::temp_dir().join(format!("skep-paper-{name}-{}", std::process::id())))
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(&self.0).expect("it was made").map(|entry| entry.expect("it can be read"));
        let name = |entry: &fs::DirEntry| entry.file_name().into_string().expect("names are ASCII");
        let mut files: Vec<_> =
            entries.map(|entry| (name(&entry), fs::read(entry.path()).expect("it can be read"))).collect();
        files.sort();
        files
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_item_leaves_data_a_plot_and_a_page_and_the_same_ones_again() {
    let (first, second) = (Directory::new("first"), Directory::new("second"));
    for directory in [&first, &second] {
        let path = directory.0.to_str().expect("the path is UTF-8");
        let output = output(&["paper", "fig03a", "--out", path, "--seed", "5"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("index.html"));
    }
    let names: Vec<_> = first.files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["fig03a.csv", "fig03a.svg", "index.html"]);
    assert!(first.files() == second.files(), "the same seed wrote other bytes");
    let page = String::from_utf8(first.files().remove(2).1).expect("it is UTF-8");
    assert!(page.contains("<svg") && page.contains("read 64"), "{page}");
}

#[test]
fn points_are_printed_for_programs() {
    let output = output(&["paper", "fig03a", "--json"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let points = report["points"].as_array().expect("a list");
    assert_eq!(points.len(), 14);
    for point in points {
        assert_eq!(point["item"], "fig03a");
        assert!(point["point"].is_string() && point["within"].is_boolean(), "{point}");
        for figure in ["paper", "ours", "deviation"] {
            assert!(point[figure].is_number(), "{figure}: {point}");
        }
    }
}

#[test]
fn items_are_listed_and_unknown_ones_are_refused_with_the_list() {
    let listed = text(&output(&["paper", "--list"]).stdout);
    assert!(listed.lines().any(|line| line.starts_with("fig03a ")), "{listed}");
    assert_refusal(&output(&["paper", "fig99"]), 2, &["fig99", "all", "fig03a"]);
    assert_refusal(&output(&["paper"]), 2, &["ITEM"]);
    assert_refusal(&output(&["paper", "fig03a", "--out", "/proc/none"]), 1, &["/proc/none"]);
}
