//! Runs every command of `skep cli` against a server: checks its output and its exit code.

use std::io::Read;
use std::process::Stdio;

use crate::process::{Server, assert_refusal, output, text};
use crate::terminal::Terminal;

/// Runs a command that must succeed and print this text.
#[track_caller]
fn expect(server: &Server, words: &[&str], printed: &str) {
    let output = server.cli(words);
    let result = (text(&output.stdout), text(&output.stderr), output.status.code());
    assert_eq!(result, (printed.to_owned(), String::new(), Some(0)), "{words:?}");
}

/// Runs a command that must fail with exit code 1 and one line that contains these parts.
#[track_caller]
fn fail(server: &Server, words: &[&str], parts: &[&str]) {
    assert_refusal(&server.cli(words), 1, parts);
}

#[test]
fn keys_are_put_and_deleted() {
    let server = Server::start(&[]);
    fail(&server, &["get", "k"], &["`k`", "not found"]);
    expect(&server, &["put", "k", "v"], "OK\n");
    expect(&server, &["get", "k"], "v");
    fail(&server, &["put", "k", "w", "--if-absent"], &["`k`", "exists"]);
    expect(&server, &["put", "k", "w", "--if-present"], "OK\n");
    expect(&server, &["exists", "k"], "yes\n");
    expect(&server, &["ping"], "pong\n");
    expect(&server, &["delete", "k"], "OK\n");
    fail(&server, &["delete", "k"], &["not found"]);
    fail(&server, &["put", "k", "v", "--if-present"], &["not found"]);
    expect(&server, &["put", "--if-absent", "k", "--v"], "OK\n");
    expect(&server, &["get", "k"], "--v");

    let missing = server.cli(&["exists", "missing"]);
    assert_eq!((text(&missing.stdout).as_str(), missing.status.code()), ("no\n", Some(1)));
    assert_eq!(text(&missing.stderr), "");
}

