//! Tests of what threads see of a log: what they may refuse, and a log that is broken.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use skep_log::BlockWriter;
use skep_wire::native::WireError;

use super::{DiskProgress, Durability, Log, Patience, Trouble};
use crate::connection::Reached;
use crate::dispatch::Refusal;
use crate::limits::UNFLUSHED_MAX_OF_COMMAND;

fn log(level: Durability, patience: Patience) -> Log {
    Log::new(level, Reached::default(), patience)
}

fn push(log: &Log) {
    assert!(log.push(BlockWriter::new().seal_floor(1)).is_none());
}

/// Blocks wait up to half a second at the level `second`, while the disk is healthy.
#[test]
fn a_bound_for_delays_refuses_writes_only_if_replies_wait_for_the_disk() {
    let begun = Instant::now();
    let refusal = |level, after| {
        let log = log(level, Patience::of(Some(Duration::from_millis(100))));
        let mut progress = DiskProgress::new(begun);
        push(&log);
        assert_eq!(log.write_refusal(&mut progress, begun), Refusal::Nothing);
        log.write_refusal(&mut progress, begun + Duration::from_millis(after))
    };
    assert_eq!(refusal(Durability::Second, 499), Refusal::Nothing);
    assert_eq!(refusal(Durability::Always, 49), Refusal::Nothing);
    assert_eq!(refusal(Durability::Always, 50), Refusal::Writes(WireError::Busy));
    for level in [Durability::Second, Durability::Always] {
        assert_eq!(refusal(level, 2000), Refusal::Writes(WireError::NotDurable));
    }
    assert_eq!(refusal(Durability::Memory, 2000), Refusal::Nothing);
}

/// A user is told why writes are refused.
#[test]
fn a_disk_that_stands_still_is_a_trouble_until_it_goes_on() {
    let begun = Instant::now();
    let log = log(Durability::Second, Patience::of(None));
    let mut progress = DiskProgress::new(begun);
    push(&log);
    log.write_refusal(&mut progress, begun);
    assert_eq!(log.trouble(), None);
    log.write_refusal(&mut progress, begun + Duration::from_secs(2));
    assert_eq!(log.trouble().as_deref(), Some("the disk makes no progress"));
    log.set_durable(Reached { block: 1, version: 0 });
    assert_eq!(log.trouble(), None);
}

/// A snapshot brings a level into force after blocks were dropped: the log has failed, and a fresh one is asked for.
#[test]
fn a_log_that_is_broken_when_it_begins_has_failed() {
    let log = log(Durability::Memory, Patience::ENDLESS);
    log.set_records(true);
    log.set_levels(Durability::Always, Durability::Always);
    let requests = log.tasks.requests();
    log.lock().is_broken = true;
    log.settle_level(Durability::Always);
    assert!(log.troubles.have(Trouble::Failed) && log.troubles.reason().is_some());
    assert_eq!(log.tasks.requests(), requests + 1);
    assert_eq!(log.level(), Durability::Always);
}

/// A write of the fresh log has failed. The keeper gives up and tries again after a while: nothing asks it to do so at once.
#[test]
fn a_fresh_log_that_fails_too_is_broken() {
    let log = log(Durability::Always, Patience::ENDLESS);
    log.fail("the first".to_owned());
    let requests = log.tasks.requests();
    log.begin_fresh(log.sealed() + 1000);
    assert!(!log.is_broken() && log.troubles.have(Trouble::Failed));
    push(&log);
    log.fail("the second".to_owned());
    assert!(log.is_broken() && log.take().is_empty());
    assert_eq!((log.tasks.requests(), log.troubles.reason().as_deref()), (requests, Some("the first")));
}

/// Its shards are held, and would not walk for the snapshot that makes room.
#[test]
fn a_long_command_goes_on_without_the_log_if_there_is_no_room_for_it() {
    let log = log(Durability::Always, Patience::ENDLESS);
    log.sealed_bytes.store(UNFLUSHED_MAX_OF_COMMAND, Ordering::Relaxed);
    let stopped = Refusal::Writes(WireError::NotDurable);
    assert!(log.holds_up(stopped) && !log.is_broken());
    log.troubles.set(Trouble::NoSegment, Some("ENOSPC".to_owned()));
    assert!(!log.holds_up(stopped) && log.is_broken() && log.troubles.have(Trouble::Failed));
}

#[test]
fn a_log_that_is_whole_begins_without_trouble() {
    let log = log(Durability::Memory, Patience::ENDLESS);
    log.set_levels(Durability::Second, Durability::Always);
    log.settle_level(Durability::Second);
    assert!(!log.troubles.are_any() && log.records());
    assert_eq!(log.level(), Durability::Second);
}

/// Another level was asked for while the change to `memory` was noted.
#[test]
fn a_refused_level_gives_way_to_one_that_was_asked_for_later() {
    let log = log(Durability::Always, Patience::ENDLESS);
    log.set_levels(Durability::Memory, Durability::Always);
    log.refuse_level();
    assert_eq!((log.level(), log.wanted_level()), (Durability::Second, Durability::Second));
    log.set_levels(Durability::Memory, Durability::Always);
    log.wanted.set(Durability::Always);
    log.refuse_level();
    assert_eq!((log.level(), log.wanted_level()), (Durability::Always, Durability::Always));
}
