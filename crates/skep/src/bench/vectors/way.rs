//! The ways to increment the elements of vectors in Skep.
//!
//! ```text
//! way                    request                               reply
//! update                 one update of the vector              done
//! update, old returned   one update of the vector              the vector as it was
//! one key per element    one update of each element            done
//! fetch and write back   a get; a put of the changed vector    the vector; done
//! ```
//!
//! The last two are the alternatives of KV-Direct's Table 2. With them a vector is not changed atomically.

use std::time::{Duration, Instant};

use skep::{Element, Operation, PutCondition, Request, Shape, Update, UpdateFunction};
use skep_measure::Work;

use super::corpus::{Corpus, Key, Order, key};
use crate::failure::Failure;

/// Bytes of an element.
pub(super) const ELEMENT_SIZE: usize = size_of::<f32>();
/// The number that is added to each element.
const ONE: [u8; ELEMENT_SIZE] = 1_f32.to_le_bytes();
/// Updates of elements in a batch. More would leave the second cache of a core, and fewer would wait for a network.
const ELEMENTS_AT_ONCE: usize = 1024;

/// A way to increment the elements of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Update,
    UpdateReturning,
    Elements,
    WriteBack,
}

pub(super) const WAYS: [Way; 4] = [Way::Update, Way::UpdateReturning, Way::Elements, Way::WriteBack];

/// The same data as vectors, and with one key per element.
pub(super) struct Vectors {
    pub(super) whole: Corpus,
    pub(super) elements: Corpus,
    pub(super) order: Order,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Update => "update",
            Way::UpdateReturning => "update, old returned",
            Way::Elements => "one key per element",
            Way::WriteBack => "fetch and write back",
        }
    }

    /// Changes batches of vectors for at least this time. An operation is a changed byte.
    pub(super) fn run(self, vectors: &mut Vectors, over: usize, at_least: Duration) -> Result<Work, Failure> {
        let mut work = Work::default();
        while work.spent < at_least {
            let batch = self.step(vectors, over)?;
            work.add(batch.spent, batch.operations);
        }
        Ok(work)
    }

    /// Changes the next batch of vectors. The time does not include that of building the requests that need no reply.
    pub(super) fn step(self, vectors: &mut Vectors, over: usize) -> Result<Work, Failure> {
        let Vectors { whole, elements, order } = vectors;
        let numbers = order.take();
        let per_vector = whole.value_size / ELEMENT_SIZE;
        let work = match self {
            Way::Update | Way::UpdateReturning => {
                let keys: Vec<Key> = numbers.iter().copied().map(key).collect();
                let operation = increment(Shape::ScalarToVector, self == Way::UpdateReturning);
                whole.execute(over, &requests(&keys, operation))?
            }
            Way::Elements => {
                let of_vector = |number: &usize| number * per_vector..(number + 1) * per_vector;
                let keys: Vec<Key> = numbers.iter().flat_map(of_vector).map(key).collect();
                let mut work = Work::default();
                for keys in keys.chunks(ELEMENTS_AT_ONCE) {
                    let requests = requests(keys, increment(Shape::ScalarToScalar, false));
                    let batch = elements.execute(over, &requests)?;
                    work.add(batch.spent, batch.operations);
                }
                return Ok(Work { operations: work.operations * ELEMENT_SIZE, ..work });
            }
            Way::WriteBack => {
                let keys: Vec<Key> = numbers.iter().copied().map(key).collect();
                write_back(whole, over, &keys)?
            }
        };
        Ok(Work { operations: work.operations * whole.value_size, ..work })
    }
}

/// Fetches vectors, increments their elements and puts them.
fn write_back(whole: &mut Corpus, over: usize, keys: &[Key]) -> Result<Work, Failure> {
    let gets = requests(keys, Operation::Get);
    let mut changed = vec![0; keys.len() * whole.value_size];
    let begun = Instant::now();
    whole.execute(over, &gets)?;
    let mut puts = Vec::with_capacity(keys.len());
    for ((index, key), new) in keys.iter().enumerate().zip(changed.chunks_exact_mut(whole.value_size)) {
        if let Some(old) = whole.value(over, index) {
            add_one(old, new);
            puts.push(Request { key, operation: Operation::Put { value: new, condition: PutCondition::Always } });
        }
    }
    let operations = whole.execute(over, &puts)?.operations;
    Ok(Work { spent: begun.elapsed(), operations })
}

/// Writes the elements of `old`, each plus one, to `new`. This is the work of a client that gets vectors.
pub(super) fn add_one(old: &[u8], new: &mut [u8]) {
    for (old, new) in old.as_chunks().0.iter().zip(new.as_chunks_mut().0) {
        *new = (f32::from_le_bytes(*old) + 1.0).to_le_bytes();
    }
}

fn increment(shape: Shape, return_old: bool) -> Operation<'static> {
    let (function, element) = (UpdateFunction::Add, Element::F32);
    Operation::Update(Update { function, element, shape, operand: &ONE, initial: None, return_old })
}

fn requests<'a>(keys: &'a [Key], operation: Operation<'a>) -> Vec<Request<'a>> {
    keys.iter().map(|key| Request { key, operation }).collect()
}
