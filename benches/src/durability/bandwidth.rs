//! The bandwidth of the log's writer against a bare loop of the same writes: two threads, each with one write of 1 MiB
//! in flight.
//!
//! The writer is that of the crate `skep-log`: blocks are gathered into groups with their checksums, and segments are
//! recycled. There is no server, because no client on this machine could fill such a log.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use skep_core::operation::{Operation, PutCondition, Request};
use skep_log::{
    BlockWriter, Directory, Disk, Files, GroupWriter, LogSettings, Manifest, ManifestShard, OpenFile, PAGE_SIZE, Page,
    Segments, WRITES_IN_FLIGHT, Write,
};
use skep_measure::median;

use super::report::{Bar, Row};
use super::{Run, Section};

/// Bytes of a group.
pub(super) const GROUP: usize = 1 << 20;
/// Bytes of a file that is written again and again.
const FILE_SIZE: u64 = 256 << 20;
/// Bytes of the blocks that wait for a group, at least.
const QUEUE_SIZE: usize = 2 << 20;
/// Bytes of a block, and those that its headers and its group's leave for the value.
const BLOCK_SIZE: usize = 16 << 10;
const VALUE_SIZE: usize = BLOCK_SIZE - 128;
const SEGMENTS: usize = 3;

pub(super) fn run(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let samples = run.rounds("bandwidth", 2, usize::MAX).run(run.progress, |turn| match turn.side {
        0 => log(&run.folder.empty("bandwidth")?, run.plan.seconds),
        _ => bare(run.folder.path(), GROUP, run.plan.seconds),
    })?;
    let rates = &samples[0];
    let name = "bandwidth of the log / bare loop, groups of 1 MiB".to_owned();
    let mut row = Row::of_ratio(Section::Bandwidth, name, Some(Bar::AtLeast(0.7)), &rates[0], &rates[1]);
    row.from =
        format!("{:.0} / {:.0} MB/s; the writer of skep-log, without a server", median(&rates[0]), median(&rates[1]));
    Ok(vec![row])
}

/// A file of zeros for bare writes. Its blocks are allocated and written.
pub(super) struct BareFile {
    disk: Files,
    file: OpenFile,
    zeros: Vec<Page>,
}

impl BareFile {
    const NAME: &str = "bare";

    pub(super) fn new(folder: &Path) -> Result<BareFile, String> {
        let create = || {
            let disk = Files::open(folder)?;
            let file = disk.create(Self::NAME)?;
            let zeros = vec![Page::ZERO; GROUP / PAGE_SIZE];
            for offset in (0..FILE_SIZE).step_by(GROUP) {
                disk.write_at(&file, offset, &zeros)?;
            }
            Ok(BareFile { disk, file, zeros })
        };
        create().map_err(|error: std::io::Error| failed(folder, &error))
    }

    /// Writes this many bytes, at most [`GROUP`], after `position` bytes that were written before. Begins again at the
    /// end of the file. The bytes are durable when it returns.
    pub(super) fn write(&self, position: u64, size: usize) -> Result<(), String> {
        let pages = &self.zeros[..size / PAGE_SIZE];
        self.disk.write_at(&self.file, position % FILE_SIZE, pages).map_err(|error| format!("cannot write: {error}"))
    }
}

impl Drop for BareFile {
    fn drop(&mut self) {
        // The folder is removed later.
        _ = self.disk.remove(Self::NAME);
    }
}

/// Writes pages over a file that is filled, with as many threads as the log has. Returns the MB/s.
pub(super) fn bare(folder: &Path, size: usize, seconds: f64) -> Result<f64, String> {
    let file = BareFile::new(folder)?;
    let next = Mutex::new(0);
    let begun = Instant::now();
    in_turns(seconds, || {
        let position = {
            let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
            *next += size as u64;
            *next - size as u64
        };
        file.write(position, size)
    })?;
    let written = next.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(written as f64 / begun.elapsed().as_secs_f64() / 1e6)
}

/// Keeps a queue of blocks full, and returns the MB/s of groups. Segments are recycled at once, so only a few are filled.
fn log(folder: &Path, seconds: f64) -> Result<f64, String> {
    let files = || Files::open(folder).map_err(|error| failed(folder, &error));
    let mut directory = Directory::open(Arc::new(files()?)).map_err(|error| failed(folder, &error))?;
    let end = directory.read_log(false, |_| Ok(())).map_err(|error| failed(folder, &error))?;
    let manifest = Manifest { shards: vec![ManifestShard::default()], ..Manifest::default() };
    let settings = LogSettings { segment_size: FILE_SIZE, group_size: GROUP - 64 };
    let (groups, segments) = directory.begin(end, settings, manifest, || 1).map_err(|error| failed(folder, &error))?;
    let mut source = Blocks { groups, segments, writer: BlockWriter::new(), value: vec![7; VALUE_SIZE], bytes: 0 };
    for _ in 0..SEGMENTS {
        source.prepare()?;
    }
    let source = Mutex::new(source);
    let disk = files()?;
    let begun = Instant::now();
    in_turns(seconds, || {
        let next = source.lock().unwrap_or_else(PoisonError::into_inner).next_write()?;
        let Some((write, file)) = next else {
            std::thread::yield_now();
            return Ok(());
        };
        let result = disk.write_at(&file, write.offset, write.pages());
        let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
        source.bytes += (write.pages().len() * PAGE_SIZE) as u64;
        source.groups.written(write, result);
        source.groups.failure().map_or(Ok(()), |failure| Err(failure.to_string()))
    })?;
    let elapsed = begun.elapsed().as_secs_f64();
    let bytes = source.into_inner().unwrap_or_else(PoisonError::into_inner).bytes;
    Ok(bytes as f64 / elapsed / 1e6)
}

/// Runs a step again and again, on as many threads as the log has.
fn in_turns(seconds: f64, step: impl Fn() -> Result<(), String> + Sync) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    std::thread::scope(|scope| {
        let run = || {
            while Instant::now() < end {
                step()?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..WRITES_IN_FLIGHT).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
    })
}

fn failed(folder: &Path, error: &dyn std::fmt::Display) -> String {
    format!("cannot write to {}: {error}", folder.display())
}

/// Blocks without end, and the log that they are written to.
struct Blocks {
    groups: GroupWriter,
    segments: Segments<Files>,
    writer: BlockWriter,
    value: Vec<u8>,
    bytes: u64,
}

impl Blocks {
    fn prepare(&mut self) -> Result<(), String> {
        let segment = self.segments.prepare(self.groups.next_group());
        self.groups.add_segment(segment.map_err(|error| format!("cannot prepare a segment: {error}"))?);
        Ok(())
    }

    fn next_write(&mut self) -> Result<Option<(Write, Arc<OpenFile>)>, String> {
        while self.groups.queued_size() < QUEUE_SIZE {
            let put = Operation::Put { value: &self.value, condition: PutCondition::Always };
            assert!(self.writer.append(0, 1, &Request { key: b"key", operation: put }), "a block takes an operation");
            self.groups.push(self.writer.seal(0).expect("it has an operation"));
        }
        while let Some(number) = self.groups.trim(self.groups.durable_group()) {
            self.segments.recycle(number).map_err(|error| format!("cannot recycle a segment: {error}"))?;
        }
        if self.groups.needs_segment() {
            self.prepare()?;
        }
        let Some(write) = self.groups.next_write() else { return Ok(None) };
        while let Some(block) = self.groups.take_spent() {
            self.writer.reuse(block);
        }
        let file = self.segments.file(write.segment);
        Ok(Some((write, file)))
    }
}
