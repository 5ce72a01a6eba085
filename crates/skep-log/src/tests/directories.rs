//! Directories that are refused, and each byte of a small directory changed.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use skep_core::operation::{Operation, PutCondition, Request};

use super::Rule;
use super::model::{Pairs, execute, position, shard};
use crate::{
    BlockWriter, ChunkWriter, Directory, Disk, GroupWriter, LogEnd, LogError, LogSettings, Manifest, ManifestShard,
    PAGE_SIZE, Pages, Segments, SimulatedDisk, SnapshotPart, SnapshotWriter, VERSION, segment,
};

const SETTINGS: LogSettings = LogSettings { segment_size: 6 * PAGE_SIZE as u64, group_size: 4096 };
const SHARDS: usize = 2;

fn manifest() -> Manifest {
    Manifest { server_id: [3; 16], shards: vec![ManifestShard::default(); SHARDS], ..Manifest::default() }
}

/// Returns the pairs of both spaces, and the end of the log.
pub(super) fn recover(
    disk: &Arc<SimulatedDisk>,
    accept_loss: bool,
) -> Result<([Pairs; 2], LogEnd, Directory<SimulatedDisk>), LogError> {
    let directory = Directory::open(Arc::clone(disk))?;
    let (pairs, end) = super::recover(&directory, SHARDS, accept_loss, Rule::Durable)?;
    Ok((pairs, end, directory))
}

/// A process that puts numbered keys, one for each group.
pub(super) struct Process {
    pub(super) directory: Directory<SimulatedDisk>,
    pub(super) groups: GroupWriter,
    pub(super) segments: Segments<SimulatedDisk>,
    pub(super) writer: BlockWriter,
    pub(super) next_version: u64,
    pub(super) pairs: [Pairs; 2],
}

impl Process {
    pub(super) fn start(disk: &Arc<SimulatedDisk>, accept_loss: bool) -> Result<Self, LogError> {
        let (pairs, end, mut directory) = recover(disk, accept_loss)?;
        let mut uid = end.last_number * 1000;
        let next_version = end.floor() + 1;
        let (groups, segments) = directory.begin(end, SETTINGS, manifest(), || {
            uid += 1;
            uid
        })?;
        Ok(Process { directory, groups, segments, writer: BlockWriter::new(), next_version, pairs })
    }

    /// Appends a put in both spaces to the open block.
    pub(super) fn append(&mut self, key: &str, value: &[u8]) {
        let request =
            Request { key: key.as_bytes(), operation: Operation::Put { value, condition: PutCondition::Always } };
        self.writer.append(0, 1, &request);
        self.writer.append_effect(1, self.next_version, &request);
        self.next_version += 1;
        self.pairs.iter_mut().for_each(|pairs| execute(pairs, &request));
    }

    /// Seals the open block.
    pub(super) fn push(&mut self) {
        self.groups.push(self.writer.seal(self.next_version).unwrap());
    }

    /// Writes a put in a group.
    pub(super) fn put(&mut self, key: &str, value: &[u8]) {
        self.append(key, value);
        self.push();
        self.write();
    }

    pub(super) fn write(&mut self) {
        loop {
            if self.groups.needs_segment() {
                let segment = self.segments.prepare(self.groups.next_group() << 20).unwrap();
                self.groups.add_segment(segment);
            }
            let Some(write) = self.groups.next_write() else { return };
            let result = self.segments.write(&write);
            self.groups.written(write, result);
        }
    }

    pub(super) fn seal(&mut self) {
        while let Some(write) = self.groups.next_seal() {
            let result = self.segments.write(&write);
            self.groups.written(write, result);
        }
    }

    pub(super) fn snapshot(&mut self, disk: &Arc<SimulatedDisk>, number: u64) {
        let first_group = self.groups.next_group();
        let last_block = self.groups.next_block() - 1;
        let manifest = Manifest {
            first_group,
            ..Process::files_of_snapshot(disk, &self.pairs, number, last_block, self.next_version)
        };
        self.directory.write_manifest(manifest, &self.groups).unwrap();
        self.directory.remove_old_snapshots().unwrap();
        while let Some(number) = self.groups.trim(first_group) {
            self.segments.recycle(number).unwrap();
        }
    }

