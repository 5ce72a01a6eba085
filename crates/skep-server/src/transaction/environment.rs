//! What the step of an isolated command works with: the stores that the shard has, and how far the command is.

use std::time::Instant;

use skep_core::operation::{Operation, Reply, Request, StringRead};

use super::course::Halt;
use crate::account::operations_work;
use crate::limits::{ISOLATED_READ_SIZE, ISOLATED_WORK_SIZE};
use crate::memory_budget::ReplyAccount;
use crate::resp_command::Context;
use crate::spaces::{Stores, Window};
use crate::vocabulary::{Extents, Space, Spaces, Step};
use crate::watches::Watched;

/// The stores, the connection and the time of a step.
pub(crate) struct Environment<'e, 's, 'c> {
    /// The stores of the shards that the command involves.
    pub(crate) stores: &'e mut Stores<'s>,
    pub(crate) context: &'e mut Context<'c>,
    /// The keys that the connection watches.
    pub(crate) watched: &'e mut Option<Box<Watched>>,
    pub(crate) spaces: Spaces,
    /// The account that permits the replies of a transaction.
    pub(crate) replies: ReplyAccount<'e>,
    pub(crate) now: Instant,
    /// Operations that may still be executed in this turn.
    pub(crate) left: usize,
    /// The part of it that an operation takes.
    pub(crate) operation_work: usize,
    /// Operations that were executed.
    pub(crate) executed: usize,
    /// Work of the operations, in bytes touched.
    pub(crate) touched: usize,
}

/// A key of a space.
#[derive(Clone, Copy)]
pub(super) struct SpaceKey<'a> {
    pub(super) space: Space,
    pub(super) key: &'a [u8],
}

impl Environment<'_, '_, '_> {
    /// Returns the extents of the spaces, of which all shards are held.
    pub(super) fn extents(&self) -> Extents {
        let (hash, ordered) = self.stores.extents();
        Extents { spaces: self.spaces, hash, ordered, clients: self.context.shared.clients().len() }
    }

    /// Counts work of a command besides its operations, as that of this number of them. Fails if there is no time for it in
    /// this turn.
    pub(super) fn work(&mut self, count: usize) -> Result<(), Step> {
        if self.left == 0 {
            return Err(Step::More);
        }
        self.spend_on(count);
        Ok(())
    }

    /// Counts work of a command besides its operations, as that of this number of them.
    pub(super) fn spend_on(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count * self.operation_work);
        self.context.account.spend_operations(count, 0);
    }

    /// Executes the operations of a window that have no reply. Fails if none can be executed now.
    pub(super) fn execute<'a>(
        &mut self,
        window: &mut Window,
        request: impl Fn(usize) -> (Space, Request<'a>),
    ) -> Result<(), Step> {
        if self.left == 0 {
            return Err(Step::More);
        }
        let before = window.size();
        let Context { partition, connection, .. } = *self.context;
        let executed = self.stores.execute_window(window, partition, connection, self.now, request);
        let bytes = executed.bytes.max(window.size() - before);
        self.spend(executed.operations, bytes);
        #[cfg(test)]
        if self.stores.is_broken && !window.is_complete() {
            return Err(Step::More);
        }
        if executed.operations == 0 { Err(Step::Wait) } else { Ok(()) }
    }

    /// Spends the work of operations that have touched this many bytes.
    pub(super) fn spend(&mut self, operations: usize, bytes: usize) {
        self.left = self.left.saturating_sub(operations * self.operation_work + bytes / ISOLATED_WORK_SIZE);
        self.executed += operations;
        self.context.account.spend_operations(operations, bytes);
        self.touched += operations_work(operations, bytes);
    }

    /// Reads a value, and calls `take` with each part of it in order. Parts of [`ISOLATED_READ_SIZE`] stay in the cache of
    /// the processor until they are taken, so that a value passes through memory once. Returns false if the key does not exist.
    ///
    /// Time stands still within a step. If the step ends after `take` was called, the caller begins anew, because the key may
    /// expire until the next one.
    pub(super) fn read_value(
        &mut self,
        SpaceKey { space, key }: SpaceKey<'_>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<bool, Halt> {
        if self.left == 0 {
            return Err(Step::More.into());
        }
        let mut offset = 0;
        loop {
            let (start, end) = (offset as i64, (offset + ISOLATED_READ_SIZE) as i64 - 1);
            let request = Request { key, operation: Operation::StringRead(StringRead::Slice { start, end }) };
            let Context { partition, connection: owner, .. } = *self.context;
            let (read, executed) =
                self.stores.execute_one(space, request, partition, owner, self.now, |reply| match reply {
                    Reply::Value(part) => {
                        take(part);
                        Ok(Some(part.len()))
                    }
                    Reply::Failed(error) => Err(error),
                    _ => Ok(None),
                });
            let size = if let Some(Ok(Some(size))) = read { size } else { 0 };
            self.spend(executed.operations, executed.bytes.max(size));
            offset += size;
            match read {
                None => return Err(Step::Wait.into()),
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(None)) => return Ok(false),
                Some(Ok(Some(size))) if size < ISOLATED_READ_SIZE => return Ok(true),
                Some(Ok(Some(_))) => {}
            }
        }
    }

    /// Gives a command the buffer of the shard for a value, unless it has one.
    pub(super) fn buffer<'b>(&mut self, kept: &'b mut Vec<u8>) -> &'b mut Vec<u8> {
        if kept.capacity() == 0 {
            *kept = std::mem::take(&mut self.stores.spare_value);
            kept.clear();
        }
        kept
    }

    /// Executes all operations of a window.
    pub(super) fn complete<'a>(
        &mut self,
        window: &mut Window,
        request: impl Fn(usize) -> (Space, Request<'a>),
    ) -> Result<(), Step> {
        while !window.is_complete() {
            self.execute(window, &request)?;
        }
        Ok(())
    }
}
