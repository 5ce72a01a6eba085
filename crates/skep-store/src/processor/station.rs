//! The reservation station: which operations under way depend on each other (KV-Direct, section 3.3.3).
//!
//! ```text
//! slots, 1024          chains                         requests, by their place in the batch
//!   0  of an earlier   ┌─────────────┐
//!   1  18 ─────────┐   │ 0  front 4 ─┼─▶ 4 ─▶ 17 ─▶ 18    4 is next, 17 and 18 wait for it
//!   2  of an earlier└──┼──── last ───┼───────────────┘
//!   3  9               │ 1  front 9 ─┼─▶ 9
//! ```
//!
//! A request's slot follows from the number of its bucket. Two keys of one bucket, or of its chain, therefore depend on
//! each other: nothing else may come between reading a bucket's line and writing it. Requests of different buckets that
//! share a slot depend on each other too, needlessly but harmlessly; a dependency is never missed.
//!
//! A slot holds its last request and the number of the batch: so nothing needs to be emptied between batches. While
//! chains are worked off, requests only leave. One operation of a chain is under way; the others of the same key get its
//! value forwarded, see [`super::chain`].

use std::cell::Cell;

use super::interleaver::IN_FLIGHT_MAX;
use crate::hash::BucketIndex;

/// Slots of the station (KV-Direct, section 3.3.3).
pub(super) const SLOT_COUNT: usize = 1024;
/// No request.
const NONE: u16 = u16::MAX;
/// In a slot, bits of the request's place; above them is the number of the batch.
const PLACE_BITS: u32 = IN_FLIGHT_MAX.ilog2();

const _: () = assert!(SLOT_COUNT.is_power_of_two() && IN_FLIGHT_MAX < NONE as usize);
const _: () = assert!(IN_FLIGHT_MAX.is_power_of_two());

/// Number of a chain, in the order of first requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainIndex(u16);

/// Place of a request among those that are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting(u32);

impl Waiting {
    #[inline]
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    #[inline]
    pub(super) fn at(place: u32) -> Self {
        Waiting(place)
    }

    #[inline]
    fn some(raw: u16) -> Option<Self> {
        (raw != NONE).then_some(Waiting(raw.into()))
    }
}

impl ChainIndex {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(super) fn at(index: u16) -> Self {
        ChainIndex(index)
    }
}

/// Chains that operations leave: what working them off needs of a station.
pub(super) trait Chains {
    /// The first request of a chain.
    fn front(&self, chain: ChainIndex) -> Option<Waiting>;
    /// The request behind this one.
    fn after(&self, request: Waiting) -> Option<Waiting>;
    /// Takes a request out of its chain; `before` is the one before it, `None` if it is the first.
    fn retire(&self, chain: ChainIndex, before: Option<Waiting>, request: Waiting);
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Admission {
    /// It depends on no other.
    Alone,
    /// It depends on the others of this bucket.
    To(BucketIndex),
}

/// The chains of dependent requests.
#[derive(Debug)]
pub(super) struct Station {
    lists: Box<Lists>,
    batch: u32,
}

/// In one piece, so that one register reaches all.
#[derive(Debug)]
struct Lists {
    slots: [u32; SLOT_COUNT],
    /// Behind each request, the next of its chain. The last place is nobody's.
    next: [Cell<u16>; IN_FLIGHT_MAX + 1],
    /// Of each chain, the request that is next.
    fronts: [Cell<u16>; IN_FLIGHT_MAX],
}

impl Station {
    pub(super) fn new() -> Self {
        let lists = Lists {
            slots: [0; SLOT_COUNT],
            next: [const { Cell::new(NONE) }; IN_FLIGHT_MAX + 1],
            fronts: [const { Cell::new(NONE) }; IN_FLIGHT_MAX],
        };
        Station { lists: Box::new(lists), batch: 1 }
    }

    /// Empties the station for a batch, whose requests come in their order.
    #[inline]
    pub(super) fn begin(&mut self) -> Arrivals<'_> {
        self.batch += 1;
        if self.batch >> (u32::BITS - PLACE_BITS) != 0 {
            self.lists.slots.fill(0);
            self.batch = 1;
        }
        Arrivals { lists: &mut self.lists, batch: self.batch << PLACE_BITS, chains: 0 }
    }

    /// Takes all requests out of a chain.
    pub(super) fn clear(&self, chain: ChainIndex) {
        self.lists.fronts[usize::from(chain.0) % IN_FLIGHT_MAX].set(NONE);
    }

    /// The first request of a chain that has one.
    #[inline(always)]
    pub(super) fn first(&self, chain: ChainIndex) -> Waiting {
        Waiting(self.lists.fronts[usize::from(chain.0) % IN_FLIGHT_MAX].get().into())
    }
}

