//! The part of a value that a command touches, if it does not touch all of it.
//!
//! ```text
//!   GETRANGE k -100 -1             100 bytes             SETRANGE k 5000 v       v, and what k grows by
//!   BITCOUNT k 0 99, BITPOS k 1 5  the bytes of the range    DEL k               the slabs, which are freed
//! ```
//!
//! The length of the value may be a bound of it, because commands before may change the value. So a range has as many
//! bytes as it has of any value that is not longer.

use skep_core::operation::VALUE_SIZE_MAX;

use super::Arguments;
use super::table::CommandName;
use crate::vocabulary::Space;

/// The part of a value that a command touches.
#[derive(Debug)]
pub(super) struct Part {
    /// Its bytes.
    pub(super) size: usize,
    /// The length that the value has afterwards at least.
    pub(super) grows_to: usize,
    /// Bytes by which the value grows in any case.
    pub(super) growth: usize,
    /// The value may be shorter afterwards, or missing.
    pub(super) is_replaced: bool,
}

impl CommandName {
    /// Returns the part of a value that the command touches, unless it touches the whole value, which is at most `length`
    /// bytes long. Writes touch parts in the hash space only. `end` is the length that the value has afterwards at least.
    pub(super) fn part_touched(
        self,
        end: usize,
        arguments: Arguments<'_>,
        space: Space,
        length: usize,
    ) -> Option<Part> {
        use CommandName as N;
        let size = |index: usize| if index < arguments.count() { arguments.get(index).len() } else { 0 };
        let part = Part { size: 0, grows_to: 0, growth: 0, is_replaced: false };
        let read = match self {
            N::GetBit => Some(1),
            N::GetRange | N::SubStr => Some(range_size(arguments, 2, length)),
            N::BitCount => Some(bit_range_size(arguments, 2, length)),
            N::BitPos => Some(bit_range_size(arguments, 3, length)),
            _ => None,
        };
        if let Some(size) = read {
            return Some(Part { size, ..part });
        }
        if space != Space::Hash {
            return None;
        }
        let part = Part { grows_to: end, ..part };
        Some(match self {
            N::SetBit => Part { size: 1, ..part },
            N::SetRange => Part { size: size(3), ..part },
            N::Append => Part { size: size(2), grows_to: 0, growth: size(2), ..part },
            // Fields may be anywhere before the end.
            N::BitField => Part { size: 2 * end.min(VALUE_SIZE_MAX), ..part },
            // Slabs are freed, if the key is gone.
            N::Del | N::Unlink | N::Expire | N::PExpire | N::ExpireAt | N::PExpireAt | N::Persist => {
                Part { size: length / 4, is_replaced: true, ..part }
            }
            _ => return None,
        })
    }
}

/// Returns the most bytes of the range that the arguments from an index on name, of a value that is not longer than this.
pub(super) fn range_size(arguments: Arguments<'_>, index: usize, length: usize) -> usize {
    let position = |index| if index < arguments.count() { arguments.integer(index) } else { None };
    match (position(index), position(index + 1)) {
        (Some(start), Some(end)) => positions_between(start, end, length),
        // Without an end, the range has the rest.
        (Some(start), None) if index + 1 >= arguments.count() => positions_between(start, -1, length),
        _ => length,
    }
}

/// The same of a range that is in bits if a word after it says so.
fn bit_range_size(arguments: Arguments<'_>, index: usize, length: usize) -> usize {
    let (unit, count) = (index + 2, arguments.count());
    if unit >= count || !arguments.is(unit, "BIT") {
        return range_size(arguments, index, length);
    }
    // The first bit and the last one may be within a byte.
    range_size(arguments, index, 8 * length).div_ceil(8).saturating_add(1).min(length)
}

/// Returns the most positions from `start` to `end` of a list that is not longer than this. Negative ones count from its
/// end; those before the beginning are the first one.
fn positions_between(start: i64, end: i64, length: usize) -> usize {
    let longest = i64::try_from(length).unwrap_or(i64::MAX);
    let most = match (start, end) {
        (0.., 0..) | (..0, ..0) => end.saturating_sub(start).saturating_add(1),
        (0.., ..0) => longest.saturating_add(end).saturating_sub(start).saturating_add(1),
        (..0, 0..) => end.saturating_add(1).min(start.saturating_neg()),
    };
    usize::try_from(most.max(1)).unwrap_or(usize::MAX).min(length)
}

#[cfg(test)]
mod tests {
    use super::positions_between;

    /// Counts the positions as Redis does, for every length up to the longest.
    fn most_of_all(start: i64, end: i64, longest: i64) -> usize {
        let of = |length: i64| {
            let position = |at: i64| if at < 0 { (length + at).max(0) } else { at };
            let (start, end) = (position(start), position(end).min(length - 1));
            (end - start + 1).max(0)
        };
        (1..=longest).map(of).max().unwrap_or(0) as usize
    }

    #[test]
    fn a_range_is_as_long_as_that_of_any_shorter_value() {
        for longest in 0..12 {
            for (start, end) in (-14..15).flat_map(|start| (-14..15).map(move |end| (start, end))) {
                let (bound, most) = (positions_between(start, end, longest as usize), most_of_all(start, end, longest));
                assert!(bound >= most, "{start} to {end} of {longest}: {bound}, and there are {most}");
                // One that may be empty, or begins before the value, may count as more.
                let is_within = (-longest..0).contains(&start);
                assert!(bound <= most.max(1) || !is_within, "{start} to {end} of {longest}: {bound} for {most}");
            }
        }
        assert_eq!(positions_between(-100, -1, 1 << 20), 100);
        assert_eq!(positions_between(1 << 19, (1 << 19) + 9, 1 << 20), 10);
        assert_eq!(positions_between(i64::MIN, i64::MAX, 7), 7);
    }
}
