//! Drives any store beside the naive store and compares every reply.
//!
//! The store is a function that executes a batch, so the harness knows neither the engine nor its memory. One
//! submission does this:
//!
//! 1. The store executes the batch.
//! 2. Each reply is compared with that of the naive store, in the order of the requests.
//! 3. A deferred request is executed by neither. It is returned, to be submitted again, and no later request on its
//!    key may have been executed.
//!
//! A store may defer all requests while it waits for memory: a hash store until free slabs are joined, an ordered store
//! until garbage is freed or a second is over. The function that submits to an ordered store advances the time.
//!
//! A difference panics with the seed, the number of the operation, the request and both replies.

use std::collections::BTreeMap;

use super::{NaiveStore, OwnedRequest};
use crate::processor::Replies;
use skep_core::operation::{Operation, OperationError, Reply, Request, Scan, ScanStart};

/// A store that executes nothing in this number of submissions, one after another, waits without end: the harness panics.
const WAIT_COUNT_MAX: u32 = 1000;

/// The naive store, the replies of the other store, and counts of what happened.
#[derive(Debug)]
pub struct Harness {
    seed: u64,
    naive: NaiveStore,
    replies: Replies,
    operations: u64,
    deferred: u64,
    failed: BTreeMap<u8, u64>,
}

/// Returns the seeds of a test: the one in the variable `SKEP_SEED`, or else these. A failing test prints its seed.
pub fn seeds(fixed: &[u64]) -> Vec<u64> {
    match std::env::var("SKEP_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKEP_SEED is a number")],
        Err(_) => fixed.to_vec(),
    }
}

impl Harness {
    /// Creates a harness beside this naive store. The seed is printed if a reply differs. Values in replies of one
    /// submission may have `reply_budget` bytes.
    pub fn new(naive: NaiveStore, reply_budget: usize, seed: u64) -> Self {
        let replies = Replies::with_budget(reply_budget);
        Harness { seed, naive, replies, operations: 0, deferred: 0, failed: BTreeMap::new() }
    }

    /// Returns the naive store, which has executed the same operations.
    pub fn naive(&self) -> &NaiveStore {
        &self.naive
    }

    /// Sets the time of the naive store, in milliseconds since 1970.
    pub fn set_now(&mut self, now: u64) {
        self.naive.set_now(now);
    }

    /// Returns the number of operations that were executed.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Returns how often a request was deferred.
    pub fn deferred(&self) -> u64 {
        self.deferred
    }

    /// Returns the number of operations that failed with this error.
    pub fn failed(&self, error: OperationError) -> u64 {
        self.failed.get(&(error as u8)).copied().unwrap_or(0)
    }

    /// Compares one reply of the other store with that of the naive store. Stores that a test reaches through a
    /// connection use this alone.
    pub fn check(&mut self, request: &Request<'_>, reply: Reply<'_>) {
        self.operations += 1;
        if let Reply::Failed(error) = reply {
            *self.failed.entry(error as u8).or_default() += 1;
        }
        if let Err(expected) = self.naive.check(request, reply) {
            let (seed, operation) = (self.seed, self.operations);
            panic!("SKEP_SEED={seed}, operation {operation}: {request:?}\nexpected {expected:?}\nreply {reply:?}");
        }
    }

