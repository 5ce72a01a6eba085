//! Tests the disk with faults, on which the program is tested: by ordinary calls, and by those of the log.

mod faulty_disk;
mod full_run;

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use faulty_disk::FaultyDisk;
use faulty_disk::image::SECTOR_SIZE;
use full_run::is_full_run;
use rustix::io::Errno;
use skep_log::{Disk, Files, PAGE_SIZE, Page};
use zerocopy::IntoBytes;

/// Returns an empty disk, if the full tests are enabled and the machine can mount one.
fn disk() -> Option<FaultyDisk> {
    if is_full_run() { FaultyDisk::mount() } else { None }
}

/// Seeds of losses of power.
const SEEDS: u64 = 50;

fn sync_directory(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

#[test]
fn files_are_visible_at_once() {
    let Some(disk) = disk() else { return };
    let path = disk.path().join("a");
    fs::write(&path, b"some bytes").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"some bytes");
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.write_at(b"more", 5).unwrap();
    file.write_at(&[1; 10_000], 3 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (3 << 20) + 10_000);
    let content = fs::read(&path).unwrap();
    assert_eq!((&content[..10], content[20], content[3 << 20]), (&b"some mores"[..], 0, 1));
    file.set_len(5).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"some ");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    fs::rename(&path, disk.path().join("b")).unwrap();
    assert_eq!(fs::read(&path).unwrap_err().kind(), ErrorKind::NotFound);
    for number in 0..500 {
        File::create_new(disk.path().join(format!("file {number}"))).unwrap();
    }
    assert_eq!(File::create_new(disk.path().join("b")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    fs::remove_file(disk.path().join("file 7")).unwrap();
    let names: HashSet<_> = fs::read_dir(disk.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 500);
    assert!(names.contains(std::ffi::OsStr::new("b")) && !names.contains(std::ffi::OsStr::new("file 7")));
}

#[test]
fn what_was_flushed_survives_and_the_rest_may_be_lost() {
    let Some(disk) = disk() else { return };
    let path = disk.path().join("a");
    let size = 8 * SECTOR_SIZE;
    let (mut lost, mut kept, mut torn, mut zeros) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let file = File::create(&path).unwrap();
        file.write_at(&vec![1; size], 0).unwrap();
        let flushed = if seed % 2 == 0 { file.sync_data() } else { file.sync_all() };
        flushed.unwrap();
        sync_directory(disk.path());
        file.write_at(&vec![2; size], size as u64).unwrap();
        disk.power_loss(seed);
        assert!(file.write_at(b"x", 0).is_err(), "the file was opened before power was lost");
        let content = fs::read(&path).unwrap();
        assert!(content[..size].iter().all(|byte| *byte == 1), "seed {seed}");
        let sectors: Vec<u8> = content[size..].chunks(SECTOR_SIZE).map(|sector| sector[0]).collect();
        assert!(content[size..].chunks(SECTOR_SIZE).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        let survived = sectors.iter().filter(|byte| **byte == 2).count();
        lost += u32::from(survived == 0);
        kept += u32::from(survived == 8);
        torn += u32::from((1..8).contains(&survived));
        zeros += u32::from(sectors.contains(&0));
        fs::remove_file(&path).unwrap();
        sync_directory(disk.path());
    }
    assert!(lost > 0 && kept > 0 && torn > 0 && zeros > 0, "{lost} {kept} {torn} {zeros}");
}

#[test]
fn any_sectors_of_earlier_writes_survive() {
    let Some(disk) = disk() else { return };
    let path = disk.path().join("a");
    let mut found = HashSet::new();
    for seed in 0..SEEDS {
        let file = File::create(&path).unwrap();
        file.set_len(4 * SECTOR_SIZE as u64).unwrap();
        file.sync_all().unwrap();
        sync_directory(disk.path());
        for number in 1..=3 {
            file.write_at(&[number; 4 * SECTOR_SIZE], 0).unwrap();
        }
        disk.power_loss(seed);
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len(), 4 * SECTOR_SIZE);
        found.insert([0, 1, 2, 3].map(|sector| content[sector * SECTOR_SIZE]));
    }
    assert!(found.contains(&[0; 4]) && found.contains(&[3; 4]) && found.len() > 10, "{found:?}");
}

