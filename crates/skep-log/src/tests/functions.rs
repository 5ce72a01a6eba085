//! The files of functions on a disk that crashes, fails, is full or was damaged.

use std::io;
use std::sync::Arc;

use super::directories::{Process, files, new_disk, recover, restart};
use crate::{
    CopyError, Directory, Disk, FunctionsFile, LogError, PAGE_SIZE, Pages, SimulatedDisk, StoredFunctions,
    StoredModule, copy,
};

/// Crashes for each call that fails: each keeps other sectors.
const CRASHES: u64 = 12;
/// More calls than a write makes.
const CALLS: u64 = 20;

/// Returns functions after some loads. Each replaces the one module. They take several pages.
pub(super) fn loaded(loads: u32) -> StoredFunctions {
    let module = |revision| StoredModule {
        name: "module".into(),
        revision,
        is_current: revision == loads,
        source: format!("// {revision}\n").repeat(500),
    };
    StoredFunctions {
        names: (1..=loads).map(|number| format!("module.f{number}")).collect(),
        modules: (1..=loads).map(module).collect(),
    }
}

/// Returns the number of loads in a directory that is read.
fn read(disk: &Arc<SimulatedDisk>) -> Result<u32, LogError> {
    let (functions, _) = Directory::open(Arc::clone(disk))?.functions()?;
    let loads = functions.modules.len() as u32;
    assert_eq!(functions, loaded(loads));
    Ok(loads)
}

/// Returns a disk with a directory that has this number of loads, and their files.
fn directory_with(loads: u32, seed: u64) -> (Arc<SimulatedDisk>, FunctionsFile<SimulatedDisk>) {
    let disk = Arc::new(SimulatedDisk::new(seed));
    drop(Process::start(&disk, false).unwrap());
    let disk = restart(&disk);
    let (functions, mut file) = Directory::open(Arc::clone(&disk)).unwrap().functions().unwrap();
    assert!(functions.is_empty());
    (1..=loads).for_each(|loads| file.write(&loaded(loads)).unwrap());
    (disk, file)
}

#[test]
fn functions_return_and_begin_empty() {
    let (disk, file) = directory_with(3, 1);
    assert_eq!((read(&restart(&disk)).unwrap(), file.damaged()), (3, None));
    let (disk, _) = directory_with(0, 1);
    assert!(files(&disk).keys().all(|name| !name.starts_with("functions")));
    assert_eq!(read(&restart(&disk)).unwrap(), 0);
}

/// Fails at each call of a write, or at none, and then crashes.
#[test]
fn a_crash_during_a_write_leaves_the_functions_before_or_after() {
    let (mut before, mut after) = (0, 0);
    for loads in 0..4 {
        for (call, seed) in (1..=CALLS).flat_map(|call| (0..CRASHES).map(move |seed| (call, seed))) {
            let (disk, mut file) = directory_with(loads, call * CRASHES + seed);
            disk.fail_at(call, io::ErrorKind::Other);
            let written = file.write(&loaded(loads + 1));
            let disk = Arc::new(disk.crash());
            let found = read(&disk).unwrap_or_else(|error| panic!("load {loads}, call {call}, seed {seed}: {error}"));
            assert!(found == loads + 1 || written.is_err() && found == loads, "load {loads}, call {call}: {found}");
            assert!(call < CALLS || written.is_ok(), "it has more calls");
            before += u32::from(found == loads);
            after += u32::from(written.is_err() && found > loads);
            // What a start has found is used, and stays.
            drop(Process::start(&restart(&disk), false).unwrap());
            assert_eq!(read(&Arc::new(disk.kill().crash())).unwrap(), found, "load {loads}, call {call}, seed {seed}");
        }
    }
    assert!(before > 100 && after > 100, "{before} {after}");
}

/// After a kill, what can be read may not be durable. A start makes it durable before it is used.
#[test]
fn what_a_killed_process_has_written_is_durable_after_a_start() {
    let mut lost_without_start = 0;
    for loads in 0..3 {
        for (call, seed) in (1..=CALLS).flat_map(|call| (0..CRASHES).map(move |seed| (call, seed))) {
            for starts in [false, true] {
                let (disk, mut file) = directory_with(loads, call * CRASHES + seed);
                disk.fail_at(call, io::ErrorKind::Other);
                _ = file.write(&loaded(loads + 1));
                let disk = restart(&disk);
                let found = read(&disk).unwrap();
                let disk = restart(&disk);
                if starts {
                    drop(Process::start(&disk, false).unwrap());
                }
                let later = read(&Arc::new(disk.crash())).unwrap();
                assert!(later == found || !starts, "load {loads}, call {call}, seed {seed}: {later} of {found}");
                lost_without_start += u32::from(later != found);
            }
        }
    }
    // The control.
    assert!(lost_without_start > 10, "{lost_without_start}");
}

