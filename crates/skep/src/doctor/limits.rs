//! What the process may use: cores, memory, file descriptors.

use std::path::Path;
use std::thread;

use rustix::process::{Resource, getrlimit};

use super::{Finding, read};
use crate::size::MemorySize;

/// File descriptors of a server besides those of its connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// Examines the limits of this process. A server that another user or a service manager starts may have others.
pub(super) fn examine(root: &Path, max_clients: u64) -> Vec<Finding> {
    let count = thread::available_parallelism().map_or(1, usize::from);
    let hard = getrlimit(Resource::Nofile).maximum;
    let groups = read(root, "proc/self/cgroup").unwrap_or_default();
    let mut findings = vec![cores(count, quota(root, &groups)), descriptors(hard, max_clients)];
    if let Some(total) = skep_server::memory_total() {
        let total = MemorySize(total >> 20 << 20);
        findings.push(Finding::good("memory", format!("{total}; default sizes are made to fit it")));
    }
    findings
}

/// Returns the cores whose time the control group of the process may take, if it has a limit. A group of the second version
/// has the file `cpu.max`: microseconds, or `max`, and the microseconds in which it may take them.
fn quota(root: &Path, groups: &str) -> Option<f64> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let limit = read(root, &format!("sys/fs/cgroup{group}/cpu.max"))?;
    let (time, period) = limit.split_once(' ')?;
    Some(time.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

fn cores(count: usize, quota: Option<f64>) -> Finding {
    match quota {
        Some(quota) if quota < count as f64 => Finding::advice(
            "cores",
            format!("{count}, of which the control group may use the time of {quota:.1}"),
            "a shard that has used this time stands still until the next period, often for tens of milliseconds",
            "give the group whole cores (AllowedCPUs=, cpuset) instead of a part of their time (CPUQuota=, --cpus)",
        ),
        _ if count == 1 => Finding::advice(
            "cores",
            "1",
            "clients on this machine, the kernel's network work and the shard take turns",
            "use a machine with more cores",
        ),
        _ => Finding::good("cores", format!("{count}; three quarters of them run a shard each, by default")),
    }
}

fn descriptors(hard: Option<u64>, max_clients: u64) -> Finding {
    let needed = max_clients.saturating_add(OTHER_DESCRIPTORS);
    match hard {
        Some(hard) if hard < needed => Finding::advice(
            "open files",
            format!("at most {hard}"),
            format!("the server takes {} connections instead of {max_clients}", hard.saturating_sub(OTHER_DESCRIPTORS)),
            format!("LimitNOFILE={needed} in the systemd unit, or ulimit -n {needed}"),
        ),
        Some(hard) => Finding::good("open files", format!("at most {hard}, enough for {max_clients} connections")),
        None => Finding::good("open files", "without limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State::{Advice, Good};
    use super::super::tests::write;
    use super::{cores, descriptors, quota};

    #[test]
    fn limits_are_judged() {
        let root = tempfile::tempdir().unwrap();
        let groups = "5:memory:/a\n0::/system.slice/skep.service";
        assert_eq!(quota(root.path(), groups), None);
        let file = "sys/fs/cgroup/system.slice/skep.service/cpu.max";
        for (text, expected) in [("max 100000\n", None), ("150000 100000\n", Some(1.5))] {
            write(root.path(), &[(file, text)]);
            assert_eq!(quota(root.path(), groups), expected);
        }
        assert_eq!(quota(root.path(), "5:memory:/a"), None, "control groups of the first version");

        for (count, quota, state) in
            [(4, None, Good), (4, Some(4.0), Good), (4, Some(1.5), Advice), (1, None, Advice), (1, Some(0.5), Advice)]
        {
            assert_eq!(cores(count, quota).state, state, "{count} cores, {quota:?}");
        }
        for (hard, state) in [(None, Good), (Some(10_064), Good), (Some(10_063), Advice), (Some(20), Advice)] {
            assert_eq!(descriptors(hard, 10_000).state, state, "{hard:?}");
        }
        assert!(descriptors(Some(1024), 10_000).costs.contains("takes 960 connections instead of 10000"));
    }
}
