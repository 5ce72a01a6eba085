//! Measures the cost of an appended put, and writes groups to a directory as fast as its disk takes them, beside a bare
//! loop of the same writes: `cargo run --release -p skep-log --example log_bandwidth -- DIRECTORY`.
//!
//! Both loops have two threads that take turns, each with one write in flight. They are run five times, in turns.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skep_core::operation::{Operation, PutCondition, Request};
use skep_log::{
    BlockWriter, Directory, Disk, Files, GroupWriter, LogSettings, Manifest, ManifestShard, OpenFile, PAGE_SIZE, Page,
    Segments, Write,
};

/// Length of each measured loop.
const LENGTH: Duration = Duration::from_secs(2);
const SEGMENT_SIZE: u64 = 256 << 20;

fn main() {
    append();
    let path = std::env::args().nth(1).expect("the name of a directory");
    std::fs::create_dir_all(&path).expect("a directory");
    for group_size in [4 << 10, 64 << 10, 256 << 10, 1 << 20] {
        for _ in 0..5 {
            let bare = bare(Path::new(&path), group_size);
            let log = log(Path::new(&path), group_size);
            println!("{:>5} KiB: bare {bare:>6.0} MB/s, log {log:>6.0} MB/s, {:.2}", group_size >> 10, log / bare);
        }
    }
}

/// Appends puts of 10 B, 256 in a block.
fn append() {
    let mut writer = BlockWriter::new(0, 1);
    let rounds = 40_000_u64;
    for _ in 0..5 {
        let mut size = 0;
        let begun = Instant::now();
        for round in 0..rounds {
            for number in 0..256_u64 {
                let bytes = (round << 8 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
                let put = Operation::Put { value: &bytes[3..], condition: PutCondition::Always };
                assert!(writer.append(0, 1, &Request { key: &bytes[..5], operation: put }));
            }
            let block = writer.seal(None).expect("it has operations");
            size += block.bytes().len();
            writer.reuse(block);
        }
        let count = (rounds * 256) as f64;
        let nanoseconds = begun.elapsed().as_nanos() as f64 / count;
        println!("put of 10 B: {nanoseconds:.1} ns, {:.2} B", size as f64 / count);
    }
}

/// Writes pages over a file that is filled, and returns the MB/s.
fn bare(path: &Path, size: usize) -> f64 {
    let disk = Files::open(path).expect("a directory");
    let file = disk.create("bare").expect("a file");
    let zeros = vec![Page::ZERO; (1 << 20) / PAGE_SIZE];
    for offset in (0..SEGMENT_SIZE).step_by(1 << 20) {
        disk.write_at(&file, offset, &zeros).expect("a write");
    }
    let next = Mutex::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while begun.elapsed() < LENGTH {
                    let offset = {
                        let mut next = next.lock().expect("no panic");
                        *next += size as u64;
                        (*next - size as u64) % SEGMENT_SIZE
                    };
                    disk.write_at(&file, offset, &zeros[..size / PAGE_SIZE]).expect("a write");
                }
            });
        }
    });
    let bytes = next.into_inner().expect("no panic") as f64;
    let elapsed = begun.elapsed().as_secs_f64();
    disk.remove("bare").expect("removed");
    bytes / elapsed / 1e6
}

/// Keeps a queue of blocks full, and returns the MB/s of groups. Segments are recycled at once, so only a few are
/// filled.
fn log(path: &Path, group_size: usize) -> f64 {
    let path = path.join("log");
    let mut directory = Directory::open(Arc::new(Files::open(&path).expect("a directory"))).expect("a new log");
    let end = directory.read_log(false, |_| Ok(())).expect("no log");
    let manifest = Manifest { shards: vec![ManifestShard::default()], ..Manifest::default() };
    let settings = LogSettings { segment_size: SEGMENT_SIZE, group_size: group_size - 64 };
    let (mut groups, mut segments) = directory.begin(end, settings, manifest, || 1).expect("a log");
    for _ in 0..3 {
        groups.add_segment(segments.prepare(groups.next_group()).expect("a segment"));
    }
    // Blocks that fill a group.
    let count = (group_size / (16 << 10)).max(1);
    let value = vec![7; group_size / count - 64 / count - 80];
    let state = Mutex::new(State { groups, segments, writer: BlockWriter::new(0, 1), value, bytes: 0 });
    let disk = Files::open(&path).expect("a directory");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while begun.elapsed() < LENGTH {
                    let next = state.lock().expect("no panic").next_write();
                    let Some((write, file)) = next else {
                        std::thread::yield_now();
                        continue;
                    };
                    let result = disk.write_at(&file, write.offset, write.pages());
                    let mut state = state.lock().expect("no panic");
                    state.bytes += (write.pages().len() * PAGE_SIZE) as u64;
                    state.groups.written(write, result);
                }
            });
        }
    });
    let elapsed = begun.elapsed().as_secs_f64();
    let bytes = state.into_inner().expect("no panic").bytes as f64;
    drop(directory);
    std::fs::remove_dir_all(&path).expect("removed");
    bytes / elapsed / 1e6
}

/// What the threads share.
struct State {
    groups: GroupWriter,
    segments: Segments<Files>,
    writer: BlockWriter,
    value: Vec<u8>,
    bytes: u64,
}

impl State {
    fn next_write(&mut self) -> Option<(Write, Arc<OpenFile>)> {
        while self.groups.queued_size() < 2 << 20 {
            let put = Operation::Put { value: &self.value, condition: PutCondition::Always };
            assert!(self.writer.append(0, 1, &Request { key: b"key", operation: put }));
            self.groups.push(self.writer.seal(None).expect("it has an operation"));
        }
        while let Some(number) = self.groups.trim(self.groups.durable_group()) {
            self.segments.recycle(number).expect("a segment");
        }
        if self.groups.needs_segment() {
            let segment = self.segments.prepare(self.groups.next_group()).expect("a segment");
            self.groups.add_segment(segment);
        }
        let write = self.groups.next_write()?;
        while let Some(block) = self.groups.take_spent() {
            self.writer.reuse(block);
        }
        let file = self.segments.file(write.segment);
        Some((write, file))
    }
}
