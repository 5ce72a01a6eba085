//! Lists of chunks. A chunk is in one list at most; it is inserted and removed in a few steps.
//!
//! ```text
//! group 0   list 0 ─▶ chunk 7 ─▶ chunk 3        filled: one bit for each list of a group that has a chunk
//!           list 1
//!           list 2 ─▶ chunk 5
//! ```
//!
//! A chunk is inserted at either end of its list; the first of a list is used next.

/// Lists of a group.
pub(super) const LISTS: usize = 32;

const NONE: u32 = u32::MAX;

/// The lists of all groups.
#[derive(Debug)]
pub(super) struct Lists {
    ends: Vec<Ends>,
    filled: Vec<u32>,
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    /// The list that the chunk is in, counted over all groups.
    list: u32,
    before: u32,
    after: u32,
}

impl Lists {
    /// Creates empty lists for chunks that are added later.
    pub(super) fn new(group_count: usize, chunk_count: usize) -> Self {
        Lists {
            ends: vec![Ends { first: NONE, last: NONE }; group_count * LISTS],
            filled: vec![0; group_count],
            links: Vec::with_capacity(chunk_count),
        }
    }

    /// Adds a chunk, which is in no list yet. Chunks are numbered in the order in which they are added.
    pub(super) fn add(&mut self) {
        self.links.push(Link { list: NONE, before: NONE, after: NONE });
    }

    /// Moves a chunk to a list of a group, or removes it from all. It keeps its position if it is in this list already.
    pub(super) fn put(&mut self, chunk: u32, list: Option<(usize, usize)>, is_last: bool) {
        let list = list.map_or(NONE, |(group, list)| (group * LISTS + list) as u32);
        let link = self.links[chunk as usize];
        if link.list == list {
            return;
        }
        if link.list != NONE {
            self.take(link);
        }
        let (mut before, mut after) = (NONE, NONE);
        if list != NONE {
            let ends = &mut self.ends[list as usize];
            if is_last {
                before = std::mem::replace(&mut ends.last, chunk);
            } else {
                after = std::mem::replace(&mut ends.first, chunk);
            }
            match (before, after) {
                (NONE, NONE) => *ends = Ends { first: chunk, last: chunk },
                (NONE, after) => self.links[after as usize].before = chunk,
                (before, _) => self.links[before as usize].after = chunk,
            }
            self.filled[list as usize / LISTS] |= 1 << (list as usize % LISTS);
        }
        self.links[chunk as usize] = Link { list, before, after };
    }

    /// Returns the lowest list of a group, from `low` on, that has a chunk.
    pub(super) fn lowest(&self, group: usize, low: usize) -> Option<usize> {
        let filled = self.filled[group] & u32::MAX.checked_shl(low as u32).unwrap_or(0);
        (filled != 0).then(|| filled.trailing_zeros() as usize)
    }

    /// Returns the highest list of a group that has a chunk.
    pub(super) fn highest(&self, group: usize) -> Option<usize> {
        self.filled[group].checked_ilog2().map(|list| list as usize)
    }

    /// Returns the first chunk of a list.
    pub(super) fn first(&self, group: usize, list: usize) -> Option<u32> {
        let first = self.ends[group * LISTS + list].first;
        (first != NONE).then_some(first)
    }

    /// Returns the next chunk of its list.
    pub(super) fn after(&self, chunk: u32) -> Option<u32> {
        let after = self.links[chunk as usize].after;
        (after != NONE).then_some(after)
    }

    /// Returns the list that a chunk is in.
    pub(super) fn list_of(&self, chunk: u32) -> Option<(usize, usize)> {
        let list = self.links[chunk as usize].list;
        (list != NONE).then_some((list as usize / LISTS, list as usize % LISTS))
    }

    fn take(&mut self, Link { list, before, after }: Link) {
        match before {
            NONE => self.ends[list as usize].first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.ends[list as usize].last = before,
            after => self.links[after as usize].before = before,
        }
        if self.ends[list as usize].first == NONE {
            self.filled[list as usize / LISTS] &= !(1 << (list as usize % LISTS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(lists: &Lists, group: usize, list: usize) -> Vec<u32> {
        std::iter::successors(lists.first(group, list), |chunk| lists.after(*chunk)).collect()
    }

    #[test]
    fn chunks_are_in_the_lists_that_they_were_put_in() {
        let mut lists = Lists::new(2, 4);
        (0..4).for_each(|_| lists.add());
        (0..4).for_each(|chunk| lists.put(chunk, Some((1, 5)), true));
        assert_eq!(chunks(&lists, 1, 5), [0, 1, 2, 3]);
        lists.put(1, Some((1, 9)), true);
        lists.put(3, Some((0, 9)), true);
        lists.put(0, None, true);
        assert_eq!(chunks(&lists, 1, 5), [2]);
        assert_eq!((lists.list_of(0), lists.list_of(1), lists.list_of(3)), (None, Some((1, 9)), Some((0, 9))));
        assert_eq!((lists.lowest(1, 0), lists.lowest(1, 6), lists.lowest(1, 10)), (Some(5), Some(9), None));
        assert_eq!((lists.highest(1), lists.highest(0)), (Some(9), Some(9)));
        lists.put(2, Some((1, 5)), true);
        assert_eq!(chunks(&lists, 1, 5), [2], "it stays where it is");
        lists.put(0, Some((1, 5)), false);
        lists.put(3, Some((1, 5)), true);
        lists.put(1, Some((1, 5)), false);
        assert_eq!(chunks(&lists, 1, 5), [1, 0, 2, 3]);
        lists.put(0, None, false);
        [1, 2, 3].into_iter().for_each(|chunk| lists.put(chunk, None, true));
        assert_eq!((lists.highest(0), lists.highest(1)), (None, None));
    }
}
