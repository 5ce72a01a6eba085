//! The disk of a data directory: where it is, how fast it is, and whether its flushes reach it.
//!
//! A flush that a disk performs takes time: about 5 to 20 ms if it rotates, 0.3 to 3 ms in most SSDs, 20 µs and more in those
//! whose memory survives a loss of power. What is faster has reached no disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{major, minor, statvfs};

use super::{Finding, read};
use crate::failure::{Failure, reason};
use crate::size::MemorySize;

/// Bytes that are written to find out how fast that is.
const SEQUENTIAL_SIZE: usize = 64 << 20;
/// Flushes that are timed, and the time after which no more are.
const FLUSHES: usize = 300;
const FLUSH_TIME_MAX: Duration = Duration::from_secs(3);
/// A flush that takes less has reached no disk.
const IMPOSSIBLE: Duration = Duration::from_micros(10);
/// A flush that takes more limits what clients wait for.
const SLOW: Duration = Duration::from_millis(4);
/// File systems whose files are in memory.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
/// Options of file systems that leave out flushes.
const WITHOUT_FLUSHES: [&str; 3] = ["nobarrier", "barrier=0", "nolog"];

/// Examines the disk of a directory, or of the one that will hold it. The files of the kernel are under `root`.
pub(super) fn examine(root: &Path, directory: &Path) -> Result<Vec<Finding>, Failure> {
    let failed = |error: &io::Error| {
        let directory = directory.display();
        Failure::Runtime(format!(
            "cannot examine {directory}: {}: choose a directory that exists and can be written",
            reason(error)
        ))
    };
    let absolute = std::path::absolute(directory).map_err(|error| failed(&error))?;
    let existing = absolute.ancestors().find(|folder| folder.exists()).unwrap_or(&absolute);
    let place = data_directory(&absolute, existing);
    let absolute = fs::canonicalize(existing).map_err(|error| failed(&error))?;
    let device = fs::metadata(&absolute).map_err(|error| failed(&error))?.dev();
    let free = statvfs(&absolute).map_err(|error| failed(&error.into()))?;
    let mounts = read(root, "proc/self/mountinfo").unwrap_or_default();
    let measured = Measured::new(&absolute).map_err(|error| failed(&error))?;
    let mut findings = vec![place];
    findings.extend(mount_of(&mounts, &absolute).map(|mount| file_system(&mount)));
    findings.push(space(free.f_bavail * free.f_frsize));
    findings.push(flushes(&measured.flushes, write_cache(root, device).as_deref()));
    findings.push(Finding::good(
        "writes",
        format!("{} in a second, one after another", MemorySize(measured.written_in_second >> 20 << 20)),
    ));
    Ok(findings)
}

/// Names the folder that is measured: `existing`, the data directory or the nearest folder above it. A start makes the
/// data directory, but not the folders above it.
fn data_directory(directory: &Path, existing: &Path) -> Finding {
    let (shown, measured) = (directory.display(), existing.display());
    match directory.parent() {
        _ if directory == existing => Finding::good("directory", format!("{shown}, measured here")),
        Some(parent) if parent != existing => Finding::danger(
            "directory",
            format!("{} does not exist; measured in {measured}", parent.display()),
            format!("`skep serve --data-dir {shown}` does not start, and the disk may be another one later"),
            format!("mkdir -p {}", parent.display()),
        ),
        _ => Finding::good("directory", format!("{shown} does not exist yet; measured in {measured}")),
    }
}

/// Where a directory is mounted.
#[derive(Debug, PartialEq)]
struct Mount {
    kind: String,
    options: String,
}

/// Returns the mount of a directory: the last one of the longest path that it begins with.
fn mount_of(mounts: &str, directory: &Path) -> Option<Mount> {
    let mut best = None;
    let mut depth = 0;
    for line in mounts.lines() {
        // 36 35 98:0 /root /mount options … - kind source options
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split(' ').collect();
        let after: Vec<&str> = after.split(' ').collect();
        let (Some(path), Some(options), Some(kind)) = (before.get(4), before.get(5), after.first()) else { continue };
        let path = PathBuf::from(path.replace("\\040", " "));
        let length = path.components().count();
        if directory.starts_with(&path) && length >= depth {
            depth = length;
            let options = format!("{options},{}", after.get(2).unwrap_or(&""));
            best = Some(Mount { kind: (*kind).to_owned(), options });
        }
    }
    best
}

