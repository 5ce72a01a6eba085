//! What is measured: a server over its native port, or a store inside this process.

use skep::{Client, OpenError, Replies, Reply, Request, Responses, Store, StoreSettings, WireError};

/// One client's way to the store.
pub(crate) enum Target {
    /// A server.
    Remote {
        /// Its connections, one for each shard.
        client: Box<Client>,
        /// Reused from batch to batch.
        responses: Responses,
    },
    /// A store of this client's own.
    Embedded {
        /// The store.
        store: Box<Store>,
        /// Reused from batch to batch.
        replies: Replies,
    },
}

/// Reply bytes of an embedded batch; larger batches are refused before the run.
pub(crate) const BATCH_BYTES_MAX: usize = 1 << 30;

impl Target {
    /// Connects to a server, for operations on the space of this number.
    pub(crate) fn remote(address: &str, space: u16) -> Result<Self, String> {
        let mut client = Box::new(crate::cli::connect(address)?);
        client.select(space);
        Ok(Target::Remote { client, responses: Responses::default() })
    }

    /// Opens a store.
    pub(crate) fn embedded(settings: &StoreSettings) -> Result<Self, OpenError> {
        let store = Box::new(Store::open(settings)?);
        Ok(Target::Embedded { store, replies: Replies::with_budget(BATCH_BYTES_MAX) })
    }

    /// Carries out a batch; the answers are there until the next one. An error ends the connection.
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

    /// The answer to a request of the last batch. What a store has put off is busy, as it is at a server.
    pub(crate) fn answer(&self, index: usize) -> Result<Reply<'_>, WireError> {
        match self {
            Target::Remote { responses, .. } => responses.get(index),
            Target::Embedded { replies, .. } if replies.is_deferred(index) => Err(WireError::Busy),
            Target::Embedded { replies, .. } => Ok(replies.get(index)),
        }
    }
}
