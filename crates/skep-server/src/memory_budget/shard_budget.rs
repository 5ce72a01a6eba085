//! A shard's part of the memory budget: what its connections hold, and what it lends them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Class, Loan, MemoryBudget, Permit, Waiter, kept, turn_max};
use crate::limits::{
    FORWARDED_SIZE_MAX, ISOLATED_REPLY_MAX, PIECE, RESERVE_PART, RESERVE_ROOM_MAX, ROOM_PART, SERVER_REPLY_MAX,
    SHARD_RESERVE, SHARE, SHARE_FOR_REPLIES, SMALL_REQUEST_MAX, TURN_REPLIES_MAX,
};

/// A shard's part of the memory budget.
#[derive(Debug)]
pub(crate) struct ShardBudget {
    pub(super) memory_budget: Arc<MemoryBudget>,
    /// Bytes taken from the memory budget and not returned.
    pub(super) taken: isize,
    /// Bytes that connections hold.
    held: usize,
    /// Bytes that connections held when they were last published.
    published: usize,
    /// Bytes of the common part that connections hold or were granted.
    borrowed: usize,
    /// Bytes of replies that the clients of this shard have not taken.
    outputs: usize,
    /// The same when it was last published.
    outputs_published: usize,
    /// Bytes of the pool that growing connections of this shard hold, and those that it has taken from the pool.
    pooled: isize,
    pub(super) pool_taken: isize,
    /// The most bytes by which growing connections have exceeded what this shard had taken from the pool for them.
    unsecured: isize,
    /// The free bytes at the last [`ShardBudget::take_change`].
    seen: isize,
    /// Memory was released since [`ShardBudget::take_released`].
    released: bool,
}

impl ShardBudget {
    /// Creates a shard budget without pieces.
    pub(crate) fn new(memory_budget: Arc<MemoryBudget>) -> ShardBudget {
        ShardBudget {
            memory_budget,
            taken: 0,
            held: 0,
            published: 0,
            borrowed: 0,
            outputs: 0,
            outputs_published: 0,
            pooled: 0,
            pool_taken: 0,
            unsecured: 0,
            seen: 0,
            released: false,
        }
    }

    /// Returns the memory budget of the server.
    pub(crate) fn memory_budget(&self) -> &MemoryBudget {
        &self.memory_budget
    }

    /// Returns the most bytes that one connection may ever hold.
    pub(crate) fn one_max(&self) -> usize {
        self.memory_budget.one_max
    }

    /// Returns the bytes that connections hold.
    pub(crate) fn used(&self) -> usize {
        self.held
    }

    /// Returns the bytes of the common part that connections hold or were granted.
    pub(crate) fn borrowed(&self) -> usize {
        self.borrowed
    }

    /// Returns the bytes of the pieces that are not lent. If negative, the reserve is in use.
    pub(super) fn spare(&self) -> isize {
        self.taken - self.borrowed.cast_signed()
    }

    /// Returns the bytes of the common part that this shard may lend.
    pub(super) fn free(&self) -> usize {
        (self.memory_budget.free() + self.spare()).max(0).cast_unsigned()
    }

    /// Returns the bytes of the common part that this shard may lend to requests.
    fn free_for_requests(&self) -> usize {
        self.free().saturating_sub(kept(self.memory_budget.common))
    }

    /// Returns the bytes of the reserve that are in use: by connections of this shard, and its part of those by
    /// forwarded batches.
    fn overdraft(&self) -> usize {
        (self.spare().min(0) + self.memory_budget.free().min(0) / self.memory_budget.shards).unsigned_abs()
    }

    /// Returns true if the large replies of a turn might not fit the free bytes. Requests alone cannot make this true:
    /// they leave twice as much.
    pub(crate) fn is_low(&self) -> bool {
        let turn_max = turn_max(self.memory_budget.common).cast_signed();
        self.memory_budget.free() + self.spare() < turn_max / 2
    }

    /// Returns true if memory is low and clients have to take replies first.
    pub(crate) fn is_short(&self) -> bool {
        self.is_low() && !self.memory_budget.has_few_outputs()
    }

