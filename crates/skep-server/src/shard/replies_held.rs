//! Replies that wait until what they rest on is on disk, and what a shard does while the log cannot be written: see
//! [`crate::durability`].
//!
//! When a write of the log has failed, connections with operations in work are *doubtful*: some of these may have been
//! executed without getting into the log. Their replies are held until a snapshot is complete. If it is given up, these
//! connections end. Later operations that may change keys are refused. Replies to reads of all other connections leave:
//! until then, they may return values that a crash would lose.

use std::collections::VecDeque;
use std::time::Instant;

use skep_store::ordered::OrderedStore;

use super::Shard;
use super::isolation::Isolation;
use crate::connection::Connection;
use crate::durability::{DiskProgress, Log};
use crate::shared::Shared;
use crate::spaces::Stores;
use crate::transport::Event;
use crate::vocabulary::{Reached, Refusal, Release, Token};

/// What a shard knows of the log.
pub(super) struct LogView {
    /// The failure that it knows, and whether the attempt to begin a fresh log has failed too.
    failure: (u64, bool),
    /// The writes that are refused in this turn, because the log cannot take them.
    pub(super) write_refusal: Refusal,
    /// Nothing was executed in this turn, because the disk is behind.
    pub(super) is_behind: bool,
    disk_progress: DiskProgress,
}

impl LogView {
    pub(super) fn new(now: Instant) -> LogView {
        LogView {
            failure: (0, false),
            write_refusal: Refusal::Nothing,
            is_behind: false,
            disk_progress: DiskProgress::new(now),
        }
    }

    /// Returns the number of the failure that it knows.
    pub(super) fn failure(&self) -> u64 {
        self.failure.0
    }

    /// Returns true if blocks wait for the disk.
    pub(super) fn awaits_disk(&self) -> bool {
        self.disk_progress.waits
    }
}

impl Shard {
    /// Returns true if replies wait for blocks that are on disk now.
    pub(super) fn may_release(&self) -> bool {
        let log = self.parts.shared.log.as_ref();
        self.waits.awaiting.front().is_some_and(|(reached, _)| log.is_some_and(|log| log.released().covers(*reached)))
    }

    /// Lets the connections write whose replies may leave now.
    pub(super) fn release_replies(&mut self, now: Instant) {
        let Some(log) = self.parts.shared.log.clone() else { return };
        self.follow_troubles(&log);
        let durable = log.released();
        while let Some(&(reached, token)) = self.waits.awaiting.front()
            && durable.covers(reached)
        {
            self.waits.awaiting.pop_front();
            if let Some(connection) = self.connections.connection_mut(token)
                && connection.release_replies(durable)
            {
                self.on_event(token, Event::default(), now);
            }
        }
    }

    /// Puts what the shard has executed into the queue of the log, unless a command has begun and is not done: it gets there
    /// as a whole.
    pub(super) fn seal(&mut self, stores: &mut Stores<'_>) {
        if !self.holds.is_held() {
            stores.seal();
        }
    }

    /// Returns true if the log or a snapshot has work for the shard.
    pub(super) fn has_log_work(&self, stores: &Stores<'_>) -> bool {
        let knows_failure = self.parts.shared.log.as_deref().is_none_or(|log| self.log.failure == failure_of(log));
        !knows_failure || !self.holds.is_held() && stores.may_walk()
    }

    /// Notes the connections that are doubtful, and ends them if it remains unknown what is on disk.
    fn follow_troubles(&mut self, log: &Log) {
        let (failure, is_given_up) = failure_of(log);
        if (failure, is_given_up) == self.log.failure {
            return;
        }
        let has_failed = failure != 0;
        let has_begun = has_failed && failure != self.log.failure.0;
        self.log.failure = (failure, is_given_up);
        // At the other levels no reply waits for the log.
        let closes = is_given_up && log.holds_replies();
        let tokens: Vec<Token> = self.connections.tokens().collect();
        for token in tokens {
            let Some(connection) = self.connections.connection_mut(token) else { continue };
            if has_begun || !has_failed {
                connection.set_doubtful(has_begun && connection.has_work());
            }
            if closes && connection.rests_on_log() {
                self.close(token);
            }
        }
        if closes {
            self.waits.awaiting.clear();
        }
    }

    /// Notes which operations are refused in this turn. Returns true if nothing is executed, because the disk is behind.
    pub(super) fn is_log_full(&mut self, now: Instant) -> bool {
        let Some(log) = &self.parts.shared.log else { return false };
        self.log.write_refusal = log.write_refusal(&mut self.log.disk_progress, now);
        self.log.write_refusal == Refusal::Nothing && log.is_full()
    }
}

/// Returns the number of the failure of the log, and whether the attempt to begin a fresh one has failed too.
fn failure_of(log: &Log) -> (u64, bool) {
    let failure = log.troubles.failure();
    (failure, failure != 0 && log.troubles.are_given_up())
}

/// Notes that a connection has replies that wait for a block. Those of a block that is open are noted when it has a number.
pub(super) fn list_held(
    awaiting: &mut VecDeque<(Reached, Token)>,
    token: Token,
    connection: &Connection,
    release: Release,
) {
    if let Release::After(reached) = release
        && connection.holds_replies()
        && awaiting.back() != Some(&(reached, token))
    {
        awaiting.push_back((reached, token));
    }
}

/// Returns the version up to which replies may have shown the ordered space.
pub(super) fn shown_version(shared: Option<&Shared>) -> u64 {
    shared.and_then(|shared| shared.ordered.as_ref()).map_or(0, OrderedStore::read_version)
}

/// Returns the time from which on replies of a connection may leave that are encoded now, after the seal.
pub(super) fn release(
    stores: &Stores<'_>,
    isolation: Isolation,
    connection: &mut Connection,
    known_failure: u64,
) -> Release {
    match &stores.log {
        Some(log) if matches!(isolation, Isolation::Blocked(_)) => log.release_of_open(),
        Some(log) => connection.with_doubt(|doubt| log.release(doubt, shown_version(stores.shared), known_failure)),
        None => Release::Now,
    }
}
