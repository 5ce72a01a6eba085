//! User functions in a data directory: servers are killed after loads and calls, and started again.

use std::fs;
use std::net::Shutdown;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skep_client::{Client, HASH_SPACE, ORDERED_SPACE, Operation, Reply, Request, Responses};
use skep_log::{Pages, StoredFunctions, padded_size};
use skep_store::naive::{Generator, GeneratorSettings, NaiveStore, OwnedRequest};

use crate::data_directory::DataDirectory;
use crate::process::{Server, assert_refusal, output, skep, start_or_refusal, text};
use crate::wire::{Arguments, Connection};

const LEVELS: [&str; 3] = ["memory", "second", "always"];
/// The flush of the level `second`, and more than that.
const FLUSH_TIME: Duration = Duration::from_millis(1300);

/// Returns a module whose code depends on a number.
fn numbered(number: u32) -> String {
    format!(
        "mod m {{ #[update] fn f(v: u32) -> u32 {{ v * 3 + {number} }}
         #[update] fn set(v: &mut u32) -> u32 {{ *v = {number}; {number} }} }}"
    )
}

fn words(line: &str) -> Arguments {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn load(source: &str) -> Arguments {
    ["SKEP.FUNCTION", "LOAD", "REPLACE", source].map(|word| word.as_bytes().to_vec()).into()
}

fn connect(server: &Server) -> Connection {
    Connection::to_address(server.resp.as_ref().expect("the RESP port is on"))
}

/// Runs commands. Returns the replies in one line.
fn run_all(server: &Server, commands: &[Arguments]) -> String {
    let replies = connect(server).run(commands).concat();
    replies.escape_ascii().to_string().replace("\\r\\n", " ").trim_end().to_owned()
}

/// Runs commands without spaces in their arguments.
fn run(server: &Server, lines: &[&str]) -> String {
    run_all(server, &lines.iter().map(|line| words(line)).collect::<Vec<_>>())
}

fn kill(mut server: Server) {
    server.child().kill().expect("the server runs");
    server.wait();
}

/// Starts a server with an ordered space.
fn start(directory: &DataDirectory, shards: u16, level: &str) -> Server {
    start_in(directory.path(), shards, level)
}

fn start_in(path: &Path, shards: u16, level: &str) -> Server {
    Server::start_command(&mut serve(path, shards, level))
}

fn serve(path: &Path, shards: u16, level: &str) -> Command {
    let path = path.to_str().expect("the path is UTF-8");
    let shards = shards.to_string();
    let mut command = skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--memory", "64MiB"]);
    command.args(["--ordered-memory", "16MiB", "--data-dir", path, "--durability", level, "--shards", &shards]);
    command
}

#[test]
fn a_function_that_was_loaded_survives_a_kill() {
    for level in LEVELS {
        let directory = DataDirectory::new(&format!("functions-load-{level}"));
        for number in 1..=4 {
            let server = start(&directory, 1 + number as u16 % 3, level);
            assert_eq!(run_all(&server, &[load(&numbered(number))]), "$1 m");
            kill(server);
            let server = start(&directory, 2, level);
            let calls = ["SKEP.SET k u32 7", "SKEP.UPDATE k m.set", "SKEP.FUNCTION LIST"];
            let replies = run(&server, &calls);
            assert!(replies.starts_with(&format!("+OK :{number} *1 ")), "{level}: {replies}");
            assert!(replies.contains(&format!("$8 revision :{number} ")), "{level}: {replies}");
            assert!(replies.contains("$7 numbers *2 :1 :2 "), "{level}: {replies}");
            kill(server);
        }
        // The same source again has its revision of then.
        let server = start(&directory, 2, level);
        assert_eq!(run_all(&server, &[load(&numbered(2))]), "$1 m");
        assert!(run(&server, &["SKEP.FUNCTION LIST"]).contains("$8 revision :2 "), "{level}");
        assert_eq!(run(&server, &["SKEP.FUNCTION DELETE m"]), "+OK");
        kill(server);
        let server = start(&directory, 1, level);
        assert_eq!(run(&server, &["SKEP.FUNCTION LIST"]), "*0");
    }
}

/// A replay runs each call with the code of its time, also if that is no longer there.
#[test]
fn calls_are_replayed_with_the_code_of_their_time() {
    for level in LEVELS {
        for saves in [false, true] {
            let directory = DataDirectory::new(&format!("functions-calls-{level}-{saves}"));
            let server = start(&directory, 2, level);
            let call = |key: u32| [format!("SKEP.UPDATE k{key} m.f INIT 1 {key} NORETURN")];
            let mut expected: Vec<[u32; 2]> = (0..30).map(|key| [1, key]).collect();
            for number in [5, 6, 5, 9] {
                assert_eq!(run_all(&server, &[load(&numbered(number))]), "$1 m");
                for space in ["SELECT 0", "SELECT 1"] {
                    let calls: Vec<String> = (0..30).flat_map(call).collect();
                    let mut lines = vec![space];
                    lines.extend(calls.iter().map(String::as_str));
                    assert_eq!(run(&server, &lines), ["+OK"; 31].join(" "));
                }
                expected.iter_mut().flatten().for_each(|v| *v = v.wrapping_mul(3).wrapping_add(number));
                if saves && number == 6 {
                    assert_eq!(run(&server, &["SAVE"]), "+OK");
                }
            }
            assert_eq!(run(&server, &["SKEP.FUNCTION DELETE m"]), "+OK");
            if level == "memory" {
                // Its log is written by the next snapshot at the latest.
                assert_eq!(run(&server, &["SAVE"]), "+OK");
            } else if level == "second" {
                thread::sleep(FLUSH_TIME);
            }
            kill(server);
            for shards in [2, 3, 1] {
                let server = start(&directory, shards, level);
                for space in ["SELECT 0", "SELECT 1"] {
                    let reads: Vec<String> = (0..30).map(|key| format!("SKEP.GETV k{key} u32")).collect();
                    let mut lines = vec![space];
                    lines.extend(reads.iter().map(String::as_str));
                    let values: Vec<String> = expected.iter().map(|[a, b]| format!("*2 :{a} :{b}")).collect();
                    assert_eq!(run(&server, &lines), format!("+OK {}", values.join(" ")), "{level} {saves} {shards}");
                }
                assert_eq!(run(&server, &["SKEP.FUNCTION LIST"]), "*0");
                kill(server);
            }
            let server = start(&directory, 2, level);
            assert_eq!(run_all(&server, &[load(&numbered(7))]), "$1 m");
            let list = run(&server, &["SKEP.FUNCTION LIST"]);
            assert!(list.contains("$7 numbers *2 :1 :2 ") && list.contains("$8 revision :4 "), "{list}");
        }
    }
}

#[test]
fn a_backup_beside_loads_and_calls_has_its_functions() {
    let directory = DataDirectory::new("functions-backup");
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let server = start(&directory, 2, "always");
    assert_eq!(run_all(&server, &[load(&numbered(0)), words("SKEP.SET k u32 0")]), "$1 m +OK");
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let (server, end) = (&server, &end);
        scope.spawn(move || {
            let mut connection = connect(server);
            for number in (1..500).cycle() {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                // What the key has is what the newest call has set.
                let commands = [load(&numbered(number % 50)), words("SKEP.UPDATE k m.set"), words("SKEP.GETV k u32")];
                let (replies, number) = (connection.run(&commands).concat(), number % 50);
                let expected = format!("$1\r\nm\r\n:{number}\r\n*1\r\n:{number}\r\n");
                assert_eq!(replies.escape_ascii().to_string(), expected.escape_default().to_string());
            }
        });
        for copy in 0..8 {
            let path = folder.path().join(copy.to_string());
            let path = path.to_str().expect("the path is UTF-8");
            let source = directory.path().to_str().expect("the path is UTF-8");
            let report = output(&["backup", source, path]);
            assert!(report.status.success(), "{}", text(&report.stderr));
            thread::sleep(Duration::from_millis(50));
        }
        end.store(true, Ordering::Relaxed);
    });
    kill(server);
    for copy in 0..8 {
        let server = start_in(&folder.path().join(copy.to_string()), 1 + copy % 3, "always");
        let replies = run(&server, &["SKEP.GETV k u32", "SKEP.UPDATE k m.set"]);
        let numbers: Vec<u32> = replies.split(" :").skip(1).map(|number| number.parse().unwrap()).collect();
        // The newest load may be called later than the copy was made.
        assert!(numbers.len() == 2 && numbers.iter().all(|number| *number < 50), "{replies}");
    }
}

