//! The bytes that a batch has touched, as each store tells them: callers bound their work by them.

use std::time::Instant;

use skep_core::function::{BitRange, Element, Fold, Predicate, UpdateFunction};
use skep_core::operation::{
    Condition, ConditionKind, ExpiryChange, ExpiryCondition, Filter, Operation, PutCondition, Reduce, Request, Shape,
    StringRead, StringWrite, Update, VALUE_SIZE_MAX,
};
use skep_store::cache::{self, Cache};
use skep_store::hash::Settings;
use skep_store::ordered::{OrderedSettings, OrderedStore, Session};
use skep_store::processor::{Processor, Replies};

/// Bytes that a small operation may count: those of the line or the slab that it reads.
const SMALL: usize = 512;

/// A store of one of the three kinds.
enum Store<'s> {
    Hash(Box<Processor>),
    Ordered(Box<Session<'s>>),
    Cache(Box<Cache>),
}

impl Store<'_> {
    /// Executes an operation on the key `k`. Returns the bytes that it has touched.
    fn execute(&mut self, operation: Operation<'_>) -> usize {
        let requests = [Request { key: b"k", operation }];
        let mut replies = Replies::with_budget(64 << 20);
        match self {
            Store::Hash(store) => store.execute(&requests, &mut replies),
            Store::Ordered(session) => session.execute(&requests, &mut replies, Instant::now()),
            Store::Cache(cache) => cache.execute(&requests, &mut replies),
        }
        assert!(!replies.is_deferred(0), "{:?}", requests[0].operation);
        replies.bytes_touched()
    }
}

/// Calls `test` with a store of each kind.
fn with_stores(mut test: impl FnMut(&str, &mut Store<'_>)) {
    let settings = Settings::for_kv_size(16 << 20, 4096, 0);
    test("hash", &mut Store::Hash(Box::new(Processor::new(&settings).unwrap())));
    let store = OrderedStore::new(&OrderedSettings::new(32 << 20)).unwrap();
    test("ordered", &mut Store::Ordered(Box::new(store.session().unwrap())));
    let settings = cache::Settings { memory: 16 << 20, kv_size: 4096, seed: 0 };
    test("cache", &mut Store::Cache(Box::new(Cache::new(&settings).unwrap())));
}

/// Operations that read or write all bytes of a value of this size.
fn operations_on_all_bytes(value: &[u8]) -> Vec<Operation<'_>> {
    let (element, shape) = (Element::U8, Shape::ScalarToVector);
    let update =
        |return_old| Update { function: UpdateFunction::Add, element, shape, return_old, operand: &[1], initial: None };
    let set = |condition, return_old| StringWrite::Set { value, condition, expiry: ExpiryChange::KEEP, return_old };
    let expire =
        StringWrite::Expire { expiry: ExpiryChange::CLEAR, condition: ExpiryCondition::Always, return_value: true };
    let other = Condition { kind: ConditionKind::IfEqual, operand: b"other" };
    vec![
        Operation::Get,
        Operation::Put { value, condition: PutCondition::Always },
        Operation::Update(update(false)),
        Operation::Update(update(true)),
        Operation::Reduce(Reduce { fold: Fold::Sum, element, initial: &[0], constants: &[] }),
        Operation::Filter(Filter { predicate: Predicate::NonZero, element, operand: &[] }),
        Operation::StringRead(StringRead::CountBits(BitRange::ALL)),
        Operation::StringRead(StringRead::FindBit { bit: true, range: BitRange::ALL }),
        Operation::StringRead(StringRead::Digest),
        Operation::StringWrite(set(Condition::ALWAYS, false)),
        Operation::StringWrite(set(Condition::ALWAYS, true)),
        Operation::StringWrite(set(other, false)),
        Operation::StringWrite(expire),
    ]
}

#[test]
fn operations_tell_the_bytes_of_the_values_that_they_touch() {
    let value = vec![0; VALUE_SIZE_MAX];
    with_stores(|name, store| {
        for operation in operations_on_all_bytes(&value) {
            store.execute(Operation::Put { value: &value, condition: PutCondition::Always });
            let bytes = store.execute(operation);
            assert!(bytes >= VALUE_SIZE_MAX, "{name}: {operation:?} tells {bytes} bytes");
            assert!(bytes <= 4 * VALUE_SIZE_MAX, "{name}: {operation:?} tells {bytes} bytes");
        }
        for operation in [
            Operation::StringWrite(StringWrite::Append(&value)),
            Operation::StringWrite(StringWrite::Overwrite { offset: VALUE_SIZE_MAX as u32 - 1, bytes: b"x" }),
        ] {
            store.execute(Operation::Delete);
            let bytes = store.execute(operation);
            assert!(bytes >= VALUE_SIZE_MAX, "{name}: {operation:?} of a missing key tells {bytes} bytes");
        }
    });
}

/// Nanoseconds that a byte of a value takes a filter or a fold of floats in an optimised build, in quarters: see
/// `skep-core/src/function/work.rs`. No update takes as long as a quarter.
#[test]
fn functions_that_take_long_for_a_byte_tell_more_bytes() {
    let (value, constants) = (vec![1; VALUE_SIZE_MAX], vec![0; VALUE_SIZE_MAX]);
    with_stores(|name, store| {
        store.execute(Operation::Put { value: &value, condition: PutCondition::Always });
        for element in Element::ALL {
            let zero = &[0; 8][..element.width()];
            for predicate in Predicate::ALL {
                let operand = if predicate == Predicate::NonZero { &[][..] } else { zero };
                let bytes = store.execute(Operation::Filter(Filter { predicate, element, operand }));
                let least = [3, 2, 2, 1][element.width().ilog2() as usize] * VALUE_SIZE_MAX;
                assert!(bytes >= least, "{name}: {predicate:?} of {element:?} tells {bytes} bytes");
            }
            for fold in Fold::ALL {
                let constants = if fold == Fold::Dot { &constants[..] } else { &[] };
                let initial = &[0; 8][..fold.sigma(element).width()];
                let bytes = store.execute(Operation::Reduce(Reduce { fold, element, initial, constants }));
                let least = if fold == Fold::Dot && element.is_float() { 2 } else { 1 } * VALUE_SIZE_MAX;
                assert!(bytes >= least, "{name}: {fold:?} of {element:?} tells {bytes} bytes");
            }
            for function in UpdateFunction::ALL.into_iter().filter(|function| function.is_defined_for(element)) {
                let operand = &[1; 16][..function.operand_count() * element.width()];
                let shape = Shape::ScalarToVector;
                let update = Update { function, element, shape, return_old: false, operand, initial: None };
                let bytes = store.execute(Operation::Update(update));
                assert!(bytes >= VALUE_SIZE_MAX, "{name}: {function:?} of {element:?} tells {bytes} bytes");
            }
        }
    });
}

#[test]
fn small_operations_tell_few_bytes() {
    let value = [0; 100];
    with_stores(|name, store| {
        for operation in operations_on_all_bytes(&value) {
            store.execute(Operation::Put { value: &value, condition: PutCondition::Always });
            let bytes = store.execute(operation);
            assert!(bytes <= SMALL, "{name}: {operation:?} tells {bytes} bytes");
        }
    });
}

#[test]
fn a_sum_of_fractions_tells_its_arithmetic() {
    let fraction = [b"0.".to_vec(), vec![b'7'; 250]].concat();
    with_stores(|name, store| {
        store.execute(Operation::Put { value: &fraction, condition: PutCondition::Always });
        let bytes = store.execute(Operation::StringWrite(StringWrite::AddFraction(&fraction)));
        assert!(bytes > 0, "{name}");
    });
}
