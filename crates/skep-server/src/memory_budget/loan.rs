//! The memory of one connection in the account. Only [`ShardBudget`](super::ShardBudget) changes it.
//!
//! ```text
//!   requests   │ in use │ in a visit │ granted: still to come │
//!   replies    │ in use │ permitted: still to come │
//!   charge       what is in use, and what is still to come, beyond the share and the bytes of the small part
//! ```

use crate::limits::{ISOLATED_REPLY_MAX, SHARE};

/// The reason why a connection may hold more than its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Class {
    /// It may need more for the same request. All such connections share the pool.
    #[default]
    Growing,
    /// The one connection that may grow beyond the pool, to the most that one may hold.
    Senior,
    /// It needs no more until its request is done.
    Whole,
}

/// The right to write a reply that may be large. Only the account gives one, so that no command writes such a reply
/// without memory for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permit {
    reply_max: usize,
}

impl Permit {
    /// Returns the permit of a command whose reply is short regardless of the values in the stores.
    pub(crate) fn for_short_reply() -> Permit {
        Permit { reply_max: ISOLATED_REPLY_MAX }
    }

    pub(super) fn new(reply_max: usize) -> Permit {
        Permit { reply_max: reply_max.max(1) }
    }

    /// Returns the bytes of replies after which a command pauses that is run in parts. It may exceed them by the bytes that
    /// a store returns at a time.
    pub(crate) fn reply_max(self) -> usize {
        self.reply_max
    }
}

/// The memory of a connection that its shard has recorded, and what the account has granted.
#[derive(Debug, Default)]
pub(crate) struct Loan {
    /// Bytes that it held when they were last recorded.
    held: usize,
    /// Of these, bytes of requests: the input, and what is decoded of it.
    requests: usize,
    /// Of these, replies that the client has not taken.
    outputs: usize,
    /// Bytes that its requests may take until the one that arrives is done.
    granted: usize,
    /// Of these, bytes of the small part.
    small_part: usize,
    /// Bytes of its requests that a visit holds, in use or granted.
    away: usize,
    /// Bytes that it took of the pool when it was admitted as a whole. It keeps them: when its request is done, it is growing
    /// again, and what else it has read does not fit otherwise.
    pool_kept: usize,
    /// Bytes that its replies may take until its command is done.
    permitted: usize,
    class: Class,
}

impl Loan {
    /// Returns the bytes that were recorded last.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Returns the replies that were recorded last.
    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Returns the bytes that are not of requests.
    fn replies(&self) -> usize {
        self.held - self.requests
    }

    /// Returns the bytes of the small part that it was granted.
    pub(crate) fn small_part(&self) -> usize {
        self.small_part
    }

    /// Returns the bytes that it takes of the common part.
    pub(crate) fn charge(&self) -> usize {
        let to_come = self.granted_left(self.requests) + self.permitted_left();
        (self.held + to_come).saturating_sub(SHARE + self.small_part)
    }

    /// Returns the bytes that it takes of the pool: it may wait for more while it holds them.
    pub(crate) fn pooled(&self) -> usize {
        match self.class {
            Class::Growing => (self.requests + self.away).max(self.granted).saturating_sub(SHARE),
            Class::Whole => self.pool_kept,
            Class::Senior => 0,
        }
    }

    /// Returns true if bytes were granted for a request that is not done.
    pub(crate) fn is_granted(&self) -> bool {
        self.granted > 0
    }

    /// Returns the permitted bytes of replies that are still to come.
    pub(crate) fn permitted_left(&self) -> usize {
        self.permitted.saturating_sub(self.replies())
    }

    /// Returns the granted bytes that are not in use, when its requests hold `requests`.
    pub(crate) fn granted_left(&self, requests: usize) -> usize {
        self.granted.saturating_sub(self.away + requests)
    }

    pub(super) fn record(&mut self, held: usize, requests: usize, outputs: usize) {
        (self.held, self.requests, self.outputs) = (held, requests, outputs);
    }

    /// Adds granted bytes of the small part, for a request that is admitted as a whole.
    pub(super) fn grant_small(&mut self, bytes: usize) {
        self.grant(bytes, Class::Whole);
        self.small_part += bytes;
    }

    /// Adds granted bytes of the common part.
    pub(super) fn grant(&mut self, bytes: usize, class: Class) {
        if class == Class::Whole && self.class == Class::Growing {
            self.pool_kept = self.pooled();
        }
        (self.granted, self.class) = (self.granted.max(self.requests) + bytes, class);
    }

    /// Ends the grant: its request is done.
    pub(super) fn end_grant(&mut self) {
        (self.granted, self.small_part, self.away, self.class) = (0, 0, 0, Class::Growing);
    }

    /// Keeps of the grant what is in use, because the next request of the transaction may need more.
    pub(super) fn reduce_grant(&mut self) {
        (self.granted, self.small_part) = (0, 0);
        if self.class == Class::Whole {
            self.class = Class::Growing;
        }
    }

    pub(super) fn set_away(&mut self, bytes: usize) {
        self.away = bytes;
    }

    pub(super) fn permit(&mut self, bytes: usize) {
        self.permitted = self.replies() + bytes;
    }

    /// Returns true if replies are permitted.
    pub(crate) fn is_permitted(&self) -> bool {
        self.permitted > 0
    }

    pub(super) fn end_permit(&mut self) {
        self.permitted = 0;
    }
}
