//! The rules for alerts and the queries of the dashboard, in a real Prometheus that reads a server. Needs root, and Debian's
//! prometheus (which has promtool) and redis-tools.

#[expect(dead_code, reason = "the tests of the pages use the other functions")]
mod documented;
mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use documented::{Reader, Running, blocks};
use full_run::is_full_run;
use process::{WATCHDOG, text};

const PAGE: &str = include_str!("../../../docs/watching.md");
const RULES: &str = include_str!("../../../packaging/prometheus/skep.rules.yml");
const DASHBOARD: &str = include_str!("../../../packaging/prometheus/skep.dashboard.json");

/// Clients of all kinds, so that each figure of the dashboard has something to show.
const LOAD: &str = "redis-cli SKEP.FUNCTION LOAD 'mod m { #[update] fn halve(v: u8, by: u8) -> u8 { v / by } }'
    while sleep 0.1; do
        redis-cli SET n 8
        redis-cli GET n
        redis-cli GET missing
        redis-cli NOSUCH
        redis-cli SET short x PX 1
        redis-cli SKEP.UPDATE n m.halve 2
        redis-cli SKEP.UPDATE n m.halve 0
        redis-cli -n 1 SET a b
        redis-cli -n 2 SET a b
        redis-cli -n 2 GET a
        redis-cli -n 2 GET missing
    done";

fn promtool(arguments: &[&str]) -> Output {
    Command::new("promtool").args(arguments).output().expect("Debian's prometheus has promtool")
}

fn succeeds(output: &Output) -> bool {
    let is_good = output.status.success();
    if !is_good {
        println!("{}{}", text(&output.stdout), text(&output.stderr));
    }
    is_good
}

/// Returns the queries of the dashboard, with values in place of its variables.
fn queries() -> Vec<String> {
    let parsed: serde_json::Value = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let panels = parsed["panels"].as_array().expect("it has panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("a panel has targets"));
    let queries = targets.map(|target| target["expr"].as_str().expect("a target has a query"));
    let queries: Vec<String> =
        queries.map(|query| query.replace("$instance", ".*").replace("$__rate_interval", "10s")).collect();
    assert!(queries.len() > 20 && queries.iter().all(|query| !query.contains('$')), "{queries:?}");
    queries
}

#[test]
fn alerts_come_when_they_should() {
    if !is_full_run() {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules = here.join("../../packaging/prometheus/skep.rules.yml").display().to_string();
    let tests = here.join("tests/prometheus/rules.yml").display().to_string();
    assert!(succeeds(&promtool(&["check", "rules", "--lint-fatal", &rules])));
    assert!(succeeds(&promtool(&["test", "rules", &tests])));
    let tested = fs::read_to_string(&tests).expect("the tests");
    for name in RULES.split("- alert: ").skip(1).filter_map(|rule| rule.lines().next()) {
        assert!(tested.contains(&format!("alertname: {name}\n")), "{name} has no test");
    }
    // The controls: a query that cannot be parsed, and a rule that never fires.
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let broken = write("broken.yml", &RULES.replace("== 1", "== ="));
    assert!(!promtool(&["check", "rules", &broken.display().to_string()]).status.success());
    write("silent.yml", &RULES.replace("skep_log_trouble == 1", "skep_log_trouble == 2"));
    let silent = write("tests.yml", &tested.replace("../../../../packaging/prometheus/skep.rules.yml", "silent.yml"));
    assert!(!promtool(&["test", "rules", &silent.display().to_string()]).status.success());
}

/// Lets promtool check what clients get that do not name OpenMetrics. The control: it complains about that format.
fn check_metrics(reader: &Reader, folder: &Path) {
    let file = folder.join("metrics.txt");
    let check = |accept: &str| {
        let url = "http://127.0.0.1:9121/metrics";
        let curl = reader.command("curl").args(["-sf", "-H", accept, url]).output().expect("there is curl");
        assert!(succeeds(&curl));
        fs::write(&file, curl.stdout).expect("a file");
        let mut tool = Command::new("promtool");
        tool.args(["check", "metrics"]).stdin(File::open(&file).expect("a file")).output().expect("promtool")
    };
    for accept in ["Accept: */*", "Accept: text/plain;version=0.0.4"] {
        let output = check(accept);
        assert!(
            succeeds(&output) && output.stderr.is_empty() && output.stdout.is_empty(),
            "{}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
    }
    assert!(!check("Accept: application/openmetrics-text").status.success());
}

#[test]
fn each_query_of_the_dashboard_has_a_result() {
    if !is_full_run() {
        return;
    }
    let mut reader = Reader::new();
    reader
        .serve("--memory 64MiB --ordered-memory 64MiB --cache-memory 16MiB --data-dir ./data --metrics 127.0.0.1:9121");
    let _load = Running::start(reader.command("sh").args(["-c", LOAD]));
    let folder = tempfile::tempdir().expect("a folder");
    check_metrics(&reader, folder.path());
    let file = folder.path().join("prometheus.yml");
    let scrapes =
        blocks(PAGE).into_iter().find(|block| block.kind == "yaml").expect("the page has a configuration").text;
    fs::write(&file, format!("global:\n  scrape_interval: 1s\n{scrapes}")).expect("a file");
    let flags =
        [format!("--config.file={}", file.display()), format!("--storage.tsdb.path={}", folder.path().display())];
    let _prometheus = Running::start(reader.command("prometheus").args(flags));
    let mut left = queries();
    left.push("up == 1".to_owned());
    let begun = Instant::now();
    while !left.is_empty() {
        left.retain(|query| {
            let mut tool = reader.command("promtool");
            let output = tool.args(["query", "instant", "http://127.0.0.1:9090", query]).output().expect("promtool");
            !output.status.success() || text(&output.stdout).trim().is_empty()
        });
        assert!(begun.elapsed() < WATCHDOG * 2, "queries without a result: {left:#?}");
    }
}
