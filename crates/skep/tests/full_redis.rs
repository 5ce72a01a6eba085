//! Runs the tools of Redis users, unmodified, against the program: `redis-cli` and `redis-benchmark`. Compares the
//! replies of the program with those of `redis-server`.
//!
//! `SKEP_LONG` multiplies the random commands that are compared, and `SKEP_SEED` is their seed.

#[path = "redis/commands.rs"]
mod commands;
#[path = "redis/differences.rs"]
mod differences;
mod full_run;
#[path = "redis/keyspace.rs"]
mod keyspace;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;
mod setting;
#[path = "redis/wire.rs"]
mod wire;

use std::process::Command;

use commands::Commands;
use differences::{DIFFERENCES, RARE_DIFFERENCES, agree};
use full_run::is_full_run;
use process::Server;
use setting::setting;
use wire::{Arguments, Connection, Redis};

/// Runs a tool on the server's RESP port. Returns its standard output.
fn tool(name: &str, server: &Server, arguments: &[&str]) -> String {
    let address = server.resp.as_ref().expect("the server listens for RESP");
    let (host, port) = address.rsplit_once(':').expect("an address has a port");
    let mut command = Command::new(name);
    command.args(["-h", host, "-p", port]).args(arguments);
    let output = command.output().unwrap_or_else(|error| panic!("{name}: {error}; Debian has it in redis-tools"));
    let (out, err) = (process::text(&output.stdout), process::text(&output.stderr));
    assert!(output.status.success() && err.is_empty(), "{command:?}: {}\n{out}{err}", output.status);
    out
}

#[test]
fn redis_cli_sets_increments_and_gets() {
    if !is_full_run() {
        return;
    }
    let server = Server::start(&[]);
    let cli = |words: &[&str]| tool("redis-cli", &server, words);
    assert_eq!(cli(&["SET", "a", "1"]), "OK\n");
    assert_eq!(cli(&["INCRBY", "a", "41"]), "42\n");
    assert_eq!(cli(&["GET", "a"]), "42\n");
    assert_eq!(cli(&["GET", "nothing"]), "\n");
    assert_eq!(cli(&["-3", "SKEP.UPDATE", "hits", "add", "i64", "5", "INIT", "0"]), "0\n");
    assert_eq!(cli(&["SKEP.SET", "v", "i64", "1", "2", "3"]), "OK\n");
    assert_eq!(cli(&["SKEP.REDUCE", "v", "sum", "i64", "0"]), "6\n");
    assert_eq!(cli(&["SKEP.FILTER", "v", "gt", "i64", "1"]), "2\n3\n");
    assert_eq!(cli(&["MSET", "x", "1", "y", "2"]), "OK\n");
    assert_eq!(cli(&["MGET", "x", "nothing", "y"]), "1\n\n2\n");
    assert_eq!(cli(&["EXISTS", "x", "y", "nothing"]), "2\n");
    assert_eq!(cli(&["DEL", "x", "y", "nothing"]), "2\n");
    assert_eq!(cli(&["DBSIZE"]), "3\n");
    assert!(cli(&["INFO"]).contains("skep_version:"));
    assert_eq!(cli(&["-n", "1", "MSET", "user:2", "alan", "user:1", "ada", "x", "1"]), "OK\n");
    assert_eq!(cli(&["-n", "1", "INCRBY", "x", "41"]), "42\n");
    assert_eq!(cli(&["-n", "1", "SKEP.PREFIX", "user:"]), "\nuser:1\nada\nuser:2\nalan\n");
    assert_eq!(cli(&["-n", "1", "SKEP.SCAN", "[user:1", "+", "REV", "KEYS", "LIMIT", "2"]), "user:2\nx\nuser:2\n");
    assert_eq!(cli(&["-n", "1", "SKEP.COUNT", "-", "+"]), "3\n");
    assert_eq!(cli(&["-n", "1", "SKEP.FLOOR", "user:9"]), "user:2\nalan\n");
    assert!(cli(&["SKEP.COUNT", "-", "+"]).starts_with("ERR this space has no order"));
    let refused = cli(&["NOSUCH", "command"]);
    assert!(refused.starts_with("ERR unknown command 'NOSUCH', with args beginning with: 'command'"), "{refused}");
}

