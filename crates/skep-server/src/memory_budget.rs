//! The memory of connections: one budget for the whole server.
//!
//! ```text
//!   budget   │ share │ share │ …  one for each connection there may be │ common: lent │ common: free          │
//!   shard    │ reserve: the replies of one turn │ pieces taken from the common part
//! ```
//!
//! A connection holds its buffers, its parsed requests and its buffered replies. All of it counts, by the capacity that
//! is allocated. Each connection may always hold [`SHARE`]. It borrows the rest from the common part:
//!
//! 1. Before a connection reads or parses, its shard determines how much it may grow ([`ShardBudget::room`]). A step
//!    that needs more waits.
//! 2. After each step its shard records the memory that it holds now ([`ShardBudget::record`]).
//! 3. A forwarded batch has no share, and belongs to no shard, because one shard fills it and another empties it. It is
//!    counted in the common part itself ([`MemoryBudget::record_batch`]) on its whole round trip.
//! 4. A shard takes the common part in pieces of [`PIECE`], so recording rarely accesses an atomic.
//!
//! The common part is lent by these rules:
//!
//! 1. At least a sixteenth of it is kept for replies and for small loans. Within this, the bytes of one turn's large
//!    replies are lent to no request. Only replies use them, and clients take their replies or are closed. So requests
//!    never hold the memory that their own replies need.
//! 2. Of the rest, a connection may borrow at most twice the bytes that then stay free. It may hold at most half of the
//!    budget.
//! 3. So a connection that is alone gets two thirds of the rest, and n that grow together get 2 of 2n + 1 parts each. A
//!    third of the free bytes always stays free for the next one. This is the dynamic threshold of shared-memory
//!    switches (Choudhury and Hahne, 1998).
//!
//! Incomplete requests that wait for each other's memory would each get a little of the released bytes, and none would
//! be completed. So one connection at a time has *priority*: it may borrow all free bytes, and the others a little. It
//! yields its priority when its request is done. The next one is the connection that holds most.
//!
//! The replies of a turn are not known before they are made. Each shard has a reserve for them, [`SHARD_RESERVE`],
//! which is not a part of the budget. While little is free, the large replies of a turn may take only a part of the
//! free bytes ([`ShardBudget::reply_room`]): requests for larger replies wait, those for smaller ones do not. While its
//! reserve is in use ([`ShardBudget::is_overdrawn`]), each connection continues in small steps that its share covers.
//! So all connections together never hold more than the budget and one reserve for each shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};

use crate::limits::{
    KEPT_PART, PIECE, PIECES_KEPT, RESERVE_PART, RESERVE_ROOM_MAX, ROOM_PART, SHARD_RESERVE, SHARE, SHARE_FOR_REPLIES,
    SMALL_LOAN_MAX, TURN_REPLIES_MAX,
};

/// In place of a connection's number: no connection has priority, and all may borrow.
const NONE: u64 = 0;
/// In place of a connection's number: priority was yielded, and the next connection that asks gets it. Until then all
/// others may borrow only a little.
const VACANT: u64 = u64::MAX;

/// The common part of the budget.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    /// Most bytes that one connection may hold.
    one_max: usize,
    /// Bytes of the common part.
    common: usize,
    /// Number of shards.
    shards: isize,
    /// Bytes that a shard keeps when nothing is lent.
    shard_kept: usize,
    /// Bytes that a shard takes at a time.
    piece: usize,
    /// Bytes of the common part that no shard has taken and no forwarded batch holds. If negative, batches use the
    /// reserves.
    free: AtomicIsize,
    /// Bytes that forwarded batches hold.
    batches: AtomicIsize,
    /// Bytes in use, and the most there were, as shards have published them.
    used: AtomicIsize,
    used_max: AtomicIsize,
    /// Bytes of replies that clients have not taken, as shards have published them.
    outputs: AtomicIsize,
    /// Connections that wait for memory.
    waiting: AtomicUsize,
    /// Those of them with a request that lacks memory, as shards have published them.
    wanting: AtomicUsize,
    /// The number of the connection that may borrow all that is free, or [`NONE`], or [`VACANT`].
    priority: AtomicU64,
}

