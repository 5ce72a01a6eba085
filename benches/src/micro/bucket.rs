//! A bucket: finding keys, adding entries and removing them (KV-Direct, section 3.3.1).

use skep_store::hash::Search;
use skep_store::hash::bucket::{Bucket, SecondaryHash, SlabSlot};
use skep_store::hash::slab::SlabClass;
use skep_store::memory::Pointer;

use super::{Workload, fold};
use crate::keys::{random_key, random_value};

/// Number of buckets in a run. The buckets differ, so that branches are as hard to predict as in a table.
const BUCKETS: u64 = 256;
/// Number of pairs of 10 bytes that fill a bucket.
const PAIRS: u64 = 5;
/// Number of slab slots that fill a bucket.
const SLABS: u64 = 10;
/// Number hashed for a key that was not found.
const ABSENT: u64 = 99;

pub(super) fn workloads() -> Vec<Workload> {
    let search = Search::new();
    let inline: Vec<Bucket> = (0..BUCKETS).map(inline_bucket).collect();
    let pair_of = |bucket: u64| u64::from(random_value(bucket)[0]);
    let hits = (0..BUCKETS).map(|bucket| random_key(bucket * PAIRS + pair_of(bucket) % PAIRS));
    let misses = (0..BUCKETS).map(|bucket| random_key((BUCKETS + bucket) * PAIRS));
    let slabs: Vec<(Bucket, SecondaryHash)> =
        (0..BUCKETS).map(|bucket| (slab_bucket(bucket), secondary(bucket, pair_of(bucket) % SLABS))).collect();
    vec![
        Workload {
            name: "bucket/find_inline_hit",
            operations: BUCKETS,
            hash: 0xdaf1_e7cb_3734_0f87,
            run: find_inline(&inline, hits),
        },
        Workload {
            name: "bucket/find_inline_miss",
            operations: BUCKETS,
            hash: 0x9ff0_5ce2_649a_7a24,
            run: find_inline(&inline, misses),
        },
        Workload {
            name: "bucket/find_slab",
            operations: BUCKETS,
            hash: 0x6e32_463c_92a1_ec40,
            run: Box::new(move || {
                slabs.iter().fold(0, |hash, (bucket, wanted)| {
                    fold(hash, search.slab(bucket, *wanted, 0).map_or(ABSENT, |(slot, _)| slot as u64))
                })
            }),
        },
        Workload {
            name: "bucket/remove_push",
            operations: BUCKETS,
            hash: 0x4b44_7e70_20bb_6af3,
            run: remove_push(inline),
        },
    ]
}

/// Finds a key in each bucket. Returns a hash of the slots.
fn find_inline(buckets: &[Bucket], keys: impl Iterator<Item = [u8; 8]>) -> Box<dyn FnMut() -> u64> {
    let searches: Vec<(Bucket, [u8; 8])> = buckets.iter().copied().zip(keys).collect();
    let search = Search::new();
    Box::new(move || {
        searches.iter().fold(0, |hash, (bucket, key)| {
            fold(hash, search.inline_pair(bucket, key).map_or(ABSENT, |pair| pair.slot() as u64))
        })
    })
}

/// Removes the first pair of each bucket and appends it again as the last, so that every pair is removed once. Returns
/// a hash of the number of free slots after each removal.
fn remove_push(mut buckets: Vec<Bucket>) -> Box<dyn FnMut() -> u64> {
    let pairs: Vec<_> = (0..BUCKETS * PAIRS).map(|record| (random_key(record), random_value(record))).collect();
    let mut turn = 0;
    Box::new(move || {
        let hash = buckets.iter_mut().zip(pairs.chunks(PAIRS as usize)).fold(0, |hash, (bucket, pairs)| {
            let (key, value) = &pairs[turn];
            bucket.remove(0);
            let free = bucket.free_slot_count() as u64;
            bucket.push_inline(key, value);
            fold(hash, free)
        });
        turn = (turn + 1) % PAIRS as usize;
        hash
    })
}

fn inline_bucket(index: u64) -> Bucket {
    let mut bucket = Bucket::EMPTY;
    for record in index * PAIRS..(index + 1) * PAIRS {
        bucket.push_inline(&random_key(record), &random_value(record));
    }
    bucket
}

fn slab_bucket(index: u64) -> Bucket {
    let mut bucket = Bucket::EMPTY;
    for slot in 0..SLABS {
        let class = SlabClass::for_size(64).expect("there are slabs of 64 bytes");
        let pointer = Pointer::new((2 * (index * SLABS + slot)) as u32);
        bucket.push_slab(SlabSlot { class, pointer, secondary: secondary(index, slot) });
    }
    bucket
}

/// Returns a secondary hash that differs between the slots of a bucket.
fn secondary(bucket: u64, slot: u64) -> SecondaryHash {
    SecondaryHash::from_hash(bucket * 131 + slot * 37)
}
