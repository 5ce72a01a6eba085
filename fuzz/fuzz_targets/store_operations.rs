//! Batches of operations on a small store, against a map that does the same one after another.
//!
//! The bytes are read as settings, then as batches. There are few keys, so that operations of one batch meet on a
//! key, and the memory is small, so that chains grow and the store fills up. Values are not read from the bytes, only
//! their sizes: what they hold matters less than where they have room. Looked for: a panic, an answer that the map
//! does not give, a refused operation that changed something, a pair that is lost.
//!
//! Keys with an odd number hold floats of one type and meet only operations on it. So every NaN is the one that the
//! processor makes of numbers, and the answers can be compared byte by byte.

#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use skep_store::function::{self, DecimalText, Element, Fold, Predicate, UpdateFunction};
use skep_store::hash::Settings;
use skep_store::operation::{
    Filter, KEY_SIZE_MAX, Operation, OperationError, PutCondition, Reduce, Reply, Request, Shape, Update, VALUE_SIZE_MAX,
};
use skep_store::processor::{Processor, Replies};

/// Different keys of a run.
const KEY_COUNT: u16 = 600;

type Model = HashMap<Vec<u8>, Vec<u8>>;

/// The operation of a request and the bytes that it borrows.
struct Command {
    key: Vec<u8>,
    kind: u8,
    element: Element,
    function: UpdateFunction,
    fold: Fold,
    predicate: Predicate,
    shape: Shape,
    return_old: bool,
    operand: Vec<u8>,
    initial: Option<Vec<u8>>,
}

fuzz_target!(|input: &[u8]| {
    // Bytes that end early end the run.
    let _ = run(&mut Unstructured::new(input));
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let memory = *input.choose(&[64 << 10, 256 << 10, 1 << 20, 8 << 20])?;
    let kv_size = *input.choose(&[10, 62, 254])?;
    let settings = Settings::for_kv_size(memory, kv_size, input.arbitrary()?);
    let mut processor = Processor::new(&settings).expect("a few megabytes can be reserved");
    let mut replies = Replies::with_budget(*input.choose(&[0, 4096, 64 << 20])?);
    let mut model = Model::new();
    while !input.is_empty() {
        let count = input.int_in_range(1..=64)?;
        let commands = (0..count).map(|_| command(input)).collect::<Result<Vec<_>>>()?;
        execute(&mut processor, &mut replies, &commands, &mut model);
    }
    let keys: Vec<Vec<u8>> = (0..KEY_COUNT).map(key).collect();
    let every_key = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
    execute_requests(&mut processor, &mut replies, every_key, &mut model);
    assert_eq!(processor.statistics().pairs, model.len() as u64);
    Ok(())
}

fn execute(processor: &mut Processor, replies: &mut Replies, commands: &[Command], model: &mut Model) {
    execute_requests(processor, replies, commands.iter().map(request).collect(), model);
}

/// Runs a batch, and what it defers again, and holds every answer to the model's.
fn execute_requests(processor: &mut Processor, replies: &mut Replies, mut batch: Vec<Request<'_>>, model: &mut Model) {
    while !batch.is_empty() {
        processor.execute(&batch, replies);
        assert_eq!(replies.len(), batch.len());
        let mut deferred = Vec::new();
        for (request, reply) in batch.iter().zip(replies.iter()) {
            match reply {
                Reply::Deferred => deferred.push(*request),
                // The map is never full; what the store has no room for has changed nothing.
                Reply::Failed(OperationError::IndexFull | OperationError::SlabFull) => {
                    assert!(grows(&request.operation), "{request:?} was refused, but needs no room");
                }
                _ => assert_eq!(reply, answer(model, request).as_reply(), "{request:?}"),
            }
        }
        assert!(deferred.len() < batch.len(), "one value of a batch always fits");
        batch = deferred;
    }
}

/// Whether an operation may ask for room.
fn grows(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Put { .. } | Operation::Update(_) | Operation::AddDecimal { .. })
}

/// The answer of the model, which owns its value.
enum Answer {
    Value(Vec<u8>),
    Other(Reply<'static>),
}

impl Answer {
    fn as_reply(&self) -> Reply<'_> {
        match self {
            Answer::Value(value) => Reply::Value(value),
            Answer::Other(reply) => *reply,
        }
    }
}

/// Carries out one request on the map.
fn answer(model: &mut Model, request: &Request<'_>) -> Answer {
    match try_answer(model, request) {
        Ok(answer) => answer,
        Err(error) => Answer::Other(Reply::Failed(error)),
    }
}

fn try_answer(model: &mut Model, request: &Request<'_>) -> std::result::Result<Answer, OperationError> {
    request.validate()?;
    let old = model.get(request.key).cloned();
    let not_found = Ok(Answer::Other(Reply::NotFound));
    let done = Ok(Answer::Other(Reply::Done));
    match &request.operation {
        Operation::Get => old.map_or(not_found, |value| Ok(Answer::Value(value))),
        Operation::Contains => old.map_or(not_found, |_| done),
        Operation::Delete => model.remove(request.key).map_or(not_found, |_| done),
        Operation::Put { condition: PutCondition::IfAbsent, .. } if old.is_some() => Ok(Answer::Other(Reply::Exists)),
        Operation::Put { condition: PutCondition::IfPresent, .. } if old.is_none() => not_found,
        Operation::Put { value, .. } => {
            model.insert(request.key.to_vec(), value.to_vec());
            done
        }
        Operation::Update(update) => {
            let Some(old) = old.or_else(|| update.initial.map(<[u8]>::to_vec)) else { return not_found };
            update.validate_value(old.len())?;
            let mut new = old.clone();
            function::update(update.function, update.element, update.shape, update.operand, &mut new);
            model.insert(request.key.to_vec(), new);
            if update.return_old { Ok(Answer::Value(old)) } else { done }
        }
        Operation::Reduce(reduce) => {
            let Some(old) = old else { return not_found };
            reduce.validate_value(old.len())?;
            let mut accumulator = reduce.initial.to_vec();
            function::reduce(reduce.fold, reduce.element, &mut accumulator, &old, reduce.constants);
            Ok(Answer::Value(accumulator))
        }
        Operation::Filter(filter) => {
            let Some(old) = old else { return not_found };
            filter.validate_value(old.len())?;
            let mut passed = Vec::new();
            function::filter(filter.predicate, filter.element, filter.operand, &old, &mut passed);
            Ok(Answer::Value(passed))
        }
        Operation::AddDecimal { delta } => {
            let mut sum = DecimalText::new(0);
            function::add_decimal(old.as_deref().unwrap_or(b"0"), *delta, &mut sum)?;
            model.insert(request.key.to_vec(), sum.as_bytes().to_vec());
            Ok(Answer::Value(sum.as_bytes().to_vec()))
        }
    }
}

