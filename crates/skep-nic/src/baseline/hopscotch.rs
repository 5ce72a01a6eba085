//! Chained associative hopscotch hashing as in FaRM (Dragojević and others, NSDI 2014, section 6.2). A key is within 6
//! slots of its home bucket, or in the overflow chain of its home bucket.
//!
//! ```text
//! home h   | h | h+1 | … | h+5 |            its neighbourhood, 96 adjacent bytes: one access
//!            └ link ─▶ | key | link ─▶ | key | …      overflow slots, one to a unit
//! ```
//!
//! If the neighbourhood of a new key is full, the put searches for a free slot after it, a line at a time. Then the
//! free slot hops towards the home bucket: keys that may use it are moved into it. If no free slot is near, or it
//! cannot hop far enough, the key is added to the chain. Nothing moves until all hops are known.

use skep_store::memory::{Memory, Pointer, RegionError, UNIT_SIZE};

use super::{Presence, Put, SLOT_SIZE, SLOTS_PER_LINE, SLOTS_PER_UNIT, Slot, Values, below, decode, encode, hash};

/// Slots of a neighbourhood, FaRM's H. FaRM has 8; KV-Direct's paper does not state it. Figure 11b's PUTs have 6.
pub const NEIGHBOURHOOD: usize = 6;
/// Largest distance of a free slot from the home bucket, in slots. The papers do not state it. It was fitted to Figure
/// 11b's PUTs, together with the neighbourhood.
pub const SEARCH_MAX: usize = 24;

/// A table of 8-byte keys and values of one size.
#[derive(Debug)]
pub struct Hopscotch<M> {
    memory: M,
    home_count: u64,
    /// The unit of the first overflow slot.
    overflow_unit: u32,
    /// Number of overflow slots.
    overflow_count: u32,
    /// Number of overflow slots in use.
    overflow_used: u32,
    values: Values,
    seed: u64,
}

/// Adjacent slots, as read.
struct SlotRange {
    /// Index of the first slot, which begins a unit.
    first: usize,
    slots: Vec<Slot>,
}

impl SlotRange {
    fn slot(&mut self, number: usize) -> &mut Slot {
        &mut self.slots[number - self.first]
    }

    fn end(&self) -> usize {
        self.first + self.slots.len()
    }
}

impl<M: Memory> Hopscotch<M> {
    /// Returns an empty table in a memory of zeros, with these numbers of home buckets, overflow slots and values.
    ///
    /// # Errors
    /// If the memory has no room for them.
    pub fn new(
        memory: M,
        home_count: u64,
        overflow_count: u32,
        value_size: usize,
        value_count: u32,
        seed: u64,
    ) -> Result<Self, RegionError> {
        // There is room for the neighbours of the last home bucket, and for the slots that a search reads.
        let slot_units = (home_count + SEARCH_MAX as u64).div_ceil(SLOTS_PER_LINE as u64) * 2 + 2;
        let overflow_unit = u32::try_from(slot_units).map_err(|_| RegionError::TooLarge { size: memory.size() })?;
        let values = Values::new(&memory, slot_units + u64::from(overflow_count), value_size, value_count)?;
        Ok(Hopscotch { memory, home_count, overflow_unit, overflow_count, overflow_used: 0, values, seed })
    }

    /// Returns the memory of the table.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the number of overflow slots in use.
    pub fn overflow_used(&self) -> u32 {
        self.overflow_used
    }

    /// Returns the value of a key.
    pub async fn get(&self, key: u64) -> Option<Vec<u8>> {
        let home = self.home(key);
        let mut range = self.read(home, NEIGHBOURHOOD).await;
        let found = match find(&range, home, key) {
            Some(slot) => Some(slot),
            None => self.find_in_chain(range.slot(home).link, key).await,
        };
        match found {
            Some(slot) => Some(self.values.read(&self.memory, slot.value).await),
            None => None,
        }
    }

    /// Sets the value of a key.
    pub async fn put(&mut self, key: u64, value: &[u8], presence: Presence) -> Put {
        let home = self.home(key);
        let mut range = self.read(home, NEIGHBOURHOOD).await;
        if presence == Presence::Unknown {
            let found = match find(&range, home, key) {
                Some(slot) => Some(slot),
                None => self.find_in_chain(range.slot(home).link, key).await,
            };
            if let Some(slot) = found {
                self.values.replace(&self.memory, slot.value, value).await;
                return Put::Replaced;
            }
        }
        if self.values.is_exhausted() {
            return Put::Full;
        }
        let Some(hops) = self.find_hops(&mut range, home).await else {
            return self.put_into_chain(&mut range, home, key, value).await;
        };
        for hop in hops.windows(2) {
            let [to, from] = [hop[0], hop[1]];
            let moved = *range.slot(from);
            self.set_slot(&mut range, to, moved.key, moved.value).await;
        }
        let value = self.values.add(&self.memory, value).await;
        self.set_slot(&mut range, hops[hops.len() - 1], key, value).await;
        Put::Inserted { moves: hops.len() as u32 - 1 }
    }

    /// Finds the slots through which a free slot moves into the neighbourhood. The first of them is free now, and the
    /// last will be free. Reads more slots if the range is too short.
    async fn find_hops(&self, range: &mut SlotRange, home: usize) -> Option<Vec<usize>> {
        let mut free = home;
        while !range.slot(free).is_free() {
            free += 1;
            if free == home + SEARCH_MAX {
                return None;
            }
            if free == range.end() {
                // Up to the end of the line.
                let more = self.read(free, SLOTS_PER_LINE - free % SLOTS_PER_LINE).await;
                range.slots.extend(more.slots);
            }
        }
        let mut hops = vec![free];
        while free >= home + NEIGHBOURHOOD {
            // The farthest slot whose key may move to the free slot.
            free = (free + 1 - NEIGHBOURHOOD..free)
                .find(|from| self.home(range.slot(*from).key) + NEIGHBOURHOOD > free)?;
            hops.push(free);
        }
        Some(hops)
    }

