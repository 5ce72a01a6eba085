//! The hash tables that Figure 11 compares with KV-Direct. They are built over [`Memory`], so that their accesses are
//! counted and not assumed. [`cuckoo`] is the bucketed cuckoo hashing of MemC3, [`hopscotch`] the chained associative
//! hopscotch hashing of FaRM.
//!
//! As the paper assumes (section 5.1.1), keys are inline, and values are in a separate memory and identified by a
//! number. Keys have 8 bytes, and all values of a table have one size. The tables have only the operations of the
//! figure, GET and PUT. Nothing is removed.
//!
//! ```text
//! slot, 16 B   | key 8 B | value 4 B | link 4 B |      value: its number plus one, 0 for a free slot
//!                                                      link: the key's tag (cuckoo), the overflow chain (hopscotch)
//! memory       | slots, 4 for each line | overflow slots, a unit each | values, a number of units each |
//! ```
//!
//! A pointer of [`Memory`] addresses 32 bytes, so a value or an overflow slot takes at least 32 bytes here. Callers
//! calculate utilizations as if values were packed, as the paper must have: 10 B pairs with values in slabs of 32 B
//! would end at 21 %.

pub mod cuckoo;
pub mod hopscotch;

use std::task::{Context, Poll, Waker};

use skep_store::memory::{LINE_SIZE, Memory, Pointer, RegionError, UNIT_SIZE};

/// Bytes of a slot.
pub const SLOT_SIZE: usize = 16;
/// Slots of a line.
pub const SLOTS_PER_LINE: usize = LINE_SIZE / SLOT_SIZE;
/// Slots of a unit, the smallest size that is written.
const SLOTS_PER_UNIT: usize = UNIT_SIZE / SLOT_SIZE;

const _: () = assert!(SLOTS_PER_LINE == 4 && SLOTS_PER_UNIT == 2);

/// The caller's knowledge about the key of a PUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The key may be present: the PUT searches every slot that could hold it.
    Unknown,
    /// The key is absent, as in a load phase: the PUT only searches for a free slot. The figure's PUTs are of this
    /// kind.
    New,
}

/// The result of a PUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The key was present and has the new value.
    Replaced,
    /// The key was inserted.
    Inserted {
        /// Number of other keys that were moved.
        moves: u32,
    },
    /// No free slot was found. Nothing has changed.
    Full,
}

/// One key and the number of its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    key: u64,
    value: u32,
    link: u32,
}

impl Slot {
    fn is_free(self) -> bool {
        self.value == 0
    }

    fn holds(self, key: u64) -> bool {
        !self.is_free() && self.key == key
    }
}

/// Decodes the slots in these bytes.
fn decode(bytes: &[u8]) -> impl Iterator<Item = Slot> + '_ {
    bytes.as_chunks::<SLOT_SIZE>().0.iter().map(|slot| {
        let half = |at: usize| u32::from_le_bytes([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]]);
        Slot { key: u64::from(half(0)) | u64::from(half(4)) << 32, value: half(8), link: half(12) }
    })
}

/// Encodes slots into bytes.
fn encode(slots: &[Slot], bytes: &mut [u8]) {
    for (slot, bytes) in slots.iter().zip(bytes.as_chunks_mut::<SLOT_SIZE>().0) {
        bytes[..8].copy_from_slice(&slot.key.to_le_bytes());
        bytes[8..12].copy_from_slice(&slot.value.to_le_bytes());
        bytes[12..].copy_from_slice(&slot.link.to_le_bytes());
    }
}

/// Values of one size, allocated one after the other.
#[derive(Debug)]
struct Values {
    first_unit: u32,
    units_each: u32,
    size: usize,
    count: u32,
    used: u32,
}

impl Values {
    /// Returns `count` values after the other units of a memory.
    ///
    /// # Errors
    /// If the memory has no room for them.
    fn new(memory: &impl Memory, first_unit: u64, size: usize, count: u32) -> Result<Self, RegionError> {
        let units_each = size.div_ceil(UNIT_SIZE) as u32;
        let size_min = (first_unit + u64::from(units_each) * u64::from(count)) * UNIT_SIZE as u64;
        if memory.size() < size_min {
            return Err(RegionError::TooSmall { size: memory.size(), size_min });
        }
        let first_unit = u32::try_from(first_unit).map_err(|_| RegionError::TooLarge { size: size_min })?;
        Ok(Values { first_unit, units_each, size, count, used: 0 })
    }

