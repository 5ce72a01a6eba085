//! A shard: one thread, one part of the keys, one store, and the connections that were given to it.
//!
//! [`Shard::turn`] is the whole of its work, in the order in which things happen. Nothing in it waits: a shard that
//! finds nothing to do goes on looking for a short while, because a sleeper needs about 20 µs to wake up, and then
//! sleeps in epoll until a socket or another shard wakes it.
//!
//! ```text
//!   poll ─▶ adopt ─▶ receive ─▶ gather ─▶ execute ─▶ reply
//!            │         │          │          │         │
//!            │ new     │ parcels  │ read,    │ one     │ encode,
//!            │         │          │ decode   │ batch   │ write
//! ```
//!
//! The requests of a batch borrow from the input buffers of all connections that take part and from the parcels of
//! other shards, so nothing of these changes between `gather` and the end of `execute`.

mod intake;
mod memory;

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use skep_store::operation::KEY_SIZE_MAX;
use skep_store::processor::{Processor, Statistics};
use skep_wire::native::WireError;
use skep_wire::partition::Partition;

use crate::batch::Answer;
use crate::connection::{Connection, Next};
use crate::connections::{Connections, Token};
use crate::exchange::{Parcel, Peer, Waker};
use crate::ledger::Purse;
use crate::listen::{Door, Listeners};
use crate::metrics::Metrics;
use crate::resp_command::Context;
use crate::round::{Run, Slot, push_run};
use crate::shared::Shared;
use crate::spaces::{Place, Space, SpaceReplies, SpaceRequests, Stores};
use crate::window::Window;

/// A batch has no more operations of each other shard than this and those of its last parcel.
const INBOX_OPERATIONS_MAX: usize = 4096;
/// How long a shard looks for work before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How often a shard looks at the clock while connections linger or it cannot accept more.
const TICK: Duration = Duration::from_millis(50);
/// How long a stopping server waits for peers to take their last replies.
const FLUSH: Duration = Duration::from_secs(2);
/// Operations of a connection in a batch while the reserve is in use. The replies of as many small ones fit a share.
const SHORT_OPERATIONS_MAX: usize = 4;
/// Bytes that the buffer of encoded replies keeps from turn to turn.
const ENCODED_KEPT_MAX: usize = 1 << 20;
/// Events taken from epoll at a time.
const EVENTS_MAX: usize = 256;

/// Words in epoll that are no connection; tokens never have these generations.
const WAKER_WORD: u64 = u64::MAX;
const NATIVE_WORD: u64 = u64::MAX - 1;
const RESP_WORD: u64 = u64::MAX - 2;

/// How a shard is given a connection.
#[derive(Clone)]
pub(crate) struct Handover {
    /// Where the connection goes. Their number is bounded by that of all connections.
    pub(crate) sender: Sender<Box<Connection>>,
    /// Wakes the shard.
    pub(crate) waker: Arc<Waker>,
}

/// What a shard is made of at the start.
pub(crate) struct Parts {
    pub(crate) index: u16,
    pub(crate) shared: Arc<Shared>,
    pub(crate) partition: Partition,
    /// Only for the shard that listens.
    pub(crate) listeners: Option<Listeners>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) peers: Vec<Option<Peer>>,
    pub(crate) adopted: Receiver<Box<Connection>>,
    /// To all shards, this one too.
    pub(crate) handovers: Vec<Handover>,
}

/// A shard.
pub(crate) struct Shard {
    parts: Parts,
    epoll: OwnedFd,
    connections: Connections,
    /// Connections that may have something to do.
    ready: VecDeque<Token>,
    /// Connections that are not read until the window has room.
    held: VecDeque<Token>,
    window: Window,
    /// The memory that the connections borrow, those that wait for it, and when they are looked at again.
    purse: Purse,
    starved: Vec<Token>,
    next_memory_scan: Instant,
    /// Replies of a connection, before they are sent; kept for its memory.
    encoded: Vec<u8>,
    /// Connections that say goodbye.
    lingering: Vec<Token>,
    /// Requests of other shards, by shard.
    inbox: Vec<(usize, Parcel)>,
    /// Connections that take part in the batch.
    batch: Vec<Submission>,
    /// Where the operations of the batch went, connection by connection.
    places: Vec<Run>,
    /// Empty between batches; kept for its memory.
    requests: SpaceRequests<'static>,
    outgoing: Vec<Outgoing>,
    replies: SpaceReplies,
    /// How many operations the stores had in the turn.
    executed: usize,
    /// How many operations of the turn were answered, and when they were read.
    answered: Vec<(usize, Instant)>,
    /// When lingering connections are looked at again.
    next_tick: Instant,
    /// Set when the server stops: until when output is flushed.
    stop_until: Option<Instant>,
    /// Whether this shard has told the others that it has no more connections.
    finished: bool,
}