fn file_system(mount: &Mount) -> Finding {
    let Mount { kind, options } = mount;
    if IN_MEMORY.contains(&kind.as_str()) {
        return Finding::danger(
            "file system",
            format!("{kind}: its files are in memory"),
            "all data is lost when the machine stops",
            "choose a directory on a disk with --data-dir",
        );
    }
    match options.split(',').find(|option| WITHOUT_FLUSHES.contains(option)) {
        Some(option) => Finding::danger(
            "file system",
            format!("{kind}, mounted with {option}: flushes do not reach the disk"),
            "acknowledged writes may be lost when the power fails",
            format!("mount it without {option}"),
        ),
        None => Finding::good("file system", kind.clone()),
    }
}

fn space(free: u64) -> Finding {
    let is = format!("{} free", MemorySize(free >> 20 << 20));
    match free < 1 << 30 {
        false => Finding::good("space", is),
        true => Finding::advice(
            "space",
            is,
            "when no more can be written, writes get an error until there is room again",
            "give the directory a disk with room for twice the memory of the spaces",
        ),
    }
}

/// Returns what the kernel knows of the cache of a device: `write back` if it has one that a flush empties. A partition has
/// the file of its disk.
fn write_cache(root: &Path, device: u64) -> Option<String> {
    let device = format!("sys/dev/block/{}:{}", major(device), minor(device));
    read(root, &format!("{device}/queue/write_cache")).or_else(|| read(root, &format!("{device}/../queue/write_cache")))
}

/// Judges the times of flushes, which are sorted.
fn flushes(times: &[Duration], write_cache: Option<&str>) -> Finding {
    let at = |part: f64| times.get(((times.len() as f64) * part) as usize).copied().unwrap_or_default();
    let (median, tail) = (at(0.5), at(0.99));
    let cache = match write_cache {
        Some("write through") => "; the kernel takes its writes for lasting, and sends no flushes",
        Some(_) => "; it has a cache, which flushes empty",
        None => "",
    };
    let is = format!("{median:.0?} for a flush of 4 KiB, 99% within {tail:.0?}{cache}");
    if median < IMPOSSIBLE {
        return Finding::danger(
            "flushes",
            is,
            "no disk is so fast: an acknowledged write may be lost when the power fails, also at the level always",
            "let flushes reach the disk: of a virtual machine, choose the cache mode none or writethrough",
        );
    }
    match median > SLOW {
        false => Finding::good("flushes", is),
        true => Finding::advice(
            "flushes",
            is,
            "at the level always, a client waits for one or two flushes; many clients share them",
            "choose an SSD whose memory survives a loss of power, or --durability second",
        ),
    }
}

/// What a disk has done.
struct Measured {
    /// The times of single flushes, sorted.
    flushes: Vec<Duration>,
    /// Bytes.
    written_in_second: u64,
}