    /// Returns true if the reserve is in use: only steps that shares cover are safe.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.overdraft() > 0
    }

    /// Returns the number of bytes that the large replies of each space may take in a turn:
    ///
    /// 1. While a quarter of the common part is free: all that they ask for. If less is free, unresponsive connections
    ///    are closed until it is.
    /// 2. While clients have taken nearly all replies: the usual bytes of a turn, also from the first half of the
    ///    reserve. Otherwise requests, and replies that are buffered after a deferred one, would wait for the memory
    ///    that they hold.
    /// 3. Otherwise: a part of the free bytes. So a client that asks for less than the others is served, regardless of
    ///    their number. While the reserve is in use, a part of its first half. When that is used up, the bytes that the
    ///    share of one connection covers.
    pub(crate) fn reply_room(&self) -> usize {
        let is_overdrawn = self.is_overdrawn();
        let free = (self.memory_budget.free() + self.spare()).max(0).cast_unsigned();
        if !is_overdrawn && free >= self.memory_budget.common / 4 {
            return usize::MAX;
        }
        let left = (SHARD_RESERVE / 2).saturating_sub(self.overdraft());
        if left > 0 && self.memory_budget.has_few_outputs() {
            return TURN_REPLIES_MAX;
        }
        if is_overdrawn { (left / RESERVE_PART).clamp(SHARE_FOR_REPLIES, RESERVE_ROOM_MAX) } else { free / ROOM_PART }
    }

    /// Returns true if the reserve is used up: only connections within their shares continue.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.overdraft() > SHARD_RESERVE
    }

    /// Returns the bytes of replies that a connection which holds `held` may hold in addition.
    pub(crate) fn room_for_replies(&self, held: usize) -> usize {
        SHARE.saturating_sub(held) + (self.free() / 2).min(self.one_max().saturating_sub(held))
    }

    /// Returns the bytes by which the `requests` of a connection that holds `held` may grow beyond its share without
    /// waiting: those that were granted, or a part of the pool, but at most `wanted`. This shard takes the bytes from the
    /// pool and from the common part first, so they are certain until the next change of a loan.
    /// While others wait, it holds at most `small_max`.
    pub(crate) fn room_to_grow(
        &mut self,
        loan: &Loan,
        held: usize,
        requests: usize,
        wanted: usize,
        small_max: usize,
    ) -> usize {
        let granted = loan.granted_left(requests);
        if granted > 0 || wanted == 0 || loan.class() == Class::Whole {
            return granted;
        }
        // While others wait, a pipeline of small requests still takes more than one at a time.
        let most = if self.memory_budget.has_waiting() { small_max } else { self.one_max() };
        let left = (self.free_for_requests() / 2).min(most.saturating_sub(held));
        let pooled = self.secure_pool(wanted.min(left), 0);
        self.secure(pooled)
    }

    /// Takes bytes from the pool, unless fewer than `least` are left. Returns the number of those that growing connections
    /// may hold in addition, at most `bytes`.
    fn secure_pool(&mut self, bytes: usize, least: usize) -> usize {
        let spare = (self.pool_taken - self.pooled).max(0).cast_unsigned();
        if spare >= bytes {
            return bytes;
        }
        let wanted = (bytes - spare).next_multiple_of(self.memory_budget.piece);
        let taken = self.memory_budget.take_pool(wanted, least.saturating_sub(spare));
        self.pool_taken += taken.cast_signed();
        bytes.min(spare + taken)
    }

    /// Takes bytes from the common part. Returns the number of those that can be lent now, at most `bytes`.
    fn secure(&mut self, bytes: usize) -> usize {
        let spare = self.spare();
        if spare < bytes.cast_signed() {
            self.taken += self.memory_budget.take((bytes.cast_signed() - spare).cast_unsigned()).cast_signed();
        }
        bytes.min(self.spare().max(0).cast_unsigned())
    }

    /// Grants a connection `bytes` more for its request, which `is_whole` with them. Returns false if it has to wait:
    /// others wait, or fewer bytes are free, or the pool is used up, and it may not use the small part, or that has no room.
    pub(crate) fn grant(&mut self, loan: &mut Loan, bytes: usize, is_whole: bool) -> bool {
        let class = match loan.class() {
            Class::Senior => Class::Senior,
            _ if is_whole => Class::Whole,
            _ => Class::Growing,
        };
        let for_pool = if class == Class::Growing { bytes } else { 0 };
        let fits = !self.memory_budget.has_waiting() && self.free_for_requests() >= bytes;
        if fits && self.secure_pool(for_pool, for_pool) == for_pool && self.secure(bytes) == bytes {
            self.change(loan, |loan| loan.grant(bytes, class));
            return true;
        }
        // Returns what it has secured.
        self.balance();
        let is_in_small_part =
            class == Class::Whole && bytes <= SMALL_REQUEST_MAX && self.memory_budget.small_part.enter(bytes);
        if is_in_small_part {
            self.change(loan, |loan| loan.grant_small(bytes));
        }
        is_in_small_part
    }

    /// Gives a connection that has waited what was granted to it.
    pub(crate) fn accept(&mut self, loan: &mut Loan, waiter: &Waiter) {
        if waiter.is_in_small_part {
            self.change(loan, |loan| loan.grant_small(waiter.bytes));
            return;
        }
        self.taken += waiter.bytes.cast_signed();
        if waiter.class == Class::Growing {
            self.pool_taken += waiter.bytes.cast_signed();
        }
        self.change(loan, |loan| loan.grant(waiter.bytes, waiter.class));
    }

    /// Permits a connection that has waited the replies of its transaction.
    pub(crate) fn accept_replies(&mut self, loan: &mut Loan, waiter: &Waiter) {
        self.taken += waiter.bytes.cast_signed();
        self.change(loan, |loan| loan.permit(waiter.bytes));
    }

    /// Returns what was granted to a connection that has ended.
    pub(crate) fn decline(&mut self, waiter: &Waiter) {
        match waiter.is_in_small_part {
            true => self.memory_budget.small_part.give_back(waiter.bytes),
            false => self.memory_budget.give_back(waiter.bytes),
        }
        if waiter.class == Class::Growing {
            self.memory_budget.give_back_pool(waiter.bytes);
        }
        if waiter.class == Class::Senior {
            self.memory_budget.forget(waiter.connection);
        }
        self.released = true;
    }

    /// Ends the grant of a connection whose request is done. If it `grows_on`, a transaction keeps what it holds.
    pub(crate) fn end_grant(&mut self, loan: &mut Loan, connection: u64, grows_on: bool) {
        let was_senior = loan.class() == Class::Senior;
        self.change(loan, |loan| if grows_on { loan.reduce_grant() } else { loan.end_grant() });
        if was_senior && !grows_on {
            self.memory_budget.forget(connection);
            self.released = true;
        }
    }

    /// Returns true if a connection may hold `bytes` for its requests from now on, empty buffers among them. This shard takes
    /// the part of the pool first. It keeps nothing of the small part.
    pub(crate) fn may_keep(&mut self, loan: &Loan, bytes: usize) -> bool {
        let growth = bytes.saturating_sub(SHARE + loan.pooled());
        !self.memory_budget.has_waiting() && loan.small_part() == 0 && self.secure_pool(growth, growth) == growth
    }

    /// Counts bytes of requests among those of a visit, or among those of their connection again, which holds `held` bytes
    /// from now on, and of these `requests` for requests.
    pub(crate) fn set_away(&mut self, loan: &mut Loan, bytes: usize, held: usize, requests: usize) {
        let outputs = loan.outputs();
        self.change(loan, |loan| {
            loan.set_away(bytes);
            loan.record(held, requests, outputs);
        });
    }

    /// Returns the bytes of replies that may be written now. They may be in the first half of the reserve while clients
    /// have taken nearly all replies.
    fn room_for_permits(&self) -> usize {
        let left = (SHARD_RESERVE / 2).saturating_sub(self.overdraft());
        let may_use_reserve = left > 0 && self.memory_budget.has_few_outputs();
        self.free() + if may_use_reserve { left.max(TURN_REPLIES_MAX) } else { 0 }
    }

    /// Returns the permit of a command that is run in parts, whose connection has `written` bytes of replies so far, if
    /// there is memory for a part of its reply. Its bytes are charged from now on.
    pub(crate) fn permit(&mut self, loan: &mut Loan, written: usize) -> Option<Permit> {
        let room = self.room_for_permits() + loan.permitted_left();
        let fits = |bytes: &usize| room >= written + bytes;
        let bytes = [ISOLATED_REPLY_MAX + TURN_REPLIES_MAX, TURN_REPLIES_MAX].into_iter().find(fits)?;
        self.change(loan, |loan| loan.permit(written + bytes));
        Some(Permit::new(bytes - TURN_REPLIES_MAX))
    }

    /// Permits all replies of a transaction, which take `bytes`, unless they are permitted already. They are charged from
    /// now on. Returns false if it has to wait: others wait, or fewer bytes are free. A few bytes beside those that are
    /// free are permitted also while others wait, as those of other replies are.
    pub(crate) fn permit_replies(&mut self, loan: &mut Loan, bytes: usize) -> bool {
        if bytes <= loan.permitted_left() {
            return true;
        }
        let few = TURN_REPLIES_MAX.min(self.free() / ROOM_PART);
        let most = if self.memory_budget.has_waiting() { 0 } else { self.free_for_requests() };
        if bytes > few.max(most) {
            return false;
        }
        if self.secure(bytes) < bytes {
            self.balance();
            return false;
        }
        self.change(loan, |loan| loan.permit(bytes));
        true
    }

    /// Permits replies, whose bytes a batch has brought.
    pub(crate) fn permit_of_batch(&mut self, loan: &mut Loan, bytes: usize) {
        self.change(loan, |loan| loan.permit(bytes));
    }

    /// Takes over the bytes of a forwarded batch that has come back. They are free for this shard.
    pub(crate) fn take_over(&mut self, bytes: usize) {
        self.taken += bytes.cast_signed();
        self.memory_budget.end_batch(bytes);
    }

    /// Returns true if there is memory for forwarded batches of a connection. It may be in the reserve, because they come back
    /// regardless of clients.
    pub(crate) fn may_forward(&self) -> bool {
        self.free() + SHARD_RESERVE.saturating_sub(self.overdraft()) >= FORWARDED_SIZE_MAX
    }

    /// Returns true if there is memory for a reply that the server makes itself, beside `written` bytes. It may be in the
    /// reserve, so that `INFO` tells why memory is short.
    pub(crate) fn may_reply(&self, written: usize) -> bool {
        self.free() + SHARD_RESERVE.saturating_sub(self.overdraft()) >= written + SERVER_REPLY_MAX
    }

    /// Ends the permit of a connection: the replies are written, and recorded.
    pub(crate) fn end_permit(&mut self, loan: &mut Loan) {
        self.change(loan, Loan::end_permit);
    }

    /// Records a connection that holds `held` bytes: of these, `requests` for requests, and `outputs` for replies that its
    /// client has not taken.
    pub(crate) fn record(&mut self, loan: &mut Loan, held: usize, requests: usize, outputs: usize) {
        let before = loan.outputs();
        self.change(loan, |loan| loan.record(held, requests, outputs));
        self.record_output(before, outputs);
    }

    /// Returns all memory of a connection that ends, or is handed over to another shard.
    pub(crate) fn leave(&mut self, loan: &mut Loan, connection: u64) {
        self.end_permit(loan);
        self.record(loan, 0, 0, 0);
        self.end_grant(loan, connection, false);
    }

    fn change(&mut self, loan: &mut Loan, change: impl FnOnce(&mut Loan)) {
        let (held, charge, pooled, small_part) = (loan.held(), loan.charge(), loan.pooled(), loan.small_part());
        change(loan);
        if loan.small_part() < small_part {
            self.memory_budget.small_part.give_back(small_part - loan.small_part());
            self.released = true;
        }
        self.held = self.held - held + loan.held();
        self.borrowed = self.borrowed - charge + loan.charge();
        let growth = loan.pooled().cast_signed() - pooled.cast_signed();
        self.pooled += growth;
        self.released |= loan.charge() < charge || growth < 0 || loan.held() < held;
        // Returns also bytes that were secured for a step that did not use them.
        self.balance();
    }

    /// Counts replies that clients have not taken: `before` bytes until now, `after` from now on.
    pub(super) fn record_output(&mut self, before: usize, after: usize) {
        if before == after {
            return;
        }
        self.outputs = self.outputs - before + after;
        if self.outputs == 0 || self.outputs.abs_diff(self.outputs_published) >= PIECE {
            let change = self.outputs.cast_signed() - self.outputs_published.cast_signed();
            self.memory_budget.outputs.fetch_add(change, Ordering::Relaxed);
            self.outputs_published = self.outputs;
        }
    }

    /// Takes pieces for loans, or returns those that are not lent, of the pool too: all of them while requests wait.
    pub(crate) fn balance(&mut self) {
        if self.held.abs_diff(self.published) >= PIECE {
            self.memory_budget.publish(self.held.cast_signed() - self.published.cast_signed());
            self.published = self.held;
        }
        let kept = if self.memory_budget.has_waiting() { 0 } else { self.memory_budget.shard_kept };
        let spare_pool = self.pool_taken - self.pooled;
        self.unsecured = self.unsecured.max(-spare_pool);
        if spare_pool < 0 || spare_pool > 2 * kept.cast_signed() {
            let surplus = if spare_pool < 0 { spare_pool } else { spare_pool - kept.cast_signed() };
            self.pool_taken -= surplus;
            self.memory_budget.pooled.fetch_sub(surplus, Ordering::Relaxed);
        }
        let spare = self.spare();
        if spare < 0 {
            self.taken += self.memory_budget.take(spare.unsigned_abs()).cast_signed();
        } else if spare.cast_unsigned() > 2 * kept {
            let surplus = spare.cast_unsigned() - kept;
            self.taken -= surplus.cast_signed();
            self.memory_budget.give_back(surplus);
        }
    }

    /// Returns true if the free bytes have changed since the last call.
    pub(crate) fn take_change(&mut self) -> bool {
        let free = self.memory_budget.free() + self.spare();
        std::mem::replace(&mut self.seen, free) != free
    }

    /// Returns the most bytes by which a step has exceeded what was secured in the pool: no more than the
    /// end of one batch that is decoded, or all growing connections would hold what the first one that waits is to get.
    pub(crate) fn unsecured(&self) -> isize {
        self.unsecured
    }

    /// Returns true once after connections of this shard released memory: starved connections may continue.
    pub(crate) fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }
}