/// A write can be tried again by the process in which it failed, with the same functions or with others.
#[test]
fn a_failed_write_can_be_tried_again() {
    for loads in 0..3 {
        for (first, second) in (1..=CALLS).flat_map(|first| (1..=CALLS).map(move |second| (first, second))) {
            let (disk, mut file) = directory_with(loads, first * CALLS + second);
            disk.fail_at(first, io::ErrorKind::Other);
            let mut may_be_found = vec![loads];
            for (call, loads) in [(second, loads + 1), (u64::MAX >> 1, loads + 2)] {
                may_be_found.push(loads);
                if file.write(&loaded(loads)).is_ok() {
                    may_be_found = vec![loads];
                }
                let copy = Arc::new(SimulatedDisk::new(0));
                for name in ["manifest.a", "manifest.b", "functions.a", "functions.b"] {
                    _ = disk.content(name).map(|bytes| copy.set_content(name, bytes));
                }
                let found = read(&copy).unwrap();
                assert!(may_be_found.contains(&found), "calls {first} and {second}: {found} of {may_be_found:?}");
                disk.fail_at(call, io::ErrorKind::Other);
            }
            let disk = Arc::new(disk.crash());
            let found = read(&disk).unwrap();
            assert!(may_be_found.contains(&found), "calls {first} and {second}: {found} of {may_be_found:?}");
        }
    }
}

/// A control: with one file, a crash during a write loses functions.
#[test]
fn one_file_would_lose_functions() {
    let is_lost = |seed: &u64| {
        let (disk, mut file) = directory_with(2, *seed);
        disk.fail_at(1, io::ErrorKind::Other);
        assert!(file.write(&loaded(3)).is_err());
        let mut pages = Pages::default();
        loaded(3).encode(3, &mut pages);
        for name in ["functions.a", "functions.b"] {
            let file = disk.open(name).unwrap();
            drop(disk.begin_write(&file, 0, pages.padded()).unwrap());
        }
        matches!(read(&Arc::new(disk.crash())), Err(LogError::FunctionsDamaged))
    };
    assert!((0..50).filter(is_lost).count() > 5);
}

#[test]
fn a_full_disk_refuses_a_write_and_keeps_the_functions() {
    let growth = (loaded(10).size().div_ceil(PAGE_SIZE) - loaded(2).size().div_ceil(PAGE_SIZE)) as u64;
    for (loads, pages) in [(0, 0), (0, 1), (0, 3), (2, 0), (2, 1), (2, growth), (2, 2 * growth - 1)] {
        let (disk, mut file) = directory_with(loads, 1);
        let used: u64 = files(&disk).values().map(|bytes| bytes.len() as u64).sum();
        disk.limit(used + pages * PAGE_SIZE as u64);
        for _ in 0..3 {
            let error = file.write(&loaded(loads + 8)).unwrap_err();
            assert!(error.to_string().contains("the disk is full: make room"), "{error}");
        }
        assert_eq!(read(&restart(&disk)).unwrap(), loads, "{pages} pages");
        // A start succeeds on the full disk. The files are as before.
        disk.limit(used + (1 << 20));
        let disk = restart(&disk);
        let process = Process::start(&disk, false).unwrap();
        let (_, mut file) = process.directory.functions().unwrap();
        file.write(&loaded(loads + 8)).unwrap();
        assert_eq!(read(&Arc::new(disk.crash())).unwrap(), loads + 8);
    }
}

/// The disk has room for one of both files. A start uses it, and writes the other one when there is room.
#[test]
fn a_start_on_a_full_disk_uses_the_file_that_was_written() {
    let (disk, mut file) = directory_with(0, 1);
    let used: u64 = files(&disk).values().map(|bytes| bytes.len() as u64).sum();
    disk.limit(used + loaded(9).size().next_multiple_of(PAGE_SIZE) as u64);
    assert!(file.write(&loaded(9)).is_err());
    let disk = restart(&disk);
    for _ in 0..3 {
        let disk = restart(&disk);
        assert_eq!(read(&disk).unwrap(), 9);
        // No room for a segment either: the last one is taken again.
        drop(Process::start(&restart(&disk), false).unwrap());
    }
    disk.limit(u64::MAX);
    let disk = restart(&disk);
    drop(Process::start(&disk, false).unwrap());
    let bytes = files(&disk);
    assert!(bytes["functions.a"] == bytes["functions.b"]);
}

