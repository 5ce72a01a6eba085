//! `skep export` and `skep import` in all formats: what was exported is imported again, and bad input is refused.

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::process::{Server, assert_refusal, output, skep, text};
use crate::wire::{Arguments, Connection};

const FORMATS: [&str; 4] = ["rdb", "resp", "csv", "json"];

/// Nothing listens at this address.
const NO_SERVER: &str = "127.0.0.1:1";

/// A file that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id())))
    }

    fn with(name: &str, bytes: &[u8]) -> Scratch {
        let scratch = Scratch::new(name);
        std::fs::write(&scratch.0, bytes).unwrap();
        scratch
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// A pair, with the number of its space.
#[derive(Clone, Debug, PartialEq)]
struct Pair {
    space: usize,
    key: Vec<u8>,
    value: Vec<u8>,
    expiry: Option<u64>,
}

fn command(words: &[&[u8]]) -> Arguments {
    words.iter().map(|word| word.to_vec()).collect()
}

/// Returns random pairs: text and bytes, short and long, with and without an expiry.
fn random_pairs(seed: u64, count: usize) -> Vec<Pair> {
    println!("seed {seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut pairs = Vec::new();
    for number in 0..count {
        let mut bytes = |size: usize, is_text: bool| -> Vec<u8> {
            let alphabet: Vec<char> = "ab,\"\\ \t\r\n\u{0}é日\u{1f600}'{}[]=".chars().collect();
            match is_text {
                true => {
                    (0..size / 4).map(|_| alphabet[random.random_range(0..alphabet.len())]).collect::<String>().into()
                }
                false => (0..size).map(|_| random.random()).collect(),
            }
        };
        let is_text = number % 3 > 0;
        let size = [3, 40, 40, 300, 300, 9000][number % 6] + number % 7;
        let key = [bytes(number % 400, is_text), format!(":{number}").into_bytes()].concat();
        let value = if number % 11 == 0 { (number * 97).to_string().into_bytes() } else { bytes(size, is_text) };
        let expiry = (number % 4 == 0).then_some(4_000_000_000_123 + number as u64);
        pairs.push(Pair { space: number % 2, key, value, expiry });
    }
    pairs
}

/// Starts a server with two shards and this memory.
fn with_memory(memory: &str) -> Server {
    let flags = ["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--shards", "2", "--memory", memory];
    Server::start_command(&mut skep(&flags))
}

fn connect(server: &Server) -> Connection {
    Connection::to_address(server.resp.as_ref().expect("the RESP port is on"))
}

/// Sends commands, a few at a time. Returns the replies.
fn run(server: &Server, commands: &[Arguments]) -> Vec<Vec<u8>> {
    let mut connection = connect(server);
    commands.chunks(100).flat_map(|commands| connection.run(commands)).collect()
}

fn put(server: &Server, pairs: &[Pair]) {
    let mut commands = Vec::new();
    for pair in pairs {
        commands.push(command(&[b"SELECT", pair.space.to_string().as_bytes()]));
        let mut set = command(&[b"SET", &pair.key, &pair.value]);
        if let Some(expiry) = pair.expiry {
            set.extend(command(&[b"PXAT", expiry.to_string().as_bytes()]));
        }
        commands.push(set);
    }
    assert!(run(server, &commands).iter().all(|reply| reply == b"+OK\r\n"));
}

/// Asserts that a server has these pairs and no others.
fn assert_pairs(server: &Server, pairs: &[Pair], what: &str) {
    let (mut commands, mut expected) = (Vec::new(), Vec::new());
    for pair in pairs {
        commands.push(command(&[b"SELECT", pair.space.to_string().as_bytes()]));
        commands.push(command(&[b"GET", &pair.key]));
        commands.push(command(&[b"PEXPIRETIME", &pair.key]));
        expected.push(b"+OK\r\n".to_vec());
        expected.push([format!("${}\r\n", pair.value.len()).as_bytes(), &pair.value, b"\r\n"].concat());
        let expiry = pair.expiry.map_or(-1, |expiry| expiry as i64);
        expected.push(format!(":{expiry}\r\n").into_bytes());
    }
    let replies = run(server, &commands);
    for (index, (reply, expected)) in replies.iter().zip(&expected).enumerate() {
        let pair = &pairs[index / 3];
        assert!(reply == expected, "{what}: {}: {}", pair.key.escape_ascii(), reply.escape_ascii());
    }
    let count = |space| pairs.iter().filter(|pair| pair.space == space).count() as u64;
    assert_eq!(server.key_counts(), [count(0), count(1)], "{what}");
}

fn export(server: &Server, target: &str, more: &[&str]) -> Output {
    let address = server.resp.as_ref().expect("the RESP port is on");
    output(&[&["export", target, "--addr", address], more].concat())
}

fn import(server: &Server, source: &str, more: &[&str]) -> Output {
    output(&[&["import", source, "--addr", &server.native], more].concat())
}

/// Returns the report of an export without its last line, which names the server that was read.
fn pairs_of(report: &[u8]) -> String {
    let report = text(report);
    let (pairs, server) = report.trim_end().rsplit_once('\n').unwrap();
    assert!(server.starts_with("read from Skep ") && server.contains(" at 127.0.0.1:"), "{server}");
    format!("{pairs}\n")
}

/// Runs the program with bytes on its standard input: the head, and then chunks until it ends. Returns the number of bytes that it
/// took.
fn feed(arguments: &[&str], head: &[u8], chunk: &[u8], repeat: usize) -> (Output, usize) {
    let mut child =
        skep(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut taken = 0;
    for chunk in std::iter::once(head).chain(std::iter::repeat_n(chunk, repeat)) {
        match input.write_all(chunk) {
            Ok(()) => taken += chunk.len(),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            Err(error) => panic!("{error}"),
        }
    }
    drop(input);
    (child.wait_with_output().unwrap(), taken)
}

#[test]
fn pairs_are_the_same_after_an_export_and_an_import_in_each_format() {
    let pairs = random_pairs(rand::random(), 600);
    let source = Server::start(&[]);
    put(&source, &pairs);
    let target = Server::start(&[]);
    for format in FORMATS {
        let file = Scratch::new(&format!("pairs.{format}"));
        let exported = export(&source, file.path(), &[]);
        let expected = "exported 300 keys of the hash space, 150 with an expiry\n\
                        exported 300 keys of the ordered space\n";
        assert_eq!((pairs_of(&exported.stdout).as_str(), text(&exported.stderr).as_str()), (expected, ""));
        let again = export(&source, file.path(), &[]);
        assert_refusal(&again, 2, &["it exists: remove it"]);
        let imported = import(&target, file.path(), &[]);
        assert_eq!(text(&imported.stderr), "");
        assert_eq!(text(&imported.stdout), expected.replace("exported", "imported").replace(" of the ", " into the "));
        assert_pairs(&target, &pairs, format);
        // The same through pipes, whose format is told by the first byte or by the flag.
        assert!(run(&target, &[command(&[b"FLUSHALL"])]) == [b"+OK\r\n"]);
        let piped = output(&["export", "-", "--format", format, "--addr", source.resp.as_ref().unwrap()]);
        assert_eq!(pairs_of(&piped.stderr), expected);
        let flags = ["import", "-", "--format", format, "--addr", &target.native];
        let untold = ["import", "-", "--addr", &target.native];
        let (imported, _) = feed(if format == "csv" { &flags } else { &untold }, &piped.stdout, b"", 0);
        assert_eq!(text(&imported.stderr), "");
        assert_pairs(&target, &pairs, format);
        assert!(run(&target, &[command(&[b"FLUSHALL"])]) == [b"+OK\r\n"]);
    }
}

#[test]
fn pairs_move_between_running_servers() {
    let pairs = random_pairs(rand::random(), 3000);
    let servers: [Server; 3] = std::array::from_fn(|_| Server::start(&[]));
    put(&servers[0], &pairs);
    let urls = servers.each_ref().map(|server| format!("redis://{}", server.resp.as_ref().unwrap()));
    let imported = import(&servers[1], &urls[0], &[]);
    assert_eq!(text(&imported.stderr), "");
    assert_pairs(&servers[1], &pairs, "import");
    let exported = export(&servers[1], &urls[2], &[]);
    assert_eq!(text(&exported.stderr), "");
    assert!(text(&exported.stdout).starts_with("exported 1500 keys of the hash space"), "{}", text(&exported.stdout));
    assert_pairs(&servers[2], &pairs, "export");
    assert_refusal(
        &import(&servers[1], "redis://127.0.0.1:1", &[]),
        1,
        &["cannot reach a server at redis://127.0.0.1:1"],
    );
    assert_refusal(&export(&servers[1], "x", &[]), 2, &["--format rdb, resp, csv or json"]);
    assert_refusal(&export(&servers[1], "-", &["--format", "csv", "--space", "cache"]), 2, &["does not list its keys"]);
}

#[test]
fn an_import_continues_where_it_has_failed() {
    // Values of 256 KiB, of which not all fit.
    let pairs: Vec<Pair> = (0..200_u32)
        .map(|number| Pair {
            space: 0,
            key: format!("key{number:03}").into_bytes(),
            value: vec![b'a' + (number % 26) as u8; 256 << 10],
            expiry: None,
        })
        .collect();
    let large = with_memory("256MiB");
    put(&large, &pairs);
    let small = with_memory("32MiB");
    for format in FORMATS {
        let file = Scratch::new(&format!("resume.{format}"));
        assert_eq!(export(&large, file.path(), &[]).status.code(), Some(0));
        let failed = import(&small, file.path(), &[]);
        assert_refusal(&failed, 1, &["(--memory)", "--resume "]);
        let message = text(&failed.stderr);
        let position = message.split("--resume ").nth(1).unwrap().split(' ').next().unwrap();
        let done: usize = position.parse().unwrap();
        assert!((1..200).contains(&done), "{message}");
        let target = with_memory("256MiB");
        let imported = import(&target, file.path(), &["--resume", position]);
        let expected = format!("imported {} keys into the hash space\n", 200 - done);
        assert_eq!((text(&imported.stdout), text(&imported.stderr)), (expected, String::new()));
        assert_eq!(target.key_counts(), [200 - done as u64, 0]);
    }
    let url = format!("redis://{}", large.resp.as_ref().unwrap());
    let failed = import(&small, &url, &[]);
    assert_refusal(&failed, 1, &["(--memory)", "--resume 0:"]);
    assert_refusal(&import(&small, &url, &["--resume", "7"]), 2, &["a server has positions such as 0:17:RUN"]);
    assert_refusal(&import(&small, "x", &["--resume", "x"]), 2, &["`x` is no position", "or 0:17:RUN"]);
}

#[test]
fn a_fault_is_named_with_its_line_or_command() {
    for (name, bytes, parts) in [
        (
            "a.json",
            &b"{\"key\":\"a\",\"value\":\"b\"}\n\n{\"key\":\"a\""[..],
            &["line 3: ", "skep export --format json"][..],
        ),
        ("b.json", b"{\"key\":\"a\",\"value\":1}", &["line 1: ", "invalid type: integer"]),
        ("c.json", b"{\"key\":\"a\",\"value\":\"b\",\"ttl\":1}", &["line 1: ", "unknown field `ttl`"]),
        ("d.json", b"{\"key\":\"a\"}", &["line 1: it has no value: add \"value\" or \"value_base64\""]),
        ("e.json", b"{\"key\":\"a\",\"value_base64\":\"?\"}", &["line 1: its base64 is wrong"]),
        (
            "f.json",
            b"{\"key\":\"a\",\"value\":\"b\",\"space\":\"x\"}",
            &["`x` is no space: write hash, ordered or cache"],
        ),
        ("g.json", b"[[[[[[[[", &["line 1: "]),
        ("h.json", b"\xff", &["line 1: "]),
        ("i.json", b"[{\"key\":\"a\",\"value\":\"b\"}]\n", &["line 1: it is an array: write an object on each line"]),
        ("h.csv", b"key;value\na;b\n", &["line 1: the first line has no commas"]),
        ("i.csv", b"key,value\na,b\nc,d", &["line 3: the file ends within the line"]),
        ("a.csv", b"key,value\na,b\nc\n", &["line 3: it has 1 fields, and the first line names 2 columns"]),
        ("b.csv", b"key,value,size\n", &["line 1: `size` is no column", "key,value"]),
        ("c.csv", b"key\na\n", &["line 1: the columns key and value are needed"]),
        ("d.csv", b"key,value,expires_at_ms\na,b,soon\n", &["line 2: `soon` is no expiry"]),
        ("e.csv", b"key,value,encoding\na,b,hex\n", &["line 2: `hex` is no encoding: write text or base64"]),
        ("f.csv", b"key,key,value\n", &["the column key is there twice"]),
        ("g.csv", b"space,key,value,expires_at_ms,encoding\nhash,a,\"b", &["line 2: it has 3 fields"]),
        ("a.resp", b"SELECT 1\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n", &["command 2: ", "cut off"]),
        (
            "b.resp",
            b"*3\r\n$5\r\nRPUSH\r\n$1\r\na\r\n$1\r\nb\r\n",
            &["command 1: RPUSH is not imported", "redis-cli --pipe"],
        ),
        ("c.resp", b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$9999999999\r\n", &["command 1: "]),
        ("d.resp", b"*2000000\r\n", &["command 1: "]),
        ("e.resp", b"SET a b NX\r\n", &["command 1: its option NX is not imported"]),
        ("f.resp", b"SET a b EX soon\r\n", &["command 1: `soon` is not a whole number"]),
        ("g.resp", b"RESTORE a 0 xxxxxxxxxxxx\r\n", &["command 1: the checksum of its value is wrong"]),
        ("h.resp", b"SET a\r\n", &["command 1: SET has a wrong number of arguments"]),
        ("i.resp", b"SELECT 9\r\nSET a b\r\n", &["strings in database 9"]),
        ("j", b"nothing", &["not an RDB file", "--format"]),
        ("k", b"", &["not an RDB file", "--format"]),
        // The name says otherwise.
        ("l.rdb", b"{\"key\":\"a\",\"value\":\"b\"}\n", &["not an RDB file"]),
    ] {
        let file = Scratch::with(name, bytes);
        assert_refusal(&output(&["import", file.path(), "--addr", NO_SERVER]), 1, &[&[file.path()], parts].concat());
    }
}

#[test]
fn commands_that_set_strings_are_imported() {
    let server = Server::start(&[]);
    let dump = b"\x00\x05hello\n\x00cr\xdfve4 \n";
    let restore = |words: &[&[u8]]| {
        let bulk = |word: &&[u8]| [format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat();
        [format!("*{}\r\n", words.len()).into_bytes(), words.iter().flat_map(bulk).collect()].concat()
    };
    let bytes = [
        &b"set a \"x y\"\r\nMSET b 1 c 2\r\nSETEX d 1000 e\r\npsetex f 1000000 g\r\nset h i px 1000000\r\n"[..],
        &restore(&[b"RESTORE", b"j", b"0", dump]),
        &restore(&[b"RESTORE", b"k", b"4000000000000", dump, b"REPLACE", b"ABSTTL"]),
        b"SELECT 1\r\nSET o p EXAT 4000000000\r\nSET gone q PXAT 1\r\n",
    ]
    .concat();
    let file = Scratch::with("commands.aof", &bytes);
    let imported = import(&server, file.path(), &[]);
    let expected = "imported 8 keys into the hash space, 4 with an expiry\n\
                    imported 1 key into the ordered space, 1 with an expiry\nleft out 1 key that had expired\n";
    assert_eq!((text(&imported.stdout).as_str(), text(&imported.stderr).as_str()), (expected, ""));
    let reads = ["GET a", "GET c", "GET f", "GET j", "PEXPIRETIME k", "SELECT 1", "PEXPIRETIME o"];
    let reads: Vec<_> = reads.map(|line| line.split(' ').map(|word| word.as_bytes().to_vec()).collect()).into();
    let replies = run(&server, &reads).concat();
    assert_eq!(
        text(&replies),
        "$3\r\nx y\r\n$1\r\n2\r\n$1\r\ng\r\n$5\r\nhello\r\n:4000000000000\r\n+OK\r\n:4000000000000\r\n"
    );
}

#[test]
fn a_line_without_end_costs_bounded_memory() {
    const GIGABYTE: usize = 1 << 30;
    let server = Server::start(&[]);
    let quote = "line 2: the record from here on is longer than 8 MiB: is a quote (\") not closed?";
    for (format, head, part) in [
        ("json", &b"{\"key\":\"a\",\"value\":\""[..], "line 1: it is longer than 8 MiB"),
        ("csv", b"key,value\na,\"", quote),
        ("csv", b"", "line 1: the record from here on is longer than 8 MiB"),
        ("resp", b"SET a ", "command 1: "),
        ("resp", b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1073741824\r\n", "command 1: "),
    ] {
        let flags = ["import", "-", "--format", format, "--addr", &server.native];
        let (refused, taken) = feed(&flags, head, &[b'x'; 1 << 20], GIGABYTE >> 20);
        assert_refusal(&refused, 1, &["the standard input: ", part]);
        assert!(taken < 32 << 20, "{format}: it has read {taken} bytes");
    }
    assert_eq!(server.key_counts(), [0, 0]);
}

#[test]
fn a_large_export_is_a_stream() {
    let server = with_memory("256MiB");
    let value = vec![b'v'; 1 << 20];
    let pairs: Vec<Pair> = (0..120)
        .map(|number| Pair { space: 0, key: format!("key{number}").into(), value: value.clone(), expiry: None })
        .collect();
    put(&server, &pairs);
    let address = server.resp.as_ref().unwrap();
    let mut command = skep(&["export", "-", "--format", "resp", "--addr", address]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut bytes = vec![0; 100 << 20];
    child.stdout.as_mut().unwrap().read_exact(&mut bytes).unwrap();
    // It waits for its reader.
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")).unwrap();
    let peak: u64 = peak.parse().unwrap();
    assert!(peak < 64 << 10, "an export of 120 MiB has taken {peak} KiB");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1), "a reader that leaves has a part of the pairs");
}
