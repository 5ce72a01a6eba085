//! The pairs that a space must have, and random changes of them that keep its memory nearly full.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_client::{
    Condition, ConditionKind, Expiry, ExpiryChange, Operation, OperationError, Reply, Request, StringWrite,
};

/// Bytes of values in a batch, and changes in it.
const BATCH_SIZE_MAX: usize = 1 << 20;
const BATCH_COUNT_MAX: usize = 256;
/// Large values of a space: their numbers begin here.
const LARGE: u64 = 1 << 31;
const LARGE_COUNT: u64 = 12;
/// Removed keys that are looked for after a restart.
const REMOVED_MAX: usize = 1000;
/// Keys after which the sizes of a drift begin again.
const DRIFT_PERIOD: u64 = 60_000;

/// The way in which the pairs of a space change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// New keys of small values, in the order of their names or not. The oldest ones are deleted when there is no room.
    Window,
    /// The same with sizes that grow slowly, from 4 to 400 bytes, and begin again.
    Drift,
    /// Values of random sizes replace others.
    Churn,
    /// Keys that expire soon, later, or never.
    Expire,
    /// Values of up to a mebibyte replace others.
    Large,
    /// A tenth of the keys is deleted.
    Shrink,
}

const LOADS: [Load; 8] =
    [Load::Window, Load::Window, Load::Drift, Load::Drift, Load::Churn, Load::Expire, Load::Large, Load::Shrink];

/// A pair that was acknowledged.
struct Pair {
    /// The seed of the value.
    version: u64,
    size: usize,
    /// From this time on it is missing.
    ends: Option<Instant>,
}

/// A change of one key.
pub(crate) struct Change {
    number: u64,
    key: Vec<u8>,
    /// `None`: the key is deleted.
    value: Option<Vec<u8>>,
    version: u64,
    expiry: ExpiryChange,
    ends: Option<Instant>,
}

/// A space, and what it must have.
pub(crate) struct Space {
    pub(crate) number: u16,
    /// Keys are named in the order of their numbers.
    ascends: bool,
    pairs: BTreeMap<u64, Pair>,
    removed: VecDeque<u64>,
    /// The number of the next new key.
    next: u64,
    version: u64,
    load: Load,
    /// A change of the last batch was refused for lack of memory.
    is_full: bool,
    /// Changes that were refused for lack of memory.
    pub(crate) refused: u64,
    random: Xoshiro256PlusPlus,
}

impl Change {
    /// Returns the request of the change.
    pub(crate) fn request(&self) -> Request<'_> {
        let operation = match &self.value {
            Some(value) => Operation::StringWrite(StringWrite::Set {
                value,
                condition: Condition::new(ConditionKind::Always),
                expiry: self.expiry,
                return_old: false,
            }),
            None => Operation::Delete,
        };
        Request { key: &self.key, operation }
    }
}

