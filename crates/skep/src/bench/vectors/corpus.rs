//! Equal values at numbered keys, in a store in this process and in a server, and the order in which they are visited.

use std::time::Instant;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep::{Operation, PutCondition, Reply, Request, Responses, StoreSettings, WireError};
use skep_measure::Work;

use super::Over;
use crate::bench::not_opened;
use crate::bench::target::Target;
use crate::failure::Failure;
use crate::local_server::{Cores, LocalServer, LocalServerSettings};

/// The key of a value: its number.
pub(super) type Key = [u8; size_of::<u64>()];

/// The share of the default utilization to which a store is filled.
const FILL: f64 = 0.8;
/// Bytes of the smallest store.
const MEMORY_MIN: u64 = 4 << 20;
/// The most values that are put at once, and the most bytes of them.
const LOADED_AT_ONCE: usize = 4096;
const LOADED_AT_ONCE_SIZE: usize = 1 << 20;
/// The most times that a value is put. A store may defer a large one until it has merged free memory.
const TRIES_MAX: usize = 1000;

/// Values of one size.
pub(super) struct Corpus {
    pub(super) value_size: usize,
    /// One for each [`Over`].
    targets: Vec<Target>,
    /// The server of those targets that are not in this process.
    _server: Option<LocalServer>,
}

impl Corpus {
    /// Opens a store and starts a server, as far as they are needed, and loads both with this value at `count` keys.
    pub(super) fn new(cores: &Cores, over: &[Over], value: &[u8], count: usize) -> Result<Corpus, Failure> {
        let kv_size = size_of::<Key>() + value.len();
        let memory = (count * kv_size) as f64 / (FILL * StoreSettings::utilization_for(kv_size));
        let memory = (memory as u64).max(MEMORY_MIN);
        let is_remote = |over: &Over| over.transport().is_some();
        let settings = LocalServerSettings { shards: 1, memory, value_size: value.len(), echo: None };
        let server = over.iter().any(is_remote).then(|| LocalServer::start(cores, settings)).transpose()?;
        let target = |over: &Over| match (over.transport(), &server) {
            (Some(transport), Some(server)) => {
                let client = Box::new(server.connect(transport)?);
                Ok(Target::Remote { client, responses: Responses::default() })
            }
            _ => Target::embedded(&StoreSettings::for_kv_size(memory, kv_size, rand::random()))
                .map_err(|error| Failure::Runtime(not_opened(&error))),
        };
        let targets = over.iter().map(target).collect::<Result<Vec<_>, _>>()?;
        let mut corpus = Corpus { value_size: value.len(), targets, _server: server };
        let first_remote = over.iter().position(is_remote);
        for index in (0..over.len()).filter(|index| !is_remote(&over[*index]) || Some(*index) == first_remote) {
            corpus.load(index, value, count)?;
        }
        Ok(corpus)
    }

    fn load(&mut self, over: usize, value: &[u8], count: usize) -> Result<(), Failure> {
        let operation = Operation::Put { value, condition: PutCondition::Always };
        let at_once = (LOADED_AT_ONCE_SIZE / value.len()).clamp(1, LOADED_AT_ONCE);
        for first in (0..count).step_by(at_once) {
            let keys: Vec<Key> = (first..count.min(first + at_once)).map(key).collect();
            let requests: Vec<_> = keys.iter().map(|key| Request { key, operation }).collect();
            let mut tries = 0;
            while self.execute(over, &requests)?.operations < requests.len() {
                tries += 1;
                if tries == TRIES_MAX {
                    return Err(Failure::Runtime("a store has no room for the values of the measurement".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Executes a batch. Counts the operations that were carried out: a store may defer some. If one fails, so does
    /// this.
    pub(super) fn execute(&mut self, over: usize, requests: &[Request<'_>]) -> Result<Work, Failure> {
        let target = &mut self.targets[over];
        let begun = Instant::now();
        target.execute(requests).map_err(Failure::Runtime)?;
        let spent = begun.elapsed();
        let mut operations = 0;
        for index in 0..requests.len() {
            match target.reply(index) {
                Ok(Reply::Done | Reply::Value(_)) => operations += 1,
                Err(WireError::Busy) => {}
                other => {
                    let message = format!("an operation of the measurement was refused: {other:?}");
                    return Err(Failure::Runtime(message));
                }
            }
        }
        Ok(Work { spent, operations })
    }

    /// Returns the value in the reply to a request of the last batch. `None`: it was deferred.
    pub(super) fn value(&self, over: usize, index: usize) -> Option<&[u8]> {
        match self.targets[over].reply(index) {
            Ok(Reply::Value(value)) => Some(value),
            _ => None,
        }
    }
}

/// Returns the key with this number.
pub(super) fn key(number: usize) -> Key {
    (number as u64).to_le_bytes()
}

/// Random numbers of vectors, each once. After the last one the first one follows.
pub(super) struct Order {
    numbers: Vec<usize>,
    next: usize,
    at_once: usize,
}

impl Order {
    /// Shuffles the first `count` numbers, of which at most `at_once` are taken together.
    pub(super) fn new(count: usize, at_once: usize) -> Order {
        let mut numbers: Vec<usize> = (0..count).collect();
        numbers.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(1));
        Order { numbers, next: 0, at_once }
    }

    /// Returns the number of vectors.
    pub(super) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the next numbers, which are all different.
    pub(super) fn take(&mut self) -> &[usize] {
        let first = self.next;
        let end = (first + self.at_once).min(self.numbers.len());
        self.next = if end == self.numbers.len() { 0 } else { end };
        &self.numbers[first..end]
    }
}
