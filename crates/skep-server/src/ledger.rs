//! The memory of connections: one budget for the whole server.
//!
//! ```text
//!   budget   │ share │ share │ …  one for each connection there may be │ common: lent │ common: free          │
//!   shard    │ reserve: the replies of one turn │ purse: pieces taken from the common part
//! ```
//!
//! A connection holds its buffers, its parsed requests and its buffered replies. All of it counts, by the capacity that is
//! allocated. Each connection may always hold [`SHARE`]. What it holds beyond, it borrows from the common part:
//!
//! 1. Before a connection reads or parses, it is told how much it may grow ([`Purse::room`]). A step that needs more waits.
//! 2. After each step its shard counts what it holds now ([`Purse::settle`]).
//! 3. A forwarded batch has no share, and belongs to no shard: one fills it and another empties it. It is counted in the common
//!    part itself ([`Ledger::settle_batch`]) on its whole round trip.
//! 4. A shard takes the common part in pieces of [`PIECE`], so that settling touches no atomic as a rule.
//!
//! A sixteenth of the common part is kept for replies and for small sums, and requests are lent nothing of the last replies
//! of one turn. So only replies can use these up, and their clients take them or are closed: requests never hold the memory
//! that their own replies need. Of the rest, a connection may borrow at most twice what is left free, and hold at most half of
//! the budget. So one that is alone gets two thirds of it, n that grow together get 2 of 2n + 1 parts each, and a third of
//! what was left is always left for the next one. This is the dynamic threshold of shared-memory switches (Choudhury and
//! Hahne, 1998).
//!
//! Incomplete requests that wait for each other's memory would each get a little of what is released, and none would be
//! completed. So one connection at a time is the *senior*: it may borrow all that is free, and the others a little. It
//! stops being the senior when its request is done; the next one is that which holds most.
//!
//! The replies of a turn are not known before they are made. Each shard has a reserve for them, [`SHARD_RESERVE`], which is
//! not a part of the budget. While little is free, the large replies of a turn may take a part of it only
//! ([`Purse::reply_room`]): requests for larger ones wait, smaller ones of other clients do not. While its reserve is in use ([`Purse::is_overdrawn`]), each connection goes on in small steps that its
//! share covers. So all connections together never hold more than the budget and one reserve for each shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};

use crate::limits::{
    KEPT_PART, PIECE, PIECES_KEPT, RESERVE_PART, RESERVE_ROOM_MAX, ROOM_PART, SHARD_RESERVE, SHARE, SHARE_FOR_REPLIES,
    SMALL_LOAN_MAX, TURN_REPLIES_MAX,
};

/// Words that are no connection's number: there is no senior, and there may be a next one.
const NOBODY: u64 = 0;
const NEXT: u64 = u64::MAX;

/// The common part of the budget.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Most bytes that one connection may hold.
    one_max: usize,
    /// Bytes of the common part.
    common: usize,
    /// Number of shards.
    shards: isize,
    /// Bytes that a shard keeps when nothing is lent, and takes at a time.
    shard_kept: usize,
    piece: usize,
    /// Those that no shard has taken and no forwarded batch holds; negative: batches use the reserves.
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
    /// Those of them that a request lacks memory for, as shards have published them.
    wanting: AtomicUsize,
    /// The number of the connection that may borrow all that is free, or [`NOBODY`], or [`NEXT`].
    senior: AtomicU64,
}

