//! The reservation station: finds the operations in flight that depend on each other (KV-Direct, section 3.3.3).
//!
//! ```text
//! slots, 1024                  queues of requests, by their index in the batch
//!   0  of an earlier batch
//!   1  last request 18         queue 0  head 4 ─▶ 17 ─▶ 18     17 and 18 are blocked until 4 is executed
//!   2  of an earlier batch
//!   3  last request 9          queue 1  head 9
//! ```
//!
//! 1. The number of a request's bucket selects its slot. So requests on two keys of one bucket, or of its chain, depend
//!    on each other: no other operation may run between reading a bucket's line and writing it.
//! 2. Requests of different buckets that share a slot depend on each other too. This is not needed, but it does no
//!    harm: no dependency is missed.
//! 3. A slot holds its last request and the number of the batch, so no slot is emptied between batches.
//! 4. While queues are executed, requests are only removed. One operation of a queue is in flight. Later ones on its
//!    key are executed on the value that it leaves, see [`super::queue`].

use std::cell::Cell;

use super::interleaver::IN_FLIGHT_MAX;
use crate::hash::BucketIndex;

/// Slots of the station (KV-Direct, section 3.3.3).
pub(super) const SLOT_COUNT: usize = 1024;
/// In the lists: no request.
const NONE: u16 = u16::MAX;
/// In a slot, bits of the request's index; above them is the number of the batch.
const INDEX_BITS: u32 = IN_FLIGHT_MAX.ilog2();

const _: () = assert!(SLOT_COUNT.is_power_of_two() && IN_FLIGHT_MAX < NONE as usize);
const _: () = assert!(IN_FLIGHT_MAX.is_power_of_two());

/// Number of a queue, in the order of first requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueIndex(u16);

/// Index of a request in its part of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestIndex(u32);

impl RequestIndex {
    #[inline]
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    #[inline]
    pub(super) fn at(index: u32) -> Self {
        RequestIndex(index)
    }

    #[inline]
    fn some(raw: u16) -> Option<Self> {
        (raw != NONE).then_some(RequestIndex(raw.into()))
    }
}

impl QueueIndex {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(super) fn at(index: u16) -> Self {
        QueueIndex(index)
    }
}

/// Dependency queues from which requests are removed.
pub(super) trait Queues {
    /// Returns the first request of a queue.
    fn head(&self, queue: QueueIndex) -> Option<RequestIndex>;
    /// Returns the request after this one.
    fn after(&self, request: RequestIndex) -> Option<RequestIndex>;
    /// Removes a request from its queue; `before` is the one before it, `None` if it is the head.
    fn remove(&self, queue: QueueIndex, before: Option<RequestIndex>, request: RequestIndex);
}

/// The dependencies of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Admission {
    /// It depends on no other.
    Alone,
    /// It depends on the others of this bucket.
    To(BucketIndex),
}

/// The queues of dependent requests.
#[derive(Debug)]
pub(super) struct Station {
    lists: Box<Lists>,
    batch: u32,
}

/// All lists in one block, so that one register addresses them.
#[derive(Debug)]
struct Lists {
    slots: [u32; SLOT_COUNT],
    /// For each request, the next of its queue. No request has the last index.
    next: [Cell<u16>; IN_FLIGHT_MAX + 1],
    /// For each queue, its first request.
    heads: [Cell<u16>; IN_FLIGHT_MAX],
    /// Number of queues. In memory, so that the loop of admission has a register more.
    queue_count: u16,
}

impl Station {
    pub(super) fn new() -> Self {
        let lists = Lists {
            slots: [0; SLOT_COUNT],
            next: [const { Cell::new(NONE) }; IN_FLIGHT_MAX + 1],
            heads: [const { Cell::new(NONE) }; IN_FLIGHT_MAX],
            queue_count: 0,
        };
        Station { lists: Box::new(lists), batch: 1 }
    }

    /// Empties the station for a batch, whose requests are admitted in their order.
    #[inline]
    pub(super) fn begin(&mut self) -> Arrivals<'_> {
        self.batch += 1;
        if self.batch >> (u32::BITS - INDEX_BITS) != 0 {
            self.lists.slots.fill(0);
            self.batch = 1;
        }
        self.lists.queue_count = 0;
        Arrivals { lists: &mut self.lists, batch: self.batch << INDEX_BITS }
    }

    /// Removes all requests from a queue.
    pub(super) fn clear(&self, queue: QueueIndex) {
        self.lists.heads[usize::from(queue.0) % IN_FLIGHT_MAX].set(NONE);
    }

    /// Returns the first request of a queue that is not empty.
    #[inline(always)]
    pub(super) fn first(&self, queue: QueueIndex) -> RequestIndex {
        RequestIndex(self.lists.heads[usize::from(queue.0) % IN_FLIGHT_MAX].get().into())
    }
}

