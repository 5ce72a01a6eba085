//! Tests ranges of every kind against a map, by both clients. Starts, floors, prefixes, ends, limits and directions are
//! random, and a page holds many, few or one of the pairs. `SKEP_SEED` repeats a run.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_client::{AsyncClient, Client, ClientError, KeyRange, ORDERED_SPACE, OperationError, Pair};
use skep_server::{Server, ServerSettings};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The start of a range.
#[derive(Clone, Debug)]
enum From {
    Lowest,
    AtOrAbove(Vec<u8>),
    Above(Vec<u8>),
    Floor(Vec<u8>),
}

/// The end of a range.
#[derive(Clone, Debug)]
enum To {
    Greatest,
    AtOrBelow(Vec<u8>),
    Below(Vec<u8>),
    Prefix(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Asked {
    from: From,
    to: To,
    reverse: bool,
    limit: Option<u64>,
}

impl Asked {
    fn random(random: &mut Xoshiro256PlusPlus) -> Self {
        let from = match random.random_range(0..5) {
            0 => From::Lowest,
            1 => From::AtOrAbove(key(random)),
            2 => From::Above(key(random)),
            _ => From::Floor(key(random)),
        };
        let to = match random.random_range(0..6) {
            0 => To::Greatest,
            1 => To::AtOrBelow(key(random)),
            2 => To::Below(key(random)),
            _ => {
                let key = key(random);
                To::Prefix(key[..random.random_range(0..=key.len())].to_vec())
            }
        };
        let limit = (random.random_range(0..4) == 0).then(|| random.random_range(0..12));
        Asked { from, to, reverse: random.random(), limit }
    }

    fn as_range(&self) -> KeyRange<'_> {
        let range = match &self.to {
            To::Greatest => KeyRange::all(),
            To::AtOrBelow(key) => KeyRange::all().at_or_below(key),
            To::Below(key) => KeyRange::all().below(key),
            To::Prefix(prefix) => KeyRange::prefix(prefix),
        };
        let range = match &self.from {
            From::Lowest => range,
            From::AtOrAbove(key) => range.at_or_above(key),
            From::Above(key) => range.above(key),
            From::Floor(key) => range.from_floor(key),
        };
        let range = if self.reverse { range.reverse() } else { range };
        self.limit.map_or(range, |limit| range.limit(limit))
    }

    /// Returns true if the range cannot contain any key, so that it is refused.
    fn is_reversed(&self) -> bool {
        let (From::AtOrAbove(start) | From::Above(start) | From::Floor(start)) = &self.from else { return false };
        match &self.to {
            To::Greatest => false,
            To::AtOrBelow(end) | To::Below(end) => start > end,
            To::Prefix(prefix) => start > prefix && !start.starts_with(prefix),
        }
    }

    /// Returns the pairs of the range in the map.
    fn pairs(&self, map: &Map) -> Vec<Pair> {
        let floor = |start: &[u8]| map.keys().rfind(|key| key.as_slice() <= start).cloned().unwrap_or_default();
        let begins = |key: &[u8]| match (&self.from, &self.to) {
            (From::Lowest, _) => true,
            (From::AtOrAbove(start), _) | (From::Floor(start), To::Prefix(_)) => key >= start.as_slice(),
            (From::Above(start), _) => key > start.as_slice(),
            (From::Floor(start), _) => key >= floor(start).as_slice(),
        };
        let ends = |key: &[u8]| match &self.to {
            To::Greatest => false,
            To::AtOrBelow(end) => key > end.as_slice(),
            To::Below(end) => key >= end.as_slice(),
            To::Prefix(prefix) => !key.starts_with(prefix),
        };
        let is_within = |(key, _): &(&Vec<u8>, &Vec<u8>)| begins(key) && !ends(key);
        let mut pairs: Vec<Pair> =
            map.iter().filter(is_within).map(|(key, value)| (key.clone(), value.clone())).collect();
        if self.reverse {
            pairs.reverse();
        }
        pairs.truncate(self.limit.map_or(usize::MAX, |limit| limit as usize));
        pairs
    }
}

/// Draws a key of one to five bytes, each one of three. Many keys are prefixes of others, and a third may be the
/// greatest.
fn key(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    (0..random.random_range(1..=5)).map(|_| [b'a', b'b', 0xff][random.random_range(0..3)]).collect()
}

fn seeds() -> Vec<u64> {
    match std::env::var("SKEP_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKEP_SEED is a number")],
        Err(_) => vec![1, 2, 3],
    }
}

/// Fails if the scan and the map differ. Only a reversed range may be refused.
#[track_caller]
fn check<T: PartialEq>(found: Result<T, ClientError>, expected: &T, asked: &Asked, seed: u64) {
    match found {
        Ok(found) => assert!(found == *expected, "SKEP_SEED={seed}: {asked:?} shows other pairs than the map has"),
        Err(ClientError::Operation(OperationError::RangeReversed)) if asked.is_reversed() => {}
        Err(error) => panic!("SKEP_SEED={seed}: {asked:?}: {error:?}"),
    }
}

#[test]
fn every_page_of_a_range_is_within_it() {
    let native = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings { native, resp: None, memory: 1 << 26, pin_threads: false, ..Default::default() };
    let server = Server::start(&settings).unwrap();
    let mut blocking = Client::connect(server.native_address(), ORDERED_SPACE).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut asynchronous = runtime.block_on(AsyncClient::connect(server.native_address(), ORDERED_SPACE)).unwrap();
    for seed in seeds() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for round in 0..8 {
            let mut map = Map::new();
            for _ in 0..random.random_range(1..80) {
                // A page of 64 KiB holds one pair, three or many.
                let size = [10, 10, 20_000, 40_000][random.random_range(0..4)];
                map.insert(key(&mut random), vec![round; size]);
            }
            map.iter().for_each(|(key, value)| blocking.put(key, value).unwrap());
            for _ in 0..150 {
                let asked = Asked::random(&mut random);
                let (range, pairs) = (asked.as_range(), asked.pairs(&map));
                let keys: Vec<Vec<u8>> = pairs.iter().map(|(key, _)| key.clone()).collect();
                check(blocking.scan_keys(range), &keys, &asked, seed);
                check(runtime.block_on(asynchronous.scan_keys(range)), &keys, &asked, seed);
                check(blocking.count(range), &(pairs.len() as u64), &asked, seed);
                check(runtime.block_on(asynchronous.count(range)), &(pairs.len() as u64), &asked, seed);
                check(runtime.block_on(asynchronous.scan(range)), &pairs, &asked, seed);
                check(blocking.scan(range), &pairs, &asked, seed);
            }
            for key in map.into_keys() {
                assert!(blocking.delete(&key).unwrap());
            }
        }
    }
}

/// Checks a former error: the scan ended with the floor of the start, which does not have the prefix.
#[test]
fn a_prefix_bounds_a_reverse_scan_from_a_floor_on_every_page() {
    let native = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings { native, resp: None, memory: 1 << 26, pin_threads: false, ..Default::default() };
    let server = Server::start(&settings).unwrap();
    let mut client = Client::connect(server.native_address(), ORDERED_SPACE).unwrap();
    client.put(b"apple", b"no user").unwrap();
    let users: Vec<Vec<u8>> = (5..10).rev().map(|number| format!("user:{number}").into_bytes()).collect();
    users.iter().for_each(|key| client.put(key, &[b'v'; 40_000]).unwrap());
    // A key above the prefix, and below the first key that has it.
    let range = KeyRange::prefix(b"user:").from_floor(b"user:4").reverse();
    let found: Vec<Vec<u8>> = client.scan(range).unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(found, users);
}
