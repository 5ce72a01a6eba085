//! Ranges over RESP against a map: random bounds, floors, prefixes, directions and page sizes; each page, byte for byte.
//! Pages of a lease show the moment of the first one, although keys change between them. `SKEP_SEED` repeats a run.

mod support;

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::OperationError;
use support::{Resp, command, seeds, server};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The arguments that name a range, and the keys that lie in it.
#[derive(Debug)]
struct Asked {
    arguments: Vec<Vec<u8>>,
    keys: Vec<Vec<u8>>,
    /// Whether the range is refused, since it begins above its end.
    is_reversed: bool,
}

/// Returns one to five of three bytes: many are prefixes of others, and every third may be the greatest there is.
fn key(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    (0..random.random_range(1..=5)).map(|_| [b'a', b'b', 0xff][random.random_range(0..3)]).collect()
}

/// Returns a bound, and how a key compares with it.
fn bound(random: &mut Xoshiro256PlusPlus) -> (Vec<u8>, Vec<u8>) {
    let key = key(random);
    match random.random_range(0..6) {
        0 => (b"-".to_vec(), Vec::new()),
        1 => (b"+".to_vec(), vec![0xff; 460]),
        2 | 3 => ([b"(", &key[..]].concat(), key),
        _ => ([b"[", &key[..]].concat(), key),
    }
}

/// Returns a start, the least key that the range may have, and the key that the server compares with the end.
fn start(random: &mut Xoshiro256PlusPlus, map: &Map) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    if random.random_range(0..3) > 0 {
        let (start, key) = bound(random);
        return (start, key.clone(), key);
    }
    let key = key(random);
    // Without a floor, the range begins at the lowest of all keys.
    let floor = map.range(..=key.clone()).next_back().map_or(Vec::new(), |(floor, _)| floor.clone());
    ([b"~", &key[..]].concat(), floor, key)
}

fn between(random: &mut Xoshiro256PlusPlus, map: &Map) -> Asked {
    let ((start, low, from), (end, high)) = (start(random, map), bound(random));
    let begins = |key: &[u8]| if start[0] == b'(' { key > low.as_slice() } else { key >= low.as_slice() };
    let ends = |key: &[u8]| if end[0] == b'(' { key >= high.as_slice() } else { key > high.as_slice() };
    let keys = map.keys().filter(|key| begins(key) && !ends(key)).cloned().collect();
    let is_reversed = from > high && end[0] != b'+';
    Asked { arguments: vec![start, end], keys, is_reversed }
}

