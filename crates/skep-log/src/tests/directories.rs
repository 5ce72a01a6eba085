//! Directories that are refused, and each byte of a small directory changed.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use skep_core::operation::{Operation, PutCondition, Request};

use super::model::{Pairs, execute, position};
use crate::{
    BlockWriter, ChunkWriter, Directory, Disk, GroupWriter, LogEnd, LogError, LogSettings, Manifest, ManifestShard,
    PAGE_SIZE, Pages, Segments, SimulatedDisk, SnapshotWriter, Transaction, VERSION,
};

const SETTINGS: LogSettings = LogSettings { segment_size: 6 * PAGE_SIZE as u64, group_size: 4096 };
const SHARDS: usize = 2;

fn manifest() -> Manifest {
    Manifest { server_id: [3; 16], shards: vec![ManifestShard::default(); SHARDS], ..Manifest::default() }
}

/// Returns the pairs of all shards, and the end of the log.
fn recover(
    disk: &Arc<SimulatedDisk>,
    accept_loss: bool,
) -> Result<(Vec<Pairs>, LogEnd, Directory<SimulatedDisk>), LogError> {
    let directory = Directory::open(Arc::clone(disk))?;
    let mut pairs = vec![Pairs::new(); SHARDS];
    let mut boundaries = Vec::new();
    for (shard, pairs) in pairs.iter_mut().enumerate() {
        boundaries.push(directory.read_snapshot(shard as u16, |chunk| {
            chunk.requests().try_for_each(|request| request.map(|request| execute(pairs, &request)))
        })?);
    }
    let end = directory.read_log(accept_loss, |block| {
        for request in block.sections().flat_map(|section| section.operations) {
            let (shard, request) = (usize::from(block.shard), request?);
            if boundaries[shard].applies(block.index, position(request.key)) {
                execute(&mut pairs[shard], &request);
            }
        }
        Ok(())
    })?;
    Ok((pairs, end, directory))
}

/// A process that puts numbered keys, one for each group.
struct Process {
    directory: Directory<SimulatedDisk>,
    groups: GroupWriter,
    segments: Segments<SimulatedDisk>,
    writers: Vec<BlockWriter>,
    pairs: Vec<Pairs>,
}

impl Process {
    fn start(disk: &Arc<SimulatedDisk>, accept_loss: bool) -> Result<Self, LogError> {
        let (pairs, end, mut directory) = recover(disk, accept_loss)?;
        let writers = (0..SHARDS as u16).map(|shard| BlockWriter::new(shard, end.next_block(shard))).collect();
        let mut uid = end.last_number * 1000;
        let (groups, segments) = directory.begin(end, SETTINGS, manifest(), || {
            uid += 1;
            uid
        })?;
        Ok(Process { directory, groups, segments, writers, pairs })
    }

    fn append(&mut self, shard: usize, key: &str, value: &[u8]) {
        let request =
            Request { key: key.as_bytes(), operation: Operation::Put { value, condition: PutCondition::Always } };
        self.writers[shard].append(0, 1, &request);
        execute(&mut self.pairs[shard], &request);
    }

    /// Writes what was appended to the shards, as a transaction if it is more than one.
    fn flush(&mut self, shards: &[usize]) {
        let transaction = Transaction { number: self.groups.next_group(), parts: shards.len() as u16 };
        for &shard in shards {
            self.groups.push(self.writers[shard].seal((shards.len() > 1).then_some(transaction)).unwrap());
        }
        self.write();
    }

