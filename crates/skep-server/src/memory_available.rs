//! The memory that the server may take: as much as the machine can spare and its control groups allow.
//!
//! A control group (version 2 or 1) limits itself and all groups below it, so every group from ours up to the root
//! is asked. File pages that no process has used lately count as available, as they do in `MemAvailable`.

use std::fs::read_to_string;
use std::path::Path;

/// Returns the bytes that a process could still take, or `None` where the system does not say. `root` is `/`.
pub(crate) fn memory_available(root: &Path) -> Option<u64> {
    smallest(root, "MemAvailable:", |group, files| {
        let limit = number(group, files.limit)?;
        let used = number(group, files.used).unwrap_or(0);
        let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
        let idle = field(&stat, files.idle).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(idle)))
    })
}

/// Returns the bytes of the machine or of its tightest control group, used ones too, or `None` where the system does not
/// say. `root` is `/`.
pub(crate) fn memory_total(root: &Path) -> Option<u64> {
    smallest(root, "MemTotal:", |group, files| number(group, files.limit))
}

/// Returns the smallest of a field of the machine, and of `of_group` for each of our control groups; all in bytes.
fn smallest(root: &Path, name: &str, of_group: fn(&Path, &Files) -> Option<u64>) -> Option<u64> {
    let machine = read_to_string(root.join("proc/meminfo")).ok().and_then(|text| field(&text, name));
    let machine = machine.map(|kibibytes| kibibytes * 1024);
    let groups = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    groups.lines().filter_map(|line| smallest_of_groups(root, line, of_group)).chain(machine).min()
}

/// The files of one version of control groups.
struct Files {
    directory: &'static str,
    limit: &'static str,
    used: &'static str,
    idle: &'static str,
}

const VERSION_2: Files =
    Files { directory: "sys/fs/cgroup", limit: "memory.max", used: "memory.current", idle: "inactive_file" };
const VERSION_1: Files = Files {
    directory: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    idle: "total_inactive_file",
};

/// Returns the smallest value of the groups of a line of `/proc/self/cgroup`, such as `0::/system.slice/skep.service`.
fn smallest_of_groups(root: &Path, line: &str, of_group: fn(&Path, &Files) -> Option<u64>) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let files = match controllers {
        "" => VERSION_2,
        _ if controllers.split(',').any(|controller| controller == "memory") => VERSION_1,
        _ => return None,
    };
    let top = root.join(files.directory);
    // In a container the path may be one of the host's; the top is there in any case.
    let own = top.join(path.trim_start_matches('/'));
    own.ancestors().take_while(|group| group.starts_with(&top)).filter_map(|group| of_group(group, &files)).min()
}

/// Returns the number in a file of a group.
fn number(group: &Path, file: &str) -> Option<u64> {
    read_to_string(group.join(file)).ok()?.trim().parse().ok()
}

/// Returns the number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, remove_dir_all, write};
    use std::path::PathBuf;

    use super::{memory_available, memory_total};

    fn machine(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("skep-memory-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_tightest_limit_counts() {
        let meminfo = ("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    5000 kB\n");
        type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], [Option<u64>; 2]);
        let cases: [Case<'_>; 6] = [
            ("nothing", &[], [None; 2]),
            ("bare", &[meminfo], [Some(5000 * 1024), Some(9000 * 1024)]),
            (
                "two",
                &[
                    meminfo,
                    ("proc/self/cgroup", "0::/a/b\n"),
                    ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                    ("sys/fs/cgroup/a/memory.max", "1000000\n"),
                    ("sys/fs/cgroup/a/memory.current", "600000\n"),
                    ("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 100000\n"),
                ],
                [Some(500_000), Some(1_000_000)],
            ),
            (
                "one",
                &[
                    meminfo,
                    ("proc/self/cgroup", "5:cpu:/c\n4:memory:/host/path\n"),
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000\n"),
                    ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n"),
                ],
                [Some(2_000_000), Some(3_000_000)],
            ),
            ("odd", &[meminfo, ("proc/self/cgroup", "x\n1:\n:::\n")], [Some(5000 * 1024), Some(9000 * 1024)]),
            (
                // Version 1 writes a number beyond any memory where there is no limit. A hybrid machine has both versions.
                "hybrid",
                &[
                    meminfo,
                    ("proc/self/cgroup", "4:memory:/a\n0::/a\n"),
                    ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
                    ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000000\n"),
                ],
                [Some(5000 * 1024), Some(9000 * 1024)],
            ),
        ];
        for (name, files, expected) in cases {
            let root = machine(name, files);
            assert_eq!([memory_available(&root), memory_total(&root)], expected, "{name}");
            let _ = remove_dir_all(root);
        }
    }
}