fn prefix(random: &mut Xoshiro256PlusPlus, map: &Map) -> Asked {
    let key = key(random);
    let prefix = key[..random.random_range(0..=key.len())].to_vec();
    let keys = map.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
    Asked { arguments: vec![prefix], keys, is_reversed: false }
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Returns a page of keys, with their values if it shows pairs; another key may follow it. The page of a lease has
/// another part after it.
fn page(keys: &[Vec<u8>], map: &Map, is_pairs: bool, more: bool, is_leased: bool) -> Vec<u8> {
    let next = keys.last().filter(|_| more).map_or(b"$-1\r\n".to_vec(), |last| bulk(last));
    let entry = |key: &Vec<u8>| if is_pairs { [bulk(key), bulk(&map[key])].concat() } else { bulk(key) };
    let entries: Vec<u8> = keys.iter().flat_map(entry).collect();
    let count = keys.len() * if is_pairs { 2 } else { 1 };
    let parts = if is_leased { 3 } else { 2 };
    [format!("*{parts}\r\n").as_bytes(), &next, format!("*{count}\r\n").as_bytes(), &entries].concat()
}

/// Reads all pages of a range and compares each. With a lease, another connection changes keys after each page.
fn read_pages(
    connections: &mut [Resp; 2],
    random: &mut Xoshiro256PlusPlus,
    map: &Map,
    name: &[u8],
    mut asked: Asked,
    is_leased: bool,
) {
    let [resp, other] = connections;
    let (is_pairs, reverse): (bool, bool) = (random.random(), random.random());
    let limit = random.random_range(1..10);
    if reverse {
        asked.keys.reverse();
        asked.arguments.push(b"REV".to_vec());
    }
    if !is_pairs {
        asked.arguments.push(b"KEYS".to_vec());
    }
    asked.arguments.extend([b"LIMIT".to_vec(), limit.to_string().into_bytes()]);
    let mut rest = asked.keys.as_slice();
    let mut after: Option<&[u8]> = None;
    let mut lease = b"OPEN".to_vec();
    loop {
        let (shown, others) = rest.split_at(rest.len().min(limit));
        let mut words = vec![name];
        words.extend(asked.arguments.iter().map(Vec::as_slice));
        words.extend(after.iter().flat_map(|after| [&b"AFTER"[..], after]));
        if is_leased {
            words.extend([&b"LEASE"[..], &lease]);
        }
        resp.expect(command(&words), page(shown, map, is_pairs, !others.is_empty(), is_leased));
        if others.is_empty() {
            if is_leased {
                resp.expect_bytes("$-1\r\n");
            }
            return;
        }
        if is_leased {
            let number = resp.integer().to_string().into_bytes();
            assert!(lease == b"OPEN" || lease == number, "the number stays");
            lease = number;
            // Keys around the floor too; the reply is a number or a status.
            let key = key(random);
            match random.random_range(0..3) {
                0 => other.send(command(&[b"APPEND", &key, b"x"])),
                _ => other.send(command(&[b"DEL", &key])),
            }
            other.integer();
        }
        after = shown.last().map(Vec::as_slice);
        rest = others;
    }
}

#[test]
fn every_page_of_a_range_lies_within_it() {
    let server = server(2, 16 << 20);
    let mut connections = [Resp::connect(&server), Resp::connect(&server)];
    connections.iter_mut().for_each(|resp| resp.expect("SELECT 1\r\n", "+OK\r\n"));
    for seed in seeds() {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for round in 0..10_u8 {
            let mut map = Map::new();
            for _ in 0..random.random_range(1..80) {
                map.insert(key(&mut random), vec![b'0' + round; random.random_range(0..20)]);
            }
            fill(&mut connections[0], &map);
            for number in 0..200 {
                let is_prefix: bool = random.random();
                let asked = if is_prefix { prefix(&mut random, &map) } else { between(&mut random, &map) };
                let count_of: Vec<&[u8]> = asked.arguments.iter().map(Vec::as_slice).collect();
                let words: &[&[u8]] = if is_prefix { &[b"SKEP.COUNT", b"PREFIX"] } else { &[b"SKEP.COUNT"] };
                let count = command(&[words, &count_of].concat());
                let resp = &mut connections[0];
                if asked.is_reversed {
                    resp.expect(count, format!("-ERR {}\r\n", OperationError::RangeReversed));
                    continue;
                }
                resp.expect(count, format!(":{}\r\n", asked.keys.len()));
                let name: &[u8] = if is_prefix { b"SKEP.PREFIX" } else { b"SKEP.SCAN" };
                let is_leased = number % 4 == 0;
                read_pages(&mut connections, &mut random, &map, name, asked, is_leased);
                let resp = &mut connections[0];
                if is_leased {
                    resp.expect("FLUSHDB\r\n", "+OK\r\n");
                    fill(resp, &map);
                }
                let key = key(&mut random);
                let floor = map.range(..=key.clone()).next_back();
                let floor = floor.map(|(key, value)| [b"*2\r\n".to_vec(), bulk(key), bulk(value)].concat());
                resp.expect(command(&[b"SKEP.FLOOR", &key]), floor.unwrap_or(b"$-1\r\n".to_vec()));
            }
            map.keys().for_each(|key| connections[0].expect(command(&[b"DEL", key]), ":1\r\n"));
        }
    }
}

/// Puts all pairs.
fn fill(resp: &mut Resp, map: &Map) {
    map.iter().for_each(|(key, value)| resp.send(command(&[b"SET", key, value])));
    resp.expect_bytes("+OK\r\n".repeat(map.len()));
}