    /// Writes the files of a snapshot, and returns a manifest that names them.
    pub(super) fn files_of_snapshot(
        disk: &Arc<SimulatedDisk>,
        pairs: &[Pairs; 2],
        number: u64,
        last_block: u64,
        next_version: u64,
    ) -> Manifest {
        let mut pages = Pages::default();
        let mut files = Vec::new();
        for part in [SnapshotPart::Shard(0), SnapshotPart::Shard(1), SnapshotPart::Ordered] {
            let mut chunks = ChunkWriter::new(number, part);
            let mut file = SnapshotWriter::create(Arc::clone(disk), number, part).unwrap();
            for is_first in [true, false] {
                match part {
                    SnapshotPart::Shard(of_part) => {
                        let is_in_step = |key: &[u8]| {
                            shard(key, SHARDS) == usize::from(of_part) && is_first == (position(key) <= u64::MAX / 3)
                        };
                        let of_step = pairs[0].iter().filter(|(key, _)| is_in_step(key));
                        of_step.for_each(|(key, value)| chunks.push(key, value, None));
                        chunks.end_step(if is_first { u64::MAX / 3 } else { u64::MAX }, last_block);
                    }
                    SnapshotPart::Ordered => {
                        let end = &b"key 2"[..];
                        let of_step = pairs[1].iter().filter(|(key, _)| is_first == (key.as_slice() < end));
                        of_step.for_each(|(key, value)| chunks.push(key, value, None));
                        chunks.end_ordered_step(is_first.then_some(end), next_version - 1);
                    }
                }
                assert!(chunks.finish(&mut pages));
                file.write(&pages).unwrap();
            }
            files.push(file.finish().unwrap());
        }
        let shards = files[..2].iter().map(|&file| ManifestShard { secret_seed: 0, file }).collect();
        Manifest { snapshot: Some(number), shards, ordered: files[2], ..manifest() }
    }
}

pub(super) fn new_disk() -> Arc<SimulatedDisk> {
    Arc::new(SimulatedDisk::new(1))
}

pub(super) fn restart(disk: &Arc<SimulatedDisk>) -> Arc<SimulatedDisk> {
    Arc::new(disk.kill())
}

/// Returns the names and bytes of all files.
pub(super) fn files(disk: &SimulatedDisk) -> BTreeMap<String, Vec<u8>> {
    let names = disk.list().unwrap();
    names.into_iter().map(|name| (name.clone(), disk.content(&name).unwrap())).collect()
}

/// Returns a disk with these files.
fn disk_of(files: &BTreeMap<String, Vec<u8>>) -> Arc<SimulatedDisk> {
    let disk = new_disk();
    files.iter().for_each(|(name, bytes)| disk.set_content(name, bytes.clone()));
    disk
}

/// Returns the files and pairs of a directory with three segments, some of whose groups a snapshot contains.
fn example() -> (BTreeMap<String, Vec<u8>>, [Pairs; 2]) {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    for number in 0..4 {
        process.put(&format!("key {number}"), b"from the snapshot");
    }
    process.snapshot(&disk, 1);
    for number in 2..9 {
        process.put(&format!("key {number}"), &[number as u8; 40]);
    }
    process.seal();
    (files(&disk), process.pairs)
}

/// Returns the files and pairs of a directory with one segment and without a snapshot.
fn young_example() -> (BTreeMap<String, Vec<u8>>, [Pairs; 2]) {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    process.put("key", b"value");
    process.seal();
    (files(&disk), process.pairs)
}

#[test]
fn each_changed_byte_gives_the_same_state_or_a_refusal() {
    let (files, expected) = example();
    assert!(files.keys().filter(|name| name.starts_with("log-")).count() >= 3, "{:?}", files.keys());
    let refused = change_each_byte(&files, &expected);
    assert!(refused["log"] > 500 && refused["snapshot"] > 300, "{refused:?}");
    let (files, expected) = young_example();
    let refused = change_each_byte(&files, &expected);
    assert!(refused["log"] > 100, "{refused:?}");
}

