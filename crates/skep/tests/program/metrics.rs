//! `skep serve --metrics`: the figures over HTTP agree with what clients did, and the port survives clients that are slow,
//! rude or many.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::process::{Server, WATCHDOG, assert_refusal, output, refusal, text};

/// Starts a server with metrics and returns it with their address.
fn start(arguments: &[&str]) -> (Server, String) {
    start_at("127.0.0.1:0", arguments)
}

/// Starts a server with metrics at an address.
fn start_at(listen: &str, arguments: &[&str]) -> (Server, String) {
    let server = Server::start(&[&["--metrics", listen], arguments].concat());
    let line = server.screen.lines().find_map(|line| line.trim_start().strip_prefix("metrics "));
    let address = line.expect("the screen names the address").trim();
    let address = address.strip_prefix("http://").and_then(|address| address.strip_suffix('/')).expect("a URL");
    let address = address.to_owned();
    (server, address)
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(WATCHDOG)).expect("a time");
    stream
}

/// Sends a request and returns all that comes back, until the server closes.
fn exchange(address: &str, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it replies in UTF-8");
    reply
}

/// Returns the status and the body of a path.
fn get(address: &str, path: &str) -> (u16, String) {
    get_as("localhost", address, path)
}

/// The same for a client that calls the server by a name.
fn get_as(host: &str, address: &str, path: &str) -> (u16, String) {
    let (_, status, body) = get_with(&format!("Host: {host}\r\n"), address, path);
    (status, body)
}

/// Returns the head of the reply to a request with these headers, its status and its body.
fn get_with(headers: &str, address: &str, path: &str) -> (String, u16, String) {
    let reply = exchange(address, &format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"));
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (head.to_owned(), status, body.to_owned())
}

/// Checks that the text has the form of OpenMetrics, and returns its samples by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let (mut samples, mut family) = (BTreeMap::new(), String::new());
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.split(' ');
            let (keyword, name) = (words.next().expect("a keyword"), words.next().expect("a name"));
            assert!(["HELP", "TYPE", "UNIT"].contains(&keyword), "{line}");
            family = name.to_owned();
            continue;
        }
        let (name, value) = line.rsplit_once(' ').expect("a value");
        assert!(name.starts_with(&family) && name.starts_with("skep_"), "{line} follows the type of {family}");
        let previous = samples.insert(name.to_owned(), value.parse().expect("a number"));
        assert_eq!(previous, None, "{line} is there twice");
    }
    samples
}

fn metrics(address: &str) -> BTreeMap<String, f64> {
    let headers = "Host: localhost\r\nAccept: application/openmetrics-text\r\n";
    let (head, status, text) = get_with(headers, address, "/metrics");
    assert_eq!(status, 200);
    assert!(head.to_lowercase().contains("\r\ncontent-type: application/openmetrics-text; version=1.0.0;"), "{head}");
    samples(&text)
}

#[test]
fn clients_that_do_not_name_open_metrics_get_the_older_format() {
    let (_server, address) = start(&["--cache-memory", "8MiB"]);
    let names: BTreeSet<String> = metrics(&address).into_keys().collect();
    for accept in ["", "Accept: */*\r\n", "Accept: text/plain;version=0.0.4\r\n"] {
        let (head, status, text) = get_with(&format!("Host: localhost\r\n{accept}"), &address, "/metrics");
        let content_type = "\r\ncontent-type: text/plain; version=0.0.4;";
        assert!(status == 200 && head.to_lowercase().contains(content_type), "{accept:?}: {head}");
        // Each name of a counter is that of its samples.
        let mut types = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').expect("a name and a kind");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert!(text.contains(&format!("# HELP {name} ")), "{line}");
            types.insert(name, kind);
        }
        assert!(types.len() > 30 && !text.contains("# EOF"), "{text}");
        // Its samples are those of OpenMetrics.
        assert_eq!(names, samples(&format!("{text}# EOF\n")).into_keys().collect(), "{accept:?}");
    }
}

