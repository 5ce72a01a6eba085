//! Chained associative hopscotch hashing as in FaRM (Dragojević and others, NSDI 2014, section 6.2): a key lies within 8
//! slots of its home, or in the overflow chain of its home.
//!
//! ```text
//! home h   | h | h+1 | … | h+7 |            its neighbourhood, 128 adjacent bytes: one access
//!            └ link ─▶ | key | link ─▶ | key | …      overflow slots, one to a unit
//! ```
//!
//! A new key for whose neighbourhood there is no room looks for a free slot behind it, a line at a time, and lets the free
//! slot hop towards home by moving keys that may lie there. If there is none near, or it cannot hop home, the key goes into
//! the chain. Nothing moves until all hops are known.

use skep_store::memory::{Memory, Pointer, RegionError, UNIT_SIZE};

use super::{Presence, Put, SLOT_SIZE, SLOTS_PER_GRAIN, SLOTS_PER_LINE, Slot, Values, below, decode, encode, hash};

/// Slots of a neighbourhood, FaRM's H.
pub const NEIGHBOURHOOD: usize = 8;
/// How far from home a free slot is looked for, in slots. The papers do not say. Of 16
/// and 64, this came nearer to Figure 11's GETs at one size of index for all utilizations.
pub const SEARCH_MAX: usize = 16;

/// A table of 8-byte keys and values of one size.
#[derive(Debug)]
pub struct Hopscotch<M> {
    memory: M,
    home_count: u64,
    /// The first overflow slot, and how many there are and are used.
    overflow_unit: u32,
    overflow_count: u32,
    overflow_used: u32,
    values: Values,
    seed: u64,
}

/// Slots next to each other, as read.
struct Window {
    /// Number of the first, which begins a unit.
    first: usize,
    slots: Vec<Slot>,
}

impl Window {
    fn slot(&mut self, number: usize) -> &mut Slot {
        &mut self.slots[number - self.first]
    }

    fn end(&self) -> usize {
        self.first + self.slots.len()
    }
}

impl<M: Memory> Hopscotch<M> {
    /// An empty table in a memory of zeros, with so many homes, overflow slots and values.
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
        // The last home has its neighbours, and a search its slots.
        let slot_units = (home_count + SEARCH_MAX as u64).div_ceil(SLOTS_PER_LINE as u64) * 2 + 2;
        let overflow_unit = u32::try_from(slot_units).map_err(|_| RegionError::TooLarge { size: memory.size() })?;
        let values = Values::new(&memory, slot_units + u64::from(overflow_count), value_size, value_count)?;
        Ok(Hopscotch { memory, home_count, overflow_unit, overflow_count, overflow_used: 0, values, seed })
    }

    /// The memory below.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Overflow slots in use.
    pub fn overflow_used(&self) -> u32 {
        self.overflow_used
    }

    /// The value of a key.
    pub async fn get(&self, key: u64) -> Option<Vec<u8>> {
        let home = self.home(key);
        let mut window = self.read(home, NEIGHBOURHOOD).await;
        let found = match find(&window, home, key) {
            Some(slot) => Some(slot),
            None => self.find_in_chain(window.slot(home).link, key).await,
        };
        match found {
            Some(slot) => Some(self.values.read(&self.memory, slot.value).await),
            None => None,
        }
    }

    /// Sets the value of a key.
    pub async fn put(&mut self, key: u64, value: &[u8], presence: Presence) -> Put {
        let home = self.home(key);
        let mut window = self.read(home, NEIGHBOURHOOD).await;
        if presence == Presence::Unknown {
            let found = match find(&window, home, key) {
                Some(slot) => Some(slot),
                None => self.find_in_chain(window.slot(home).link, key).await,
            };
            if let Some(slot) = found {
                self.values.replace(&self.memory, slot.value, value).await;
                return Put::Replaced;
            }
        }
        if self.values.is_exhausted() {
            return Put::Full;
        }
        let Some(hops) = self.find_hops(&mut window, home).await else {
            return self.put_into_chain(&mut window, home, key, value).await;
        };
        for hop in hops.windows(2) {
            let [to, from] = [hop[0], hop[1]];
            let moved = *window.slot(from);
            self.place(&mut window, to, moved.key, moved.value).await;
        }
        let value = self.values.add(&self.memory, value).await;
        self.place(&mut window, hops[hops.len() - 1], key, value).await;
        Put::Inserted { moves: hops.len() as u32 - 1 }
    }

    /// The slots through which a free slot comes into the neighbourhood, from that which is free to that which will be.
    /// Reads on from the window's end as far as it has to.
    async fn find_hops(&self, window: &mut Window, home: usize) -> Option<Vec<usize>> {
        let mut free = home;
        while !window.slot(free).is_free() {
            free += 1;
            if free == home + SEARCH_MAX {
                return None;
            }
            if free == window.end() {
                // Up to the end of the line.
                let more = self.read(free, SLOTS_PER_LINE - free % SLOTS_PER_LINE).await;
                window.slots.extend(more.slots);
            }
        }
        let mut hops = vec![free];
        while free >= home + NEIGHBOURHOOD {
            // The farthest that may come here.
            free = (free + 1 - NEIGHBOURHOOD..free)
                .find(|from| self.home(window.slot(*from).key) + NEIGHBOURHOOD > free)?;
            hops.push(free);
        }
        Some(hops)
    }

    /// Puts a key into an overflow slot, at the front of its home's chain.
    async fn put_into_chain(&mut self, window: &mut Window, home: usize, key: u64, value: &[u8]) -> Put {
        if self.overflow_used == self.overflow_count {
            return Put::Full;
        }
        self.overflow_used += 1;
        let value = self.values.add(&self.memory, value).await;
        let slot = Slot { key, value, link: window.slot(home).link };
        self.write_unit(self.overflow(self.overflow_used), &[slot]).await;
        window.slot(home).link = self.overflow_used;
        self.write_slot(window, home).await;
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

    /// Sets key and value of a slot; its link belongs to the home that it is.
    async fn place(&self, window: &mut Window, number: usize, key: u64, value: u32) {
        let slot = window.slot(number);
        (slot.key, slot.value) = (key, value);
        self.write_slot(window, number).await;
    }

    /// Reads slots, and what lies in the same units: one access.
    async fn read(&self, first: usize, count: usize) -> Window {
        let units = first / SLOTS_PER_GRAIN..(first + count).div_ceil(SLOTS_PER_GRAIN);
        let span = Pointer::new(units.start as u32).span(units.len() * UNIT_SIZE);
        let slots = self.memory.read(span, |bytes| decode(bytes).collect()).await;
        Window { first: units.start * SLOTS_PER_GRAIN, slots }
    }

    /// Writes a slot, and that which lies in the same unit.
    async fn write_slot(&self, window: &Window, number: usize) {
        let unit = number / SLOTS_PER_GRAIN;
        let slots = &window.slots[unit * SLOTS_PER_GRAIN - window.first..][..SLOTS_PER_GRAIN];
        self.write_unit(unit as u32, slots).await;
    }

    async fn write_unit(&self, unit: u32, slots: &[Slot]) {
        let span = Pointer::new(unit).span(slots.len() * SLOT_SIZE);
        self.memory.write(span, |bytes| encode(slots, bytes)).await;
    }

    /// The unit of an overflow slot by its number, from 1.
    fn overflow(&self, number: u32) -> u32 {
        self.overflow_unit + number - 1
    }
}

