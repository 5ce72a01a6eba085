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
mod served;
mod stop;
mod submission;
#[cfg(test)]
mod tests;
mod turn;
mod visits;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use skep_store::cache::Cache;
use skep_store::processor::{Processor, Statistics};
use skep_wire::partition::Partition;

use crate::account::Account;
use crate::command_metrics::TurnCalls;
use crate::connection::Next;
use crate::connections::Connections;
use crate::dispatch::Outgoing;
use crate::durability::DiskProgress;
use crate::endpoint::Endpoint;
use crate::exchange::Peer;
use crate::limits::{MESSAGES_OF_SHARD_MAX, NAP, OPERATIONS_PER_RECLAIM, SLEEP_MAX, SPIN_TIME, TICK, TURN_WORK};
use crate::listen::Listeners;
use crate::memory_budget::ShardBudget;
use crate::metrics::Metrics;
use crate::monitors::Feed;
use crate::reply_queue::ReplyRange;
use crate::shared::Shared;
use crate::spaces::{ShardPart, SpaceReplies, SpaceRequests, Stores};
use crate::start::Steps;
use crate::start_error::StartError;
use crate::transport::Event;
use crate::transport::datagram::Datagrams;
use crate::transport::memcached_datagram::MemcachedSocket;
use crate::transport::poller::{Poller, Source};
#[cfg(feature = "rdma")]
use crate::transport::rdma::RdmaShard;
use crate::unix_time::{UnixTime, read_clocks};
use crate::vocabulary::{Reached, Refusal, Token};
use crate::waker::Waker;
use crate::window::Window;
use forwarded::Arrival;
use held::Held;
use hold::Holds;
use idle::IdlePass;
use later::Later;
use polled::Polled;
use ready::ReadyQueue;
use submission::{Kinds, Submission};
use visits::{Visitor, Visitors, WaitingVisits};

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
    /// Connections that may have something to do.
    ready: ReadyQueue,
    /// Connections that wait until the shard may use its store again, each with whether it was costly.
    aside: VecDeque<(Token, bool)>,
    /// Connections whose operations were deferred although no earlier operation of the batch was executed.
    stuck: VecDeque<Token>,
    /// Connections whose next operations belong to another shard, when there was no slot for a batch to it, by that shard.
    slotless: Vec<VecDeque<Token>>,
    /// Connections whose commands are to visit another shard, and that wait for a slot, by shard.
    waiting_visits: Vec<WaitingVisits>,
    /// The number of them that were taken in this turn, by that shard.
    promised: Vec<usize>,
    /// Connections whose next reply the server makes itself (such as that of `CLIENT LIST`), and did not fit the turn
    /// in which they were tried last.
    postponed: VecDeque<Token>,
    /// Work that the stores are expected to do for the connections of the turn: what these have cost before.
    expected_work: usize,
    /// Number of postponed connections at the start of the batch.
    resumed: usize,
    /// Where the kinds of connections begin in the batch.
    kinds: Kinds,
    /// Connections of the batch whose operations are large, until they follow the others. Empty between batches.
    large: Vec<Submission>,
    /// Connections whose operations another shard returned for lack of memory.
    returned: VecDeque<Token>,
    /// The time from which on they are submitted again.
    next_retry: Instant,
    window: Window,
    /// The work of the turn. It begins with the events.
    account: Account,
    /// The memory that the connections borrow.
    shard_budget: ShardBudget,
    /// Connections that wait for memory.
    starved: Vec<Token>,
    /// The time of the next scan of the memory of connections.
    next_memory_scan: Instant,
    /// Replies of a connection, before they are sent. Empty between connections; it keeps its memory.
    encoded: Vec<u8>,
    /// The loans between shards for isolated commands.
    holds: Holds,
    /// Isolated commands on the keys of this shard that wait for their turn.
    later: Later,
    /// Visits from other shards that have not begun.
    visitors: Visitors,
    /// Connections whose commands visit other shards.
    visits_away: usize,
    idle_pass: IdlePass,
    held: Held,
    /// Connections with replies that wait for what they rest on to be on disk, in their order.
    awaiting: VecDeque<(Reached, Token)>,
    /// The failure of the log that the shard knows, and whether the attempt to begin a fresh one has failed too.
    log_failure: (u64, bool),
    /// Connections that drain.
    draining: Vec<Token>,
    /// Requests of other shards.
    inbox: VecDeque<Arrival>,
    /// The shard whose forwarded batches are taken first.
    first_peer: usize,
    /// Replies of other shards were left for the next turn.
    has_more_replies: bool,
    /// Connections that take part in the batch.
    batch: Vec<Submission>,
    /// The destinations of the operations of the batch, connection by connection.
    destinations: Vec<ReplyRange>,
    /// Empty between batches; it keeps its memory.
    requests: SpaceRequests<'static>,
    outgoing: Vec<Outgoing>,
    replies: SpaceReplies,
    /// The writes that are refused in this turn, because the log cannot take them.
    write_refusal: Refusal,
    /// Nothing was executed in this turn, because the disk is behind.
    waits_for_log: bool,
    disk_progress: DiskProgress,
    /// Turns so far that had something to do.
    turns: u64,
    /// The time of day at which the turn began.
    time: UnixTime,
    /// In all, more than one connection or forwarded batch waits.
    others_wait: bool,
    /// Operations that the stores executed in the turn.
    executed: usize,
    /// Operations of the turn that got their replies, with the time of their read.
    replied: Vec<(usize, Instant)>,
    /// The monitors among the connections.
    monitoring: Vec<Arc<Feed>>,
    /// The commands of the turn, for monitors. Empty between turns.
    monitor_lines: Vec<u8>,
    /// Commands of the turn.
    calls: TurnCalls,
    /// The shard may read the clock itself. In tests time is an argument.
    has_clock: bool,
    /// The time of the next tick.
    next_tick: Instant,
    /// Set when the server stops: the time at which all connections are closed.
    stop_until: Option<Instant>,
    /// This shard has told the others that it has no more connections.
    finished: bool,
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
            ready: ReadyQueue::default(),
            aside: VecDeque::new(),
            stuck: VecDeque::new(),
            slotless: vec![VecDeque::new(); peer_count],
            waiting_visits: (0..peer_count).map(|_| WaitingVisits::default()).collect(),
            promised: vec![0; peer_count],
            postponed: VecDeque::new(),
            expected_work: 0,
            resumed: 0,
            kinds: Kinds::default(),
            large: Vec::new(),
            returned: VecDeque::new(),
            next_retry: now,
            window,
            account: Account::new(TURN_WORK),
            shard_budget,
            starved: Vec::new(),
            next_memory_scan: now,
            encoded: Vec::new(),
            holds: Holds::default(),
            later: Later::default(),
            visitors: Visitors::default(),
            visits_away: 0,
            idle_pass: IdlePass::new(now),
            held: Held::default(),
            awaiting: VecDeque::new(),
            log_failure: (0, false),
            draining: Vec::new(),
            inbox: VecDeque::new(),
            first_peer: 0,
            has_more_replies: false,
            batch: Vec::new(),
            destinations: Vec::new(),
            requests: SpaceRequests::default(),
            outgoing: (0..peer_count).map(|_| Outgoing::Nothing).collect(),
            replies: SpaceReplies::new(),
            write_refusal: Refusal::Nothing,
            waits_for_log: false,
            disk_progress: DiskProgress::new(now),
            turns: 0,
            time: UnixTime::default(),
            others_wait: false,
            executed: 0,
            replied: Vec::new(),
            monitoring: Vec::new(),
            monitor_lines: Vec::new(),
            calls: TurnCalls::default(),
            has_clock: false,
            next_tick: now,
            stop_until: None,
            finished: false,
        })
    }

    /// Works until the server has stopped, on its stores and on the ordered store that all share.
    pub(crate) fn run(mut self, processor: Processor, cache: Option<Cache>) {
        self.has_clock = true;
        let shared = self.parts.shared.clone();
        let mut stores = Stores::new(processor, cache, self.parts.index, Some(&shared));
        let mut now = Instant::now();
        let mut spin_until = now;
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
                spin_until = now + SPIN_TIME;
            } else if now < spin_until {
                if !self.watch_words() {
                    // Another thread that wants this core, perhaps the client's, gets it.
                    std::thread::yield_now();
                }
            } else if !stores.before_sleep() {
                self.seal(&mut stores);
                stores.publish(&shared);
                self.sleep(now, &stores);
                now = Instant::now();
                // A stuck shard takes one turn before it sleeps again. It spins only if it is no longer stuck after
                // that turn.
                spin_until = if self.is_stuck() { now } else { now + SPIN_TIME };
            }
        }
    }

    /// Makes a turn, after the events were taken. Returns true if there was something to do.
    fn work(&mut self, stores: &mut Stores<'_>, now: Instant, time: UnixTime) -> bool {
        // Readings of other shards may have set the clock back by a little.
        self.time = time.max(self.time);
        self.release_replies(now);
        self.accept_handed_over(now);
        self.receive(now);
        self.serve_monitors();
        self.waits_for_log = self.is_log_full(now);
        if self.holds.take_abandoned() {
            stores.discard();
        }
        stores.set_time(self.time);
        self.executed = 0;
        let has_served = self.serve_holds(stores, now);
        let has_replied = !self.replied.is_empty();
        if self.waits_for_log || self.holds.is_held() {
            let has_replied = has_replied || !self.waits_for_log && self.serve_beside_hold(stores, now);
            return has_served || has_replied;
        }
        self.end_aside();
        let worked = self.has_work() || self.may_retry(now);
        if worked {
            self.turns += 1;
            self.gather(now);
            self.execute(stores, now);
            self.reply_and_run(stores, now);
            // As many keys as were written may expire.
            stores.reclaim(1 + self.executed / OPERATIONS_PER_RECLAIM);
            self.seal(stores);
        }
        worked || has_served
    }

    fn has_work(&self) -> bool {
        // What visits have replied is to be measured.
        if self.holds.have_work() || !self.replied.is_empty() || self.may_release() {
            return true;
        }
        if self.holds.is_held() {
            return !self.ready.is_empty() || !self.postponed.is_empty();
        }
        let has_connections = !self.ready.is_empty()
            || !self.aside.is_empty()
            || [&self.stuck, &self.postponed].iter().any(|list| !list.is_empty());
        let has_requests = !self.inbox.is_empty() || !self.visitors.is_empty() || !self.later.is_empty();
        has_connections || has_requests || self.has_more_replies || self.may_forward()
    }

    /// Returns true if connections have waited for a slot, and there is one.
    fn may_forward(&self) -> bool {
        let has_slot = |peer: &Option<Peer>| peer.as_ref().is_some_and(|peer| peer.slots() > 0);
        let waiting = std::iter::zip(&self.slotless, &self.waiting_visits);
        let count = self.parts.peers.len();
        let mut waiting = waiting.map(|(requests, visits)| !requests.is_empty() || visits.may_be_sent(count));
        self.parts.peers.iter().any(|peer| waiting.next() == Some(true) && has_slot(peer))
    }

    /// Returns true if operations that another shard returned are to be submitted again.
    fn may_retry(&self, now: Instant) -> bool {
        !self.returned.is_empty() && now >= self.next_retry
    }

    /// Returns true if stores have deferred all of its work.
    fn is_stuck(&self) -> bool {
        if self.holds.is_held() {
            return self.holds.wait_for_memory();
        }
        let has_connections = !self.ready.is_empty() || !self.postponed.is_empty();
        let has_requests = !self.inbox.is_empty() || !self.visitors.is_empty() || !self.later.is_empty();
        let can_go_on = has_connections || has_requests;
        !can_go_on && !self.has_more_replies && (!self.stuck.is_empty() || !self.returned.is_empty())
    }

    /// Begins a turn, and takes the events since the last one.
    fn poll(&mut self, now: Instant) {
        self.account = Account::new(TURN_WORK);
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

    /// Does the work that is due: ends draining, listens again after a pause, and stops when the server does.
    fn tick(&mut self, now: Instant) {
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            for token in std::mem::take(&mut self.draining) {
                let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
                let next = match self.connections.get_mut(token) {
                    Some(endpoint) => endpoint.flush(metrics, now, &mut self.shard_budget),
                    None => continue,
                };
                self.list_session(token);
                if next == Next::Drain { self.draining.push(token) } else { self.close(token) }
            }
            self.scan_memory(now);
            self.close_idle(now);
        }
        if let Some(listeners) = &mut self.parts.listeners
            && let Err(error) = listeners.resume(&self.poller, now)
        {
            tracing::warn!(%error, "cannot listen again");
        }
        if self.parts.shared.stopping.load(Ordering::Relaxed) {
            self.stop(now);
        }
        self.take_orders();
        self.release_held(now);
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
        } else if is_idle && stops == self.stop_until.is_some() && self.knows_orders() && !self.has_monitored() {
            let paused = self.parts.listeners.as_ref().is_some_and(Listeners::is_paused);
            let ticking = stops || paused || !self.draining.is_empty() || self.watches_memory();
            let ticking = ticking || stores.watches_much() || self.disk_progress.waits;
            let expires_in = stores.reclaim_from().map(|from| {
                // A millisecond later, the key has expired for sure.
                let left = from.saturating_sub(self.time.milliseconds().cast_unsigned()) + 1;
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