/// The requests of a batch while they are admitted.
pub(super) struct Arrivals<'a> {
    lists: &'a mut Lists,
    batch: u32,
}

impl Arrivals<'_> {
    /// Returns true if a request with this admission would depend on one that was admitted.
    #[inline(always)]
    pub(super) fn is_blocked(&self, admission: Admission) -> bool {
        match admission {
            Admission::Alone => false,
            // A slot of an earlier batch holds a smaller number.
            Admission::To(bucket) => self.lists.slots[bucket.0 as usize % SLOT_COUNT] >= self.batch,
        }
    }

    /// Appends a request to the queue of those that it depends on. Returns its new queue if it depends on none.
    #[inline(always)]
    pub(super) fn admit(&mut self, index: usize, admission: Admission) -> Option<QueueIndex> {
        let Lists { slots, next, heads, queue_count } = &mut *self.lists;
        let before = match admission {
            Admission::Alone => IN_FLIGHT_MAX,
            Admission::To(bucket) => {
                let slot = &mut slots[bucket.0 as usize % SLOT_COUNT];
                let last = std::mem::replace(slot, self.batch | index as u32) ^ self.batch;
                (last as usize).min(IN_FLIGHT_MAX)
            }
        };
        // Dependencies are random, so a branch would be mispredicted too often.
        let depends = before < IN_FLIGHT_MAX;
        next[before].set(index as u16);
        next[index % IN_FLIGHT_MAX].set(NONE);
        let queue = QueueIndex(*queue_count);
        heads[queue.index() % IN_FLIGHT_MAX].set(index as u16);
        *queue_count += u16::from(!depends);
        (!depends).then_some(queue)
    }
}

impl Queues for Station {
    #[inline]
    fn head(&self, queue: QueueIndex) -> Option<RequestIndex> {
        RequestIndex::some(self.lists.heads[usize::from(queue.0) % IN_FLIGHT_MAX].get())
    }

    #[inline]
    fn after(&self, request: RequestIndex) -> Option<RequestIndex> {
        RequestIndex::some(self.lists.next[request.index() % IN_FLIGHT_MAX].get())
    }

    #[inline]
    fn remove(&self, queue: QueueIndex, before: Option<RequestIndex>, request: RequestIndex) {
        let next = self.lists.next[request.index() % IN_FLIGHT_MAX].get();
        match before {
            Some(before) => self.lists.next[before.index()].set(next),
            None => self.lists.heads[usize::from(queue.0) % IN_FLIGHT_MAX].set(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(station: &Station, queues: &[QueueIndex]) -> Vec<Vec<usize>> {
        let requests = |queue| std::iter::successors(station.head(queue), |request| station.after(*request));
        queues.iter().map(|queue| requests(*queue).map(RequestIndex::index).collect()).collect()
    }

    fn admit(station: &mut Station, buckets: &[u32]) -> Vec<QueueIndex> {
        let mut arrivals = station.begin();
        let admissions = buckets.iter().map(|bucket| Admission::To(BucketIndex(*bucket)));
        let admitted = admissions.enumerate().filter_map(|(index, admission)| {
            let is_blocked = arrivals.is_blocked(admission);
            let queue = arrivals.admit(index, admission);
            assert_eq!(queue.is_none(), is_blocked);
            queue
        });
        admitted.collect()
    }

    #[test]
    fn requests_of_one_bucket_are_queued_in_order_for_all_keys() {
        let mut station = Station::new();
        for round in 0..2 {
            let buckets = [7, 8, 7, 7 + 1024, 8];
            let queues = admit(&mut station, &buckets);
            // 1024 buckets apart is the same slot.
            assert_eq!(requests(&station, &queues), [vec![0, 2, 3], vec![1, 4]], "round {round}");
        }
    }

    #[test]
    fn a_request_can_be_removed_from_any_position() {
        let mut station = Station::new();
        let queues = admit(&mut station, &[5; 4]);
        let queue = queues[0];
        station.remove(queue, Some(RequestIndex(1)), RequestIndex(2));
        assert_eq!(requests(&station, &queues), [[0, 1, 3]]);
        station.remove(queue, None, RequestIndex(0));
        assert_eq!(requests(&station, &queues), [[1, 3]]);
        station.clear(queue);
        assert_eq!(station.head(queue), None);
    }

    /// A slot keeps the number of the last batch that used it, so numbers must not be used twice.
    #[test]
    fn a_full_station_forgets_its_batches_when_their_numbers_end() {
        let mut station = Station::new();
        station.batch = (1 << (u32::BITS - INDEX_BITS)) - 1;
        for _ in 0..3 {
            let queues = admit(&mut station, &std::array::from_fn::<_, IN_FLIGHT_MAX, _>(|index| index as u32));
            assert_eq!(requests(&station, &queues), (0..IN_FLIGHT_MAX).map(|index| vec![index]).collect::<Vec<_>>());
        }
        assert!(station.batch < 4);
    }
}
