//! Tests of what threads see of a log: what they may refuse, and a log that is broken.

use std::time::{Duration, Instant};

use skep_log::BlockWriter;
use skep_wire::native::WireError;

use super::{DiskProgress, Durability, Log, Patience, Trouble};
use crate::connection::Reached;
use crate::dispatch::Refusal;

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
