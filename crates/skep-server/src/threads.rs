//! The threads of a server, and the resources that they need of the system.

use std::io::Result;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::cores::pin_to;
use crate::limits::OTHER_DESCRIPTORS;

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

/// The threads of a server. Each waits until all have been started. So if the system refuses the last one, no thread
/// has begun work that would have to be undone.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// One for each thread that waits. A thread whose sender is dropped ends without having worked.
    waiting: Vec<Sender<()>>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts a thread that waits; it will work on this core if one is given.
    pub(crate) fn spawn(
        &mut self,
        name: String,
        core: Option<usize>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let (waiting, begun) = channel();
        let handle = Builder::new().name(name).spawn(move || {
            let _guard = AbortOnPanic;
            if begun.recv().is_err() {
                return;
            }
            if let Some(core) = core {
                pin_to(core);
            }
            work();
        })?;
        self.waiting.push(waiting);
        self.handles.push(handle);
        Ok(())
    }

    /// Lets all threads work.
    pub(crate) fn begin(&mut self) {
        for waiting in self.waiting.drain(..) {
            waiting.send(()).expect("a thread that waits takes what it waits for");
        }
    }
}

impl Drop for Threads {
    /// Waits until all threads have ended. Those that work have been told to by their owner.
    fn drop(&mut self) {
        self.waiting.clear();
        for handle in self.handles.drain(..) {
            // A thread that panics aborts the process, so there is nothing to learn from the result.
            let _ = handle.join();
        }
    }
}

/// Asks the system for the file descriptors of this number of connections. Returns the number that it grants.
pub(crate) fn connections_granted(connections_max: usize) -> usize {
    let wanted = connections_max.saturating_add(OTHER_DESCRIPTORS) as u64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        // If the system refuses, the limit stays as it is.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let granted = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |current| current as usize);
    granted.saturating_sub(OTHER_DESCRIPTORS.min(granted / 2)).clamp(1, connections_max.max(1))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::Threads;

    #[test]
    fn a_panic_ends_the_process() {
        const VARIABLE: &str = "SKEP_TEST_PANIC";
        if std::env::var_os(VARIABLE).is_some() {
            let mut threads = Threads::default();
            threads.spawn("skep-test".to_owned(), None, || panic!("on purpose")).unwrap();
            threads.begin();
            drop(threads);
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