#[test]
fn redis_benchmark_finishes_without_errors() {
    if !is_full_run() {
        return;
    }
    let server = Server::start(&[]);
    for random in [&[][..], &["-r", "100000"][..]] {
        let arguments = [&["-t", "set,get,incr", "-P", "32", "-n", "500000", "--csv"], random].concat();
        let report = tool("redis-benchmark", &server, &arguments);
        for test in ["SET", "GET", "INCR"] {
            assert!(report.contains(&format!("\"{test}\",")), "{report}");
        }
        assert!(!report.to_lowercase().contains("error"), "{report}");
    }
    assert!(tool("redis-cli", &server, &["INFO", "stats"]).contains("total_error_replies:0"));
    let total: u64 = tool("redis-cli", &server, &["GET", "counter:__rand_int__"]).trim().parse().expect("a number");
    assert_eq!(total, 500_000, "the INCRs of the run without random keys");
}

/// Random commands that are compared. `SKEP_LONG` multiplies them.
const COMMAND_COUNT: u64 = 100_000;
/// Commands that are sent before their replies are read, at most.
const PIPELINE_MAX: u64 = 64;

fn show(arguments: &Arguments) -> String {
    let words = arguments.iter().map(|argument| argument[..argument.len().min(200)].escape_ascii().to_string());
    words.collect::<Vec<_>>().join(" ")
}

fn show_reply(reply: &[u8]) -> String {
    reply[..reply.len().min(300)].escape_ascii().to_string()
}

/// Sends commands to both servers. Returns the first difference that is not meant.
fn compare(commands: &[Arguments], redis: &mut Connection, skep: &mut Connection) -> Result<(), String> {
    let (redis, skep) = (redis.run(commands), skep.run(commands));
    let mut queued = Vec::new();
    for (index, arguments) in commands.iter().enumerate() {
        if !agree_on(arguments, &mut queued, &redis[index], &skep[index]) {
            let before: Vec<String> = commands[..index].iter().map(show).collect();
            return Err(format!(
                "{}\n{}\n  redis: {}\n  skep:  {}",
                before.join("\n"),
                show(arguments),
                show_reply(&redis[index]),
                show_reply(&skep[index])
            ));
        }
    }
    Ok(())
}

/// Returns the elements of a reply that is an array.
fn elements(reply: &[u8]) -> Option<Vec<&[u8]>> {
    let line_end = reply.windows(2).position(|pair| pair == b"\r\n")?;
    let count: usize = std::str::from_utf8(reply.strip_prefix(b"*")?.get(..line_end - 1)?).ok()?.parse().ok()?;
    let mut begin = line_end + 2;
    let elements = (0..count).map(|_| {
        let end = wire::reply_end(reply, begin)?;
        Some(&reply[std::mem::replace(&mut begin, end)..end])
    });
    elements.collect()
}

/// Returns true if the replies to a command are equal, or differ as they should. `queued` has the commands of the
/// transaction so far: their replies are in that to `EXEC`.
fn agree_on(arguments: &Arguments, queued: &mut Vec<Arguments>, redis: &[u8], skep: &[u8]) -> bool {
    let of_transaction = (elements(redis), elements(skep));
    if redis == b"+QUEUED\r\n" {
        queued.push(arguments.clone());
    } else if let [name] = &arguments[..]
        && name.eq_ignore_ascii_case(b"EXEC")
        && let (Some(redis), Some(skep)) = of_transaction
    {
        let queued = std::mem::take(queued);
        let agree_on_all =
            (queued.iter().zip(redis.iter().zip(&skep))).all(|(one, (redis, skep))| agree(one, redis, skep));
        return agree_on_all && (queued.len(), queued.len()) == (redis.len(), skep.len());
    } else if arguments[0].eq_ignore_ascii_case(b"MULTI") && redis == b"+OK\r\n" {
        queued.clear();
    }
    agree(arguments, redis, skep)
}