impl MemoryBudget {
    /// Creates a budget for at most this many connections, whose shares take at most half of it, and for this many
    /// shards.
    pub(crate) fn new(budget: usize, connections_max: usize, shards: usize) -> MemoryBudget {
        let common = budget.saturating_sub(connections_max.saturating_mul(SHARE));
        // Alone, it may borrow twice the bytes that are left.
        let one_max = (budget / 2).min((common - kept(common)) / 3 * 2);
        // All shards together keep a quarter of what is kept for replies, or up to half for a moment.
        let shard_kept = (PIECES_KEPT * PIECE).min(turn_max(common) / (4 * shards.max(1)));
        let piece = PIECE.min(shard_kept).max(1);
        MemoryBudget {
            one_max,
            common,
            shards: shards.max(1).cast_signed(),
            shard_kept,
            piece,
            free: AtomicIsize::new(common.cast_signed()),
            batches: AtomicIsize::new(0),
            used: AtomicIsize::new(0),
            used_max: AtomicIsize::new(0),
            outputs: AtomicIsize::new(0),
            waiting: AtomicUsize::new(0),
            wanting: AtomicUsize::new(0),
            priority: AtomicU64::new(NONE),
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

    /// Returns the bytes that forwarded batches hold.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed).max(0).cast_unsigned() as u64
    }

    /// Gives a connection priority, unless another one has it. Returns true if it has priority now.
    pub(crate) fn take_priority(&self, connection: u64) -> bool {
        let replace =
            |from| self.priority.compare_exchange(from, connection, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        replace(VACANT) || replace(NONE)
    }

    /// Lets the next connection that needs memory have priority. Until then the others may borrow only a little, or
    /// they would share the memory that the last one returns, and none would have enough.
    pub(crate) fn yield_priority(&self) {
        self.priority.store(if self.waiting() > 0 { VACANT } else { NONE }, Ordering::Relaxed);
    }

    /// Lets all connections borrow again if none took priority.
    pub(crate) fn end_priority(&self) {
        let _ = self.priority.compare_exchange(VACANT, NONE, Ordering::Relaxed, Ordering::Relaxed);
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
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that waits no more.
    pub(crate) fn end_wait(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the connections that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns true while less than a quarter of the common part is free. One connection that holds all that it may
    /// leaves a third, two leave a fifth.
    pub(crate) fn is_tight(&self) -> bool {
        self.free() < self.common.cast_signed() / 4
    }

    /// Returns true while clients have taken nearly all replies: the rest is lent to requests.
    fn has_few_outputs(&self) -> bool {
        self.outputs.load(Ordering::Relaxed) < turn_max(self.common).cast_signed() / 2
    }

    /// Returns true while a request lacks memory that others hold, however much is free.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanting.load(Ordering::Relaxed) > 0
    }

    /// Returns true while memory is tight and a connection waits for it.
    pub(crate) fn is_scarce(&self) -> bool {
        self.waiting() > 0 && self.is_tight()
    }
}

/// Returns the usual bytes of the large replies of a turn, for a common part of this size. They are fewer if the budget
/// is small.
fn turn_max(common: usize) -> usize {
    TURN_REPLIES_MAX.min(common / 8)
}

/// Returns the bytes of a common part of this size that are lent only in small loans and for replies.
fn kept(common: usize) -> usize {
    turn_max(common).max(common / KEPT_PART)
}

/// A shard's part of the memory budget.
#[derive(Debug)]
pub(crate) struct ShardBudget {
    memory_budget: Arc<MemoryBudget>,
    /// Bytes taken from the memory budget and not returned.
    taken: isize,
    /// Bytes that connections hold.
    held: usize,
    /// Bytes that connections held when they were last published.
    published: usize,
    /// Bytes that connections hold beyond their shares.
    borrowed: usize,
    /// Bytes of replies that the clients of this shard have not taken.
    outputs: usize,
    /// The same when it was last published.
    outputs_published: usize,
    /// Connections of this shard with a request that lacks memory.
    wanting: usize,
    /// The free bytes, and the connection with priority, at the last [`ShardBudget::take_change`].
    seen: (isize, u64),
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
            wanting: 0,
            seen: (0, NONE),
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

    /// Returns the bytes that connections hold beyond their shares.
    pub(crate) fn borrowed(&self) -> usize {
        self.borrowed
    }

    /// Returns the bytes of the pieces that are not lent. If negative, the reserve is in use.
    fn spare(&self) -> isize {
        self.taken - self.borrowed.cast_signed()
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

    /// Returns true if this number of bytes of the reserve is left.
    pub(crate) fn reserve_covers(&self, size: usize) -> bool {
        self.overdraft() + size <= SHARD_RESERVE
    }

    /// Returns the number of bytes that a connection which holds `held` may hold in addition.
    pub(crate) fn room(&self, held: usize, has_priority: bool) -> usize {
        let lent = held.saturating_sub(SHARE);
        let free = (self.memory_budget.free() + self.spare().max(0)).max(0).cast_unsigned();
        let little =
            SMALL_LOAN_MAX.saturating_sub(lent).min(free.saturating_sub(turn_max(self.memory_budget.common)) / 2);
        let free = free.saturating_sub(kept(self.memory_budget.common));
        let borrowed = match self.memory_budget.priority.load(Ordering::Relaxed) {
            NONE => (2 * free).saturating_sub(lent) / 3,
            _ if has_priority => free,
            _ => 0,
        };
        SHARE.saturating_sub(held) + borrowed.max(little).min(self.memory_budget.one_max.saturating_sub(held))
    }

    /// Returns the room as [`ShardBudget::room`] does, but at most `wanted` bytes beyond the share. This shard takes
    /// the bytes from the common part first, so the room is certain.
    pub(crate) fn secure(&mut self, held: usize, has_priority: bool, wanted: usize) -> usize {
        let share_left = SHARE.saturating_sub(held);
        let borrowed = (self.room(held, has_priority) - share_left).min(wanted);
        let spare = self.spare();
        if spare < borrowed.cast_signed() {
            self.taken += self.memory_budget.take((borrowed.cast_signed() - spare).cast_unsigned()).cast_signed();
        }
        share_left + borrowed.min(self.spare().max(0).cast_unsigned())
    }

    /// Records a connection that held `before` bytes and holds `after`.
    pub(crate) fn record(&mut self, before: usize, after: usize) {
        self.held = self.held - before + after;
        self.borrowed = self.borrowed - before.saturating_sub(SHARE) + after.saturating_sub(SHARE);
        self.released |= after < before;
        // Returns also bytes that were secured for a step that did not use them.
        self.balance();
    }

    /// Counts the replies of a connection that its client has not taken: `before` bytes until now, `after` from now on.
    pub(crate) fn record_output(&mut self, before: usize, after: usize) {
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

    /// Publishes the number of connections of this shard with a request that lacks memory.
    pub(crate) fn publish_wanting(&mut self, wanting: usize) {
        let before = std::mem::replace(&mut self.wanting, wanting);
        if before != wanting {
            // Wraps around if the number decreases.
            self.memory_budget.wanting.fetch_add(wanting.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Returns true if the last published number was not 0.
    pub(crate) fn has_wanting(&self) -> bool {
        self.wanting > 0
    }

    /// Takes pieces for loans, or returns those that are not lent.
    pub(crate) fn balance(&mut self) {
        if self.held.abs_diff(self.published) >= PIECE {
            self.memory_budget.publish(self.held.cast_signed() - self.published.cast_signed());
            self.published = self.held;
        }
        let spare = self.spare();
        if spare < 0 {
            self.taken += self.memory_budget.take(spare.unsigned_abs()).cast_signed();
        } else if spare.cast_unsigned() > 2 * self.memory_budget.shard_kept {
            let surplus = spare.cast_unsigned() - self.memory_budget.shard_kept;
            self.taken -= surplus.cast_signed();
            self.memory_budget.give_back(surplus);
        }
    }

    /// Returns true if the free bytes, or the connection with priority, have changed since the last call.
    pub(crate) fn take_change(&mut self) -> bool {
        let free = self.memory_budget.free() + self.spare();
        let seen = (free, self.memory_budget.priority.load(Ordering::Relaxed));
        std::mem::replace(&mut self.seen, seen) != seen
    }

    /// Returns true once after connections of this shard released memory: starved connections may continue.
    pub(crate) fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        MemoryBudget, PIECE, PIECES_KEPT, ROOM_PART, SHARD_RESERVE, SHARE, ShardBudget, TURN_REPLIES_MAX, kept,
        turn_max,
    };

    const BUDGET: usize = 64 << 20;

    /// Lets connections grow in turn, by `step` each time, until none may.
    fn grow(shard_budget: &mut ShardBudget, connections: &mut [usize], step: usize) {
        let mut grows = true;
        while std::mem::take(&mut grows) {
            for held in connections.iter_mut() {
                if shard_budget.secure(*held, false, step) >= step {
                    shard_budget.record(*held, *held + step);
                    *held += step;
                    grows = true;
                }
            }
        }
    }

    #[test]
    fn connections_get_as_much_as_others_leave() {
        let common = BUDGET - 100 * SHARE;
        let common = common - kept(common);
        for count in [1, 2, 10, 50] {
            let mut shard_budget = ShardBudget::new(Arc::new(MemoryBudget::new(BUDGET, 100, 1)));
            let mut held = vec![0; count];
            grow(&mut shard_budget, &mut held, 1000);
            let fair = (2 * common / (2 * count + 1)).min(BUDGET / 2);
            for &held in &held {
                assert!((fair - 4 * PIECE..=fair + SHARE + 1000).contains(&held), "{count}: {held} of {fair}");
            }
            assert!(shard_budget.room(0, false) > fair / 4);
            let sum = held.iter().sum::<usize>();
            assert_eq!(shard_budget.used(), sum);
            assert!(sum as u64 - shard_budget.memory_budget.used_max() < PIECE as u64);
            for held in held {
                shard_budget.record(held, 0);
            }
            assert!(
                shard_budget.borrowed() == 0
                    && shard_budget.used() == 0
                    && shard_budget.taken <= (2 * PIECES_KEPT * PIECE) as isize
            );
        }
    }

    #[test]
    fn a_shard_that_is_short_keeps_the_shares() {
        let memory_budget = Arc::new(MemoryBudget::new(BUDGET, 100, 1));
        let (mut one, mut other) = (ShardBudget::new(memory_budget.clone()), ShardBudget::new(memory_budget));
        // Replies of a turn, more than is left.
        one.record(0, BUDGET);
        one.record_output(0, BUDGET);
        assert!(one.is_short() && !one.is_exhausted() && other.is_short());
        assert_eq!(one.secure(0, false, 1 << 20), SHARE);
        assert_eq!(other.secure(SHARE - 1, false, 1 << 20), 1);
        assert_eq!(other.secure(SHARE, false, 1 << 20), 0);
        one.record(0, SHARD_RESERVE + SHARE);
        assert!(one.is_exhausted());
        one.record(BUDGET, 0);
        one.record_output(BUDGET, 0);
        assert!(!one.is_short() && other.secure(SHARE, false, 1 << 20) == 1 << 20);
    }

    #[test]
    fn requests_leave_the_replies_of_a_turn() {
        for (budget, connections) in [(8 << 20, 512), (BUDGET, 100), (256 << 20, 10_000)] {
            let mut shard_budget = ShardBudget::new(Arc::new(MemoryBudget::new(budget, connections, 1)));
            let turn_max = turn_max(shard_budget.memory_budget.common);
            grow(&mut shard_budget, &mut vec![0; connections], 1000);
            let left = shard_budget.memory_budget.free() + shard_budget.spare();
            assert!(left >= turn_max.cast_signed() && !shard_budget.is_short(), "{left} of {turn_max}");
            assert!(shard_budget.reply_room() >= TURN_REPLIES_MAX, "no client has to take a reply first");
            shard_budget.record_output(0, turn_max);
            let room_max =
                if shard_budget.memory_budget.is_tight() { left.unsigned_abs() / ROOM_PART } else { usize::MAX };
            assert!(shard_budget.reply_room() <= room_max, "a part is left for clients that ask for less");
            shard_budget.record_output(turn_max, 0);
            assert!(shard_budget.reply_room() >= TURN_REPLIES_MAX);
        }
    }

    #[test]
    fn idle_shards_leave_their_memory_to_others() {
        const SHARDS: usize = 16;
        let memory_budget = Arc::new(MemoryBudget::new(8 << 20, 512, SHARDS));
        let mut purses: Vec<ShardBudget> = (0..SHARDS).map(|_| ShardBudget::new(memory_budget.clone())).collect();
        for shard_budget in &mut purses {
            assert!(shard_budget.secure(0, false, 1 << 20) > 1 << 20);
            // Used once by this one, and by the next one not at all.
            shard_budget.record(0, 1 << 20);
            shard_budget.record(1 << 20, 0);
            shard_budget.secure(0, false, 1 << 20);
            shard_budget.record(0, 0);
        }
        let free = memory_budget.free().cast_unsigned();
        assert!(
            free >= memory_budget.common - turn_max(memory_budget.common) / 2,
            "{free} of {}",
            memory_budget.common
        );
    }

    #[test]
    fn a_forwarded_batch_makes_no_shard_look_short_or_rich() {
        let memory_budget = Arc::new(MemoryBudget::new(BUDGET, 100, 1));
        let (mut one, mut other) = (ShardBudget::new(memory_budget.clone()), ShardBudget::new(memory_budget.clone()));
        one.record(0, 2 << 20);
        let (free, common) = (memory_budget.free(), memory_budget.common);
        // One shard fills it, the other one adds replies, and the first one empties it.
        for (before, after) in [(0, 10 << 20), (10 << 20, 20 << 20), (20 << 20, 0)] {
            memory_budget.record_batch(before, after);
            assert_eq!(memory_budget.free() + memory_budget.batches().cast_signed() as isize, free);
            assert!(
                [&one, &other].iter().all(|shard_budget| !shard_budget.is_overdrawn() && shard_budget.spare() >= 0)
            );
        }
        // Beyond the budget, it uses the reserves, and each shard knows that.
        memory_budget.record_batch(0, common);
        assert!(one.is_overdrawn() && other.is_overdrawn() && !one.is_exhausted());
        assert_eq!((other.secure(0, false, 1 << 20), one.room(SHARE, false)), (SHARE, 0));
        memory_budget.record_batch(common, common + SHARD_RESERVE);
        assert!(one.is_exhausted() && other.is_exhausted());
        memory_budget.record_batch(common + SHARD_RESERVE, 0);
        assert!(!one.is_overdrawn() && other.reply_room() == usize::MAX);
        one.record(2 << 20, 0);
    }
}
