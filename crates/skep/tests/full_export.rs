//! Exports that `redis-server` reads, in each way that it has, and imports from a running one. Both servers then have the same
//! pairs.

mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;
#[path = "redis/wire.rs"]
#[expect(dead_code, reason = "the tests that compare commands use the other functions")]
mod wire;

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use full_run::is_full_run;
use process::{Server, assert_refusal, output, text};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wire::{Arguments, Connection, Redis};

/// Splits a line of text into the words of a command.
fn line(text: &str) -> Arguments {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Sends commands, a few at a time, so that neither end waits for the other one to read. Returns the replies.
fn run(connection: &mut Connection, commands: &[Arguments]) -> Vec<Vec<u8>> {
    commands.chunks(100).flat_map(|commands| connection.run(commands)).collect()
}

/// Returns commands that set random strings in two databases, and commands that read them with their expiries.
fn random_strings(seed: u64) -> (Vec<Arguments>, Vec<Arguments>) {
    println!("seed {seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut sets, mut reads) = (Vec::new(), Vec::new());
    for database in 0..2 {
        sets.push(line(&format!("SELECT {database}")));
        reads.push(line(&format!("SELECT {database}")));
        for number in 0..2000 {
            let mut bytes = |size: usize| (0..size).map(|_| random.random()).collect::<Vec<u8>>();
            let key = [bytes(number % 300), format!(":{number}").into_bytes()].concat();
            let value = match number % 5 {
                0 => (number as i64 * 99_991 - 5_000_000).to_string().into_bytes(),
                1 => b"a line that repeats, ".repeat(number),
                2 if number % 500 == 2 => bytes(1 << 20),
                _ => bytes(number),
            };
            let mut set = vec![b"SET".to_vec(), key.clone(), value];
            if number % 3 == 0 {
                set.extend(line(&format!("PXAT {}", 4_000_000_000_000_u64 + number as u64)));
            }
            sets.push(set);
            reads.push(vec![b"GET".to_vec(), key.clone()]);
            reads.push(vec![b"PEXPIRETIME".to_vec(), key]);
        }
        reads.push(line("DBSIZE"));
    }
    (sets, reads)
}

/// Compares the replies to reads with the expected ones.
fn assert_same(reads: &[Arguments], found: &[Vec<u8>], expected: &[Vec<u8>], reason: &str) {
    let head = |bytes: &[u8]| format!("{}, {} B", bytes[..bytes.len().min(60)].escape_ascii(), bytes.len());
    for ((read, found), expected) in reads.iter().zip(found).zip(expected) {
        let command: Vec<String> = read.iter().map(|word| head(word)).collect();
        assert!(found == expected, "{reason}: {command:?} has {}, not {}", head(found), head(expected));
    }
}

/// Returns a port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).canonicalize().unwrap().join(format!("{}-{name}", std::process::id()))
}

fn succeeded(output: &Output) -> String {
    assert_eq!((text(&output.stderr).as_str(), output.status.code()), ("", Some(0)));
    text(&output.stdout)
}

fn connect(server: &Server) -> Connection {
    Connection::to_address(server.resp.as_ref().expect("the server listens for RESP"))
}

#[test]
fn redis_reads_exports() {
    if !is_full_run() {
        return;
    }
    let (sets, reads) = random_strings(rand::random());
    let server = Server::start(&["--ordered-memory", "64MiB"]);
    let address = server.resp.clone().expect("the server listens for RESP");
    assert!(run(&mut connect(&server), &sets).iter().all(|reply| reply == b"+OK\r\n"));
    let expected = run(&mut connect(&server), &reads);

    // A file that it loads at its start.
    let file = scratch("export.rdb");
    succeeded(&output(&["export", file.to_str().unwrap(), "--addr", &address]));
    let (folder, name) = (file.parent().unwrap().to_str().unwrap(), file.file_name().unwrap().to_str().unwrap());
    let redis = Redis::start_with("export-rdb", &["--port", "0", "--dir", folder, "--dbfilename", name]);
    while run(&mut redis.connect(), &[line("PING")])[0].starts_with(b"-LOADING") {
        thread::sleep(Duration::from_millis(10));
    }
    assert_same(&reads, &run(&mut redis.connect(), &reads), &expected, "a pair of the RDB file differs");
    fs::remove_file(&file).unwrap();

    // Commands, and a running server.
    let port = free_port().to_string();
    let redis = Redis::start_with("export-port", &["--port", &port]);
    let mut connection = redis.connect();
    let file = scratch("export.resp");
    succeeded(&output(&["export", file.to_str().unwrap(), "--addr", &address]));
    let pipe = Command::new("redis-cli").args(["-p", &port, "--pipe"]).stdin(File::open(&file).unwrap()).output();
    let printed = text(&pipe.expect("Debian has a package of redis-cli").stdout);
    assert!(printed.contains("errors: 0, replies: 4002"), "{printed}");
    assert_same(&reads, &run(&mut connection, &reads), &expected, "a pair of the commands differs");
    fs::remove_file(&file).unwrap();
    run(&mut connection, &[line("FLUSHALL")]);
    let url = format!("redis://127.0.0.1:{port}");
    let exported = succeeded(&output(&["export", &url, "--addr", &address]));
    assert!(exported.starts_with("exported 2000 keys of the hash space, 667 with an expiry\n"), "{exported}");
    assert_same(&reads, &run(&mut connection, &reads), &expected, "a pair of the running server differs");
}

#[test]
fn a_running_redis_is_imported_and_exported() {
    if !is_full_run() {
        return;
    }
    let (sets, reads) = random_strings(rand::random());
    let port = free_port().to_string();
    let redis = Redis::start_with("import-port", &["--port", &port]);
    let mut connection = redis.connect();
    run(&mut connection, &sets);
    let expected = run(&mut connection, &reads);
    let others =
        ["RPUSH list a b", "SADD set 1 2", "ZADD zset 1 a", "HSET hash f v", "XADD stream 1-1 f v", "SELECT 0"];
    run(&mut connection, &others.map(line));
    let long_key = vec![b'k'; 461];
    run(&mut connection, &[vec![b"SET".to_vec(), long_key.clone(), b"v".to_vec()]]);

    let url = format!("redis://127.0.0.1:{port}");
    let server = Server::start(&["--ordered-memory", "64MiB"]);
    let imported = output(&["import", &url, "--addr", &server.native]);
    let expected_report = "imported 2000 keys into the hash space, 667 with an expiry\n\
                           imported 2000 keys into the ordered space, 667 with an expiry\n\
                           left out 1 list\nleft out 1 set\nleft out 1 sorted set\nleft out 1 hash\nleft out 1 stream\n";
    let read_from = |report: &[u8]| text(report).rsplit_once("read from Redis ").map(|(pairs, _)| pairs.to_owned());
    assert_eq!((read_from(&imported.stdout).as_deref(), imported.status.code()), (Some(expected_report), Some(1)));
    assert!(
        text(&imported.stderr).contains("1 key with a string was not imported, because"),
        "{}",
        text(&imported.stderr)
    );
    assert_same(&reads, &run(&mut connect(&server), &reads), &expected, "an imported pair differs");

    // Its export has the same pairs.
    let file = scratch("of-redis.jsonl");
    run(&mut connection, &[vec![b"DEL".to_vec(), long_key]]);
    let exported = succeeded(&output(&["export", file.to_str().unwrap(), "--addr", &url]));
    assert!(exported.contains("left out 1 stream\nread from Redis "), "{exported}");
    let other = Server::start(&["--ordered-memory", "64MiB"]);
    succeeded(&output(&["import", file.to_str().unwrap(), "--addr", &other.native]));
    assert_same(&reads, &run(&mut connect(&other), &reads), &expected, "a pair of the export differs");
    fs::remove_file(file).unwrap();

    // A database without a space, and a server that needs a password.
    run(&mut connection, &["SELECT 5", "SET a b"].map(line));
    let refusal = ["strings in database 5", "MOVE"];
    assert_refusal(&output(&["import", &url, "--addr", &server.native]), 1, &refusal);
    run(&mut connection, &["FLUSHDB", "CONFIG SET requirepass secret"].map(line));
    let refused = output(&["import", &url, "--addr", &server.native]);
    assert_refusal(&refused, 1, &["uthentication required"]);
    let with_password = format!("redis://:wrong@127.0.0.1:{port}");
    let refused = output(&["import", &with_password, "--addr", &server.native]);
    assert!(!text(&refused.stderr).contains("wrong@"), "{}", text(&refused.stderr));
    assert_eq!(refused.status.code(), Some(1));
    let with_password = format!("redis://:secret@127.0.0.1:{port}");
    let imported = output(&["import", &with_password, "--addr", &server.native]);
    assert_eq!(read_from(&imported.stdout).as_deref(), Some(expected_report), "{}", text(&imported.stderr));
}
