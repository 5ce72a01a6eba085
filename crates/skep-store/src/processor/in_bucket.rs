//! The loop over the requests of a part whose home buckets are resident. It completes most requests.
//!
//! ```text
//! requests, ─▶ short values of  ─▶ pairs that are inserted  ─▶ all others: station, and
//! in order     inline pairs        or removed there            the list of the next stage
//! ```
//!
//! The loop takes the requests in their order. A request whose station slot has an earlier one that is queued is appended to its
//! queue. So the order of a key's requests is kept, and a completed request was never in the station. It completes a request
//! in these cases:
//!
//! 1. The pair is inline, with a key of up to 16 bytes and a value of one to eight bytes, and the size of the value does not
//!    change. Adjacent requests on one key are executed by [`ExecuteSameKey`].
//! 2. It is a put of a missing key, the pair is inline, and the home bucket has no chain.
//! 3. It is a delete of an inline pair in its home bucket, and the next bucket of the chain stays where it is.
//!
//! If a request becomes the head of a queue, the loop has probed its home bucket.
//!
//! A part of GETs has a loop of its own, because edits would take registers from it. The others have an inner loop for the
//! first case. The loops are over [`ResidentLines`]. Closures, and a call for what the inner loop leaves, were measured: they
//! cost more instructions.

use std::hint::cold_path;

use super::replies::Entry;
use super::resident::Stages;
use super::same_key::{ExecuteSameKey, SameKeys, execute_short_value, get_short_value};
use super::station::{Admission, Arrivals};
use crate::apply::{NewValue, put_if_missing};
use crate::hash::{Bucket, HashTable, Home, Lanes, Probe, WithLanes, probe};
use crate::memory::{LINE_SIZE, Memory, Pointer, ResidentLines};
use skep_core::operation::{Operation, Request};

/// Executes requests in their home buckets, in order, and admits all others to the station. The output is the number of GETs
/// that found their key, or `None` if the memory has no lines resident: then nothing was done.
pub(super) struct ExecuteInBuckets<'a, 's, 'k, M, A, const ONLY_GETS: bool> {
    pub(super) table: &'a HashTable<M>,
    pub(super) requests: &'a [Request<'k>],
    pub(super) homes: &'a [Home],
    pub(super) entries: &'a mut [Entry],
    pub(super) arrivals: Arrivals<'s>,
    pub(super) stages: &'a mut Stages,
    pub(super) same_keys: &'a SameKeys,
    pub(super) admission: A,
}

impl<M: Memory, A: Fn(&Home) -> Admission, const ONLY_GETS: bool> WithLanes
    for ExecuteInBuckets<'_, '_, '_, M, A, ONLY_GETS>
{
    type Output = Option<u64>;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> Self::Output {
        let ExecuteInBuckets { table, requests, homes, entries, arrivals, stages, same_keys, admission } = self;
        let count = requests.len();
        let (homes, entries) = (&homes[..count], &mut entries[..count]);
        let mut state = State { table, lines: table.memory().resident()?, arrivals, stages, hits: 0 };
        state.stages.counts.requests += count as u64;
        let mut begin = 0;
        for same_key in same_keys.iter().chain(std::iter::once(count..count)) {
            let others = begin..same_key.start;
            let run = Run {
                first: begin,
                requests: &requests[others.clone()],
                homes: &homes[others.clone()],
                entries: &mut entries[others],
            };
            if ONLY_GETS {
                state.execute_gets(lanes, run, &admission);
            } else {
                state.execute_any(lanes, run, &admission);
            }
            begin = same_key.start;
            if let Some(home) = homes.get(begin)
                && !state.arrivals.is_blocked(admission(home))
            {
                let (requests, entries) = (&requests[same_key.clone()], &mut entries[same_key]);
                begin += state.execute_same_key(home, requests, entries);
            }
        }
        Some(state.hits)
    }
}

/// Adjacent requests of a part, of which no two adjacent ones are on one key.
struct Run<'r, 'k> {
    /// The index of the first.
    first: usize,
    requests: &'r [Request<'k>],
    homes: &'r [Home],
    entries: &'r mut [Entry],
}

/// The state of the loops.
struct State<'a, 's, M, L> {
    table: &'a HashTable<M>,
    lines: L,
    arrivals: Arrivals<'s>,
    stages: &'a mut Stages,
    /// GETs that have found their key.
    hits: u64,
}

