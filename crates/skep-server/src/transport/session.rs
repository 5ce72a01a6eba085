//! The server's end of a session, and the lists that a shard has of its sessions. UDP and RDMA have sessions.
//!
//! ```text
//!   packets ─ receive ─▶ session ─ read ──▶ connection ── write ─▶ session ─ send ─▶ packets
//! ```
//!
//! A session has no socket, so reads and writes of a connection make no system call. The shard moves the packets of all
//! sessions, before and after the work of a turn.
//!
//! The buffers of all sessions of a shard have a common bound. When it is reached, a session takes a packet only if it
//! can be read at once, and a write only up to one packet. So each session continues with two packets of memory.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use skep_transport::datagram::{Data, Dropped, PAYLOAD_SIZE_MAX, Received, Role, Session};

use crate::limits::{DRAIN_TIME, SESSION_BUFFERS_MAX};
use crate::vocabulary::Token;

/// The bytes that the sessions of a shard hold.
#[derive(Debug, Default)]
struct Held(AtomicUsize);

impl Held {
    fn has_room(&self) -> bool {
        self.0.load(Ordering::Relaxed) < SESSION_BUFFERS_MAX
    }
}

/// The server's end of a session.
#[derive(Debug)]
pub(crate) struct SessionEnd {
    session: RefCell<Session>,
    held: Arc<Held>,
    /// The part of this session in it.
    counted: Cell<usize>,
    /// It is in its shard's list of sessions that may have packets to send.
    is_listed: Cell<bool>,
    /// The time at which this side ended the stream.
    finished_at: Cell<Option<Instant>>,
    /// The time at which its shard looks at it.
    timer: Cell<Option<Instant>>,
}

impl SessionEnd {
    /// Returns the number of the session.
    pub(crate) fn number(&self) -> u64 {
        self.session.borrow().number()
    }

    /// Takes a packet. Of a client that is not yet known, only one that can be read at once is taken: its hello is one
    /// packet.
    pub(crate) fn receive(
        &self,
        data: &Data<'_>,
        is_known: bool,
        now: Instant,
    ) -> std::result::Result<Received, Dropped> {
        let mut session = self.session.borrow_mut();
        let received = session.receive(data, is_known && self.held.has_room(), now);
        self.count(&session);
        received
    }

    /// Returns true if the client has ended its stream.
    pub(crate) fn has_end(&self) -> bool {
        self.session.borrow().has_end()
    }

    /// Records that the client has ended the session.
    pub(crate) fn end(&self) {
        self.session.borrow_mut().end();
    }

    /// Returns true if the session has ended.
    pub(super) fn is_over(&self) -> bool {
        self.session.borrow().is_over()
    }

    /// Lets `f` send the packets of the session. Returns its result, and the number of copies among the packets.
    pub(super) fn send(&self, f: impl FnOnce(&mut Session) -> u64) -> (u64, u64) {
        let mut session = self.session.borrow_mut();
        let sent = f(&mut session);
        self.count(&session);
        (sent, session.take_repeated())
    }

    /// Ends the session if its client was silent for too long. Returns true if it has ended.
    pub(crate) fn expire(&self, now: Instant) -> bool {
        self.session.borrow_mut().expire(now)
    }