impl Measured {
    /// Writes a file in the directory, and removes it.
    fn new(directory: &Path) -> io::Result<Measured> {
        let path = directory.join(format!(".skep-doctor-{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let measured = Self::write(file);
        fs::remove_file(&path)?;
        measured
    }

    fn write(mut file: File) -> io::Result<Measured> {
        let block = vec![0x5a; 1 << 20];
        let begun = Instant::now();
        for _ in 0..SEQUENTIAL_SIZE / block.len() {
            file.write_all(&block)?;
        }
        file.sync_data()?;
        let written_in_second = (SEQUENTIAL_SIZE as f64 / begun.elapsed().as_secs_f64()) as u64;
        let mut flushes = Vec::new();
        let begun = Instant::now();
        while flushes.len() < FLUSHES && begun.elapsed() < FLUSH_TIME_MAX {
            let before = Instant::now();
            file.write_all(&block[..4096])?;
            file.sync_data()?;
            flushes.push(before.elapsed());
        }
        flushes.sort();
        Ok(Measured { flushes, written_in_second })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::super::State::{Advice, Danger, Good};
    use super::super::tests::write;
    use super::{Mount, data_directory, examine, file_system, flushes, mount_of, space, write_cache};

    const MOUNTS: &str = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        23 22 0:22 / /data rw - tmpfs tmpfs rw,size=1g\n\
        24 23 254:1 / /data/my\\040disk rw shared:1 - xfs /dev/vdb rw,nobarrier\n";

    #[test]
    fn the_mount_of_a_directory_is_found() {
        for (directory, kind) in
            [("/", "ext4"), ("/database", "ext4"), ("/data", "tmpfs"), ("/data/x", "tmpfs"), ("/data/my disk/x", "xfs")]
        {
            assert_eq!(mount_of(MOUNTS, Path::new(directory)).unwrap().kind, kind, "{directory}");
        }
        assert_eq!(mount_of("", Path::new("/")), None);
        let states = ["/", "/data", "/data/my disk"]
            .map(|directory| file_system(&mount_of(MOUNTS, Path::new(directory)).unwrap()).state);
        assert_eq!(states, [Good, Danger, Danger]);
        let mount = Mount { kind: "ext4".to_owned(), options: "rw,errors=remount-ro".to_owned() };
        assert_eq!(file_system(&mount).state, Good);
    }

    #[test]
    fn flushes_that_no_disk_performs_are_noticed() {
        for (microseconds, state) in [(3, Danger), (30, Good), (900, Good), (4000, Good), (8000, Advice)] {
            let times = vec![Duration::from_micros(microseconds); 100];
            assert_eq!(flushes(&times, None).state, state, "{microseconds} µs");
        }
        let times: Vec<Duration> = (1..=100).map(|tenth| Duration::from_micros(100 * tenth)).collect();
        let finding = flushes(&times, Some("write back"));
        assert_eq!(finding.is, "5ms for a flush of 4 KiB, 99% within 10ms; it has a cache, which flushes empty");
        assert_eq!([space(1 << 29), space(1 << 31)].map(|finding| finding.state), [Advice, Good]);
    }

    #[test]
    fn the_cache_of_a_disk_or_of_that_of_a_partition_is_read() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("sys/dev/block/8:0/queue/write_cache", "write back\n"),
            ("sys/dev/block/queue/write_cache", "write through\n"),
        ];
        write(root.path(), &files);
        fs::create_dir_all(root.path().join("sys/dev/block/8:1")).unwrap();
        assert_eq!(write_cache(root.path(), 0x800).as_deref(), Some("write back"));
        assert_eq!(write_cache(root.path(), 0x801).as_deref(), Some("write through"));
        assert_eq!(write_cache(root.path(), 0x900), None);
    }

    #[test]
    fn a_directory_whose_parent_is_missing_is_a_danger() {
        for (directory, existing, state, text) in [
            ("/data/skep", "/data/skep", Good, "/data/skep, measured here"),
            ("/data/skep", "/data", Good, "/data/skep does not exist yet; measured in /data"),
            ("/data/skep", "/", Danger, "/data does not exist; measured in /"),
        ] {
            let finding = data_directory(Path::new(directory), Path::new(existing));
            assert_eq!((finding.state, finding.is.as_str()), (state, text), "{directory}");
            assert_eq!(finding.change.as_str(), if state == Danger { "mkdir -p /data" } else { "" });
        }
        let folder = tempfile::tempdir().unwrap();
        let states =
            ["", "a", "a/b", "a/b/c"].map(|path| examine(Path::new("/"), &folder.path().join(path)).unwrap()[0].state);
        assert_eq!(states, [Good, Good, Danger, Danger]);
    }

    #[test]
    fn a_directory_is_examined_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let findings = examine(Path::new("/"), directory.path()).unwrap();
        assert!(findings.iter().any(|finding| finding.what == "flushes"), "{findings:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let later = examine(Path::new("/"), &directory.path().join("none")).unwrap();
        assert_eq!(later.len(), findings.len(), "the folder that will hold it");
    }
}