impl<M: Memory, L: ResidentLines> State<'_, '_, M, L> {
    /// Executes requests that are all GETs.
    #[inline(always)]
    fn execute_gets(&mut self, lanes: impl Lanes, run: Run<'_, '_>, admission: &impl Fn(&Home) -> Admission) {
        let Run { first, requests, homes, entries } = run;
        let requests = (first..first + requests.len()).zip(requests);
        for ((index, request), (home, entry)) in requests.zip(homes.iter().zip(entries)) {
            let at = home.bucket.pointer();
            let admission = admission(home);
            if self.arrivals.is_blocked(admission) {
                cold_path();
                self.arrivals.append(index, admission);
                continue;
            }
            let quick = get_short_value(lanes, &mut self.lines, at, request, entry, &mut self.hits);
            let Some(quick) = quick else { continue };
            cold_path();
            let bucket = Bucket::from_line_mut(self.lines.line(at));
            let probe = probe(lanes, bucket, request.key, home.secondary(), quick);
            self.begin_queue(index, admission, at, probe);
        }
    }

    /// Executes requests of all kinds.
    #[inline(always)]
    fn execute_any(&mut self, lanes: impl Lanes, run: Run<'_, '_>, admission: &impl Fn(&Home) -> Admission) {
        let Run { first, requests, homes, entries } = run;
        let mut next = 0;
        loop {
            let mut quick = None;
            while next < requests.len() && !self.arrivals.is_blocked(admission(&homes[next])) {
                let at = homes[next].bucket.pointer();
                let (request, entry) = (&requests[next], &mut entries[next]);
                quick = execute_short_value(lanes, &mut self.lines, at, request, entry, &mut self.hits);
                if quick.is_some() {
                    break;
                }
                next += 1;
            }
            let Some(request) = requests.get(next) else { break };
            let (index, home, entry) = (first + next, &homes[next], &mut entries[next]);
            let admission = admission(home);
            next += 1;
            let Some(quick) = quick else {
                self.arrivals.append(index, admission);
                continue;
            };
            let at = home.bucket.pointer();
            let bucket = Bucket::from_line_mut(self.lines.line(at));
            let probe = probe(lanes, bucket, request.key, home.secondary(), quick);
            if self.edit(home, request, probe) {
                *entry = Entry::DONE;
            } else {
                self.begin_queue(index, admission, at, probe);
            }
        }
    }

    /// Makes the edit of a put or a delete, after a probe of its home bucket, if no other bucket is to be read. Returns true if
    /// it did. Then the reply is [`Reply::Done`](skep_core::operation::Reply::Done).
    #[inline(always)]
    fn edit(&mut self, home: &Home, request: &Request<'_>, probe: Probe) -> bool {
        let bucket = Bucket::from_line_mut(self.lines.line(home.bucket.pointer()));
        match probe {
            // If there is no memory, the main path fails too.
            Probe::Absent if bucket.chain().is_none() => match put_if_missing(&request.operation) {
                Some(put @ NewValue::Put(_)) => {
                    self.table.insert_inline_resident(&mut self.lines, home, request.key, &put)
                }
                _ => false,
            },
            Probe::Pair(pair) if matches!(request.operation, Operation::Delete) => {
                self.table.remove_from_home(&mut self.lines, home, pair)
            }
            _ => false,
        }
    }

    /// Begins the queue of a request, after a probe of its home bucket at `at`.
    #[inline(always)]
    fn begin_queue(&mut self, index: usize, admission: Admission, at: Pointer, probe: Probe) {
        let queue = self.arrivals.begin(index, admission);
        let bucket = Bucket::from_line_mut(self.lines.line(at));
        self.stages.enter(queue, at, bucket, probe);
    }

    /// Executes the first of these requests on one key. Returns their number.
    #[inline(always)]
    fn execute_same_key(&mut self, home: &Home, requests: &[Request<'_>], entries: &mut [Entry]) -> usize {
        let at = home.bucket.pointer();
        let bucket = Bucket::from_line_mut(self.lines.line(at));
        let executed = self.table.search().run(ExecuteSameKey { bucket, requests, entries });
        self.lines.note(at.span(LINE_SIZE), executed.effect);
        self.stages.counts.same_key += executed.count as u64;
        self.hits += executed.hits;
        executed.count
    }
}
