//! Fuzzes batches of operations on a small store, and compares it with the naive store.
//!
//! The bytes are decoded as settings, then as batches. The tests' generator draws choices from a seed. Here each choice
//! is one byte that the fuzzer can change alone. There are few keys, so that operations of one batch use the same key.
//! The memory is small, so that chains grow and the store becomes full. The bytes only decide the sizes of values, not
//! their contents, because the sizes decide where they are stored. Looks for four faults:
//! 1. a panic
//! 2. a reply that differs from that of the naive store
//! 3. a refused operation that changed something
//! 4. a lost pair

#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use skep_core::function::{Element, Fold, Predicate, UpdateFunction};
use skep_core::operation::{KEY_SIZE_MAX, PutCondition, Reply, Request, Shape, VALUE_SIZE_MAX};
use skep_store::hash::Settings;
use skep_store::naive::{NaiveStore, OwnedOperation, OwnedRequest};
use skep_store::processor::{Processor, Replies};

/// Number of different keys in a run.
const KEY_COUNT: u16 = 600;

/// The tested store and the naive store.
struct Pair {
    processor: Processor,
    replies: Replies,
    naive: NaiveStore,
}

fuzz_target!(|input: &[u8]| {
    // The run ends when the bytes end.
    let _ = run(&mut Unstructured::new(input));
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let memory = *input.choose(&[64 << 10, 256 << 10, 1 << 20, 8 << 20])?;
    let kv_size = *input.choose(&[10, 62, 254])?;
    let settings = Settings::for_kv_size(memory, kv_size, input.arbitrary()?);
    let processor = Processor::new(&settings).expect("a few megabytes can be reserved");
    let replies = Replies::with_budget(*input.choose(&[0, 4096, 64 << 20])?);
    let mut pair = Pair { processor, replies, naive: NaiveStore::new() };
    while !input.is_empty() {
        let count = input.int_in_range(1..=64)?;
        let requests = (0..count).map(|_| request(input)).collect::<Result<Vec<_>>>()?;
        pair.execute(&requests);
    }
    let every_key: Vec<OwnedRequest> =
        (0..KEY_COUNT).map(|number| OwnedRequest { key: key(number), operation: OwnedOperation::Get }).collect();
    pair.execute(&every_key);
    assert_eq!(pair.processor.statistics().pairs, pair.naive.len() as u64);
    Ok(())
}

impl Pair {
    /// Runs a batch, and then its deferred requests again.
    fn execute(&mut self, requests: &[OwnedRequest]) {
        let mut batch: Vec<Request<'_>> = requests.iter().map(OwnedRequest::as_request).collect();
        while !batch.is_empty() {
            self.processor.execute(&batch, &mut self.replies);
            assert_eq!(self.replies.len(), batch.len());
            let mut deferred = Vec::new();
            for (request, reply) in batch.iter().zip(self.replies.iter()) {
                if reply == Reply::Deferred {
                    deferred.push(*request);
                } else if let Err(expected) = self.naive.check(request, reply) {
                    panic!("{reply:?} instead of {expected:?} to {request:?}");
                }
            }
            assert!(deferred.len() < batch.len(), "one value of a batch always fits");
            batch = deferred;
        }
    }
}

fn request(input: &mut Unstructured<'_>) -> Result<OwnedRequest> {
    // Most operations use a few keys, so that several operations use the same key.
    let number = match input.arbitrary::<u16>()? {
        rare if rare.is_multiple_of(4) => rare / 4 % KEY_COUNT,
        hot => hot % 48,
    };
    // Operations on a key mostly agree on the type of its value. Every eighth key holds decimal text.
    let home = Element::ALL[usize::from(number) % Element::ALL.len()];
    let element = if input.ratio(1, 16)? { *input.choose(&Element::ALL)? } else { home };
    let operation = match input.int_in_range(0..=11)? {
        0 => OwnedOperation::Get,
        1 => OwnedOperation::Contains,
        2 | 3 => put(input, number, element, PutCondition::Always)?,
        4 => put(input, number, element, PutCondition::IfAbsent)?,
        5 => put(input, number, element, PutCondition::IfPresent)?,
        6 => OwnedOperation::Delete,
        7 | 8 => update(input, element)?,
        9 => reduce(input, element)?,
        10 => filter(input, element)?,
        _ => OwnedOperation::AddDecimal { delta: input.arbitrary()? },
    };
    Ok(OwnedRequest { key: key(number), operation })
}

fn put(input: &mut Unstructured<'_>, number: u16, element: Element, condition: PutCondition) -> Result<OwnedOperation> {
    let value =
        if number % 8 == 7 { input.arbitrary::<i16>()?.to_string().into_bytes() } else { vector(input, element)? };
    Ok(OwnedOperation::Put { value, condition })
}

fn update(input: &mut Unstructured<'_>, element: Element) -> Result<OwnedOperation> {
    let function = *input.choose(&UpdateFunction::ALL)?;
    let shape = *input.choose(&[Shape::ScalarToScalar, Shape::ScalarToVector, Shape::VectorToVector])?;
    let initial = match shape {
        Shape::ScalarToScalar => scalar(input, element)?,
        Shape::ScalarToVector | Shape::VectorToVector => vector(input, element)?,
    };
    let operand_size = if shape == Shape::VectorToVector { initial.len() } else { element.width() };
    let operand = bytes(operand_size * function.operand_count(), input.arbitrary()?);
    let initial = input.arbitrary::<bool>()?.then_some(initial);
    Ok(OwnedOperation::Update { function, element, shape, operand, initial, return_old: input.arbitrary()? })
}

fn reduce(input: &mut Unstructured<'_>, element: Element) -> Result<OwnedOperation> {
    let fold = *input.choose(&Fold::ALL)?;
    let constants = if fold == Fold::Dot { vector(input, element)? } else { Vec::new() };
    Ok(OwnedOperation::Reduce { fold, element, initial: scalar(input, element)?, constants })
}

fn filter(input: &mut Unstructured<'_>, element: Element) -> Result<OwnedOperation> {
    let predicate = *input.choose(&Predicate::ALL)?;
    let operand = if predicate == Predicate::NonZero { Vec::new() } else { scalar(input, element)? };
    Ok(OwnedOperation::Filter { predicate, element, operand })
}

/// Returns one element. It is truncated with a probability of 1/16.
fn scalar(input: &mut Unstructured<'_>, element: Element) -> Result<Vec<u8>> {
    let size = if input.ratio(1, 16)? { element.width() - 1 } else { element.width() };
    Ok(bytes(size, input.arbitrary()?))
}

/// Returns elements. The last is truncated with a probability of 1/16. Sizes are near the bounds of slots, slab classes
/// and the kinds of values.
fn vector(input: &mut Unstructured<'_>, element: Element) -> Result<Vec<u8>> {
    let size = match input.arbitrary::<u8>()? {
        small @ 0..=199 => usize::from(small) / 4,
        200..=239 => input.int_in_range(0..=600)?,
        240..=253 => input.int_in_range(500..=9000)?,
        254 => input.int_in_range(0..=VALUE_SIZE_MAX / 4)?,
        255 => VALUE_SIZE_MAX - 4 + input.int_in_range(0..=8)?,
    };
    let whole = size.next_multiple_of(element.width());
    Ok(bytes(if input.ratio(1, 16)? { size } else { whole }, input.arbitrary()?))
}

/// Returns bytes that differ from their neighbours and from those of other fills, or zeros.
fn bytes(size: usize, fill: u8) -> Vec<u8> {
    (0..size).map(|at| (at as u8).wrapping_mul(31).wrapping_add(1).wrapping_mul(fill)).collect()
}

/// Returns the key with this number. Most keys are short, some are long, and the last two are not allowed.
fn key(number: u16) -> Vec<u8> {
    let size = match KEY_COUNT - number {
        1 => 0,
        2 => KEY_SIZE_MAX + 1,
        3..=9 => KEY_SIZE_MAX,
        _ => 2 + usize::from(number % 23),
    };
    number.to_be_bytes().into_iter().cycle().take(size).collect()
}
