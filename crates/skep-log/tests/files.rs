//! The log in a directory of the operating system: past the page cache, and through it where the file system wants
//! that.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use skep_core::operation::{Operation, PutCondition, Request};
use skep_log::{
    BlockWriter, Directory, Disk, Files, LogError, LogSettings, Manifest, ManifestShard, PAGE_SIZE, Page, Section,
};
use tempfile::TempDir;

const SETTINGS: LogSettings = LogSettings { segment_size: 8 * PAGE_SIZE as u64, group_size: 4096 };

/// Recovers the directory, appends keys, and returns those that it had before.
fn append(path: &Path, keys: &[String]) -> Vec<String> {
    let mut directory = Directory::open(Arc::new(Files::open(path).unwrap())).unwrap();
    let mut found = Vec::new();
    let end = directory.read_log(false, |blocks| {
        for section in blocks.flat_map(|block| block.sections()) {
            let Section::Operations { operations, .. } = section else { continue };
            found.extend(operations.map(|request| String::from_utf8(request.unwrap().key.to_vec()).unwrap()));
        }
        Ok(())
    });
    let end = end.unwrap();
    let mut writer = BlockWriter::new();
    let manifest = Manifest { shards: vec![ManifestShard::default()], ..Manifest::default() };
    let mut uid = end.next_block() << 32;
    let mut next = || {
        uid += 1;
        uid
    };
    let (mut groups, mut segments) = directory.begin(end, SETTINGS, manifest, &mut next).unwrap();
    for key in keys {
        let put = Operation::Put { value: &[7; 1000], condition: PutCondition::Always };
        assert!(writer.append(0, 1, &Request { key: key.as_bytes(), operation: put }));
        let number = groups.push(writer.seal(0).unwrap());
        while groups.durable_block() < number {
            if groups.needs_segment() {
                groups.add_segment(segments.prepare(next()).unwrap());
            }
            let write = groups.next_write().expect("the block is not durable");
            let result = segments.write(&write);
            groups.written(write, result);
        }
    }
    found
}

fn check(path: &Path) {
    let keys: Vec<String> = (0..60).map(|number| format!("key {number}")).collect();
    assert_eq!(append(path, &keys[..30]), [""; 0]);
    assert_eq!(append(path, &keys[30..]), keys[..30]);
    assert_eq!(append(path, &[]), keys);
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
    for entry in fs::read_dir(path).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_log_on_the_disk_returns() {
    let parent = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    check(&parent.path().join("data"));
}

#[test]
fn a_log_in_memory_returns() {
    let parent = TempDir::new_in("/dev/shm").unwrap();
    check(&parent.path().join("data"));
}

#[test]
fn a_directory_has_one_user() {
    let path = TempDir::new().unwrap();
    let directory = Directory::open(Arc::new(Files::open(path.path()).unwrap())).unwrap();
    let again = || Directory::open(Arc::new(Files::open(path.path()).unwrap())).err();
    assert!(matches!(again(), Some(LogError::Locked)));
    fs::remove_file(path.path().join("lock")).unwrap();
    assert!(matches!(again(), Some(LogError::Locked)), "the directory itself is locked");
    drop(directory);
    assert!(again().is_none());
}

#[test]
fn calls_fail_by_name() {
    let path = TempDir::new().unwrap();
    let disk = Files::open(path.path()).unwrap();
    let file = disk.create("log-1").unwrap();
    assert_eq!(disk.create("log-1").unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(disk.open("log-2").unwrap_err().kind(), std::io::ErrorKind::NotFound);
    disk.write_at(&file, 0, &[Page::ZERO; 2]).unwrap();
    assert_eq!(disk.size(&file).unwrap(), 2 * PAGE_SIZE as u64);
    let mut pages = [Page::ZERO; 2];
    assert_eq!(
        disk.read_at(&file, PAGE_SIZE as u64, &mut pages).unwrap_err().kind(),
        std::io::ErrorKind::UnexpectedEof
    );
    disk.create("log-2").unwrap();
    assert!(disk.rename("log-1", "log-2").is_err());
    disk.remove("log-2").unwrap();
    disk.rename("log-1", "log-2").unwrap();
    assert_eq!(disk.list().unwrap(), ["log-2"]);
    let nothing = path.path().join("no/such");
    assert!(Files::open(&nothing).is_err());
}
