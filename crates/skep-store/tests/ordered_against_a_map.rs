//! The ordered store against `BTreeMap`: random operations of one session, from a printed seed, and what always holds of
//! the tree after each phase. `SKEP_SEED` repeats a run.

use std::collections::BTreeMap;
use std::ops::Bound;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{KEY_SIZE_MAX, OperationError, PutCondition, Reply};
use skep_store::naive;
use skep_store::ordered::{End, LogBlock, OrderedSettings, OrderedStore, Range, Session, Start};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// What keys look like.
#[derive(Clone, Copy, Debug)]
enum Keys {
    /// 1 to 460 bytes of few different ones, so that keys are prefixes of each other.
    Nested,
    /// A long common beginning, then a number.
    Prefixed,
    /// Decimal numbers in text.
    Decimal,
    /// 16 random bytes.
    Random,
    /// 455 to 460 bytes that differ at their end: no boundary key fits.
    Longest,
}

/// How long values are.
#[derive(Clone, Copy, Debug)]
enum Values {
    Sixteen,
    /// 0 to 40 bytes.
    Short,
    /// About 469 bytes, the longest inside a node.
    Border,
    /// Most short, some of several frames.
    Mixed,
}

struct Case {
    name: &'static str,
    keys: Keys,
    key_count: u64,
    values: Values,
    operations: u64,
    memory: u64,
}

fn seeds() -> Vec<u64> {
    naive::seeds(&[1, 20_171_028])
}

struct Inputs {
    random: Xoshiro256PlusPlus,
    keys: Keys,
    key_count: u64,
    values: Values,
}

impl Inputs {
    fn key(&mut self) -> Vec<u8> {
        let number = self.random.random_range(0..self.key_count);
        // The same number is the same key.
        let mut own = Xoshiro256PlusPlus::seed_from_u64(number);
        match self.keys {
            Keys::Nested => {
                let size =
                    if own.random_range(0..4) == 0 { own.random_range(1..=460) } else { own.random_range(1..=12) };
                (0..size).map(|_| [0, 1, b'a', 255][own.random_range(0..4)]).collect()
            }
            Keys::Prefixed => {
                let mut key = vec![b'/'; 1 + (number % 3) as usize * 40];
                key.extend_from_slice(&number.to_be_bytes()[8 - own.random_range(3..=8_usize)..]);
                key
            }
            Keys::Decimal => format!("user{number}").into_bytes(),
            Keys::Random => [own.random::<[u8; 8]>(), own.random::<[u8; 8]>()].concat(),
            Keys::Longest => {
                let mut key = vec![7; own.random_range(449..=454)];
                key.extend_from_slice(&(number as u32).to_be_bytes());
                key.extend_from_slice(&[0; 6][..own.random_range(0..=2)]);
                key
            }
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let size = match self.values {
            Values::Sixteen => 16,
            Values::Short => self.random.random_range(0..=40),
            Values::Border => self.random.random_range(460..=480),
            Values::Mixed => match self.random.random_range(0..20) {
                0 => self.random.random_range(470..=30_000),
                1 => [469, 470, 8188, 8189, 16_376][self.random.random_range(0..5_usize)],
                2 => self.random.random_range(100..=468),
                _ => self.random.random_range(0..=20),
            },
        };
        let byte = self.random.random::<u8>();
        (0..size).map(|place| byte.wrapping_add((place % 251) as u8)).collect()
    }
}

fn run(case: &Case) {
    run_with(&OrderedSettings::new(case.memory), case);
}

fn run_with(settings: &OrderedSettings, case: &Case) {
    for seed in seeds() {
        println!("{}: seed {seed}", case.name);
        let store = OrderedStore::new(settings).unwrap();
        let mut session = store.session().unwrap();
        let mut map = Map::new();
        let mut inputs = Inputs {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            keys: case.keys,
            key_count: case.key_count,
            values: case.values,
        };
        let mut height = 0;
        // Growing, staying, shrinking, growing again.
        for (phase, puts) in [90, 50, 15, 70].into_iter().enumerate() {
            for operation in 0..case.operations / 4 {
                let context = || format!("{} seed {seed} phase {phase} operation {operation}", case.name);
                step(&mut session, &mut map, &mut inputs, puts, &context);
            }
            let checked = session.check();
            height = height.max(store.statistics().height);
            assert_eq!(checked.pairs, map.len() as u64);
            let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
            assert_eq!(checked.pair_bytes, bytes as u64);
            assert_eq!(all(&mut session), map.clone().into_iter().collect::<Pairs>());
            let keys: Vec<Vec<u8>> = (0..1000).map(|_| inputs.key()).collect();
            let mut expected = keys.iter().map(|key| map.get(key).map(Vec::as_slice));
            session.get_batch(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>(), |value| {
                assert_eq!(Some(value), expected.next(), "{} seed {seed} phase {phase}", case.name);
            });
            assert_eq!(expected.next(), None, "every key is answered");
            let figures = store.statistics();
            assert_eq!(figures.garbage_bytes, 0, "nothing is in flight");
            assert_eq!(figures.space.lids_used, checked.leaves + checked.interior_nodes, "LIDs are in the tree");
            println!("{checked:?} {figures:?}");
        }
        // Empty again: one leaf.
        for key in map.into_keys() {
            assert_eq!(session.delete(&key), Reply::Done);
        }
        let checked = session.check();
        assert_eq!((checked.pairs, checked.leaves, checked.interior_nodes), (0, 1, 0), "height was {height}");
    }
}

fn all(session: &mut Session<'_>) -> Pairs {
    scan(session, Range::ALL, false)
}

/// A scan, which shows the same whether its limit is known before or found when it is reached.
fn scan(session: &mut Session<'_>, range: Range<'_>, reverse: bool) -> Pairs {
    let [known, found] = [range, range.limit(usize::MAX)].map(|asked| {
        let mut pairs = Pairs::new();
        let visit = |key: &[u8], value: &[u8]| {
            pairs.push((key.to_vec(), value.to_vec()));
            asked.limit == range.limit || pairs.len() < range.limit
        };
        if reverse {
            session.scan_reverse(asked, visit);
        } else {
            session.scan(asked, visit);
        }
        pairs
    });
    assert!(known == found, "{range:?} {reverse}: {known:?} {found:?}");
    known
}

fn scan_batch(session: &mut Session<'_>, ranges: &[Range<'_>]) -> Vec<Pairs> {
    let mut all = vec![Pairs::new(); ranges.len()];
    session.scan_batch(ranges, |number, key, value| {
        all[number].push((key.to_vec(), value.to_vec()));
        true
    });
    all
}

