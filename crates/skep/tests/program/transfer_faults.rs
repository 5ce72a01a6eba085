//! Faults of a source or of a target during `skep import` and `skep export`.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::fake_source::{bulk, page, start};
use crate::process::{Server, WATCHDOG, assert_refusal, output, signal, skep, text, wait};
use crate::wire::Connection;

/// A file that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn with(name: &str, text: &str) -> Scratch {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        Scratch(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

fn import(server: &Server, source: &str, more: &[&str]) -> Output {
    output(&[&["import", source, "--addr", &server.native], more].concat())
}

/// Runs commands without spaces in their arguments on a server. Returns the replies in one line.
fn run(server: &Server, lines: &[&str]) -> String {
    let words = |line: &&str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let commands: Vec<_> = lines.iter().map(words).collect();
    let replies = Connection::to_address(server.resp.as_ref().expect("the RESP port is on")).run(&commands).concat();
    text(&replies).replace("\r\n", " ").trim_end().to_owned()
}

/// Returns lines of JSON with these numbers as keys.
fn json_lines(numbers: std::ops::Range<u32>) -> String {
    numbers.map(|number| format!("{{\"key\":\"{number}\",\"value\":\"v\"}}\n")).collect()
}

/// Starts an import of a pipe.
fn import_pipe(server: &Server, format: &str) -> Child {
    let mut command = skep(&["import", "-", "--format", format, "--addr", &server.native]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < WATCHDOG, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_fault_of_a_source_is_named() {
    let server = Server::start(&[]);
    let only =
        |command: &'static str, reply: Vec<u8>| start(move |line| line.starts_with(command).then(|| reply.clone()));
    for (url, flags, parts) in [
        (only("SCAN", page("7", &["k"])), &[][..], &["returned the cursor 7 again"][..]),
        (only("SCAN 0 COUNT", b"-ERR invalid cursor\r\n".to_vec()), &[], &["invalid cursor", "--resume 0:0 reads"]),
        (only("TYPE", Vec::new()), &["--timeout", "1s"], &["it has sent nothing for too long"]),
        (only("INFO", bulk(b"cluster_enabled:1\r\n")), &[], &["is a node of a cluster"]),
        (only("STRLEN", b":-1\r\n".to_vec()), &[], &["has sent a reply to another command"]),
        (only("DUMP", b"-READONLY no\r\n".to_vec()), &[], &["READONLY no"]),
        (only("HTTP", Vec::new()), &["--resume", "0:9:00000000000000aa"], &["has started again", "--resume 0:0"]),
        (only("HTTP", Vec::new()), &["--resume", "0:9"], &["the position 0:9 has no run", "0:9:RUN", "--resume 0:0"]),
        (only("HTTP", Vec::new()), &["--resume", "7:0"], &["has no keys in database 7"]),
    ] {
        let refused = import(&server, &url, flags);
        assert_refusal(&refused, if flags.contains(&"--resume") { 2 } else { 1 }, parts);
    }
    for address in ["u:secret@127.0.0.1:1", "tls:u:secret@127.0.0.1:1", "u:sec?secret@127.0.0.1:1"] {
        let failed = output(&["export", "x.rdb", "--addr", address]);
        assert_refusal(&failed, 1, &["cannot reach a server at ", "127.0.0.1:1: "]);
        assert!(!text(&failed.stderr).contains("sec"), "{}", text(&failed.stderr));
    }
    assert_refusal(&import(&server, "redis://h:1/5", &[]), 2, &["redis://h:1 has more after its port"]);
    let refused = import(&server, "redis+tls://:secret@h:1", &[]);
    assert_refusal(&refused, 2, &["redis+tls:// is not known"]);
    assert!(!text(&refused.stderr).contains("secret"));
}

#[test]
fn a_source_is_read_as_far_as_it_can_be() {
    let server = Server::start(&[]);
    let imported = |url: &str| {
        let imported = import(&server, url, &[]);
        assert_eq!((text(&imported.stderr).as_str(), imported.status.code()), ("", Some(0)));
        text(&imported.stdout)
    };
    // A user who may not read most keys.
    let printed = imported(&start(|line| (line == "DBSIZE").then(|| b":1000\r\n".to_vec())));
    assert!(printed.contains("the server counts 1000 keys and shows 1: the user may not read"), "{printed}");
    assert!(printed.contains("read from Redis 7.0.15 at redis://127.0.0.1:"), "{printed}");
    // Another client changes the value and the expiry between two commands.
    let mut times = 0;
    let url = start(move |line| {
        times += u32::from(line.starts_with("PEXPIRETIME"));
        (line.starts_with("PEXPIRETIME") && times > 1).then(|| b":4000000000000\r\n".to_vec())
    });
    assert!(imported(&url).starts_with("imported 1 key into the hash space, 1 with an expiry\n"));
    assert_eq!(run(&server, &["PEXPIRETIME k", "GET k"]), ":4000000000000 $5 hello");
    // The type has changed.
    let changed = start(|line| line.starts_with("STRLEN").then(|| b"-WRONGTYPE it is a list\r\n".to_vec()));
    assert!(imported(&changed).contains("left out 1 key that changed"));
    // The server is loading its data.
    let mut count = 0;
    let loading = start(move |line| {
        count += u32::from(line.starts_with("TYPE"));
        (line.starts_with("TYPE") && count == 1).then(|| b"-LOADING wait\r\n".to_vec())
    });
    assert!(imported(&loading).starts_with("imported 1 key into the hash space\n"));
    // A database without a space has no strings.
    let lists = start(|line| match line {
        "INFO" => Some(bulk(b"db0:keys=1\r\ndb5:keys=1\r\n")),
        "SELECT 5" => Some(b"+OK\r\n".to_vec()),
        _ => line.starts_with("TYPE").then(|| b"+list\r\n".to_vec()),
    });
    assert!(imported(&lists).contains("left out 2 lists\n"));
}

#[test]
fn a_key_is_once_in_an_rdb_file() {
    let url = start(|line| line.starts_with("SCAN").then(|| page("0", &["k", "k"])));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-twice.rdb", std::process::id()));
    let exported = output(&["export", file.to_str().unwrap(), "--addr", &url]);
    assert!(text(&exported.stdout).starts_with("exported 1 key of the hash space\n"), "{}", text(&exported.stdout));
    let bytes = fs::read(&file).unwrap();
    assert_eq!(bytes.windows(8).filter(|window| *window == b"\x01k\x05hello").count(), 1);
    fs::remove_file(file).unwrap();
}

#[test]
fn an_import_ends_if_the_server_starts_again() {
    let server = Server::start(&[]);
    let address = server.native.clone();
    let flags = ["import", "-", "--format", "json", "--addr", &address];
    let mut child = skep(&flags).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(json_lines(0..20_000).as_bytes()).unwrap();
    while server.key_counts()[0] < 16_384 {
        thread::sleep(Duration::from_millis(5));
    }
    drop(server);
    let flags = ["serve", "--listen", &address, "--resp", "127.0.0.1:0", "--memory", "64MiB", "--shards", "2"];
    let _server = Server::start_command(&mut skep(&flags));
    // The import may end before it has read all.
    _ = input.write_all(json_lines(20_000..60_000).as_bytes());
    drop(input);
    let failed = child.wait_with_output().unwrap();
    assert_refusal(&failed, 1, &["if the server has kept them (--durability always), --resume ", "start again"]);
}

#[test]
fn a_connection_that_is_closed_before_the_first_change_ends_no_import() {
    let server = Server::start(&["--timeout", "1"]);
    let mut child = import_pipe(&server, "json");
    let is_closed = || !run(&server, &["INFO"]).contains("skep_connections_closed_idle:0 ");
    wait_until("the server closes the connections of the import", is_closed);
    child.stdin.take().unwrap().write_all(json_lines(0..10).as_bytes()).unwrap();
    let imported = child.wait_with_output().unwrap();
    assert_eq!((text(&imported.stderr).as_str(), imported.status.code()), ("", Some(0)));
    assert_eq!(server.key_counts(), [10, 0]);
}

#[test]
fn the_changes_of_a_pipe_do_not_wait_for_later_ones() {
    let server = Server::start(&[]);
    let mut count = 0;
    for (format, head, line) in [
        ("json", "", "{\"key\":\"KEY\",\"value\":\"v\"}\n"),
        ("csv", "key,value\n", "KEY,v\n"),
        ("resp", "", "*3\r\n$3\r\nSET\r\n$5\r\nKEY\r\n$1\r\nv\r\n"),
    ] {
        let mut child = import_pipe(&server, format);
        let mut input = child.stdin.take().unwrap();
        input.write_all(head.as_bytes()).unwrap();
        for key in ["first", "later"] {
            input.write_all(line.replace("KEY", &format!("{format:.1}{:.4}", key)).as_bytes()).unwrap();
            count += 1;
            wait_until(format, || server.key_counts() == [count, 0]);
        }
        drop(input);
        let imported = child.wait_with_output().unwrap();
        assert_eq!(text(&imported.stdout), "imported 2 keys into the hash space\n", "{}", text(&imported.stderr));
    }
}

#[test]
fn a_server_that_refuses_the_changes_of_a_silent_pipe_is_named() {
    let server = Server::start(&[]);
    let flags = ["import", "-", "--format", "csv", "--into-cache", "--addr", &server.native];
    let mut child = skep(&flags).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"space,key,value\ncache,a,b\n").unwrap();
    assert_eq!(wait(&mut child).code(), Some(1));
    let refused = child.wait_with_output().unwrap();
    assert_refusal(&refused, 1, &["--cache-memory", "at least 0 keys were imported before, and --resume 0 continues"]);
}

#[test]
fn a_signal_ends_an_import_between_two_progresses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = Scratch::with("silent.jsonl", &json_lines(0..10));
    let address = listener.local_addr().unwrap().to_string();
    let mut command = skep(&["import", file.path(), "--addr", &address, "--timeout", "1h"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The file has been checked, and the server sends nothing.
    let _connection = listener.accept().unwrap();
    signal(&child, "INT");
    assert_eq!(wait(&mut child).code(), Some(130));
    assert_refusal(&child.wait_with_output().unwrap(), 130, &["skep: interrupted\n"]);
}

#[test]
fn a_space_that_the_user_may_not_read_is_left_out() {
    let server = Server::start(&[]);
    let users = ["ACL SETUSER hash on >secret ~* +@all space:hash", "ACL SETUSER none on >secret ~* +@all -select"];
    assert_eq!(run(&server, &[users[0], users[1], "SET a b", "SELECT 1", "SET c d"]), "+OK +OK +OK +OK +OK");
    let url = |user: &str| format!("redis://{user}:secret@{}", server.resp.as_ref().unwrap());
    let target = Server::start(&[]);
    let imported = import(&target, &url("hash"), &[]);
    let expected = "imported 1 key into the hash space\nleft out database 1: the user may not read it\nread from Skep";
    assert!(text(&imported.stdout).starts_with(expected), "{}", text(&imported.stderr));
    assert_eq!(target.key_counts(), [1, 0]);
    let exported = output(&["export", "-", "--format", "json", "--addr", &url("hash")]);
    assert_eq!(text(&exported.stdout), "{\"space\":\"hash\",\"key\":\"a\",\"value\":\"b\"}\n");
    assert!(text(&exported.stderr).contains("left out database 1: "), "{}", text(&exported.stderr));
    assert_refusal(&import(&target, &url("none"), &[]), 1, &["NOPERM"]);
    let address = url("hash");
    let refused = output(&["export", "-", "--format", "json", "--space", "ordered", "--addr", &address]);
    assert_refusal(&refused, 1, &["NOPERM"]);
}

#[test]
fn an_import_that_is_interrupted_names_its_position() {
    let server = Server::start(&[]);
    let flags = ["import", "-", "--format", "json", "--addr", &server.native];
    let mut child = skep(&flags).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(json_lines(0..40_000).as_bytes()).unwrap();
    while server.key_counts()[0] < 32_768 {
        thread::sleep(Duration::from_millis(5));
    }
    signal(&child, "INT");
    assert_eq!(wait(&mut child).code(), Some(130));
    assert_refusal(&child.wait_with_output().unwrap(), 130, &["interrupted: --resume ", " continues"]);
}

#[test]
fn changes_of_a_key_keep_their_order_while_a_user_is_over_a_limit() {
    let server = Server::start(&[]);
    let user = "ACL SETUSER slow on >secret ~a* +@all operations:20000";
    assert_eq!(run(&server, &[user]), "+OK");
    let lines: String =
        (0..30_000).map(|number| format!("{{\"key\":\"a{}\",\"value\":\"{number}\"}}\n", number % 5)).collect();
    let file = Scratch::with("limit.jsonl", &lines);
    let mut command = skep(&["import", file.path(), "--addr", &server.native, "--user", "slow"]);
    let imported = command.env("SKEP_PASSWORD", "secret").output().unwrap();
    assert_eq!((text(&imported.stderr).as_str(), imported.status.code()), ("", Some(0)));
    assert_eq!(run(&server, &["GET a0", "GET a4"]), "$5 29995 $5 29999");
}

#[test]
fn a_pair_that_has_expired_removes_the_earlier_one() {
    let server = Server::start(&[]);
    for (name, text) in [
        ("gone.aof", "SET d old\r\nSET d new PXAT 5\r\nSET e 1\r\n"),
        ("gone.csv", "key,value,expires_at_ms\nd,old,\nd,new,5\ne,1,\n"),
        (
            "gone.jsonl",
            "{\"key\":\"d\",\"value\":\"o\"}\n{\"key\":\"d\",\"value\":\"n\",\"expires_at_ms\":5}\n{\"key\":\"e\",\"value\":\"1\"}\n",
        ),
    ] {
        let imported = import(&server, Scratch::with(name, text).path(), &[]);
        assert_eq!(imported.status.code(), Some(0), "{name}");
        assert_eq!(run(&server, &["GET d", "GET e"]), "$-1 $1 1", "{name}");
    }
}

#[test]
fn a_value_that_is_left_out_removes_the_earlier_one() {
    let server = Server::start(&[]);
    let long = "v".repeat(2 << 20);
    // A command has no longer words.
    let word = &long[..(1 << 20) + 1];
    for (name, content) in [
        ("long.aof", format!("SET d old\r\n*3\r\n$3\r\nSET\r\n$1\r\nd\r\n${}\r\n{word}\r\nSET e 1\r\n", word.len())),
        ("long.csv", format!("key,value\nd,old\nd,{long}\ne,1\n")),
        (
            "long.jsonl",
            ["old", &long].map(|value| format!("{{\"key\":\"d\",\"value\":\"{value}\"}}\n")).concat()
                + "{\"key\":\"e\",\"value\":\"1\"}\n",
        ),
    ] {
        let imported = import(&server, Scratch::with(name, &content).path(), &[]);
        assert_eq!(imported.status.code(), Some(1), "{name}");
        let message = text(&imported.stderr);
        assert!(message.starts_with("skep: 1 key with a string was not imported"), "{name}: {message}");
        assert_eq!(run(&server, &["GET d", "GET e"]), "$-1 $1 1", "{name}");
    }
}

#[test]
fn a_part_of_an_append_only_file_is_refused() {
    for name in ["/x/appendonly.aof.1.incr.aof", "/x/appendonly.aof.manifest"] {
        assert_refusal(&output(&["import", name]), 2, &[name, "is a part of an append-only file", "redis-cli SAVE"]);
    }
}

#[test]
fn a_report_that_cannot_be_written_is_told() {
    let server = Server::start(&[]);
    let file = Scratch::with("full.jsonl", "\u{feff}{\"key\":\"a\",\"value\":\"b\"}\n");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let failed = skep(&["import", file.path(), "--addr", &server.native]).stdout(full).output().unwrap();
    assert_refusal(&failed, 1, &["imported 1 key, but the report of it cannot be written: No space left"]);
    assert_eq!(server.key_counts(), [1, 0]);
    // The reader of the report has gone.
    let long = Scratch::with("gone.jsonl", &format!("{{\"key\":\"{}\",\"value\":\"v\"}}\n", "k".repeat(461)));
    for (path, code, message) in [(file.path(), 0, ""), (long.path(), 1, "skep: 1 key with a string was not imported")]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = skep(&["import", path, "--addr", &server.native]).stdout(writer).output().unwrap();
        assert_eq!(ended.status.code(), Some(code), "{path}");
        assert!(text(&ended.stderr).starts_with(message), "{path}: {}", text(&ended.stderr));
    }
}

#[test]
fn the_cache_space_is_only_used_if_it_is_wanted() {
    let server = Server::start(&["--cache-memory", "8MiB"]);
    let file = Scratch::with("cache.resp", "SET a b\r\nSELECT 2\r\nSET c d\r\n");
    assert_refusal(&import(&server, file.path(), &[]), 1, &["forgets keys and does not survive", "--into-cache"]);
    assert_eq!(server.key_counts(), [0, 0]);
    let imported = import(&server, file.path(), &["--into-cache"]);
    assert!(text(&imported.stdout).ends_with("imported 1 key into the cache space\n"), "{}", text(&imported.stderr));
    let address = server.resp.as_ref().unwrap();
    let exported = output(&["export", "-", "--format", "json", "--addr", address]);
    assert_eq!(text(&exported.stdout), "{\"space\":\"hash\",\"key\":\"a\",\"value\":\"b\"}\n");
    assert!(text(&exported.stderr).contains("left out the cache space: 1 key\n"), "{}", text(&exported.stderr));
    let other = Scratch::with("database.resp", "SELECT 9\r\nSET e f\r\n");
    assert_refusal(&import(&server, other.path(), &[]), 1, &["in database 9", "--database 9=hash"]);
    assert_eq!(import(&server, other.path(), &["--database", "9=ordered"]).status.code(), Some(0));
    assert_eq!(run(&server, &["SELECT 1", "GET e"]), "+OK $1 f");
    let source = start(|line| match line {
        "INFO" => Some(bulk(b"db0:keys=1\r\ndb2:keys=1\r\n")),
        "SELECT 2" => Some(b"+OK\r\n".to_vec()),
        _ => None,
    });
    assert_refusal(&import(&server, &source, &[]), 1, &["--into-cache"]);
    assert_eq!(import(&server, &source, &["--into-cache"]).status.code(), Some(0));
    assert_eq!(run(&server, &["SELECT 2", "GET k", "DEL k"]), "+OK $5 hello :1");
    // The key of database 2 gets a string after the check.
    let mut types = 0;
    let source = start(move |line| match line {
        "INFO" => Some(bulk(b"db2:keys=1\r\n")),
        "SELECT 2" => Some(b"+OK\r\n".to_vec()),
        _ if line.starts_with("TYPE") => {
            types += 1;
            (types == 1).then(|| b"+list\r\n".to_vec())
        }
        _ => None,
    });
    assert_refusal(&import(&server, &source, &[]), 1, &["--into-cache"]);
    assert_eq!(run(&server, &["SELECT 2", "GET k"]), "+OK $-1");
}

#[test]
fn a_position_of_a_file_is_exact() {
    let server = Server::start(&[]);
    // The spaces alternate, and the fault is after the pairs.
    let line = |number: usize| format!("{},{number},v\n", ["hash", "ordered"][number % 2]);
    let text_of_lines: String = (0..100).map(line).collect();
    let head = "space,key,value\n";
    let program = env!("CARGO_BIN_EXE_skep");
    let file = Scratch::with("fault.csv", &format!("{head}{text_of_lines}hash,x\n"));
    let pipe = format!("cat {} | {program} import - --format csv --addr {}", file.path(), server.native);
    let failed = Command::new("sh").args(["-c", &pipe]).output().unwrap();
    assert_refusal(&failed, 1, &["line 102: ", "at least 100 keys were imported before, and --resume 100 continues"]);
    assert_eq!(server.key_counts(), [50, 50]);
    // A position is kept if nothing can be imported after it.
    let failed = Command::new("sh").args(["-c", &format!("{pipe} --resume 98")]).output().unwrap();
    assert_refusal(&failed, 1, &["at least 2 keys were imported before, and --resume 100 continues"]);
    let whole = Scratch::with("whole.csv", &format!("{head}{text_of_lines}"));
    assert_refusal(&import(&server, whole.path(), &["--resume", "101"]), 2, &["fewer entries than the 101"]);
    assert_eq!(import(&server, whole.path(), &["--resume", "100"]).status.code(), Some(0));
}

#[test]
fn strings_that_are_left_out_can_be_listed() {
    let server = Server::start(&[]);
    let line = |key: &str| format!("{{\"key\":\"{key}\",\"value\":\"v\"}}\n");
    let file = Scratch::with("long.jsonl", &["", "a", &"k".repeat(461)].map(line).concat());
    let list = Scratch::with("list", "");
    assert_refusal(&import(&server, file.path(), &["--left-out", list.path()]), 2, &["File exists"]);
    fs::remove_file(&list.0).unwrap();
    assert_eq!(import(&server, file.path(), &["--left-out", list.path()]).status.code(), Some(1));
    let sizes = |key: u32| format!("{{\"database\":0,\"key\":\"\",\"key_size\":{key},\"value_size\":1}}\n");
    assert_eq!(fs::read_to_string(&list.0).unwrap(), sizes(0) + &sizes(461));
    assert_eq!(server.key_counts(), [1, 0]);
}

#[test]
fn an_export_replaces_no_file_and_no_link() {
    let server = Server::start(&[]);
    assert_eq!(run(&server, &["SET a b"]), "+OK");
    let address = server.resp.clone().unwrap();
    let export = |target: &str| output(&["export", target, "--format", "json", "--addr", &address]);
    let file = Scratch::with("kept", "kept");
    let link = Scratch::with("link", "");
    fs::remove_file(&link.0).unwrap();
    std::os::unix::fs::symlink(&file.0, &link.0).unwrap();
    assert_refusal(&export(link.path()), 2, &["it exists"]);
    assert_eq!(fs::read_to_string(&file.0).unwrap(), "kept");
    let part = Scratch::with("new.part", "kept");
    let target = part.path().strip_suffix(".part").unwrap();
    assert_refusal(&export(target), 2, &["another export writes it"]);
    assert_eq!(fs::read_to_string(&part.0).unwrap(), "kept");
    // The source is the target, and the reader leaves.
    assert_refusal(&export(&format!("redis://{address}")), 2, &["is the server that is read"]);
    for format in ["rdb", "resp", "csv", "json"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = skep(&["export", "-", "--format", format, "--addr", &address]);
        let failed = command.stdout(writer).output().unwrap();
        assert_eq!((text(&failed.stderr).as_str(), failed.status.code()), ("", Some(1)), "{format}");
    }
}
