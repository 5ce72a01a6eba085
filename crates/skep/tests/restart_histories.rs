//! Random histories of a store that is full nearly all the time, and is opened again and again with the same settings: it
//! is never refused, and has the pairs of a naive model.
//!
//! A history has a kind of pairs and phases, between which the store is opened again, sometimes after a snapshot. The sizes
//! of values drift from phase to phase, so that slabs of one class are needed where those of others were freed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep::{
    Condition, ConditionKind, DurableStore, Expiry, ExpiryChange, Operation, PutCondition, Replies, Reply, Request,
    StoreSettings, StringWrite,
};
use skep_store::naive::seeds;

const MEMORY: u64 = 768 << 10;
const PHASES: u32 = 5;
const BATCH: usize = 64;
/// Refused writes of a phase from which on it ends. Until then, those succeed for which there is room by chance.
const REFUSED_MAX: u32 = 1500;

/// Milliseconds by which the clock of the store is behind, at most.
const CLOCK: u64 = 100;

/// The pairs of a history: the average that the store is configured for, and the bounds of the values' sizes.
const KINDS: [(usize, usize, usize); 5] =
    [(10, 1, 4), (20, 1, 36), (64, 8, 120), (300, 30, 1000), (50_000, 2000, 150_000)];

/// A value and its expiry, if it has one.
type Pair = (Vec<u8>, Option<Expiry>);

/// A write of a batch: a pair, or a delete.
type Write = (Vec<u8>, Option<Pair>);

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Returns a key. Those of later numbers are greater.
fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes()[3..].to_vec()
}

struct History {
    store: Option<DurableStore>,
    settings: StoreSettings,
    model: BTreeMap<Vec<u8>, Pair>,
    replies: Replies,
    random: Xoshiro256PlusPlus,
    bounds: (usize, usize),
    next_key: u64,
    refused: u32,
}

impl History {
    fn new(path: &Path, seed: u64) -> History {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (average, least, most) = KINDS[seed as usize % KINDS.len()];
        let settings = StoreSettings::for_kv_size(MEMORY, average, random.random());
        let store = Some(DurableStore::open(path, &settings).unwrap());
        let replies = Replies::with_budget(8 << 20);
        History {
            store,
            settings,
            model: BTreeMap::new(),
            replies,
            random,
            bounds: (least, most),
            next_key: 0,
            refused: 0,
        }
    }

    fn new_pair(&mut self, phase: u32) -> Pair {
        let (least, most) = self.bounds;
        // A third of the range, which moves up and down again.
        let part = (most - least) / 3;
        let low = least + part * [0, 1, 2, 1, 0][phase as usize % 5];
        let size = self.random.random_range(low..=low + part);
        let mut value = vec![self.random.random::<u8>(); size];
        value[0] = self.random.random();
        let expiry = match self.random.random_range(0..20) {
            0 => Expiry::at(now().cast_signed() + self.random.random_range(1..200)),
            1..4 => Expiry::at(now().cast_signed() + 3_600_000),
            _ => None,
        };
        (value, expiry)
    }

    fn any_key(&mut self) -> Option<Vec<u8>> {
        let from = key(self.random.random_range(0..=self.next_key));
        self.model.range(from..).next().or_else(|| self.model.iter().next()).map(|(key, _)| key.clone())
    }

    fn write(&mut self, phase: u32) -> Write {
        let choice = self.random.random_range(0..16);
        let old = if choice < 6 { self.any_key() } else { None };
        match old {
            Some(key) if choice < 4 => (key, None),
            Some(key) => (key, Some(self.new_pair(phase))),
            None => {
                self.next_key += 1;
                (key(self.next_key), Some(self.new_pair(phase)))
            }
        }
    }

