//! Runs `skep bench` with few operations: checks its JSON, its table, and that it reports errors.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{Server, WATCHDOG, assert_refusal, output, signal, skep, text, wait};

const FEW: [&str; 4] = ["--records", "2000", "--operations", "5000"];

fn json(arguments: &[&str]) -> serde_json::Value {
    let arguments = [&["bench", "--json"], arguments, &FEW].concat();
    let output = output(&arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

#[test]
fn every_workload_runs_embedded() {
    for workload in ["a", "b", "c", "f", "reduce"] {
        for distribution in ["zipf", "uniform", "latest"] {
            let report = json(&["--embedded", "--workload", workload, "--distribution", distribution]);
            assert_eq!(report["errors"], 0, "{report}");
            assert_eq!(report["operations"], 5000, "{report}");
            assert_eq!((&report["workload"], &report["distribution"]), (&workload.into(), &distribution.into()));
            for figure in ["ops_per_s", "p50_us", "p99_us", "p999_us", "seconds"] {
                assert!(report[figure].as_f64().is_some_and(|figure| figure > 0.0), "{figure}: {report}");
            }
        }
    }
}

#[test]
fn a_server_is_measured_by_several_clients() {
    let server = Server::start(&[]);
    let report = json(&["--addr", &server.native, "--workload", "F", "--clients", "3", "--value-size", "12"]);
    assert_eq!((&report["errors"], &report["operations"]), (&0.into(), &5000.into()), "{report}");
    assert_eq!((&report["clients"], &report["target"]), (&3.into(), &server.native.as_str().into()));
}

const WORKLOADS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "cloud", "reduce"];

#[test]
fn every_workload_runs_on_the_ordered_space() {
    let server = Server::start(&[]);
    assert_eq!(server.cli(&["--space", "ordered", "put", "mine", "1"]).status.code(), Some(0));
    for workload in WORKLOADS {
        for distribution in ["zipf", "uniform", "latest"] {
            let to_server = ["--addr", &server.native, "--space", "ordered", "--key-size", "16", "--value-size", "16"];
            let drawn = ["--workload", workload, "--distribution", distribution, "--clients", "3", "--batch", "7"];
            let report = json(&[&to_server[..], &drawn].concat());
            assert_eq!((&report["errors"], &report["operations"]), (&0.into(), &5000.into()), "{report}");
            assert_eq!((&report["space"], &report["workload"]), (&"ordered".into(), &workload.into()));
            assert_eq!(server.key_counts(), [0, 1], "{workload} {distribution}");
        }
    }
    // Checks the defaults that depend on the workload: the space, the distribution, the share of reads.
    let of = |workload: &str, more: &[&str]| {
        json(&[&["--addr", &server.native, "--workload", workload, "--batch", "64"], more].concat())
    };
    for (workload, space, distribution, reads) in [
        ("a", "hash", "zipf", 50),
        ("d", "hash", "latest", 95),
        ("e", "ordered", "zipf", 95),
        ("cloud", "ordered", "zipf", 80),
    ] {
        let report = of(workload, &[]);
        assert_eq!((&report["space"], &report["distribution"]), (&space.into(), &distribution.into()), "{report}");
        assert_eq!((&report["reads_in_100"], &report["errors"]), (&reads.into(), &0.into()), "{report}");
    }
    for reads in [0, 50, 100] {
        assert_eq!(of("cloud", &["--reads", &reads.to_string()])["reads_in_100"], reads);
    }
    assert_eq!(server.key_counts(), [0, 1]);
    let table =
        output(&["bench", "--addr", &server.native, "--workload", "cloud", "--records", "9", "--operations", "9"]);
    assert!(text(&table.stdout).contains("cloud, 80% reads"), "{}", text(&table.stdout));
    assert!(text(&table.stdout).contains("ordered space"), "{}", text(&table.stdout));
}

#[test]
fn the_next_run_deletes_the_inserts_of_a_killed_one() {
    let server = Server::start(&[]);
    let settings = ["bench", "--addr", &server.native, "--workload", "cloud", "--reads", "0", "--clients", "2"];
    let mut killed = skep(&settings)
        .args(["--records", "2000", "--seconds", "600"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    while server.key_counts()[1] < 10_000 {
        assert!(killed.try_wait().expect("it is a child of this process").is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    let report = json(&settings[1..]);
    assert_eq!((&report["errors"], &report["operations"]), (&0.into(), &5000.into()), "{report}");
    assert_eq!(server.key_counts(), [0, 0]);
}

#[test]
fn workloads_that_a_store_cannot_execute_are_refused() {
    for (arguments, words) in [
        (&["--workload", "e", "--space", "hash"][..], ["an order of keys", "--space ordered"]),
        (&["--workload", "cloud", "--embedded"], ["embedded", "engine --engine ordered"]),
        (&["--space", "ordered", "--embedded"], ["embedded", "engine --engine ordered"]),
        (&["--workload", "d", "--embedded"], ["embedded", "measure a server"]),
        (&["--workload", "d", "--key-size", "7"], ["run out", "--key-size 8"]),
        (&["--workload", "e", "--value-size", "1000"], ["100 pairs", "--value-size"]),
        (&["--workload", "a", "--reads", "50"], ["--reads", "--workload cloud"]),
        (&["--workload", "cloud", "--reads", "101"], ["--reads", "0..=100"]),
        (&["--workload", "g"], ["'g'", "cloud"]),
        (&["--space", "tree"], ["tree", "hash, ordered"]),
        (&["--space", "cache"], ["--space cache", "choose hash or ordered"]),
        (&["--rate", "10", "--addr", "udp:127.0.0.1:1"], ["--rate", "TCP"]),
    ] {
        assert_refusal(&output(&[&["bench", "--records", "10"], arguments].concat()), 2, &words);
    }
    let equal = output(&["bench", "--key-size", "1", "--records", "300"]);
    assert_refusal(&equal, 2, &["300 records", "different keys of 1 byte: ", "--key-size"]);
    let server = Server::start(&["--ordered-memory", "off"]);
    let none = output(&["bench", "--addr", &server.native, "--workload", "e", "--records", "10"]);
    assert_refusal(&none, 1, &["does not have this space", "needs --ordered-memory"]);
    let small = Server::start(&["--ordered-memory", "4MiB"]);
    let full =
        output(&["bench", "--addr", &small.native, "--workload", "cloud", "--reads", "0", "--operations", "1000000"]);
    assert_refusal(&full, 1, &["OUT_OF_MEMORY", "--ordered-memory"]);
}

/// A server that speaks RESP and is not Skep.
struct NotSkep(String);

impl NotSkep {
    fn start() -> NotSkep {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                // The client may have gone.
                _ = stream.read(&mut [0; 64]);
                _ = stream.write_all(b"$10\r\n# Server\r\n\r\n");
            }
        });
        NotSkep(address)
    }
}

/// Checks that each operation is executed or refused, however slow the machine is.
#[test]
fn a_rate_is_kept() {
    let server = Server::start(&[]);
    let resp = server.resp.as_deref().expect("the server speaks RESP");
    for (workload, batch) in [("reduce", "7"), ("A", "64"), ("f", "1"), ("d", "64"), ("E", "7"), ("cloud", "1")] {
        let to_server = ["--addr", &server.native, "--resp", resp, "--rate", "200000"];
        let report =
            json(&[&to_server[..], &["--workload", workload, "--value-size", "400", "--batch", batch]].concat());
        let count = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
        assert_eq!((count("operations") + count("refused"), count("errors")), (5000, 0), "{report}");
        assert_eq!((count("rate"), count("unsent")), (200_000, 0), "{report}");
        // The server counts the operations after the load and before the deletes.
        assert_eq!(report["server"]["operations"], 5000, "{report}");
        assert_eq!(report["server"]["refused"], report["refused"], "{report}");
        assert!(report["server"]["max_us"].as_f64() > Some(0.0) && report["max_us"].as_f64() > Some(0.0), "{report}");
    }
    assert_eq!(server.key_counts(), [0, 0]);
    let table =
        output(&["bench", "--addr", &server.native, "--rate", "100000", "--records", "10", "--operations", "100"]);
    assert!(text(&table.stdout).contains("The rate was 100 000 operations/s."), "{}", text(&table.stdout));
    let silent = output(&["bench", "--addr", &server.native, "--resp", "127.0.0.1:1", "--records", "10"]);
    assert_refusal(&silent, 1, &["no RESP server", "127.0.0.1:1", "RESP port", "--resp"]);
    let fake = NotSkep::start();
    let other = output(&["bench", "--addr", &server.native, "--resp", &fake.0, "--records", "10"]);
    assert_refusal(&other, 1, &[&fake.0, "is not a Skep server", "`skep serve --resp`", "leave --resp out"]);
    assert_eq!(server.key_counts(), [0, 0]);
}

#[test]
fn the_saturation_is_searched_and_plotted() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("latency.svg");
    let flags = ["--records", "1000", "--seconds", "1", "--saturate", "--json", "--svg", svg.to_str().expect("UTF-8")];
    let found = output(&[&["bench", "--addr", &server.native], &flags[..]].concat());
    let told = text(&found.stderr);
    assert!(found.status.success() && told.lines().all(|line| line.contains("% done")), "{told}");
    let lines: Vec<serde_json::Value> =
        text(&found.stdout).lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let (result, steps) = lines.split_last().expect("it has printed something");
    assert!(steps.len() >= 5 && result["closed_loop"].as_f64() > Some(0.0), "{lines:?}");
    // The saturation is the greatest rate that was sustained.
    let sustained = steps.iter().filter(|step| step["sustained"] == true).filter_map(|step| step["rate"].as_f64());
    assert_eq!(result["saturation"].as_f64(), Some(sustained.fold(0.0, f64::max)), "{lines:?}");
    let picture = std::fs::read_to_string(svg).expect("the plot was written");
    assert_eq!(picture.matches("<circle").count(), 3 * steps.len() + 3);
    assert_eq!(server.key_counts(), [0, 0]);
    // A plot that cannot be written is refused before the server is asked.
    let nowhere = ["bench", "--saturate", "--addr", "127.0.0.1:1", "--svg", "/nope/x.svg"];
    assert_refusal(&output(&nowhere), 1, &["cannot write /nope/x.svg"]);
    let unused = folder.path().join("unused.svg");
    let flags = ["--addr", "127.0.0.1:1", "--svg", unused.to_str().expect("UTF-8")];
    assert_refusal(&output(&[&["bench", "--saturate"], &flags[..]].concat()), 1, &["no server"]);
    assert!(!unused.exists());
    let refused = output(&["bench", "--saturate", "--rate", "5"]);
    assert!(refused.status.code() == Some(2) && text(&refused.stderr).contains("--rate"), "{}", text(&refused.stderr));
}

#[test]
fn a_server_is_left_as_it_was() {
    let server = Server::start(&[]);
    assert_eq!(server.cli(&["put", "mine", "1"]).status.code(), Some(0));
    for key_size in ["7", "8", "20"] {
        json(&["--addr", &server.native, "--clients", "3", "--key-size", key_size, "--batch", "7"]);
        assert_eq!(server.key_counts(), [1, 0], "keys of {key_size} bytes");
    }
    // 200 MB do not fit into 64 MiB.
    let full = output(&["bench", "--addr", &server.native, "--records", "200000", "--value-size", "1000"]);
    assert_refusal(&full, 1, &["200000 records", "OUT_OF_MEMORY"]);
    assert_eq!(server.key_counts(), [1, 0], "after a load that failed");
}

/// Runs a benchmark of two clients that ends only by a signal.
fn endless(server: &Server, more: &[&str]) -> Child {
    let flags = ["bench", "--addr", &server.native, "--seconds", "3600", "--clients", "2", "--value-size", "20"];
    skep(&[&flags, more].concat()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Waits until the server has as many keys.
fn wait_for_keys(server: &Server, count: u64) {
    let begun = Instant::now();
    while server.key_counts().iter().sum::<u64>() < count {
        assert!(begun.elapsed() < WATCHDOG, "{:?}", server.key_counts());
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_signal_ends_a_run_and_its_keys_are_deleted() {
    let server = Server::start(&[]);
    assert_eq!(server.cli(&["put", "mine", "1"]).status.code(), Some(0));
    for (name, code, more, keys, is_measured) in [
        ("INT", 130, &["--workload", "d", "--records", "2000"][..], 4000, true),
        ("TERM", 143, &["--workload", "cloud", "--records", "2000", "--json"], 4000, true),
        ("TERM", 143, &["--workload", "d", "--rate", "20000", "--records", "2000"], 2500, true),
        // No rate is measured before the clients have shown what the server can do.
        ("INT", 130, &["--saturate", "--records", "2000"], 2000, false),
        // During the load, unless that is too fast for the test.
        ("TERM", 143, &["--records", "400000", "--batch", "1"], 1000, false),
    ] {
        let mut run = endless(&server, more);
        wait_for_keys(&server, keys);
        thread::sleep(Duration::from_millis(100));
        signal(&run, name);
        assert_eq!(wait(&mut run).code(), Some(code), "{more:?}");
        let ended = run.wait_with_output().expect("it has ended");
        let (printed, told) = (text(&ended.stdout), text(&ended.stderr));
        assert!(told.contains("interrupted: the run deletes its keys") && told.ends_with("interrupted\n"), "{told}");
        assert_eq!(printed.contains("operations"), is_measured, "{more:?}: {printed}");
        assert_eq!(server.key_counts(), [1, 0], "{more:?}");
    }
}

#[test]
fn a_second_signal_ends_a_run_at_once() {
    let server = Server::start(&[]);
    let mut run = endless(&server, &["--records", "2000"]);
    wait_for_keys(&server, 2000);
    server.signal("STOP");
    signal(&run, "TERM");
    thread::sleep(Duration::from_millis(600));
    assert!(run.try_wait().expect("a child can be waited for").is_none(), "the server does not reply");
    signal(&run, "TERM");
    let begun = Instant::now();
    assert_eq!(wait(&mut run).code(), Some(143));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    server.signal("CONT");
}

#[test]
fn embedded_clients_divide_the_records() {
    let report = json(&["--embedded", "--clients", "3", "--key-size", "20", "--value-size", "100", "--batch", "7"]);
    assert_eq!((&report["errors"], &report["operations"]), (&0.into(), &5000.into()), "{report}");
}

#[test]
fn the_table_holds_figures_settings_and_machine() {
    let output = output(&[&["bench", "--embedded", "--workload", "c"], &FEW[..]].concat());
    let table = text(&output.stdout);
    for part in ["operations/s", "p99.9 µs", "zipf", "2000 records of 8 + 8 B", "batches of 32", "cores"] {
        assert!(table.contains(part), "{table}");
    }
}

#[test]
fn failures_are_not_hidden() {
    assert_refusal(&output(&["bench", "--addr", "127.0.0.1:1"]), 1, &["127.0.0.1:1", "skep serve"]);
    let large = output(&["bench", "--embedded", "--memory", "900TiB"]);
    assert_refusal(&large, 1, &["900 TiB", "64 GiB", "--clients"]);
    let crowded = output(&["bench", "--embedded", "--memory", "1MiB", "--records", "1000000", "--operations", "10"]);
    assert_refusal(&crowded, 1, &["1000000 records", "OUT_OF_MEMORY"]);
}

/// Runs `bench engine` for a very short time and returns its JSON. One round has no spread, so every figure is
/// measured.
fn engine(arguments: &[&str]) -> serde_json::Value {
    const TINY: [&str; 9] = ["bench", "engine", "--json", "--rounds", "1", "--milliseconds", "2", "--batch", "64"];
    let output = output(&[&TINY, arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let is_measured = |figure: &serde_json::Value| {
        figure["median"].as_f64().is_some_and(|median| median > 0.0) && figure["spread"].as_f64() == Some(0.0)
    };
    for limit in ["limit_read", "limit_rmw"] {
        assert!(is_measured(&report[limit]), "{report}");
    }
    let work = report["limit_with_work"].as_array().expect("a list");
    for figure in ["nanoseconds", "of_limit"] {
        assert!(work.len() > 2 && work.iter().all(|work| is_measured(&work[figure])), "{report}");
    }
    for case in report["cases"].as_array().expect("a list") {
        for figure in ["accesses", "lines"] {
            assert!(case[figure].as_f64().is_some_and(|figure| figure >= 0.0), "{figure} of {case}");
        }
        for figure in ["ops_per_s", "limit_lines_per_s", "of_limit"] {
            assert!(is_measured(&case[figure]), "{figure} of {case}");
        }
        // The share refers to the limit in the same row.
        let median = |figure: &str| case[figure]["median"].as_f64().expect("a number");
        let limit_ops_per_s = median("limit_lines_per_s") / case["limit_lines"].as_f64().expect("a number");
        assert!((median("ops_per_s") / limit_ops_per_s / median("of_limit") - 1.0).abs() < 1e-9, "{case}");
    }
    report
}

/// Checks that a row is never withheld. Rounds this short have any spread. Noisy cases have more rounds than asked for.
#[test]
fn a_noisy_row_of_the_engine_is_shown_and_marked() {
    let tiny = ["bench", "engine", "--rounds", "3", "--milliseconds", "1", "--batch", "64"];
    let tiny = [&tiny[..], &["--memory", "16MiB", "--distribution", "zipf"]].concat();
    let output_of = |arguments: &[&str]| text(&output(arguments).stdout);
    let report: serde_json::Value =
        serde_json::from_str(&output_of(&[&tiny[..], &["--json"]].concat())).expect("it prints JSON");
    for case in report["cases"].as_array().expect("a list") {
        for figure in ["ops_per_s", "limit_lines_per_s", "of_limit"] {
            assert!(case[figure]["median"].as_f64().is_some_and(|median| median > 0.0), "{case}");
            assert!(case[figure]["spread"].is_f64(), "{case}");
        }
    }
    // The spread of a figure is in the cell after it.
    let table = output_of(&tiny);
    let rows = table.lines().filter(|line| line.starts_with('│') && line.contains("_zipf"));
    let cells: Vec<Vec<&str>> = rows.map(|row| row.split(['│', '┆']).map(str::trim).collect()).collect();
    assert!(!cells.is_empty(), "{table}");
    for pair in cells.iter().flat_map(|row| [(2, 3), (4, 5), (7, 8)].map(|(figure, spread)| (row[figure], row[spread])))
    {
        let spread: f64 = pair.1.parse().expect("a spread");
        // The bound is 0.25, and the table has two digits.
        assert!(spread == 0.25 || pair.0.ends_with("noisy") == (spread > 0.25), "{pair:?}: {table}");
    }
}

/// Returns a figure of a case.
fn figure(report: &serde_json::Value, name: &str, figure: &str) -> f64 {
    let mut cases = report["cases"].as_array().expect("a list").iter();
    let case = cases.find(|case| case["case"] == name).expect("the case exists");
    case[figure].as_f64().expect("a number")
}

/// Checks every case of the hash store: all figures exist, and the accesses are those of the paper's inline pairs.
#[test]
fn the_engine_is_measured_against_the_bare_loop() {
    let report = engine(&["--memory", "16MiB"]);
    assert_eq!(report["cases"].as_array().map(Vec::len), Some(13), "{report}");
    let accesses = |name| figure(&report, name, "accesses");
    assert!((1.0..1.05).contains(&accesses("get_uniform")), "{report}");
    assert!((2.0..2.1).contains(&accesses("put_existing")), "{report}");
    assert!(accesses("fetch_add_one_key") < 0.05, "forwarded: {report}");
    assert_refusal(&output(&["bench", "engine", "--utilization", "0.95"]), 2, &["0.95", "--utilization"]);
}

/// Checks every case of the ordered store: all figures exist, and longer scans read more.
#[test]
fn the_ordered_engine_is_measured_against_the_bare_loop() {
    let report = engine(&["--engine", "ordered", "--memory", "8MiB"]);
    assert_eq!(report["cases"].as_array().map(Vec::len), Some(32), "{report}");
    let lines = |name| figure(&report, name, "lines");
    assert!((8.0..16.0).contains(&lines("get_uniform")), "{report}");
    assert_eq!(figure(&report, "get_uniform", "bytes_read"), 64.0 * lines("get_uniform"));
    let names: Vec<_> = report["cases"].as_array().expect("a list").iter().map(|case| case["case"].as_str()).collect();
    for name in ["ycsb_d_latest", "ycsb_e_zipf", "ycsb_f_zipf", "cloud_80_uniform"] {
        assert!(names.contains(&Some(name)), "{name} is not among {names:?}");
    }
    let table =
        output(&["bench", "engine", "--engine", "ordered", "--memory", "4MiB", "--rounds", "1", "--milliseconds", "1"]);
    for part in ["bytes read", "per byte of keys and values", "limit, lines/s", "above 0.25 is noisy"] {
        assert!(text(&table.stdout).contains(part), "{}", text(&table.stdout));
    }
    assert!(lines("cloud_100_uniform") < lines("ycsb_e_uniform"), "{report}");
    assert!(report["memory_per_raw_byte"].as_f64().is_some_and(|bytes| (1.0..2.0).contains(&bytes)), "{report}");
    let latest = engine(&["--engine", "ordered", "--memory", "4MiB", "--kv-size", "64", "--distribution", "latest"]);
    assert_eq!(latest["cases"].as_array().map(Vec::len), Some(3), "latest, inserts and deletes: {latest}");
    for (wrong, word) in [(["--utilization", "0.95"], "--utilization"), (["--kv-size", "15"], "--kv-size")] {
        let arguments = [&["bench", "engine", "--engine", "ordered", "--memory", "16MiB"][..], &wrong].concat();
        assert_refusal(&output(&arguments), if word == "--kv-size" { 2 } else { 1 }, &[word]);
    }
}
