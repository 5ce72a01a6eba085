//! Runs `skep paper`: checks its list, its output and its files, and that the same seed writes the same bytes.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use crate::process::{assert_refusal, output, skep, text, wait};

/// A directory for one test; dropping it deletes the directory.
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
fn an_item_writes_data_a_plot_and_a_page_and_a_second_run_writes_the_same() {
    let (first, second) = (Directory::new("first"), Directory::new("second"));
    for directory in [&first, &second] {
        let path = directory.0.to_str().expect("the path is UTF-8");
        let output = output(&["paper", "fig03a", "--out", path, "--seed", "5", "--seeds", "2", "--jobs", "2"]);
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
        for figure in ["paper", "ours", "low", "high", "deviation"] {
            assert!(point[figure].is_number(), "{figure}: {point}");
        }
        assert_eq!((&point["claim"], &point["tolerance"]["relative"]), (&"figure".into(), &0.15.into()), "{point}");
        let is_evidence = point["point"].as_str().is_some_and(|name| name.starts_with("read ") && name.len() > 7);
        assert_eq!(point["kind"], if is_evidence { "evidence" } else { "input" }, "{point}");
    }
    assert_eq!((&report["evidence"]["evidence"], &report["evidence"]["inputs"]), (&5.into(), &9.into()), "{report}");
    assert!(report["variants"].is_array(), "{report}");
}

#[test]
fn items_are_listed_and_unknown_ones_are_refused_with_the_list() {
    let listed = text(&output(&["paper", "--list"]).stdout);
    for name in ["fig03a", "honeycomb-fig16", "herd-fig04", "herd-fig05", "herd-fig07", "herd-claims"] {
        assert!(listed.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}: {listed}");
    }
    assert_refusal(&output(&["paper", "fig99"]), 2, &["fig99", "all", "fig03a", "herd-fig07"]);
    assert_refusal(&output(&["paper"]), 2, &["ITEM"]);
    assert_refusal(&output(&["paper", "fig03a", "--seeds", "0"]), 2, &["--seeds", "1..=1000"]);
    assert_refusal(&output(&["paper", "fig03a", "--out", "/proc/none"]), 1, &["/proc/none"]);
}

/// All items with a thousand seeds take far longer than the test may.
#[test]
fn files_that_cannot_be_written_are_refused_before_the_measurement() {
    let directory = Directory::new("refused");
    fs::create_dir_all(directory.0.join("index.html")).expect("it can be made");
    let path = directory.0.to_str().expect("the path is UTF-8");
    let mut child = skep(&["paper", "all", "--seeds", "1000", "--out", path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    wait(&mut child);
    assert_refusal(&child.wait_with_output().expect("it has ended"), 1, &["cannot write", "index.html"]);
    assert_eq!(fs::read_dir(&directory.0).expect("it exists").count(), 1, "files are left");
}

#[test]
fn the_steps_of_an_operation_are_printed_and_traced() {
    let directory = Directory::new("trace");
    fs::create_dir_all(&directory.0).expect("it can be made");
    for (number, arguments) in
        [&[][..], &["--operation", "put", "--kv-size", "62"], &["--kv-size", "254", "--seed", "3"]].iter().enumerate()
    {
        let path = directory.0.join(format!("{number}.json"));
        let file = path.to_str().expect("the path is UTF-8");
        let all = [&["paper", "trace", "--out", file], *arguments].concat();
        let output = output(&all);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
        let shown = text(&output.stdout);
        assert!(shown.contains("decoder") && shown.contains(file), "{shown}");
        assert_is_a_trace(&fs::read_to_string(&path).expect("it was written"), &shown);
    }
    assert!(directory.files().windows(2).all(|two| two[0].1 != two[1].1), "two traces are equal");
    assert_refusal(&output(&["paper", "trace", "--kv-size", "4"]), 2, &["--kv-size 4", "5 to 500"]);
    assert_refusal(&output(&["paper", "trace", "--out", "/proc/none"]), 1, &["/proc/none"]);
    assert_refusal(&output(&["paper", "trace", "--list"]), 2, &["--list"]);
}

/// Checks the complete events of a trace. Events of one lane are either separate or nested. The first one spans all
/// others, and its length is the printed one.
fn assert_is_a_trace(json: &str, shown: &str) {
    let trace: serde_json::Value = serde_json::from_str(json).expect("it is JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let complete: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert!(complete.len() > 8, "{json}");
    // The times are in picoseconds, as in the model.
    let span = |event: &serde_json::Value| {
        assert!(event["name"].is_string() && event["pid"] == 1, "{event}");
        let [begin, length] = ["ts", "dur"].map(|key| (event[key].as_f64().expect("a number") * 1e6).round() as u64);
        (event["tid"].as_u64().expect("a number"), begin, begin + length)
    };
    let spans: Vec<_> = complete.iter().map(|event| span(event)).collect();
    let last = spans.iter().map(|(_, _, end)| *end).max().expect("there is an event");
    assert_eq!(spans[0], (1, 0, last), "the first event is the whole operation");
    let total = format!("{:.3} µs", last as f64 / 1e6);
    assert!(shown.lines().next().expect("a title").ends_with(&total), "{total}: {shown}");
    for (index, (lane, begin, end)) in spans.iter().enumerate() {
        for (other_lane, other_begin, other_end) in &spans[index + 1..] {
            let is_separate = other_begin >= end || other_end <= begin;
            let is_nested = other_begin >= begin && other_end <= end || begin >= other_begin && end <= other_end;
            assert!(lane != other_lane || is_separate || is_nested, "{}: {json}", complete[index]);
        }
    }
}
