//! The changes of modules that are in progress: each has a thread.

use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::thread::sched_setaffinity;
use skep_function::Module;

use super::FunctionLoader;
use crate::limits::{COMPILER_NICENESS, FUNCTION_LOADS_MAX};

/// The reason why a change is not made.
pub(super) const STOPPING: &str = "the server stops";

/// A change of the modules.
#[derive(Debug)]
pub(crate) enum Change {
    /// Loads a module.
    Load {
        source: String,
        /// Also if there is a module of its name.
        replaces: bool,
    },
    /// Removes a module.
    Delete { name: String },
}

/// The changes that are in progress. Each has a thread.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Changes without an outcome.
    count: usize,
    threads: Vec<JoinHandle<()>>,
    /// The server stops. No change begins any more.
    pub(super) is_stopping: bool,
}

/// A change that is in progress, or its outcome: the name of the module, none if there is no such module to remove, or why
/// it was refused.
pub(crate) type ChangeInProgress = Arc<OnceLock<Result<Option<String>, String>>>;

impl FunctionLoader {
    /// Begins a change in a thread of its own. Returns `None` if too many changes are in progress.
    pub(crate) fn begin(self: &Arc<Self>, change: Change) -> Option<ChangeInProgress> {
        let mut changes = self.changes();
        // Those that have ended are not joined: that would wait until a thread that comes last has left.
        changes.threads.retain(|thread| !thread.is_finished());
        if changes.count >= FUNCTION_LOADS_MAX {
            return None;
        }
        let (begun, loader) = (ChangeInProgress::default(), Arc::clone(self));
        if changes.is_stopping {
            let _ = begun.set(Err(STOPPING.to_owned()));
            return Some(begun);
        }
        let outcome = Arc::clone(&begun);
        let work = move || {
            // A shard that is pinned has begun the thread. If the system refuses, the change is made all the same.
            let _ = loader.cores.as_ref().map(|cores| sched_setaffinity(None, cores));
            // A fault of the compiler must not let the client wait for ever.
            let made = panic::catch_unwind(AssertUnwindSafe(|| loader.make(&change)));
            // First: who has the reply may begin the next one.
            loader.changes().count -= 1;
            let _ = outcome.set(made.unwrap_or_else(|_| Err("the server has failed: see its log".to_owned())));
        };
        match thread::Builder::new().name("skep-functions".to_owned()).spawn(work) {
            Ok(thread) => {
                changes.count += 1;
                changes.threads.push(thread);
            }
            Err(_) => _ = begun.set(Err("the server has no thread for it".to_owned())),
        }
        Some(begun)
    }

    /// Begins no more changes, refuses those that wait for others, and waits until their threads have ended: about as long
    /// as one source is compiled and written.
    pub(crate) fn stop(&self) {
        let mut changes = self.changes();
        changes.is_stopping = true;
        let threads = mem::take(&mut changes.threads);
        drop(changes);
        threads.into_iter().for_each(join);
    }

    pub(super) fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compiles a source. The shards come first while that is done, and not while locks are held that they take.
pub(super) fn compile(source: &str) -> Result<Module, String> {
    let come_last = || _ = rustix::process::setpriority_process(None, COMPILER_NICENESS);
    skep_function::compile_after(come_last, source).map_err(|error| error.to_string())
}

fn join(thread: JoinHandle<()>) {
    // Its outcome has what happened.
    let _ = thread.join();
}