fn command(input: &mut Unstructured<'_>) -> Result<Command> {
    let number = input.int_in_range(0..=KEY_COUNT - 1)?;
    let element = match number % 4 {
        1 => Element::F32,
        3 => Element::F64,
        _ => *input.choose(&Element::ALL[..8])?,
    };
    let kind = input.int_in_range(0..=11)?;
    let function = *input.choose(&UpdateFunction::ALL)?;
    let fold = *input.choose(&Fold::ALL)?;
    let predicate = *input.choose(&Predicate::ALL)?;
    let shape = *input.choose(&[Shape::ScalarToScalar, Shape::ScalarToVector, Shape::VectorToVector])?;
    let width = element.width();
    // Mostly the size that the operation wants; one in sixteen as it comes.
    let wanted = match (kind, shape) {
        (0..=4, _) => size(input)? / width * width,
        (5..=7, Shape::VectorToVector) => size(input)? / width * width * function.operand_count(),
        (5..=7, _) => width * function.operand_count(),
        (8..=9, _) if fold == Fold::Dot => width + size(input)? / width * width,
        (10, _) if predicate == Predicate::NonZero => 0,
        _ => width,
    };
    let operand_size = if input.ratio(1, 16)? { size(input)? } else { wanted };
    let initial_size = match shape {
        Shape::ScalarToScalar => width,
        Shape::ScalarToVector => size(input)? / width * width,
        Shape::VectorToVector => operand_size / function.operand_count(),
    };
    let fill = input.arbitrary()?;
    Ok(Command {
        key: key(number),
        kind,
        element,
        function,
        fold,
        predicate,
        shape,
        return_old: input.arbitrary()?,
        operand: bytes(operand_size, element, fill),
        initial: input.ratio(1, 2)?.then(|| bytes(initial_size, element, !fill)),
    })
}

fn request(command: &Command) -> Request<'_> {
    let (element, operand) = (command.element, command.operand.as_slice());
    let put = |condition| Operation::Put { value: operand, condition };
    let operation = match command.kind {
        0 | 1 => put(PutCondition::Always),
        2 => put(PutCondition::IfAbsent),
        3 => put(PutCondition::IfPresent),
        4 => Operation::Delete,
        5..=7 => Operation::Update(Update {
            function: command.function,
            element,
            shape: command.shape,
            operand,
            initial: command.initial.as_deref(),
            return_old: command.return_old,
        }),
        8 | 9 => {
            let (initial, constants) = operand.split_at(element.width().min(operand.len()));
            Operation::Reduce(Reduce { fold: command.fold, element, initial, constants })
        }
        10 => Operation::Filter(Filter { predicate: command.predicate, element, operand }),
        _ if command.return_old => Operation::Get,
        _ if command.element.is_float() => Operation::Contains,
        _ => Operation::AddDecimal { delta: operand.first().map_or(0, |byte| i64::from(*byte) - 100) },
    };
    Request { key: &command.key, operation }
}

/// Sizes around the bounds of slots, slab classes and the kinds of values, and any small one.
fn size(input: &mut Unstructured<'_>) -> Result<usize> {
    Ok(match input.arbitrary::<u8>()? {
        small @ 0..=199 => usize::from(small) / 4,
        200..=239 => input.int_in_range(0..=600)?,
        240..=253 => input.int_in_range(500..=9000)?,
        254 => input.int_in_range(0..=VALUE_SIZE_MAX / 4)?,
        255 => VALUE_SIZE_MAX - 4 + input.int_in_range(0..=8)?,
    })
}

/// The key with this number: mostly short, some long, the first two not allowed.
fn key(number: u16) -> Vec<u8> {
    let size = match number {
        0 => 0,
        1 => KEY_SIZE_MAX + 1,
        2..=9 => KEY_SIZE_MAX,
        _ => 2 + usize::from(number % 23),
    };
    number.to_be_bytes().into_iter().cycle().take(size).collect()
}

/// Elements for a value or an operand: small numbers if they are floats, otherwise digits or any bytes.
fn bytes(size: usize, element: Element, fill: u8) -> Vec<u8> {
    let number = |index: usize| (index as u8).wrapping_mul(31).wrapping_add(fill);
    match element {
        Element::F32 => (0..size).map(|at| f32::from(number(at / 4)).to_le_bytes()[at % 4]).collect(),
        Element::F64 => (0..size).map(|at| f64::from(number(at / 8)).to_le_bytes()[at % 8]).collect(),
        _ if fill.is_multiple_of(4) => (0..size).map(|at| b'0' + number(at) % 10).collect(),
        _ => (0..size).map(number).collect(),
    }
}
