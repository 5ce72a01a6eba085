//! Every function on every element type against the naive store, in one go and piece by piece.

use skep_core::function::{
    Element, Fold, Predicate, UpdateFunction, filter, operand_piece, reduce, update, update_short, update_short_vector,
};
use skep_core::operation::{Filter, Operation, PutCondition, Reduce, Request, Shape, Update};

use super::{NaiveReply, NaiveStore, SplitMix64, test_seeds};
use crate::short::load_short;

/// Rounds for each seed, function and element type.
const ROUNDS: u32 = 60;

/// The answer of the naive store to an operation on a value, and the value after it.
fn naive(value: &[u8], operation: Operation<'_>) -> (NaiveReply, Vec<u8>) {
    let mut store = NaiveStore::new();
    let put = Operation::Put { value, condition: PutCondition::Always };
    store.execute(&Request { key: b"k", operation: put });
    let reply = store.execute(&Request { key: b"k", operation });
    (reply, store.get(b"k").unwrap().to_vec())
}

/// A value of a random number of elements, none and one among them, sometimes longer than a run of a filter.
fn value(random: &mut SplitMix64, element: Element) -> Vec<u8> {
    let count_max = random.choose(&[0, 1, 3, 40, 700]);
    let count = random.within(0..=count_max);
    random.elements(element, count * element.width())
}

/// Cuts a value of this size into pieces, between elements.
fn pieces(random: &mut SplitMix64, element: Element, size: usize) -> Vec<std::ops::Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < size {
        let end = size.min(start + element.width() * random.within(1..=64));
        pieces.push(start..end);
        start = end;
    }
    pieces
}

#[test]
fn updates_are_those_of_the_naive_store() {
    for seed in test_seeds() {
        let mut random = SplitMix64::new(seed);
        for element in Element::ALL {
            for function in UpdateFunction::ALL.into_iter().filter(|function| function.is_defined_for(element)) {
                for shape in [Shape::ScalarToScalar, Shape::ScalarToVector, Shape::VectorToVector] {
                    for _ in 0..ROUNDS {
                        check_update(seed, &mut random, function, element, shape);
                    }
                }
            }
        }
    }
}

