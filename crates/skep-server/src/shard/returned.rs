//! Connections whose operations another shard has returned, because it has no memory for them at the moment.
//!
//! All are tried again after a moment ([`NAP`]), in the order in which they came; each submits one operation. Connections with
//! large operations wait apart and follow the others: two of them use up the bytes of all that come first in a turn
//! ([`super::submission`]), and small operations would wait until each of them had its turn.

use std::collections::VecDeque;
use std::time::Instant;

use crate::limits::{LARGE_RESUMED_MAX, NAP, RESUMED_MAX};
use crate::vocabulary::Token;

/// The connections whose operations were returned.
pub(super) struct Returned {
    small: VecDeque<Token>,
    large: VecDeque<Token>,
    /// Those of each list that were tried in this turn, and came back to its head.
    again: [usize; 2],
    /// The time from which on they are tried again.
    next_retry: Instant,
}

impl Returned {
    /// Creates empty lists.
    pub(super) fn new(now: Instant) -> Returned {
        Returned { small: VecDeque::new(), large: VecDeque::new(), again: [0; 2], next_retry: now }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    /// Adds a connection.
    pub(super) fn push(&mut self, token: Token, is_large: bool) {
        self.of(is_large).push_back(token);
    }

    /// Adds a connection that was tried in this turn, and for which there was no slot or no byte left. It stays before those
    /// that came after it.
    pub(super) fn push_again(&mut self, token: Token, is_large: bool) {
        let again = &mut self.again[usize::from(is_large)];
        let at = *again;
        *again += 1;
        let list = self.of(is_large);
        list.insert(at.min(list.len()), token);
    }

    /// Returns true if connections are to be tried again.
    pub(super) fn are_due(&self, now: Instant) -> bool {
        !self.is_empty() && now >= self.next_retry
    }

    /// Begins a turn. Returns how many connections with small operations are tried in it, and how many with large ones.
    pub(super) fn begin(&mut self, now: Instant) -> (usize, usize) {
        self.again = [0; 2];
        if !self.are_due(now) {
            return (0, 0);
        }
        self.next_retry = now + NAP;
        (self.small.len().min(RESUMED_MAX), self.large.len().min(LARGE_RESUMED_MAX))
    }

    /// Ends a turn that began at `begun`. If connections were tried in it, the moment until the next time begins now: their
    /// operations may have taken longer.
    pub(super) fn end(&mut self, begun: Instant, now: Instant) {
        if self.next_retry == begun + NAP {
            self.next_retry = now + NAP;
        }
    }

    /// Takes the first connection of a list.
    pub(super) fn pop(&mut self, is_large: bool) -> Option<Token> {
        self.of(is_large).pop_front()
    }

    /// Returns the time from which on connections are tried again.
    #[cfg(test)]
    pub(super) fn next_retry(&self) -> Instant {
        self.next_retry
    }

    fn of(&mut self, is_large: bool) -> &mut VecDeque<Token> {
        if is_large { &mut self.large } else { &mut self.small }
    }
}
