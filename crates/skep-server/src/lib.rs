//! Skep's server: the keys are spread over shards, each of which is a thread with a store of its own.
//!
//! ```text
//!   native port ─┐                     ┌─ shard 0: connections, processor, memory
//!                ├─ shard 0 listens ─▶ ├─ shard 1: connections, processor, memory     rings between every two
//!   RESP port ───┘                     └─ …
//! ```
//!
//! A connection belongs to one shard. What it asks about keys of that shard is done there; the rest travels to the
//! owner by a bounded ring and back. Nothing else is shared while requests are served.
//!
//! What it promises: operations of one connection on one key are carried out in order, and replies leave in the
//! order of the requests; operations on one key are linearizable. A batch, `MSET` and `DEL` of several keys are not
//! transactions.

mod batch;
mod buffer;
mod chunk;
mod connection;
mod connections;
mod delays;
mod exchange;
mod ledger;
mod listen;
mod memory_available;
mod metrics;
mod native_chunk;
mod resp_chunk;
mod resp_command;
mod round;
mod settings;
mod shard;
mod shared;
mod spaces;
mod threads;
mod window;

pub use settings::{ServerSettings, StartError};

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use skep_store::ordered::OrderedStore;
use skep_store::processor::Processor;
use skep_wire::partition::Partition;

use exchange::{Waker, connect_shards};
use listen::Listeners;
use shard::{Handover, Parts, Shard};
use shared::Shared;

/// A running server. It stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    wakers: Vec<Arc<Waker>>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Binds the ports, reserves the memory and starts the shards; when it returns, clients are served.
    pub fn start(settings: &ServerSettings) -> Result<Server, StartError> {
        settings.check()?;
        let listeners = Listeners::bind(settings.native, settings.resp)?;
        let mut settings = settings.clone();
        (settings.native, settings.resp) = listeners.addresses()?;
        settings.connections_max = threads::connections_granted(settings.connections_max);
        let processors = (0..settings.shards)
            .map(|_| Processor::new(&settings.store(random_number())))
            .collect::<Result<Vec<_>, _>>()?;
        let ordered = settings.ordered().map(|settings| OrderedStore::new(&settings)).transpose()?;
        if let Some(ordered) = &ordered
            && settings.prefault
        {
            ordered.prefault();
        }
        let rings = connect_shards(processors.len()).map_err(std::io::Error::from)?;
        let wakers: Vec<Arc<Waker>> = rings.iter().map(|(waker, _)| waker.clone()).collect();
        let (handovers, adopted): (Vec<_>, Vec<_>) = wakers
            .iter()
            .map(|waker| {
                let (sender, receiver) = channel();
                (Handover { sender, waker: waker.clone() }, receiver)
            })
            .unzip();
        let shared = Arc::new(Shared::new(settings, ordered, random_number(), random_number()));
        let mut listeners = Some(listeners);
        let mut shards = Vec::new();
        let mut daemons = Vec::new();
        for (index, ((mut processor, (waker, peers)), adopted)) in
            (0_u16..).zip(processors.into_iter().zip(rings).zip(adopted))
        {
            if shared.settings.prefault {
                processor.memory().prefault();
            }
            daemons.push(processor.merge_daemon());
            let parts = Parts {
                index,
                shared: shared.clone(),
                partition: Partition::new(shared.partition_seed, shared.settings.shards),
                listeners: listeners.take(),
                waker,
                peers,
                adopted,
                handovers: handovers.clone(),
            };
            shards.push((Shard::new(parts, &processor.statistics())?, processor));
        }
        let mut server = Server { shared, wakers, threads: Vec::new() };
        let cores = threads::cores_for_shards(&server.shared.settings);
        let start = || {
            for (index, daemon) in daemons.into_iter().enumerate() {
                server.threads.push(threads::spawn(format!("skep-merge-{index}"), None, move || daemon.run())?);
            }
            for (index, (shard, processor)) in shards.into_iter().enumerate() {
                let core = cores.as_ref().map(|cores| cores[index]);
                server.threads.push(threads::spawn(format!("skep-shard-{index}"), core, move || shard.run(processor))?);
            }
            Ok(())
        };
        if let Err(error) = start() {
            // Shards that never started have nothing to finish.
            server.shared.shards_busy.store(0, Ordering::Release);
            return Err(StartError::System(error));
        }
        Ok(server)
    }

    /// Where native clients connect.
    pub fn native_address(&self) -> SocketAddr {
        self.shared.settings.native
    }

    /// Where RESP clients connect, if they may.
    pub fn resp_address(&self) -> Option<SocketAddr> {
        self.shared.settings.resp
    }

    /// Accepts and reads no more, answers what has arrived, sends the replies, and ends. Peers that do not take
    /// their replies are waited for two seconds.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        for waker in &self.wakers {
            waker.wake();
        }
        for thread in self.threads.drain(..) {
            // A shard that panics aborts the process, so there is nothing to learn from the result.
            let _ = thread.join();
        }
    }
}

/// A number that nobody can guess: the hash of nothing under keys from the system's random source.
fn random_number() -> u64 {
    RandomState::new().hash_one(())
}