/// Changes modules while the connection that does it is closed or killed, and while the server ends.
#[test]
fn loads_that_are_cut_off_are_made_or_not() {
    let directory = DataDirectory::new("functions-cut");
    let mut last = 0;
    for round in 0..6_u32 {
        let mut server = start(&directory, 2, "always");
        let set = run(&server, &["SKEP.UPDATE k m.set INIT 0"]);
        if round > 0 {
            let number: u32 = set.strip_prefix(':').expect(&set).parse().expect("a number");
            // What was acknowledged, or one that was sent after it.
            assert!((last..last + 3).contains(&number), "{number}, not {last}");
        }
        last = 10 * (round + 1);
        assert_eq!(run_all(&server, &[load(&numbered(last))]), "$1 m");
        let address = server.resp.clone().expect("the RESP port is on");
        // The end of the connection.
        let mut request = Vec::new();
        let arguments = load(&numbered(last + 1));
        request.extend(format!("*{}\r\n", arguments.len()).into_bytes());
        for argument in arguments {
            request.extend(format!("${}\r\n", argument.len()).into_bytes());
            request.extend(argument);
            request.extend(b"\r\n");
        }
        let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
        std::io::Write::write_all(&mut stream, &request).expect("it reads");
        stream.shutdown(Shutdown::Both).expect("it is open");
        // Another connection, which is killed.
        let mut killed = connect(&server);
        killed.send(&[load(&numbered(last + 2))]).expect("it reads");
        run(&server, &["CLIENT KILL TYPE normal SKIPME yes"]);
        let mut stopped = connect(&server);
        stopped.send(&[load(&numbered(last + 2))]).expect("it reads");
        match round % 3 {
            0 => kill(server),
            1 => {
                server.signal("TERM");
                assert_eq!(server.wait().code(), Some(0));
            }
            _ => {
                _ = connect(&server).send(&[words("SHUTDOWN NOSAVE")]);
                assert_eq!(server.wait().code(), Some(0));
            }
        }
    }
}

