//! A session: an ordered and reliable stream of bytes in each direction, over packets that may be lost, repeated and
//! reordered. It has no socket and no clock.
//!
//! ```text
//!   write ─▶ sender ─── next_packet ─▶ packets … packets ─ receive ─▶ receiver ─▶ read
//!              ▲                                             │
//!              └──────────── acknowledgement, window ────────┘
//! ```
//!
//! 1. Every packet has the acknowledgement and the window of the receiver, so a reply acknowledges its request, and the
//!    next request the reply.
//! 2. A server acknowledges in each turn in which packets arrived. A client acknowledges only during a call: with its
//!    next request, before it waits, or after [`UNACKNOWLEDGED_MAX`] packets. So the timeout of a server is long
//!    ([`SERVER_TIMEOUT_MIN`]).
//! 3. A lost reply is recovered by the client, which knows that it waits: it repeats its request, or sends a *probe* if
//!    the request is acknowledged. The other side replies to both at once with everything that is not acknowledged.
//! 4. A server that hears nothing for [`SESSION_TIME`] ends the session. A client does not use a session after half of
//!    that time without a packet, so the server does not end the session while an update is in flight.

use std::time::{Duration, Instant};

use super::packet::{Data, Dropped};
use super::receiver::{Receipt, Receiver};
use super::sender::Sender;

/// The time without a packet after which a server ends a session.
pub const SESSION_TIME: Duration = Duration::from_secs(60);
/// Packets that a client receives before it acknowledges them in any case.
const UNACKNOWLEDGED_MAX: usize = 16;
/// Growth of the window, in packets, after which the other side is told.
const WINDOW_STEP: u64 = 32;
/// The shortest retransmission timeout of a client, and of a server: see the header.
const CLIENT_TIMEOUT_MIN: Duration = Duration::from_millis(5);
const SERVER_TIMEOUT_MIN: Duration = Duration::from_millis(200);
/// Timeouts after which a server sends nothing until it hears from the client.
const SERVER_TIMEOUTS_MAX: u32 = 6;
/// The probes after which the time between two of them does not double any more.
const PROBES_DOUBLED_MAX: u32 = 7;

/// The role of an end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It began the session.
    Client,
    /// It accepted the session.
    Server,
}

/// The changes by a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// There are more bytes to read, or the end of the stream.
    pub is_readable: bool,
    /// There is room again, after a write had found too little.
    pub is_writable: bool,
    /// The reason why its payload was dropped, if it was. Its acknowledgement counts all the same.
    pub dropped: Option<Dropped>,
}

/// One end of a session.
#[derive(Debug)]
pub struct Session {
    number: u64,
    role: Role,
    sender: Sender,
    receiver: Receiver,
    /// Packets that arrived since the last acknowledgement.
    unacknowledged: usize,
    /// An acknowledgement is to leave with the next packets.
    is_acknowledgement_due: bool,
    /// A probe is to leave with the next packets.
    is_probe_due: bool,
    /// The end of the window in the last packet that was sent.
    told_window_end: u64,
    /// Since when the client waits for a packet, and the probes that it sent since.
    waits_since: Option<Instant>,
    probes: u32,
    /// The last write found too little room.
    is_blocked: bool,
    heard_at: Instant,
    is_over: bool,
}

impl Session {
    /// Creates one end of the session with this number. Its packets have at most `payload_size_max` bytes of the stream.
    pub fn new(number: u64, role: Role, payload_size_max: usize, now: Instant) -> Session {
        let sender = match role {
            Role::Client => Sender::new(payload_size_max, CLIENT_TIMEOUT_MIN, u32::MAX, now),
            Role::Server => Sender::new(payload_size_max, SERVER_TIMEOUT_MIN, SERVER_TIMEOUTS_MAX, now),
        };
        let receiver = Receiver::default();
        Session {
            number,
            role,
            sender,
            told_window_end: u64::from(receiver.window()),
            receiver,
            unacknowledged: 0,
            is_acknowledgement_due: false,
            is_probe_due: false,
            waits_since: None,
            probes: 0,
            is_blocked: false,
            heard_at: now,
            is_over: false,
        }
    }

    /// Breaks the check for copies: the control of the simulation.
    #[cfg(test)]
    pub(super) fn take_twice(&mut self) {
        self.receiver.takes_twice = true;
    }

    /// Returns the number of the session.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Takes a packet of this session. Without memory, it takes no packet that it would have to keep for long.
    pub fn receive(&mut self, data: &Data<'_>, has_memory: bool, now: Instant) -> Result<Received, Dropped> {
        if data.session != self.number || self.is_over {
            return Err(Dropped::Session);
        }
        let has_room = self.sender.on_acknowledgement(data, now)?;
        self.heard_at = now;
        self.sender.on_heard(now);
        (self.waits_since, self.probes) = (None, 0);
        let is_writable = has_room && std::mem::take(&mut self.is_blocked);
        let mut received = Received { is_readable: false, is_writable, dropped: None };
        if data.is_probe {
            self.is_acknowledgement_due = true;
            self.sender.resend(now);
        }
        let Some(number) = data.number else { return Ok(received) };
        let before = self.receiver.acknowledgement();
        match self.receiver.receive(number, data, has_memory) {
            Ok(receipt) => {
                self.unacknowledged += 1;
                self.is_acknowledgement_due |= receipt == Receipt::OutOfOrder
                    || self.role == Role::Server
                    || self.unacknowledged >= UNACKNOWLEDGED_MAX;
                received.is_readable = self.receiver.acknowledgement() > before;
            }
            Err(reason) => {
                self.is_acknowledgement_due = true;
                if reason == Dropped::Duplicate {
                    self.sender.resend(now);
                }
                received.dropped = Some(reason);
            }
        }
        Ok(received)
    }