#[test]
fn random_commands_have_the_replies_of_redis() {
    if !is_full_run() {
        return;
    }
    let first_seed = setting("SKEP_SEED", 1);
    let count = COMMAND_COUNT * setting("SKEP_LONG", 1);
    for (run, (shards, version)) in [(1, 2), (2, 2), (1, 3), (2, 3)].into_iter().enumerate() {
        let seed = first_seed + run as u64;
        println!("seed {seed}: {shards} shards, RESP{version}");
        let redis = Redis::start(&format!("random-{run}"));
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--memory", "64MiB", "--shards"];
        let server = Server::start_command(process::skep(&arguments).arg(shards.to_string()));
        let mut redis = redis.connect();
        let mut skep = Connection::to_address(server.resp.as_ref().expect("the server listens for RESP"));
        let hello = [vec![b"HELLO".to_vec(), version.to_string().into_bytes()]];
        redis.run(&hello);
        skep.run(&hello);
        let mut commands = Commands::new(seed);
        let mut left = count / 4;
        while left > 0 {
            let size = (1 + commands.below(PIPELINE_MAX)).min(left);
            left -= size;
            let pipeline: Vec<Arguments> = (0..size).flat_map(|_| commands.next_block()).collect();
            if let Err(difference) = compare(&pipeline, &mut redis, &mut skep) {
                panic!("seed {seed}, {shards} shards, RESP{version}, {left} commands before the end:\n{difference}");
            }
        }
    }
}

#[test]
fn writes_of_others_to_watched_keys_have_the_effect_of_redis() {
    if !is_full_run() {
        return;
    }
    let seed = setting("SKEP_SEED", 1);
    for shards in [1, 2] {
        println!("seed {seed}: {shards} shards");
        let redis = Redis::start(&format!("watch-{shards}"));
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--memory", "64MiB", "--shards"];
        let server = Server::start_command(process::skep(&arguments).arg(shards.to_string()));
        let skep = || Connection::to_address(server.resp.as_ref().expect("the server listens for RESP"));
        let (mut redis, mut redis_other) = (redis.connect(), redis.connect());
        let (mut skep, mut skep_other) = (skep(), skep());
        let mut commands = Commands::new(seed);
        let mut null_count = 0;
        for round in 0..COMMAND_COUNT * setting("SKEP_LONG", 1) / 20 {
            let space = if round % 200 < 100 { "0" } else { "1" };
            let select = [vec![b"SELECT".to_vec(), space.into()]];
            let watch = [vec![b"WATCH".to_vec(), commands.key(), commands.key()]];
            let (before, write) = ([commands.write()], [commands.write()]);
            let begin = [vec![b"MULTI".to_vec()], commands.write()];
            let exec = [vec![b"EXEC".to_vec()]];
            let mut run = |is_other: bool, commands: &[Arguments]| {
                let (redis, skep) = match is_other {
                    true => (&mut redis_other, &mut skep_other),
                    false => (&mut redis, &mut skep),
                };
                let (expected, found) = (redis.run(commands), skep.run(commands));
                let words: Vec<String> = [&watch[..], &before, &write, &begin].concat().iter().map(show).collect();
                let words = words.join("\n");
                assert_eq!(
                    found.iter().map(|reply| show_reply(reply)).collect::<Vec<_>>(),
                    expected.iter().map(|reply| show_reply(reply)).collect::<Vec<_>>(),
                    "seed {seed}, round {round}:\n{words}"
                );
                found
            };
            run(false, &select);
            run(true, &select);
            run(false, &before);
            run(false, &watch);
            run(true, &write);
            run(false, &begin);
            null_count += u64::from(run(false, &exec) == [b"*-1\r\n"]);
        }
        assert!(null_count > 100, "{null_count} transactions were not executed");
    }
}