/// What a put answers.
fn put(map: &mut Map, key: Vec<u8>, value: Vec<u8>, condition: PutCondition) -> Reply<'static> {
    match (condition, map.contains_key(&key)) {
        (PutCondition::IfAbsent, true) => Reply::Exists,
        (PutCondition::IfPresent, false) => Reply::NotFound,
        _ => {
            map.insert(key, value);
            Reply::Done
        }
    }
}

/// A batch of puts, some of them of one key, some of which are refused.
fn put_batch(
    session: &mut Session<'_>,
    map: &mut Map,
    inputs: &mut Inputs,
    condition: PutCondition,
    context: &dyn Fn() -> String,
) {
    let count = inputs.random.random_range(0..100);
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = (0..count).map(|_| (inputs.key(), inputs.value())).collect();
    for _ in 0..count / 4 {
        let place = inputs.random.random_range(0..count);
        pairs.push((pairs[place].0.clone(), inputs.value()));
    }
    if count > 50 {
        pairs.insert(20, (Vec::new(), vec![1]));
        pairs.insert(40, (vec![1; KEY_SIZE_MAX + 1], vec![1]));
    }
    let slices: Vec<(&[u8], &[u8])> = pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
    let mut replies = Vec::new();
    session.put_batch(&slices, condition, |reply| replies.push(reply));
    assert_eq!(replies.len(), pairs.len(), "{}", context());
    for ((key, value), reply) in pairs.into_iter().zip(replies) {
        if key.is_empty() || key.len() > KEY_SIZE_MAX {
            assert!(matches!(reply, Reply::Failed(_)), "{}", context());
        } else {
            assert_eq!(reply, put(map, key, value, condition), "{}", context());
        }
    }
}

