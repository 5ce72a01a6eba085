//! Starts on a disk that is full.

use std::io;
use std::sync::Arc;

use super::directories::{Process, files, new_disk, recover, restart};
use crate::{Disk, PAGE_SIZE, SnapshotPart, SnapshotWriter};

/// A snapshot that was being written when the process ended is room for the segment.
#[test]
fn a_start_frees_what_is_not_needed_before_it_prepares_a_segment() {
    let mut without_segment = 0;
    for call in 1..60 {
        let disk = new_disk();
        let mut process = Process::start(&disk, false).unwrap();
        process.put("key", b"value");
        drop(SnapshotWriter::create(Arc::clone(&disk), 9, SnapshotPart::Shard(0)).unwrap());
        let disk = restart(&disk);
        disk.fail_at(call, io::ErrorKind::StorageFull);
        if Process::start(&disk, false).is_ok_and(|process| process.groups.current_segment().is_none()) {
            without_segment += 1;
            let names = restart(&disk).list().unwrap();
            assert!(names.iter().all(|name| !name.starts_with("snapshot-")), "call {call}: {names:?}");
        }
    }
    assert!(without_segment > 1);
}

/// A start takes the segment that was prepared before. The next one finds none, and no room for another.
#[test]
fn starts_on_a_full_disk_succeed_again_and_again() {
    for torn in [false, true] {
        let mut disk = new_disk();
        let mut process = Process::start(&disk, false).unwrap();
        process.put("key", b"value");
        process.write();
        let expected = process.pairs.clone();
        let spare = process.segments.prepare(77).unwrap();
        process.groups.add_segment(spare);
        let used: u64 = files(&disk).values().map(|bytes| bytes.len() as u64).sum();
        disk.limit(used + PAGE_SIZE as u64 - 1);
        for start in 0..5 {
            disk = restart(&disk);
            let mut process = Process::start(&disk, false).unwrap_or_else(|error| panic!("start {start}: {error}"));
            assert_eq!(process.pairs, expected, "start {start}");
            if torn && start > 0 {
                process.append("torn", &[7; 2500]);
                process.push();
                let write = process.groups.next_write().unwrap();
                let file = process.segments.file(write.segment);
                disk.write_at(&file, write.offset, &write.pages()[..1]).unwrap();
            }
        }
        // There is room again, and what was torn has not come back.
        disk.limit(u64::MAX);
        let disk = restart(&disk);
        let mut process = Process::start(&disk, false).unwrap();
        process.put("later", b"");
        let pairs = process.pairs;
        assert_eq!(recover(&restart(&disk), false).unwrap().0, pairs);
    }
}

/// The last segment has groups, no other was prepared, and there is no room for one. The log begins its segment when there is
/// room, also after starts that have found none.
#[test]
fn a_start_without_room_for_a_segment_reads_the_log_and_writes_when_there_is_room() {
    for (torn, starts, has_snapshot) in [(false, 1, true), (true, 1, false), (false, 4, false), (true, 4, true)] {
        let disk = new_disk();
        let mut process = Process::start(&disk, false).unwrap();
        (0..9).for_each(|number| process.put(&format!("key {number}"), &[7; 900]));
        let mut disk = restart(&disk);
        let mut process = Process::start(&disk, false).unwrap();
        process.append("last", b"value");
        process.push();
        let write = process.groups.next_write().unwrap();
        let result = process.segments.write(&write);
        process.groups.written(write, result);
        let expected = process.pairs.clone();
        if torn {
            process.append("torn", &[7; 2500]);
            process.push();
            let write = process.groups.next_write().unwrap();
            let file = process.segments.file(write.segment);
            disk.write_at(&file, write.offset, &write.pages()[..1]).unwrap();
        }
        disk.limit(files(&disk).values().map(|bytes| bytes.len() as u64).sum());
        for start in 0..starts {
            disk = restart(&disk);
            let mut process = Process::start(&disk, false).unwrap_or_else(|error| panic!("start {start}: {error}"));
            assert!(process.pairs == expected, "start {start}");
            assert!(process.groups.current_segment().is_none() && process.groups.next_seal().is_none());
            process.append("not written", b"");
            process.push();
            assert!(process.groups.next_write().is_none() && process.segments.prepare(7).is_err());
        }
        disk = restart(&disk);
        let mut process = Process::start(&disk, false).unwrap();
        disk.limit(u64::MAX);
        (0..9).for_each(|number| process.put(&format!("later {number}"), &[7; 900]));
        process.seal();
        if has_snapshot {
            // It frees the segments before.
            process.snapshot(&disk, 7);
            process.put("after the snapshot", b"");
        }
        let pairs = process.pairs.clone();
        let (found, end, _) = recover(&restart(&disk), false).unwrap();
        assert!(found == pairs && end.cut.is_none(), "torn {torn}, {starts} starts");
        assert_eq!(end.segment_count() > 2, !has_snapshot, "{} segments", end.segment_count());
    }
}

/// Segments that are dead are removed before one is prepared. Here they are one that a start has begun and left empty, and
/// a fresh log that no manifest names. A start may have failed at any call in between.
#[test]
fn a_dead_segment_is_room_for_the_next_one() {
    for (is_fresh, failing) in [false, true].into_iter().flat_map(|fresh| (0..60).map(move |call| (fresh, call))) {
        let disk = new_disk();
        let mut process = Process::start(&disk, false).unwrap();
        process.put("key", b"value");
        process.write();
        let disk = restart(&disk);
        let mut process = Process::start(&disk, false).unwrap();
        if !is_fresh {
            process = Process::start(&restart(&disk), false).unwrap();
        }
        // No segment is prepared ahead.
        process.append("more", b"value");
        process.push();
        let write = process.groups.next_write().unwrap();
        let result = process.segments.write(&write);
        process.groups.written(write, result);
        if is_fresh {
            process.groups.add_segment(process.segments.prepare(77).unwrap());
            let (next_block, floor) = (process.groups.next_block(), process.next_version);
            process.directory.begin_fresh(&mut process.groups, &mut process.segments, next_block, floor).unwrap();
        }
        let expected = recover(&restart(&disk), false).unwrap().0;
        assert!(expected.iter().all(|pairs| pairs.len() == 2));
        let mut disk = restart(&disk);
        disk.limit(files(&disk).values().map(|bytes| bytes.len() as u64).sum());
        if failing > 0 {
            disk.fail_at(failing, io::ErrorKind::StorageFull);
            drop(Process::start(&disk, false));
            disk = restart(&disk);
        }
        for start in 0..3 {
            let case = format!("fresh {is_fresh}, failing {failing}, start {start}");
            let process = Process::start(&disk, false).unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(process.pairs, expected, "{case}");
            disk = restart(&disk);
        }
    }
}
