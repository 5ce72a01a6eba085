//! A shard: one thread, one part of the keys, one store, and the connections that were given to it.
//!
//! [`Shard::work`] is the whole of its work, in order; `turn.rs` decides how much of it. A turn never waits. A shard
//! that finds nothing to do polls for a short while, because waking up takes about 20 µs. Then it sleeps until a
//! transport or another shard wakes it. A shard whose work was all deferred by a store sleeps too, but only for a
//! moment: nothing wakes it when there is memory again.
//!
//! ```text
//!   poll ─▶ accept ─▶ receive ─▶ gather ─▶ execute ─▶ reply
//!            │         │          │         │          │
//!            │ new     │ forwarded│ read,   │ one      │ encode,
//!            │         │ batches  │ decode  │ batch    │ write
//! ```
//!
//! The requests of a batch borrow from the input buffers of all connections that take part and from the forwarded
//! batches of other shards, so nothing of these changes between `gather` and the end of `execute`.

mod beside_hold;
mod close;
mod command_turn;
mod datagrams;
#[cfg(test)]
pub(crate) mod driven;
mod execution;
mod forwarded;
mod held;
mod hold;
mod idle;
mod intake;
mod isolation;
mod later;
mod memory;
mod monitoring;
mod polled;
#[cfg(feature = "rdma")]
mod rdma;
mod ready;
mod replies_held;
mod returned;
mod served;
mod spin;
mod stop;
mod submission;
#[cfg(test)]
mod tests;
mod ticks;
mod turn;
mod visits;
mod waits;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use skep_store::cache::Cache;
use skep_store::processor::{Processor, Statistics};
use skep_wire::partition::Partition;

use crate::account::Account;
use crate::connections::Connections;
use crate::endpoint::Endpoint;
use crate::exchange::Peer;
use crate::limits::{MESSAGES_OF_SHARD_MAX, NAP, OPERATIONS_PER_RECLAIM, SLEEP_MAX, TICK, TURN_WORK};
use crate::listen::Listeners;
use crate::memory_budget::ShardBudget;
use crate::metrics::Metrics;
use crate::shared::Shared;
use crate::spaces::{ShardPart, Stores};
use crate::start::Steps;
use crate::start_error::StartError;
use crate::transport::Event;
use crate::transport::datagram::Datagrams;
use crate::transport::memcached_datagram::MemcachedSocket;
use crate::transport::poller::{Poller, Source};
#[cfg(feature = "rdma")]
use crate::transport::rdma::RdmaShard;
use crate::unix_time::{UnixTime, read_clocks};
use crate::vocabulary::Token;
use crate::waker::Waker;
use crate::window::Window;
use execution::Execution;
use forwarded::Arrivals;
use hold::Holds;
use monitoring::Monitoring;
use polled::Polled;
use replies_held::LogView;
use spin::Spin;
use stop::Stop;
use ticks::Ticks;
use turn::Turn;
use visits::Visitor;
use waits::Waits;

/// Sends a connection or a message to a shard.
#[derive(Clone)]
pub(crate) struct Handover {
    /// The channel to the shard. It never holds more connections than the server has.
    pub(crate) sender: Sender<Box<Endpoint>>,
    /// The channel for messages about stores.
    pub(crate) messages: SyncSender<Message>,
    /// Wakes the shard.
    pub(crate) waker: Arc<Waker>,
}

/// A message to a shard about stores.
pub(crate) enum Message {
    /// A shard asks for its store.
    Ask(u16),
    /// A shard lends its store, at this time.
    Lend(u16, Box<ShardPart>, UnixTime),
    /// Its store comes back, at this time.
    GiveBack(Box<ShardPart>, UnixTime),
}