    /// Moves bytes that arrived to the buffer. Returns their number, or `None` if none can be read yet; zero means that
    /// the other side has ended its stream.
    pub fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if self.receiver.readable() == 0 {
            return self.receiver.has_ended().then_some(0);
        }
        let size = self.receiver.read(buffer);
        self.is_acknowledgement_due |= self.window_end() >= self.told_window_end + WINDOW_STEP;
        Some(size)
    }

    /// Returns the number of bytes that can be read.
    pub fn readable(&self) -> usize {
        self.receiver.readable()
    }

    /// Returns true if the other side has ended its stream. There may be bytes to read.
    pub fn has_end(&self) -> bool {
        self.receiver.has_end()
    }

    /// Appends bytes to the stream, so that at most `size_max` are kept. Returns the number of those that there was room
    /// for.
    pub fn write(&mut self, bytes: &[u8], size_max: usize) -> usize {
        let size = self.sender.write(bytes, size_max);
        self.is_blocked = size < bytes.len();
        size
    }

    /// Returns the number of bytes that can be written.
    pub fn room(&self) -> usize {
        self.sender.room(usize::MAX)
    }

    /// Ends the stream after the bytes that were written.
    pub fn finish(&mut self) {
        self.sender.finish();
    }

    /// Returns true if everything that was written has arrived.
    pub fn is_delivered(&self) -> bool {
        self.sender.is_done()
    }

    /// Ends the session: the other side has ended it, or does not know it.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Returns true if the session has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the time at which the last packet arrived.
    pub fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// Records that the client waits for a packet: it acknowledges those that arrived, and sends probes if nothing
    /// arrives.
    pub fn wait(&mut self, now: Instant) {
        self.is_acknowledgement_due |= self.unacknowledged > 0;
        self.waits_since.get_or_insert(now);
    }

    /// Returns true if a packet is to be sent.
    pub fn has_packet(&self) -> bool {
        !self.is_over && (self.is_acknowledgement_due || self.is_probe_due || self.sender.has_next())
    }

    /// Appends the next packet to `out`. Returns false if there is none.
    pub fn next_packet(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if !self.has_packet() {
            return false;
        }
        let next = self.sender.next(now);
        let header = Data {
            session: self.number,
            number: next.map(|next| next.number),
            is_end: next.is_some_and(|next| next.is_end),
            is_probe: self.is_probe_due,
            acknowledgement: self.receiver.acknowledgement(),
            bitmap: self.receiver.bitmap(),
            window: self.receiver.window(),
            payload: &[],
        };
        header.encode_header(next.map_or(0, |next| next.size), out);
        if let Some(next) = next {
            self.sender.append_payload(&next, out);
        }
        self.told_window_end = self.window_end();
        self.unacknowledged = 0;
        (self.is_acknowledgement_due, self.is_probe_due) = (false, false);
        true
    }

    fn window_end(&self) -> u64 {
        self.receiver.acknowledgement() + u64::from(self.receiver.window())
    }

    /// Returns the time at which [`Session::on_deadline`] is to be called if nothing arrives.
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.sender.deadline(), self.probe_at()];
        deadlines.into_iter().flatten().min().filter(|_| !self.is_over)
    }

    /// Ends the session if nothing was heard for [`SESSION_TIME`]. Returns true if it has ended.
    pub fn expire(&mut self, now: Instant) -> bool {
        self.is_over |= now >= self.heard_at + SESSION_TIME;
        self.is_over
    }

    /// Returns the time of the next probe. While packets are not acknowledged, they are repeated instead.
    fn probe_at(&self) -> Option<Instant> {
        let since = self.waits_since.filter(|_| self.sender.deadline().is_none())?;
        // The time between two probes doubles, so this is the sum of those before.
        Some(since + self.sender.timeout() * ((2 << self.probes.min(PROBES_DOUBLED_MAX)) - 1))
    }

    /// Repeats packets whose acknowledgement is late, or asks the other side for a packet.
    pub fn on_deadline(&mut self, now: Instant) {
        if self.sender.deadline().is_some_and(|deadline| now >= deadline) {
            self.is_probe_due |= self.sender.on_timeout(now);
        } else if self.probe_at().is_some_and(|deadline| now >= deadline) {
            self.is_probe_due = true;
            self.probes += 1;
            if self.probes > PROBES_DOUBLED_MAX {
                (self.waits_since, self.probes) = (Some(now), PROBES_DOUBLED_MAX);
            }
        }
    }

    /// Returns the number of copies that were sent since the last call.
    pub fn take_repeated(&mut self) -> u64 {
        self.sender.take_repeated()
    }

    /// Returns the bytes of memory held beside the session itself.
    pub fn memory(&self) -> usize {
        self.sender.memory() + self.receiver.memory()
    }
}
