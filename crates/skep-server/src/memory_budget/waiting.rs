//! Requests that wait for memory, of all shards, in the order of their arrival. It is accessed only while memory is
//! scarce.

use std::collections::VecDeque;

use super::loan::Class;
use crate::vocabulary::Token;

/// The most seniors in succession that are preferred to the first one that waits.
const PREFERRED_MAX: usize = 16;

/// A connection that waits for memory for its request.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) shard: u16,
    pub(crate) token: Token,
    pub(crate) connection: u64,
    /// Bytes that it needs in addition.
    pub(crate) bytes: usize,
    /// The class that it has when they are granted.
    pub(crate) class: Class,
    /// The number of its request, in the order in which requests began to wait.
    pub(crate) ticket: u64,
    /// Bytes that its client has sent for requests that are done.
    pub(crate) proven: u64,
    /// It may use the small part.
    pub(crate) is_small: bool,
    /// Its bytes were granted from the small part.
    pub(crate) is_in_small_part: bool,
}

/// The outcome of an attempt to grant memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Granted,
    /// Fewer bytes are free.
    NoMemory,
    /// The pool is used up, and the connection is not the senior.
    NoPool,
}

/// The connections that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// In the order of their tickets.
    queue: VecDeque<Waiter>,
    /// The number of those that may use the small part.
    small_count: usize,
    /// The one that may grow beyond the pool.
    pub(super) senior: Option<u64>,
    /// The number of seniors that were closed because their clients were slow.
    slow_seniors: usize,
    /// How many of the next seniors are preferred to the first one that waits.
    preferred_left: usize,
    /// Those whose memory was granted, and whose shards do not know it.
    admitted: Vec<Waiter>,
}

impl Waiting {
    /// Adds a connection.
    pub(super) fn push(&mut self, waiter: Waiter) {
        let index = self.queue.partition_point(|before| before.ticket <= waiter.ticket);
        self.small_count += usize::from(waiter.is_small);
        self.queue.insert(index, waiter);
    }

    /// Returns the numbers of the connections that wait, in their order.
    #[cfg(test)]
    pub(super) fn connections(&self) -> impl Iterator<Item = u64> {
        self.queue.iter().map(|waiter| waiter.connection)
    }

    /// Returns the first one that waits.
    #[cfg(test)]
    pub(super) fn first(&self) -> Option<&Waiter> {
        self.queue.front()
    }

    /// Returns the number of connections that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if a connection waits that may use the small part.
    pub(super) fn has_small(&self) -> bool {
        self.small_count > 0
    }

    /// Returns the shards of the connections whose memory was granted.
    pub(super) fn admitted_shards(&self) -> impl Iterator<Item = u16> {
        self.admitted.iter().map(|waiter| waiter.shard)
    }

    /// Returns the number of connections whose memory was granted.
    pub(super) fn admitted_count(&self) -> usize {
        self.admitted.len()
    }

    /// Takes the connections of a shard whose memory was granted.
    pub(super) fn take_admitted(&mut self, shard: u16) -> Vec<Waiter> {
        let (own, others) = std::mem::take(&mut self.admitted).into_iter().partition(|waiter| waiter.shard == shard);
        self.admitted = others;
        own
    }

    /// Removes a connection that has ended. Returns true if it waited.
    pub(super) fn remove(&mut self, connection: u64) -> bool {
        if self.senior == Some(connection) {
            self.senior = None;
        }
        let before = self.len();
        self.queue.retain(|waiter| waiter.connection != connection);
        self.count_small();
        self.len() < before
    }

    fn count_small(&mut self) {
        self.small_count = self.queue.iter().filter(|waiter| waiter.is_small).count();
    }

    /// Records that the senior is closed because its client is slow. Those that wait next may be as slow, and each of them
    /// would keep all others waiting for as long. So the senior after every other slow one is a preferred one.
    pub(super) fn end_slow(&mut self, connection: u64) {
        if self.senior == Some(connection) {
            self.slow_seniors += 1;
            self.preferred_left = if self.slow_seniors % 2 == 1 { PREFERRED_MAX } else { 0 };
        }
    }

    /// Returns the next senior, if the one at `first` is the first one that lacks room in the pool. Those are preferred whose
    /// clients have sent the most bytes of requests that are done: a client that is closed as slow begins anew. If there are
    /// none, every other time the last one is.
    fn next_senior(&mut self, first: usize) -> usize {
        if self.preferred_left == 0 {
            return first;
        }
        self.preferred_left -= 1;
        let growing = || self.queue.iter().enumerate().filter(|(_, waiter)| waiter.class == Class::Growing);
        let proven = growing().filter(|(_, waiter)| waiter.proven > 0).rev().max_by_key(|(_, waiter)| waiter.proven);
        let last = growing().next_back().filter(|_| self.slow_seniors % 4 == 1);
        proven.or(last).map_or(first, |(index, _)| index)
    }

    /// Grants memory of the common part as far as `attempt` succeeds, which is told if the connection is the senior: first
    /// to the senior, then in the order of the tickets until one lacks free bytes. Those that only lack room in the pool keep
    /// no other one waiting. If there is no senior then, one of them becomes it.
    pub(super) fn admit(&mut self, mut attempt: impl FnMut(&mut Waiter, bool) -> Attempt) {
        let senior = self.senior;
        if let Some(index) = self.queue.iter().position(|waiter| senior == Some(waiter.connection))
            && self.admit_at(index, &mut attempt) != Attempt::Granted
        {
            return;
        }
        let mut index = 0;
        while index < self.queue.len() {
            match self.admit_at(index, &mut attempt) {
                Attempt::Granted => {}
                Attempt::NoMemory => return,
                Attempt::NoPool if self.senior.is_some() => index += 1,
                Attempt::NoPool => {
                    let senior = self.next_senior(index);
                    self.senior = Some(self.queue[senior].connection);
                    if self.admit_at(senior, &mut attempt) != Attempt::Granted {
                        return;
                    }
                }
            }
        }
    }

    /// Grants memory of the small part to those that may use it, in the order of the tickets, as far as `take` succeeds. The
    /// senior gets its memory only from the common part, where it comes first.
    pub(super) fn admit_small(&mut self, mut take: impl FnMut(usize) -> bool) {
        let mut index = 0;
        while self.small_count > 0 && index < self.queue.len() {
            let waiter = &mut self.queue[index];
            if !waiter.is_small || self.senior == Some(waiter.connection) {
                index += 1;
                continue;
            }
            if !take(waiter.bytes) {
                return;
            }
            waiter.is_in_small_part = true;
            self.grant(index);
        }
    }

    fn admit_at(&mut self, index: usize, attempt: &mut impl FnMut(&mut Waiter, bool) -> Attempt) -> Attempt {
        let waiter = &mut self.queue[index];
        let is_senior = self.senior == Some(waiter.connection);
        let outcome = attempt(waiter, is_senior);
        if outcome == Attempt::Granted {
            self.grant(index);
        }
        outcome
    }

    /// Moves a connection to those whose memory was granted.
    fn grant(&mut self, index: usize) {
        if let Some(waiter) = self.queue.remove(index) {
            self.small_count -= usize::from(waiter.is_small);
            self.admitted.push(waiter);
        }
    }
}
