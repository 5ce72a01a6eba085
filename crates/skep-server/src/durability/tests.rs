//! Tests of what threads see of a log: what they may refuse, and a log that is broken.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use skep_core::operation::{Operation, PutCondition, Request};
use skep_log::{BlockView, BlockWriter, Boundary, Manifest, ManifestShard, Section};
use skep_store::ordered::OrderedStore;
use skep_store::processor::Processor;
use skep_wire::native::WireError;
use skep_wire::partition::Partition;

use super::recovery::simulated::{Recovering, Rule};
use super::{DiskProgress, Log, Patience, ShardLog, Trouble};
use crate::limits::UNFLUSHED_MAX_OF_COMMAND;
use crate::settings::ServerSettings;
use crate::vocabulary::{Durability, Reached, Refusal};

fn log(level: Durability, patience: Patience) -> Log {
    Log::new(level, Reached::default(), patience)
}

fn push(log: &Log) {
    assert!(log.push(BlockWriter::new().seal_floor(1)).is_none());
}

/// Lets a shard look at the disk often, for this number of milliseconds. Returns what is refused then.
fn look(log: &Log, progress: &mut DiskProgress, begun: Instant, milliseconds: u64) -> Refusal {
    let times = (0..milliseconds).step_by(100).chain([milliseconds]);
    times.map(|time| log.write_refusal(progress, begun + Duration::from_millis(time))).last().expect("it looks once")
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
        look(&log, &mut progress, begun, after)
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
    look(&log, &mut progress, begun, 2000);
    assert_eq!(log.trouble().as_deref(), Some("the disk makes no progress"));
    log.set_durable(Reached { block: 1, version: 0 });
    assert_eq!(log.trouble(), None);
}

/// The server may be stopped and continued.
#[test]
fn the_time_for_which_a_server_was_stopped_is_not_that_of_the_disk() {
    let begun = Instant::now();
    let log = log(Durability::Always, Patience::of(None));
    let mut progress = DiskProgress::new(begun);
    push(&log);
    look(&log, &mut progress, begun, 1000);
    let continued = begun + Duration::from_secs(100);
    assert_eq!(look(&log, &mut progress, continued, 400), Refusal::Nothing);
    assert_eq!(look(&log, &mut progress, continued, 500), Refusal::Writes(WireError::NotDurable));
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
    log.written.sealed_bytes.store(UNFLUSHED_MAX_OF_COMMAND, Ordering::Relaxed);
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
    log.levels.wanted.set(Durability::Always);
    log.refuse_level();
    assert_eq!((log.level(), log.wanted_level()), (Durability::Always, Durability::Always));
}

/// A key that a client has seen expire must not be back after a restart with an earlier clock.
#[test]
fn the_log_states_the_time_of_reads_if_keys_have_an_expiry() {
    let log = Arc::new(log(Durability::Always, Patience::ENDLESS));
    let mut shards = [ShardLog::new(log.clone(), 2), ShardLog::new(log.clone(), 2)];
    let mut stated = |shard: usize, now, executes, has_expiries| {
        let shard = &mut shards[shard];
        shard.set_now(now);
        if executes {
            shard.note_execution();
        }
        shard.note_time(|| has_expiries);
        shard.seal();
        let time = |block: &skep_log::Block| {
            let (view, _) = BlockView::decode(1, block.bytes()).expect("it is valid");
            match view.sections().next() {
                Some(Section::Operations { now, .. }) => now,
                section => panic!("{section:?}"),
            }
        };
        log.take_due().iter().map(time).collect::<Vec<u64>>()
    };
    assert_eq!(stated(0, 1000, true, false), []);
    assert_eq!(stated(0, 1000, false, true), []);
    assert_eq!(stated(0, 1000, true, true), [1000]);
    assert_eq!(stated(0, 1099, true, true), []);
    assert_eq!(stated(1, 1099, true, true), []);
    // The only key with an expiry has been removed meanwhile.
    assert_eq!(stated(0, 1100, true, false), [1100]);
    assert_eq!(stated(1, 1200, true, true), [1200]);
    assert_eq!(stated(0, 5000, false, false), []);
}

/// The server then begins at this time.
#[test]
fn recovery_finds_the_latest_time_also_without_operations() {
    let settings = ServerSettings { memory: 4 << 20, shards: 1, ordered_memory: 8 << 20, ..ServerSettings::default() };
    let mut processor = Processor::new(&settings.store(1)).unwrap();
    let ordered = OrderedStore::new(&settings.ordered(1).unwrap()).unwrap();
    let mut writer = BlockWriter::new();
    let operation = Operation::Put { value: b"v", condition: PutCondition::Always };
    assert!(writer.append(0, 1000, &Request { key: b"k", operation }));
    let first = writer.seal(0).unwrap();
    writer.append_time(6000);
    let second = writer.seal(0).unwrap();
    let views = [&first, &second].map(|block| BlockView::decode(1, block.bytes()).unwrap().0);
    let manifest = Manifest { shards: vec![ManifestShard::default()], ..Manifest::default() };
    let recovering = Recovering::new(vec![&mut processor], &ordered, Partition::new(0, 1), Rule::Boundary);
    assert_eq!(recovering.replay(&manifest, vec![Boundary::default()], &views).0, 6000);
    assert_eq!(processor.statistics().pairs, 1);
}