/// Sends lines over RESP, and waits for as many replies of one line.
fn resp(server: &Server, lines: &str) {
    let mut stream = TcpStream::connect(server.resp.as_ref().expect("the RESP port is on")).expect("it listens");
    stream.write_all(lines.as_bytes()).expect("it reads");
    let count = lines.lines().count();
    let replies: Vec<String> = BufReader::new(stream).lines().take(count).map(|line| line.expect("a reply")).collect();
    assert_eq!(replies.len(), count);
}

#[test]
fn figures_agree_with_what_clients_did() {
    let (server, address) = start(&["--cache-memory", "8MiB"]);
    let before = metrics(&address);
    // One of them takes a slab of 512 bytes.
    let value = |key| if key == 7 { "v".repeat(300) } else { "value".to_owned() };
    let sets: String = (0..1000).map(|key| format!("SET key{key} {}\r\n", value(key))).collect();
    resp(&server, &sets);
    resp(&server, "INCR key0\r\nNOSUCH\r\nSELECT 1\r\nSET a b\r\nPING\r\n");
    // Shards publish some figures at the end of a turn, or in the next one.
    let begun = Instant::now();
    let after = loop {
        let after = metrics(&address);
        let has = |name: &str, count: u64| after.get(name).is_some_and(|value| *value as u64 == count);
        if has("skep_keys{space=\"hash\"}", 1000)
            && has("skep_operation_delay_seconds_count{front_end=\"resp\"}", 1002)
            && has("skep_commands_total{command=\"ping\"}", 1)
        {
            break after;
        }
        assert!(begun.elapsed() < WATCHDOG, "{after:?}");
    };
    let grown = |name: &str| (after[name] - before.get(name).unwrap_or(&0.0)) as u64;
    assert_eq!(grown("skep_commands_total{command=\"set\"}"), 1001);
    assert_eq!(grown("skep_commands_total{command=\"incr\"}"), 1);
    assert_eq!(grown("skep_commands_failed_total{command=\"incr\"}"), 1);
    assert_eq!(grown("skep_operations_total"), 1002);
    assert_eq!(grown("skep_keys{space=\"ordered\"}"), 1);
    assert_eq!(grown("skep_hash_slabs{size=\"512\"}"), 1);
    assert!(after["skep_hash_index_buckets"] > after["skep_hash_overflow_buckets"]);
    let shards = ["0", "1"].map(|shard| grown(&format!("skep_shard_operations_total{{shard=\"{shard}\"}}")));
    assert_eq!(shards.iter().sum::<u64>(), 1002);
    assert_eq!(grown("skep_error_replies_total{error=\"ERR\"}"), 2);
    assert_eq!(grown("skep_operation_delay_seconds_count{front_end=\"resp\"}"), 1002);
    assert_eq!(grown("skep_operation_delay_seconds_bucket{le=\"+Inf\",front_end=\"resp\"}"), 1002);
    assert_eq!(grown("skep_connections_accepted_total"), 2);
    assert!(grown("skep_input_bytes_total") >= sets.len() as u64);
    let page = include_str!("../../../../docs/watching.md");
    for name in after.keys().map(|name| name.split('{').next().expect("a name")) {
        let family = ["_total", "_bucket", "_count", "_sum"].iter().find_map(|suffix| name.strip_suffix(suffix));
        assert!(page.contains(&format!("| `{}` |", family.unwrap_or(name))), "the page describes {name}");
    }
    for space in ["hash", "ordered", "cache"] {
        let of = |name: &str| after[&format!("skep_memory_{name}_bytes{{space=\"{space}\"}}")];
        assert!(of("used") <= of("limit") && of("limit") > 0.0, "{space}: {after:?}");
    }
    let (_, state) = get(&address, "/state");
    assert!(state.contains("\"operations\":1002") && state.contains("[\"set\",1001]"), "{state}");
    assert!(state.contains("\"hot_keys\":[]"), "no key was counted before a reader came: {state}");
}