/// The functions of the naive store as a module. The numbers are the same, because the names are in the same order.
fn naive_module(comment: u32) -> String {
    let fold: Vec<String> = (0..16).map(|byte| format!("s[{byte}] * k + v[{}]", byte % 12)).collect();
    format!(
        "mod test {{
            // {comment}
            struct Bucket {{ tokens: u32, at: u64 }}
            #[update] fn scale(v: u32, d: u32) -> u32 {{ v * 3 + d }}
            #[update] fn take(b: &mut Bucket, cost: u16, at: u64) -> bool {{
                b.at = at;
                let has = b.tokens >= cost as u32;
                if has {{ b.tokens -= cost as u32; }}
                has
            }}
            #[update] fn divide(v: u8, d: u8) -> u8 {{ v / d }}
            #[update] fn blend(v: [u64; 3], a: u32, b: u64) -> [u64; 3] {{
                [v[0], v[0] ^ v[1] ^ v[2] ^ a as u64 ^ b, v[2]]
            }}
            #[reduce] fn mean(v: u8, sum: u64) -> u64 {{ sum + v as u64 }}
            #[reduce] fn fold(v: [u8; 12], s: [u8; 16], factor: u16) -> [u8; 16] {{
                let one = [1_u8];
                let k = factor as u8 | one[(factor == 0) as usize];
                [{}]
            }}
            #[filter] fn above(v: u16, d: u16) -> bool {{ v > d }}
            #[filter] fn marked(v: [u8; 5], bits: u8) -> bool {{ v[4] & bits != 0 }}
        }}",
        fold.join(", ")
    )
}

