//! The frames that were freed last, for the next allocations of their sizes.
//!
//! ```text
//! free ─▶ 9 units   │ frame 70 │ frame 412 │          │ ─▶ allocate       the last one is used first
//!         10 units  │ frame 96 │           │          │
//! ```
//!
//! A merge mostly replaces a frame by one of its size. Then it takes a frame from the cache and another returns to it:
//! neither the map of a chunk nor its lists change, and the lines of the frame are probably in the processor's caches.

use super::super::memory::number::FRAME_UNITS_MAX;

/// The largest number of cached frames of one size. Between two allocations a part of the garbage is freed, mostly frames of a few sizes.
const FRAME_COUNT_MAX: usize = 16;

/// Frames of all sizes.
#[derive(Debug, Default)]
pub(super) struct FrameCache {
    by_size: [Frames; FRAME_UNITS_MAX],
    /// Units of all frames.
    units: u32,
}

/// Frames of one size, by their first units. The last one is used first.
#[derive(Clone, Copy, Debug, Default)]
struct Frames {
    numbers: [u32; FRAME_COUNT_MAX],
    count: usize,
}

impl FrameCache {
    /// Adds a frame. Returns false if there is no room.
    pub(super) fn push(&mut self, number: u32, units: usize) -> bool {
        let Frames { numbers, count } = &mut self.by_size[units - 1];
        let Some(slot) = numbers.get_mut(*count) else { return false };
        *slot = number;
        *count += 1;
        self.units += units as u32;
        true
    }

    /// Removes and returns a frame of this size.
    pub(super) fn pop(&mut self, units: usize) -> Option<u32> {
        let Frames { numbers, count } = &mut self.by_size[units - 1];
        let last = count.checked_sub(1)?;
        let number = *numbers.get(last)?;
        *count = last;
        self.units -= units as u32;
        Some(number)
    }

    /// Returns the units of all frames.
    pub(super) fn units(&self) -> u32 {
        self.units
    }

    /// Removes and returns a frame of any size, with its units.
    pub(super) fn pop_any(&mut self) -> Option<(u32, usize)> {
        if self.units == 0 {
            return None;
        }
        (1..=FRAME_UNITS_MAX).find_map(|units| Some((self.pop(units)?, units)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_that_was_freed_last_is_used_first() {
        let mut cache = FrameCache::default();
        assert_eq!((cache.pop(9), cache.pop_any()), (None, None));
        assert!((0..FRAME_COUNT_MAX as u32).all(|number| cache.push(number, 9)));
        assert!(!cache.push(99, 9) && cache.push(100, 16));
        assert_eq!((cache.pop(9), cache.pop(10), cache.pop(16)), (Some(FRAME_COUNT_MAX as u32 - 1), None, Some(100)));
        let rest: Vec<_> = std::iter::from_fn(|| cache.pop_any()).collect();
        assert_eq!((rest.len(), rest[0], cache.units), (FRAME_COUNT_MAX - 1, (FRAME_COUNT_MAX as u32 - 2, 9), 0));
    }
}