/// Changes bytes of all files, one after another. Returns how often the directory was refused, for each kind of file.
fn change_each_byte(files: &BTreeMap<String, Vec<u8>>, expected: &[Pairs; 2]) -> BTreeMap<String, usize> {
    let (pairs, end, _) = recover(&disk_of(files), false).unwrap();
    assert_eq!((&pairs, end.cut), (expected, None));
    let mut refused = BTreeMap::new();
    for (name, bytes) in files {
        let mut offsets: Vec<usize> = (0..bytes.len()).collect();
        // Most bytes are zeros that no one reads: a sample of them, and all others.
        offsets.retain(|&offset| bytes[offset] != 0 || offset % PAGE_SIZE < 128 || offset % 61 == 0);
        for offset in offsets {
            let disk = disk_of(files);
            let mut changed = bytes.clone();
            changed[offset] ^= if offset % 2 == 0 { 0xff } else { 1 };
            disk.set_content(name, changed);
            match recover(&disk, false) {
                Ok((pairs, ..)) => assert!(&pairs == expected, "{name}, byte {offset}: another state"),
                Err(LogError::Damaged(damage)) => {
                    *refused.entry(name.split('-').next().unwrap().to_owned()).or_insert(0) += 1;
                    assert!(damage.offset < 7 * PAGE_SIZE as u64 && damage.first_block > 0, "{damage}");
                }
                Err(LogError::SnapshotDamaged { .. } | LogError::Incomplete { .. }) => {
                    *refused.entry(name.split('-').next().unwrap().to_owned()).or_insert(0) += 1;
                }
                Err(error) => panic!("{name}, byte {offset}: {error}"),
            }
        }
    }
    refused
}

/// The only group of a segment was acknowledged, the header of the segment is damaged, and the one before has no end.
#[test]
fn a_damaged_header_after_a_restart_is_noticed() {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    process.put("first", b"");
    let disk = restart(&disk);
    let mut process = Process::start(&disk, false).unwrap();
    process.put("second", b"");
    let name = crate::segment::name(process.directory.manifest().unwrap().segment);
    let mut changed = disk.content(&name).unwrap();
    changed[40] ^= 1;
    disk.set_content(&name, changed);
    assert!(matches!(recover(&restart(&disk), false).err(), Some(LogError::Damaged(damage)) if damage.group == 2));
}

#[test]
fn damage_is_named_and_can_be_accepted() {
    let (mut files, expected) = example();
    let name = "log-0000000000000002".to_owned();
    let bytes = files.get_mut(&name).unwrap();
    bytes[2 * PAGE_SIZE + 70] ^= 1;
    let disk = disk_of(&files);
    let error = recover(&disk, false).err().unwrap();
    let LogError::Damaged(damage) = &error else { panic!("{error}") };
    assert_eq!((damage.segment, damage.offset), (2, 2 * PAGE_SIZE as u64));
    assert!(damage.first_block > 4 && damage.later_operations == 2 * damage.later_blocks, "{damage}");
    assert!(damage.later_groups > 0 && damage.later_blocks > 0, "{damage}");
    assert!(error.to_string().contains("--accept-loss"), "{error}");
    assert!(error.to_string().contains("at offset 8192 of log-0000000000000002"), "{error}");

    let disk = restart(&disk);
    let mut process = Process::start(&disk, true).unwrap();
    assert_ne!(process.pairs, expected);
    process.put("after the loss", b"");
    let pairs = process.pairs;
    // The groups that were given up are not read again.
    let disk = restart(&disk);
    let (again, end, _) = recover(&disk, false).unwrap();
    assert_eq!((again, end.loss), (pairs, None));
}

