//! The event queue of a shard: sockets, listeners, and the waker that other shards use, through epoll.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::Event;
use crate::front_end::FrontEnd;
use crate::limits::EVENTS_MAX;
use crate::vocabulary::Token;

/// Words in epoll that do not name a connection. No token has these generations.
const WAKER_WORD: u64 = u64::MAX;
const NATIVE_WORD: u64 = u64::MAX - 1;
const RESP_WORD: u64 = u64::MAX - 2;
const SHARED_MEMORY_WORD: u64 = u64::MAX - 3;
const DATAGRAMS_WORD: u64 = u64::MAX - 4;
const MEMCACHED_WORD: u64 = u64::MAX - 5;
const MEMCACHED_DATAGRAMS_WORD: u64 = u64::MAX - 6;
#[cfg(feature = "rdma")]
const RDMA_LISTENER_WORD: u64 = u64::MAX - 7;
#[cfg(feature = "rdma")]
const RDMA_EVENTS_WORD: u64 = u64::MAX - 8;

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Another shard has something for this one.
    Waker,
    /// A listener has connections.
    Listener(FrontEnd),
    /// The listener of shared memory has connections.
    SharedMemoryListener,
    /// The UDP socket of this shard has packets.
    Datagrams,
    /// The UDP socket of memcached's clients has datagrams.
    MemcachedDatagrams,
    /// The listener of RDMA of this shard has connections.
    #[cfg(feature = "rdma")]
    RdmaListener,
    /// Clients over RDMA wake this shard.
    #[cfg(feature = "rdma")]
    RdmaEvents,
    /// A connection of this shard.
    Connection(Token),
}

impl Source {
    fn to_word(self) -> u64 {
        match self {
            Source::Waker => WAKER_WORD,
            Source::Listener(FrontEnd::Native) => NATIVE_WORD,
            Source::Listener(FrontEnd::Resp) => RESP_WORD,
            Source::SharedMemoryListener => SHARED_MEMORY_WORD,
            Source::Datagrams => DATAGRAMS_WORD,
            #[cfg(feature = "rdma")]
            Source::RdmaListener => RDMA_LISTENER_WORD,
            #[cfg(feature = "rdma")]
            Source::RdmaEvents => RDMA_EVENTS_WORD,
            Source::Listener(FrontEnd::Memcached) => MEMCACHED_WORD,
            Source::MemcachedDatagrams => MEMCACHED_DATAGRAMS_WORD,
            Source::Connection(token) => token.to_u64(),
        }
    }

    fn from_word(word: u64) -> Source {
        match word {
            WAKER_WORD => Source::Waker,
            NATIVE_WORD => Source::Listener(FrontEnd::Native),
            RESP_WORD => Source::Listener(FrontEnd::Resp),
            SHARED_MEMORY_WORD => Source::SharedMemoryListener,
            DATAGRAMS_WORD => Source::Datagrams,
            #[cfg(feature = "rdma")]
            RDMA_LISTENER_WORD => Source::RdmaListener,
            #[cfg(feature = "rdma")]
            RDMA_EVENTS_WORD => Source::RdmaEvents,
            MEMCACHED_WORD => Source::Listener(FrontEnd::Memcached),
            MEMCACHED_DATAGRAMS_WORD => Source::MemcachedDatagrams,
            word => Source::Connection(Token::from_u64(word)),
        }
    }
}

/// Waits for events.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    /// The events of the last wait.
    events: Vec<(Source, Event)>,
    /// Number of these that were returned.
    taken: usize,
}

impl Poller {
    /// Creates a poller that waits for nothing yet.
    pub(crate) fn new() -> rustix::io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller { epoll, events: Vec::with_capacity(EVENTS_MAX), taken: 0 })
    }

    /// Adds a file descriptor to wait for.
    pub(crate) fn add(&self, source: impl AsFd, word: Source, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, source, EventData::new_u64(word.to_word()), flags)
    }

    /// Removes a file descriptor.
    pub(crate) fn remove(&self, source: impl AsFd) {
        // The only failure is a descriptor that was not added.
        let _ = epoll::delete(&self.epoll, source);
    }

    /// Waits until something happens, and no longer than `timeout`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) {
        let timeout =
            timeout.map(|time| Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() });
        self.events.clear();
        self.taken = 0;
        let mut buffer = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        // An interrupted wait counts as one without events.
        if let Ok((events, _)) = epoll::wait(&self.epoll, &mut buffer, timeout.as_ref()) {
            self.events.extend(events.iter().map(|event| (Source::from_word(event.data.u64()), event_of(event.flags))));
        }
    }

    /// Returns true if [`Poller::next_event`] has one.
    pub(crate) fn has_events(&self) -> bool {
        self.taken < self.events.len()
    }

    /// Returns the next event of the last wait.
    pub(crate) fn next_event(&mut self) -> Option<(Source, Event)> {
        let event = *self.events.get(self.taken)?;
        self.taken += 1;
        Some(event)
    }
}

/// Returns the event that flags describe.
fn event_of(flags: EventFlags) -> Event {
    let is_over = flags.intersects(EventFlags::HUP | EventFlags::ERR);
    let is_finished = flags.contains(EventFlags::RDHUP) || is_over;
    Event {
        is_readable: flags.contains(EventFlags::IN) || is_finished,
        is_writable: flags.contains(EventFlags::OUT) || is_over,
        is_finished,
        is_over,
    }
}
