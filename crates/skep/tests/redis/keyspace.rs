//! Commands on all keys, compared with Redis: as sets, because the orders differ.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::wire::{Arguments, Connection};

/// Parts of keys and of patterns.
const PARTS: [&str; 14] = ["a", "b", "c", "user:", "1", "2", "[", "]", "*", "?", "^", "-", "\\", "\u{e4}"];
const PATTERNS: [&str; 16] = [
    "*", "**", "a*", "*a", "?", "??", "[a-c]*", "[^a-c]*", "user:?*", "*[12]", "\\**", "\\[*", "[", "[^", "*[a\\]]*",
    "[c-a]?",
];
/// Commands whose replies are compared byte for byte.
const EXACT: [&str; 20] = [
    "DBSIZE",
    "dbsize",
    "DBSIZE x",
    "KEYS",
    "KEYS a b",
    "RANDOMKEY x",
    "SCAN",
    "SCAN x",
    "SCAN 1x",
    "SCAN 99999999999999999999",
    "SCAN 0 COUNT",
    "SCAN 0 COUNT 0",
    "SCAN 0 COUNT -1",
    "SCAN 0 COUNT x",
    "SCAN 0 MATCH",
    "SCAN 0 TYPE",
    "SCAN 0 x y",
    "FLUSHDB x",
    "FLUSHALL SYNC ASYNC",
    "FLUSHALL now",
];

fn words(line: &str) -> Arguments {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns the bulk strings of a reply.
fn strings(reply: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut strings) = (reply, Vec::new());
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let header = &rest[..end];
        rest = &rest[end + 2..];
        if header[0] == b'$' {
            let size: usize = std::str::from_utf8(&header[1..]).unwrap().parse().unwrap();
            strings.push(rest[..size].to_vec());
            rest = &rest[size + 2..];
        } else {
            assert_eq!(header[0], b'*', "{}", reply.escape_ascii());
        }
    }
    strings
}

/// Runs a whole scan.
fn scan(server: &mut Connection, options: &[&[u8]]) -> BTreeSet<Vec<u8>> {
    let (mut cursor, mut keys) = (b"0".to_vec(), BTreeSet::new());
    loop {
        let mut arguments = vec![b"SCAN".to_vec(), cursor];
        arguments.extend(options.iter().map(|option| option.to_vec()));
        let mut reply = strings(&server.run(&[arguments])[0]).into_iter();
        cursor = reply.next().expect("a cursor");
        keys.extend(reply);
        if cursor == b"0" {
            return keys;
        }
    }
}

/// Compares Skep with Redis on random keys and patterns, for a number of rounds.
pub(crate) fn compare(redis: &mut Connection, skep: &mut Connection, seed: u64, rounds: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for round in 0..rounds {
        let mut text = |parts: &[&str]| -> Vec<u8> {
            (0..random.random_range(1..4)).flat_map(|_| parts[random.random_range(0..parts.len())].bytes()).collect()
        };
        let mut commands: Vec<Arguments> = Vec::new();
        for _ in 0..30 {
            commands.push(vec![b"SET".to_vec(), text(&PARTS), b"v".to_vec()]);
            commands.push(vec![b"DEL".to_vec(), text(&PARTS)]);
        }
        let mut patterns: Vec<Vec<u8>> = (0..20).map(|_| text(&PARTS)).collect();
        patterns.extend(PATTERNS.map(|pattern| pattern.as_bytes().to_vec()));
        commands.extend(EXACT.map(words));
        if random.random_range(0..4) == 0 {
            let flush = ["FLUSHDB", "FLUSHDB ASYNC", "flushdb sync", "FLUSHALL", "FLUSHALL ASYNC"];
            commands.push(words(flush[random.random_range(0..flush.len())]));
            commands.push(words("SET last 1"));
            commands.push(words("DBSIZE"));
        }
        let replies = (redis.run(&commands), skep.run(&commands));
        for (index, command) in commands.iter().enumerate() {
            let show = |reply: &[u8]| reply.escape_ascii().to_string();
            let command = show(&command.join(&b' '));
            assert_eq!(show(&replies.1[index]), show(&replies.0[index]), "round {round}: {command}");
        }
        for pattern in &patterns {
            let keys = vec![vec![b"KEYS".to_vec(), pattern.clone()]];
            let mut sorted = [&mut *redis, &mut *skep].map(|server| strings(&server.run(&keys)[0]));
            sorted.iter_mut().for_each(|keys| keys.sort_unstable());
            let [of_redis, of_skep] = sorted;
            let pattern_text = pattern.escape_ascii();
            assert_eq!(of_skep, of_redis, "round {round}: KEYS {pattern_text}");
            let scanned = scan(skep, &[b"MATCH", pattern, b"COUNT", b"7"]);
            assert_eq!(scanned, of_redis.into_iter().collect(), "round {round}: SCAN MATCH {pattern_text}");
        }
        for options in [&[][..], &[&b"TYPE"[..], b"string"], &[&b"type"[..], b"LIST"], &[&b"TYPE"[..], b"nosuch"]] {
            assert_eq!(scan(skep, options), scan(redis, options), "round {round}: {options:?}");
        }
        let all = scan(redis, &[]);
        let key = skep.run(&[words("RANDOMKEY")]).remove(0);
        let is_known = if all.is_empty() { key == b"$-1\r\n" } else { all.contains(&strings(&key)[0]) };
        assert!(is_known, "round {round}: {}", key.escape_ascii());
    }
}