impl Handover {
    /// Makes the path to each shard, and the ends that it has of it.
    pub(crate) fn all(wakers: impl ExactSizeIterator<Item = Arc<Waker>>) -> (Vec<Handover>, Vec<Incoming>) {
        let shard_count = wakers.len();
        let one = |waker| {
            let (sender, connections) = channel();
            let (messages, incoming) = sync_channel(MESSAGES_OF_SHARD_MAX * shard_count);
            (Handover { sender, messages, waker }, Incoming { connections, messages: incoming })
        };
        wakers.map(one).unzip()
    }

    /// Sends a message, unless the shard has ended: then no message matters.
    fn send(&self, message: Message) {
        let sent = self.messages.try_send(message);
        debug_assert!(!matches!(sent, Err(TrySendError::Full(_))), "a shard has one hold, and lends one store");
        self.waker.wake();
    }
}

/// The ends of the channels by which other shards hand over connections and stores.
pub(crate) struct Incoming {
    connections: Receiver<Box<Endpoint>>,
    messages: Receiver<Message>,
}

/// The parts of a shard at the start.
pub(crate) struct Parts {
    pub(crate) index: u16,
    pub(crate) shared: Arc<Shared>,
    pub(crate) partition: Partition,
    /// Only for the shard that listens.
    pub(crate) listeners: Option<Listeners>,
    /// The UDP socket, if there is one.
    pub(crate) datagrams: Option<Box<Datagrams>>,
    /// The UDP socket of memcached's clients; only for the shard that listens.
    pub(crate) memcached_socket: Option<MemcachedSocket>,
    /// The RDMA device, if there is one.
    #[cfg(feature = "rdma")]
    pub(crate) rdma: Option<Box<RdmaShard>>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) peers: Vec<Option<Peer>>,
    pub(crate) incoming: Incoming,
    /// To all shards, this one too.
    pub(crate) handovers: Vec<Handover>,
    pub(crate) wakers: Vec<Arc<Waker>>,
}

impl Parts {
    /// Opens the poller of the shard, with its sockets.
    fn open_poller(&self, steps: &mut Steps) -> Result<Poller, StartError> {
        steps.open(format!("the events of shard {}", self.index), || {
            let poller = Poller::new()?;
            poller.add(&self.waker, Source::Waker, EventFlags::IN | EventFlags::ET)?;
            if let Some(listeners) = &self.listeners {
                listeners.register(&poller)?;
            }
            if let Some(datagrams) = &self.datagrams {
                datagrams.register(&poller)?;
            }
            if let Some(socket) = &self.memcached_socket {
                socket.register(&poller)?;
            }
            #[cfg(feature = "rdma")]
            if let Some(rdma) = &self.rdma {
                rdma.register(&poller)?;
            }
            Ok::<_, rustix::io::Errno>(poller)
        })
    }
}

/// A shard.
pub(crate) struct Shard {
    parts: Parts,
    poller: Poller,
    connections: Connections,
    polled: Polled,
    /// Connections and what they wait for.
    waits: Waits,
    /// What other shards have sent.
    arrivals: Arrivals,
    turn: Turn,
    execution: Execution,
    window: Window,
    /// The memory that the connections borrow.
    shard_budget: ShardBudget,
    /// The loans between shards for isolated commands.
    holds: Holds,
    log: LogView,
    monitoring: Monitoring,
    ticks: Ticks,
    stop: Stop,
}

impl Shard {
    /// Creates a shard that has not begun to work; its part of the hash store has these statistics.
    pub(crate) fn new(
        parts: Parts,
        statistics: &Statistics,
        now: Instant,
        steps: &mut Steps,
    ) -> Result<Shard, StartError> {
        let poller = parts.open_poller(steps)?;
        let peer_count = parts.peers.len();
        let window = Window::new(parts.shared.settings.delay_max, now);
        let shard_budget = ShardBudget::new(parts.shared.memory_budget.clone());
        let metrics = parts.shared.metrics(usize::from(parts.index));
        metrics.publish(statistics);
        metrics.publish_window(&window);
        Ok(Shard {
            parts,
            poller,
            connections: Connections::default(),
            polled: Polled::new(now),
            waits: Waits::new(peer_count, now),
            arrivals: Arrivals::default(),
            turn: Turn::default(),
            execution: Execution::new(peer_count),
            window,
            shard_budget,
            holds: Holds::default(),
            log: LogView::new(now),
            monitoring: Monitoring::default(),
            ticks: Ticks::new(now),
            stop: Stop::default(),
        })
    }

