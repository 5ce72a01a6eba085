//! The target of a benchmark: a server over its native port, or a store in this process.

use crate::password::Login;
use crate::size::MemorySize;
use skep::{Client, OpenError, RegionError, Replies, Reply, Request, Responses, Store, StoreSettings, WireError};

/// The connection or store of one client.
pub(crate) enum Target {
    /// A server.
    Remote {
        /// Connections, one for each shard.
        client: Box<Client>,
        /// Replies; reused for every batch.
        responses: Responses,
    },
    /// A store of this client alone.
    Embedded {
        /// The store.
        store: Box<Store>,
        /// Replies; reused for every batch.
        replies: Replies,
    },
}

/// Most reply bytes of an embedded batch. The program refuses larger batches before the run.
pub(crate) const BATCH_BYTES_MAX: usize = 1 << 30;

impl Target {
    /// Connects to a server, for operations on the space with this number.
    pub(crate) fn remote(login: &Login, space: u16) -> Result<Self, String> {
        let mut client = Box::new(crate::cli::connect(login)?);
        client.select(space);
        Ok(Target::Remote { client, responses: Responses::default() })
    }

    /// Opens a store.
    pub(crate) fn embedded(settings: &StoreSettings) -> Result<Self, OpenError> {
        let store = Box::new(Store::open(settings)?);
        Ok(Target::Embedded { store, replies: Replies::with_budget(BATCH_BYTES_MAX) })
    }

    /// Executes a batch. Its replies are available until the next batch.
    pub(crate) fn execute(&mut self, requests: &[Request<'_>]) -> Result<(), String> {
        match self {
            Target::Remote { client, responses } => {
                client.execute(requests, responses).map_err(|error| crate::failure::reason(&error))
            }
            Target::Embedded { store, replies } => {
                store.execute(requests, replies);
                Ok(())
            }
        }
    }

    /// Returns the reply to a request of the last batch. A request that a store has deferred counts as BUSY, as it does
    /// at a server.
    pub(crate) fn reply(&self, index: usize) -> Result<Reply<'_>, WireError> {
        match self {
            Target::Remote { responses, .. } => responses.get(index),
            Target::Embedded { replies, .. } if replies.is_deferred(index) => Err(WireError::Busy),
            Target::Embedded { replies, .. } => Ok(replies.get(index)),
        }
    }
}

/// Explains why a store could not be opened, with the flags to change.
pub(super) fn not_opened(error: &OpenError) -> String {
    match error {
        OpenError::Memory(RegionError::TooLarge { size }) => format!(
            "a store of {} is more than the 64 GiB that one can have: write more --clients, fewer --records or a smaller \
             --memory",
            MemorySize(*size)
        ),
        OpenError::Memory(RegionError::TooSmall { size, size_min }) => format!(
            "a store of {} is too small, it takes at least {}: write fewer --clients or a larger --memory",
            MemorySize(*size),
            MemorySize(*size_min)
        ),
        error => error.to_string(),
    }
}
