//! Runs: adjacent requests of a part that are alike.
//!
//! Most requests of a batch are a GET, a put without a condition or a delete. Each of these has a loop of its own, which is
//! left at the first request of another kind. So the kind is decided once for a run, and the loop has only what its requests
//! need. The requests are executed in their order, and each has the effect that it has alone.

use super::execute::{Execution, Progress, Run, Target};
use super::item_request::{ItemCommand, ItemPut, ItemPutMode, ItemRequest};
use crate::memory::ResidentLines;
use crate::processor::Replies;
use skep_core::operation::{Operation, PutCondition, Request};

impl<'a, L: ResidentLines> Execution<'a, L> {
    /// Executes the first of these operations, which are valid, and those after it that are alike, if it is a frequent one.
    #[inline(always)]
    pub(super) fn execute_run(
        &mut self,
        requests: &'a [Request<'a>],
        targets: &[Target],
        first: usize,
        replies: &mut Replies,
    ) -> Run {
        match requests[0].operation {
            Operation::Get => self.get_run(requests, targets, first, replies),
            Operation::Put { condition: PutCondition::Always, .. } => self.put_run(requests, targets, first, replies),
            Operation::Delete => self.delete_run(requests, targets, first, replies),
            _ => self.other_run(requests, targets, first, replies),
        }
    }

    /// Executes the GETs at the start of these requests.
    #[inline(never)]
    fn get_run(&mut self, requests: &[Request<'_>], targets: &[Target], first: usize, replies: &mut Replies) -> Run {
        for (count, (request, target)) in requests.iter().zip(targets).enumerate() {
            let Operation::Get = request.operation else { return Run::done(count) };
            let progress = self.get(first + count, request.key, target, replies);
            if progress != Progress::Done {
                return Run { count, progress };
            }
        }
        Run::done(requests.len())
    }

    /// Executes the puts without a condition at the start of these requests.
    #[inline(never)]
    fn put_run(&mut self, requests: &[Request<'_>], targets: &[Target], first: usize, replies: &mut Replies) -> Run {
        for (count, (request, target)) in requests.iter().zip(targets).enumerate() {
            let Operation::Put { value, condition: PutCondition::Always } = request.operation else {
                return Run::done(count);
            };
            let progress = self.put(first + count, request.key, target.hash, value, None, replies);
            if progress != Progress::Done {
                return Run { count, progress };
            }
        }
        Run::done(requests.len())
    }

    /// Executes the deletes at the start of these requests.
    #[inline(never)]
    fn delete_run(&mut self, requests: &[Request<'_>], targets: &[Target], first: usize, replies: &mut Replies) -> Run {
        for (count, (request, target)) in requests.iter().zip(targets).enumerate() {
            let Operation::Delete = request.operation else { return Run::done(count) };
            self.delete(first + count, request.key, target.hash, replies);
        }
        Run::done(requests.len())
    }

    /// Executes the first of these operations, and those after it that are less frequent ones too.
    #[inline(never)]
    fn other_run(
        &mut self,
        requests: &'a [Request<'a>],
        targets: &[Target],
        first: usize,
        replies: &mut Replies,
    ) -> Run {
        for (count, (request, target)) in requests.iter().zip(targets).enumerate() {
            if let Operation::Get | Operation::Put { .. } | Operation::Delete = request.operation
                && count > 0
            {
                return Run::done(count);
            }
            let progress = self.execute_other(first + count, request, target.hash, replies);
            if progress != Progress::Done {
                return Run { count, progress };
            }
        }
        Run::done(requests.len())
    }

    /// Executes the first of these commands, which are valid, and those after it that are alike, if it is a frequent one.
    #[inline(always)]
    pub(super) fn execute_item_run(
        &mut self,
        requests: &[ItemRequest<'_>],
        targets: &[Target],
        first: usize,
        replies: &mut Replies,
    ) -> Run {
        let run = match &requests[0] {
            ItemRequest { command: ItemCommand::ReadValue, cas: None, .. } => {
                self.read_run(requests, targets, first, replies)
            }
            ItemRequest { command: ItemCommand::Put(ItemPut { mode: ItemPutMode::Always, .. }), cas: None, .. } => {
                self.put_item_run(requests, targets, first, replies)
            }
            _ => Run::done(0),
        };
        if run.count > 0 || run.progress != Progress::Done {
            return run;
        }
        Run::of_one(self.access_item(first, &requests[0], targets[0].hash, replies))
    }

    /// Executes the reads of values at the start of these commands.
    #[inline(never)]
    fn read_run(
        &mut self,
        requests: &[ItemRequest<'_>],
        targets: &[Target],
        first: usize,
        replies: &mut Replies,
    ) -> Run {
        for (count, (request, target)) in requests.iter().zip(targets).enumerate() {
            let ItemRequest { key, cas: None, command: ItemCommand::ReadValue } = request else {
                return Run::done(count);
            };
            let progress = self.read_value(first + count, key, target, replies);
            if progress != Progress::Done {
                return Run { count, progress };
            }
        }
        Run::done(requests.len())
    }

    /// Executes the puts without a condition at the start of these commands, up to one that has expired.
    #[inline(never)]
    fn put_item_run(
        &mut self,
        requests: &[ItemRequest<'_>],
        targets: &[Target],
        first: usize,
        replies: &mut Replies,
    ) -> Run {
        for (count, (request, target)) in requests.iter().zip(targets).enumerate() {
            let ItemRequest { key, cas: None, command: ItemCommand::Put(put) } = request else {
                return Run::done(count);
            };
            if put.mode != ItemPutMode::Always || self.has_passed(put.expiry.apply(None)) {
                return Run::done(count);
            }
            let progress = self.put_item(first + count, key, target.hash, put, replies);
            if progress != Progress::Done {
                return Run { count, progress };
            }
        }
        Run::done(requests.len())
    }
}
