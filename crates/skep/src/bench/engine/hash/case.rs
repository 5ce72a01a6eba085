//! The cases of the hash store: their operations, their keys, and the lines that an ideal store would touch for them.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::function::UpdateFunction;
use skep_core::operation::{Operation, PutCondition, Request, Shape as UpdateShape, Update};
use skep_store::memory::{LINE_SIZE, Memory};

use super::corpus::{Corpus, KEY_SIZE_MAX};
use crate::bench::engine::limit::Ideal;
use skep_measure::distribution::{Distribution, Generator};
use skep_measure::mix::Mix;

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: &'static str,
    kind: Kind,
    keys: Keys,
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Get,
    Put,
    Delete,
    /// An atomic addition to the value, or to every element of it.
    Add,
    /// Puts, this many of 256, and gets.
    Mix(u8),
}

/// The keys of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    Uniform,
    Zipf,
    /// One key.
    One,
    /// Keys that do not exist; [`Kind::Delete`] of them restores the corpus.
    New,
}

const fn case(name: &'static str, kind: Kind, keys: Keys) -> Case {
    Case { name, kind, keys }
}

/// Returns the kind of a mix of gets and puts.
const fn mix(mix: Mix) -> Kind {
    Kind::Mix(mix.writes_in_256() as u8)
}

/// All cases.
pub(super) const CASES: [Case; 13] = [
    case("get_uniform", Kind::Get, Keys::Uniform),
    case("put_existing", Kind::Put, Keys::Uniform),
    case("put_new", Kind::Put, Keys::New),
    case("delete", Kind::Delete, Keys::New),
    case("fetch_add_uniform", Kind::Add, Keys::Uniform),
    case("fetch_add_one_key", Kind::Add, Keys::One),
    case("ycsb_a_uniform", mix(Mix::A), Keys::Uniform),
    case("ycsb_a_zipf", mix(Mix::A), Keys::Zipf),
    case("ycsb_b_uniform", mix(Mix::B), Keys::Uniform),
    case("ycsb_b_zipf", mix(Mix::B), Keys::Zipf),
    case("ycsb_c_uniform", Kind::Get, Keys::Uniform),
    case("ycsb_c_zipf", Kind::Get, Keys::Zipf),
    case("vector_update", Kind::Add, Keys::Uniform),
];

impl Case {
    /// Returns true if the case runs with this distribution; `None` runs both.
    pub(super) fn takes_part(&self, distribution: Option<Distribution>) -> bool {
        match (self.keys, distribution) {
            (Keys::Zipf, Some(distribution)) => distribution == Distribution::Zipf,
            (Keys::Uniform, Some(distribution)) => distribution == Distribution::Uniform,
            _ => true,
        }
    }

    /// Returns the lines that an ideal store touches.
    pub(super) fn ideal(&self, is_inline: bool, kv_size: usize) -> Ideal {
        let dependent_lines = if is_inline { 0 } else { kv_size.div_ceil(LINE_SIZE) as u64 };
        let writes_in_256 = match self.kind {
            Kind::Get => 0,
            Kind::Mix(puts) => u16::from(puts),
            Kind::Put | Kind::Delete | Kind::Add => 256,
        };
        Ideal { dependent_lines, writes_in_256 }
    }

    /// Returns the case that undoes this one when its keys run out. New keys are put until as many exist as allowed,
    /// and deleted until none is left.
    pub(super) fn opposite(&self) -> Option<Case> {
        let opposite = if self.kind == Kind::Delete { Kind::Put } else { Kind::Delete };
        (self.keys == Keys::New).then_some(Case { kind: opposite, ..*self })
    }
}

/// Draws the keys and operations of batches.
pub(super) struct Draw {
    random: Xoshiro256PlusPlus,
    zipf: Generator,
    pair_count: u64,
    /// The next new key to put, and the next one to delete.
    new_keys: [u64; 2],
}

impl Draw {
    pub(super) fn new(random: Xoshiro256PlusPlus, pair_count: u64) -> Self {
        Draw { random, zipf: Generator::new(Distribution::Zipf, pair_count), pair_count, new_keys: [pair_count; 2] }
    }

    /// Draws the records of a batch; the flag is true for a write. The batch is smaller when new keys run out: at most
    /// one pair in a hundred is new at a time.
    pub(super) fn batch(&mut self, case: &Case, size: usize, records: &mut Vec<(u64, bool)>) {
        let new_count = self.new_keys[0] - self.new_keys[1];
        let size = match case.kind {
            Kind::Delete => size.min(new_count as usize),
            _ if case.keys == Keys::New => size.min(((self.pair_count / 100).max(1) - new_count) as usize),
            _ => size,
        };
        records.clear();
        for _ in 0..size {
            let record = match case.keys {
                Keys::Uniform => self.random.random_range(0..self.pair_count),
                Keys::Zipf => self.zipf.draw(&mut self.random),
                Keys::One => 0,
                Keys::New => {
                    let [put_next, delete_next] = &mut self.new_keys;
                    let next = if case.kind == Kind::Delete { delete_next } else { put_next };
                    *next += 1;
                    *next - 1
                }
            };
            let write = match case.kind {
                Kind::Mix(puts) => self.random.random_range(0..256) < u32::from(puts),
                _ => true,
            };
            records.push((record, write));
        }
    }
}

/// Builds a batch and passes it to `timed`. Returns the result of `timed`.
pub(super) fn execute<M: Memory, T>(
    corpus: &mut Corpus<M>,
    case: &Case,
    records: &[(u64, bool)],
    timed: impl FnOnce(&mut Corpus<M>, &[Request<'_>]) -> T,
) -> T {
    let shape = corpus.shape;
    let keys: Vec<[u8; KEY_SIZE_MAX]> = records.iter().map(|(record, _)| shape.key(*record)).collect();
    let value = vec![b'w'; shape.value_size];
    let one = 1u64.to_le_bytes();
    let element = shape.element();
    let is_scalar = shape.value_size == element.width() && case.name != "vector_update";
    let put = Operation::Put { value: &value, condition: PutCondition::Always };
    let operation = match case.kind {
        Kind::Get => Operation::Get,
        Kind::Put | Kind::Mix(_) => put,
        Kind::Delete => Operation::Delete,
        Kind::Add => Operation::Update(Update {
            function: UpdateFunction::Add,
            element,
            shape: if is_scalar { UpdateShape::ScalarToScalar } else { UpdateShape::ScalarToVector },
            operand: &one[..element.width()],
            initial: None,
            return_old: is_scalar,
        }),
    };
    let requests: Vec<_> = records
        .iter()
        .zip(&keys)
        .map(|((_, write), key)| Request {
            key: &key[..shape.key_size],
            operation: if *write { operation } else { Operation::Get },
        })
        .collect();
    timed(corpus, &requests)
}
