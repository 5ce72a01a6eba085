//! Ranges over RESP against a map: random bounds, prefixes, directions and page sizes; each page, byte for byte.
//! `SKEP_SEED` repeats a run.

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

fn between(random: &mut Xoshiro256PlusPlus, map: &Map) -> Asked {
    let ((start, low), (end, high)) = (bound(random), bound(random));
    let begins = |key: &[u8]| if start[0] == b'(' { key > low.as_slice() } else { key >= low.as_slice() };
    let ends = |key: &[u8]| if end[0] == b'(' { key >= high.as_slice() } else { key > high.as_slice() };
    let keys = map.keys().filter(|key| begins(key) && !ends(key)).cloned().collect();
    let is_reversed = low > high && end[0] != b'+';
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

/// Returns a page of keys, with their values if it shows pairs; another key may follow it.
fn page(keys: &[Vec<u8>], map: &Map, is_pairs: bool, more: bool) -> Vec<u8> {
    let next = keys.last().filter(|_| more).map_or(b"$-1\r\n".to_vec(), |last| bulk(last));
    let entry = |key: &Vec<u8>| if is_pairs { [bulk(key), bulk(&map[key])].concat() } else { bulk(key) };
    let entries: Vec<u8> = keys.iter().flat_map(entry).collect();
    let count = keys.len() * if is_pairs { 2 } else { 1 };
    [b"*2\r\n", next.as_slice(), format!("*{count}\r\n").as_bytes(), &entries].concat()
}

/// Reads all pages of a range and compares each.
fn read_pages(resp: &mut Resp, random: &mut Xoshiro256PlusPlus, map: &Map, name: &[u8], mut asked: Asked) {
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
    loop {
        let (shown, others) = rest.split_at(rest.len().min(limit));
        let mut words = vec![name];
        words.extend(asked.arguments.iter().map(Vec::as_slice));
        words.extend(after.iter().flat_map(|after| [&b"AFTER"[..], after]));
        resp.expect(command(&words), page(shown, map, is_pairs, !others.is_empty()));
        if others.is_empty() {
            return;
        }
        after = shown.last().map(Vec::as_slice);
        rest = others;
    }
}

#[test]
fn every_page_of_a_range_lies_within_it() {
    let server = server(2, 16 << 20);
    let mut resp = Resp::connect(&server);
    resp.expect("SELECT 1\r\n", "+OK\r\n");
    for seed in seeds() {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for round in 0..10_u8 {
            let mut map = Map::new();
            for _ in 0..random.random_range(1..80) {
                map.insert(key(&mut random), vec![b'0' + round; random.random_range(0..20)]);
            }
            map.iter().for_each(|(key, value)| resp.expect(command(&[b"SET", key, value]), "+OK\r\n"));
            for _ in 0..200 {
                let is_prefix: bool = random.random();
                let asked = if is_prefix { prefix(&mut random, &map) } else { between(&mut random, &map) };
                let count_of: Vec<&[u8]> = asked.arguments.iter().map(Vec::as_slice).collect();
                let words: &[&[u8]] = if is_prefix { &[b"SKEP.COUNT", b"PREFIX"] } else { &[b"SKEP.COUNT"] };
                let count = command(&[words, &count_of].concat());
                if asked.is_reversed {
                    resp.expect(count, format!("-ERR {}\r\n", OperationError::RangeReversed));
                    continue;
                }
                resp.expect(count, format!(":{}\r\n", asked.keys.len()));
                let name: &[u8] = if is_prefix { b"SKEP.PREFIX" } else { b"SKEP.SCAN" };
                read_pages(&mut resp, &mut random, &map, name, asked);
                let key = key(&mut random);
                let floor = map.range(..=key.clone()).next_back();
                let floor = floor.map(|(key, value)| [b"*2\r\n".to_vec(), bulk(key), bulk(value)].concat());
                resp.expect(command(&[b"SKEP.FLOOR", &key]), floor.unwrap_or(b"$-1\r\n".to_vec()));
            }
            map.keys().for_each(|key| resp.expect(command(&[b"DEL", key]), ":1\r\n"));
        }
    }
}
