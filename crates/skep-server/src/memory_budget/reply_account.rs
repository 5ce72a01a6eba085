//! The account of a connection's replies, from which a transaction takes the memory of all of them before it is executed.

use super::{Loan, ShardBudget};
use crate::limits::{ISOLATED_REPLY_MAX, ONE_MAX_PART, SMALL_REPLIES_MAX};

/// How often the replies of a visit are held: in its batch, and in the output of the connection.
pub(crate) const VISIT_COPIES: usize = 2;

/// The account of a connection's replies.
pub(crate) struct ReplyAccount<'a> {
    loan: &'a mut Loan,
    shard_budget: &'a mut ShardBudget,
    /// Bytes that other commands have written in this step. They are not recorded.
    written: usize,
    /// How often the replies are held.
    copies: usize,
    /// The most bytes of replies that a transaction may have at all.
    most: usize,
}

impl<'a> ReplyAccount<'a> {
    /// Returns the account of a connection, whose last step has `written` bytes.
    pub(crate) fn new(loan: &'a mut Loan, written: usize, shard_budget: &'a mut ShardBudget) -> ReplyAccount<'a> {
        let most = ReplyAccount::most_of(loan.held(), shard_budget);
        ReplyAccount { loan, shard_budget, written, copies: 1, most }
    }

    /// Returns the account of a visit, of whose connection the replies may take `most` bytes.
    pub(crate) fn of_visit(
        loan: &'a mut Loan,
        written: usize,
        most: usize,
        shard_budget: &'a mut ShardBudget,
    ) -> ReplyAccount<'a> {
        let most = (most / VISIT_COPIES).max(SMALL_REPLIES_MAX);
        ReplyAccount { loan, shard_budget, written, copies: VISIT_COPIES, most }
    }

    /// Returns the most bytes that the replies of a transaction may take, if its connection holds `held` bytes. It gets as
    /// many when those before it are done: together they are no more than one connection may hold.
    pub(crate) fn most_of(held: usize, shard_budget: &ShardBudget) -> usize {
        let one_max = shard_budget.one_max();
        let usual = (one_max / ONE_MAX_PART * (ONE_MAX_PART - 1)).saturating_sub(held);
        usual.max(ISOLATED_REPLY_MAX.min(one_max.saturating_sub(held))).max(SMALL_REPLIES_MAX)
    }

    /// Returns the most bytes of replies that the transaction may have at all.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Permits these bytes of replies, which are charged from now on. A few bytes need no permit. Returns false if they
    /// are too many, or have to wait.
    pub(crate) fn permit(&mut self, bytes: usize) -> bool {
        let is_small = bytes <= SMALL_REPLIES_MAX;
        let charge = self.written + self.copies * bytes;
        is_small || bytes <= self.most && self.shard_budget.permit_replies(self.loan, charge)
    }
}
