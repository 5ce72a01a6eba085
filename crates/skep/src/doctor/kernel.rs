//! Settings of the kernel.

use std::fs;
use std::path::Path;

use super::{Finding, read};

/// The connections that may wait to be accepted: what the server asks for.
const BACKLOG: u64 = 1024;

/// Examines the settings of the kernel whose files are under `root`. Leaves out what the kernel does not have.
pub(super) fn examine(root: &Path) -> Vec<Finding> {
    [huge_pages(root), overcommit(root), swap(root), backlog(root), governor(root), numa_balancing(root)]
        .into_iter()
        .flatten()
        .collect()
}

fn huge_pages(root: &Path) -> Option<Finding> {
    let choices = read(root, "sys/kernel/mm/transparent_hugepage/enabled")?;
    let chosen = choices.split(['[', ']']).nth(1)?;
    Some(match chosen {
        "never" => Finding::advice(
            "huge pages",
            "transparent huge pages: never",
            "an access to memory that is in no cache also looks for its page, in memory that may be in no cache either",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, at each boot",
        ),
        chosen => Finding::good("huge pages", format!("transparent huge pages: {chosen}")),
    })
}

fn overcommit(root: &Path) -> Option<Finding> {
    Some(match read(root, "proc/sys/vm/overcommit_memory")?.as_str() {
        "2" => Finding::advice(
            "overcommit",
            "vm.overcommit_memory is 2: memory is counted when it is reserved",
            "a start may be refused although the memory is free",
            "sysctl vm.overcommit_memory=0",
        ),
        mode => Finding::good(
            "overcommit",
            format!("vm.overcommit_memory is {mode}; a snapshot needs no copy of the process"),
        ),
    })
}

fn swap(root: &Path) -> Option<Finding> {
    let areas = read(root, "proc/swaps")?;
    // A heading, and a line for each area.
    let count = areas.lines().skip(1).count();
    if count == 0 {
        return Some(Finding::good("swap", "none"));
    }
    Some(Finding::advice(
        "swap",
        format!("{count} {}", if count == 1 { "area" } else { "areas" }),
        "an access to a page that was swapped out waits for the disk, and all clients of its shard wait too",
        "let the server not be swapped: MemorySwapMax=0 in its systemd unit, as in that of the package; or swapoff -a",
    ))
}

fn backlog(root: &Path) -> Option<Finding> {
    let limit: u64 = read(root, "proc/sys/net/core/somaxconn")?.parse().ok()?;
    Some(if limit >= BACKLOG {
        Finding::good("backlog", format!("net.core.somaxconn is {limit}"))
    } else {
        Finding::advice(
            "backlog",
            format!("net.core.somaxconn is {limit}"),
            format!("of more than {limit} clients that connect at one moment, the others wait for a second"),
            format!("sysctl net.core.somaxconn={BACKLOG}"),
        )
    })
}

fn governor(root: &Path) -> Option<Finding> {
    let cores = fs::read_dir(root.join("sys/devices/system/cpu")).ok()?;
    let mut names: Vec<String> = cores
        .flatten()
        .filter_map(|core| fs::read_to_string(core.path().join("cpufreq/scaling_governor")).ok())
        .map(|name| name.trim().to_owned())
        .collect();
    names.sort();
    names.dedup();
    let all = names.join(", ");
    Some(match names.iter().all(|name| name == "performance") {
        _ if names.is_empty() => return None,
        true => Finding::good("frequency", "governor performance"),
        false => Finding::advice(
            "frequency",
            format!("governor {all}"),
            "a core that was idle is slow at first, so single requests take longer",
            "cpupower frequency-set -g performance",
        ),
    })
}

fn numa_balancing(root: &Path) -> Option<Finding> {
    let is_on = read(root, "proc/sys/kernel/numa_balancing")? != "0";
    let nodes = fs::read_dir(root.join("sys/devices/system/node")).ok()?;
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
    let count = nodes.flatten().filter(|entry| is_node(&entry.file_name().to_string_lossy())).count();
    Some(match (is_on, count) {
        (_, 0 | 1) => return None,
        (false, count) => Finding::good("NUMA", format!("{count} nodes, without balancing")),
        (true, count) => Finding::advice(
            "NUMA",
            format!("{count} nodes, with balancing"),
            "the kernel takes pages away for a moment, to see who uses them",
            "sysctl kernel.numa_balancing=0, and --pin-threads",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::State::{Advice, Good};
    use super::super::tests::{states, write};
    use super::examine;

    #[test]
    fn settings_of_the_kernel_are_judged() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(states(&examine(root.path())), [], "a kernel that says nothing");
        write(
            root.path(),
            &[
                ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
                ("proc/sys/vm/overcommit_memory", "0\n"),
                ("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n"),
                ("proc/sys/net/core/somaxconn", "4096\n"),
                ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
                ("proc/sys/kernel/numa_balancing", "0\n"),
                ("sys/devices/system/node/node0/cpulist", "0-3\n"),
                ("sys/devices/system/node/node1/cpulist", "4-7\n"),
                ("sys/devices/system/node/possible", "0-1\n"),
            ],
        );
        let names = ["huge pages", "overcommit", "swap", "backlog", "frequency", "NUMA"];
        assert_eq!(states(&examine(root.path())), names.map(|name| (name, Good)));
        write(
            root.path(),
            &[
                ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
                ("proc/sys/vm/overcommit_memory", "2\n"),
                ("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 1 0 -2\n"),
                ("proc/sys/net/core/somaxconn", "128\n"),
                ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
                ("proc/sys/kernel/numa_balancing", "1\n"),
            ],
        );
        assert_eq!(states(&examine(root.path())), names.map(|name| (name, Advice)));
    }
}