impl Space {
    pub(crate) fn new(number: u16, seed: u64) -> Space {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(number));
        Space {
            number,
            ascends: random.random(),
            pairs: BTreeMap::new(),
            removed: VecDeque::new(),
            next: 0,
            version: 0,
            load: Load::Window,
            is_full: false,
            refused: 0,
            random,
        }
    }

    /// Chooses the next load.
    pub(crate) fn choose(&mut self) -> Load {
        self.load = LOADS[self.random.random_range(0..LOADS.len())];
        self.load
    }

    /// Returns the number of keys that it must have.
    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Returns true if changes were refused for lack of memory.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    fn key(&self, number: u64) -> Vec<u8> {
        // Odd, so that different numbers have different names.
        let name = if self.ascends { number as u32 } else { (number as u32).wrapping_mul(0x9e37_79b1) };
        format!("{name:08x}").into_bytes()
    }

    fn put(&mut self, number: u64, size: usize) -> Change {
        self.version += 1;
        let value = Some(value(self.version, size));
        Change { number, key: self.key(number), value, version: self.version, expiry: ExpiryChange::CLEAR, ends: None }
    }

    fn put_for(&mut self, number: u64, size: usize, time: Duration) -> Change {
        let expiry = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970") + time;
        let expiry = Expiry::at(expiry.as_millis() as i64).expect("it is soon");
        Change { expiry: ExpiryChange::set(expiry), ends: Some(Instant::now() + time), ..self.put(number, size) }
    }

    fn delete(&self, number: u64) -> Change {
        let key = self.key(number);
        Change { number, key, value: None, version: 0, expiry: ExpiryChange::CLEAR, ends: None }
    }

    /// Returns the number of a random key that exists.
    fn any(&mut self) -> Option<u64> {
        let from = self.random.random_range(0..=self.next);
        let found = self.pairs.range(from..LARGE).next().or_else(|| self.pairs.iter().next());
        found.map(|(number, _)| *number)
    }

    /// Appends the next changes, which are as large as a batch may be. After a batch that found no room, some delete.
    pub(crate) fn batch(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.is_full {
            let count = self.random.random_range(1..BATCH_COUNT_MAX);
            match self.load {
                Load::Churn | Load::Expire | Load::Shrink => {
                    let numbers: Vec<u64> = (0..=count / 4).filter_map(|_| self.any()).collect();
                    changes.extend(numbers.into_iter().map(|number| self.delete(number)));
                }
                Load::Large => {
                    let number = LARGE + self.random.random_range(0..LARGE_COUNT);
                    changes.push(self.delete(number));
                }
                Load::Window | Load::Drift => {
                    let oldest: Vec<u64> = self.pairs.keys().take(count).copied().collect();
                    changes.extend(oldest.into_iter().map(|number| self.delete(number)));
                }
            }
        }
        let mut size = 0;
        while size < BATCH_SIZE_MAX && changes.len() < BATCH_COUNT_MAX {
            let change = self.change();
            size += change.value.as_ref().map_or(0, Vec::len);
            changes.push(change);
        }
        changes
    }

    fn change(&mut self) -> Change {
        let (new, roll) = (self.next, self.random.random_range(0..20));
        match self.load {
            Load::Window => {
                self.next += 1;
                self.put(new, 4 + new as usize % 60)
            }
            Load::Drift => {
                self.next += 1;
                self.put(new, 4 + (new % DRIFT_PERIOD * 400 / DRIFT_PERIOD) as usize)
            }
            Load::Churn => {
                let number = self.any().unwrap_or(0);
                let size_max = if roll == 0 { 4000 } else { 600 };
                let size = self.random.random_range(0..size_max);
                self.put(number, size)
            }
            Load::Expire => {
                self.next += 1;
                let size = self.random.random_range(4..200);
                match roll {
                    0..12 => {
                        let time = Duration::from_millis(self.random.random_range(10..300));
                        self.put_for(new, size, time)
                    }
                    12..15 => self.put_for(new, size, Duration::from_hours(1)),
                    15..18 => {
                        let number = self.any().unwrap_or(0);
                        self.put(number, size)
                    }
                    _ => self.put(new, size),
                }
            }
            Load::Large => {
                let number = LARGE + self.random.random_range(0..LARGE_COUNT);
                let size = if roll < 4 { 1 << 20 } else { self.random.random_range(500..400_000) };
                self.put(number, size)
            }
            Load::Shrink => {
                let number = self.any().unwrap_or(0);
                self.delete(number)
            }
        }
    }

    /// Notes the replies to a batch.
    pub(crate) fn acknowledge(&mut self, changes: &[Change], replies: &[Result<(), OperationError>]) {
        assert_eq!(changes.len(), replies.len());
        self.is_full = false;
        for (change, reply) in changes.iter().zip(replies) {
            match (reply, &change.value) {
                (Ok(()), Some(value)) => {
                    let Change { version, ends, .. } = *change;
                    self.pairs.insert(change.number, Pair { version, size: value.len(), ends });
                }
                (Ok(()), None) => self.remove(change.number),
                (Err(error), value) => {
                    assert!(error.is_out_of_memory() && value.is_some(), "{error}");
                    self.is_full = true;
                    self.refused += 1;
                }
            }
        }
    }

    fn remove(&mut self, number: u64) {
        if self.pairs.remove(&number).is_some() {
            self.removed.push_back(number);
            if self.removed.len() > REMOVED_MAX {
                self.removed.pop_front();
            }
        }
    }

    /// Waits until the keys that expire soon are missing, and forgets them.
    pub(crate) fn expire(&mut self) {
        let soon = Instant::now() + Duration::from_secs(60);
        let short = |pair: &Pair| pair.ends.filter(|ends| *ends < soon);
        if let Some(last) = self.pairs.values().filter_map(short).max() {
            std::thread::sleep(last.saturating_duration_since(Instant::now()) + Duration::from_millis(100));
        }
        let expired: Vec<u64> =
            self.pairs.iter().filter(|(_, pair)| short(pair).is_some()).map(|(number, _)| *number).collect();
        expired.into_iter().for_each(|number| self.remove(number));
    }

    /// Returns the keys that exist or existed, in batches of bounded size.
    pub(crate) fn keys(&self) -> Vec<Vec<(u64, Vec<u8>)>> {
        let all = self.pairs.iter().map(|(number, pair)| (*number, pair.size));
        let removed = self.removed.iter().map(|number| (*number, 0));
        let mut batches = vec![Vec::new()];
        let mut size = 0;
        for (number, value_size) in all.chain(removed) {
            size += value_size;
            if size > BATCH_SIZE_MAX || batches.last().is_some_and(|batch| batch.len() == 4 * BATCH_COUNT_MAX) {
                batches.push(Vec::new());
                size = value_size;
            }
            batches.last_mut().expect("there is one").push((number, self.key(number)));
        }
        batches
    }

    /// Panics unless this is what a key must have.
    pub(crate) fn check(&self, number: u64, found: Reply<'_>) {
        let expected = self.pairs.get(&number).map(|pair| value(pair.version, pair.size));
        let expected = expected.as_deref().map_or(Reply::NotFound, Reply::Value);
        if found != expected {
            let size = |reply| if let Reply::Value(value) = reply { Some(value.len()) } else { None };
            let key = String::from_utf8(self.key(number)).expect("keys are text");
            panic!("space {}: {key} has {:?} bytes instead of {:?}", self.number, size(found), size(expected));
        }
    }
}

/// Returns the value with this seed.
fn value(version: u64, size: usize) -> Vec<u8> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(version);
    let mut value = vec![0; size];
    random.fill(&mut value[..]);
    value
}
