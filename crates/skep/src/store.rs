//! The store for embedding: a processor, and the thread that merges its free slabs in the background.

use std::thread::{self, JoinHandle};

use skep_store::hash::Settings;
use skep_store::memory::RegionError;
use skep_store::processor::{Processor, Replies, Statistics};

use crate::Request;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting is out of its range; the text names it.
    #[error("{0}")]
    Settings(String),
    /// There is no memory of this size for it.
    #[error(transparent)]
    Memory(#[from] RegionError),
}

/// One store in this process: one shard, without a network.
///
/// A store may move from thread to thread; only one works on it at a time. A program that wants several cores to work
/// opens several stores and divides its keys among them, as the server does.
pub struct Store {
    // Before the thread: the daemon ends when the processor is dropped, and only then can the thread be joined.
    processor: Processor,
    _merging: Merging,
}

/// The thread of the merge daemon; dropping it waits for its end.
struct Merging(Option<JoinHandle<()>>);

impl Store {
    /// Reserves the memory that the settings ask for. It is touched as it fills.
    pub fn open(settings: &Settings) -> Result<Store, OpenError> {
        settings.validate().map_err(OpenError::Settings)?;
        let mut processor = Processor::new(settings)?;
        let daemon = processor.merge_daemon();
        // Without the thread slabs are merged when one is needed: slower, and nothing is lost.
        let thread = thread::Builder::new().name("skep-merge".to_owned()).spawn(move || daemon.run()).ok();
        Ok(Store { processor, _merging: Merging(thread) })
    }

    /// Carries out a batch; `replies` then holds an answer for each request, in their order. Requests on one key take
    /// effect in their order. A batch is not a transaction.
    ///
    /// Never waits for the merge daemon. Two kinds of requests may be left unexecuted and answered
    /// [`crate::Reply::Deferred`]: those on large values beyond the budget of `replies`, and those that need memory which is
    /// free in pieces that the daemon has not joined yet. All later ones of the same key are left too. Submit them again, in
    /// order: after a few batches the pieces are joined, or found not to fit.
    pub fn execute(&mut self, requests: &[Request<'_>], replies: &mut Replies) {
        self.processor.execute(requests, replies);
    }

    /// What the store holds and how its memory is used.
    pub fn statistics(&self) -> Statistics {
        self.processor.statistics()
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // A panic of the daemon has been reported by the thread itself; there is nothing to add.
            _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{OpenError, Settings, Store};

    #[test]
    fn settings_and_memory_out_of_range_are_named() {
        let settings = Settings { inline_threshold: 51, ..Settings::for_kv_size(1 << 20, 64, 0) };
        assert!(matches!(Store::open(&settings), Err(OpenError::Settings(what)) if what.contains("inline threshold")));
        let settings = Settings::for_kv_size(64, 64, 0);
        assert!(matches!(Store::open(&settings), Err(OpenError::Memory(_))));
    }

    #[test]
    fn a_store_moves_between_threads() {
        let mut store = Store::open(&Settings::for_kv_size(1 << 20, 64, 0)).unwrap();
        std::thread::spawn(move || store.execute(&[], &mut crate::Replies::with_budget(0))).join().unwrap();
    }
}
