//! RDMA verbs: sessions whose packets are RDMA WRITEs towards the server, and datagrams towards the client, as HERD
//! chose (section 3.3: one datagram endpoint serves all clients, where connected endpoints for replies would not scale).
//!
//! ```text
//!   client                                              server: a shard
//!   TCP: request  ───────────────────────────────────▶  creates the memory and the queue pair of this client
//!        ◀──────────────────────────────────── reply    number of the session, address and key of the slots
//!
//!   session ─ packet ─ WRITE (UC, inlined if short) ─▶  slot ─ polled ─ packet ─▶ session
//!   session ◀─ packet ─ receive ◀─ SEND (UD) ────────── packet ◀─────────────── session
//!
//!   TCP: end  ◀──────────────────────────────────────▶  end: the session has ended
//! ```
//!
//! Both transports lose packets, and networks also reorder and repeat them. The state machine of a session
//! ([`crate::datagram`]) repairs that, so an update is executed at most once. Verbs only move its packets.
//!
//! **Slots.** Each client has slots of its own in the server's memory, in a region and a protection domain of its own. It
//! writes packet *n* into slot *n* modulo their number. So a client can damage nothing except its own packets
//! (`slots.rs`).
//!
//! **Wake-ups.** A shard polls the slots of a client for a while after each packet, and then sleeps. A WRITE alone raises
//! no event. So a client sends a packet as WRITE WITH IMMEDIATE if it has sent nothing for [`AWAKE_TIME`]. That raises a
//! completion event, whose file descriptor wakes the shard. A retransmission after a timeout always has such a pause
//! before it. A shard polls longer than that after each packet. If it sleeps too early all the same, the packet counts as
//! lost, and its copy wakes the shard.
//!
//! **Selective signalling.** Of 16 sends, one raises a completion, after which the memory of all sends before it is free
//! again. A send that finds no room is lost, as on the network; a shard sends only if there is room.
//!
//! - `port.rs`: finds the device that has an IP address. The two sides know each other's from the TCP connection.
//! - `setup.rs`: the two messages over TCP.
//! - `slots.rs`: the layout of slots, and the server's view of them.
//! - `sends.rs`: the send queue of both sides.
//! - `server.rs`, `client.rs`: the two sides.
//! - `abi.rs`, `verbs.rs`: the C library libibverbs, which is opened at run time.

mod abi;
mod client;
mod port;
mod sends;
mod server;
mod setup;
mod slots;
#[cfg(test)]
mod tests;
mod verbs;

use std::time::Duration;

pub use client::RdmaStream;
pub use server::{RdmaEnd, RdmaPort};
pub use setup::{ACCEPTANCE_SIZE, Acceptance, Malformed, REQUEST_SIZE, Refusal, Request};
pub use slots::{PACKET_SIZE_MAX, PAYLOAD_SIZE_MAX, SLOTS_SIZE};

/// A client that has sent nothing for this time wakes the server with its next packet.
pub const AWAKE_TIME: Duration = Duration::from_micros(20);