    /// Works until the server has stopped, on its stores and on the ordered store that all share.
    pub(crate) fn run(mut self, processor: Processor, cache: Option<Cache>) {
        self.ticks.has_clock = true;
        let shared = self.parts.shared.clone();
        let mut stores = Stores::new(processor, cache, self.parts.index, Some(&shared));
        let mut now = Instant::now();
        let mut spin = Spin::new(now);
        while !self.is_over() {
            self.poll(now);
            self.tick(now);
            let worked = self.work(&mut stores, now, shared.clock.time(now, read_clocks));
            self.send_packets(now);
            let begun = std::mem::replace(&mut now, Instant::now());
            if worked {
                self.measure(now, now - begun);
            }
            match self.holds.is_held() {
                true => stores.defer_walk(now - begun),
                false => stores.walk(worked.then(|| now - begun)),
            }
            self.lend_after_turn(&mut stores);
            if worked && !self.is_stuck() {
                spin.begin(now);
            } else if spin.is_on(now) {
                if !self.watch_words() {
                    // Another thread that wants this core, perhaps the client's, gets it.
                    let before = Instant::now();
                    std::thread::yield_now();
                    now = Instant::now();
                    spin.gave_core(now - before, now);
                } else {
                    now = Instant::now();
                }
            } else if !stores.before_sleep() {
                self.seal(&mut stores);
                stores.publish(&shared);
                self.sleep(now, &stores);
                now = Instant::now();
                // A stuck shard takes one turn before it sleeps again. It spins only if it is no longer stuck after
                // that turn.
                match self.is_stuck() {
                    true => spin.end(now),
                    false => spin.begin(now),
                }
            }
        }
    }

    /// Makes a turn, after the events were taken. Returns true if there was something to do.
    fn work(&mut self, stores: &mut Stores<'_>, now: Instant, time: UnixTime) -> bool {
        // Readings of other shards may have set the clock back by a little.
        self.turn.time = time.max(self.turn.time);
        self.release_replies(now);
        self.accept_handed_over(now);
        self.receive(now);
        self.serve_monitors();
        self.log.is_behind = self.is_log_full(now);
        if self.holds.take_abandoned() {
            stores.discard();
        }
        stores.set_time(self.turn.time);
        self.execution.executed = 0;
        let has_served = self.serve_holds(stores, now);
        let has_replied = !self.execution.replied.is_empty();
        if self.log.is_behind || self.holds.is_held() {
            let has_replied = has_replied || !self.log.is_behind && self.serve_beside_hold(stores, now);
            return has_served || has_replied;
        }
        self.waits.end_aside();
        let worked = self.has_work() || self.waits.returned.are_due(now);
        if worked {
            self.serve_turn(stores, now);
        }
        worked || has_served
    }

    /// Serves connections and other shards. Not inlined: its instructions are counted.
    #[inline(never)]
    fn serve_turn(&mut self, stores: &mut Stores<'_>, now: Instant) {
        self.turn.number += 1;
        self.gather(now);
        self.execute(stores, now);
        self.reply_and_run(stores, now);
        // As many keys as were written may expire.
        stores.reclaim(1 + self.execution.executed / OPERATIONS_PER_RECLAIM);
        self.seal(stores);
    }

    fn has_work(&self) -> bool {
        // What visits have replied is to be measured.
        if self.holds.have_work() || !self.execution.replied.is_empty() || self.may_release() {
            return true;
        }
        if self.holds.is_held() {
            return self.waits.have_ready();
        }
        self.waits.have_work()
            || !self.waits.later.is_empty()
            || self.arrivals.have_work()
            || self.waits.may_forward(&self.parts.peers)
    }