fn step(session: &mut Session<'_>, map: &mut Map, inputs: &mut Inputs, puts: u32, context: &dyn Fn() -> String) {
    let key = inputs.key();
    match inputs.random.random_range(0..100) {
        0..40 => {
            let condition = match inputs.random.random_range(0..6) {
                0 => PutCondition::IfAbsent,
                1 => PutCondition::IfPresent,
                _ => PutCondition::Always,
            };
            if inputs.random.random_range(0..1000) < puts {
                put_batch(session, map, inputs, condition, context);
            } else if inputs.random.random_range(0..100) < puts {
                let value = inputs.value();
                let reply = session.put(&key, &value, condition);
                assert_eq!(reply, put(map, key, value, condition), "{}", context());
            } else {
                let expected = if map.remove(&key).is_some() { Reply::Done } else { Reply::NotFound };
                assert_eq!(session.delete(&key), expected, "{}", context());
            }
        }
        40..90 => {
            let mut value = vec![1];
            let found = session.get(&key, &mut value);
            assert_eq!(found.then_some(&value[1..]), map.get(&key).map(Vec::as_slice), "{}", context());
        }
        _ => {
            let other = inputs.key();
            let limit = inputs.random.random_range(1..60);
            let reverse = inputs.random.random_range(0..2) == 0;
            let (low, high) = if key < other { (&key, &other) } else { (&other, &key) };
            let floor = map.range::<[u8], _>((Bound::Unbounded, Bound::Included(low.as_slice()))).next_back();
            let (start, lower) = match inputs.random.random_range(0..4) {
                0 => (Start::First, Bound::Unbounded),
                1 => (Start::AtOrAbove(low), Bound::Included(low)),
                2 => (Start::Above(low), Bound::Excluded(low)),
                _ => (Start::Floor(low), floor.map_or(Bound::Unbounded, |(floor, _)| Bound::Included(floor))),
            };
            let (end, upper) = match inputs.random.random_range(0..4) {
                0 => (End::Last, Bound::Unbounded),
                1 => (End::Below(high), Bound::Excluded(high)),
                _ => (End::AtOrBelow(high), Bound::Included(high)),
            };
            if low == high && matches!((lower, upper), (Bound::Excluded(_), Bound::Excluded(_))) {
                // `BTreeMap` refuses this empty range.
                assert_eq!(scan(session, Range::new(start, end).limit(limit), reverse), Pairs::new(), "{}", context());
                return;
            }
            let range = map.range::<Vec<u8>, _>((lower, upper)).map(|(key, value)| (key.clone(), value.clone()));
            let expected: Pairs = if reverse { range.rev().take(limit).collect() } else { range.take(limit).collect() };
            let found = scan(session, Range::new(start, end).limit(limit), reverse);
            assert!(found == expected, "{} {start:?} {end:?} {reverse}: {found:?} {expected:?}", context());
            if limit > 20 || inputs.random.random_range(0..20) > 0 {
                return;
            }
            let ranges = [(start, end), (Start::First, end), (start, End::Last), (Start::AtOrAbove(high), end)];
            let ranges = ranges.iter().cycle().zip(0..limit);
            let ranges: Vec<Range<'_>> =
                ranges.map(|((start, end), place)| Range::new(*start, *end).limit(limit - place)).collect();
            let single: Vec<Pairs> = ranges.iter().map(|range| scan(session, *range, false)).collect();
            assert!(scan_batch(session, &ranges) == single, "{} {ranges:?} in a batch", context());
        }
    }
}

#[test]
fn tiny_trees() {
    let case =
        |name, key_count, keys, values| Case { name, keys, key_count, values, operations: 40_000, memory: 4 << 20 };
    run(&case("one key", 1, Keys::Random, Values::Sixteen));
    run(&case("three keys", 3, Keys::Nested, Values::Mixed));
    run(&case("one leaf", 40, Keys::Decimal, Values::Short));
    run(&case("a few leaves", 500, Keys::Random, Values::Short));
}

#[test]
fn keys_that_are_prefixes_of_each_other() {
    let case = |name, key_count, values| Case {
        name,
        keys: Keys::Nested,
        key_count,
        values,
        operations: 200_000,
        memory: 256 << 20,
    };
    run(&case("nested, short values", 20_000, Values::Short));
    run(&case("nested, values about 469 bytes", 5_000, Values::Border));
    run(&case("nested, values of all sizes", 5_000, Values::Mixed));
}

#[test]
fn keys_that_share_a_prefix() {
    let case =
        |name, keys, values| Case { name, keys, key_count: 50_000, values, operations: 400_000, memory: 512 << 20 };
    run(&case("prefixed", Keys::Prefixed, Values::Short));
    run(&case("decimal", Keys::Decimal, Values::Sixteen));
}

