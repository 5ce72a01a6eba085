//! The reservation station: which operations under way depend on each other (KV-Direct, section 3.3.3).
//!
//! ```text
//! slots, 1024     heads ─┐                    chains of a batch's requests, by their place in it
//!   0  empty             │
//!   1  ──────────────────▶ 4 ─▶ 17 ─▶ 18      4 is under way, 17 and 18 wait for it
//!   2  empty
//!   3  ──────────────────▶ 9
//! ```
//!
//! A request's slot follows from the number of its bucket. Two keys of one bucket, or of its chain, therefore depend on
//! each other: nothing else may come between reading a bucket's line and writing it. Requests of different buckets that
//! share a slot depend on each other too, needlessly but harmlessly; a dependency is never missed.
//!
//! One operation of a chain is under way; the others of the same key get its value forwarded, see [`super::chain`].

use std::cell::Cell;

use super::interleaver::IN_FLIGHT_MAX;
use crate::hash::BucketIndex;

/// Slots of the station (KV-Direct, section 3.3.3).
const SLOT_COUNT: usize = 1024;
/// No request.
const NONE: u16 = u16::MAX;

const _: () = assert!(SLOT_COUNT.is_power_of_two() && IN_FLIGHT_MAX < NONE as usize);

/// Number of a slot of the station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StationSlot(u16);

/// Place of a request in the part of the batch that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting(u16);

impl Waiting {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    fn some(raw: u16) -> Option<Self> {
        (raw != NONE).then_some(Waiting(raw))
    }
}

/// The chains of dependent requests. Admission builds them; while they are worked off, requests only leave.
#[derive(Debug)]
pub(super) struct Station {
    heads: Box<[Cell<u16>; SLOT_COUNT]>,
    tails: Box<[u16; SLOT_COUNT]>,
    next: Box<[Cell<u16>; IN_FLIGHT_MAX]>,
    /// The slots that are not empty, in the order of their first request.
    occupied: Vec<StationSlot>,
}

impl Station {
    pub(super) fn new() -> Self {
        Station {
            heads: Box::new([const { Cell::new(NONE) }; SLOT_COUNT]),
            tails: Box::new([NONE; SLOT_COUNT]),
            next: Box::new([const { Cell::new(NONE) }; IN_FLIGHT_MAX]),
            occupied: Vec::with_capacity(IN_FLIGHT_MAX),
        }
    }

    /// Empties the station.
    pub(super) fn reset(&mut self) {
        for slot in self.occupied.drain(..) {
            self.heads[usize::from(slot.0)].set(NONE);
        }
    }

    /// Lets a request wait behind those that it depends on.
    pub(super) fn admit(&mut self, request_index: usize, bucket: BucketIndex) {
        let slot = bucket.0 as usize % SLOT_COUNT;
        let request = request_index as u16;
        self.next[request_index].set(NONE);
        if self.heads[slot].get() == NONE {
            self.heads[slot].set(request);
            self.occupied.push(StationSlot(slot as u16));
        } else {
            self.next[usize::from(self.tails[slot])].set(request);
        }
        self.tails[slot] = request;
    }

    /// How many chains there are.
    pub(super) fn chain_count(&self) -> usize {
        self.occupied.len()
    }

    /// The slot of a chain, by its number in the order of first requests.
    pub(super) fn chain_slot(&self, chain: usize) -> StationSlot {
        self.occupied[chain]
    }

    /// The first request of a chain.
    pub(super) fn front(&self, slot: StationSlot) -> Option<Waiting> {
        Waiting::some(self.heads[usize::from(slot.0)].get())
    }

    /// The request behind this one.
    pub(super) fn after(&self, request: Waiting) -> Option<Waiting> {
        Waiting::some(self.next[request.index()].get())
    }

    /// Takes a request out of its chain; `before` is the one before it, `None` if it is the first.
    pub(super) fn retire(&self, slot: StationSlot, before: Option<Waiting>, request: Waiting) {
        let next = self.next[request.index()].get();
        match before {
            Some(before) => self.next[before.index()].set(next),
            None => self.heads[usize::from(slot.0)].set(next),
        }
    }

    /// Takes all requests out of a chain.
    pub(super) fn clear(&self, slot: StationSlot) {
        self.heads[usize::from(slot.0)].set(NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(station: &Station, slot: StationSlot) -> Vec<usize> {
        std::iter::successors(station.front(slot), |request| station.after(*request)).map(Waiting::index).collect()
    }

    #[test]
    fn requests_of_one_bucket_wait_in_order_whatever_their_keys() {
        let mut station = Station::new();
        for round in 0..2 {
            for (request, bucket) in [(0, 7), (1, 8), (2, 7), (3, 7 + 1024), (4, 8)] {
                station.admit(request, BucketIndex(bucket));
            }
            assert_eq!(station.chain_count(), 2, "round {round}");
            assert_eq!(chain(&station, station.chain_slot(0)), [0, 2, 3], "1024 buckets apart is the same slot");
            assert_eq!(chain(&station, station.chain_slot(1)), [1, 4]);
            station.reset();
            assert_eq!(station.chain_count(), 0);
        }
    }

    #[test]
    fn a_request_can_retire_from_anywhere() {
        let mut station = Station::new();
        for request in 0..4 {
            station.admit(request, BucketIndex(5));
        }
        let slot = station.chain_slot(0);
        station.retire(slot, Some(Waiting(1)), Waiting(2));
        assert_eq!(chain(&station, slot), [0, 1, 3]);
        station.retire(slot, None, Waiting(0));
        assert_eq!(chain(&station, slot), [1, 3]);
        station.clear(slot);
        assert_eq!(station.front(slot), None);
    }
}