#[test]
fn keys_get_read_and_lose_their_expiry() {
    let server = Server::start(&[]);
    for space in ["hash", "ordered"] {
        let words = |words: &[&'static str]| [&["--space", space], words].concat();
        expect(&server, &words(&["put", "k", "v"]), "OK\n");
        expect(&server, &words(&["expiry", "k"]), "never\n");
        expect(&server, &words(&["expire", "k", "1h"]), "OK\n");
        let left = text(&server.cli(&words(&["expiry", "k"])).stdout);
        assert!(left.starts_with("59m 59s ") || left == "1h\n", "{left}");
        expect(&server, &words(&["persist", "k"]), "OK\n");
        expect(&server, &words(&["expiry", "k"]), "never\n");
        expect(&server, &words(&["put", "k", "w", "--if-present", "--expires-in", "2days"]), "OK\n");
        fail(&server, &words(&["put", "k", "x", "--if-absent", "--expires-in", "1s"]), &["exists"]);
        let left = text(&server.cli(&words(&["expiry", "k"])).stdout);
        assert!(left.starts_with("1day 23h 59m 59s ") || left == "2days\n", "{left}");
        expect(&server, &words(&["put", "k", "x"]), "OK\n");
        expect(&server, &words(&["expiry", "k"]), "never\n");
        // The server's clock has passed the expiry before the next command is sent.
        expect(&server, &words(&["put", "k", "x", "--expires-in", "1ms"]), "OK\n");
        std::thread::sleep(std::time::Duration::from_millis(20));
        for command in [&["get", "k"][..], &["expiry", "k"], &["persist", "k"], &["expire", "k", "1s"]] {
            fail(&server, &words(command), &["`k`", "not found"]);
        }
    }
    assert_refusal(&server.cli(&["expire", "k", "10"]), 2, &["`10` is not a time", "500ms"]);
}

#[test]
fn values_of_any_bytes_are_stored_unchanged() {
    let server = Server::start(&[]);
    let largest: Vec<u8> = (0..1u32 << 20).map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect();
    for value in [&b""[..], b"\xff\x00\n", b"text\n", &largest] {
        assert_eq!(server.cli_with_input(&["put", "k", "-"], value).status.code(), Some(0));
        let got = server.cli(&["get", "k"]);
        assert_eq!(got.status.code(), Some(0));
        assert!(got.stdout == value, "{} bytes", value.len());
    }
    let too_long = vec![b'x'; (1 << 20) + 1];
    assert_refusal(&server.cli_with_input(&["put", "k", "-"], &too_long), 2, &["longer than 1048576"]);
}

#[test]
fn numbers_are_updated_next_to_the_data() {
    let server = Server::start(&[]);
    fail(&server, &["update", "n", "add", "i64", "5"], &["`n`", "not found", "--init"]);
    expect(&server, &["update", "n", "add", "i64", "5", "--init", "0"], "0\n");
    expect(&server, &["update", "n", "add", "i64", "-7"], "5\n");
    expect(&server, &["update", "n", "cas", "i64", "-2", "40"], "-2\n");
    expect(&server, &["update", "n", "max", "i64", "41", "--no-return"], "OK\n");
    expect(&server, &["get-vector", "n", "i64"], "41\n");
    expect(&server, &["reduce", "n", "sum", "i64", "1"], "42\n");
    fail(&server, &["incr", "n"], &["`n`", "not an integer", "8 bytes that are not decimal text", "get-vector"]);
    fail(&server, &["update", "n", "add", "i64", "1", "2"], &["wrong length", "add takes one operand for all"]);
    expect(&server, &["put", "long", "99999999999999999999"], "OK\n");
    let long = server.cli(&["incr", "long"]);
    assert_refusal(&long, 1, &["`long`", "out of range"]);
    assert!(!text(&long.stderr).contains("not decimal text"));
    expect(&server, &["put", "f", "abc"], "OK\n");
    for words in
        [&["update", "f", "add", "f64", "1"][..], &["reduce", "f", "sum", "f64", "0"], &["get-vector", "f", "f64"]]
    {
        fail(&server, words, &["3 bytes", "a multiple of 8, the size of f64", "choose another element type"]);
    }
    fail(&server, &["get-vector", "f", "i16"], &["3 bytes"]);
}

#[test]
fn vectors_are_updated_reduced_and_filtered() {
    let server = Server::start(&[]);
    expect(&server, &["set-vector", "v", "i64", "1", "20", "-3"], "OK\n");
    expect(&server, &["update", "v", "add", "i64", "1"], "1 20 -3\n");
    expect(&server, &["update", "v", "sub", "i64", "1", "10", "0"], "2 21 -2\n");
    expect(&server, &["get-vector", "v", "i64"], "1 11 -2\n");
    expect(&server, &["reduce", "v", "sum", "i64", "0"], "10\n");
    expect(&server, &["reduce", "v", "dot", "i64", "0", "1", "2", "-1"], "25\n");
    expect(&server, &["set-vector", "b", "u8", "200", "0", "100"], "OK\n");
    expect(&server, &["reduce", "b", "wide-sum", "u8", "1000"], "1300\n");
    expect(&server, &["reduce", "b", "count", "u8", "0"], "2\n");
    expect(&server, &["filter", "v", "gt", "i64", "0"], "1 11\n");
    expect(&server, &["filter", "v", "nonzero", "i64"], "1 11 -2\n");
    expect(&server, &["filter", "v", "eq", "i64", "7"], "\n");
    expect(&server, &["update", "w", "mul", "f32", "3", "--init", "0.5", "1.5"], "0.5 1.5\n");
    expect(&server, &["get-vector", "w", "f32"], "1.5 4.5\n");
}

#[test]
fn decimal_counters_are_text() {
    let server = Server::start(&[]);
    expect(&server, &["incr", "a"], "1\n");
    expect(&server, &["incr", "a", "41"], "42\n");
    expect(&server, &["incr", "a", "-2"], "40\n");
    expect(&server, &["get", "a"], "40");
}

#[test]
fn the_ordered_space_has_ranges() {
    let server = Server::start(&[]);
    expect(&server, &["scan"], "");
    for (key, value) in [("b", "2"), ("a", "1"), ("c", "x\ty"), ("ca", "4")] {
        expect(&server, &["--space", "ordered", "put", key, value], "OK\n");
    }
    fail(&server, &["get", "a"], &["`a`", "not found"]);
    expect(&server, &["get", "a", "--space", "ordered"], "1");
    expect(&server, &["--space", "ordered", "incr", "a", "9"], "10\n");
    expect(&server, &["scan"], "a\t10\nb\t2\nc\tx\\ty\nca\t4\n");
    expect(&server, &["scan", "b", "c"], "b\t2\nc\tx\\ty\n");
    expect(&server, &["scan", "b", "--limit", "1"], "b\t2\n");
    expect(&server, &["scan", "a", "ca", "--reverse", "--keys"], "ca\nc\nb\na\n");
    // From the greatest key that is not above the start.
    expect(&server, &["scan", "bb", "c", "--floor"], "b\t2\nc\tx\\ty\n");
    expect(&server, &["scan", "c", "--floor", "--keys"], "c\nca\n");
    expect(&server, &["scan", "bb", "--floor", "--keys", "--reverse"], "ca\nc\nb\n");
    expect(&server, &["scan", "bb", "--floor", "--limit", "1"], "b\t2\n");
    expect(&server, &["scan", "A", "--floor", "--limit", "1"], "a\t10\n");
    assert_refusal(&server.cli(&["scan", "--floor"]), 2, &["<START>", "not provided"]);
    expect(&server, &["prefix", "c", "--keys"], "c\nca\n");
    expect(&server, &["prefix", "c", "--reverse", "--limit", "1"], "ca\t4\n");
    expect(&server, &["count"], "4\n");
    expect(&server, &["count", "b", "c"], "2\n");
    expect(&server, &["count", "--prefix", "c"], "2\n");
    expect(&server, &["--space", "ordered", "delete", "ca"], "OK\n");
    expect(&server, &["prefix", "c", "--keys"], "c\n");
    fail(&server, &["scan", "b", "a"], &["begins above its end", "swap"]);
    fail(&server, &["--space", "hash", "scan"], &["no order", "ordered space"]);
    assert_refusal(&server.cli(&["scan", "--limit", "0"]), 2, &["--limit", "1.."]);
    assert_refusal(&server.cli(&["--space", "tree", "get", "a"]), 2, &["tree", "hash, ordered"]);
    // The result is longer than a page, so that `count` needs several pages.
    let value = "v".repeat(30_000);
    for number in 0..10 {
        expect(&server, &["--space", "ordered", "put", &format!("long:{number}"), &value], "OK\n");
    }
    let lines: String = (0..10).rev().map(|number| format!("long:{number}\t{value}\n")).collect();
    expect(&server, &["prefix", "long:", "--reverse"], &lines);
}

#[test]
fn errors_of_scans_are_named() {
    let server = Server::start(&["--lease-time", "50ms"]);
    let long = "k".repeat(461);
    for words in [&["scan", &long][..], &["scan", "a", &long], &["prefix", &long], &["count", "--prefix", &long]] {
        fail(&server, words, &["key is longer than 460 bytes"]);
    }
    fail(&server, &["count", "b", "a"], &["begins above its end", "swap"]);
    // A client that reads a long scan too slowly gets an error after the pages of one state.
    let value = "v".repeat(30_000);
    for number in 0..10 {
        expect(&server, &["--space", "ordered", "put", &format!("long:{number}"), &value], "OK\n");
    }
    let mut child = server.cli_command(&["scan"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().expect("a pipe");
    // The first page is printed. The pipe has no capacity for another one.
    let mut printed = vec![0];
    stdout.read_exact(&mut printed).expect("it can be read");
    std::thread::sleep(std::time::Duration::from_millis(300));
    stdout.read_to_end(&mut printed).expect("it can be read");
    let ended = child.wait_with_output().expect("it ends");
    assert_refusal(&ended, 1, &["lease", "expired", "begin the scan again"]);
    assert!(printed.len() < 200_000 && printed.ends_with(b"v\n"), "{} bytes", printed.len());
}

#[test]
fn every_transport_serves_commands_and_has_its_own_advice() {
    let path = std::env::temp_dir().join(format!("skep-cli-{}", std::process::id()));
    let path = path.to_str().expect("the path is UTF-8");
    let cli =
        |address: &str, words: &[&str]| output(&[&["cli", "--timeout", "500ms", "--addr", address], words].concat());
    let shared = format!("shm:{path}");
    let server = Server::start(&["--udp", "127.0.0.1:0", "--shared-memory", path]);
    assert!(server.screen.contains(&format!("cli --addr {shared} get a\n")), "{}", server.screen);
    let line =
        server.screen.lines().find_map(|line| line.trim_start().strip_prefix("UDP ")).expect("it has a UDP port");
    let udp = format!("udp:{}", line.trim().split(' ').next().expect("it has an address"));
    assert_eq!(text(&cli(&udp, &["put", "a", "1"]).stdout), "OK\n");
    assert_eq!(text(&cli(&shared, &["get", "a"]).stdout), "1");
    // It is killed, so its socket remains.
    drop(server);
    let parts = [&format!("no server listens at {shared}: ")[..], "--shared-memory", "with --addr"];
    assert_refusal(&cli(&shared, &["get", "a"]), 1, &parts);
    std::fs::remove_file(path).expect("the socket can be removed");
    assert_refusal(&cli(&shared, &["get", "a"]), 1, &parts);
    assert_refusal(
        &cli(&udp, &["get", "a"]),
        1,
        &[&format!("no server replies at {udp}: "), "skep serve --udp 127.0.0.1:"],
    );
    let rdma = "rdma:127.0.0.1:1";
    assert_refusal(
        &cli(rdma, &["get", "a"]),
        1,
        &[&format!("cannot connect to {rdma}: "), "without RDMA", "another address with --addr"],
    );
}

#[test]
fn a_server_without_an_ordered_space_refuses_scans() {
    let server = Server::start(&["--ordered-memory", "off"]);
    assert!(server.screen.contains("ordered     off"), "{}", server.screen);
    fail(&server, &["scan"], &["does not have this space", "needs --ordered-memory"]);
    fail(&server, &["--space", "ordered", "put", "k", "v"], &["does not have this space"]);
    expect(&server, &["put", "k", "v"], "OK\n");
}

#[test]
fn the_resp_port_is_not_a_native_port() {
    let server = Server::start(&[]);
    let resp = server.resp.as_deref().expect("the RESP port is on");
    assert_refusal(&output(&["cli", "--addr", resp, "get", "k"]), 1, &[resp, "native port"]);
}

#[test]
fn without_a_server_the_error_names_the_address() {
    assert_refusal(&output(&["cli", "--addr", "127.0.0.1:1", "get", "k"]), 1, &["127.0.0.1:1", "skep serve", "--addr"]);
    for command in [&["cli", "--addr", "nonsense", "get", "k"][..], &["bench", "--addr", "127.0.0.1"]] {
        assert_refusal(&output(command), 2, &[command[2].trim_start_matches("-"), "--addr", "HOST:PORT"]);
    }
}

#[test]
fn a_server_that_does_not_reply_causes_a_timeout() {
    let server = Server::start(&[]);
    server.signal("STOP");
    // The system still accepts connections.
    for command in [&["--timeout", "100ms", "get", "k"][..], &["count", "--timeout", "100ms"]] {
        fail(&server, command, &[&server.native, "did not reply", "within 100ms"]);
    }
    server.signal("CONT");
    expect(&server, &["put", "k", "v", "--timeout", "1h"], "OK\n");
    assert_refusal(&server.cli(&["get", "k", "--timeout", "0s"]), 2, &["`0s` is not a time", "500ms"]);
}

#[test]
fn the_password_is_in_a_file_or_in_the_environment() {
    let folder = std::env::temp_dir().join(format!("skep-password-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong, empty) = (write("right", "ham\nnot read\n"), write("wrong", "egg\n"), write("empty", "\n"));
    let server = Server::start(&["--requirepass-file", &right]);
    fail(&server, &["get", "k"], &["needs a password", "--password-file", "SKEP_PASSWORD"]);
    fail(&server, &["get", "k", "--password-file", &wrong], &["password is wrong"]);
    assert_refusal(&server.cli(&["get", "k", "--password-file", &empty]), 2, &["0 bytes", "1 to 512"]);
    assert_refusal(&server.cli(&["get", "k", "--password-file", "/no/file"]), 2, &["/no/file"]);
    expect(&server, &["put", "k", "v", "--password-file", &right], "OK\n");
    let mut command = server.cli_command(&["get", "k"]);
    assert_eq!(command.env("SKEP_PASSWORD", "ham").output().unwrap().stdout, b"v");
    assert_refusal(&command.env("SKEP_PASSWORD", "egg").output().unwrap(), 1, &["password is wrong"]);
    let mut scan = server.cli_command(&["count"]);
    assert_eq!(scan.env("SKEP_PASSWORD", "ham").output().unwrap().stdout, b"0\n");
    let both = output(&["serve", "--requirepass", "x", "--requirepass-file", &right]);
    assert_refusal(&both, 2, &["--requirepass-file"]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn json_has_an_object_for_each_result() {
    let server = Server::start(&[]);
    for (words, expected) in [
        (&["ping"][..], "{\"ok\":true}\n"),
        (&["put", "a", "b"], "{\"key\":\"a\",\"ok\":true}\n"),
        (&["get", "a"], "{\"key\":\"a\",\"value\":\"b\"}\n"),
        (&["exists", "a"], "{\"exists\":true,\"key\":\"a\"}\n"),
        (&["expiry", "a"], "{\"key\":\"a\",\"left_ms\":null}\n"),
        (&["incr", "n", "-7"], "{\"key\":\"n\",\"number\":-7}\n"),
        (&["update", "v", "add", "i16", "1", "--init", "5", "6"], "{\"elements\":[5,6],\"key\":\"v\"}\n"),
        (&["update", "v", "add", "i16", "1", "--no-return"], "{\"key\":\"v\",\"ok\":true}\n"),
        (&["reduce", "v", "sum", "i16", "0"], "{\"elements\":[15],\"key\":\"v\"}\n"),
        (&["--space", "ordered", "put", "user:1", "ada"], "{\"key\":\"user:1\",\"ok\":true}\n"),
        (&["--space", "ordered", "set-vector", "user:2", "u8", "255"], "{\"key\":\"user:2\",\"ok\":true}\n"),
        (
            &["prefix", "user:"],
            "{\"key\":\"user:1\",\"value\":\"ada\"}\n{\"key\":\"user:2\",\"value_base64\":\"/w==\"}\n",
        ),
        (&["scan", "--keys", "--limit", "1"], "{\"key\":\"user:1\"}\n"),
        (&["count"], "{\"count\":2}\n"),
    ] {
        let printed = server.cli(&[&["--json"], words].concat());
        assert_eq!((text(&printed.stdout).as_str(), text(&printed.stderr).as_str()), (expected, ""), "{words:?}");
    }
    for (words, code, expected) in [
        (&["get", "none"][..], 1, "{\"error\":\"key `none` not found in the hash space\"}\n"),
        (&["incr", "a"], 1, "{\"error\":\"key `a`: "),
        (&["put", "", "x"], 2, "{\"error\":\""),
    ] {
        let failed = server.cli(&[words, &["--json"]].concat());
        assert_eq!((failed.status.code(), text(&failed.stdout).as_str()), (Some(code), ""), "{words:?}");
        assert!(text(&failed.stderr).starts_with(expected), "{}", text(&failed.stderr));
    }
    let absent = server.cli(&["--json", "exists", "none"]);
    assert_eq!(
        (text(&absent.stdout).as_str(), absent.status.code()),
        ("{\"exists\":false,\"key\":\"none\"}\n", Some(1))
    );
    let piped = server.cli_with_input(&["--json"], b"get a\nget none\n");
    assert_eq!(text(&piped.stdout), "{\"key\":\"a\",\"value\":\"b\"}\n");
    assert_eq!(text(&piped.stderr), "{\"error\":\"key `none` not found in the hash space\",\"line\":2}\n");
}

#[test]
fn lines_of_a_pipe_are_commands() {
    let server = Server::start(&["--ordered-memory", "64MiB"]);
    let lines =
        b"# don't read this\n\nput greeting \"good \\\"morning\\\"\\n\\xff\"\nget greeting\nput k \"-\"\nget k\nincr n\n\
        space ordered\nput a 1\nput b 2 --space hash\nprefix \"\"\nspace\nexists b\nquit\nput k after\n";
    let output = server.cli_with_input(&[], lines);
    assert_eq!(text(&output.stderr), "");
    let expected = ["OK", "good \"morning\"\\n\\xff", "OK", "-", "1", "OK", "OK", "a\t1", "yes", ""];
    assert_eq!((text(&output.stdout), output.status.code()), (expected.join("\n"), Some(0)));
    expect(&server, &["get", "k"], "-");

    // A line that fails is named, and does not stop the others.
    let output = server.cli_with_input(&[], b"get missing\nput \"k\nfly\nincr n x\nincr n\n");
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("2\n", Some(1)));
    let errors = text(&output.stderr);
    for (line, part) in [("line 1", "not found"), ("line 2", "quotes"), ("line 3", "fly"), ("line 4", "whole number")] {
        assert!(errors.contains(&format!("skep: {line}: ")) && errors.contains(part), "{line}: {errors}");
    }
}

#[test]
fn a_dash_in_a_line_is_refused_unless_it_is_in_quotes() {
    let server = Server::start(&[]);
    let output =
        server.cli_with_input(&[], b"put a -\nput - -\nput b '-'\nput - \"-\" --if-absent\nput -\nget b\nget -\n");
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("OK\nOK\n-\n-\n", Some(1)));
    let errors = text(&output.stderr);
    let lines: Vec<&str> = errors.lines().collect();
    assert_eq!(lines.len(), 3, "{errors}");
    for (line, number) in lines.iter().zip([1, 2]) {
        assert!(line.starts_with(&format!("skep: line {number}: ")) && line.contains("write \"-\""), "{line}");
    }
    fail(&server, &["get", "a"], &["not found"]);
    let help = text(&server.cli(&["put", "--help"]).stdout);
    assert!(help.contains("\"-\" in quotes"), "{help}");
}

/// A word that was typed must not reach the terminal as it is, nor fill it.
#[test]
fn messages_quote_typed_words_in_part() {
    let server = Server::start(&[]);
    // All lines together fit into a pipe.
    let long = "x".repeat(4000);
    let wild = format!("\u{1b}]0;title\u{7}{long}");
    let lines = [
        wild.clone(),
        format!("get k --{wild}"),
        format!("get k {wild}"),
        format!("incr n {wild}"),
        format!("incr n {}", "9".repeat(4000)),
        format!("put k v --expires-in {wild}"),
        format!("update k {wild} i64 1"),
        format!("update k add {wild} 1"),
        format!("update k add i64 {wild}"),
        format!("get-vector k i64 --space {wild}"),
        format!("space {wild}"),
        format!("help {wild}"),
        format!("get {}", "k".repeat(400)),
    ];
    let output = server.cli_with_input(&[], lines.join("\n").as_bytes());
    let errors = text(&output.stderr);
    assert_eq!(errors.lines().count(), lines.len(), "{errors}");
    for line in errors.lines() {
        assert!(line.len() < 1000 && !line.contains(char::is_control), "{} bytes: {line:?}", line.len());
    }
    // The same on the command line.
    for words in
        [&[&wild[..]][..], &["incr", "n", &wild], &["get", "k", "--timeout", &wild], &["--addr", &wild, "ping"]]
    {
        let line = text(&server.cli(words).stderr);
        assert!(line.len() < 1000 && !line.trim_end().contains(char::is_control), "{} bytes: {line:?}", line.len());
    }
}

#[test]
fn a_line_that_is_not_utf8_does_not_end_the_session() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut terminal = Terminal::start(&format!("$SKEP cli --addr {}", server.native), folder.path());
    terminal.wait_for("Ctrl-D ends");
    terminal.type_in(b"put a \xff\xfe\r");
    terminal.wait_for("the line is not UTF-8");
    terminal.type_in(b"get a\r");
    terminal.wait_for("not found");
    terminal.type_in(b"put a \"\\xff\"\r");
    terminal.wait_for("OK");
    terminal.type_in(b"put b -\r");
    terminal.wait_for("write \"-\"");
    terminal.type_in("\u{9b}fly\r".as_bytes());
    terminal.wait_for("there is no command");
    terminal.type_in(b"\x04");
    assert!(terminal.wait().success(), "{}", terminal.printed());
    expect(&server, &["--json", "get", "a"], "{\"key\":\"a\",\"value_base64\":\"/w==\"}\n");
}

/// The help of each command has an example. All of them work, in one run.
#[test]
fn examples_of_commands_work() {
    let server = Server::start(&["--ordered-memory", "64MiB"]);
    let names = "ping put get expire expiry persist exists delete incr update reduce filter set-vector get-vector \
        scan prefix count";
    for name in names.split_whitespace() {
        let help = text(&server.cli(&[name, "--help"]).stdout);
        let (_, example) = help.split_once("Example: skep cli ").unwrap_or_else(|| panic!("{name} has no example"));
        let output = server.cli_with_input(&[], example.trim().as_bytes());
        assert!(example.starts_with(name) && output.status.success(), "{example}: {}", text(&output.stderr));
    }
}