#[test]
fn the_longest_keys() {
    let case = |name, values| Case {
        name,
        keys: Keys::Longest,
        key_count: 5_000,
        values,
        operations: 100_000,
        memory: 256 << 20,
    };
    run(&case("longest, short values", Values::Short));
    run(&case("longest, values about 469 bytes", Values::Border));
}

#[test]
fn log_blocks_of_all_sizes_with_versions_and_without() {
    let sizes = [(LogBlock::SIZE_MIN, 16), (512, 0), (200, 16), (512, 3), (LogBlock::SIZE_MAX, 16)];
    for (size, entry_count_max) in sizes {
        for mvcc in [true, false] {
            println!("log block of {size} bytes and {entry_count_max} entries, mvcc {mvcc}");
            let log_block = LogBlock::new(size, entry_count_max).unwrap();
            let settings = OrderedSettings { log_block, mvcc, ..OrderedSettings::new(64 << 20) };
            let case =
                |name, keys, key_count, values| Case { name, keys, key_count, values, operations: 40_000, memory: 0 };
            run_with(&settings, &case("a few leaves", Keys::Random, 500, Values::Short));
            run_with(&settings, &case("nested, values of all sizes", Keys::Nested, 3_000, Values::Mixed));
            run_with(&settings, &case("longest", Keys::Longest, 1_000, Values::Border));
        }
    }
    let out_of_limits = [(LogBlock::SIZE_MIN - 1, 16), (LogBlock::SIZE_MAX + 1, 16), (512, 17)];
    assert!(out_of_limits.iter().all(|(size, count)| LogBlock::new(*size, *count).is_none()));
}

#[test]
fn hundreds_of_thousands_of_pairs() {
    run(&Case {
        name: "random",
        keys: Keys::Random,
        key_count: 600_000,
        values: Values::Sixteen,
        operations: 2_000_000,
        memory: 1 << 30,
    });
}

#[test]
fn values_are_overwritten_where_they_lie() {
    for seed in seeds() {
        println!("seed {seed}");
        for keys in [Keys::Random, Keys::Decimal, Keys::Nested] {
            let mut inputs = Inputs {
                random: Xoshiro256PlusPlus::seed_from_u64(seed),
                keys,
                key_count: 2_000,
                values: Values::Sixteen,
            };
            let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
            let mut session = store.session().unwrap();
            let mut map = Map::new();
            for round in 0..60_000_u32 {
                let key = inputs.key();
                // Of one size for each key as a rule, of some keys outside their node.
                let size = match (key[key.len() - 1] % 32, inputs.random.random_range(0..500)) {
                    (0, _) => 600,
                    (1, _) => 7,
                    (_, 0) => 3,
                    _ => 16,
                };
                let value: Vec<u8> = round.to_le_bytes().iter().copied().cycle().take(size).collect();
                assert_eq!(session.put(&key, &value, PutCondition::Always), Reply::Done);
                map.insert(key, value);
            }
            assert!(all(&mut session) == map.clone().into_iter().collect::<Pairs>(), "seed {seed}");
            session.check();
        }
    }
}

