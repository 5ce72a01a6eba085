//! `BITOP`: values that are combined bit by bit.
//!
//! 1. Each source is read in parts. A part is folded into one value before the next part is read, so that no source is
//!    copied as a whole.
//! 2. That value is as long as the longest source. It is written to the new key, which is deleted if the value is empty.

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_wire::resp::ReplyWriter;

use super::course::{Course, Halt};
use super::environment::{Environment, SpaceKey};
use crate::resp_command::{BitFunction, Invocation};

impl BitFunction {
    /// Continues `BITOP`.
    pub(super) fn step(
        self,
        course: &mut Course,
        invocation: Invocation<'_>,
        environment: &mut Environment<'_, '_, '_>,
        writer: &mut ReplyWriter<'_>,
    ) -> Result<(), Halt> {
        let Invocation { arguments, space, .. } = invocation;
        let count = arguments.count() - 3;
        while course.next < count {
            let mut fold = Fold::new(self, course.next == 0, environment.buffer(&mut course.kept));
            let source = SpaceKey { space, key: arguments.get(3 + course.next) };
            let read = environment.read_value(source, |part| fold.add(part));
            match read {
                Ok(_) => fold.finish(),
                Err(halt) => {
                    if fold.has_begun() {
                        course.next = 0;
                        course.kept.clear();
                    }
                    return Err(halt);
                }
            }
            course.next += 1;
        }
        if !course.writes.is_open() {
            course.writes.begin(1);
        }
        let key = arguments.get(2);
        let operation = match &course.kept[..] {
            [] => Operation::Delete,
            value => Operation::Put { value, condition: PutCondition::Always },
        };
        environment.complete(&mut course.writes, |_| (space, Request { key, operation }))?;
        match course.writes.response(0) {
            Ok(Reply::Failed(error)) => Err(error.into()),
            _ => {
                writer.integer(course.kept.len() as i64);
                Ok(())
            }
        }
    }
}

/// A value that is folded into the one that is kept. The shorter one is followed by zeros.
struct Fold<'k> {
    function: BitFunction,
    is_first: bool,
    kept: &'k mut Vec<u8>,
    /// Bytes of the value that were folded.
    position: usize,
}

impl Fold<'_> {
    /// Begins the fold of a value, which `is_first` if nothing is kept.
    fn new(function: BitFunction, is_first: bool, kept: &mut Vec<u8>) -> Fold<'_> {
        Fold { function, is_first, kept, position: 0 }
    }

    /// Returns true if a part of the value was folded.
    fn has_begun(&self) -> bool {
        self.position > 0
    }

    /// Folds the next part of the value.
    fn add(&mut self, part: &[u8]) {
        let Fold { function, is_first, kept, position } = self;
        let (over, beyond) = part.split_at(part.len().min(kept.len() - *position));
        let common = &mut kept[*position..][..over.len()];
        match function {
            BitFunction::And => combine(common, over, |one, other| one & other),
            BitFunction::Or => combine(common, over, |one, other| one | other),
            BitFunction::Xor | BitFunction::Not => combine(common, over, |one, other| one ^ other),
        }
        let end = kept.len();
        match function {
            BitFunction::And if !*is_first => kept.resize(end + beyond.len(), 0),
            _ => kept.extend_from_slice(beyond),
        }
        if *function == BitFunction::Not {
            combine(&mut kept[end..], beyond, |_, other| !other);
        }
        *position += part.len();
    }

    /// Ends the fold after the last part.
    fn finish(self) {
        if self.function == BitFunction::And {
            self.kept[self.position..].fill(0);
        }
    }
}

/// Combines slices of the same length, a word at a time.
fn combine(kept: &mut [u8], others: &[u8], function: impl Fn(u64, u64) -> u64) {
    let ((words, rest), (other_words, other_rest)) = (kept.as_chunks_mut(), others.as_chunks());
    for (word, other) in words.iter_mut().zip(other_words) {
        *word = function(u64::from_ne_bytes(*word), u64::from_ne_bytes(*other)).to_ne_bytes();
    }
    for (byte, other) in rest.iter_mut().zip(other_rest) {
        *byte = function(u64::from(*byte), u64::from(*other)) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::{BitFunction, Fold};

    /// Combines two values bit by bit.
    fn expected(function: BitFunction, one: &[u8], other: &[u8]) -> Vec<u8> {
        let byte = |value: &[u8], index: usize| value.get(index).copied().unwrap_or(0);
        let both = (0..one.len().max(other.len())).map(|index| (byte(one, index), byte(other, index)));
        both.map(|(one, other)| match function {
            BitFunction::And => one & other,
            BitFunction::Or => one | other,
            BitFunction::Xor => one ^ other,
            BitFunction::Not => !one,
        })
        .collect()
    }

    #[test]
    fn values_of_all_lengths_are_combined_in_parts() {
        let values: Vec<Vec<u8>> = [0, 1, 7, 8, 9, 23, 24, 31]
            .map(|size: u8| (0..size).map(|index| index.wrapping_mul(97).wrapping_add(size * 5)).collect())
            .into();
        for (one, other) in values.iter().flat_map(|one| values.iter().map(move |other| (one, other))) {
            for part_size in [1, 5, 8, 16, 40] {
                for function in [BitFunction::And, BitFunction::Or, BitFunction::Xor, BitFunction::Not] {
                    let mut kept = Vec::new();
                    let sources = if function == BitFunction::Not { &[one][..] } else { &[one, other] };
                    for (index, source) in sources.iter().enumerate() {
                        let mut fold = Fold::new(function, index == 0, &mut kept);
                        source.chunks(part_size).for_each(|part| fold.add(part));
                        fold.finish();
                    }
                    let other = if function == BitFunction::Not { &[][..] } else { other };
                    assert_eq!(kept, expected(function, one, other), "{function:?} {one:?} {other:?} {part_size}");
                }
            }
        }
    }
}