#[test]
fn a_prefix_of_the_changes_of_names_survives() {
    let Some(disk) = disk() else { return };
    let at = |name: &str| disk.path().join(name);
    let mut found = HashSet::new();
    for seed in 0..SEEDS {
        for name in ["old", "other", "removed"] {
            let file = File::create(at(name)).unwrap();
            file.write_at(name.as_bytes(), 0).unwrap();
            file.sync_all().unwrap();
        }
        sync_directory(disk.path());
        File::create(at("new")).unwrap();
        fs::rename(at("old"), at("other")).unwrap();
        fs::remove_file(at("removed")).unwrap();
        disk.power_loss(seed);
        let names: Vec<_> = fs::read_dir(disk.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let mut names: Vec<_> = names.into_iter().map(|name| name.into_string().unwrap()).collect();
        names.sort();
        let names = names.join(" ");
        let other = fs::read(at("other")).unwrap();
        assert_eq!(other, if names.contains("old") { b"other".as_slice() } else { b"old" });
        found.insert(names);
        for entry in fs::read_dir(disk.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
    let expected = ["old other removed", "new old other removed", "new other removed", "new other"];
    assert_eq!(found, expected.map(str::to_owned).into());
}

#[test]
fn durable_writes_survive() {
    let Some(disk) = disk() else { return };
    let path = disk.path().join("a");
    for (seed, flags) in (0..SEEDS).zip([libc::O_DSYNC, libc::O_SYNC].into_iter().cycle()) {
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(true).write(true).custom_flags(flags).open(&path);
        let file = file.unwrap();
        sync_directory(disk.path());
        file.write_at(&[1; 100_000], 0).unwrap();
        disk.power_loss(seed);
        assert_eq!(fs::read(&path).unwrap(), [1; 100_000]);
        fs::remove_file(&path).unwrap();
    }
}

/// A page of one byte.
fn page(byte: u8) -> Page {
    let mut page = Page::ZERO;
    page.as_mut_bytes().fill(byte);
    page
}

#[test]
fn writes_of_the_log_survive_as_soon_as_they_return() {
    let Some(disk) = disk() else { return };
    for seed in 0..SEEDS {
        let files = Files::open(disk.path()).unwrap();
        let file = files.create("log").unwrap();
        files.sync_directory().unwrap();
        let before = disk.calls();
        files.write_at(&file, 0, &[page(1), page(2)]).unwrap();
        assert_eq!(disk.calls() - before, 1, "a write with RWF_DSYNC is one call");
        files.write_at(&file, PAGE_SIZE as u64, &vec![page(3); 1000]).unwrap();
        files.create("unsynced").unwrap();
        disk.power_loss(seed);
        let files = Files::open(disk.path()).unwrap();
        let file = files.open("log").unwrap();
        assert_eq!(files.size(&file).unwrap(), 1001 * PAGE_SIZE as u64);
        let mut pages = vec![Page::ZERO; 1001];
        files.read_at(&file, 0, &mut pages).unwrap();
        let bytes = pages.as_bytes();
        assert!(bytes[..PAGE_SIZE].iter().all(|byte| *byte == 1) && bytes[PAGE_SIZE..].iter().all(|byte| *byte == 3));
        for name in files.list().unwrap() {
            files.remove(&name).unwrap();
        }
    }
}

#[test]
fn a_call_that_is_to_fail_fails_in_the_log() {
    let Some(disk) = disk() else { return };
    let files = Files::open(disk.path()).unwrap();
    let file = files.create("log").unwrap();
    let failed = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    let eio = Some(Errno::IO.raw_os_error());
    let write = || files.write_at(&file, 0, &[page(1); 4]);
    write().unwrap();
    for (name, call) in [
        ("write", &write as &dyn Fn() -> std::io::Result<()>),
        ("flush of a file", &|| files.sync(&file)),
        ("flush of names", &|| files.sync_directory()),
        ("rename", &|| files.rename("log", "log-2").and_then(|()| files.rename("log-2", "log"))),
        ("create", &|| files.create("new").and_then(|_| files.remove("new"))),
    ] {
        disk.fail_call(1, Errno::IO);
        assert_eq!(failed(call()), eio, "{name}");
        call().unwrap_or_else(|error| panic!("{name} after the fault: {error}"));
        disk.fail_call(2, Errno::IO);
        call().and_then(|()| call()).expect_err(name);
        _ = files.rename("log-2", "log");
        _ = files.remove("new");
    }
    assert_eq!(files.list().unwrap(), ["log"]);
}

#[test]
fn a_flush_that_failed_is_not_repeated_by_the_next_one() {
    let Some(disk) = disk() else { return };
    let path = disk.path().join("a");
    let mut lost = 0;
    for seed in 0..SEEDS {
        let file = File::create(&path).unwrap();
        file.write_at(&[1; 8 * SECTOR_SIZE], 0).unwrap();
        file.sync_all().unwrap();
        sync_directory(disk.path());
        file.write_at(&[2; 8 * SECTOR_SIZE], 0).unwrap();
        disk.fail_call(1, Errno::IO);
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [2; 8 * SECTOR_SIZE], "it is still visible");
        disk.power_loss(seed);
        lost += u32::from(fs::read(&path).unwrap().contains(&1));
        fs::remove_file(&path).unwrap();
    }
    assert!(lost > SEEDS as u32 / 2, "{lost}");
}

#[test]
fn nothing_is_written_while_the_power_is_off() {
    let Some(disk) = disk() else { return };
    let path = disk.path().join("a");
    let file = File::create(&path).unwrap();
    file.write_at(&[1; SECTOR_SIZE], 0).unwrap();
    file.sync_all().unwrap();
    sync_directory(disk.path());
    let directory = File::open(disk.path()).unwrap();
    disk.power_off();
    assert!(file.write_at(&[2; SECTOR_SIZE], 0).is_err() && file.write_at(&[3; SECTOR_SIZE], 0).is_err());
    assert!(file.sync_all().is_err() && directory.sync_all().is_err());
    assert!(
        File::create(disk.path().join("b")).is_err() && fs::remove_file(&path).is_err() && fs::read(&path).is_err()
    );
    disk.power_loss(1);
    let content = fs::read(&path).unwrap();
    assert!([[1; SECTOR_SIZE], [2; SECTOR_SIZE]].iter().any(|expected| content == expected), "the first was in flight");
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 1);
}

#[test]
fn a_full_disk_refuses_growth_and_permits_overwriting() {
    let Some(disk) = disk() else { return };
    let files = Files::open(disk.path()).unwrap();
    let file = files.create("log").unwrap();
    files.write_at(&file, 0, &[page(1); 8]).unwrap();
    disk.limit(Some(10 * PAGE_SIZE as u64));
    assert_eq!(rustix::fs::statvfs(disk.path()).unwrap().f_bavail, 2);
    let full = files.write_at(&file, 8 * PAGE_SIZE as u64, &[page(2); 4]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    assert_eq!(files.size(&file).unwrap(), 10 * PAGE_SIZE as u64, "what fits was written");
    files.write_at(&file, 0, &[page(3); 10]).unwrap();
    let other = files.create("other").unwrap();
    assert!(files.write_at(&other, 0, &[page(1)]).is_err());
    files.remove("log").unwrap();
    files.write_at(&other, 0, &[page(1); 10]).unwrap();
    disk.limit(None);
    files.write_at(&other, 0, &[page(1); 100]).unwrap();
}

#[test]
fn a_lock_belongs_to_one_opener() {
    let Some(disk) = disk() else { return };
    let files = Files::open(disk.path()).unwrap();
    assert!(files.lock().unwrap());
    let other = Files::open(disk.path()).unwrap();
    assert!(!other.lock().unwrap());
    drop(files);
    assert!(other.lock().unwrap());
}

#[test]
fn calls_of_a_kind_fail() {
    let Some(disk) = disk() else { return };
    let files = Files::open(disk.path()).unwrap();
    let file = files.create("log-1").unwrap();
    let other = files.create("manifest.a").unwrap();
    let write = |file| files.write_at(file, PAGE_SIZE as u64, &[page(1)]);
    write(&file).unwrap();
    assert_eq!(
        disk.kinds().into_iter().collect::<Vec<_>>(),
        [("create log".to_owned(), 1), ("create manifest".to_owned(), 1), ("write log".to_owned(), 1),]
    );
    disk.fail_call_of("write log", 2, Errno::IO);
    write(&other).unwrap();
    write(&file).unwrap();
    assert!(!disk.has_failed());
    write(&file).unwrap_err();
    assert!(disk.has_failed());
    write(&file).unwrap();
    disk.fail_all(Some(Errno::IO));
    assert!(write(&file).is_err() && write(&other).is_err() && files.remove("log-1").is_err());
    disk.fail_all(None);
    write(&file).unwrap();
    assert_eq!(disk.used(), 4 * PAGE_SIZE as u64);
}

#[test]
fn a_slow_disk_delays_writes() {
    let Some(disk) = disk() else { return };
    let files = Files::open(disk.path()).unwrap();
    let file = files.create("log").unwrap();
    let time_of_write = || {
        let begun = Instant::now();
        files.write_at(&file, 0, &[page(1)]).unwrap();
        begun.elapsed()
    };
    let delay = Duration::from_millis(50);
    disk.slow(delay);
    assert!(time_of_write() >= delay && time_of_write() >= delay);
    disk.slow(Duration::ZERO);
    disk.stop_for(delay);
    assert!(time_of_write() >= delay);
}
