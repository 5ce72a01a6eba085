//! Folds integer additions to one key into one operation, so that a hot counter does not fill the log.
//!
//! ```text
//! add a 1, add b 5, add a 1, put c 7, add a 1, put b 0     ▶     put c 7, add b 5, put b 0, add a 3
//! ```
//!
//! The writer of a block keeps additions in a table of 64 slots, by the hash of the key. An addition is written to the
//! block when
//! 1. another operation on its key is appended
//! 2. an addition to another key, or of another kind, needs its slot
//! 3. an operation of another space or time, a flush or an effect is appended, or the block is sealed
//!
//! **Which.** Updates of one integer by `Add`, and decimal additions. Both are of the same element and width. A sum of
//! decimal deltas that overflows is not folded.
//!
//! **Why replay has the same result.** Operations on one key keep their order. Those on other keys do not depend on it,
//! and a block is replayed whole or not at all. Additions of integers wrap, so they can be added in any order. A decimal
//! addition that took place did not overflow; so the value plus the sum is the last value, which is in range. The first
//! of the additions leaves the key in place, so only its initial value matters. It has not expired at the second one,
//! because both have the same time.
//!
//! **What it costs.** Nothing while there are no additions: then the table is empty, and an operation that is none is not
//! compared with it.

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, Request, Shape, Update};

/// Additions that may wait.
const SLOTS: usize = 64;

/// An addition that can be folded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addition {
    /// `None` for a decimal addition.
    element: Option<Element>,
    /// The operand, or the sum of several, in its low bytes.
    sum: u64,
    initial: Option<[u8; 8]>,
    return_old: bool,
}

/// The additions that wait.
#[derive(Debug, Default)]
pub(crate) struct Additions {
    /// Space and time of all of them.
    pub(crate) section: (u16, u64),
    /// One bit for each slot that is in use.
    used: u64,
    slots: Vec<Waiting>,
}

/// An addition that waits in a slot.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    key: Vec<u8>,
    addition: Option<Addition>,
}

fn low_bytes(bytes: &[u8]) -> [u8; 8] {
    let mut low = [0; 8];
    low[..bytes.len()].copy_from_slice(bytes);
    low
}

impl Addition {
    /// Returns false if the request is surely no addition.
    #[inline]
    pub(crate) fn is_possible(request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Update(_) | Operation::AddDecimal { .. })
    }

    /// Returns the addition, if it is one that can be folded.
    pub(crate) fn of(request: &Request<'_>) -> Option<Self> {
        match request.operation {
            Operation::AddDecimal { delta } => {
                Some(Addition { element: None, sum: delta as u64, initial: None, return_old: false })
            }
            Operation::Update(Update {
                function: UpdateFunction::Add,
                element,
                shape: Shape::ScalarToScalar,
                operand,
                initial,
                return_old,
            }) if is_integer(element)
                && operand.len() == element.width()
                && initial.is_none_or(|initial| initial.len() == element.width()) =>
            {
                let sum = u64::from_le_bytes(low_bytes(operand));
                Some(Addition { element: Some(element), sum, initial: initial.map(low_bytes), return_old })
            }
            _ => None,
        }
    }
}

impl Waiting {
    /// Calls `push` with the addition.
    pub(crate) fn with_request<R>(&self, push: impl FnOnce(&Request<'_>) -> R) -> R {
        let Addition { element, sum, initial, return_old } = self.addition.expect("a slot that is in use");
        let sum_bytes = sum.to_le_bytes();
        let operation = match element {
            None => Operation::AddDecimal { delta: sum as i64 },
            Some(element) => Operation::Update(Update {
                function: UpdateFunction::Add,
                element,
                shape: Shape::ScalarToScalar,
                operand: &sum_bytes[..element.width()],
                initial: initial.as_ref().map(|initial| &initial[..element.width()]),
                return_old,
            }),
        };
        push(&Request { key: &self.key, operation })
    }
}

impl Additions {
    /// Returns true if no addition waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the slot of a key.
    pub(crate) fn slot(key: &[u8]) -> usize {
        let size = key.len().min(8);
        let [head, tail] = [&key[..size], &key[key.len() - size..]].map(|part| u64::from_le_bytes(low_bytes(part)));
        ((head ^ tail.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % SLOTS
    }

    /// Returns the first slot that is in use.
    pub(crate) fn first(&self) -> Option<usize> {
        (self.used != 0).then(|| self.used.trailing_zeros() as usize)
    }

    /// Returns true if the slot has an addition to this key.
    pub(crate) fn is_of(&self, slot: usize, key: &[u8]) -> bool {
        self.used & (1 << slot) != 0 && self.slots[slot].key == key
    }

    /// Adds to the addition in the slot. Returns false, and changes nothing, if it is of another key or kind, or if the
    /// sum would overflow.
    pub(crate) fn fold(&mut self, slot: usize, key: &[u8], addition: Addition) -> bool {
        if !self.is_of(slot, key) {
            return false;
        }
        let waiting = self.slots[slot].addition.as_mut().expect("a slot that is in use");
        let sum = match addition.element {
            None => (waiting.sum as i64).checked_add(addition.sum as i64).map(|sum| sum as u64),
            Some(_) => Some(waiting.sum.wrapping_add(addition.sum)),
        };
        match sum {
            Some(sum) if waiting.element == addition.element => {
                waiting.sum = sum;
                true
            }
            _ => false,
        }
    }

    /// Puts an addition into a slot that is not in use.
    pub(crate) fn insert(&mut self, slot: usize, key: &[u8], addition: Addition) {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, Waiting::default);
        }
        let waiting = &mut self.slots[slot];
        waiting.key.clear();
        waiting.key.extend_from_slice(key);
        waiting.addition = Some(addition);
        self.used |= 1 << slot;
    }