fn find(window: &Window, home: usize, key: u64) -> Option<Slot> {
    window.slots[home - window.first..][..NEIGHBOURHOOD].iter().copied().find(|slot| slot.holds(key))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use skep_store::memory::{CountingMemory, LocalMemory};

    use super::super::drive;
    use super::*;

    fn table(
        home_count: u64,
        overflow_count: u32,
        value_count: u32,
        seed: u64,
    ) -> Hopscotch<CountingMemory<LocalMemory>> {
        let memory = CountingMemory::new(LocalMemory::new(1 << 20).unwrap());
        Hopscotch::new(memory, home_count, overflow_count, 2, value_count, seed).unwrap()
    }

    #[test]
    fn random_operations_agree_with_a_map_until_the_table_is_full() {
        for seed in 0..20 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut table = table(401, 60, 1 << 12, seed);
            let mut map: HashMap<u64, [u8; 2]> = HashMap::new();
            let (mut refused, mut moved) = (0, 0);
            for _ in 0..6000 {
                let (key, value) = (random.random_range(0..800), random.random::<u16>().to_le_bytes());
                if random.random_bool(0.3) {
                    assert_eq!(drive(table.get(key)).as_deref(), map.get(&key).map(|value| &value[..]), "seed {seed}");
                    continue;
                }
                let presence = if map.contains_key(&key) { Presence::Unknown } else { Presence::New };
                match drive(table.put(key, &value, presence)) {
                    Put::Full => refused += 1,
                    Put::Replaced => assert!(map.insert(key, value).is_some(), "seed {seed}"),
                    Put::Inserted { moves } => {
                        assert!(map.insert(key, value).is_none(), "seed {seed}");
                        moved += moves;
                    }
                }
            }
            assert!(refused > 0 && moved > 0, "seed {seed}: {refused} refused, {moved} moved");
            assert!(map.len() > 401, "seed {seed}: full with {} of 401", map.len());
            assert_eq!(table.overflow_used(), 60);
            for (key, value) in &map {
                assert_eq!(drive(table.get(*key)).unwrap(), value, "seed {seed}");
            }
        }
    }

    #[test]
    fn accesses_are_those_of_the_neighbourhood_and_the_value() {
        let mut table = table(1000, 8, 8, 1);
        let cost = |table: &Hopscotch<CountingMemory<LocalMemory>>| table.memory().counts().accesses();
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
        assert_eq!(drive(table.put(1, b"ab", Presence::New)), Put::Inserted { moves: 0 });
        assert_eq!(drive(table.put(2, b"ab", Presence::New)), Put::Full);
        assert_eq!(drive(table.put(1, b"cd", Presence::Unknown)), Put::Replaced);
        let small = LocalMemory::new(4096).unwrap();
        assert!(matches!(Hopscotch::new(small, 1000, 8, 2, 1, 1), Err(RegionError::TooSmall { .. })));
    }
}
