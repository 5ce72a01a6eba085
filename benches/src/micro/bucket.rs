//! A bucket: finding keys in it, and its entries coming and going (KV-Direct, section 3.3.1).

use skep_store::hash::bucket::{Bucket, SecondaryHash, SlabSlot};
use skep_store::hash::slab::SlabClass;
use skep_store::memory::Pointer;

use super::{Workload, fold};
use crate::keys::{random_key, random_value};

/// Buckets of a run. They differ, so that branches are as hard to predict as in a table.
const BUCKETS: u64 = 256;
/// Pairs of 10 bytes that fill a bucket.
const PAIRS: u64 = 5;
/// Slab slots that fill a bucket.
const SLABS: u64 = 10;

pub(super) fn workloads() -> Vec<Workload> {
    let inline: Vec<Bucket> = (0..BUCKETS).map(inline_bucket).collect();
    let slabs: Vec<Bucket> = (0..BUCKETS).map(slab_bucket).collect();
    let (absent, present) = (inline.clone(), inline);
    let mut changing = present.clone();
    vec![
        Workload {
            name: "bucket/find_inline_hit",
            operations: BUCKETS,
            hash: 0xdaf1_e7cb_3734_0f87,
            run: Box::new(move || {
                find_inline(&present, |bucket| bucket * PAIRS + u64::from(random_value(bucket)[0]) % PAIRS)
            }),
        },
        Workload {
            name: "bucket/find_inline_miss",
            operations: BUCKETS,
            hash: 0x9ff0_5ce2_649a_7a24,
            run: Box::new(move || find_inline(&absent, |bucket| (BUCKETS + bucket) * PAIRS)),
        },
        Workload {
            name: "bucket/find_slab",
            operations: BUCKETS,
            hash: 0x6e32_463c_92a1_ec40,
            run: Box::new(move || {
                slabs.iter().zip(0..).fold(0, |hash, (bucket, number)| {
                    let wanted = secondary(number, u64::from(random_value(number)[0]) % SLABS);
                    fold(hash, bucket.find_slab(wanted, 0).map_or(99, |(slot, _)| slot as u64))
                })
            }),
        },
        Workload {
            name: "bucket/remove_push",
            operations: BUCKETS,
            hash: 0xfd77_8dbb_e8e6_6299,
            run: Box::new(move || {
                changing.iter_mut().zip(0..).fold(0, |hash, (bucket, number)| {
                    // The first pair goes and comes back as the last.
                    let first = (0..PAIRS).find_map(|pair| {
                        let key = random_key(number * PAIRS + pair);
                        bucket.find_inline(&key).filter(|found| found.slot == 0).map(|_| key)
                    });
                    let key = first.expect("a full bucket has a first pair");
                    bucket.remove(0);
                    bucket.push_inline(&key, &random_value(number));
                    fold(hash, bucket.find_inline(&key).map_or(99, |found| u64::from(found.slot)))
                })
            }),
        },
    ]
}

/// Looks a record up in each bucket; a hash of the slots.
fn find_inline(buckets: &[Bucket], record: impl Fn(u64) -> u64) -> u64 {
    buckets.iter().zip(0..).fold(0, |hash, (bucket, number)| {
        let found = bucket.find_inline(&random_key(record(number)));
        fold(hash, found.map_or(99, |pair| u64::from(pair.slot)))
    })
}

fn inline_bucket(number: u64) -> Bucket {
    let mut bucket = Bucket::EMPTY;
    for record in number * PAIRS..(number + 1) * PAIRS {
        bucket.push_inline(&random_key(record), &random_value(record));
    }
    bucket
}

fn slab_bucket(number: u64) -> Bucket {
    let mut bucket = Bucket::EMPTY;
    for slot in 0..SLABS {
        let class = SlabClass::for_size(64).expect("there are slabs of 64 bytes");
        let pointer = Pointer::new((2 * (number * SLABS + slot)) as u32);
        bucket.push_slab(SlabSlot { class, pointer, secondary: secondary(number, slot) });
    }
    bucket
}

/// Differs from slot to slot of a bucket.
fn secondary(bucket: u64, slot: u64) -> SecondaryHash {
    SecondaryHash::from_hash(bucket * 131 + slot * 37)
}
