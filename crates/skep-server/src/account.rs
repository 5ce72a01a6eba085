//! The account of work: how much a shard still does before others have their turn.
//!
//! Commands differ: a `GET` of a counter takes a hundred nanoseconds, a `BITCOUNT` of a mebibyte or a pattern of a
//! kilobyte a thousand times as long. So work is counted in *bytes touched*, not in commands:
//!
//! 1. A turn, or a step of a transaction, begins with an account: [`TURN_WORK`] bytes.
//! 2. Each operation spends its cost: the bytes that it has read, written or compared, and [`OPERATION_WORK`] for the
//!    operation itself. Decoding, patterns, and replies that the server makes itself spend too.
//! 3. When the account [is spent](Account::is_spent), nothing else is begun. An operation is not divided, so the last
//!    one may exceed the account by its own cost.
//!
//! Bytes are counted as if they were read one after another, about four in a nanosecond. Work with another speed is
//! converted where it is charged: a comparison of a character that takes a nanosecond counts as four bytes.

use crate::limits::OPERATION_WORK;

/// The work that was done and that may be done, in bytes touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    limit: usize,
    spent: usize,
}

impl Account {
    /// Begins an account of this many bytes.
    pub(crate) fn new(limit: usize) -> Account {
        Account { limit, spent: 0 }
    }

    /// Spends the work on this many bytes.
    #[inline]
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.spent = self.spent.saturating_add(bytes);
    }

    /// Spends the work of operations that touch this many bytes together.
    #[inline]
    pub(crate) fn spend_operations(&mut self, count: usize, bytes: usize) {
        self.spend(operations_work(count, bytes));
    }

    /// Returns true if nothing else is to be begun.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.spent >= self.limit
    }

    /// Returns the bytes that were spent. The last operation may have exceeded the limit.
    #[inline]
    pub(crate) fn spent(&self) -> usize {
        self.spent
    }
}

/// Returns the work of operations that touch this many bytes together.
#[inline]
pub(crate) fn operations_work(count: usize, bytes: usize) -> usize {
    count.saturating_mul(OPERATION_WORK).saturating_add(bytes)
}

#[cfg(test)]
mod tests {
    use super::Account;
    use crate::limits::OPERATION_WORK;

    #[test]
    fn the_last_operation_may_exceed_the_account() {
        let mut account = Account::new(3 * OPERATION_WORK);
        account.spend_operations(2, 0);
        account.spend(OPERATION_WORK - 1);
        assert!(!account.is_spent());
        account.spend_operations(1, 1 << 20);
        assert!(account.is_spent());
        assert_eq!(account.spent(), 4 * OPERATION_WORK - 1 + (1 << 20));
    }

    #[test]
    fn work_does_not_overflow() {
        let mut account = Account::new(1);
        account.spend(usize::MAX);
        account.spend_operations(usize::MAX, usize::MAX);
        assert_eq!((account.is_spent(), account.spent()), (true, usize::MAX));
        assert!(Account::new(0).is_spent());
    }
}
