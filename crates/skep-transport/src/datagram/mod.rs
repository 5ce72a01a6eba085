//! Datagrams: sessions over UDP.
//!
//! A *session* is one end of two ordered streams of bytes, as a TCP connection is. A byte is delivered exactly once and in
//! order. So an update is executed at most once, and a server needs no list of the replies to earlier updates. Bytes of
//! many requests share a packet.
//!
//! ```text
//!   client                                       server
//!     hello (no cookie) ─────────────────────────▶
//!     ◀───────────────────────── challenge: cookie    nothing is kept
//!     hello (cookie) ────────────────────────────▶
//!     ◀──────────────────────────── accept: number    the session begins
//!     data ◀─────────────────────────────────────▶ data
//!     unknown ◀──────────────────────────────────▶ unknown: the session has ended
//! ```
//!
//! - `packet.rs`: the layout of packets.
//! - `session.rs`, `sender.rs`, `receiver.rs`: the state machine of a session, for both sides.
//! - `handshake.rs`: how a session begins.
//! - `socket.rs`: many packets with a system call.
//! - `stream.rs`: a client's session with its socket.
//!
//! The first three have no socket, no clock and no randomness: bytes, time and seed are arguments.

mod handshake;
mod packet;
mod receiver;
mod sender;
mod session;
#[cfg(test)]
mod simulation;
mod socket;
mod stream;

use std::collections::VecDeque;

pub use handshake::{Cookies, Opening};
#[cfg(feature = "rdma")]
pub(crate) use packet::HEADER_SIZE as DATA_HEADER_SIZE;
pub use packet::{
    CONTROL_SIZE, Control, Data, Dropped, PACKET_SIZE_MAX, PAYLOAD_SIZE_MAX, Packet, WINDOW_MAX, packets,
};
pub use session::{Received, Role, SESSION_TIME, Session};
pub use socket::{ARRIVAL_SIZE_MAX, Burst, DatagramSocket};
pub use stream::DatagramStream;

/// Bytes of memory that an empty buffer of a session keeps: those of small requests and replies. Idle sessions count for
/// the bound of all.
const SPARE_SIZE_MAX: usize = 2 << 10;

/// Returns the memory of an empty buffer, except `kept` bytes.
fn shrink(bytes: &mut VecDeque<u8>, kept: usize) {
    if bytes.is_empty() && bytes.capacity() > kept {
        bytes.shrink_to(kept);
    }
}