    /// Removes the addition of a slot.
    pub(crate) fn take(&mut self, slot: usize) -> Option<Waiting> {
        if self.used & (1 << slot) == 0 {
            return None;
        }
        self.used &= !(1 << slot);
        Some(std::mem::take(&mut self.slots[slot]))
    }

    /// Takes back the memory of an addition that was removed.
    pub(crate) fn give_back(&mut self, slot: usize, waiting: Waiting) {
        self.slots[slot] = waiting;
    }
}

fn is_integer(element: Element) -> bool {
    !matches!(element, Element::F32 | Element::F64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use skep_core::operation::PutCondition;

    use super::*;
    use crate::tests::Random;
    use crate::{BlockView, BlockWriter, Section};

    /// Executes a request on a map. Returns false if it does not take place.
    fn execute(pairs: &mut BTreeMap<Vec<u8>, Vec<u8>>, request: &Request<'_>) -> bool {
        let old = pairs.get(request.key);
        let new = match request.operation {
            Operation::Put { value, .. } => value.to_vec(),
            Operation::AddDecimal { delta } => {
                let old = old.map_or("0", |value| std::str::from_utf8(value).unwrap_or_default());
                let sum = old.parse().ok().and_then(|old: i64| old.checked_add(delta));
                let Some(sum) = sum else { return false };
                sum.to_string().into_bytes()
            }
            Operation::Update(Update { element, operand, initial, .. }) => {
                let Some(old) = old.map(Vec::as_slice).or(initial).filter(|old| old.len() == element.width()) else {
                    return false;
                };
                let [old, delta] = [old, operand].map(|bytes| u64::from_le_bytes(low_bytes(bytes)));
                old.wrapping_add(delta).to_le_bytes()[..element.width()].to_vec()
            }
            _ => return pairs.remove(request.key).is_some(),
        };
        pairs.insert(request.key.to_vec(), new);
        true
    }

    /// Appends operations, and compares the state after a replay. Returns the operations before and after the fold.
    fn check(random: &mut Random) -> (usize, usize) {
        let mut writer = BlockWriter::new();
        let (mut pairs, mut replayed) = (BTreeMap::new(), BTreeMap::new());
        let (mut appended, mut folded) = (0, 0);
        for number in 0..300 {
            let key = (random.below(30) as u64).to_le_bytes();
            let key = &key[..1 + random.below(2)];
            let near_the_end = if random.once_in(4) { i64::MAX / 3 } else { 0 };
            let operand = (near_the_end + random.below(9) as i64 - 4).to_le_bytes();
            let elements = [Element::U8, Element::I16, Element::I64];
            let element = elements[random.below(3)];
            let operation = match random.below(40) {
                0 => Operation::Put { value: b"70", condition: PutCondition::Always },
                1 => Operation::Delete,
                2..20 => Operation::AddDecimal { delta: i64::from_le_bytes(operand) },
                _ => Operation::Update(Update {
                    function: UpdateFunction::Add,
                    element,
                    shape: Shape::ScalarToScalar,
                    operand: &operand[..element.width()],
                    initial: random.once_in(2).then_some(&[7; 8][..element.width()]),
                    return_old: random.once_in(2),
                }),
            };
            let request = Request { key, operation };
            if execute(&mut pairs, &request) {
                assert!(writer.append(0, u64::from(number > 200), &request));
                appended += 1;
            }
            if random.once_in(150) {
                writer.append_effect(1, 1, &request);
            }
        }
        let block = writer.seal(0).unwrap();
        let (view, _) = BlockView::decode(1, block.bytes()).unwrap();
        for section in view.sections() {
            let Section::Operations { operations, .. } = section else { continue };
            folded += operations.len();
            operations.for_each(|request| assert!(execute(&mut replayed, &request.unwrap())));
        }
        assert_eq!(replayed, pairs);
        (appended, folded)
    }

    #[test]
    fn folded_additions_have_the_same_result() {
        let (mut appended, mut folded) = (0, 0);
        for seed in 0..2000 {
            let counts = check(&mut Random(seed));
            (appended, folded) = (appended + counts.0, folded + counts.1);
        }
        assert!(folded < appended * 9 / 10, "{folded} of {appended}");
    }

    #[test]
    fn a_hot_key_takes_few_bytes() {
        let mut writer = BlockWriter::new();
        let mut add = |operand: &[u8]| {
            let update = Update {
                function: UpdateFunction::Add,
                element: Element::U64,
                shape: Shape::ScalarToScalar,
                operand,
                initial: None,
                return_old: true,
            };
            assert!(writer.append(0, 1, &Request { key: b"hot", operation: Operation::Update(update) }));
        };
        (0..1000_u64).map(u64::to_le_bytes).for_each(|operand| add(&operand));
        let block = writer.seal(0).unwrap();
        assert!(block.bytes().len() < 100, "{}", block.bytes().len());
    }
}
