//! What a server with a data directory has after a restart.

use std::fs;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use skep_client::{Client, HASH_SPACE, Operation, Reply, Request, Responses};
use skep_store::naive::{Generator, GeneratorSettings, Mix, NaiveStore, OwnedRequest};

use crate::data_directory::DataDirectory;
use crate::process::{Server, skep};
use crate::wire::{Arguments, Connection};

const MIB: usize = 1 << 20;

fn words(line: &str) -> Arguments {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Runs commands without spaces in their arguments. Returns the replies in one line.
fn run(server: &Server, lines: &[&str]) -> String {
    let mut connection = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    let commands: Vec<Arguments> = lines.iter().map(|line| words(line)).collect();
    let replies = connection.run(&commands).concat();
    replies.escape_ascii().to_string().replace("\\r\\n", " ").trim_end().to_owned()
}

fn stop(mut server: Server) {
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

fn kill(mut server: Server) {
    server.child().kill().expect("the server runs");
    server.wait();
}

#[test]
fn a_server_that_is_stopped_keeps_everything() {
    for level in ["second", "always"] {
        let directory = DataDirectory::new(&format!("stop-{level}"));
        let server = directory.start(2, level);
        let mut client = Client::connect(&*server.native, HASH_SPACE).unwrap();
        let keys: Vec<Vec<u8>> = (0..5000).map(|key| format!("key:{key}").into_bytes()).collect();
        for key in &keys {
            // The last one is sent just before the end.
            client.put(key, key).unwrap();
        }
        client.put(b"large", &vec![b'v'; MIB]).unwrap();
        client.put(b"empty", b"").unwrap();
        stop(server);
        let server = directory.start(3, level);
        let mut client = Client::connect(&*server.native, HASH_SPACE).unwrap();
        assert!(keys.iter().all(|key| client.get(key).unwrap().as_ref() == Some(key)), "{level}");
        assert_eq!(client.get(b"large").unwrap(), Some(vec![b'v'; MIB]));
        assert_eq!(client.get(b"empty").unwrap(), Some(Vec::new()));
        assert_eq!(run(&server, &["DBSIZE"]), ":5002");
        stop(server);
    }
}

#[test]
fn expiries_are_moments_that_no_restart_moves() {
    let directory = DataDirectory::new("expiries");
    let server = directory.start(2, "always");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let later = now + 1_000_000;
    run(&server, &[&format!("SET a 1 PXAT {later}"), "SET c 1 PX 1000", "SAVE", "SET d 1 PX 1000"]);
    run(&server, &["SET e 1 PX 1000", "PERSIST e", "SET f 1", &format!("PEXPIREAT f {later}"), "INCR f", "INCR a"]);
    kill(server);
    thread::sleep(Duration::from_millis(1100));
    for shards in [2, 1, 3] {
        let server = directory.start(shards, "always");
        let reply =
            run(&server, &["PEXPIRETIME a", "PEXPIRETIME e", "PEXPIRETIME f", "EXISTS c d", "DBSIZE", "MGET a f"]);
        assert_eq!(reply, format!(":{later} :-1 :{later} :0 :3 *2 $1 2 $1 2"));
        // The next start reads a snapshot without the log before it.
        assert_eq!(run(&server, &["SAVE"]), "+OK");
        kill(server);
    }
}

/// The log of keys that live shortly is longer than the memory: its replay frees those that have expired.
#[test]
fn a_log_of_more_than_the_memory_is_read() {
    for space in [0, 1] {
        reads_a_log_of_more_than_the_memory(space);
    }
}

fn reads_a_log_of_more_than_the_memory(space: u16) {
    let directory = DataDirectory::new(&format!("short-lives-{space}"));
    let start = |shards: u16| {
        let mut command = skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--memory", "8MiB"]);
        command.args(["--ordered-memory", "8MiB", "--durability", "second", "--shards"]).arg(shards.to_string());
        directory.start_command(command.arg("--data-dir").arg(directory.path()))
    };
    let select = format!("SELECT {space}");
    let run = |server: &Server, lines: &[&str]| run(server, &[&[select.as_str()], lines].concat());
    let server = start(2);
    let value = "v".repeat(10_000);
    let (mut written, mut refused) = (0, 0);
    for round in 0..60 {
        let sets: Vec<String> = (0..20).map(|key| format!("SET {round}:{key} {value} PX 100")).collect();
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let replies = run(&server, &sets);
        written += replies.matches("+OK").count() - 1;
        refused += replies.matches("OOM").count();
        thread::sleep(Duration::from_millis(60));
    }
    assert_eq!((written, refused), (1200, 0), "expired keys make room");
    run(&server, &["SET last 1"]);
    // The flush of the level `second`.
    thread::sleep(Duration::from_millis(1200));
    kill(server);
    for shards in [2, 3] {
        let server = start(shards);
        assert_eq!(run(&server, &["GET last"]), "+OK $1 1", "{shards} shards, space {space}");
        // Keys that expired after the last time of the log are loaded. `DBSIZE` may count them until they are removed,
        // which another shard may be doing.
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            match &*run(&server, &["DBSIZE"]) {
                "+OK :1" => break,
                size => assert!(Instant::now() < end, "{size}: {shards} shards, space {space}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
        kill(server);
    }
}

#[test]
fn keys_that_were_removed_all_together_stay_removed() {
    let directory = DataDirectory::new("flush");
    let server = directory.start(3, "always");
    let sets: Vec<String> = (0..1000).map(|key| format!("SET key:{key} old")).collect();
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let deleted = |prefix: &str| run(&server, &[prefix, "DBSIZE"]);
    run(&server, &sets);
    assert_eq!(deleted("FLUSHALL"), "+OK :0");
    run(&server, &["SET key:1 new", "SAVE", "SET key:2 new"]);
    run(&server, &sets);
    assert_eq!(deleted("FLUSHDB"), "+OK :0");
    run(&server, &["SET key:3 new", "BGSAVE", "SET key:4 new"]);
    kill(server);
    for shards in [2, 3] {
        let server = directory.start(shards, "always");
        assert_eq!(run(&server, &["DBSIZE", "MGET key:1 key:2 key:3 key:4"]), ":2 *4 $-1 $-1 $3 new $3 new");
        kill(server);
    }
}

#[test]
fn random_operations_are_what_the_naive_store_has() {
    let directory = DataDirectory::new("random");
    let seed = std::env::var("SKEP_SEED").map_or(1, |seed| seed.parse().expect("SKEP_SEED is a number"));
    println!("seed {seed}");
    let settings = GeneratorSettings {
        seed,
        key_size: 1..=40,
        large_size_max: 20_000,
        mix: Mix::built_in(),
        ..Default::default()
    };
    let mut generator = Generator::new(settings.clone());
    let mut naive = NaiveStore::new();
    naive.set_now(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64);
    for (round, shards) in [2, 2, 3, 1, 1, 2].into_iter().enumerate() {
        let server = directory.start(shards, "always");
        let mut client = Client::connect(&*server.native, HASH_SPACE).unwrap();
        let mut responses = Responses::new();
        if round > 0 {
            assert_eq!(run(&server, &["DBSIZE"]), format!(":{}", naive.len()), "round {round}");
            let keys: Vec<&[u8]> = naive.iter().map(|(key, _)| key).collect();
            let gets: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
            client.execute(&gets, &mut responses).unwrap();
            for ((key, value), found) in naive.iter().zip(responses.iter()) {
                assert!(found == Ok(Reply::Value(value)), "round {round}: {}: {found:?}", key.escape_ascii());
            }
        }
        for part in 0..20 {
            let batch: Vec<OwnedRequest> = generator.by_ref().take(500).collect();
            let requests: Vec<Request<'_>> = batch.iter().map(OwnedRequest::as_request).collect();
            client.execute(&requests, &mut responses).unwrap();
            for (request, reply) in requests.iter().zip(responses.iter()) {
                let reply = reply.expect("the server executes everything");
                naive
                    .check(request, reply)
                    .unwrap_or_else(|expected| panic!("{request:?}: {reply:?}, not {expected:?}"));
            }
            if round % 2 == 0 && part == 10 {
                run(&server, &["BGSAVE"]);
            }
        }
        kill(server);
    }
}

/// The argument of the condition is longer than an operation of the log can be, and the condition is not logged.
#[test]
fn a_delete_with_the_longest_condition_is_kept() {
    let directory = DataDirectory::new("long-condition");
    let server = directory.start(1, "always");
    let mut connection = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    let longest = vec![b'x'; MIB + (64 << 10)];
    let delete = |key: &str, condition: &str, operand: &[u8]| -> Arguments {
        vec![b"DELEX".to_vec(), key.into(), condition.into(), operand.to_vec()]
    };
    let commands = [words("MSET a 1 b 1 c 1"), delete("a", "IFNE", &longest), delete("b", "IFEQ", &longest)];
    let others = [delete("b", "IFEQ", b"2"), delete("c", "IFEQ", b"1")];
    assert_eq!(connection.run(&commands).concat(), b"+OK\r\n:1\r\n:0\r\n");
    assert_eq!(connection.run(&others).concat(), b":0\r\n:1\r\n");
    kill(server);
    let server = directory.start(2, "always");
    assert_eq!(run(&server, &["MGET a b c"]), "*3 $-1 $1 1 $-1");
}

/// A kill costs nothing there, so the loss would be seen only when the machine stops.
#[test]
fn a_data_directory_in_memory_is_warned_about() {
    let in_memory = tempfile::tempdir_in("/dev/shm").expect("Linux has a file system in memory");
    let logs = DataDirectory::new("in-memory");
    let mut command = DataDirectory::command_of(in_memory.path(), 1, "always");
    stop(logs.start_command(command.args(["--memory", "64MiB"])));
    let log = fs::read_to_string(logs.server_log()).expect("the server logs");
    assert!(log.contains("the data directory is in memory"), "{log}");
}
