//! The baselines of Figure 11: fills them and counts their accesses.
//!
//! The paper does not state the size of their indexes. Here a slot is as large as its fields, and values are packed:
//!
//! ```text
//!            slot                             10 B pairs          254 B pairs
//! cuckoo     key 8, value 4, tag 1: 13 B      76.7 % of memory    5.6 %
//! hopscotch  key 8, value 4, chain 4: 16 B    61.5 %              5.83 %, overflow slots in what values leave
//! ```
//!
//! Three parameters were fitted to the published GETs: the shares, the size of a slot, and the search distance of the
//! hopscotch table. So the agreement of GETs is no evidence. PUTs were not fitted.

use skep_store::memory::{CountingMemory, LocalMemory};

use super::counted_store::Accesses;
use super::fig11_pairs::{PUT_SAMPLE, Pairs, STEP};
use crate::baseline::cuckoo::Cuckoo;
use crate::baseline::hopscotch::Hopscotch;
use crate::baseline::{Presence, Put, SLOTS_PER_LINE, drive};

const KEY_SIZE: usize = 8;
/// Bytes of a slot and shares of the memory, for pairs of 10 B and of 254 B.
const CUCKOO: (f64, [f64; 2]) = (13.0, [0.767, 0.056]);
const HOPSCOTCH: (f64, [f64; 2]) = (16.0, [0.615, 0.0583]);

/// The hash table of a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// MemC3's.
    Cuckoo,
    /// FaRM's.
    Hopscotch,
}

/// The counted accesses.
pub(super) struct Counts {
    /// GETs of existing pairs.
    pub(super) gets: Accesses,
    /// PUTs of new keys.
    pub(super) puts: Accesses,
    /// The mean of GETs with the charge that the figure seems to use for each, see [`published_get`].
    pub(super) gets_charged: f64,
    /// The mean of PUTs with that charge, see [`published_put`].
    pub(super) puts_charged: f64,
}

type Counted = CountingMemory<LocalMemory>;

enum Filled {
    Cuckoo(Cuckoo<Counted>),
    Hopscotch(Hopscotch<Counted>),
}

impl Filled {
    fn new(table: Table, pairs: &Pairs, pair_count: u64, seed: u64) -> Self {
        let memory = pairs.memory as f64;
        let value_size = pairs.size - KEY_SIZE;
        let value_count = pair_count as u32;
        // A value takes whole units here, and the table has some slots after its last home bucket.
        let local = LocalMemory::new(2 * pairs.memory + pair_count * 32 + (1 << 16)).expect("it is small");
        let counted = CountingMemory::new(local);
        let (slot_size, shares) = if table == Table::Cuckoo { CUCKOO } else { HOPSCOTCH };
        let share = shares[usize::from(pairs.size > 10)];
        let slots = (share * memory / slot_size) as u64;
        let left = (1.0 - share) * memory - (pair_count * value_size as u64) as f64;
        match table {
            Table::Cuckoo => {
                // Without room for the values, the utilization cannot be reached, as with a full index.
                let value_count = if left < 0.0 { 0 } else { value_count };
                let buckets = slots / SLOTS_PER_LINE as u64;
                Filled::Cuckoo(Cuckoo::new(counted, buckets, value_size, value_count, seed).expect("there is room"))
            }
            Table::Hopscotch => {
                let overflow = (left.max(0.0) / slot_size) as u32;
                let table = Hopscotch::new(counted, slots, overflow, value_size, value_count, seed);
                Filled::Hopscotch(table.expect("there is room"))
            }
        }
    }

    fn put(&mut self, key: u64, value: &[u8]) -> Put {
        match self {
            Filled::Cuckoo(table) => drive(table.put(key, value, Presence::New)),
            Filled::Hopscotch(table) => drive(table.put(key, value, Presence::New)),
        }
    }

    fn get(&self, key: u64) -> Option<Vec<u8>> {
        match self {
            Filled::Cuckoo(table) => drive(table.get(key)),
            Filled::Hopscotch(table) => drive(table.get(key)),
        }
    }

    fn accesses(&self) -> u64 {
        match self {
            Filled::Cuckoo(table) => table.memory().counts().accesses(),
            Filled::Hopscotch(table) => table.memory().counts().accesses(),
        }
    }
}

/// Fills a table to a utilization and counts the accesses. Returns `None` if it is full before.
pub(super) fn count(table: Table, pairs: &Pairs, utilization: f64, seed: u64) -> Option<Counts> {
    let pair_count = pairs.count_at(utilization);
    let mut filled = Filled::new(table, pairs, pair_count, seed);
    let value = |number: u64| vec![number as u8; pairs.size - KEY_SIZE];
    let (mut gets, mut puts) = (Accesses::default(), Accesses::default());
    let (mut charged_gets, mut charged_puts) = (Accesses::default(), Accesses::default());
    for number in 0..pair_count {
        let before = filled.accesses();
        let Put::Inserted { moves } = filled.put(number, &value(number)) else { return None };
        if number >= pair_count - PUT_SAMPLE {
            let accesses = filled.accesses() - before;
            puts.count(accesses);
            charged_puts.count(published_put(table, accesses, moves));
        }
    }
    for number in (0..pair_count).step_by(STEP) {
        let before = filled.accesses();
        assert_eq!(filled.get(number), Some(value(number)), "pair {number}");
        let accesses = filled.accesses() - before;
        gets.count(accesses);
        charged_gets.count(published_get(table, accesses));
    }
    Some(Counts { gets, puts, gets_charged: charged_gets.mean(), puts_charged: charged_puts.mean() })
}

/// Returns the figure's charge for a GET, according to its error bars. A second bucket costs as much as the first
/// bucket and a value.
fn published_get(table: Table, accesses: u64) -> u64 {
    match table {
        Table::Cuckoo => 2 * (accesses - 1),
        Table::Hopscotch => accesses,
    }
}

/// Returns the figure's charge for a PUT with these accesses and moves. For MemC3, its error bars end at 3, 6, 21, 29
/// and 37, so each move costs 8. For FaRM, they end at 3, 17 and 21. A cost of 5 for a chained key of FaRM fits the
/// right end of its curve.
fn published_put(table: Table, accesses: u64, moves: u32) -> u64 {
    match (table, accesses, moves) {
        (_, 3, _) => 3,
        (Table::Cuckoo, _, 0) => 6,
        (Table::Cuckoo, _, moves) => 5 + 8 * u64::from(moves),
        (Table::Hopscotch, _, 0) => 5,
        (Table::Hopscotch, ..) => 21,
    }
}

/// Returns the largest utilization that a table holds, in steps of 1 %.
pub(super) fn utilization_max(table: Table, pairs: &Pairs, seed: u64) -> f64 {
    let holds = |percent: &u32| count(table, pairs, f64::from(*percent) / 100.0, seed).is_some();
    f64::from((50..100).take_while(holds).last().unwrap_or(0)) / 100.0
}
