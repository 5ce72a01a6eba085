//! The threads of a server and what they ask of the system.

use std::io::Result;
use std::thread::{Builder, JoinHandle};

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::settings::ServerSettings;

/// File descriptors that are no connections.
const OTHER_DESCRIPTORS: usize = 100;

/// Ends the process when its thread panics: a shard that is gone would leave its clients, and the other shards,
/// waiting for ever.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("skep: a thread of the server panicked (see above); the process ends");
            std::process::abort();
        }
    }
}

/// Starts a thread, on a core of its own if one is given.
pub(crate) fn spawn(name: String, core: Option<usize>, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(move || {
        let _guard = AbortOnPanic;
        if let Some(core) = core {
            let mut cores = CpuSet::new();
            cores.set(core);
            if let Err(error) = sched_setaffinity(None, &cores) {
                tracing::warn!(core, %error, "a shard cannot stay on its core");
            }
        }
        work();
    })
}

/// A core for each shard, or `None` if they are to go where the system puts them: pinned shards would be worse off
/// where others, such as the merge daemons, have no core left.
pub(crate) fn cores_for_shards(settings: &ServerSettings) -> Option<Vec<usize>> {
    if !settings.pin_threads {
        return None;
    }
    let allowed = sched_getaffinity(None).ok()?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    (cores.len() > usize::from(settings.shards)).then_some(cores)
}

/// Asks the system for the file descriptors of so many connections; answers how many connections there may be.
pub(crate) fn connections_granted(connections_max: usize) -> usize {
    let wanted = connections_max.saturating_add(OTHER_DESCRIPTORS) as u64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        // If the system refuses, the limit stays what it is.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let granted = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |current| current as usize);
    let connections = granted.saturating_sub(OTHER_DESCRIPTORS.min(granted / 2)).clamp(1, connections_max.max(1));
    if connections < connections_max {
        tracing::warn!("the limit of {granted} open files leaves room for {connections} connections");
    }
    connections
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::spawn;

    #[test]
    fn a_panic_ends_the_process() {
        const VARIABLE: &str = "SKEP_TEST_PANIC";
        if std::env::var_os(VARIABLE).is_some() {
            let thread = spawn("skep-test".to_owned(), None, || panic!("on purpose")).unwrap();
            let _ = thread.join();
            std::process::exit(0);
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "threads::tests::a_panic_ends_the_process", "--nocapture"])
            .env(VARIABLE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.signal(), Some(6), "{text}");
        assert!(text.contains("on purpose") && text.contains("the process ends"), "{text}");
    }
}