/// A snapshot may contain operations of blocks that are lost. New blocks must not get their indexes.
#[test]
fn a_loss_beside_a_snapshot_does_not_lose_later_blocks() {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    let first_group = process.groups.next_group();
    for number in 0..4 {
        process.put(&format!("key {number}"), b"");
    }
    process.snapshot(&disk, 1);
    // As if the walk had begun before the blocks.
    let manifest = Manifest { first_group, ..process.directory.manifest().unwrap().clone() };
    process.directory.write_manifest(manifest, &process.groups).unwrap();

    let mut changed = disk.content("log-0000000000000001").unwrap();
    changed[2 * PAGE_SIZE + 70] ^= 1;
    disk.set_content("log-0000000000000001", changed);
    let disk = restart(&disk);
    assert!(matches!(recover(&disk, false).err(), Some(LogError::Damaged(_))));
    let disk = restart(&disk);
    let mut process = Process::start(&disk, true).unwrap();
    for number in 0..12 {
        process.put(&format!("later {number}"), b"");
    }
    let (pairs, ..) = recover(&restart(&disk), false).unwrap();
    assert_eq!(pairs, process.pairs);
}

#[test]
fn a_torn_group_is_cut_off_for_good() {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    process.put("acknowledged", b"");
    let pairs = process.pairs.clone();
    process.append("torn", &[7; 2500]);
    process.push();
    let write = process.groups.next_write().unwrap();
    process.append("in flight after it", b"");
    process.push();
    let later = process.groups.next_write().unwrap();
    process.segments.write(&later).unwrap();
    // Only the first page of the torn group.
    let file = process.segments.file(write.segment);
    disk.write_at(&file, write.offset, &write.pages()[..1]).unwrap();
    let offset = write.offset;

    let disk = restart(&disk);
    let (_, end, _) = recover(&disk, false).unwrap();
    assert_eq!(end.cut, Some((1, offset)));
    let disk = restart(&disk);
    let mut process = Process::start(&disk, false).unwrap();
    assert_eq!(process.pairs, pairs);
    process.put("later", b"");
    let pairs = process.pairs;
    // The rest of the torn group appears.
    let file = disk.open("log-0000000000000001").unwrap();
    disk.write_at(&file, offset, write.pages()).unwrap();
    let (again, end, _) = recover(&restart(&disk), false).unwrap();
    assert_eq!((again, end.cut), (pairs, None));
}

#[test]
fn groups_of_an_earlier_use_of_a_segment_are_not_cut_off() {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    process.put("acknowledged", b"");
    let (pairs, old) = (process.pairs.clone(), process.groups.segment());
    // A start that writes nothing. The file of its segment was one of the log before.
    let disk = restart(&disk);
    let new = Process::start(&disk, false).unwrap().groups.segment();
    let [old, new_file] = [old, new].map(|number| disk.open(&segment::name(number)).unwrap());
    let mut page = Pages::default();
    page.set_size(PAGE_SIZE);
    disk.read_at(&old, PAGE_SIZE as u64, page.pages_mut()).unwrap();
    disk.write_at(&new_file, PAGE_SIZE as u64, page.pages()).unwrap();
    let (again, end, _) = recover(&restart(&disk), false).unwrap();
    assert_eq!((again, end.cut, end.position), (pairs, None, (new, PAGE_SIZE as u64)));
}

