//! The queue of connections that are ready to be served. Those that were costly wait apart.
//!
//! 1. A connection has a *cost*: the work of its last turn that its number of operations does not show. Such work is that of
//!    large values, patterns and isolated commands. With each turn of the shard, the connection pays its share of a turn. What
//!    it has not paid yet is its *debt* ([`crate::endpoint::Endpoint::debt`]).
//! 2. Connections with a debt of at least [`COSTLY_WORK`] wait in a queue of their own. A turn takes connections of the other
//!    queue first, so that a small request does not wait for all large ones. It takes at least one of each queue, so that
//!    none waits forever.
//! 3. The debt is the work that is expected of the next turn. A turn takes connections until the work that it has done and
//!    the work that it expects are enough. A connection that was costly long ago is expected to cost nothing.
//!    When none waits after a turn, all debts are forgotten.
//! 4. Isolated commands wait elsewhere, by their own effort ([`super::later`]).
//! 5. A connection that waits aside while the store is lent comes back to the queue in which it waited before.

use std::collections::VecDeque;

use super::Shard;
use crate::limits::COSTLY_WORK;
use crate::vocabulary::Token;

/// The connections that are ready.
#[derive(Debug, Default)]
pub(super) struct ReadyQueue {
    cheap: VecDeque<Token>,
    costly: VecDeque<Token>,
    /// The last turn after whose intake no connection waited.
    pub(super) idle_turn: u64,
}

impl ReadyQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.cheap.is_empty() && self.costly.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.cheap.len() + self.costly.len()
    }

    /// Takes the connection at the head of one of the queues.
    pub(super) fn pop_of(&mut self, is_costly: bool) -> Option<Token> {
        self.of(is_costly).pop_front()
    }

    /// Takes the connection at the head.
    pub(super) fn pop_front(&mut self) -> Option<Token> {
        self.cheap.pop_front().or_else(|| self.costly.pop_front())
    }

    /// Puts a connection at the head of one of the queues.
    pub(super) fn push_front(&mut self, token: Token, is_costly: bool) {
        self.of(is_costly).push_front(token);
    }

    /// Puts a connection with this debt at the tail.
    pub(super) fn push_back(&mut self, token: Token, debt: usize) {
        self.of(debt >= COSTLY_WORK).push_back(token);
    }

    /// Keeps the connections for which `f` returns true, given whether they are costly.
    pub(super) fn retain(&mut self, mut f: impl FnMut(Token, bool) -> bool) {
        self.cheap.retain(|token| f(*token, false));
        self.costly.retain(|token| f(*token, true));
    }

    fn of(&mut self, is_costly: bool) -> &mut VecDeque<Token> {
        if is_costly { &mut self.costly } else { &mut self.cheap }
    }
}

impl Shard {
    /// Puts a connection into the queue, unless it is already queued.
    pub(super) fn queue(&mut self, token: Token) {
        if let Some(endpoint) = self.connections.get_mut(token)
            && !endpoint.is_queued
        {
            endpoint.is_queued = true;
            endpoint.waits_since.get_or_insert(self.turn.number);
            self.waits
                .ready
                .push_back(token, endpoint.debt(self.turn.number, self.waits.ready.idle_turn, self.waits.ready.len()));
        }
    }
}
