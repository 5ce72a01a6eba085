//! The memory of connections: one budget for the whole server.
//!
//! ```text
//!   budget   │ share │ share │ …  one for each connection there may be │ small part │ common: lent │ free │ kept for replies │
//!   shard    │ reserve: the replies of one turn │ pieces taken from the common part
//! ```
//!
//! A connection holds its buffers, its parsed requests and its buffered replies. All of it counts, by the capacity that
//! is allocated. Each connection may always hold [`SHARE`]. It borrows the rest from the common part ([`Loan`]). A
//! forwarded batch has no share, and belongs to no shard, because one shard fills it and another empties it. It is
//! counted in the common part itself ([`MemoryBudget::record_batch`]) on its whole round trip. A shard takes the common
//! part in pieces of [`PIECE`], so recording rarely accesses an atomic.
//!
//! # Requests
//!
//! A request that does not fit the share is *admitted* with all the memory that its head says it needs, or with none. A
//! connection that waits for its admission is not read, and holds only its share. All of them, of all shards, wait in one
//! queue in the order of their arrival ([`Waiting`]). The shard that releases memory admits the first ones.
//!
//! Some connections hold memory although they may need more later: a command of many arguments tells their sizes one
//! after another, a transaction is queued by many requests, the keys of a `WATCH` are kept until `EXEC`, and a read brings
//! the beginning of the next request. They are *growing*. All of them together hold at most the *pool*. One of them at a
//! time, the *senior*, may hold the most that one connection may. The pool is what the requests' part of the budget has
//! beyond that, so:
//!
//! ```text
//!   requests' part  =  pool  +  the most that one connection may hold  +  pieces that shards keep
//! ```
//!
//! No connection waits for ever, because the memory that each one waits for is held by others that do not wait for it:
//!
//! 1. A connection whose request is admitted as a whole waits for its client, for the stores and for room for its replies.
//!    It does not wait for other requests. It ends, or it is closed because its client is slow.
//! 2. So the requests' part becomes free, except for the pool and for what the senior holds. Not less than the most that
//!    one connection may hold is then left for the senior together with what it holds. If it waits, it comes first. It
//!    ends too, and the first growing connection that lacks room in the pool is the next senior.
//! 3. Then there is no senior, and no less is free than one connection may hold. So the first one in the queue gets what it
//!    needs, regardless of what those after it hold of the pool.
//!
//! A senior whose client says nothing keeps the others waiting until it is closed. Many such clients may wait, each with a
//! part of a transaction. So that a request does not wait for all of them, every other senior that is closed as slow is
//! followed by a *preferred* one: the one whose client has sent the most for requests that are done, or the last one that
//! waits. Others of them follow as long as none is slow, but only a few, so every connection is the first one at some time.
//!
//! A small request that would wait after large ones uses the *small part* instead. That is a part of the budget beside the
//! common part, lent only to requests of at most [`SMALL_REQUEST_MAX`](crate::limits::SMALL_REQUEST_MAX) bytes that are
//! admitted as a whole. While it is full, they wait in the queue. They get memory of the common part in their order, or of
//! the small part as soon as that has room, whichever comes first. The argument above is the same without it: nothing waits
//! for the small part alone, and those that hold some of it are admitted as a whole, so they end too. A connection returns
//! all that it has of the small part when its request is done. While the request visits another shard, the batch that holds
//! it is counted in the common part too. That batch comes back regardless of clients.
//!
//! This holds because of three rules:
//!
//! - What a growing connection holds was taken from the pool before, its own size included. One that is admitted as a
//!   whole keeps its part of the pool meanwhile, because what it has read besides is part of a growing connection again.
//! - What a command holds that is run is memory of its reply, which its permit covers. Between two parts of a command,
//!   where it may wait for the next permit, it holds none.
//! - What a connection is charged and what it asks for are together not more than one connection may hold.
//!   The queue of a transaction asks for twice its memory, and gets less if one connection may not hold that.
//!
//! While a connection waits for memory, the others are to transfer: see `shard/memory.rs`.
//!
//! # Replies
//!
//! At least a sixteenth of the common part is lent to no request. Only replies use it, and clients take their replies or
//! are closed. So requests never hold the memory that their own replies need. The replies of a turn are not known before
//! they are made. Each shard has a reserve for them, [`SHARD_RESERVE`](crate::limits::SHARD_RESERVE), which is not a part of the budget. While little
//! is free, the large replies of a turn may take only a part of the free bytes ([`ShardBudget::reply_room`]): requests for
//! larger replies wait, those for smaller ones do not. A command whose reply may be large and does not come from the
//! stores piece by piece begins with a [`Permit`], whose bytes are charged like memory in use.
//!
//! A transaction makes all its replies before a client can take one. They are charged together before it is executed, as
//! much as its forecast says ([`ReplyAccount`]). If they do not fit, or others wait, it waits in the queue of the requests
//! under the ticket of its own request, and holds no reply meanwhile. With its queue, it is one of the growing
//! connections, and its replies and its queue together are not more than one connection may hold. So it gets them as
//! the last part of a request.
//!
//! While its reserve is in use ([`ShardBudget::is_overdrawn`]), each connection continues in small steps that its share covers. So
//! all connections together never hold more than the budget and one reserve for each shard.

