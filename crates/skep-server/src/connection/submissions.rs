//! The number of operations that a connection submits at a time, and the outcome of its last submission.

/// The record of the operations that a connection has submitted.
#[derive(Debug)]
pub(super) struct Submissions {
    /// Operations that it may submit at a time.
    pub(super) quota: usize,
    /// Other shards executed something of the last submission.
    has_progress: bool,
    /// Other shards executed nothing of the last submission.
    pub(super) is_returned: bool,
}

impl Submissions {
    /// Allows any number.
    pub(super) fn new() -> Submissions {
        Submissions { quota: usize::MAX, has_progress: false, is_returned: false }
    }

    /// Records a submission of `count` operations: `done` of them are done or with other shards, in `forwarded`
    /// batches.
    ///
    /// - If none is done, and `has_company` says that an earlier operation of the batch was executed, that operation
    ///   may have taken the memory: half as many are submitted next.
    /// - If only some are done, that number is submitted next, but at least one.
    /// - If all are done, twice as many, until the quota exceeds the `share` of the window.
    pub(super) fn submitted(&mut self, count: usize, done: usize, forwarded: usize, share: usize, has_company: bool) {
        self.quota = match done {
            0 if has_company => (count / 2).max(1),
            _ if done < count => done.max(1),
            _ if self.quota < share => 2 * self.quota,
            _ => usize::MAX,
        };
        self.is_returned &= done == 0 || forwarded > 0;
    }

    /// Records that a forwarded batch of `count` operations is back, with `done` of them executed. `is_last` says that
    /// no other one is in flight.
    pub(super) fn returned(&mut self, count: usize, done: usize, is_last: bool) {
        if done < count {
            self.quota = self.quota.min(done.max(1));
        }
        self.has_progress |= done > 0;
        if is_last {
            self.is_returned = !std::mem::take(&mut self.has_progress);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Submissions;

    #[test]
    fn the_quota_follows_what_was_executed() {
        let mut submissions = Submissions::new();
        for (count, done, has_company, quota) in [
            (100, 100, false, usize::MAX),
            (100, 0, true, 50),
            (50, 20, true, 20),
            (20, 0, false, 1),
            (1, 1, false, 2),
            (2, 2, false, 4),
        ] {
            submissions.submitted(count, done, 0, 1000, has_company);
            assert_eq!(submissions.quota, quota, "{done} of {count}");
        }
        (0..8).for_each(|_| submissions.submitted(1, 1, 0, 1000, false));
        assert_eq!(submissions.quota, 1024);
        submissions.submitted(1, 1, 0, 1000, false);
        assert_eq!(submissions.quota, usize::MAX);
    }

    #[test]
    fn a_submission_is_returned_if_no_shard_executed_a_part_of_it() {
        let mut submissions = Submissions::new();
        submissions.returned(10, 0, false);
        submissions.returned(10, 1, true);
        assert!(!submissions.is_returned);
        submissions.returned(10, 0, true);
        assert!(submissions.is_returned && submissions.quota == 1);
        submissions.submitted(1, 0, 0, 1000, false);
        assert!(submissions.is_returned);
        submissions.submitted(1, 1, 0, 1000, false);
        assert!(!submissions.is_returned);
    }
}