    fn write(&mut self) {
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

    fn seal(&mut self) {
        while let Some(write) = self.groups.next_seal() {
            let result = self.segments.write(&write);
            self.groups.written(write, result);
        }
    }

    fn snapshot(&mut self, disk: &Arc<SimulatedDisk>, number: u64) {
        let first_group = self.groups.next_group();
        let mut shards = Vec::new();
        for (shard, (pairs, writer)) in self.pairs.iter().zip(&self.writers).enumerate() {
            let mut chunks = ChunkWriter::new(number, shard as u16);
            let mut file = SnapshotWriter::create(Arc::clone(disk), number, shard as u16).unwrap();
            let mut pages = Pages::default();
            let mut from = 0;
            for to in [u64::MAX / 3, u64::MAX] {
                for (key, value) in pairs.iter().filter(|(key, _)| (from..=to).contains(&position(key))) {
                    chunks.push(key, value, None);
                }
                chunks.end_step(to, writer.index() - 1);
                assert!(chunks.finish(&mut pages));
                file.write(&pages).unwrap();
                from = to.wrapping_add(1);
            }
            let file = file.finish().unwrap();
            let (first_block, last_block) = (writer.index(), writer.index() - 1);
            shards.push(ManifestShard { secret_seed: 0, first_block, last_block, file });
        }
        let manifest = self.directory.manifest().unwrap().clone();
        let manifest = Manifest { snapshot: Some(number), first_group, shards, ..manifest };
        self.directory.write_manifest(manifest, &self.groups).unwrap();
        self.directory.remove_old_snapshots().unwrap();
        while let Some(number) = self.groups.trim(first_group) {
            self.segments.recycle(number).unwrap();
        }
    }
}

fn new_disk() -> Arc<SimulatedDisk> {
    Arc::new(SimulatedDisk::new(1))
}

fn restart(disk: &Arc<SimulatedDisk>) -> Arc<SimulatedDisk> {
    Arc::new(disk.kill())
}

/// Returns the names and bytes of all files.
fn files(disk: &SimulatedDisk) -> BTreeMap<String, Vec<u8>> {
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
fn example() -> (BTreeMap<String, Vec<u8>>, Vec<Pairs>) {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    for number in 0..4 {
        process.append(number % SHARDS, &format!("key {number}"), b"from the snapshot");
        process.flush(&[number % SHARDS]);
    }
    process.snapshot(&disk, 1);
    for number in 2..9 {
        for shard in 0..SHARDS {
            process.append(shard, &format!("key {number}"), &[number as u8; 40]);
        }
        process.flush(&[0, 1]);
    }
    process.seal();
    (files(&disk), process.pairs)
}

/// Returns the files and pairs of a directory with one segment and without a snapshot.
fn young_example() -> (BTreeMap<String, Vec<u8>>, Vec<Pairs>) {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    process.append(0, "key", b"value");
    process.append(1, "key", b"value");
    process.flush(&[0, 1]);
    process.seal();
    (files(&disk), process.pairs)
}

#[test]
fn each_changed_byte_gives_the_same_state_or_a_refusal() {
    let (files, _) = example();
    assert!(files.keys().filter(|name| name.starts_with("log-")).count() >= 3, "{:?}", files.keys());
    let refused = change_each_byte(example());
    assert!(refused["log"] > 500 && refused["snapshot"] > 300, "{refused:?}");
    let refused = change_each_byte(young_example());
    assert!(refused["log"] > 100, "{refused:?}");
}

/// Changes bytes of all files, one after another. Returns how often the directory was refused, for each kind of file.
fn change_each_byte((files, expected): (BTreeMap<String, Vec<u8>>, Vec<Pairs>)) -> BTreeMap<String, usize> {
    let (pairs, end, _) = recover(&disk_of(&files), false).unwrap();
    assert_eq!((pairs, end.cut), (expected.clone(), None));
    let mut refused = BTreeMap::new();
    for (name, bytes) in &files {
        let mut offsets: Vec<usize> = (0..bytes.len()).collect();
        // Most bytes are zeros that no one reads: a sample of them, and all others.
        offsets.retain(|&offset| bytes[offset] != 0 || offset % PAGE_SIZE < 128 || offset % 61 == 0);
        for offset in offsets {
            let disk = disk_of(&files);
            let mut changed = bytes.clone();
            changed[offset] ^= if offset % 2 == 0 { 0xff } else { 1 };
            disk.set_content(name, changed);
            match recover(&disk, false) {
                Ok((pairs, ..)) => assert!(pairs == expected, "{name}, byte {offset}: another state"),
                Err(LogError::Damaged(damage)) => {
                    *refused.entry(name.split('-').next().unwrap().to_owned()).or_insert(0) += 1;
                    assert!(damage.offset < 7 * PAGE_SIZE as u64 && damage.shards.len() == SHARDS, "{damage}");
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
    process.append(0, "first", b"");
    process.flush(&[0]);
    let disk = restart(&disk);
    let mut process = Process::start(&disk, false).unwrap();
    process.append(0, "second", b"");
    process.flush(&[0]);
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
    assert_eq!((damage.segment, damage.offset, damage.shards.len()), (2, 2 * PAGE_SIZE as u64, 2));
    assert!(damage.later_groups > 0 && damage.shards[1].later_operations > 0, "{damage}");
    assert!(
        error.to_string().contains("--accept-loss") && error.to_string().contains("segment 2, offset 8192"),
        "{error}"
    );

    let disk = restart(&disk);
    let mut process = Process::start(&disk, true).unwrap();
    assert_ne!(process.pairs, expected);
    process.append(0, "after the loss", b"");
    process.flush(&[0]);
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
    let (mut shards, mut pages) = (Vec::new(), Pages::default());
    let mut chunks = ChunkWriter::new(1, 0);
    chunks.end_step(u64::MAX / 2, 0);
    for number in 0..4 {
        process.append(0, &format!("key {number}"), b"");
        process.flush(&[0]);
    }
    process.pairs[0]
        .iter()
        .filter(|(key, _)| position(key) > u64::MAX / 2)
        .for_each(|(key, _)| chunks.push(key, b"", None));
    chunks.end_step(u64::MAX, 4);
    let mut empty = ChunkWriter::new(1, 1);
    empty.end_step(u64::MAX, 0);
    for (shard, chunks) in [&mut chunks, &mut empty].into_iter().enumerate() {
        assert!(chunks.finish(&mut pages));
        let mut file = SnapshotWriter::create(Arc::clone(&disk), 1, shard as u16).unwrap();
        file.write(&pages).unwrap();
        let last_block = process.writers[shard].index() - 1;
        shards.push(ManifestShard { secret_seed: 0, first_block: 1, last_block, file: file.finish().unwrap() });
    }
    let manifest = process.directory.manifest().unwrap().clone();
    let manifest = Manifest { snapshot: Some(1), first_group, shards, ..manifest };
    process.directory.write_manifest(manifest, &process.groups).unwrap();

    let mut changed = disk.content("log-0000000000000001").unwrap();
    changed[2 * PAGE_SIZE + 70] ^= 1;
    disk.set_content("log-0000000000000001", changed);
    let disk = restart(&disk);
    assert!(matches!(recover(&disk, false).err(), Some(LogError::Damaged(_))));
    let disk = restart(&disk);
    let mut process = Process::start(&disk, true).unwrap();
    for number in 0..12 {
        process.append(0, &format!("later {number}"), b"");
        process.flush(&[0]);
    }
    let (pairs, ..) = recover(&restart(&disk), false).unwrap();
    assert_eq!(pairs, process.pairs);
}

#[test]
fn a_torn_group_is_cut_off_for_good() {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    process.append(0, "acknowledged", b"");
    process.flush(&[0]);
    let pairs = process.pairs.clone();
    process.append(0, "torn", &[7; 5000]);
    process.groups.push(process.writers[0].seal(None).unwrap());
    let write = process.groups.next_write().unwrap();
    process.append(0, "in flight after it", b"");
    process.groups.push(process.writers[0].seal(None).unwrap());
    let later = process.groups.next_write().unwrap();
    process.segments.write(&later).unwrap();
    // Only the first page of the torn group.
    let file = process.segments.file(write.segment);
    disk.write_at(&file, write.offset, &write.pages()[..1]).unwrap();
    let offset = write.offset;

    let disk = restart(&disk);
    let mut process = Process::start(&disk, false).unwrap();
    assert_eq!(process.pairs, pairs);
    process.append(1, "later", b"");
    process.flush(&[1]);
    let pairs = process.pairs;
    // The rest of the torn group appears.
    let file = disk.open("log-0000000000000001").unwrap();
    disk.write_at(&file, offset, write.pages()).unwrap();
    let (again, end, _) = recover(&restart(&disk), false).unwrap();
    assert_eq!((again, end.cut), (pairs, None));
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
    assert!(matches!(refusal(&without(&["log"])), LogError::Incomplete { .. }));
    assert!(matches!(refusal(&without(&["log-0000000000000001"])), LogError::Incomplete { .. }));
    assert!(matches!(refusal(&without(&["log-0000000000000002"])), LogError::Incomplete { .. }));
    // The end of the segment before says that it has a successor.
    assert!(matches!(refusal(&without(&["log-0000000000000003"])), LogError::Incomplete { .. }));
    assert!(matches!(refusal(&without(&["snapshot-0000000000000001-0001"])), LogError::Incomplete { .. }));

    let mut files = files_of_example.clone();
    files.get_mut("log-0000000000000002").unwrap().truncate(2 * PAGE_SIZE);
    assert!(matches!(refusal(&files), LogError::Incomplete { .. }));

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
fn a_shard_that_is_new_gets_a_log() {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    process.append(0, "key", b"value");
    process.flush(&[0]);
    let disk = restart(&disk);
    let (_, end, mut directory) = recover(&disk, false).unwrap();
    let shards = vec![ManifestShard::default(); 4];
    let mut writer = BlockWriter::new(3, end.next_block(3));
    let (mut groups, segments) = directory.begin(end, SETTINGS, Manifest { shards, ..manifest() }, || 99).unwrap();
    let put = Operation::Put { value: b"", condition: PutCondition::Always };
    writer.append(0, 1, &Request { key: b"of a new shard", operation: put });
    groups.push(writer.seal(None).unwrap());
    let write = groups.next_write().unwrap();
    segments.write(&write).unwrap();
    assert_eq!(groups.written(write, Ok(())), [1, 0, 0, 1]);

    let directory = Directory::open(restart(&disk)).unwrap();
    assert_eq!(directory.manifest().unwrap().shards.len(), SHARDS);
    let mut found = Vec::new();
    let end = directory.read_log(false, |block| {
        found.push((block.shard, block.index));
        Ok(())
    });
    assert_eq!((found, end.unwrap().next_block(3)), (vec![(0, 1), (3, 1)], 2));
}

#[test]
fn a_failed_write_stops_the_log() {
    let disk = new_disk();
    let mut process = Process::start(&disk, false).unwrap();
    process.append(0, "key", b"value");
    process.groups.push(process.writers[0].seal(None).unwrap());
    let write = process.groups.next_write().unwrap();
    disk.fail_at(1, io::ErrorKind::StorageFull);
    let result = process.segments.write(&write);
    assert_eq!(process.groups.written(write, result), [0, 0]);
    let failure = process.groups.failure().unwrap();
    assert_eq!((failure.segment, failure.error.kind()), (1, io::ErrorKind::StorageFull));
    process.append(0, "key", b"value");
    process.groups.push(process.writers[0].seal(None).unwrap());
    assert!(process.groups.next_write().is_none() && process.groups.next_seal().is_none());
}
