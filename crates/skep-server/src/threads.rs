//! The threads of a server and what they ask of the system.

use std::io::Result;
use std::thread::{Builder, JoinHandle};

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::settings::ServerSettings;

/// Most connections that a server takes, if the system allows as many.
const CONNECTIONS_MAX: usize = 10_000;
/// File descriptors that are no connections.
const OTHER_DESCRIPTORS: usize = 1000;

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

/// Asks for as many file descriptors as [`CONNECTIONS_MAX`] needs; answers how many connections there may be.
pub(crate) fn raise_connections_max() -> usize {
    let wanted = (CONNECTIONS_MAX + OTHER_DESCRIPTORS) as u64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        // If the system refuses, the limit stays what it is.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let granted = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |current| current as usize);
    granted.saturating_sub(OTHER_DESCRIPTORS.min(granted / 2)).clamp(1, CONNECTIONS_MAX)
}
