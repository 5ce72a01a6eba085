//! The cache of interior nodes in NIC DRAM (Honeycomb, section 5).
//!
//! ```text
//! LID ─▶ set ─▶ 4 entries: LID, frame, a bit for each 256 B     metadata: some sets on the chip, all in NIC DRAM
//!                    └▶ 8 KiB of NIC DRAM                       data
//! ```
//!
//! This file decides what is where; the time that it takes is decided by [`super::memory`]. A miss of a header makes room
//! for its node, in the place of a random one of the set. A miss of a segment fills it into a node that is there.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::card::CacheSizes;

/// A node in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    node: u32,
    /// A bit for each chunk that was filled.
    chunks: u32,
}

/// The metadata of all sets, and which of them are on the chip.
#[derive(Debug)]
pub struct Cache {
    sets: Vec<Vec<Entry>>,
    ways: usize,
    chunk_bytes: u32,
    /// The set whose metadata each part of the chip's memory has, and whether it has changed there.
    on_chip: Vec<OnChip>,
    random: Xoshiro256PlusPlus,
}

#[derive(Clone, Copy, Debug, Default)]
struct OnChip {
    set: Option<u32>,
    is_changed: bool,
}

/// Accesses of NIC DRAM for the metadata of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataTraffic {
    /// True if they were not on the chip.
    pub is_read: bool,
    /// True if those of another set, which had changed, made room.
    pub is_written: bool,
}

/// The effect of a fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// True if the bytes are in the cache now.
    pub is_kept: bool,
    /// Accesses for the metadata of the set.
    pub metadata: MetadataTraffic,
}

impl Cache {
    /// Returns an empty cache of another size. Returns `None` if it has no room for a set.
    pub fn new(sizes: &CacheSizes, mib: f64, seed: u64) -> Option<Self> {
        let entries = CacheSizes { size_mib: mib, ..sizes.clone() }.entries();
        let sets = usize::try_from(entries / u64::from(sizes.ways)).expect("the sets fit into memory");
        let on_chip = (sizes.metadata_on_chip / sizes.ways).max(1) as usize;
        (sets > 0).then(|| Cache {
            sets: vec![Vec::new(); sets],
            ways: sizes.ways as usize,
            chunk_bytes: sizes.chunk_bytes,
            on_chip: vec![OnChip::default(); on_chip.min(sets)],
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        })
    }

    /// Loads the metadata of a node's set to the chip. Returns the accesses that this takes.
    pub fn load_metadata(&mut self, node: u32) -> MetadataTraffic {
        let set = node % self.sets.len() as u32;
        let part = self.part_of(set);
        let on_chip = &mut self.on_chip[part];
        if on_chip.set == Some(set) {
            return MetadataTraffic::default();
        }
        let is_written = on_chip.is_changed;
        *on_chip = OnChip { set: Some(set), is_changed: false };
        MetadataTraffic { is_read: true, is_written }
    }

    /// Returns true if all these bytes of a node are cached.
    pub fn has(&self, node: u32, offset: u32, bytes: u32) -> bool {
        let wanted = self.chunks(offset, bytes);
        self.set_of(node).iter().any(|entry| entry.node == node && entry.chunks & wanted == wanted)
    }

    /// Fills bytes that were fetched from the host. `allocates` is true for a header. Loads the metadata again if those
    /// of another set have taken their place on the chip while the bytes were fetched.
    pub fn fill(&mut self, node: u32, offset: u32, bytes: u32, allocates: bool) -> Filled {
        let metadata = self.load_metadata(node);
        let (chunks, ways) = (self.chunks(offset, bytes), self.ways);
        let index = node as usize % self.sets.len();
        let set = &mut self.sets[index];
        let is_kept = if let Some(entry) = set.iter_mut().find(|entry| entry.node == node) {
            entry.chunks |= chunks;
            true
        } else if allocates && set.len() < ways {
            set.push(Entry { node, chunks });
            true
        } else if allocates {
            set[self.random.random_range(0..ways)] = Entry { node, chunks };
            true
        } else {
            false
        };
        let part = self.part_of(index as u32);
        self.on_chip[part].is_changed |= is_kept;
        Filled { is_kept, metadata }
    }