    /// Executes a batch once and compares the replies. Returns the deferred requests.
    pub fn submit<'a>(
        &mut self,
        requests: &[Request<'a>],
        store: impl FnOnce(&[Request<'a>], &mut Replies),
    ) -> Vec<Request<'a>> {
        self.submit_with(requests, store, |_, _| {})
    }

    /// Executes a batch, and the deferred requests again until all are executed.
    pub fn execute<'a>(&mut self, requests: &[Request<'a>], store: impl FnMut(&[Request<'a>], &mut Replies)) {
        self.execute_with(requests, store, |_, _| {});
    }

    /// Does the same for requests that own their bytes.
    pub fn execute_owned(&mut self, requests: &[OwnedRequest], mut store: impl FnMut(&[Request<'_>], &mut Replies)) {
        let requests: Vec<Request<'_>> = requests.iter().map(OwnedRequest::as_request).collect();
        self.execute(&requests, |requests, replies| store(requests, replies));
    }

    /// Does the same, and calls `on_reply` with each request and its correct reply.
    pub fn execute_with<'a>(
        &mut self,
        requests: &[Request<'a>],
        mut store: impl FnMut(&[Request<'a>], &mut Replies),
        mut on_reply: impl FnMut(&Request<'a>, Reply<'_>),
    ) {
        let mut left = requests.to_vec();
        let mut vain_count = 0;
        while !left.is_empty() {
            let deferred = self.submit_with(&left, &mut store, &mut on_reply);
            vain_count = if deferred.len() < left.len() { 0 } else { vain_count + 1 };
            assert!(
                vain_count < WAIT_COUNT_MAX,
                "SKEP_SEED={}: requests are deferred for ever, the first is {:?}",
                self.seed,
                deferred[0]
            );
            left = deferred;
        }
    }

    fn submit_with<'a>(
        &mut self,
        requests: &[Request<'a>],
        store: impl FnOnce(&[Request<'a>], &mut Replies),
        mut on_reply: impl FnMut(&Request<'a>, Reply<'_>),
    ) -> Vec<Request<'a>> {
        let seed = self.seed;
        // Taken out, because a reply borrows it while `check` changes the rest.
        let mut replies = std::mem::replace(&mut self.replies, Replies::with_budget(0));
        store(requests, &mut replies);
        assert_eq!(replies.len(), requests.len(), "SKEP_SEED={seed}");
        let mut deferred: Vec<Request<'a>> = Vec::new();
        for (request, reply) in requests.iter().zip(replies.iter()) {
            if reply == Reply::Deferred {
                deferred.push(*request);
                continue;
            }
            let overtaken = deferred.iter().find(|earlier| earlier.key == request.key);
            assert!(
                overtaken.is_none() || !self.must_wait(request),
                "SKEP_SEED={seed}: {request:?} was executed before {overtaken:?}, which was deferred"
            );
            self.check(request, reply);
            on_reply(request, reply);
        }
        self.deferred += deferred.len() as u64;
        self.replies = replies;
        deferred
    }

    /// Returns true if the operation depends on its key. An invalid one does not, and a scan that begins above the key
    /// does not show it.
    fn must_wait(&self, request: &Request<'_>) -> bool {
        let is_above = matches!(request.operation, Operation::Scan(Scan { start: ScanStart::Above, .. }));
        !is_above && self.naive.validate(request).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_core::operation::PutCondition;

    const PUT: Request<'static> =
        Request { key: b"k", operation: Operation::Put { value: b"v", condition: PutCondition::Always } };
    const GET: Request<'static> = Request { key: b"k", operation: Operation::Get };
    const OTHER: Request<'static> = Request { key: b"other", operation: Operation::Get };

    /// Returns a store that gives these replies to any requests.
    fn replies(given: Vec<Vec<Reply<'static>>>) -> impl FnMut(&[Request<'_>], &mut Replies) {
        let mut given = given.into_iter();
        move |_, replies| {
            let batch = given.next().expect("no more submissions");
            replies.reset(batch.len());
            for (index, reply) in batch.into_iter().enumerate() {
                if reply != Reply::Deferred {
                    replies.set(index, reply);
                }
            }
        }
    }

    fn run(requests: &[Request<'static>], given: Vec<Vec<Reply<'static>>>) -> Harness {
        let mut harness = Harness::new(NaiveStore::new(), 1 << 20, 7);
        harness.execute(requests, replies(given));
        harness
    }

    #[test]
    fn deferred_requests_are_submitted_again() {
        let given = vec![vec![Reply::Done, Reply::Deferred, Reply::NotFound], vec![Reply::Value(b"v")]];
        let harness = run(&[PUT, GET, OTHER], given);
        assert_eq!((harness.operations(), harness.deferred(), harness.naive().len()), (3, 1, 1));
    }

    #[test]
    #[should_panic(expected = "SKEP_SEED=7, operation 2")]
    fn another_reply_panics() {
        run(&[PUT, GET], vec![vec![Reply::Done, Reply::NotFound]]);
    }

    #[test]
    #[should_panic(expected = "which was deferred")]
    fn a_request_that_overtakes_one_of_its_key_panics() {
        run(&[PUT, GET], vec![vec![Reply::Deferred, Reply::NotFound]]);
    }

    #[test]
    #[should_panic(expected = "requests are deferred for ever")]
    fn a_store_that_executes_nothing_panics() {
        run(&[PUT], vec![vec![Reply::Deferred]; 1000]);
    }
}
