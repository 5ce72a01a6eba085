//! The life of a connection, and the known state of its transport.
//!
//! ```text
//!            the input has ended, or the server stops
//!   Open ───────────────────────────────────────────▶ Finishing ─── all is sent ───▶ Closed
//!     │                                                   │                            ▲
//!     │ QUIT, an error, a lack of memory                  │                            │ the input has ended:
//!     └──────────────▶ Closing ◀──────────────────────────┘                            │ nothing to drain
//!                         │                                                            │
//!                         └── all is sent ──▶ Draining ── end of input, time, bytes ───┘
//! ```
//!
//! An error of the transport closes a connection in every state.
//!
//! A connection that ends on this side first tells the peer so, and then drains: it reads and discards the bytes that
//! the peer still sends, for a while. Closing at once could reset the connection, and so destroy replies in flight.

use std::io::{ErrorKind, Read};
use std::time::Instant;

use crate::buffer::Moved;
use crate::limits::{DRAIN_SIZE_MAX, DRAIN_TIME};
use crate::transport::Event;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Requests are read, executed and replied to.
    Open,
    /// No more is read. The requests that have arrived are executed and replied to.
    Finishing,
    /// No more requests are taken. The replies so far are sent.
    Closing {
        /// The peer has finished too, or the server stops: there is nothing to drain.
        is_input_over: bool,
    },
    /// Everything is sent, and the peer knows it.
    Draining(Drain),
    /// The connection is of no more use.
    Closed,
}

impl Life {
    /// Returns true if requests are taken from the input.
    pub(super) fn takes_requests(self) -> bool {
        matches!(self, Life::Open | Life::Finishing)
    }

    /// Records that no more input arrives, or that no more is wanted.
    pub(super) fn end_input(&mut self) {
        *self = match *self {
            Life::Open | Life::Finishing => Life::Finishing,
            Life::Closing { .. } => Life::Closing { is_input_over: true },
            Life::Draining(_) | Life::Closed => Life::Closed,
        }
    }

    /// Records that no more requests are taken.
    pub(super) fn end_requests(&mut self) {
        *self = match *self {
            Life::Open => Life::Closing { is_input_over: false },
            Life::Finishing => Life::Closing { is_input_over: true },
            state => state,
        }
    }

    /// Records that everything is sent, and that the peer was told so. `is_over` says that nothing more arrives.
    pub(super) fn end_output(&mut self, drain: Drain, is_over: bool) {
        *self = match *self {
            Life::Closing { is_input_over: false } if !is_over => Life::Draining(drain),
            _ => Life::Closed,
        }
    }
}

/// The end of a connection whose peer may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drain {
    /// When the connection closes in any case.
    pub(super) until: Instant,
    /// Bytes that were discarded.
    size: usize,
}

impl Drain {
    /// Begins now.
    pub(super) fn new(now: Instant) -> Drain {
        Drain { until: now + DRAIN_TIME, size: 0 }
    }

    /// Discards the bytes that have arrived. Returns true if the input has ended, or the limit is reached.
    pub(super) fn discard(&mut self, mut source: impl Read) -> bool {
        let mut discarded = [0; 16 << 10];
        while self.size < DRAIN_SIZE_MAX {
            match source.read(&mut discarded) {
                Ok(0) => return true,
                Ok(size) => self.size += size,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
        true
    }
}

/// The known state of the transport. Epoll reports each change once (edge-triggered), so the state is stored here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readiness {
    /// There may be something to read.
    pub(super) is_readable: bool,
    /// The transport may take something.
    pub(super) is_writable: bool,
    /// The peer has closed its side. Bytes that it sent before may still have to be read.
    pub(super) is_peer_finished: bool,
}

impl Readiness {
    /// Creates the readiness of a new transport. Reading and writing are tried.
    pub(super) fn new() -> Readiness {
        Readiness { is_readable: true, is_writable: true, is_peer_finished: false }
    }

    /// Takes over an event.
    pub(super) fn on_event(&mut self, event: Event) {
        self.is_readable |= event.is_readable;
        self.is_writable |= event.is_writable;
        self.is_peer_finished |= event.is_finished;
    }

    /// Takes over the result of a read.
    pub(super) fn on_read(&mut self, moved: Moved) {
        // The peer's end may have been reported before its last bytes were read, so read until the end is seen.
        self.is_readable = moved.more || self.is_peer_finished && !moved.ended;
    }

    /// Takes over the result of a write.
    pub(super) fn on_write(&mut self, moved: Moved) {
        self.is_writable = moved.more;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{Drain, Life};
    use crate::limits::DRAIN_SIZE_MAX;

    #[test]
    fn only_a_connection_that_ends_here_first_drains() {
        let drain = Drain::new(Instant::now());
        let closing = |is_input_over| Life::Closing { is_input_over };
        for (state, after_input, after_requests, after_output) in [
            (Life::Open, Life::Finishing, closing(false), Life::Closed),
            (Life::Finishing, Life::Finishing, closing(true), Life::Closed),
            (closing(false), closing(true), closing(false), Life::Draining(drain)),
            (closing(true), closing(true), closing(true), Life::Closed),
            (Life::Draining(drain), Life::Closed, Life::Draining(drain), Life::Closed),
            (Life::Closed, Life::Closed, Life::Closed, Life::Closed),
        ] {
            let mut states = [state; 4];
            states[0].end_input();
            states[1].end_requests();
            states[2].end_output(drain, false);
            states[3].end_output(drain, true);
            assert_eq!(states, [after_input, after_requests, after_output, Life::Closed], "from {state:?}");
        }
    }

    #[test]
    fn a_peer_that_goes_on_sending_is_drained_to_a_limit() {
        let mut drain = Drain::new(Instant::now());
        assert!(drain.discard(&[7; 1000][..]), "its end was found");
        assert!(drain.discard(std::io::repeat(7)), "no end was found");
        assert!((DRAIN_SIZE_MAX..2 * DRAIN_SIZE_MAX).contains(&drain.size));
    }
}