    /// Removes a node whose entry of the page table has changed. Returns the accesses for the metadata of its set.
    pub fn remove(&mut self, node: u32) -> MetadataTraffic {
        let metadata = self.load_metadata(node);
        let index = node as usize % self.sets.len();
        let before = self.sets[index].len();
        self.sets[index].retain(|entry| entry.node != node);
        let part = self.part_of(index as u32);
        self.on_chip[part].is_changed |= self.sets[index].len() < before;
        metadata
    }

    /// Returns the bytes of the chunks that contain these bytes: their offset and their number.
    pub fn whole_chunks(&self, offset: u32, bytes: u32) -> (u32, u32) {
        let start = offset / self.chunk_bytes * self.chunk_bytes;
        (start, (offset + bytes).next_multiple_of(self.chunk_bytes) - start)
    }

    fn chunks(&self, offset: u32, bytes: u32) -> u32 {
        let (first, end) = (offset / self.chunk_bytes, (offset + bytes).div_ceil(self.chunk_bytes));
        (first..end).fold(0, |chunks, chunk| chunks | 1 << chunk)
    }

    fn set_of(&self, node: u32) -> &[Entry] {
        &self.sets[node as usize % self.sets.len()]
    }

    fn part_of(&self, set: u32) -> usize {
        set as usize % self.on_chip.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::card::HoneycombCard;
    use super::*;

    fn cache(entries: u64, metadata_on_chip: u32) -> Cache {
        let card = HoneycombCard::of_the_paper();
        let sizes = CacheSizes { metadata_on_chip, ..card.cache };
        Cache::new(&sizes, entries as f64 * 8192.0 / f64::from(1 << 20), 1).expect("it has room")
    }

    #[test]
    fn a_header_makes_room_and_a_segment_does_not() {
        let mut cache = cache(8, 8);
        assert!(!cache.has(5, 0, 512) && !cache.fill(5, 1024, 192, false).is_kept, "its node is not there");
        assert!(cache.fill(5, 0, 512, true).is_kept && cache.has(5, 0, 512) && !cache.has(5, 1024, 192));
        assert!(cache.fill(5, 1024, 192, false).is_kept && cache.has(5, 1024, 192) && cache.has(5, 1024, 256));
        assert!(!cache.has(5, 1024, 257) && !cache.has(5, 1023, 2));
        assert_eq!(cache.whole_chunks(1030, 192), (1024, 256));
        assert_eq!(cache.whole_chunks(1100, 192), (1024, 512));
    }

    #[test]
    fn a_node_that_has_moved_is_removed() {
        let mut cache = cache(8, 8);
        assert!(cache.fill(1, 0, 512, true).is_kept && cache.fill(3, 0, 512, true).is_kept);
        cache.remove(3);
        assert!(cache.has(1, 0, 512) && !cache.has(3, 0, 512));
        assert!(!cache.fill(3, 1024, 192, false).is_kept, "its header makes room again");
    }

    #[test]
    fn a_full_set_loses_one_of_its_nodes() {
        let mut cache = cache(8, 8);
        // Two sets of four ways; these five nodes belong to one.
        for node in [1, 3, 5, 7, 9] {
            assert!(cache.fill(node, 0, 512, true).is_kept);
        }
        assert!(cache.has(9, 0, 512));
        assert_eq!([1, 3, 5, 7].iter().filter(|node| cache.has(**node, 0, 512)).count(), 3);
    }

    #[test]
    fn metadata_is_read_if_it_is_not_on_the_chip_and_written_if_it_has_changed() {
        let mut cache = cache(64, 4);
        let traffic = |is_read, is_written| MetadataTraffic { is_read, is_written };
        assert_eq!(cache.load_metadata(1), traffic(true, false));
        assert_eq!(cache.load_metadata(1), traffic(false, false));
        assert_eq!(cache.load_metadata(17), traffic(false, false), "the same set");
        cache.fill(17, 0, 512, true);
        assert_eq!(cache.load_metadata(2), traffic(true, true));
        let filled = cache.fill(1, 0, 512, true);
        assert_eq!(filled, Filled { is_kept: true, metadata: traffic(true, false) }, "set 2 was there");
        assert_eq!(cache.load_metadata(2), traffic(true, true), "a fill changes the metadata");
        let card = HoneycombCard::of_the_paper();
        assert!(Cache::new(&card.cache, 0.0, 1).is_none(), "no cache");
    }
}