/// Batches of random operations and calls, with kills between them, and modules that are replaced by ones of the same
/// meaning.
#[test]
fn random_calls_are_what_the_naive_store_has() {
    let seed = std::env::var("SKEP_SEED").map_or(1, |seed| seed.parse().expect("SKEP_SEED is a number"));
    println!("seed {seed}");
    for space in [HASH_SPACE, ORDERED_SPACE] {
        let directory = DataDirectory::new(&format!("functions-random-{space}"));
        let settings = GeneratorSettings { seed, key_size: 1..=40, large_size_max: 20_000, ..Default::default() };
        let mut generator = Generator::new(settings);
        let mut naive = NaiveStore::new();
        naive.set_now(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64);
        let mut calls = 0;
        for (round, shards) in [2, 2, 3, 1, 1, 2].into_iter().enumerate() {
            let server = start(&directory, shards, "always");
            let mut client = Client::connect(&*server.native, space).unwrap();
            let mut responses = Responses::new();
            let keys: Vec<&[u8]> = naive.iter().map(|(key, _)| key).collect();
            assert_eq!(run(&server, &[&format!("SELECT {space}"), "DBSIZE"]), format!("+OK :{}", keys.len()));
            let gets: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
            client.execute(&gets, &mut responses).unwrap();
            for ((key, value), found) in naive.iter().zip(responses.iter()) {
                assert!(found == Ok(Reply::Value(value)), "round {round}: {}: {found:?}", key.escape_ascii());
            }
            for part in 0..20 {
                if part % 5 == 0 {
                    let source = naive_module(round as u32 * 2 + part / 10);
                    assert_eq!(run_all(&server, &[load(&source)]), "$4 test");
                }
                // Without calls of functions that do not exist: the server knows them by their numbers alone.
                let is_known = |request: &OwnedRequest| match request.as_request().operation {
                    Operation::Call(call) => call.function.function.is_some(),
                    _ => true,
                };
                let batch: Vec<OwnedRequest> = generator.by_ref().filter(is_known).take(500).collect();
                let requests: Vec<Request<'_>> = batch.iter().map(OwnedRequest::as_request).collect();
                calls += requests.iter().filter(|request| matches!(request.operation, Operation::Call(_))).count();
                client.execute(&requests, &mut responses).unwrap();
                for (request, reply) in requests.iter().zip(responses.iter()) {
                    let reply = reply.unwrap_or_else(|error| panic!("{error:?}: {request:?}"));
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
        assert!(calls > 2000, "{calls} calls");
    }
}

/// Replaces the source of each module `m` in the data directory of a server that has ended, as another version might find
/// it. Does not lock the directory: a process that another test starts meanwhile would have the lock for a moment too.
fn store_source(directory: &DataDirectory, source: &str) {
    for name in ["functions.a", "functions.b"] {
        let path = directory.path().join(name);
        let stored = StoredFunctions::decode(&fs::read(&path).expect("a server has written it"));
        let (mut functions, generation) = stored.expect("it is valid");
        let modules = functions.modules.iter_mut().filter(|module| module.name == "m");
        modules.for_each(|module| module.source = source.to_owned());
        let mut pages = Pages::default();
        functions.encode(generation, &mut pages);
        let mut bytes = pages.bytes().to_vec();
        bytes.resize(padded_size(bytes.len() as u64) as usize, 0);
        fs::write(path, bytes).expect("it can be written");
    }
}

/// A later version may refuse a source that an earlier one has stored.
#[test]
fn a_stored_module_that_does_not_compile_is_listed_and_can_be_replaced() {
    const REFUSED: &str = "mod m { #[update] fn f(v: u32) -> u32 { v + x } }";
    const OTHER: &str = "mod other { #[update] fn f(v: u32) -> u32 { v + 1 } }";
    let missing = "there is no local, parameter or constant `x`";
    let directory = DataDirectory::new("functions-refused");
    let server = start(&directory, 2, "always");
    assert_eq!(run_all(&server, &[load(&numbered(5)), load(OTHER)]), "$1 m $5 other");
    for space in ["SELECT 0", "SELECT 1"] {
        assert_eq!(run(&server, &[space, "SKEP.SET k u32 7", "SKEP.UPDATE k m.f NORETURN"]), "+OK +OK +OK");
    }
    kill(server);

    // The log needs the module.
    store_source(&directory, REFUSED);
    for shards in [2, 3] {
        let refused = start_or_refusal(&mut serve(directory.path(), shards, "always")).expect_err("a call needs it");
        assert_refusal(
            &refused,
            1,
            &["module m, which does not compile: line 1", missing, "SAVE", "no file was changed"],
        );
    }
    store_source(&directory, &numbered(5));
    let server = start(&directory, 2, "always");
    assert_eq!(run(&server, &["SKEP.GETV k u32", "SAVE"]), "*1 :26 +OK");
    kill(server);

    // After a snapshot, the log does not.
    store_source(&directory, REFUSED);
    for shards in [2, 3, 3] {
        let server = start(&directory, shards, "always");
        for space in ["SELECT 0", "SELECT 1"] {
            assert_eq!(run(&server, &[space, "SKEP.GETV k u32"]), "+OK *1 :26");
        }
        let list = run(&server, &["SKEP.FUNCTION LIST"]);
        assert!(list.starts_with("*2 *12 $6 module $1 m "), "{list}");
        assert!(list.contains("functions *0 ") && list.contains("$5 error ") && list.contains(missing), "{list}");
        assert_eq!(run(&server, &["SKEP.FUNCTION SHOW m"]), format!("${} {REFUSED}", REFUSED.len()));
        for call in ["SKEP.UPDATE k m.f", "SKEP.REDUCE k m.f 1", "SKEP.FILTER k m.f", "SKEP.GETV k m.Record"] {
            let error = run(&server, &[call]);
            let name = call.split(' ').nth(2).expect("a name");
            assert!(
                error.starts_with(&format!("-ERR the module of \\'{name}\\' does not compile any more: line 1")),
                "{error}"
            );
            assert!(error.contains(missing) && error.ends_with("replace it by SKEP.FUNCTION LOAD REPLACE"), "{error}");
        }
        assert!(run_all(&server, &[load(REFUSED)]).contains(missing));
        assert_eq!(run(&server, &["SKEP.SET l u32 1", "SKEP.UPDATE l other.f"]), "+OK :1");
        let address = server.resp.clone().expect("the RESP port is on");
        let listed = output(&["function", "list", "--addr", &address]);
        let listed = text(&listed.stdout);
        assert!(listed.contains("m (revision 1)\n  does not compile: line 1") && listed.contains(missing), "{listed}");
        kill(server);
    }
    let server = start(&directory, 2, "always");
    assert_eq!(run_all(&server, &[load(&numbered(6)), words("SKEP.UPDATE k m.f")]), "$1 m :26");
    assert!(run(&server, &["SKEP.FUNCTION LIST"]).contains("$7 numbers *2 :1 :2 "));
    kill(server);
    let server = start(&directory, 1, "always");
    assert_eq!(run(&server, &["SKEP.GETV k u32", "SKEP.FUNCTION DELETE m"]), "*1 :84 +OK");
    kill(server);
}

/// A source whose functions are not those of the stored names, or that has another name, is not run.
#[test]
fn a_stored_module_with_other_functions_is_refused_by_name() {
    let directory = DataDirectory::new("functions-other");
    let server = start(&directory, 1, "always");
    assert_eq!(run_all(&server, &[load(&numbered(5))]), "$1 m");
    kill(server);
    for source in ["mod m { #[update] fn g(v: u32) -> u32 { v } }", "mod n { #[update] fn f(v: u32) -> u32 { v } }"] {
        store_source(&directory, source);
        let server = start(&directory, 1, "always");
        let list = run(&server, &["SKEP.FUNCTION LIST"]);
        assert!(list.ends_with("its functions are not those that were stored"), "{list}");
        assert_eq!(run_all(&server, &[load(source)]), "-ERR its functions are not those that were stored");
        kill(server);
    }
}