    /// Reads the bytes that have arrived.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut session = self.session.borrow_mut();
        match session.read(buffer) {
            Some(size) => {
                self.count(&session);
                Ok(size)
            }
            None if session.is_over() => Err(ErrorKind::ConnectionReset.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes as many bytes as the session takes.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<usize> {
        let mut session = self.session.borrow_mut();
        if session.is_over() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let size_max = if self.held.has_room() { usize::MAX } else { PAYLOAD_SIZE_MAX };
        let size = session.write(bytes, size_max);
        self.count(&session);
        if size > 0 { Ok(size) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    /// Tells the client that no more bytes will leave.
    pub(super) fn finish(&self) -> Result<()> {
        let mut session = self.session.borrow_mut();
        session.finish();
        if session.is_over() { Err(ErrorKind::NotConnected.into()) } else { Ok(()) }
    }

    /// Returns true if the client has everything that was written, and the end, or does not wait for it: a client that
    /// misses packets asks for them. One that is between two calls acknowledges nothing.
    pub(super) fn is_delivered(&self, now: Instant) -> bool {
        let session = self.session.borrow();
        let finished_at = self.finished_at.get().unwrap_or(now);
        self.finished_at.set(Some(finished_at));
        session.is_delivered() || now >= finished_at.max(session.heard_at()) + DRAIN_TIME
    }

    /// Records the memory of the session.
    fn count(&self, session: &Session) {
        let (before, after) = (self.counted.get(), session.memory());
        if before != after {
            // Only the thread of the shard changes the sum.
            let sum = self.held.0.load(Ordering::Relaxed) + after - before;
            self.held.0.store(sum, Ordering::Relaxed);
            self.counted.set(after);
        }
    }
}

impl Drop for SessionEnd {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.counted.get(), Ordering::Relaxed);
    }
}

/// The lists of the sessions of a shard.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    held: Arc<Held>,
    /// Sessions that may have packets to send.
    listed: VecDeque<Token>,
    /// The times at which sessions are looked at. Entries of an earlier time of a session have no effect.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Sessions {
    /// Creates the end of a session.
    pub(super) fn begin(&self, number: u64, payload_size_max: usize, now: Instant) -> SessionEnd {
        SessionEnd {
            session: RefCell::new(Session::new(number, Role::Server, payload_size_max, now)),
            held: self.held.clone(),
            counted: Cell::new(0),
            is_listed: Cell::new(false),
            finished_at: Cell::new(None),
            timer: Cell::new(None),
        }
    }

    /// Puts a session on the list of those that may have packets to send.
    pub(crate) fn list(&mut self, token: Token, end: &SessionEnd) {
        if !end.is_listed.get() && end.session.borrow().has_packet() {
            end.is_listed.set(true);
            self.listed.push_back(token);
        }
    }

    /// Returns true if a session is on the list.
    #[cfg(feature = "rdma")]
    pub(super) fn has_listed(&self) -> bool {
        !self.listed.is_empty()
    }

    /// Takes the first session from the list.
    pub(crate) fn next_listed(&mut self) -> Option<Token> {
        self.listed.pop_front()
    }

    /// Sets the timer of a session whose packets were sent.
    pub(super) fn end_flush(&mut self, token: Token, end: &SessionEnd) {
        end.is_listed.set(false);
        if let Some(deadline) = end.session.borrow().deadline()
            && end.timer.get().is_none_or(|timer| deadline < timer)
        {
            end.timer.set(Some(deadline));
            self.timers.push(Reverse((deadline, token.to_u64())));
        }
    }

    /// Takes a session whose time has come.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<(Instant, Token)> {
        self.timers.peek().filter(|Reverse((due, _))| *due <= now)?;
        let Reverse((due, word)) = self.timers.pop()?;
        Some((due, Token::from_u64(word)))
    }

    /// Acts on a timer of a session.
    pub(crate) fn on_timer(&mut self, due: Instant, token: Token, end: &SessionEnd, now: Instant) {
        if end.timer.get() != Some(due) {
            return;
        }
        end.timer.set(None);
        let mut session = end.session.borrow_mut();
        match session.deadline() {
            Some(deadline) if deadline > now => {
                end.timer.set(Some(deadline));
                self.timers.push(Reverse((deadline, token.to_u64())));
            }
            Some(_) => {
                session.on_deadline(now);
                drop(session);
                // Also one without a packet gets its next timer with the flush.
                if !end.is_listed.replace(true) {
                    self.listed.push_back(token);
                }
            }
            None => {}
        }
    }

    /// Returns the time of the first timer.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((due, _))| *due)
    }
}