/// Every place where a range can begin or end in a few leaves, while their logs fill with new pairs, other values and
/// deletions: within a run of items, beside a log entry, at a boundary key, at the border of a segment or a leaf.
#[test]
fn ranges_begin_and_end_anywhere() {
    for seed in seeds() {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
        let mut session = store.session().unwrap();
        let mut map = Map::new();
        // Even numbers are there at first. Values have one size until the second half of the rounds.
        let key_of = |number: u64| [number.to_be_bytes(), [7; 8]].concat();
        for number in 0..250 {
            let key = key_of(2 * number);
            assert_eq!(session.put(&key, &key, PutCondition::Always), Reply::Done);
            map.insert(key.clone(), key);
        }
        for round in 0..300_u32 {
            let key = key_of(random.random_range(0..500));
            if random.random_range(0..3) == 0 {
                let expected = if map.remove(&key).is_some() { Reply::Done } else { Reply::NotFound };
                assert_eq!(session.delete(&key), expected);
            } else {
                let size = if round < 150 || random.random_range(0..4) > 0 { 16 } else { [3, 600][round as usize % 2] };
                let value: Vec<u8> = round.to_le_bytes().iter().copied().cycle().take(size).collect();
                assert_eq!(session.put(&key, &value, PutCondition::Always), Reply::Done);
                map.insert(key, value);
            }
            for low in (u64::from(round) % 3..500).step_by(3) {
                let high = low + random.random_range(0..40);
                let (low, high) = (key_of(low), key_of(high));
                let limit = random.random_range(1..30);
                let floor = map.range(..=low.clone()).next_back();
                let (start, lower) = match random.random_range(0..3) {
                    0 => (Start::AtOrAbove(&low), Bound::Included(&low)),
                    1 => (Start::Above(&low), Bound::Excluded(&low)),
                    _ => (Start::Floor(&low), floor.map_or(Bound::Unbounded, |(floor, _)| Bound::Included(floor))),
                };
                let (end, last) = match random.random_range(0..3) {
                    0 => (End::Last, None),
                    1 => (End::AtOrBelow(&high), Some((&high, true))),
                    _ => (End::Below(&high), Some((&high, false))),
                };
                let is_within = |key: &Vec<u8>| last.is_none_or(|(last, too)| key < last || (too && key == last));
                let range = map.range::<Vec<u8>, _>((lower, Bound::Unbounded)).take_while(|(key, _)| is_within(key));
                let expected: Pairs = range.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect();
                let context = format!("seed {seed} round {round}: {start:?} {end:?} {limit}");
                let range = Range::new(start, end).limit(limit);
                assert!(scan(&mut session, range, false) == expected, "{context}");
                assert!(scan_batch(&mut session, &[range; 2])[1] == expected, "{context} in a batch");
            }
        }
        session.check();
    }
}

#[test]
fn full_memory_is_an_answer_and_changes_nothing() {
    let store = OrderedStore::new(&OrderedSettings::new(1 << 20)).unwrap();
    let mut session = store.session().unwrap();
    let mut map = Map::new();
    let mut full = 0;
    for seed in seeds() {
        println!("seed {seed}");
        let mut inputs = Inputs {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            keys: Keys::Nested,
            key_count: 100_000,
            values: Values::Mixed,
        };
        for round in 0..10_000 {
            let pairs: Vec<(Vec<u8>, Vec<u8>)> = (0..1 + round % 2).map(|_| (inputs.key(), inputs.value())).collect();
            let slices: Vec<(&[u8], &[u8])> = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            let mut replies = Vec::new();
            match slices[..] {
                [(key, value)] => replies.push(session.put(key, value, PutCondition::Always)),
                _ => session.put_batch(&slices, PutCondition::Always, |reply| replies.push(reply)),
            }
            for ((key, value), reply) in pairs.into_iter().zip(replies) {
                match reply {
                    Reply::Done => drop(map.insert(key, value)),
                    Reply::Failed(OperationError::NodesFull) => full += 1,
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            if inputs.random.random_range(0..4) == 0 {
                let key = inputs.key();
                match session.delete(&key) {
                    Reply::Done => assert!(map.remove(&key).is_some()),
                    Reply::NotFound => assert!(!map.contains_key(&key)),
                    Reply::Failed(OperationError::NodesFull) => {}
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
        }
        assert!(all(&mut session) == map.clone().into_iter().collect::<Pairs>(), "seed {seed}");
        session.check();
    }
    assert!(full > 1000, "memory was full {full} times");
}

#[test]
fn keys_and_values_out_of_limits() {
    let store = OrderedStore::new(&OrderedSettings::new(4 << 20)).unwrap();
    let mut session = store.session().unwrap();
    let put = |session: &mut Session<'_>, key: &[u8], value: &[u8]| session.put(key, value, PutCondition::Always);
    assert_eq!(put(&mut session, b"", b""), Reply::Failed(OperationError::KeyEmpty));
    assert_eq!(put(&mut session, &[0; 461], b""), Reply::Failed(OperationError::KeyTooLong));
    assert_eq!(put(&mut session, b"k", &vec![0; (1 << 20) + 1]), Reply::Failed(OperationError::ValueTooLong));
    assert_eq!(session.delete(&[0; 461]), Reply::Failed(OperationError::KeyTooLong));
    assert_eq!(put(&mut session, &[0; 460], &vec![3; 1 << 20]), Reply::Done);
    let mut value = Vec::new();
    assert!(session.get(&[0; 460], &mut value) && value == vec![3; 1 << 20]);
    assert!(!session.get(&[0; 461], &mut value));
    assert!(!session.get(b"", &mut value));
}