    /// Inserts a key into an overflow slot, at the head of its home bucket's chain.
    async fn put_into_chain(&mut self, range: &mut SlotRange, home: usize, key: u64, value: &[u8]) -> Put {
        if self.overflow_used == self.overflow_count {
            return Put::Full;
        }
        self.overflow_used += 1;
        let value = self.values.add(&self.memory, value).await;
        let slot = Slot { key, value, link: range.slot(home).link };
        self.write_unit(self.overflow(self.overflow_used), &[slot]).await;
        range.slot(home).link = self.overflow_used;
        self.write_slot(range, home).await;
        Put::Inserted { moves: 0 }
    }

    async fn find_in_chain(&self, mut chain: u32, key: u64) -> Option<Slot> {
        while chain != 0 {
            let span = Pointer::new(self.overflow(chain)).span(SLOT_SIZE);
            let slot = self.memory.read(span, |bytes| decode(bytes).next()).await.expect("the span is a slot");
            if slot.holds(key) {
                return Some(slot);
            }
            chain = slot.link;
        }
        None
    }

    fn home(&self, key: u64) -> usize {
        below(hash(key, self.seed), self.home_count) as usize
    }

    /// Sets key and value of a slot. Keeps its link, which belongs to the home bucket at this index.
    async fn set_slot(&self, range: &mut SlotRange, number: usize, key: u64, value: u32) {
        let slot = range.slot(number);
        (slot.key, slot.value) = (key, value);
        self.write_slot(range, number).await;
    }

    /// Reads slots with all slots of the same units, in one access.
    async fn read(&self, first: usize, count: usize) -> SlotRange {
        let units = first / SLOTS_PER_UNIT..(first + count).div_ceil(SLOTS_PER_UNIT);
        let span = Pointer::new(units.start as u32).span(units.len() * UNIT_SIZE);
        let slots = self.memory.read(span, |bytes| decode(bytes).collect()).await;
        SlotRange { first: units.start * SLOTS_PER_UNIT, slots }
    }

    /// Writes a slot with the other slot of the same unit.
    async fn write_slot(&self, range: &SlotRange, number: usize) {
        let unit = number / SLOTS_PER_UNIT;
        let slots = &range.slots[unit * SLOTS_PER_UNIT - range.first..][..SLOTS_PER_UNIT];
        self.write_unit(unit as u32, slots).await;
    }

    async fn write_unit(&self, unit: u32, slots: &[Slot]) {
        let span = Pointer::new(unit).span(slots.len() * SLOT_SIZE);
        self.memory.write(span, |bytes| encode(slots, bytes)).await;
    }

    /// Returns the unit of an overflow slot by its number, from 1.
    fn overflow(&self, number: u32) -> u32 {
        self.overflow_unit + number - 1
    }
}

fn find(range: &SlotRange, home: usize, key: u64) -> Option<Slot> {
    range.slots[home - range.first..][..NEIGHBOURHOOD].iter().copied().find(|slot| slot.holds(key))
}

#[cfg(test)]
mod tests {
    use skep_store::memory::{CountingMemory, LocalMemory};

    use super::super::drive;
    use super::super::tests::{agrees_with_a_map, is_full_with_one_key};
    use super::*;

    type Table = Hopscotch<CountingMemory<LocalMemory>>;

    fn table(home_count: u64, overflow_count: u32, value_count: u32, seed: u64) -> Table {
        let memory = CountingMemory::new(LocalMemory::new(1 << 20).unwrap());
        Hopscotch::new(memory, home_count, overflow_count, 2, value_count, seed).unwrap()
    }

    fn put(table: &mut Table, key: u64, value: &[u8], presence: Presence) -> Put {
        drive(table.put(key, value, presence))
    }

    #[test]
    fn random_operations_agree_with_a_map_until_the_table_is_full() {
        for seed in 0..20 {
            let mut table = table(401, 60, 1 << 12, seed);
            let get = |table: &mut Table, key: u64| drive(table.get(key));
            let count = agrees_with_a_map(&mut table, get, put, 6000, 800, seed);
            assert!(count > 401, "seed {seed}: full with {count} of 401");
            assert_eq!(table.overflow_used(), 60);
        }
    }

    #[test]
    fn an_operation_accesses_the_neighbourhood_and_the_value() {
        let mut table = table(1000, 8, 8, 1);
        let cost = |table: &Table| table.memory().counts().accesses();
        assert_eq!(drive(table.put(7, b"ab", Presence::New)), Put::Inserted { moves: 0 });
        assert_eq!(cost(&table), 3);
        drive(table.get(7));
        assert_eq!(cost(&table), 3 + 2);
        drive(table.get(8));
        assert_eq!(cost(&table), 3 + 2 + 1);
        drive(table.put(7, b"cd", Presence::Unknown));
        assert_eq!(cost(&table), 3 + 2 + 1 + 2);
    }

    #[test]
    fn a_table_without_values_left_is_full() {
        let mut table = table(1000, 8, 1, 1);
        is_full_with_one_key(&mut table, put);
        let small = LocalMemory::new(4096).unwrap();
        assert!(matches!(Hopscotch::new(small, 1000, 8, 2, 1, 1), Err(RegionError::TooSmall { .. })));
    }
}
