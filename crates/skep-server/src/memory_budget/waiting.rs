//! Requests that wait for memory, of all shards, in the order of their arrival. It is accessed only while memory is
//! scarce.

use std::collections::VecDeque;

use super::loan::Class;
use crate::vocabulary::Token;

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
}

/// The outcome of an attempt to grant memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Granted,
    /// Fewer bytes are free.
    NoMemory,
    /// The pool is used up, and another connection is the senior.
    NoPool,
}

/// The connections that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// In the order of their tickets.
    queue: VecDeque<Waiter>,
    /// The one that may grow beyond the pool.
    pub(super) senior: Option<u64>,
    /// Those whose memory was granted, and whose shards do not know it.
    admitted: Vec<Waiter>,
}

impl Waiting {
    /// Adds a connection.
    pub(super) fn push(&mut self, waiter: Waiter) {
        let index = self.queue.partition_point(|before| before.ticket <= waiter.ticket);
        self.queue.insert(index, waiter);
    }

    /// Returns the numbers of the connections that wait, in their order.
    #[cfg(test)]
    pub(super) fn connections(&self) -> impl Iterator<Item = u64> {
        self.queue.iter().map(|waiter| waiter.connection)
    }

    /// Returns the number of connections that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
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
        self.len() < before
    }

    /// Grants memory as far as `attempt` succeeds: first to the senior, then in the order of the tickets until one lacks
    /// free bytes. Those that only lack room in the pool keep no other one waiting.
    pub(super) fn admit(&mut self, mut attempt: impl FnMut(&mut Waiter, &mut Option<u64>) -> Attempt) {
        let Waiting { queue, senior, admitted } = self;
        if let Some(index) = queue.iter().position(|waiter| *senior == Some(waiter.connection)) {
            match attempt(&mut queue[index], senior) {
                Attempt::Granted => admitted.extend(queue.remove(index)),
                _ => return,
            }
        }
        let mut index = 0;
        while let Some(waiter) = queue.get_mut(index) {
            match attempt(waiter, senior) {
                Attempt::Granted => admitted.extend(queue.remove(index)),
                Attempt::NoMemory => return,
                Attempt::NoPool => index += 1,
            }
        }
    }
}