/// A batch on its way into the station.
pub(super) struct Arrivals<'a> {
    lists: &'a mut Lists,
    batch: u32,
    chains: usize,
}

impl Arrivals<'_> {
    /// Returns true if a request with this admission would depend on one that was admitted.
    #[inline(always)]
    pub(super) fn is_blocked(&self, admission: Admission) -> bool {
        match admission {
            Admission::Alone => false,
            // Numbers of batches only grow until the slots are emptied.
            Admission::To(bucket) => self.lists.slots[bucket.0 as usize % SLOT_COUNT] >= self.batch,
        }
    }

    /// Puts a request into the queue of those that it depends on. Returns the queue if there are none.
    #[inline(always)]
    pub(super) fn admit(&mut self, place: usize, admission: Admission) -> Option<ChainIndex> {
        let Lists { slots, next, fronts } = &mut *self.lists;
        let before = match admission {
            Admission::Alone => IN_FLIGHT_MAX,
            Admission::To(bucket) => {
                let slot = &mut slots[bucket.0 as usize % SLOT_COUNT];
                let last = std::mem::replace(slot, self.batch | place as u32) ^ self.batch;
                (last as usize).min(IN_FLIGHT_MAX)
            }
        };
        // Whether a request depends on another is chance: a branch would be guessed wrong too often.
        let depends = before < IN_FLIGHT_MAX;
        next[before].set(place as u16);
        next[place % IN_FLIGHT_MAX].set(NONE);
        fronts[self.chains % IN_FLIGHT_MAX].set(place as u16);
        let chain = ChainIndex(self.chains as u16);
        self.chains += usize::from(!depends);
        (!depends).then_some(chain)
    }
}

impl Chains for Station {
    #[inline]
    fn front(&self, chain: ChainIndex) -> Option<Waiting> {
        Waiting::some(self.lists.fronts[usize::from(chain.0) % IN_FLIGHT_MAX].get())
    }

    #[inline]
    fn after(&self, request: Waiting) -> Option<Waiting> {
        Waiting::some(self.lists.next[request.index() % IN_FLIGHT_MAX].get())
    }

    #[inline]
    fn retire(&self, chain: ChainIndex, before: Option<Waiting>, request: Waiting) {
        let next = self.lists.next[request.index() % IN_FLIGHT_MAX].get();
        match before {
            Some(before) => self.lists.next[before.index()].set(next),
            None => self.lists.fronts[usize::from(chain.0) % IN_FLIGHT_MAX].set(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(station: &Station, chains: &[ChainIndex]) -> Vec<Vec<usize>> {
        let requests = |chain| std::iter::successors(station.front(chain), |request| station.after(*request));
        chains.iter().map(|chain| requests(*chain).map(Waiting::index).collect()).collect()
    }

    fn admit(station: &mut Station, buckets: &[u32]) -> Vec<ChainIndex> {
        let mut arrivals = station.begin();
        let admissions = buckets.iter().map(|bucket| Admission::To(BucketIndex(*bucket)));
        let admitted = admissions.enumerate().filter_map(|(place, admission)| {
            let is_blocked = arrivals.is_blocked(admission);
            let chain = arrivals.admit(place, admission);
            assert_eq!(chain.is_none(), is_blocked);
            chain
        });
        admitted.collect()
    }

    #[test]
    fn requests_of_one_bucket_wait_in_order_whatever_their_keys() {
        let mut station = Station::new();
        for round in 0..2 {
            let buckets = [7, 8, 7, 7 + 1024, 8];
            let chains = admit(&mut station, &buckets);
            // 1024 buckets apart is the same slot.
            assert_eq!(requests(&station, &chains), [vec![0, 2, 3], vec![1, 4]], "round {round}");
        }
    }

    #[test]
    fn a_request_can_retire_from_anywhere() {
        let mut station = Station::new();
        let chains = admit(&mut station, &[5; 4]);
        let chain = chains[0];
        station.retire(chain, Some(Waiting(1)), Waiting(2));
        assert_eq!(requests(&station, &chains), [[0, 1, 3]]);
        station.retire(chain, None, Waiting(0));
        assert_eq!(requests(&station, &chains), [[1, 3]]);
        station.clear(chain);
        assert_eq!(station.front(chain), None);
    }

    /// A slot remembers the last batch that used it; the numbers of batches must not meet again.
    #[test]
    fn a_full_station_forgets_its_batches_when_their_numbers_end() {
        let mut station = Station::new();
        station.batch = (1 << (u32::BITS - PLACE_BITS)) - 1;
        for _ in 0..3 {
            let chains = admit(&mut station, &std::array::from_fn::<_, IN_FLIGHT_MAX, _>(|place| place as u32));
            assert_eq!(requests(&station, &chains), (0..IN_FLIGHT_MAX).map(|place| vec![place]).collect::<Vec<_>>());
        }
        assert!(station.batch < 4);
    }
}