    /// Executes writes, and notes those that took place.
    fn execute(&mut self, mut writes: Vec<Write>) {
        while !writes.is_empty() {
            let requests: Vec<Request<'_>> = writes.iter().map(|(key, pair)| request(key, pair.as_ref())).collect();
            self.store.as_mut().unwrap().execute(&requests, &mut self.replies).unwrap();
            let (mut index, replies) = (0, &self.replies);
            writes.retain(|(key, pair)| {
                index += 1;
                match (replies.get(index - 1), pair) {
                    (Reply::Deferred, _) => return true,
                    (Reply::Done, Some(pair)) => _ = self.model.insert(key.clone(), pair.clone()),
                    (Reply::Done | Reply::NotFound, None) => _ = self.model.remove(key),
                    (Reply::Failed(error), Some(_)) if error.is_out_of_memory() => self.refused += 1,
                    (reply, _) => panic!("{reply:?}"),
                }
                false
            });
        }
    }

    fn phase(&mut self, phase: u32) {
        self.refused = 0;
        let snapshot_at = self.random.random_range(0..REFUSED_MAX);
        let mut has_snapshot: bool = self.random.random();
        if phase > 0 && self.random.random_bool(0.5) {
            // Room for pairs of other sizes.
            let oldest = self.model.keys().take(self.model.len() / 2).cloned();
            let deletes: Vec<Write> = oldest.map(|key| (key, None)).collect();
            deletes.chunks(BATCH).for_each(|deletes| self.execute(deletes.to_vec()));
        }
        while self.refused < REFUSED_MAX {
            let writes = (0..BATCH).map(|_| self.write(phase)).collect();
            self.execute(writes);
            if !has_snapshot && self.refused >= snapshot_at {
                self.store.as_mut().unwrap().snapshot().unwrap();
                has_snapshot = true;
            }
        }
    }

    /// Opens the store again, and compares all pairs.
    fn restart(&mut self, path: &Path, message: &str) {
        self.store = None;
        let store = DurableStore::open(path, &self.settings);
        self.store = Some(store.unwrap_or_else(|error| panic!("{message}: {error}")));
        let opened = now();
        let keys: Vec<Vec<u8>> = self.model.keys().cloned().collect();
        for key in keys {
            let request = Request { key: &key, operation: Operation::Get };
            self.store.as_mut().unwrap().execute(&[request], &mut self.replies).unwrap();
            let (value, expiry) = &self.model[&key];
            match self.replies.get(0) {
                Reply::Value(found) => assert!(found == value, "{message}"),
                Reply::NotFound => {
                    assert!(expiry.is_some_and(|expiry| expiry.has_passed(now())), "{message}");
                    self.model.remove(&key);
                }
                reply => panic!("{message}: {reply:?}"),
            }
            let may_be_gone = expiry_of(&self.model, &key).is_none_or(|expiry| !expiry.has_passed(opened - CLOCK));
            assert!(may_be_gone, "{message}: a key that had expired is back");
        }
        let lasting = self.model.values().filter(|(_, expiry)| expiry.is_none()).count() as u64;
        assert!(self.store.as_ref().unwrap().statistics().pairs >= lasting, "{message}");
    }
}

fn expiry_of(model: &BTreeMap<Vec<u8>, Pair>, key: &[u8]) -> Option<Expiry> {
    model.get(key).and_then(|(_, expiry)| *expiry)
}

fn request<'r>(key: &'r [u8], pair: Option<&'r Pair>) -> Request<'r> {
    let operation = match pair {
        None => Operation::Delete,
        Some((value, None)) => Operation::Put { value, condition: PutCondition::Always },
        Some((value, Some(expiry))) => Operation::StringWrite(StringWrite::Set {
            value,
            condition: Condition { kind: ConditionKind::Always, operand: &[] },
            expiry: ExpiryChange::set(*expiry),
            return_old: false,
        }),
    };
    Request { key, operation }
}

#[test]
fn a_full_store_opens_again_after_any_history() {
    let long = std::env::var("SKEP_LONG").map_or(1, |factor| factor.parse().unwrap());
    for seed in seeds(&(0..10 * long).collect::<Vec<u64>>()) {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let mut history = History::new(&path, seed);
        for phase in 0..PHASES {
            history.phase(phase);
            for again in 0..=phase % 2 {
                history.restart(&path, &format!("seed {seed}, phase {phase}, start {again}"));
            }
            // Keys with a short time expire.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
