//! Runs `skep size`: checks its output, for people and for programs, and its errors.

use std::fs;

use crate::process::{assert_refusal, output, text};

#[test]
fn a_load_is_sized_for_people_and_for_programs() {
    let load =
        ["size", "--kv-size", "10", "--put", "0", "--skew", "0", "--utilization", "0.5", "--seed", "3", "--seeds", "2"];
    let printed = output(&load);
    assert_eq!((printed.status.code(), text(&printed.stderr)), (Some(0), String::new()));
    let screen = text(&printed.stdout);
    for part in [
        "throughput",
        "bottleneck            PCIe",
        "load dispatch ratio",
        "kv-direct",
        "64 GiB",
        "values of 6 B",
        "DMA engine",
        "part of PCIe",
    ] {
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
    let printed =
        output(&["size", "--hardware", file, "--kv-size", "10", "--memory", "32GiB", "--seeds", "1", "--json"]);
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
    // The source of each value is in the file.
    for part in ["# section 2.4", "# fitted to Figure 17b", "# assumed"] {
        assert!(board.contains(part), "{part}: {board}");
    }
    let fast = with("bandwidth_gb_per_s = 7.87", "bandwidth_gb_per_s = 31.5");
    assert_eq!(fast.status.code(), Some(0), "{}", text(&fast.stderr));
    let warned = text(&output(&["size", "--hardware", file, "--kv-size", "4"]).stderr);
    for part in ["warning: pcie.bandwidth_gb_per_s: 31.5", "pcie.dma_engine", "kv-size: 4 is less than 5"] {
        assert!(warned.contains(part), "{part}: {warned}");
    }
    assert_eq!(
        text(&with("read_tags = 64", "read_tags = 32").stdout),
        board.replace("read_tags = 64", "read_tags = 32")
    );
    assert_refusal(&with("read_tags = 64", ""), 2, &[file, "read_tags", "missing"]);
    assert_refusal(&with("clock_mhz = 180.0", "clock_mhz = -180.0"), 2, &[file, "card.clock_mhz", "-180"]);
    assert_refusal(&with("spare_bits = 6", "spare_bits = 2"), 2, &[file, "nic_dram.spare_bits", "4 bits of tag"]);
    fs::remove_file(&path).expect("it was written");
    assert_refusal(
        &output(&["size", "--hardware", "kv-indirect"]),
        2,
        &["kv-indirect", "kv-direct", "kv-direct-one-link"],
    );
    assert_refusal(&output(&["size", "--hardware", "/"]), 2, &["/", "directory"]);
    assert_refusal(&output(&["size", "--memory", "1GiB"]), 2, &["nic_dram.size_gib", "host_dram.size_gib"]);
    assert_refusal(&output(&["size", "--memory", "256GiB"]), 2, &["256 GiB", "use --cards 4", "64 GiB a card"]);
    let cards = text(&output(&["size", "--memory", "256GiB", "--cards", "4", "--print-hardware"]).stdout);
    assert!(cards.contains("nics = 4  # --cards") && cards.contains("size_gib = 64.0  # --memory"), "{cards}");
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

/// The other questions of a planner: cards for a rate, a rate for a latency, a table over a field, cores.
#[test]
fn questions_of_a_planner_are_answered() {
    let load = ["size", "--kv-size", "10", "--skew", "0", "--seeds", "1"];
    let answer = |more: &[&str]| {
        let printed = output(&[&load[..], more].concat());
        assert_eq!((printed.status.code(), text(&printed.stderr)), (Some(0), String::new()), "{more:?}");
        text(&printed.stdout)
    };
    let json = |more: &[&str]| -> serde_json::Value { serde_json::from_str(&answer(more)).expect("it prints JSON") };
    let cards = json(&["--target", "250M", "--json"]);
    assert!(cards["cards"].as_u64() >= Some(2) && cards["throughput_mops"].as_f64() >= Some(250.0), "{cards}");
    let within = json(&["--p99", "10us", "--json"]);
    assert!(within["p99_us"].as_f64() <= Some(10.0) && within["throughput_mops"].as_f64() > Some(20.0), "{within}");
    let swept = answer(&["--sweep", "pcie.links=1,2", "--csv"]);
    let rates: Vec<f64> = swept.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect();
    assert!(rates.len() == 2 && rates[1] > 1.5 * rates[0], "{swept}");
    assert!(answer(&["--sweep", "put=0,1"]).contains("bottleneck"));

    let path = std::env::temp_dir().join(format!("skep-size-cores-{}.json", std::process::id()));
    let file = path.to_str().expect("the path is UTF-8");
    let case = |name: &str, rate: u32| serde_json::json!({ "case": name, "ops_per_s": { "median": rate } });
    let cases = [case("get_uniform", 20_000_000), case("put_existing", 10_000_000)];
    let saved = serde_json::json!({ "machine": "a machine", "kv_size": 10, "cases": cases });
    fs::write(&path, saved.to_string()).expect("it can be written");
    let compared = json(&["--cores", file, "--put", "0.5", "--json"]);
    let [rate, cores] = [&compared["throughput_mops"], &compared["hardware"]["equal_cores"]];
    assert!((cores.as_f64().unwrap() / rate.as_f64().unwrap() * 40.0 / 3.0 - 1.0).abs() < 1e-6, "{compared}");
    assert!(compared["hardware"]["kops_per_watt"].as_f64() > Some(100.0), "{compared}");
    assert_refusal(
        &output(&[&load[..], &["--cores", file, "--delete", "0.5", "--insert", "0.5"]].concat()),
        2,
        &[file, "put_new"],
    );
    fs::remove_file(&path).expect("it was written");

    for (more, parts) in [
        (["--sweep", "pcie.lanes=1,2"], ["pcie.lanes", "value-size", "pcie.links"]),
        (["--sweep", "pcie.links=0"], ["pcie.links", "0 is not", "between 1"]),
        (["--sweep", "put=many"], ["put", "many", "float"]),
        (["--p99", "1us"], ["p99", "1 µs is below", "or more"]),
        (["--p99", "5"], ["--p99", "5us", "unit"]),
        (["--target", "fast"], ["--target", "500M", "fast"]),
        (["--cores", "/"], ["--cores", "/", "directory"]),
    ] {
        assert_refusal(&output(&[&load[..], &more].concat()), 2, &parts);
    }
    let one_key = ["--update", "1", "--hot-key", "1", "--value-size", "8", "--target", "900M", "--seeds", "1"];
    assert_refusal(&output(&[&["size"], &one_key[..]].concat()), 2, &["target", "16 cards", "at most 1"]);
}

/// Honeycomb's card, for an ordered store.
#[test]
fn a_card_of_an_ordered_store_is_sized() {
    let load =
        ["size", "--hardware", "honeycomb", "--scan", "50", "--insert", "0.05", "--pairs", "200000", "--seeds", "2"];
    let printed = output(&load);
    assert_eq!((printed.status.code(), text(&printed.stderr)), (Some(0), String::new()));
    let screen = text(&printed.stdout);
    for part in
        ["95 % scans of 50 items", "5 % insertions", "bottleneck            network", "cores of the host", "alone"]
    {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    let json = |more: &[&str]| output(&[&load[..], &["--json"], more].concat()).stdout;
    assert!(json(&[]) == json(&[]), "the same seed printed other bytes");
    let report: serde_json::Value = serde_json::from_slice(&json(&[])).expect("it prints JSON");
    assert_eq!((&report["bottleneck"], &report["load"]["scan"]), (&"network".into(), &50.into()));
    assert!(report["throughput_mops"].is_number() && report["resources"][8]["bound_mops"].is_number(), "{report}");
    let sweep = ["--scan", "1", "--sweep", "pcie.links=1,2", "--csv", "--pairs", "200000", "--seeds", "1"];
    let csv = text(&output(&[&["size", "--hardware", "honeycomb"], &sweep[..]].concat()).stdout);
    assert_eq!((csv.lines().count(), csv.starts_with("pcie.links,mops,")), (3, true), "{csv}");
    let board = text(&output(&["size", "--hardware", "honeycomb", "--print-hardware"]).stdout);
    assert!(board.contains("key_search_units = 14") && board.contains("# fitted to Figure 11"), "{board}");
    for (more, parts) in [
        (&["--update", "0.5"][..], ["update", "kv-direct"]),
        (&["--p99", "5us"], ["p99", "kv-direct"]),
        (&["--value-size", "16..64"], ["value-size", "not one size"]),
        (&["--value-size", "1024"], ["value-size", "between 1 and 256"]),
        (&["--pairs", "9000000000"], ["pairs", "host_dram.size_gib"]),
        (&["--sweep", "cache.lanes=1"], ["no field", "cache.ways"]),
        (&["--scan", "0"], ["scan", "between 1 and 1000"]),
    ] {
        assert_refusal(&output(&[&["size", "--hardware", "honeycomb"], more].concat()), 2, &parts);
    }
    assert_refusal(&output(&["size", "--scan", "3"]), 2, &["scan", "--hardware honeycomb"]);
}
