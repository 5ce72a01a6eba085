//! Bucketed cuckoo hashing as in MemC3 (Fan, Andersen and Kaminsky, NSDI 2013, section 4). A bucket has 4 slots, and a
//! key has two buckets.
//!
//! ```text
//! first bucket   from the key's hash            second = mix(tag) - first, modulo the buckets, and back
//! slot           key | value | tag, one byte
//! ```
//!
//! The other bucket of a key follows from its bucket and its tag, so a key is moved without hashing it. A put of a new
//! key has three steps:
//! 1. It uses a free slot of the first bucket, or else of the second bucket.
//! 2. If both buckets are full, a walk from the second one searches for a bucket with a free slot. Each step chooses a
//!    key of the bucket, if possible one that is in its first bucket, and reads its other bucket. Nothing moves in this
//!    step. MemC3 walks from both buckets at a time, through random keys. The rule here was fitted to
//!    Figures 11a and 11b: with it, one size of index gives the GETs of all utilizations, and also the PUTs.
//! 3. The keys on the path are moved, beginning at its end. So every key can be found at any time.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_store::memory::{LINE_SIZE, Line, Memory, Pointer, RegionError};

use super::{Presence, Put, SLOTS_PER_LINE, Slot, Values, below, decode, encode, hash};

/// Steps after which a walk fails. Then the table is full.
const STEPS_MAX: usize = 500;

/// A table of 8-byte keys and values of one size.
#[derive(Debug)]
pub struct Cuckoo<M> {
    memory: M,
    bucket_count: u64,
    values: Values,
    seed: u64,
    random: Xoshiro256PlusPlus,
}

type Bucket = [Slot; SLOTS_PER_LINE];

/// A path from a full bucket: the slots whose keys would move, each into the bucket of the next slot.
struct Walk {
    /// Buckets in the order in which they were read, with their content at that time.
    buckets: Vec<(u64, Bucket)>,
    path: Vec<(u64, usize)>,
}

impl<M: Memory> Cuckoo<M> {
    /// Returns an empty table in a memory of zeros.
    ///
    /// # Errors
    /// If the memory has no room for this number of buckets and values.
    pub fn new(
        memory: M,
        bucket_count: u64,
        value_size: usize,
        value_count: u32,
        seed: u64,
    ) -> Result<Self, RegionError> {
        let units = bucket_count * u64::from(Pointer::to_line(1).unit());
        let values = Values::new(&memory, units, value_size, value_count)?;
        Ok(Cuckoo { memory, bucket_count, values, seed, random: Xoshiro256PlusPlus::seed_from_u64(seed) })
    }

    /// Returns the memory of the table.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the value of a key.
    pub async fn get(&self, key: u64) -> Option<Vec<u8>> {
        let (first, tag) = self.home(key);
        let mut found = find(&self.read(first).await, key);
        if found.is_none() {
            found = find(&self.read(self.other(first, tag)).await, key);
        }
        match found {
            Some(slot) => Some(self.values.read(&self.memory, slot.value).await),
            None => None,
        }
    }

    /// Sets the value of a key.
    pub async fn put(&mut self, key: u64, value: &[u8], presence: Presence) -> Put {
        let (first, tag) = self.home(key);
        let second = self.other(first, tag);
        let mut bucket = self.read(first).await;
        let mut second_bucket = None;
        if presence == Presence::Unknown {
            let mut found = find(&bucket, key);
            if found.is_none() {
                found = find(second_bucket.insert(self.read(second).await), key);
            }
            if let Some(slot) = found {
                self.values.replace(&self.memory, slot.value, value).await;
                return Put::Replaced;
            }
        }
        if self.values.is_exhausted() {
            return Put::Full;
        }
        let mut home = first;
        let mut moves = 0;
        let mut free = room(&bucket);
        if free.is_none() {
            let other = match second_bucket {
                Some(read) => read,
                None => self.read(second).await,
            };
            free = room(&other);
            if free.is_some() {
                (home, bucket) = (second, other);
            } else {
                let Some(mut walk) = self.walk(second, other).await else { return Put::Full };
                moves = walk.path.len() as u32 - 1;
                (home, bucket, free) = self.make_room(&mut walk).await;
            }
        }
        let free = free.expect("room was found or made");
        bucket[free] = Slot { key, value: self.values.add(&self.memory, value).await, link: tag };
        self.write(home, &bucket).await;
        Put::Inserted { moves }
    }

    /// Searches for a bucket with a free slot, from a full one. The path ends with the free slot.
    async fn walk(&mut self, start: u64, bucket: Bucket) -> Option<Walk> {
        let mut walk = Walk { buckets: vec![(start, bucket)], path: Vec::new() };
        for _ in 0..STEPS_MAX {
            let (at, bucket) = walk.buckets[walk.buckets.len() - 1];
            let turn = self.random.random_range(0..SLOTS_PER_LINE);
            // A slot on the path cannot move twice.
            let may_move = |slot: &usize| !walk.path.contains(&(at, *slot));
            let slots = || (0..SLOTS_PER_LINE).map(|slot| (turn + slot) % SLOTS_PER_LINE).filter(may_move);
            let in_first = |slot: &usize| self.home(bucket[*slot].key).0 == at;
            let slot = slots().find(in_first).or_else(|| slots().next())?;
            walk.path.push((at, slot));
            let next = self.other(at, bucket[slot].link);
            let next_bucket = self.read(next).await;
            walk.buckets.push((next, next_bucket));
            if let Some(slot) = room(&next_bucket) {
                walk.path.push((next, slot));
                return Some(walk);
            }
        }
        None
    }