    /// Returns true if stores have deferred all of its work.
    fn is_stuck(&self) -> bool {
        if self.holds.is_held() {
            return self.holds.wait_for_memory();
        }
        let can_go_on = self.waits.have_ready() || !self.waits.later.is_empty() || self.arrivals.have_work();
        !can_go_on && self.waits.have_stuck()
    }

    /// Begins a turn, and takes the events since the last one.
    fn poll(&mut self, now: Instant) {
        self.turn.account = Account::new(TURN_WORK);
        #[cfg(feature = "rdma")]
        self.begin_sessions(now);
        self.poll_words(now);
        if !self.poller.has_events() && self.polled.is_kernel_due(now) {
            self.poller.wait(Some(Duration::ZERO));
        }
        while let Some((source, event)) = self.poller.next_event() {
            match source {
                Source::Waker => {}
                Source::Listener(front_end) => self.accept(front_end, now),
                Source::SharedMemoryListener => self.accept_shared_memory(now),
                Source::Connection(token) => {
                    #[cfg(feature = "rdma")]
                    let event = self.take_rdma_setup(token, event).unwrap_or(event);
                    let event = self.take_doorbell(token, event).unwrap_or(event);
                    self.on_event(token, event, now);
                }
                Source::Datagrams => self.receive_datagrams(now),
                Source::MemcachedDatagrams => self.receive_memcached_datagrams(now),
                #[cfg(feature = "rdma")]
                Source::RdmaListener => self.accept_rdma(now),
                #[cfg(feature = "rdma")]
                Source::RdmaEvents => self.take_wakeups(now),
            }
        }
    }

    /// Gives a connection an event of its transport.
    fn on_event(&mut self, token: Token, event: Event, now: Instant) {
        if let Some(endpoint) = self.connections.get_mut(token) {
            endpoint.connection.on_event(event);
            match endpoint.is_held {
                true => self.on_event_of_held(token, event, now),
                false => self.queue(token),
            }
        }
    }

    /// Sleeps until an event, or until keys expire. The next turn takes it.
    fn sleep(&mut self, now: Instant, stores: &Stores<'_>) {
        self.parts.waker.will_sleep();
        self.accept_handed_over(now);
        self.receive(now);
        self.wait_for_doorbells(now);
        // From now on, if blocks wait for the disk.
        self.is_log_full(now);
        self.metrics().publish_memory(&self.shard_budget);
        let stops = self.parts.shared.stopping.load(Ordering::Relaxed);
        let is_idle = !self.has_work() && !self.has_log_work(stores) && self.polled.awaits_doorbells();
        if self.is_stuck() {
            self.poller.wait(Some(NAP));
        } else if is_idle && stops == self.stop.until.is_some() && self.knows_orders() && !self.has_monitored() {
            let paused = self.parts.listeners.as_ref().is_some_and(Listeners::is_paused);
            let ticking = stops || paused || !self.waits.draining.is_empty() || self.watches_memory();
            let ticking = ticking || stores.watches_much() || self.log.awaits_disk();
            let expires_in = stores.reclaim_from().map(|from| {
                // A millisecond later, the key has expired for sure.
                let left = from.saturating_sub(self.turn.time.milliseconds().cast_unsigned()) + 1;
                Duration::from_millis(left)
            });
            let tick = if ticking { Some(TICK) } else { None };
            let packets = self.parts.datagrams.as_ref().and_then(|datagrams| datagrams.wait(now));
            #[cfg(feature = "rdma")]
            let packets = packets.into_iter().chain(self.parts.rdma.as_ref().and_then(|rdma| rdma.wait(now))).min();
            let waits =
                [tick, expires_in.map(|left| left.min(SLEEP_MAX)), self.idle_wait(), self.held_wait(now), packets];
            self.poller.wait(waits.into_iter().flatten().min());
        }
        self.parts.waker.awake();
    }

    fn metrics(&self) -> &Metrics {
        self.parts.shared.metrics(usize::from(self.parts.index))
    }
}
