//! Runs `skep size`: checks its output, for people and for programs, and its errors.

use std::fs;

use crate::process::{assert_refusal, output, text};

#[test]
fn a_load_is_sized_for_people_and_for_programs() {
    let load = ["size", "--kv-size", "10", "--put", "0", "--skew", "0", "--utilization", "0.5", "--seed", "3", "--seeds", "2"];
    let printed = output(&load);
    assert_eq!((printed.status.code(), text(&printed.stderr)), (Some(0), String::new()));
    let screen = text(&printed.stdout);
    for part in ["throughput", "bottleneck            PCIe", "load dispatch ratio", "kv-direct", "64 GiB", "values of 6 B", "DMA engine", "part of PCIe"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    let json = |more: &[&str]| output(&[&load[..], &["--json"], more].concat()).stdout;
    assert!(json(&[]) == json(&[]), "the same seed printed other bytes");
    let report: serde_json::Value = serde_json::from_slice(&json(&[])).expect("it prints JSON");
    assert_eq!(report["bottleneck"], "PCIe");
    for figure in ["throughput_mops", "hash_index_ratio", "inline_threshold", "load_dispatch_ratio"] {
        assert!(report[figure].is_number(), "{figure}: {report}");
    }
    assert!(report["load"]["pairs"].as_u64() > Some(3_000_000_000), "{report}");
    let [low, high] = [0, 1].map(|end| report["throughput_range_mops"][end].as_f64().expect("a rate"));
    assert!(low <= high && report["resources"][2]["parts"][3]["bound_mops"].is_number(), "{report}");
    assert_eq!(report["latencies"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["resources"].as_array().map(Vec::len), Some(6));
    // With the same cache and a quarter of the memory, the cache holds four times the share.
    let small: serde_json::Value = serde_json::from_slice(&json(&["--memory", "16GiB"])).expect("it prints JSON");
    assert_eq!(small["hardware"]["memory_bytes"], 16_u64 << 30);
    let share = |report: &serde_json::Value| report["nic_dram_share"].as_f64().expect("a share");
    assert!(share(&small) > 2.0 * share(&report), "{small}");
}

#[test]
fn all_nics_of_a_server_are_sized() {
    let board = text(&output(&["size", "--hardware", "kv-direct-ten-nics", "--print-hardware"]).stdout);
    assert!(board.contains("nics = 10"), "{board}");
    let path = std::env::temp_dir().join(format!("skep-size-nics-{}.toml", std::process::id()));
    fs::write(&path, board.replacen("nics = 10", "nics = 2", 1)).expect("it can be written");
    let file = path.to_str().expect("the path is UTF-8");
    let printed = output(&["size", "--hardware", file, "--kv-size", "10", "--memory", "32GiB", "--seeds", "1", "--json"]);
    assert_eq!((printed.status.code(), text(&printed.stderr)), (Some(0), String::new()));
    let report: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("it prints JSON");
    assert_eq!((&report["hardware"]["nics"], &report["hardware"]["memory_bytes"]), (&2.into(), &(32_u64 << 30).into()));
    assert!(report["hardware"]["busiest_nic"].as_f64().expect("a number") >= 1.0, "{report}");
    fs::remove_file(&path).expect("it was written");
}

#[test]
fn a_board_is_read_from_a_file_and_an_error_in_it_is_named() {
    let board = text(&output(&["size", "--print-hardware"]).stdout);
    assert!(board.contains("read_tags = 64"), "{board}");
    let path = std::env::temp_dir().join(format!("skep-size-{}.toml", std::process::id()));
    let file = path.to_str().expect("the path is UTF-8");
    let with = |from: &str, to: &str| {
        assert!(board.contains(from), "{from}: {board}");
        fs::write(&path, board.replacen(from, to, 1)).expect("it can be written");
        output(&["size", "--hardware", file, "--print-hardware"])
    };
    assert_eq!(
        text(&with("read_tags = 64", "read_tags = 32").stdout),
        board.replace("read_tags = 64", "read_tags = 32")
    );
    assert_refusal(&with("read_tags = 64\n", ""), 2, &[file, "read_tags", "missing"]);
    assert_refusal(&with("clock_mhz = 180.0", "clock_mhz = -180.0"), 2, &[file, "processor.clock_mhz", "-180"]);
    assert_refusal(&with("spare_bits = 6", "spare_bits = 2"), 2, &[file, "nic_dram.spare_bits", "4 bits of tag"]);
    fs::remove_file(&path).expect("it was written");
    assert_refusal(
        &output(&["size", "--hardware", "kv-indirect"]),
        2,
        &["kv-indirect", "kv-direct", "kv-direct-one-link"],
    );
    assert_refusal(&output(&["size", "--hardware", "/"]), 2, &["/", "directory"]);
    assert_refusal(&output(&["size", "--memory", "1GiB"]), 2, &["nic_dram.size_gib", "host_dram.size_gib"]);
    for (flag, value, reason) in [
        ("--kv-size", "4", "5"),
        ("--key-size", "3", "between 4 and 460"),
        ("--value-size", "0..9", "between 1 and 65536"),
        ("--put", "-1", "between 0 and 1"),
        ("--insert", "2", "between 0 and 1"),
        ("--hot-key", "1.5", "between 0 and 1"),
        ("--skew", "9", "1.5"),
        ("--utilization", "1", "below 1"),
    ] {
        assert_refusal(&output(&["size", flag, value]), 2, &[&flag[2..], reason]);
    }
    assert_refusal(&output(&["size", "--seeds", "0"]), 2, &["--seeds", "0 is not in 1..=100"]);
    assert_refusal(&output(&["size", "--value-size", "many"]), 2, &["--value-size", "16..1024"]);
    assert_refusal(&output(&["size", "--pairs", "9000000000"]), 2, &["pairs", "64 GiB"]);
    assert_refusal(&output(&["size", "--update", "1", "--value-size", "1024"]), 2, &["update", "not atomic"]);
}
