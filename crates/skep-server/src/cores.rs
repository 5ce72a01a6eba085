//! The cores that shards are pinned to, if the settings ask for it.
//!
//! A thread that is pinned to a core waits for every other thread that is pinned to the same one, however many cores
//! are idle. So the shards take those cores of the process's affinity (all cores, or those that `taskset` or a cpuset
//! leaves) to which the fewest other threads are pinned. Threads that may run elsewhere do not count: the scheduler
//! moves them.

use std::fs::{read_dir, read_to_string};
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A core that the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Core {
    number: usize,
    /// Threads that may run on no other core.
    pinned_count: usize,
}

/// Returns the cores that the process may use, with the number of threads of the machine that are pinned to each.
pub(crate) fn allowed() -> io::Result<Vec<Core>> {
    let allowed = sched_getaffinity(None)?;
    let mut cores: Vec<Core> = (0..CpuSet::MAX_CPU)
        .filter(|&number| allowed.is_set(number))
        .map(|number| Core { number, pinned_count: 0 })
        .collect();
    for number in entries("/proc").flat_map(|process| entries(&format!("{process}/task"))).filter_map(|thread| {
        // A thread may have ended since it was listed.
        pinned_to(&read_to_string(format!("{thread}/status")).ok()?)
    }) {
        if let Some(core) = cores.iter_mut().find(|core| core.number == number) {
            core.pinned_count += 1;
        }
    }
    Ok(cores)
}

/// Returns the paths of the numbered entries of a directory of `/proc`.
fn entries(directory: &str) -> impl Iterator<Item = String> + use<> {
    let names =
        read_dir(directory).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let directory = directory.to_owned();
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).map(move |name| format!("{directory}/{name}"))
}

/// Returns the only core that a thread may run on, by its `/proc/PID/task/TID/status`.
fn pinned_to(status: &str) -> Option<usize> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    // Threads of the kernel have no memory of their own; every core has its share of them.
    field("VmSize:")?;
    field("Cpus_allowed_list:")?.trim().parse().ok()
}

/// Chooses this many cores, those with the fewest pinned threads, or none if there are not enough.
pub(crate) fn choose(mut cores: Vec<Core>, count: usize) -> Option<Vec<usize>> {
    cores.sort_by_key(|core| core.pinned_count);
    (cores.len() >= count).then(|| cores.iter().take(count).map(|core| core.number).collect())
}

/// Pins the calling thread to a core.
pub(crate) fn pin_to(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    if let Err(error) = sched_setaffinity(None, &cores) {
        tracing::warn!(core, %error, "a shard cannot stay on its core");
    }
}

#[cfg(test)]
mod tests {
    use super::{Core, choose, pinned_to};

    fn cores(counts: &[(usize, usize)]) -> Vec<Core> {
        counts.iter().map(|&(number, pinned_count)| Core { number, pinned_count }).collect()
    }

    #[test]
    fn the_cores_with_the_fewest_pinned_threads_are_chosen() {
        let idle = [(0, 0), (1, 0), (2, 0), (3, 0)];
        let beside_another_server = [(0, 1), (1, 1), (2, 0), (3, 0)];
        let crowded = [(0, 2), (2, 1), (5, 3), (7, 1)];
        for (counts, count, expected) in [
            (&idle[..], 2, Some(vec![0, 1])),
            (&beside_another_server, 2, Some(vec![2, 3])),
            (&beside_another_server, 3, Some(vec![2, 3, 0])),
            (&crowded, 3, Some(vec![2, 7, 0])),
            (&crowded, 4, Some(vec![2, 7, 0, 5])),
            (&crowded, 5, None),
            (&[], 1, None),
        ] {
            assert_eq!(choose(cores(counts), count), expected, "{count} of {counts:?}");
        }
    }

    #[test]
    fn a_thread_is_pinned_if_one_core_is_left_to_it() {
        for (status, expected) in [
            ("Name:\tskep-shard-0\nVmSize:\t  100 kB\nCpus_allowed:\t08\nCpus_allowed_list:\t3\n", Some(3)),
            ("Name:\tskep\nVmSize:\t  100 kB\nCpus_allowed_list:\t0-3\n", None),
            ("Name:\tskep\nVmSize:\t  100 kB\nCpus_allowed_list:\t1,3\n", None),
            ("Name:\tmigration/3\nCpus_allowed_list:\t3\n", None),
            ("", None),
        ] {
            assert_eq!(pinned_to(status), expected, "{status:?}");
        }
    }
}