#[test]
fn hot_keys_and_slow_commands_are_in_the_state_of_a_local_port() {
    for (listen, shows_keys) in [("127.0.0.1:0", true), ("0.0.0.0:0", false)] {
        let (server, address) = start_at(listen, &[]);
        // A pipeline with both could be executed in one turn, which has one limit.
        resp(&server, "CONFIG SET slowlog-log-slower-than 0\r\n");
        resp(&server, "SET hot-key value\r\n");
        resp(&server, "CONFIG SET slowlog-log-slower-than -1\r\n");
        let gets: String = (0..4000)
            .map(
                |number| {
                    if number % 4 == 0 { "EXISTS hot-key\r\n".to_owned() } else { format!("EXISTS cold{number}\r\n") }
                },
            )
            .collect();
        let begun = Instant::now();
        let state = loop {
            resp(&server, &gets);
            let (_, state) = get(&address, "/state");
            let state: serde_json::Value = serde_json::from_str(&state).expect("it is JSON");
            if !shows_keys || state["hot_keys"].as_array().is_some_and(|keys| !keys.is_empty()) {
                break state;
            }
            assert!(begun.elapsed() < WATCHDOG, "{state}");
        };
        let slow = state["slow"].as_array().expect("slow commands").iter();
        let set = slow.clone().find(|command| command["command"] == "set").expect("the SET was slow");
        if shows_keys {
            let hot = &state["hot_keys"];
            assert_eq!((&hot[0]["key"], &hot[0]["space"], &hot[1]), (&"hot-key".into(), &"hash".into(), &().into()));
            let share = hot[0]["share"].as_f64().expect("a number");
            assert!((0.15..0.35).contains(&share), "{hot}");
            assert_eq!(set["key"], "hot-key");
            // The page of another site has its name.
            for (host, has_keys) in
                [("[::1]:9121", true), ("127.0.0.1", true), ("evil.example:9121", false), ("", false)]
            {
                let (_, state) = get_as(host, &address, "/state");
                assert_eq!(state.contains("hot-key"), has_keys, "{host}: {state}");
            }
            let once = output(&["top", "--once", &address]);
            assert!(text(&once.stdout).contains("set hot-key"), "{}", text(&once.stdout));
            let json = output(&["top", "--once", "--json", &address]);
            let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("it is JSON");
            assert_eq!(json["slow"], state["slow"]);
        } else {
            assert_eq!((&state["hot_keys"], &set["key"]), (&().into(), &().into()));
            assert!(!state.to_string().contains("hot-key"), "{state}");
        }
    }
}

#[test]
fn what_users_are_denied_is_counted() {
    let (server, address) = start(&[]);
    let user = "ACL SETUSER u on >secret +get +set ~a*\r\nAUTH u secret\r\n";
    resp(&server, &format!("{user}GET a\r\nINCR a\r\nGET b\r\nDEL a\r\n"));
    let native = |words: &[&str]| {
        let mut command = server.cli_command(&[&["--user", "u"], words].concat());
        command.env("SKEP_PASSWORD", "secret").output().expect("the program starts")
    };
    assert_eq!(text(&native(&["put", "a", "b"]).stdout), "OK\n");
    assert_eq!(native(&["get", "b"]).status.code(), Some(1));
    let after = metrics(&address);
    assert_eq!(after["skep_commands_denied_total{reason=\"command\"}"] as u64, 2, "{after:?}");
    assert_eq!(after["skep_commands_denied_total{reason=\"key\"}"] as u64, 1, "{after:?}");
    assert_eq!(after["skep_operations_denied_total"] as u64, 1, "{after:?}");
    assert_eq!(after["skep_tls_handshakes_failed_total"] as u64, 0, "{after:?}");
    assert_eq!(after["skep_operations_over_limit_total"] as u64, 0, "{after:?}");
}

/// Returns the words of a text that are names of metrics, without the suffix of a part.
fn metric_names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_' && !c.is_ascii_digit());
    let family = |word: &str| {
        let parts = ["_total", "_bucket", "_count", "_sum"];
        parts.iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(word).to_owned()
    };
    words.filter(|word| word.starts_with("skep_")).map(family).collect()
}