mod loan;
mod reply_account;
mod shard_budget;
mod small_part;
mod waiting;

use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits::{KEPT_PART, PIECE, PIECES_KEPT, SHARE, SMALL_PART, TURN_REPLIES_MAX};
pub(crate) use loan::{Class, Loan, Permit};
pub(crate) use reply_account::{ReplyAccount, VISIT_COPIES};
pub(crate) use shard_budget::ShardBudget;
use small_part::SmallPart;
pub(crate) use waiting::Waiter;
use waiting::{Attempt, Waiting};

/// The common part of the budget.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    /// Most bytes that one connection may hold.
    one_max: usize,
    /// Bytes of the common part.
    common: usize,
    /// Most bytes that growing connections hold together, without the senior.
    pool_max: usize,
    /// Number of shards.
    shards: isize,
    /// Bytes that a shard keeps when nothing is lent.
    shard_kept: usize,
    /// Bytes that a shard takes at a time.
    piece: usize,
    /// Bytes of the common part that no shard has taken and no forwarded batch holds. If negative, batches use the
    /// reserves.
    free: AtomicIsize,
    /// The part for small requests.
    small_part: SmallPart,
    /// Bytes of the pool in use.
    pooled: AtomicIsize,
    /// Bytes that forwarded batches hold.
    batches: AtomicIsize,
    /// Bytes in use, and the most there were, as shards have published them.
    used: AtomicIsize,
    used_max: AtomicIsize,
    /// Bytes of replies that clients have not taken, as shards have published them.
    outputs: AtomicIsize,
    /// Connections that wait for memory.
    starved: AtomicUsize,
    /// Requests that wait, their number, and the number of those whose shards do not know that they were admitted.
    waiting: Mutex<Waiting>,
    waiting_count: AtomicUsize,
    /// The next ticket of a request that waits.
    ticket: AtomicU64,
    admitted_count: AtomicUsize,
}

impl MemoryBudget {
    /// Creates a budget for at most this many connections, whose shares take at most half of it, and for this many
    /// shards.
    pub(crate) fn new(budget: usize, connections_max: usize, shards: usize) -> MemoryBudget {
        let beyond_shares = budget.saturating_sub(connections_max.saturating_mul(SHARE));
        let small_part = beyond_shares / SMALL_PART;
        let common = beyond_shares - small_part;
        let for_requests = common - kept(common);
        let one_max = (budget / 2).min(for_requests / 3 * 2);
        // All shards together keep a quarter of what is kept for replies, or up to half for a moment.
        let shard_kept = (PIECES_KEPT * PIECE).min(turn_max(common) / (4 * shards.max(1)));
        let piece = PIECE.min(shard_kept).max(1);
        MemoryBudget {
            one_max,
            common,
            pool_max: (for_requests - one_max).saturating_sub(turn_max(common) / 2),
            shards: shards.max(1).cast_signed(),
            shard_kept,
            piece,
            free: AtomicIsize::new(common.cast_signed()),
            small_part: SmallPart::new(small_part),
            pooled: AtomicIsize::new(0),
            batches: AtomicIsize::new(0),
            used: AtomicIsize::new(0),
            used_max: AtomicIsize::new(0),
            outputs: AtomicIsize::new(0),
            starved: AtomicUsize::new(0),
            waiting: Mutex::default(),
            waiting_count: AtomicUsize::new(0),
            ticket: AtomicU64::new(0),
            admitted_count: AtomicUsize::new(0),
        }
    }

