//! Puts to keys that exist in the ordered store.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{PutCondition, Reply};
use skep_store::ordered::{OrderedSettings, OrderedStore};

use super::{BATCH, Case};

/// Names of the operations, as they are given to the program under valgrind.
pub(super) const OPERATIONS: [&str; 2] = ["ordered-put", "ordered-put-batch"];
/// The most bytes of a value, and the sizes of keys and values.
pub(super) const VALUES: [(usize, &str); 2] = [(SIZE_OF_ALL, "16 + 16 B"), (100, "8-24 + 16-100 B")];
/// Pairs that the store gets in one call.
pub(super) const PUT_BATCH: usize = 32;

/// Bytes of each key and of each value, if all have one size.
const SIZE_OF_ALL: usize = 16;
/// Bytes of a key otherwise.
const KEY_SIZES: std::ops::RangeInclusive<usize> = 8..=24;

/// Fills a store, prepares `batches_max` batches of puts and executes the first `batches` of them. Returns the number of
/// pairs.
pub(super) fn run(case: Case, pairs: u64, batches_max: usize, batches: usize) -> u64 {
    let store =
        OrderedStore::new(&OrderedSettings::new((pairs << 9) + (64 << 20))).expect("a region of some megabytes");
    let mut session = store.session().expect("the first session");
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let keys: Vec<Vec<u8>> = (0..pairs).map(|_| key(case, random)).collect();
    let values: Vec<Vec<u8>> = (0..pairs).map(|_| value(case, random)).collect();
    let stored: Vec<(&[u8], &[u8])> = keys.iter().zip(&values).map(|(key, value)| (&key[..], &value[..])).collect();
    session.put_batch(&stored, PutCondition::Always, |reply| assert_eq!(reply, Reply::Done, "the region has room"));
    // The new value of a key is that of another key, which may have another size.
    let mut put = |_| (stored[random.random_range(0..stored.len())].0, stored[random.random_range(0..stored.len())].1);
    let puts: Vec<(&[u8], &[u8])> = (0..batches_max * BATCH).map(&mut put).collect();
    let done = &puts[..batches * BATCH];
    if case.operation == "ordered-put" {
        for (key, value) in done {
            session.put(key, value, PutCondition::Always);
        }
    } else {
        done.chunks(PUT_BATCH).for_each(|puts| session.put_batch(puts, PutCondition::Always, |_| ()));
    }
    store.pair_count()
}

fn key(case: Case, random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let size = if case.value_size == SIZE_OF_ALL { SIZE_OF_ALL } else { random.random_range(KEY_SIZES) };
    bytes(size, random)
}

fn value(case: Case, random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let size = random.random_range(SIZE_OF_ALL..=case.value_size);
    bytes(size, random)
}

fn bytes(size: usize, random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    (0..size).map(|_| random.random()).collect()
}