#[test]
fn damage_is_refused_or_repaired() {
    let damaged = |loads: u32, names: &[&str]| {
        let (disk, _) = directory_with(loads, 1);
        for name in names {
            let mut bytes = disk.content(name).unwrap();
            bytes[47] ^= 1;
            disk.set_content(name, bytes);
        }
        restart(&disk)
    };
    let without = |disk: &Arc<SimulatedDisk>, name: &str| {
        disk.remove(name).unwrap();
        disk.sync_directory().unwrap();
        restart(disk)
    };
    let is_damaged = |disk: &Arc<SimulatedDisk>| matches!(read(&restart(disk)), Err(LogError::FunctionsDamaged));
    for loads in 1..4 {
        for name in ["functions.a", "functions.b"] {
            let disk = damaged(loads, &[name]);
            let directory = Directory::open(Arc::clone(&disk)).unwrap();
            let (functions, file) = directory.functions().unwrap();
            assert_eq!((functions, file.damaged()), (loaded(loads), Some(name)));
            assert_eq!(directory.check_functions().unwrap().damaged, Some(name));
            drop(directory);
            // A start repairs it.
            drop(Process::start(&restart(&disk), false).unwrap());
            let disk = restart(&disk);
            let (_, file) = Directory::open(Arc::clone(&disk)).unwrap().functions().unwrap();
            assert_eq!(file.damaged(), None);
        }
        let disk = damaged(loads, &["functions.a", "functions.b"]);
        assert!(is_damaged(&disk));
        assert!(matches!(Process::start(&restart(&disk), false).err(), Some(LogError::FunctionsDamaged)));
        let target = Arc::new(SimulatedDisk::new(2));
        let copied = copy(&restart(&disk), &target);
        assert!(matches!(copied, Err(CopyError::Source(LogError::FunctionsDamaged))), "{copied:?}");
        assert_eq!(target.list().unwrap(), ["lock"]);
        let missing = |disk: &Arc<SimulatedDisk>, name: &str| matches!(read(&restart(disk)), Err(LogError::Incomplete { what }) if what.contains(name));
        assert!(missing(&without(&damaged(loads, &[]), "functions.a"), "functions.a"));
        assert!(missing(&without(&damaged(loads, &["functions.b"]), "functions.a"), "functions.a"));
        let first = without(&damaged(loads, &[]), "functions.b");
        assert!(if loads == 1 { read(&first).unwrap() == 1 } else { missing(&first, "functions.b") });
        let first = without(&damaged(loads, &["functions.a"]), "functions.b");
        assert!(if loads == 1 { read(&first).unwrap() == 0 } else { is_damaged(&first) });
    }
}

#[test]
fn files_of_functions_without_a_manifest_are_incomplete() {
    let (disk, _) = directory_with(1, 1);
    let disk = Arc::new(disk.kill());
    for name in disk.list().unwrap().iter().filter(|name| !name.starts_with("functions")) {
        disk.remove(name).unwrap();
    }
    let error = recover(&disk, false).err().expect("a refusal");
    assert!(matches!(error, LogError::Incomplete { .. }), "{error}");
}

#[test]
#[should_panic(expected = "a directory begins with a manifest")]
fn functions_are_not_the_first_files() {
    let (_, mut file) = Directory::open(new_disk()).unwrap().functions().unwrap();
    _ = file.write(&loaded(1));
}

#[test]
fn a_copy_has_the_functions_in_both_files() {
    let (disk, _) = directory_with(3, 1);
    let target = Arc::new(SimulatedDisk::new(2));
    let copied = copy(&restart(&disk), &target).unwrap();
    let checked = copied.functions;
    assert_eq!((checked.modules, checked.sources, checked.names, checked.damaged), (1, 3, 3, None));
    let bytes = files(&target);
    assert!(bytes["functions.a"] == bytes["functions.b"]);
    assert_eq!(copied.bytes, bytes.values().map(|bytes| bytes.len() as u64).sum::<u64>());
    let target = Arc::new(target.crash());
    assert_eq!(read(&target).unwrap(), 3);
    drop(Process::start(&restart(&target), false).unwrap());
}