    /// Moves the keys of a path, beginning with the last. Returns the first bucket and its free slot. That bucket is
    /// not written yet.
    async fn make_room(&self, walk: &mut Walk) -> (u64, Bucket, Option<usize>) {
        for step in (1..walk.path.len()).rev() {
            let [(from, from_slot), (to, to_slot)] = [walk.path[step - 1], walk.path[step]];
            let moved = bucket_of(&mut walk.buckets, from)[from_slot];
            let bucket = bucket_of(&mut walk.buckets, to);
            bucket[to_slot] = moved;
            let bucket = *bucket;
            self.write(to, &bucket).await;
        }
        let (home, slot) = walk.path[0];
        (home, *bucket_of(&mut walk.buckets, home), Some(slot))
    }

    /// Returns first bucket and tag of a key.
    fn home(&self, key: u64) -> (u64, u32) {
        let hash = hash(key, self.seed);
        (below(hash, self.bucket_count), 1 + (hash & 0xff) as u32)
    }

    /// Returns the other bucket of a key in this bucket.
    fn other(&self, bucket: u64, tag: u32) -> u64 {
        let sum = below(hash(u64::from(tag), !self.seed), self.bucket_count);
        (sum + self.bucket_count - bucket) % self.bucket_count
    }

    async fn read(&self, bucket: u64) -> Bucket {
        let line = self.memory.read_line(Pointer::to_line(bucket)).await;
        let mut slots = Bucket::default();
        for (slot, read) in slots.iter_mut().zip(decode(&line.0)) {
            *slot = read;
        }
        slots
    }

    async fn write(&self, bucket: u64, slots: &Bucket) {
        let mut line = Line([0; LINE_SIZE]);
        encode(slots, &mut line.0);
        self.memory.write_line(Pointer::to_line(bucket), &line).await;
    }
}

fn find(bucket: &Bucket, key: u64) -> Option<Slot> {
    bucket.iter().copied().find(|slot| slot.holds(key))
}

fn room(bucket: &Bucket) -> Option<usize> {
    bucket.iter().position(|slot| slot.is_free())
}

/// Returns the copy of a bucket. A path may contain the bucket twice.
fn bucket_of(buckets: &mut [(u64, Bucket)], number: u64) -> &mut Bucket {
    &mut buckets.iter_mut().find(|read| read.0 == number).expect("every bucket of the path was read").1
}

#[cfg(test)]
mod tests {
    use skep_store::memory::{CountingMemory, LocalMemory};

    use super::super::drive;
    use super::super::tests::{agrees_with_a_map, is_full_with_one_key};
    use super::*;

    type Table = Cuckoo<CountingMemory<LocalMemory>>;

    fn table(bucket_count: u64, value_count: u32, seed: u64) -> Table {
        let memory = CountingMemory::new(LocalMemory::new(1 << 20).unwrap());
        Cuckoo::new(memory, bucket_count, 2, value_count, seed).unwrap()
    }

    fn put(table: &mut Table, key: u64, value: &[u8], presence: Presence) -> Put {
        drive(table.put(key, value, presence))
    }

    #[test]
    fn random_operations_agree_with_a_map_until_the_table_is_full() {
        for seed in 0..20 {
            let mut table = table(101, 1 << 12, seed);
            let get = |table: &mut Table, key: u64| drive(table.get(key));
            let count = agrees_with_a_map(&mut table, get, put, 4000, 600, seed);
            assert!(count > 101 * 4 * 9 / 10, "seed {seed}: full with {count} of 404");
        }
    }

    #[test]
    fn an_operation_accesses_its_buckets_and_the_value() {
        let mut table = table(1000, 8, 1);
        let cost = |table: &Table| table.memory().counts().accesses();
        assert_eq!(drive(table.put(7, b"ab", Presence::New)), Put::Inserted { moves: 0 });
        assert_eq!(cost(&table), 3);
        drive(table.get(7));
        assert_eq!(cost(&table), 3 + 2);
        drive(table.get(8));
        assert_eq!(cost(&table), 3 + 2 + 2);
        drive(table.put(9, b"ab", Presence::Unknown));
        assert_eq!(cost(&table), 3 + 2 + 2 + 4);
    }

    #[test]
    fn a_table_without_values_left_is_full() {
        let mut table = table(1000, 1, 1);
        is_full_with_one_key(&mut table, put);
        let small = LocalMemory::new(4096).unwrap();
        assert!(matches!(Cuckoo::new(small, 1000, 2, 1, 1), Err(RegionError::TooSmall { .. })));
    }
}