/// A connection's part of a batch.
struct Submission {
    token: Token,
    /// Its part of [`Shard::places`].
    places: Range<usize>,
    parcel_count: usize,
    /// Whether it is not read until the window has room.
    is_held: bool,
    /// Whether it can go on at once, behind those that had to stand back.
    goes_on: bool,
}

/// What one connection sends to one other shard.
enum Outgoing {
    Nothing,
    /// There is no place; these operations are submitted later.
    NoPlace,
    Parcel(Parcel),
}

impl Shard {
    /// A shard that has not begun to work; its part of the hash store has these figures.
    pub(crate) fn new(parts: Parts, statistics: &Statistics) -> std::io::Result<Shard> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &parts.waker, EventData::new_u64(WAKER_WORD), EventFlags::IN | EventFlags::ET)?;
        if let Some(listeners) = &parts.listeners {
            listeners.register(&epoll, door_word)?;
        }
        let peer_count = parts.peers.len();
        let window = Window::new(parts.shared.settings.delay_max, Instant::now());
        let purse = Purse::new(parts.shared.ledger.clone());
        let metrics = parts.shared.metrics(usize::from(parts.index));
        metrics.publish(statistics);
        metrics.publish_window(&window);
        Ok(Shard {
            parts,
            epoll,
            connections: Connections::default(),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            window,
            purse,
            starved: Vec::new(),
            next_memory_scan: Instant::now(),
            encoded: Vec::new(),
            lingering: Vec::new(),
            inbox: Vec::new(),
            batch: Vec::new(),
            places: Vec::new(),
            requests: SpaceRequests::default(),
            outgoing: (0..peer_count).map(|_| Outgoing::Nothing).collect(),
            replies: SpaceReplies::new(),
            executed: 0,
            answered: Vec::new(),
            next_tick: Instant::now(),
            stop_until: None,
            finished: false,
        })
    }

    /// Works until the server has stopped, on its part of the hash store and on the ordered store that all share.
    pub(crate) fn run(mut self, processor: Processor) {
        let shared = self.parts.shared.clone();
        let mut stores = Stores::new(processor, shared.ordered.as_ref());
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut now = Instant::now();
        let mut spin_until = now;
        while !self.is_over() {
            self.tick(now);
            let worked = self.turn(&mut stores, &mut events, now);
            let begun = std::mem::replace(&mut now, Instant::now());
            if worked {
                self.measure(now, now - begun);
                spin_until = now + SPIN;
            } else if now < spin_until {
                // Whoever else wants this core, perhaps the client, has it.
                std::thread::yield_now();
            } else {
                stores.rest();
                self.sleep(&mut events);
                now = Instant::now();
                spin_until = now + SPIN;
            }
        }
    }

    /// Does everything that can be done at once; answers whether that was anything.
    fn turn(&mut self, stores: &mut Stores<'_>, events: &mut Vec<epoll::Event>, now: Instant) -> bool {
        self.poll(events, Some(Duration::ZERO));
        self.adopt();
        self.receive();
        let worked = self.has_work();
        if worked {
            self.gather(now);
            self.execute(stores, now);
            self.reply(now);
        }
        worked
    }

    fn has_work(&self) -> bool {
        let may_read = !self.held.is_empty() && self.window.has_room();
        may_read || !self.ready.is_empty() || !self.inbox.is_empty()
    }

    /// Asks epoll what has happened, and waits for it no longer than `timeout`.
    fn poll(&mut self, events: &mut Vec<epoll::Event>, timeout: Option<Duration>) {
        let timeout =
            timeout.map(|time| Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() });
        events.clear();
        // An interrupted wait is one in which nothing has happened.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref());
        for event in events.iter() {
            let (word, flags) = (event.data.u64(), event.flags);
            match word {
                WAKER_WORD => {}
                NATIVE_WORD => self.accept(Door::Native),
                RESP_WORD => self.accept(Door::Resp),
                word => {
                    let token = Token::from_u64(word);
                    let Some(connection) = self.connections.get_mut(token) else { continue };
                    let over = flags.intersects(EventFlags::HUP | EventFlags::ERR);
                    let finished = flags.contains(EventFlags::RDHUP) || over;
                    let readable = flags.contains(EventFlags::IN) || finished;
                    connection.notice(readable, flags.contains(EventFlags::OUT) || over, finished);
                    self.queue(token);
                }
            }
        }
    }

    /// Takes what other shards sent: answers go to the connections that wait for them, requests into the inbox.
    fn receive(&mut self) {
        for shard in 0..self.parts.peers.len() {
            let mut inbox_operations = 0;
            let Some(peer) = &mut self.parts.peers[shard] else { continue };
            while inbox_operations < INBOX_OPERATIONS_MAX
                && let Some(parcel) = peer.receive_requests()
            {
                inbox_operations += parcel.requests.len();
                self.inbox.push((shard, parcel));
            }
            while let Some(peer) = &mut self.parts.peers[shard]
                && let Some(parcel) = peer.receive_answers()
            {
                let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
                metrics.operations_forwarded.add(parcel.answers.done_count());
                self.purse.settle_batch(parcel.counted, 0);
                if let Some(connection) = self.connections.get_mut(parcel.connection) {
                    connection.round_mut().receive(shard as u16, &parcel.answers);
                    connection.settle(&mut self.purse);
                }
                let (token, is_deferred) = (parcel.connection, parcel.answers.done_count() == 0);
                peer.put_back(parcel);
                // What the owner has no memory for is sent again at the next tick.
                if is_deferred && self.purse.is_short() { self.starve(token) } else { self.queue(token) }
            }
        }
    }

    /// Reads and decodes the connections that are ready, as far as the window has room, until there is enough for a
    /// batch. What other shards ask for does not count, or they could keep the connections of this one waiting for ever.
    fn gather(&mut self, now: Instant) {
        let mut operation_count = 0;
        while operation_count < self.window.limit()
            && let Some((token, has_waited)) = self.next_ready()
        {
            let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
            let Some(connection) = self.connections.get_mut(token) else { continue };
            connection.queued = false;
            connection.retry(&self.purse);
            let is_next = has_waited || self.held.is_empty();
            let is_held = connection.would_read() && !(is_next && self.window.has_room());
            if is_held {
                metrics.held_back.add(1);
            } else {
                connection.read(metrics, self.window.share(), now, &mut self.purse);
            }
            if let Some(hello) = connection.decode(metrics, &mut self.purse)
                && self.greet(token, &hello)
            {
                continue;
            }
            let Some(connection) = self.connections.get_mut(token) else { continue };
            connection.settle(&mut self.purse);
            recount(connection, &mut self.window);
            if connection.wants_submission() {
                operation_count += connection.operation_count().min(self.window.share());
            }
            self.batch.push(Submission { token, places: 0..0, parcel_count: 0, is_held, goes_on: false });
        }
    }

    /// The next connection, and whether it was held back: those that have begun go first, then those that have waited to
    /// be read. Whoever is to be read and has not waited comes behind them.
    fn next_ready(&mut self) -> Option<(Token, bool)> {
        if let Some(token) = self.ready.pop_front() {
            return Some((token, false));
        }
        if self.window.has_room() { self.held.pop_front().map(|token| (token, true)) } else { None }
    }

    /// Runs the operations of all connections of the batch, and of the inbox, in one go, but for those of the hash space
    /// whose keys belong to another shard: they are sent there. What would come too late is refused, unless the server
    /// stops: then nobody waits behind it.
    fn execute(&mut self, stores: &mut Stores<'_>, now: Instant) {
        self.replies.allow_large(!self.purse.is_short());
        let Shard { parts, connections, window, purse, inbox, batch, places, outgoing, replies, stop_until, .. } = self;
        let Parts { index, shared, peers, partition, .. } = parts;
        let metrics = shared.metrics(usize::from(*index));
        let mut requests = std::mem::take(&mut self.requests).recycle();
        for (_, parcel) in inbox.iter() {
            for request in parcel.requests.iter() {
                requests.push(Space::Hash, request);
            }
        }
        places.clear();
        for submission in batch.iter_mut() {
            let Some(connection) = connections.get(submission.token) else { continue };
            if !connection.wants_submission() || purse.is_exhausted() {
                continue;
            }
            let count_max = if purse.is_overdrawn() { SHORT_OPERATIONS_MAX } else { window.share() };
            let start = places.len();
            let is_late = stop_until.is_none() && window.is_late(connection.read_at(), now, connection.in_flight());
            connection.visit(count_max, is_late, |space, operation| {
                let request = match operation {
                    Ok(request) => request,
                    Err(error) => {
                        metrics.refused.add(u64::from(error == WireError::Busy));
                        return push_run(places, start, Run::one(Slot::Kept(Answer::Unserved(error))));
                    }
                };
                // A request that is refused anyway need not travel for it.
                let is_ours = space != Space::Hash || request.key.len() > KEY_SIZE_MAX;
                let owner = if is_ours { *index } else { partition.shard_of(request.key) };
                if owner == *index {
                    return push_run(places, start, Run::one(Slot::Fresh(requests.push(space, request))));
                }
                let out = &mut outgoing[usize::from(owner)];
                if let Outgoing::Nothing = out {
                    let peer = peers[usize::from(owner)].as_mut().expect("every other shard is a peer");
                    *out = peer.parcel().map_or(Outgoing::NoPlace, Outgoing::Parcel);
                }
                if let Outgoing::Parcel(parcel) = out {
                    parcel.requests.push(&request);
                    push_run(places, start, Run::one(Slot::Forwarded(owner)));
                } else {
                    push_run(places, start, Run::one(Slot::Unanswered));
                }
            });
            submission.places = start..places.len();
            for (peer, out) in peers.iter_mut().zip(outgoing.iter_mut()) {
                if let (Some(peer), Outgoing::Parcel(mut parcel)) = (peer, std::mem::replace(out, Outgoing::Nothing)) {
                    parcel.connection = submission.token;
                    parcel.counted = parcel.capacity();
                    purse.settle_batch(0, parcel.counted);
                    submission.parcel_count += 1;
                    peer.send_requests(parcel);
                }
            }
        }
        self.executed = requests.len();
        if self.executed > 0 {
            metrics.operations.add(stores.execute(&requests, replies, now) as u64);
            metrics.publish(&stores.hash().statistics());
        }
        self.requests = requests.recycle();
    }

    /// Sends answers back to other shards, writes the replies of the batch, and sees what is next for each
    /// connection.
    fn reply(&mut self, now: Instant) {
        let mut answered = 0;
        for (shard, mut parcel) in self.inbox.drain(..) {
            for _ in 0..parcel.requests.len() {
                parcel.answers.push(self.replies.get(Place::hash(answered)));
                answered += 1;
            }
            let capacity = parcel.capacity();
            self.purse.settle_batch(std::mem::replace(&mut parcel.counted, capacity), capacity);
            if let Some(peer) = &mut self.parts.peers[shard] {
                peer.send_answers(parcel);
            }
        }
        let shared = self.parts.shared.clone();
        let shard = usize::from(self.parts.index);
        for index in 0..self.batch.len() {
            let Submission { token, ref places, parcel_count, is_held, .. } = self.batch[index];
            let Some(connection) = self.connections.get_mut(token) else { continue };
            let stood_back = stood_back(&self.places[places.clone()], &self.replies);
            if !places.is_empty() {
                connection.round_mut().place(&self.places[places.clone()], parcel_count, &self.replies);
            }
            let mut context = Context { shared: &shared, shard, connection: connection.number, closing: false };
            let answered = connection.encode(&self.replies, &mut self.encoded, &mut context, &self.purse);
            if answered > 0 {
                self.answered.push((answered, connection.read_at()));
            } else if self.replies.is_large_refused() && connection.wants_submission() {
                connection.starve();
            }
            let next = connection.write(&self.encoded, shared.metrics(shard), now, &mut self.purse);
            self.encoded.clear();
            recount(connection, &mut self.window);
            match next {
                Next::Work if is_held => {
                    connection.queued = true;
                    self.held.push_back(token);
                }
                // What is to be refused is to be told so soon.
                Next::Work
                    if connection.counted > 0
                        && self.window.is_late(connection.read_at(), now, connection.in_flight()) =>
                {
                    connection.queued = true;
                    self.ready.push_front(token);
                }
                Next::Work if stood_back => self.queue(token),
                Next::Work => self.batch[index].goes_on = true,
                Next::Wait => {}
                Next::Starve => self.starve(token),
                Next::Linger(_) if self.lingering.contains(&token) => {}
                Next::Linger(_) => self.lingering.push(token),
                Next::Close => self.close(token),
            }
        }
        for index in 0..self.batch.len() {
            if self.batch[index].goes_on {
                self.queue(self.batch[index].token);
            }
        }
        self.batch.clear();
        self.encoded.shrink_to(ENCODED_KEPT_MAX);
        self.retry_starved();
    }

    /// Lets the window follow how long it took until the replies of the turn were written; the turn took `spent`.
    fn measure(&mut self, now: Instant, spent: Duration) {
        let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
        for (count, read_at) in self.answered.drain(..) {
            metrics.answered(count as u64, now.saturating_duration_since(read_at));
            self.window.answered(count as u64, read_at, now);
        }
        metrics.publish_memory(&self.purse);
        self.window.adjust(now);
        self.window.worked(self.executed, spent);
        metrics.publish_window(&self.window);
    }

    /// Drops a connection.
    fn close(&mut self, token: Token) {
        if let Some(mut connection) = self.connections.remove(token) {
            connection.leave(&mut self.purse);
            self.window.recount(connection.counted, 0);
            self.parts.shared.leave(connection.number);
        }
    }

    /// Puts a connection into the queue, once.
    fn queue(&mut self, token: Token) {
        if let Some(connection) = self.connections.get_mut(token)
            && !connection.queued
        {
            connection.queued = true;
            self.ready.push_back(token);
        }
    }

    /// Does what time brings: ends lingering, listens again after a pause, and stops when the server does.
    fn tick(&mut self, now: Instant) {
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            for token in std::mem::take(&mut self.lingering) {
                let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
                let next = match self.connections.get_mut(token) {
                    Some(connection) => connection.write(&[], metrics, now, &mut self.purse),
                    None => continue,
                };
                if let Next::Linger(_) = next { self.lingering.push(token) } else { self.close(token) }
            }
            self.scan_memory(now);
        }
        if let Some(listeners) = &mut self.parts.listeners
            && let Err(error) = listeners.resume(&self.epoll, now, door_word)
        {
            tracing::warn!(%error, "cannot listen again");
        }
        if self.parts.shared.stopping.load(Ordering::Relaxed) {
            self.stop(now);
        }
    }

    /// Stops step by step: no more connections, no more input, then, when everything is answered and sent or too
    /// much time has passed, the end of all connections.
    fn stop(&mut self, now: Instant) {
        let Some(until) = self.stop_until else {
            self.stop_until = Some(now + FLUSH);
            self.parts.listeners = None;
            let tokens: Vec<Token> = self.connections.tokens().collect();
            for token in tokens {
                if let Some(connection) = self.connections.get_mut(token) {
                    let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
                    connection.end_input(metrics, now, &mut self.purse);
                }
                self.queue(token);
            }
            return;
        };
        if now >= until {
            let tokens: Vec<Token> = self.connections.tokens().collect();
            for token in tokens {
                self.close(token);
            }
        }
        if self.connections.is_empty() && !self.finished {
            self.finished = true;
            // Release and acquire, because the last one lets all go, and nobody may miss an answer sent before.
            self.parts.shared.shards_busy.fetch_sub(1, Ordering::AcqRel);
            for handover in &self.parts.handovers {
                handover.waker.wake();
            }
        }
    }

    /// Whether all shards have finished. Until then this one answers the others.
    fn is_over(&self) -> bool {
        self.finished && self.parts.shared.shards_busy.load(Ordering::Acquire) == 0
    }

    /// Sleeps until something happens.
    fn sleep(&mut self, events: &mut Vec<epoll::Event>) {
        self.parts.waker.will_sleep();
        self.adopt();
        self.receive();
        self.metrics().publish_memory(&self.purse);
        let stops = self.parts.shared.stopping.load(Ordering::Relaxed);
        if !self.has_work() && stops == self.stop_until.is_some() {
            let paused = self.parts.listeners.as_ref().is_some_and(Listeners::is_paused);
            let ticking = stops || paused || !self.lingering.is_empty() || self.watches_memory();
            self.poll(events, ticking.then_some(TICK));
        }
        self.parts.waker.awake();
    }

    fn metrics(&self) -> &Metrics {
        self.parts.shared.metrics(usize::from(self.parts.index))
    }
}

/// Whether the reply budget was used up by others before a connection's operations began. Such a connection is the
/// first of the next batch: those whose answers are large would use the budget up again and again.
fn stood_back(places: &[Run], replies: &SpaceReplies) -> bool {
    places.iter().find_map(Run::fresh).is_some_and(|place| replies.is_deferred(place))
}

/// Tells the window what a connection has in flight now: no more than its share, or one could shut out the others.
fn recount(connection: &mut Connection, window: &mut Window) {
    let after = connection.in_flight().min(window.share());
    window.recount(connection.counted, after);
    connection.counted = after;
}

fn door_word(door: Door) -> u64 {
    match door {
        Door::Native => NATIVE_WORD,
        Door::Resp => RESP_WORD,
    }
}