/// An update of the lower bytes of a number does not depend on the bytes above them.
#[test]
fn short_updates_are_updates() {
    for seed in test_seeds() {
        let mut random = SplitMix64::new(seed);
        let mut compared = 0;
        for element in Element::ALL {
            for function in UpdateFunction::ALL.into_iter().filter(|function| function.operand_count() == 1) {
                for _ in 0..ROUNDS {
                    let width = element.width();
                    let (mut old, operand) = (random.elements(element, width), random.elements(element, width));
                    let above = random.next().checked_shl(8 * width as u32).unwrap_or(0);
                    let short = update_short(function, element, load_short(&operand), load_short(&old) | above);
                    let Some(short) = short else { continue };
                    update(function, element, Shape::ScalarToScalar, &operand, &mut old);
                    assert_eq!(short.to_le_bytes()[..width], old, "SKEP_SEED={seed}: {function:?} of {element:?}");
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 8 * 7 * ROUNDS, "integers of all widths, and what is no matter of a sign");
    }
}

/// An update of a short vector does not depend on the bytes above it.
#[test]
fn short_updates_of_vectors_are_updates() {
    for seed in test_seeds() {
        let mut random = SplitMix64::new(seed);
        let mut compared = 0;
        for element in Element::ALL {
            for function in UpdateFunction::ALL.into_iter().filter(|function| function.operand_count() == 1) {
                for round in 0..ROUNDS {
                    let width = element.width();
                    let size = width * (1 + round as usize % (8 / width));
                    let (mut old, operand) = (random.elements(element, size), random.elements(element, width));
                    let above = random.next().checked_shl(8 * size as u32).unwrap_or(0);
                    let short = update_short_vector(function, element, load_short(&operand), load_short(&old) | above);
                    let Some(short) = short else { continue };
                    update(function, element, Shape::ScalarToVector, &operand, &mut old);
                    assert_eq!(short.to_le_bytes()[..size], old, "SKEP_SEED={seed}: {function:?} of {element:?}");
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 8 * 6 * ROUNDS, "integers of all widths, and what has no product and no order");
    }
}

fn check_update(seed: u64, random: &mut SplitMix64, function: UpdateFunction, element: Element, shape: Shape) {
    let old = match shape {
        Shape::ScalarToScalar => random.elements(element, element.width()),
        _ => value(random, element),
    };
    let operand_size = if shape == Shape::VectorToVector { old.len() } else { element.width() };
    let operand = random.elements(element, operand_size * function.operand_count());
    let request = Update { function, element, shape, operand: &operand, initial: None, return_old: true };
    assert_eq!((request.validate(), request.validate_value(old.len())), (Ok(()), Ok(())));
    let (reply, expected) = naive(&old, Operation::Update(request));
    assert_eq!(reply, NaiveReply::Value(old.clone()));

    let mut whole = old.clone();
    update(function, element, shape, &operand, &mut whole);
    assert_eq!(whole, expected, "SKEP_SEED={seed}: {request:?} on {old:?}");

    let mut cut = old.clone();
    for piece in pieces(random, element, old.len()) {
        let operand = operand_piece(function, shape, &operand, piece.clone());
        update(function, element, shape, operand, &mut cut[piece]);
    }
    assert_eq!(cut, expected, "SKEP_SEED={seed}: piecewise, {request:?} on {old:?}");
}

#[test]
fn folds_are_those_of_the_naive_store() {
    for seed in test_seeds() {
        let mut random = SplitMix64::new(seed);
        for element in Element::ALL {
            for fold in Fold::ALL {
                for _ in 0..ROUNDS {
                    check_fold(seed, &mut random, fold, element);
                }
            }
        }
    }
}

fn check_fold(seed: u64, random: &mut SplitMix64, fold: Fold, element: Element) {
    let value = value(random, element);
    let initial = random.elements(fold.sigma(element), fold.sigma(element).width());
    let constants = random.elements(element, if fold == Fold::Dot { value.len() } else { 0 });
    let request = Reduce { fold, element, initial: &initial, constants: &constants };
    assert_eq!((request.validate(), request.validate_value(value.len())), (Ok(()), Ok(())));
    let (expected, _) = naive(&value, Operation::Reduce(request));

    let mut sum = initial.clone();
    reduce(fold, element, &mut sum, &value, &constants);
    assert_eq!(NaiveReply::Value(sum), expected, "SKEP_SEED={seed}: {request:?} of {value:?}");

    let mut sum = initial.clone();
    for piece in pieces(random, element, value.len()) {
        let constants = if fold == Fold::Dot { &constants[piece.clone()] } else { &[] };
        reduce(fold, element, &mut sum, &value[piece], constants);
    }
    assert_eq!(NaiveReply::Value(sum), expected, "SKEP_SEED={seed}: piecewise, {request:?} of {value:?}");
}

#[test]
fn filters_are_those_of_the_naive_store() {
    for seed in test_seeds() {
        let mut random = SplitMix64::new(seed);
        for element in Element::ALL {
            for predicate in Predicate::ALL {
                for _ in 0..ROUNDS {
                    check_filter(seed, &mut random, predicate, element);
                }
            }
        }
    }
}

fn check_filter(seed: u64, random: &mut SplitMix64, predicate: Predicate, element: Element) {
    let value = value(random, element);
    let operand = random.elements(element, if predicate == Predicate::NonZero { 0 } else { element.width() });
    let request = Filter { predicate, element, operand: &operand };
    assert_eq!((request.validate(), request.validate_value(value.len())), (Ok(()), Ok(())));
    let (expected, _) = naive(&value, Operation::Filter(request));
    let NaiveReply::Value(expected) = expected else { panic!("a valid filter was answered {expected:?}") };

    let mut whole = b"before".to_vec();
    filter(predicate, element, &operand, &value, &mut whole);
    assert_eq!(whole.strip_prefix(b"before"), Some(&expected[..]), "SKEP_SEED={seed}: {request:?} of {value:?}");

    let mut cut = Vec::new();
    for piece in pieces(random, element, value.len()) {
        filter(predicate, element, &operand, &value[piece], &mut cut);
    }
    assert_eq!(cut, expected, "SKEP_SEED={seed}: piecewise, {request:?} of {value:?}");
}

/// Callers validate; what slips through must still not panic or write elsewhere.
#[test]
fn invalid_arguments_change_no_element_without_operand() {
    let mut value = [1, 2, 3, 4, 5, 6, 7];
    update(UpdateFunction::Add, Element::U16, Shape::ScalarToVector, &[1], &mut value);
    update(UpdateFunction::CompareAndSwap, Element::U8, Shape::VectorToVector, &[1], &mut value);
    update(UpdateFunction::Add, Element::U64, Shape::ScalarToScalar, &[1; 8], &mut value);
    assert_eq!(value, [1, 2, 3, 4, 5, 6, 7]);
    update(UpdateFunction::Add, Element::U16, Shape::VectorToVector, &[1, 0, 1, 0], &mut value);
    assert_eq!(value, [2, 2, 4, 4, 5, 6, 7]);

    let mut sum = [1];
    reduce(Fold::Sum, Element::U16, &mut sum, &value, &[]);
    assert_eq!(sum, [1]);
    let mut passed = Vec::new();
    filter(Predicate::Equal, Element::U32, &[], &value, &mut passed);
    assert_eq!(passed, []);
}

/// Zeros of both signs and NaN meet too rarely in random values for what the documentation says of them.
#[test]
fn the_first_of_equal_zeros_stays_and_nan_is_not_chosen() {
    let signalling = f64::from_bits(0x7ff0_0000_0000_0001);
    for (sum, v) in [(0.0, -0.0), (-0.0, 0.0), (1.0, f64::NAN), (signalling, 1.0)] {
        for (fold, function) in [(Fold::Min, UpdateFunction::Min), (Fold::Max, UpdateFunction::Max)] {
            let mut folded = f64::to_le_bytes(sum);
            reduce(fold, Element::F64, &mut folded, &v.to_le_bytes(), &[]);
            assert_eq!(folded, sum.to_le_bytes(), "{fold:?} {sum} {v}");
            for shape in [Shape::ScalarToScalar, Shape::ScalarToVector, Shape::VectorToVector] {
                let mut updated = f64::to_le_bytes(sum);
                update(function, Element::F64, shape, &v.to_le_bytes(), &mut updated);
                assert_eq!(updated, sum.to_le_bytes(), "{function:?} {sum} {v}");
            }
        }
    }
}