#[test]
fn commands_on_all_keys_have_the_replies_of_redis() {
    if !is_full_run() {
        return;
    }
    let seed = setting("SKEP_SEED", 1);
    println!("seed {seed}");
    let rounds = COMMAND_COUNT * setting("SKEP_LONG", 1) / 5000;
    for (shards, space) in [(1, 0), (3, 0), (2, 1)] {
        let redis = Redis::start(&format!("keyspace-{shards}"));
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--memory", "64MiB"];
        let mut command = process::skep(&arguments);
        command.args(["--ordered-memory", "16MiB", "--shards"]).arg(shards.to_string());
        let server = Server::start_command(&mut command);
        let mut redis = redis.connect();
        let mut skep = Connection::to_address(server.resp.as_ref().expect("the server listens for RESP"));
        let select = [vec![b"SELECT".to_vec(), space.to_string().into_bytes()]];
        assert_eq!(redis.run(&select), skep.run(&select));
        keyspace::compare(&mut redis, &mut skep, seed, rounds);
    }
}

#[test]
fn redis_cli_scans_and_finds_the_largest_keys() {
    if !is_full_run() {
        return;
    }
    let server = Server::start(&[]);
    let cli = |words: &[&str]| tool("redis-cli", &server, words);
    for space in ["0", "1"] {
        for number in 0..50 {
            let value = "v".repeat(number * 10 + 1);
            assert_eq!(cli(&["-n", space, "SET", &format!("key:{number}"), &value]), "OK\n");
        }
        let found = |arguments: &[&str]| {
            let text = cli(&[&["-n", space, "--scan"], arguments].concat());
            let mut keys: Vec<String> = text.lines().map(str::to_owned).collect();
            keys.sort_unstable();
            keys.dedup();
            keys
        };
        assert_eq!(found(&[]).len(), 50);
        assert_eq!(found(&["--pattern", "key:1?"]).len(), 10);
        let report = cli(&["-n", space, "--bigkeys"]);
        assert!(report.contains("Sampled 50 keys in the keyspace!"), "{report}");
        assert!(report.contains("Biggest string found '\"key:49\"' has 491 bytes"), "{report}");
        let report = cli(&["-n", space, "--memkeys"]);
        assert!(report.contains("Sampled 50 keys in the keyspace!"), "{report}");
        assert_eq!(cli(&["-n", space, "FLUSHDB"]), "OK\n");
        assert_eq!(cli(&["-n", space, "DBSIZE"]), "0\n");
        assert_eq!(found(&[]), [""; 0]);
    }
}

#[test]
fn fractions_are_added_as_redis_adds_them() {
    if !is_full_run() {
        return;
    }
    let seed = setting("SKEP_SEED", 1);
    println!("seed {seed}");
    let redis = Redis::start("fractions");
    let server = Server::start(&[]);
    let mut redis = redis.connect();
    let mut skep = Connection::to_address(server.resp.as_ref().expect("the server listens for RESP"));
    let mut commands = Commands::new(seed);
    for _ in 0..COMMAND_COUNT * setting("SKEP_LONG", 1) / 200 {
        let mut pipeline: Vec<Arguments> = Vec::new();
        for _ in 0..50 {
            let (old, delta) = (commands.fraction(), commands.fraction());
            pipeline.push(vec!["SET".into(), "n".into(), old.into()]);
            pipeline.push(vec!["INCRBYFLOAT".into(), "n".into(), delta.into()]);
        }
        if let Err(difference) = compare(&pipeline, &mut redis, &mut skep) {
            panic!("seed {seed}:\n{difference}");
        }
    }
}

#[test]
fn the_differences_from_redis_are_documented() {
    let page = include_str!("../../../docs/resp.md");
    let compared = DIFFERENCES.iter().map(|difference| {
        let commands = difference.commands.join("`, `");
        (format!("`{commands}`"), difference.reason)
    });
    let rare = RARE_DIFFERENCES.iter().map(|(commands, reason)| ((*commands).to_owned(), *reason));
    let lines: Vec<String> =
        compared.chain(rare).map(|(commands, reason)| format!("| {commands} | {reason} |")).collect();
    let table = lines.join("\n");
    assert!(page.contains(&format!("|---|---|\n{table}\n")), "docs/resp.md lacks this table:\n{table}");
}