    fn is_exhausted(&self) -> bool {
        self.used == self.count
    }

    /// Writes a new value. Returns its number plus one.
    async fn add(&mut self, memory: &impl Memory, value: &[u8]) -> u32 {
        self.used += 1;
        self.replace(memory, self.used, value).await;
        self.used
    }

    /// Overwrites a value.
    async fn replace(&self, memory: &impl Memory, number: u32, value: &[u8]) {
        assert_eq!(value.len(), self.size, "a table has values of one size");
        memory.write(self.pointer(number).span(self.size), |bytes| bytes.copy_from_slice(value)).await;
    }

    /// Reads a value.
    async fn read(&self, memory: &impl Memory, number: u32) -> Vec<u8> {
        memory.read(self.pointer(number).span(self.size), <[u8]>::to_vec).await
    }

    fn pointer(&self, number: u32) -> Pointer {
        Pointer::new(self.first_unit + (number - 1) * self.units_each)
    }
}

/// Returns a hash of a key, calculated by the finisher of SplitMix64 (Steele, Lea and Flood, 2014).
fn hash(key: u64, seed: u64) -> u64 {
    let mut mixed = (key ^ seed.wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Maps a hash to a number below a limit.
fn below(hash: u64, limit: u64) -> u64 {
    ((u128::from(hash) * u128::from(limit)) >> 64) as u64
}

/// Runs one operation to its end, with no other operation in flight.
pub fn drive<T>(operation: impl Future<Output = T>) -> T {
    let mut operation = std::pin::pin!(operation);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = operation.as_mut().poll(&mut context) {
            return result;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::{Presence, Put};

    /// Puts a pair into a table.
    pub(super) type PutInto<T> = fn(&mut T, u64, &[u8], Presence) -> Put;

    /// Compares a table with a map, in `operation_count` random operations on `key_count` keys, until the table is
    /// full. Returns the number of keys in the table.
    pub(super) fn agrees_with_a_map<T>(
        table: &mut T,
        get: fn(&mut T, u64) -> Option<Vec<u8>>,
        put: PutInto<T>,
        operation_count: usize,
        key_count: u64,
        seed: u64,
    ) -> usize {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut map: HashMap<u64, [u8; 2]> = HashMap::new();
        let (mut refused, mut moved) = (0, 0);
        for _ in 0..operation_count {
            let (key, value) = (random.random_range(0..key_count), random.random::<u16>().to_le_bytes());
            if random.random_bool(0.3) {
                assert_eq!(get(table, key).as_deref(), map.get(&key).map(|value| &value[..]), "seed {seed}");
                continue;
            }
            let presence = if map.contains_key(&key) { Presence::Unknown } else { Presence::New };
            match put(table, key, &value, presence) {
                Put::Full => refused += 1,
                Put::Replaced => assert!(map.insert(key, value).is_some(), "seed {seed}"),
                Put::Inserted { moves } => {
                    assert!(map.insert(key, value).is_none(), "seed {seed}");
                    moved += moves;
                }
            }
        }
        assert!(refused > 0 && moved > 0, "seed {seed}: {refused} refused, {moved} moved");
        for (key, value) in &map {
            assert_eq!(get(table, *key).as_deref(), Some(&value[..]), "seed {seed}");
        }
        map.len()
    }

    /// Puts two keys into a table with one value: the second is refused, and the first can still be replaced.
    pub(super) fn is_full_with_one_key<T>(table: &mut T, put: PutInto<T>) {
        assert_eq!(put(table, 1, b"ab", Presence::New), Put::Inserted { moves: 0 });
        assert_eq!(put(table, 2, b"ab", Presence::New), Put::Full);
        assert_eq!(put(table, 1, b"cd", Presence::Unknown), Put::Replaced);
    }
}
