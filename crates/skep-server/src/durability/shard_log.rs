//! A shard's part of the log: the block that is open.

use std::sync::Arc;

use skep_core::operation::{Condition, ConditionKind, Operation, Reply, Request, StringWrite};
use skep_log::{Block, BlockWriter};
use skep_store::ordered::Effects;
use skep_wire::native::ORDERED_SPACE;

use super::Log;
use crate::vocabulary::{Doubt, Release, Space, has_changed};

/// What a shard has executed since the last seal.
#[derive(Debug)]
pub(crate) struct ShardLog {
    log: Arc<Log>,
    /// The block that is open: that of the shard's turns, or that of a hold's commands while these are run. The shard
    /// may execute others between two steps of such a command.
    open: BlockWriter,
    /// The other one of the two.
    other: BlockWriter,
    /// The time of day at which the shard executes, in milliseconds since 1970.
    now: u64,
    /// Operations were executed since the time was noted.
    has_executed: bool,
    /// Number of shards.
    shard_count: u16,
}

impl ShardLog {
    /// Begins a block.
    pub(crate) fn new(log: Arc<Log>, shard_count: u16) -> ShardLog {
        ShardLog { log, open: BlockWriter::new(), other: BlockWriter::new(), now: 0, has_executed: false, shard_count }
    }

    /// Sets the time at which the next operations are executed.
    pub(crate) fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// Notes that operations are executed.
    #[inline]
    pub(crate) fn note_execution(&mut self) {
        self.has_executed = true;
    }

    /// Appends the time at which operations were executed since the last call, if that is due. `has_expiries` says that keys
    /// have an expiry. While the log is in trouble, such as on a full disk, its room is left to other blocks, and reads rest
    /// on nothing.
    #[inline]
    pub(crate) fn note_time(&mut self, has_expiries: impl FnOnce() -> bool) {
        if !std::mem::take(&mut self.has_executed) {
            return;
        }
        if self.log.stated_time.note_execution() {
            // From now on, each of them frees the memory of expired keys.
            self.log.wake_shards();
        }
        if !self.log.troubles.are_any() && self.log.stated_time.note(self.now, has_expiries) && self.log.records() {
            self.open.append_time(self.now);
        }
    }

    /// Returns true if keys may be removed from memory that have expired.
    pub(crate) fn removes_keys(&self) -> bool {
        self.log.stated_time.removes_keys()
    }

    /// Appends the operations of a batch that have changed something.
    pub(crate) fn record<'r>(&mut self, space: Space, requests: &[Request<'_>], reply: impl Fn(usize) -> Reply<'r>) {
        if !self.log.records() {
            return;
        }
        record(&mut self.open, space.number(), self.now, requests, reply);
    }

    /// Appends the removal of all keys of a shard.
    pub(crate) fn record_flush(&mut self, space: Space, shard: u16) {
        if self.log.records() {
            self.open.append_flush(space.number(), shard, self.shard_count);
        }
    }

    /// Puts the open block into the queue of the log, unless it is empty.
    pub(crate) fn seal(&mut self) {
        if let Some(block) = self.open.seal(0) {
            self.push(block);
        }
    }

    /// Returns the bytes of the open block.
    pub(crate) fn size(&self) -> usize {
        self.open.size()
    }

    /// Forgets both blocks: they may have a part of a command that is abandoned.
    pub(crate) fn discard(&mut self) {
        self.log.abandon_command();
        for block in [&mut self.open, &mut self.other] {
            block.seal(0);
        }
    }

    /// Appends effects on the ordered space, and puts the block into the queue of the log: all effects below the floor are
    /// in it then.
    pub(crate) fn seal_effects(&mut self, effects: Effects<'_>, floor: u64) {
        if !self.log.records() {
            return self.seal();
        }
        for effect in effects {
            let is_appended = self.open.append_effect(ORDERED_SPACE, effect.version, &effect.request());
            assert!(is_appended, "a pair fits a frame");
        }
        let block = self.open.seal_floor(floor);
        self.push(block);
    }

    fn push(&mut self, block: Block) {
        if let Some(spent) = self.log.push(block) {
            self.open.reuse(spent);
        }
    }

    /// Changes between the block of the shard's turns and that of a hold's commands.
    pub(crate) fn swap_open(&mut self) {
        std::mem::swap(&mut self.open, &mut self.other);
    }

    /// Returns the time from which on replies of a connection may leave that rest on blocks that are sealed, and have shown
    /// the ordered space up to this version.
    pub(crate) fn release(&self, doubt: &mut Doubt, version: u64, known_failure: u64) -> Release {
        self.log.release(doubt, version, known_failure)
    }

    /// Returns the time from which on replies may leave that rest on the open block.
    pub(crate) fn release_of_open(&self) -> Release {
        if self.log.holds_replies() { Release::AfterOpen } else { Release::Now }
    }
}

/// Appends the operations of a batch that have changed something to a block, in this space and at this time.
pub fn record<'r>(
    block: &mut BlockWriter,
    space: u16,
    now: u64,
    requests: &[Request<'_>],
    reply: impl Fn(usize) -> Reply<'r>,
) {
    let mut index = 0;
    while index < requests.len() {
        let (first, rest) = (index, &requests[index..]);
        if is_put(&rest[0]) {
            index += block.append_similar_puts(space, now, rest, |next| reply(first + next) == Reply::Done);
        }
        if let Some(request) = requests.get(index) {
            with_change(request, reply(index), |request| {
                assert!(block.append(space, now, request), "an operation fits a frame");
            });
            index += 1;
        }
    }
}

fn is_put(request: &Request<'_>) -> bool {
    matches!(request.operation, Operation::Put { .. })
}

/// Calls `append` with the request that changes what an operation with this reply has changed, if it has. The operand of a
/// condition may be as long as a value, so both may be too long for a frame. Therefore it is left out, now that the condition
/// is known to have held.
#[inline]
fn with_change(request: &Request<'_>, reply: Reply<'_>, append: impl FnOnce(&Request<'_>)) {
    if !has_changed(&request.operation, reply) {
        return;
    }
    let without_condition;
    let change = match &request.operation {
        Operation::StringWrite(StringWrite::Set { value, condition, expiry, return_old }) => {
            let set = StringWrite::Set { value, condition: Condition::ALWAYS, expiry: *expiry, return_old: false };
            match (condition.kind, reply) {
                (ConditionKind::IfEqual, Reply::Value(old)) if old != condition.operand => return,
                (ConditionKind::IfNotEqual, Reply::Value(old)) if old == condition.operand => return,
                // A digest is short, so the replay compares it again.
                (ConditionKind::IfDigest | ConditionKind::IfNotDigest, _) => request,
                _ => {
                    debug_assert!(*return_old || reply == Reply::Done);
                    without_condition = Request { operation: Operation::StringWrite(set), ..*request };
                    &without_condition
                }
            }
        }
        Operation::StringWrite(StringWrite::Remove { .. }) => {
            without_condition = Request { operation: Operation::Delete, ..*request };
            &without_condition
        }
        _ => request,
    };
    append(change);
}
