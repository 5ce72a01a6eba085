//! Divides a node into segments of similar size, with few enough items and boundary keys that fit (Honeycomb, section
//! 3.4).

use super::shortcut::{BOUNDARIES_SIZE_MAX, END_SIZE, SEGMENT_COUNT_MAX};

/// The first entry of each segment; that of the first segment is entry 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    firsts: [u16; SEGMENT_COUNT_MAX],
    segment_count: usize,
    entry_count: usize,
}

/// The limits of a kind of node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    /// The size of a segment to aim at, in the unit in which entries are measured.
    pub(crate) goal: usize,
    /// Most entries of a segment.
    pub(crate) entry_count_max: usize,
}

impl Division {
    /// Divides entries of these sizes and keys. Returns `None` if they do not fit one node.
    pub(crate) fn new(
        entry_count: usize,
        measure: Measure,
        entry_size: impl Fn(usize) -> usize,
        key_size: impl Fn(usize) -> usize,
    ) -> Option<Self> {
        let mut division = Division { firsts: [0; SEGMENT_COUNT_MAX], segment_count: 1, entry_count };
        let sizes = |entry| (entry_size(entry), key_size(entry));
        let add = |(size, key): (usize, usize), entry: (usize, usize)| (size + entry.0, key + entry.1);
        let (total, keys) = (0..entry_count).map(sizes).fold((0, 0), add);
        // As many boundary keys as fit if they have the average size.
        let boundary_count_max = BOUNDARIES_SIZE_MAX * entry_count / (keys + END_SIZE * entry_count).max(1);
        let wanted = (total / measure.goal).max(entry_count.div_ceil(measure.entry_count_max)).max(1);
        let segment_count = wanted.min(boundary_count_max + 1).min(SEGMENT_COUNT_MAX);
        // Sizes are multiplied by the number of segments, so that nothing has to be divided.
        let (mut size, mut boundaries, mut of_segment) = (0, 0, 0);
        for entry in 0..entry_count {
            let is_full = of_segment == measure.entry_count_max;
            let is_due = division.segment_count < segment_count && size >= total * division.segment_count && entry > 0;
            if is_full || is_due {
                let boundary = END_SIZE + key_size(entry);
                let has_room =
                    division.segment_count < SEGMENT_COUNT_MAX && boundaries + boundary <= BOUNDARIES_SIZE_MAX;
                if has_room {
                    boundaries += boundary;
                    division.firsts[division.segment_count] = entry as u16;
                    division.segment_count += 1;
                    of_segment = 0;
                } else if is_full {
                    return None;
                }
            }
            of_segment += 1;
            size += entry_size(entry) * segment_count;
        }
        Some(division)
    }

    pub(crate) fn segment_count(&self) -> usize {
        self.segment_count
    }

    /// Returns the first entry of a segment.
    pub(crate) fn first(&self, segment: usize) -> usize {
        usize::from(self.firsts[segment])
    }

    /// Returns the entries of a segment.
    pub(crate) fn entries(&self, segment: usize) -> std::ops::Range<usize> {
        let end = if segment + 1 < self.segment_count { self.first(segment + 1) } else { self.entry_count };
        self.first(segment)..end
    }
}

/// Returns the index at which to divide entries of these sizes in two, neither part empty.
pub(crate) fn middle_of(sizes: impl ExactSizeIterator<Item = usize> + Clone) -> usize {
    let (count, total) = (sizes.len(), sizes.clone().sum::<usize>());
    let mut size = 0;
    let middle = sizes.take_while(|entry| {
        size += entry;
        2 * size <= total
    });
    middle.count().clamp(1, count - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURE: Measure = Measure { goal: 320, entry_count_max: 16 };

    #[test]
    fn segments_of_similar_size() {
        let division = Division::new(200, MEASURE, |_| 33, |_| 16).unwrap();
        assert_eq!(division.segment_count(), 20);
        for segment in 0..20 {
            assert_eq!(division.entries(segment).len(), 10);
        }
    }

    #[test]
    fn no_entries_are_one_segment() {
        let division = Division::new(0, MEASURE, |_| 0, |_| 0).unwrap();
        assert_eq!((division.segment_count(), division.entries(0)), (1, 0..0));
    }

    #[test]
    fn long_keys_have_no_boundary() {
        let fits = |count| Division::new(count, MEASURE, |_| 460, |_| 460);
        assert_eq!(fits(16).unwrap().segment_count(), 1);
        assert_eq!(fits(17), None);
    }

    #[test]
    fn many_small_entries_need_another_node() {
        assert!(Division::new(16 * 21, MEASURE, |_| 2, |_| 2).is_some());
        assert_eq!(Division::new(16 * 21 + 1, MEASURE, |_| 2, |_| 2), None);
    }
}