#[test]
fn other_directories_are_refused_and_not_touched() {
    let (files_of_example, _) = example();
    let refusal = |files: &BTreeMap<String, Vec<u8>>| {
        let disk = disk_of(files);
        let error = recover(&disk, false).err().expect("a refusal");
        let mut after = self::files(&disk);
        if !files.contains_key("lock") {
            after.remove("lock");
        }
        assert!(after == *files, "{error}: files were changed");
        error
    };
    let without = |names: &[&str]| {
        let mut files = files_of_example.clone();
        files.retain(|name, _| !names.iter().any(|prefix| name.starts_with(prefix)));
        files
    };
    let foreign = BTreeMap::from([("index.html".to_owned(), vec![1; 10])]);
    assert!(matches!(refusal(&foreign), LogError::Foreign { name } if name == "index.html"));
    assert!(!disk_of(&foreign).list().unwrap().contains(&"lock".to_owned()));
    assert!(matches!(refusal(&without(&["manifest"])), LogError::Incomplete { .. }));
    assert!(matches!(refusal(&without(&["log"])), LogError::LogIncomplete { .. }));
    assert!(matches!(refusal(&without(&["log-0000000000000001"])), LogError::LogIncomplete { .. }));
    assert!(matches!(refusal(&without(&["log-0000000000000002"])), LogError::LogIncomplete { .. }));
    // The end of the segment before says that it has a successor.
    assert!(matches!(refusal(&without(&["log-0000000000000003"])), LogError::LogIncomplete { .. }));
    assert!(matches!(refusal(&without(&["snapshot-0000000000000001-0001"])), LogError::Incomplete { .. }));
    assert!(matches!(refusal(&without(&["snapshot-0000000000000001-ordered"])), LogError::Incomplete { .. }));

    let mut files = files_of_example.clone();
    files.get_mut("log-0000000000000002").unwrap().truncate(2 * PAGE_SIZE);
    assert!(matches!(refusal(&files), LogError::LogIncomplete { .. }));

    let mut files = files_of_example.clone();
    files.get_mut("snapshot-0000000000000001-0000").unwrap().truncate(PAGE_SIZE);
    assert!(matches!(refusal(&files), LogError::Incomplete { .. }));

    let mut files = files_of_example.clone();
    for name in ["manifest.a", "manifest.b"] {
        files.get_mut(name).unwrap()[40] ^= 1;
    }
    assert!(matches!(refusal(&files), LogError::ManifestDamaged));

    let mut files = files_of_example.clone();
    let bytes = files.get_mut("manifest.a").unwrap();
    bytes[16] += 1;
    crate::manifest::set_checksum(bytes);
    assert!(
        matches!(refusal(&files), LogError::Newer { found, supported } if found == VERSION + 1 && supported == VERSION)
    );
}

#[test]
fn a_second_process_is_refused() {
    let disk = new_disk();
    let process = Process::start(&disk, false).unwrap();
    let other = Arc::new(disk.other_process());
    assert!(matches!(Directory::open(other).err(), Some(LogError::Locked)));
    drop(process);
}

#[test]
fn a_failed_write_stops_the_log() {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    process.append("key", b"value");
    process.push();
    let write = process.groups.next_write().unwrap();
    disk.fail_at(1, io::ErrorKind::StorageFull);
    let result = process.segments.write(&write);
    process.groups.written(write, result);
    assert_eq!((process.groups.durable_block(), process.groups.durable_floor()), (0, 0));
    let failure = process.groups.failure().unwrap();
    assert_eq!((failure.segment, failure.error.kind()), (1, io::ErrorKind::StorageFull));
    process.append("key", b"value");
    process.push();
    assert!(process.groups.next_write().is_none() && process.groups.next_seal().is_none());
}

/// A snapshot of all that was read replaces the log, also if a power loss follows at once.
#[test]
fn a_log_that_a_snapshot_replaces_is_not_read_again() {
    for calls in 0..40 {
        let disk = new_disk();
        let mut process = Process::start(&disk, false).unwrap();
        (0..9).for_each(|number| process.put(&format!("key {number}"), b"value"));
        let expected = process.pairs.clone();
        let disk = restart(&disk);
        let (pairs, mut end, mut directory) = recover(&disk, false).unwrap();
        assert!(pairs == expected && end.segment_count() > 1);
        let of_snapshot = Process::files_of_snapshot(&disk, &pairs, 7, end.next_block() - 1, end.floor());
        disk.fail_at(calls + 1, io::ErrorKind::Other);
        let replaced = directory.replace_log(&mut end, Manifest { snapshot: Some(7), ..of_snapshot });
        if replaced.is_ok() {
            assert_eq!(end.segment_bytes(), 0);
            _ = directory.begin(end, SETTINGS, manifest(), || 77);
        }
        let disk = Arc::new(disk.crash());
        let (pairs, end, _) = recover(&disk, false).unwrap();
        assert!(pairs == expected, "call {calls}: other pairs");
        assert!(replaced.is_err() || end.groups == 0, "call {calls}: the log is read");
    }
}