impl Ledger {
    /// A budget for at most this many connections, whose shares take at most half of it, and for this many shards.
    pub(crate) fn new(budget: usize, connections_max: usize, shards: usize) -> Ledger {
        let common = budget.saturating_sub(connections_max.saturating_mul(SHARE));
        // What it may borrow alone: twice what is left.
        let one_max = (budget / 2).min((common - kept(common)) / 3 * 2);
        // All shards together keep a quarter of what is kept for replies, or up to half for a moment.
        let shard_kept = (PIECES_KEPT * PIECE).min(turn_max(common) / (4 * shards.max(1)));
        let piece = PIECE.min(shard_kept).max(1);
        Ledger {
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
            senior: AtomicU64::new(NOBODY),
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

    fn free(&self) -> isize {
        self.free.load(Ordering::Relaxed)
    }

    /// Counts a forwarded batch that held `before` bytes and holds `after`.
    pub(crate) fn settle_batch(&self, before: usize, after: usize) {
        let change = after.cast_signed() - before.cast_signed();
        if change != 0 {
            self.free.fetch_sub(change, Ordering::Relaxed);
            self.batches.fetch_add(change, Ordering::Relaxed);
            self.publish(change);
        }
    }

    /// Bytes that forwarded batches hold.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed).max(0).cast_unsigned() as u64
    }

    /// Makes a connection the senior, unless another one is it; returns true if it is.
    pub(crate) fn become_senior(&self, connection: u64) -> bool {
        let replace =
            |from| self.senior.compare_exchange(from, connection, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        replace(NEXT) || replace(NOBODY)
    }

    /// Lets the next connection that needs memory become the senior. Until then the others may borrow only a little, or
    /// they would share what the last senior returns, and none would have enough.
    pub(crate) fn resign(&self) {
        self.senior.store(if self.waiting() > 0 { NEXT } else { NOBODY }, Ordering::Relaxed);
    }

    /// Lets all connections borrow again if nobody became the senior.
    pub(crate) fn end_seniority(&self) {
        let _ = self.senior.compare_exchange(NEXT, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Counts bytes that came into use or went out of it.
    fn publish(&self, change: isize) {
        let used = self.used.fetch_add(change, Ordering::Relaxed) + change;
        self.used_max.fetch_max(used, Ordering::Relaxed);
    }

    /// The most bytes that connections and forwarded batches held, up to [`PIECE`] for each shard.
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

    /// Connections that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns true while less than a quarter of the common part is free. One connection that holds what it may leaves a
    /// third, two leave a fifth.
    pub(crate) fn is_tight(&self) -> bool {
        self.free() < self.common.cast_signed() / 4
    }

    /// Returns true while clients have taken nearly all replies: what is lent is lent to requests.
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

/// Bytes that the large replies of a turn take as a rule, of a common part of this size: less where the budget is small.
fn turn_max(common: usize) -> usize {
    TURN_REPLIES_MAX.min(common / 8)
}

/// Bytes of a common part of this size that are lent only in small sums, and for replies.
fn kept(common: usize) -> usize {
    turn_max(common).max(common / KEPT_PART)
}

/// A shard's part of the ledger.
#[derive(Debug)]
pub(crate) struct Purse {
    ledger: Arc<Ledger>,
    /// Bytes taken from the ledger and not returned.
    taken: isize,
    /// Bytes that connections hold.
    held: usize,
    /// Bytes that connections held when they were last published.
    published: usize,
    /// Bytes that connections hold beyond their shares.
    borrowed: usize,
    /// Bytes of replies that the clients of this shard have not taken, and those when they were last published.
    outputs: usize,
    outputs_published: usize,
    /// Connections of this shard that a request lacks memory for.
    wanting: usize,
    /// What was free, and who was the senior, at the last [`Purse::take_change`].
    seen: (isize, u64),
    /// Whether memory was released since [`Purse::take_released`].
    released: bool,
}

impl Purse {
    /// A purse without pieces.
    pub(crate) fn new(ledger: Arc<Ledger>) -> Purse {
        Purse {
            ledger,
            taken: 0,
            held: 0,
            published: 0,
            borrowed: 0,
            outputs: 0,
            outputs_published: 0,
            wanting: 0,
            seen: (0, NOBODY),
            released: false,
        }
    }

    /// The ledger of the server.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Most bytes that one connection may ever hold.
    pub(crate) fn one_max(&self) -> usize {
        self.ledger.one_max
    }

    /// Bytes that connections hold.
    pub(crate) fn used(&self) -> usize {
        self.held
    }

    /// Bytes that connections hold beyond their shares.
    pub(crate) fn borrowed(&self) -> usize {
        self.borrowed
    }

    /// Bytes of the pieces that are not lent; negative: the reserve is in use.
    fn spare(&self) -> isize {
        self.taken - self.borrowed.cast_signed()
    }

    /// Bytes of the reserve that are in use: by connections of this shard, and its part of those by forwarded batches.
    fn overdraft(&self) -> usize {
        (self.spare().min(0) + self.ledger.free().min(0) / self.ledger.shards).unsigned_abs()
    }

    /// Returns true if the large replies of a turn might not fit what is free. Requests alone cannot make this true: they
    /// leave twice as much.
    pub(crate) fn is_low(&self) -> bool {
        let turn_max = turn_max(self.ledger.common).cast_signed();
        self.ledger.free() + self.spare() < turn_max / 2
    }

    /// Returns true if that is so and clients have to take replies first.
    pub(crate) fn is_short(&self) -> bool {
        self.is_low() && !self.ledger.has_few_outputs()
    }

    /// Returns true if the reserve is in use: only steps that shares cover are safe.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.overdraft() > 0
    }

    /// Returns how many bytes the large replies of each space may take in a turn:
    ///
    /// 1. All that they ask for while a quarter of the common part is free: stalled connections are closed until it is.
    /// 2. As many as a turn has as a rule while clients have taken nearly all replies, also from the first half of the reserve.
    ///    Else requests, and replies that are kept after a deferred one, would hold the memory that they wait for.
    /// 3. Otherwise a part of what is free, so that a client that asks for less than the others is served however many these
    ///    are. While the reserve is in use, a part of its first half; after that, what the share of one connection covers.
    pub(crate) fn reply_room(&self) -> usize {
        let is_overdrawn = self.is_overdrawn();
        let free = (self.ledger.free() + self.spare()).max(0).cast_unsigned();
        if !is_overdrawn && free >= self.ledger.common / 4 {
            return usize::MAX;
        }
        let left = (SHARD_RESERVE / 2).saturating_sub(self.overdraft());
        if left > 0 && self.ledger.has_few_outputs() {
            return TURN_REPLIES_MAX;
        }
        if is_overdrawn { (left / RESERVE_PART).clamp(SHARE_FOR_REPLIES, RESERVE_ROOM_MAX) } else { free / ROOM_PART }
    }

    /// Returns true if the reserve is used up: only connections within their shares go on.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.overdraft() > SHARD_RESERVE
    }

    /// How many more bytes a connection that holds `held` may hold.
    pub(crate) fn room(&self, held: usize, is_senior: bool) -> usize {
        let lent = held.saturating_sub(SHARE);
        let free = (self.ledger.free() + self.spare().max(0)).max(0).cast_unsigned();
        let little = SMALL_LOAN_MAX.saturating_sub(lent).min(free.saturating_sub(turn_max(self.ledger.common)) / 2);
        let free = free.saturating_sub(kept(self.ledger.common));
        let borrowed = match self.ledger.senior.load(Ordering::Relaxed) {
            NOBODY => (2 * free).saturating_sub(lent) / 3,
            _ if is_senior => free,
            _ => 0,
        };
        SHARE.saturating_sub(held) + borrowed.max(little).min(self.ledger.one_max.saturating_sub(held))
    }

    /// Like [`Purse::room`], but at most `wanted` beyond the share, and as much as is certain to be there: this shard has
    /// taken it.
    pub(crate) fn secure(&mut self, held: usize, is_senior: bool, wanted: usize) -> usize {
        let share_left = SHARE.saturating_sub(held);
        let borrowed = (self.room(held, is_senior) - share_left).min(wanted);
        let spare = self.spare();
        if spare < borrowed.cast_signed() {
            self.taken += self.ledger.take((borrowed.cast_signed() - spare).cast_unsigned()).cast_signed();
        }
        share_left + borrowed.min(self.spare().max(0).cast_unsigned())
    }

    /// Counts a connection that held `before` bytes and holds `after`.
    pub(crate) fn settle(&mut self, before: usize, after: usize) {
        self.held = self.held - before + after;
        self.borrowed = self.borrowed - before.saturating_sub(SHARE) + after.saturating_sub(SHARE);
        self.released |= after < before;
        // Also what was secured for a step that did not use it.
        self.balance();
    }

    /// Counts the replies of a connection that its client has not taken: `before` bytes until now, `after` from now on.
    pub(crate) fn settle_output(&mut self, before: usize, after: usize) {
        if before == after {
            return;
        }
        self.outputs = self.outputs - before + after;
        if self.outputs == 0 || self.outputs.abs_diff(self.outputs_published) >= PIECE {
            let change = self.outputs.cast_signed() - self.outputs_published.cast_signed();
            self.ledger.outputs.fetch_add(change, Ordering::Relaxed);
            self.outputs_published = self.outputs;
        }
    }

    /// Publishes how many connections of this shard a request lacks memory for.
    pub(crate) fn publish_wanting(&mut self, wanting: usize) {
        let before = std::mem::replace(&mut self.wanting, wanting);
        if before != wanting {
            // Wraps if it is less.
            self.ledger.wanting.fetch_add(wanting.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Returns true if the last published number was not 0.
    pub(crate) fn has_wanting(&self) -> bool {
        self.wanting > 0
    }

    /// Takes pieces for what is lent, or returns those that are not.
    pub(crate) fn balance(&mut self) {
        if self.held.abs_diff(self.published) >= PIECE {
            self.ledger.publish(self.held.cast_signed() - self.published.cast_signed());
            self.published = self.held;
        }
        let spare = self.spare();
        if spare < 0 {
            self.taken += self.ledger.take(spare.unsigned_abs()).cast_signed();
        } else if spare.cast_unsigned() > 2 * self.ledger.shard_kept {
            let surplus = spare.cast_unsigned() - self.ledger.shard_kept;
            self.taken -= surplus.cast_signed();
            self.ledger.give_back(surplus);
        }
    }

    /// Returns true if what is free, or the senior, is not what it was at the last call: what waits may go on, or not.
    pub(crate) fn take_change(&mut self) -> bool {
        let free = self.ledger.free() + self.spare();
        let seen = (free, self.ledger.senior.load(Ordering::Relaxed));
        std::mem::replace(&mut self.seen, seen) != seen
    }

    /// Returns true once after connections of this shard released memory: what waits may go on.
    pub(crate) fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Ledger, PIECE, PIECES_KEPT, Purse, ROOM_PART, SHARD_RESERVE, SHARE, TURN_REPLIES_MAX, kept, turn_max};

    const BUDGET: usize = 64 << 20;

    /// Lets connections grow in turn, by `step` each time, until none may.
    fn grow(purse: &mut Purse, connections: &mut [usize], step: usize) {
        let mut grows = true;
        while std::mem::take(&mut grows) {
            for held in connections.iter_mut() {
                if purse.secure(*held, false, step) >= step {
                    purse.settle(*held, *held + step);
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
            let mut purse = Purse::new(Arc::new(Ledger::new(BUDGET, 100, 1)));
            let mut held = vec![0; count];
            grow(&mut purse, &mut held, 1000);
            let fair = (2 * common / (2 * count + 1)).min(BUDGET / 2);
            for &held in &held {
                assert!((fair - 4 * PIECE..=fair + SHARE + 1000).contains(&held), "{count}: {held} of {fair}");
            }
            assert!(purse.room(0, false) > fair / 4);
            let sum = held.iter().sum::<usize>();
            assert_eq!(purse.used(), sum);
            assert!(sum as u64 - purse.ledger.used_max() < PIECE as u64);
            for held in held {
                purse.settle(held, 0);
            }
            assert!(purse.borrowed() == 0 && purse.used() == 0 && purse.taken <= (2 * PIECES_KEPT * PIECE) as isize);
        }
    }

    #[test]
    fn a_shard_that_is_short_keeps_the_shares() {
        let ledger = Arc::new(Ledger::new(BUDGET, 100, 1));
        let (mut one, mut other) = (Purse::new(ledger.clone()), Purse::new(ledger));
        // Replies of a turn, more than is left.
        one.settle(0, BUDGET);
        one.settle_output(0, BUDGET);
        assert!(one.is_short() && !one.is_exhausted() && other.is_short());
        assert_eq!(one.secure(0, false, 1 << 20), SHARE);
        assert_eq!(other.secure(SHARE - 1, false, 1 << 20), 1);
        assert_eq!(other.secure(SHARE, false, 1 << 20), 0);
        one.settle(0, SHARD_RESERVE + SHARE);
        assert!(one.is_exhausted());
        one.settle(BUDGET, 0);
        one.settle_output(BUDGET, 0);
        assert!(!one.is_short() && other.secure(SHARE, false, 1 << 20) == 1 << 20);
    }

    #[test]
    fn requests_leave_the_replies_of_a_turn() {
        for (budget, connections) in [(8 << 20, 512), (BUDGET, 100), (256 << 20, 10_000)] {
            let mut purse = Purse::new(Arc::new(Ledger::new(budget, connections, 1)));
            let turn_max = turn_max(purse.ledger.common);
            grow(&mut purse, &mut vec![0; connections], 1000);
            let left = purse.ledger.free() + purse.spare();
            assert!(left >= turn_max.cast_signed() && !purse.is_short(), "{left} of {turn_max}");
            assert!(purse.reply_room() >= TURN_REPLIES_MAX, "no client has to take a reply first");
            purse.settle_output(0, turn_max);
            let room_max = if purse.ledger.is_tight() { left.unsigned_abs() / ROOM_PART } else { usize::MAX };
            assert!(purse.reply_room() <= room_max, "a part is left for clients that ask for less");
            purse.settle_output(turn_max, 0);
            assert!(purse.reply_room() >= TURN_REPLIES_MAX);
        }
    }

    #[test]
    fn idle_shards_leave_their_memory_to_others() {
        const SHARDS: usize = 16;
        let ledger = Arc::new(Ledger::new(8 << 20, 512, SHARDS));
        let mut purses: Vec<Purse> = (0..SHARDS).map(|_| Purse::new(ledger.clone())).collect();
        for purse in &mut purses {
            assert!(purse.secure(0, false, 1 << 20) > 1 << 20);
            // Used once by this one, and by the next one not at all.
            purse.settle(0, 1 << 20);
            purse.settle(1 << 20, 0);
            purse.secure(0, false, 1 << 20);
            purse.settle(0, 0);
        }
        let free = ledger.free().cast_unsigned();
        assert!(free >= ledger.common - turn_max(ledger.common) / 2, "{free} of {}", ledger.common);
    }

    #[test]
    fn a_forwarded_batch_makes_no_shard_look_short_or_rich() {
        let ledger = Arc::new(Ledger::new(BUDGET, 100, 1));
        let (mut one, mut other) = (Purse::new(ledger.clone()), Purse::new(ledger.clone()));
        one.settle(0, 2 << 20);
        let (free, common) = (ledger.free(), ledger.common);
        // One shard fills it, the other one adds replies, and the first one empties it.
        for (before, after) in [(0, 10 << 20), (10 << 20, 20 << 20), (20 << 20, 0)] {
            ledger.settle_batch(before, after);
            assert_eq!(ledger.free() + ledger.batches().cast_signed() as isize, free);
            assert!([&one, &other].iter().all(|purse| !purse.is_overdrawn() && purse.spare() >= 0));
        }
        // Beyond the budget, it uses the reserves, and each shard knows that.
        ledger.settle_batch(0, common);
        assert!(one.is_overdrawn() && other.is_overdrawn() && !one.is_exhausted());
        assert_eq!((other.secure(0, false, 1 << 20), one.room(SHARE, false)), (SHARE, 0));
        ledger.settle_batch(common, common + SHARD_RESERVE);
        assert!(one.is_exhausted() && other.is_exhausted());
        ledger.settle_batch(common + SHARD_RESERVE, 0);
        assert!(!one.is_overdrawn() && other.reply_room() == usize::MAX);
        one.settle(2 << 20, 0);
    }
}
