//! Imports files that `redis-server` has saved, and compares the keys of both servers.

mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;
#[path = "redis/wire.rs"]
mod wire;

use std::fs;
use std::path::{Path, PathBuf};

use full_run::is_full_run;
use process::{Server, assert_refusal, output, text};
use wire::{Arguments, Connection, Redis};

fn command(words: &[&[u8]]) -> Arguments {
    words.iter().map(|word| word.to_vec()).collect()
}

/// Splits a line of text into the words of a command.
fn line(text: &str) -> Arguments {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Lets Redis save its keys. Returns the file.
fn save(redis: &mut Connection, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).canonicalize().unwrap();
    let name = format!("{}-{name}.rdb", std::process::id());
    let commands = [
        command(&[b"CONFIG", b"SET", b"dir", folder.to_str().unwrap().as_bytes(), b"dbfilename", name.as_bytes()]),
        line("SAVE"),
    ];
    assert_eq!(redis.run(&commands), [b"+OK\r\n"; 2]);
    folder.join(name)
}

/// Sends commands, a few at a time, so that neither end waits for the other one to read. Returns the replies.
fn run(connection: &mut Connection, commands: &[Arguments]) -> Vec<Vec<u8>> {
    commands.chunks(100).flat_map(|commands| connection.run(commands)).collect()
}

fn import(file: &Path, address: &str) -> std::process::Output {
    output(&["import", file.to_str().unwrap(), "--addr", address])
}

#[test]
fn strings_of_redis_have_the_same_values_and_expiries() {
    if !is_full_run() {
        return;
    }
    let mut strings: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for number in [0, 1, -1, 127, 128, -128, -129, 32_767, 32_768, -32_769, i64::from(i32::MAX), 1 << 31, i64::MIN] {
        strings.push((format!("number {number}").into(), number.to_string().into()));
    }
    for size in [0, 1, 3, 20, 21, 63, 64, 100, 263, 264, 8192, 8193, 16_383, 16_384, 65_536, 1 << 20] {
        // Repeated text is compressed, bytes without a pattern are not.
        let text = b"a line that repeats, ".iter().copied().cycle().take(size).collect();
        let mut state = 1_u32;
        let mut noise = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        };
        strings.push((format!("text {size}").into(), text));
        strings.push((format!("zeros {size}").into(), vec![0; size]));
        strings.push((format!("noise {size}").into(), (0..size).map(|_| noise()).collect()));
    }
    strings.push((vec![b'k'; 460], b"a long key".to_vec()));
    for compression in ["yes", "no"] {
        let redis = Redis::start(&format!("import-{compression}"));
        let mut redis = redis.connect();
        let mut commands = vec![line(&format!("CONFIG SET rdbcompression {compression}"))];
        commands.extend(strings.iter().map(|(key, value)| command(&[b"SET", key, value])));
        commands.push(line("SET expiring v PXAT 4000000000123"));
        commands.push(line("SET expired v PX 1"));
        commands.extend((0..50_000).map(|number| line(&format!("SET key:{number} {number} PX 100000000"))));
        commands.extend(["RPUSH list a b c", "SADD set 1 2 3", "SADD words a b", "ZADD zset 1 a 2.5 b"].map(line));
        commands.extend((0..200).map(|number| line(&format!("ZADD zset2 {number}.5 m{number}"))));
        commands.extend((0..600).map(|number| line(&format!("HSET hash f{number} v"))));
        commands.extend((0..5000).map(|number| line(&format!("RPUSH list2 {number}"))));
        commands.extend((0..300).map(|number| line(&format!("XADD stream {}-1 f v{number}", number + 1))));
        commands.extend(
            ["HSET hash2 a b", "XGROUP CREATE stream g 0", "XREADGROUP GROUP g c COUNT 5 STREAMS stream >"].map(line),
        );
        commands.push(command(&[
            b"FUNCTION",
            b"LOAD",
            b"#!lua name=l\nredis.register_function('f', function() return 1 end)",
        ]));
        commands.extend(["SELECT 1", "SET ordered 1", "SELECT 2", "SET cached 2", "SELECT 0"].map(line));
        for reply in run(&mut redis, &commands) {
            assert!(!reply.starts_with(b"-"), "{}", reply.escape_ascii());
        }
        let file = save(&mut redis, &format!("import-{compression}"));
        let server = Server::start(&["--cache-memory", "8MiB"]);
        let imported = output(&["import", file.to_str().unwrap(), "--into-cache", "--addr", &server.native]);
        let expected = format!(
            "imported {} keys into the hash space, 50001 with an expiry\n\
             imported 1 key into the ordered space\nimported 1 key into the cache space\n\
             left out 2 lists\nleft out 2 sets\nleft out 2 sorted sets\nleft out 2 hashes\nleft out 1 stream\n\
             left out 1 library of functions\n",
            strings.len() + 50_001
        );
        let printed = text(&imported.stdout).replace("left out 1 key that had expired\n", "");
        assert_eq!((printed, text(&imported.stderr)), (expected, String::new()));

        let mut skep = Connection::to_address(server.resp.as_ref().expect("the server listens for RESP"));
        let mut reads: Vec<Arguments> = strings.iter().map(|(key, _)| command(&[b"GET", key])).collect();
        reads.extend(strings.iter().map(|(key, _)| command(&[b"PEXPIRETIME", key])));
        reads.extend(["GET expiring", "PEXPIRETIME expiring", "EXISTS expired"].map(line));
        reads.extend((0..50_000).step_by(7).map(|number| line(&format!("GET key:{number}"))));
        reads.extend((0..50_000).step_by(7).map(|number| line(&format!("PEXPIRETIME key:{number}"))));
        reads.extend(["SELECT 1", "GET ordered", "SELECT 2", "GET cached"].map(line));
        assert!(run(&mut redis, &reads) == run(&mut skep, &reads), "a value or an expiry differs");
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_file_of_redis_that_is_cut_off_or_changed_is_refused() {
    if !is_full_run() {
        return;
    }
    let redis = Redis::start("import-damaged");
    let mut redis = redis.connect();
    let commands =
        ["CONFIG SET rdbcompression yes", "SET a 1", "SET b v PXAT 4000000000123", "RPUSH l a b", "HSET h f v"];
    let long = command(&[b"SET", b"long", &[b'x'; 100]]);
    redis.run(&commands.map(line));
    redis.run(&[long]);
    let file = save(&mut redis, "import-damaged");
    let bytes = fs::read(&file).unwrap();
    let damaged = file.with_extension("damaged");
    // The file is checked before the program connects.
    let no_server = "127.0.0.1:1";
    for size in 0..bytes.len() {
        fs::write(&damaged, &bytes[..size]).unwrap();
        let part = if size < 9 { "not an RDB file" } else { "it is cut off" };
        assert_refusal(&import(&damaged, no_server), 1, &[part]);
    }
    let mut checksum_count = 0;
    for index in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[index] ^= 1 << (index % 8);
        fs::write(&damaged, &bytes).unwrap();
        let refused = import(&damaged, no_server);
        assert_refusal(&refused, 1, &[damaged.to_str().unwrap()]);
        checksum_count += usize::from(text(&refused.stderr).contains("its checksum is"));
    }
    assert!(checksum_count > bytes.len() / 2, "{checksum_count} of {} changes", bytes.len());
    assert_refusal(&import(&file, no_server), 1, &["no server replies"]);
    fs::remove_file(file).unwrap();
    fs::remove_file(damaged).unwrap();
}
