//! Shared memory: two rings of bytes for each connection of a client to a shard.
//!
//! ```text
//!   client                                          server
//!   writes ──▶ request file: ring of requests ──▶ reads
//!   reads  ◀── reply file:   ring of replies  ◀── writes
//!          ◀── unix socket: doorbells, the end ──▶
//! ```
//!
//! The server creates both files (memfds), so a client cannot choose their sizes. It seals the request file against
//! resizing, and the reply file also against writing by others. So a client can damage nothing except its own requests.
//! The server copies bytes out of the ring before it parses them, and checks each word that the client writes.
//!
//! A *file* has one writer. Its words say how far the writer is in both rings:
//!
//! ```text
//! line 0     line 1     line 2     …  byte 4096
//! ┌──────────┬──────────┬──────────┬─┬───────────────────────┐
//! │ tail     │ taken    │ wait     │ │ ring                  │
//! └──────────┴──────────┴──────────┴─┴───────────────────────┘
//! ```
//!
//! - tail: bytes that the writer has put into the ring of this file.
//! - taken: bytes that the writer has taken out of the ring of the other file.
//! - wait: says if the writer of this file waits for a doorbell, and what for (`words.rs`).
//! - ring: byte *n* of the stream is at *n* modulo the size of the ring.
//!
//! Steps of a send:
//!
//! 1. Copy the bytes into the ring.
//! 2. Publish the tail with release order, and fence.
//! 3. Ring the doorbell if the other side waits. A doorbell is one byte over the socket.
//!
//! While both sides poll, neither makes a system call, except that a waiting client gives its core to other threads
//! (`wait.rs`). A side that has found nothing for a while sets its wait word, fences, polls once more, and sleeps until
//! the socket is readable.
//!
//! **Why no wake-up is lost.** The two fences are sequentially consistent: either the sender sees the wait word, or the
//! other side sees the tail. `tests/shared_words.rs` checks all interleavings.
//!
//! The doorbell is the socket and not an eventfd. Both sides of an eventfd share its flags, so a client could make the
//! server's write block. The end of the socket also tells that the other process has ended.

mod end;
mod layout;
mod mapping;
mod ring;
mod setup;
mod side;
mod sync;
#[cfg(test)]
mod tests;
mod wait;
mod words;

pub use end::{Changes, End};
pub use layout::{CONNECTION_SIZE, RING_SIZE};
pub use side::InvalidWord;
pub use wait::wait;