#[test]
fn rules_and_dashboard_name_metrics_that_there_are() {
    let documented = metric_names(include_str!("../../../../docs/watching.md"));
    let unknown = |text: &str| {
        let named = metric_names(text);
        assert!(named.len() >= 5, "{named:?}");
        named.difference(&documented).cloned().collect::<Vec<_>>()
    };
    let rules = include_str!("../../../../packaging/prometheus/skep.rules.yml");
    let dashboard = include_str!("../../../../packaging/prometheus/skep.dashboard.json");
    assert_eq!((unknown(rules), unknown(dashboard)), (Vec::new(), Vec::new()));
    // The control: another name is found.
    assert_eq!(unknown(&format!("{rules} skep_absent_total")), ["skep_absent"]);
    let parsed: serde_json::Value = serde_json::from_str(dashboard).expect("the dashboard is JSON");
    for panel in parsed["panels"].as_array().expect("it has panels") {
        let expressions = panel["targets"].as_array().expect("a panel has targets");
        let names_metric =
            |target: &serde_json::Value| target["expr"].as_str().is_some_and(|text| text.contains("skep_"));
        assert!(!expressions.is_empty() && expressions.iter().all(names_metric), "{}", panel["title"]);
    }
}

#[test]
fn user_functions_and_the_log_have_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let (server, address) = start(&["--data-dir", data.to_str().expect("UTF-8")]);
    let source = "mod m { #[update] fn halve(v: u8, by: u8) -> u8 { v / by } }";
    resp(&server, &format!("SKEP.FUNCTION LOAD '{source}'\r\n"));
    resp(&server, "SET n 8\r\nSKEP.UPDATE n m.halve 2\r\nSKEP.UPDATE n m.halve 0\r\n");
    let after = metrics(&address);
    assert_eq!(after["skep_function_calls_total{function=\"m.halve\"}"] as u64, 2, "{after:?}");
    assert_eq!(after["skep_function_failures_total{function=\"m.halve\"}"] as u64, 1);
    // Replies are sent when the log is on the disk.
    assert!(after["skep_log_durable_bytes_total"] > 0.0);
    assert!(after["skep_log_write_seconds_count"] > 0.0);
    assert_eq!(after["skep_log_trouble"] as u64, 0);
}

#[test]
fn paths_answer_and_all_else_is_refused() {
    let (_server, address) = start(&[]);
    assert_eq!(get(&address, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get(&address, "/readyz"), (200, "ok\n".to_owned()));
    let (status, page) = get(&address, "/");
    assert!(status == 200 && page.starts_with("<!doctype html>"), "{page}");
    // It asks no other host.
    let links = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!links.contains("http://") && !links.contains("https://") && !links.contains("src="), "{page}");
    assert_eq!(get(&address, "/nosuch").0, 404);
    assert_eq!(get(&address, "/../etc/passwd").0, 404);
    let posted = exchange(&address, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405 "), "{posted}");
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000));
    let mut stream = connect(&address);
    _ = stream.write_all(long.as_bytes());
    let mut reply = Vec::new();
    // The server may close before it has read all.
    _ = stream.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&reply));
}

#[test]
fn clients_that_say_nothing_are_closed() {
    let (_server, address) = start(&[]);
    let mut silent: Vec<TcpStream> = (0..200).map(|_| connect(&address)).collect();
    let mut half = connect(&address);
    half.write_all(b"GET /metrics HTTP/1.1\r\nHost:").expect("it reads");
    // One that is new takes the place of the oldest.
    assert_eq!(get(&address, "/healthz").0, 200);
    let mut newest = silent.pop().expect("there are some");
    newest.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut reply = String::new();
    newest.read_to_string(&mut reply).expect("text");
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    let begun = Instant::now();
    for stream in silent.iter_mut().chain([&mut half]) {
        _ = stream.read_to_end(&mut Vec::new());
    }
    assert!(begun.elapsed() < Duration::from_secs(25), "they are closed after some seconds");
}

#[test]
fn an_address_in_use_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--resp", "off", "--memory", "32MiB", "--metrics", &address];
    assert_refusal(&refusal(&arguments), 1, &[&address, "in use", "--metrics"]);
}