/// Returns the files of the [`example`] as an earlier version of the formats wrote them: rows of bytes that are not zeros.
fn example_of(text: &str) -> BTreeMap<String, Vec<u8>> {
    let (mut files, mut name) = (BTreeMap::<String, Vec<u8>>::new(), String::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["file", of_file, size] = words[..] {
            name = of_file.to_owned();
            files.insert(name.clone(), vec![0; size.parse().unwrap()]);
            continue;
        }
        let offset = usize::from_str_radix(words[0], 16).unwrap();
        let digits = words[1].as_bytes().chunks(2).map(|byte| str::from_utf8(byte).unwrap());
        for (place, byte) in digits.enumerate() {
            files.get_mut(&name).unwrap()[offset + place] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    files
}

/// Segments of another directory were copied into this one: of numbers that it has not used yet, and that it has used up.
#[test]
fn segments_of_other_directories_are_named_and_left() {
    let foreign = {
        let other = new_disk();
        let new = Manifest { server_id: [4; 16], ..manifest() };
        let mut directory = Directory::open(Arc::clone(&other)).unwrap();
        let end = directory.read_log(false, |_| Ok(())).unwrap();
        let mut uid = 0;
        _ = directory.begin(end, SETTINGS, new, || {
            uid += 1;
            uid
        });
        other.content(&crate::segment_name(1)).unwrap()
    };
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    (0..9).for_each(|number| process.put(&format!("key {number}"), b"value"));
    process.snapshot(&disk, 7);
    process.put("last", b"value");
    let mut expected = process.pairs.clone();
    let mut disk = restart(&disk);
    for distance in [None, Some(1), Some(9)] {
        let number = |name: &str| u64::from_str_radix(name.strip_prefix("log-")?, 16).ok();
        let last = files(&disk).keys().filter_map(|name| number(name)).max().unwrap();
        let number = distance.map_or(1, |distance| last + distance);
        let name = &crate::segment_name(number);
        // The header has another number, and one that is right.
        for is_renamed in [false, true] {
            let mut content = foreign.clone();
            if is_renamed {
                let header = crate::SegmentHeader::decode(&content).unwrap();
                let mut pages = Pages::default();
                crate::SegmentHeader { number, ..header }.encode(&mut pages);
                content[..64].copy_from_slice(&pages.bytes()[..64]);
            }
            disk.set_content(name, content.clone());
            for start in 0..2 {
                let (pairs, end, _) = recover(&disk, false).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(
                    pairs == expected && end.foreign == [name.as_str()],
                    "{name}, start {start}: {:?}",
                    end.foreign
                );
                disk = restart(&disk);
                let mut process = Process::start(&disk, false).unwrap();
                (0..9).for_each(|number| process.put(&format!("{name} {number}"), &[7; 900]));
                expected = process.pairs.clone();
                disk = restart(&disk);
                assert!(disk.content(name).unwrap() == content, "{name} was changed");
            }
            disk.remove(name).unwrap();
        }
    }
}

#[test]
fn directories_of_earlier_versions_are_read_and_continued() {
    for (version, text) in [(1, include_str!("version_1.txt")), (3, include_str!("version_3.txt"))] {
        let (_, pairs) = example();
        let disk = disk_of(&example_of(text));
        let version_of = |name: &str| u16::from_le_bytes(disk.content(name).unwrap()[16..18].try_into().unwrap());
        assert_eq!([version_of("manifest.a"), version_of("manifest.b")], [version; 2]);
        let (found, end, directory) = recover(&disk, false).unwrap();
        assert_eq!((found, end.cut, end.next_block()), (pairs, None, 12));
        assert_eq!(directory.manifest().unwrap().last_time, 0);
        assert!(directory.functions().unwrap().0.is_empty());
        drop(directory);
        let disk = restart(&disk);
        let mut process = Process::start(&disk, false).unwrap();
        process.put("of this version", b"");
        let (_, mut functions) = process.directory.functions().unwrap();
        functions.write(&super::functions::loaded(1)).unwrap();
        let pairs = process.pairs;
        // The older manifest is still there.
        let versions = [version_of("manifest.a"), version_of("manifest.b")];
        assert_eq!(versions.iter().sum::<u16>(), version + VERSION);
        let (found, _, directory) = recover(&restart(&disk), false).unwrap();
        assert_eq!((found, directory.functions().unwrap().0), (pairs, super::functions::loaded(1)));
    }
}