    /// Takes whole pieces, at least `size` bytes if there are as many; returns how many bytes it took.
    fn take(&self, size: usize) -> usize {
        let wanted = size.next_multiple_of(self.piece);
        let mut taken = 0;
        let reduce = |free: isize| {
            taken = wanted.min(free.max(0).cast_unsigned());
            Some(free - taken.cast_signed())
        };
        // Relaxed: the counter protects no other memory.
        let _ = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reduce);
        taken
    }

    /// Takes `size` bytes if `left` bytes stay free. Returns true if it took them.
    fn take_exactly(&self, size: usize, left: usize) -> bool {
        let reduce = |free: isize| Some(free - size.cast_signed()).filter(|free| *free >= left.cast_signed());
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reduce).is_ok()
    }

    fn give_back(&self, size: usize) {
        self.free.fetch_add(size.cast_signed(), Ordering::Relaxed);
    }

    pub(crate) fn free(&self) -> isize {
        self.free.load(Ordering::Relaxed)
    }

    /// Records a forwarded batch that held `before` bytes and holds `after`.
    pub(crate) fn record_batch(&self, before: usize, after: usize) {
        let change = after.cast_signed() - before.cast_signed();
        if change != 0 {
            self.free.fetch_sub(change, Ordering::Relaxed);
            self.batches.fetch_add(change, Ordering::Relaxed);
            self.publish(change);
        }
    }

    /// Counts a forwarded batch no more, whose bytes a shard has taken over.
    fn end_batch(&self, bytes: usize) {
        self.batches.fetch_sub(bytes.cast_signed(), Ordering::Relaxed);
        self.publish(-bytes.cast_signed());
    }

    /// Returns the bytes that forwarded batches hold.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed).max(0).cast_unsigned() as u64
    }

    /// Counts bytes that came into use or went out of it.
    fn publish(&self, change: isize) {
        let used = self.used.fetch_add(change, Ordering::Relaxed) + change;
        self.used_max.fetch_max(used, Ordering::Relaxed);
    }

    /// Returns the most bytes that connections and forwarded batches held, up to [`PIECE`] for each shard.
    pub(crate) fn used_max(&self) -> u64 {
        self.used_max.load(Ordering::Relaxed).max(0).cast_unsigned() as u64
    }

    /// Counts a connection that begins to wait for memory.
    pub(crate) fn begin_wait(&self) {
        self.starved.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that waits no more.
    pub(crate) fn end_wait(&self) {
        self.starved.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the connections that wait for memory.
    pub(crate) fn starved(&self) -> usize {
        self.starved.load(Ordering::Relaxed)
    }

    /// Returns true while less than a quarter of the common part is free, or fewer bytes than a command begins with whose
    /// reply may be large.
    pub(crate) fn is_tight(&self) -> bool {
        self.free() < (self.common / 4).max(TURN_REPLIES_MAX.min(self.common / 2)).cast_signed()
    }

    /// Returns true while clients have taken nearly all replies: the rest is lent to requests.
    fn has_few_outputs(&self) -> bool {
        self.outputs.load(Ordering::Relaxed) < turn_max(self.common).cast_signed() / 2
    }

    /// Returns true while requests wait for memory.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting_count.load(Ordering::Relaxed) > 0
    }

    /// Returns true while a request or the replies of a transaction wait in the queue, or a connection waits for room for
    /// its next reply and little is free. As long as much is free, every such step succeeds.
    pub(crate) fn is_scarce(&self) -> bool {
        self.has_waiting() || self.starved() > 0 && self.is_tight()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish_waiting(&self, waiting: &Waiting) {
        self.waiting_count.store(waiting.len(), Ordering::Relaxed);
        self.small_part.set_waiting(waiting.has_small());
        self.admitted_count.store(waiting.admitted_count(), Ordering::Relaxed);
    }

    /// Returns the ticket of a request that begins to wait.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.ticket.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a request that waits for memory.
    pub(crate) fn wait(&self, waiter: Waiter) {
        let mut waiting = self.waiting();
        waiting.push(waiter);
        self.publish_waiting(&waiting);
    }

    /// Grants memory to requests that wait, as far as there is some. Calls `wake` with the shards whose requests were
    /// admitted.
    pub(crate) fn admit(&self, wake: impl FnMut(u16)) {
        let mut waiting = self.waiting();
        waiting.admit(|waiter, is_senior| self.attempt(waiter, is_senior));
        waiting.admit_small(|bytes| self.small_part.take(bytes));
        self.publish_waiting(&waiting);
        waiting.admitted_shards().for_each(wake);
    }

    fn attempt(&self, waiter: &mut Waiter, is_senior: bool) -> Attempt {
        if is_senior {
            waiter.class = Class::Senior;
        }
        let for_pool = if waiter.class == Class::Growing { waiter.bytes } else { 0 };
        if self.take_pool(for_pool, for_pool) < for_pool {
            return Attempt::NoPool;
        }
        if self.take_exactly(waiter.bytes, kept(self.common)) {
            return Attempt::Granted;
        }
        self.give_back_pool(for_pool);
        Attempt::NoMemory
    }

    /// Records that a connection is closed because its client is slow.
    pub(crate) fn end_slow(&self, connection: u64) {
        self.waiting().end_slow(connection);
    }

    /// Takes `wanted` bytes from the pool, or those that are left if these are at least `least`. Returns the number of
    /// bytes that it took.
    fn take_pool(&self, wanted: usize, least: usize) -> usize {
        let mut taken = 0;
        let add = |pooled: isize| {
            taken = wanted.min((self.pool_max.cast_signed() - pooled).max(0).cast_unsigned());
            taken = if taken < least { 0 } else { taken };
            (taken > 0).then(|| pooled + taken.cast_signed())
        };
        let _ = self.pooled.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        taken
    }

    fn give_back_pool(&self, bytes: usize) {
        self.pooled.fetch_sub(bytes.cast_signed(), Ordering::Relaxed);
    }

    /// Returns the numbers of the connections that wait, the first one first.
    #[cfg(test)]
    pub(crate) fn queued_connections(&self) -> Vec<u64> {
        self.waiting().connections().collect()
    }

    /// Returns the bytes that growing connections may still hold.
    #[cfg(test)]
    pub(crate) fn pool_left(&self) -> isize {
        self.pool_max.cast_signed() - self.pooled.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the small part that are not lent.
    #[cfg(test)]
    pub(crate) fn small_part_left(&self) -> usize {
        self.small_part.free()
    }

    /// Returns the bytes that shards and batches have taken of the common part.
    #[cfg(test)]
    pub(crate) fn common_taken(&self) -> isize {
        self.common.cast_signed() - self.free()
    }

    /// Takes the connections of a shard that were admitted. Each is to be given to [`ShardBudget::accept`] or
    /// [`ShardBudget::decline`].
    pub(crate) fn take_admitted(&self, shard: u16) -> Vec<Waiter> {
        if self.admitted_count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut waiting = self.waiting();
        let admitted = waiting.take_admitted(shard);
        self.publish_waiting(&waiting);
        admitted
    }

    /// Removes a connection that has ended from those that wait, and ends its seniority. Returns true if it waited.
    pub(crate) fn forget(&self, connection: u64) -> bool {
        let mut waiting = self.waiting();
        let has_waited = waiting.remove(connection);
        self.publish_waiting(&waiting);
        has_waited
    }
}

/// Returns the usual bytes of the large replies of a turn, for a common part of this size. They are fewer if the budget
/// is small.
fn turn_max(common: usize) -> usize {
    TURN_REPLIES_MAX.min(common / 8)
}

/// Returns the bytes of a common part of this size that are lent only for replies.
fn kept(common: usize) -> usize {
    turn_max(common).max(common / KEPT_PART)
}

#[cfg(test)]
mod tests;
