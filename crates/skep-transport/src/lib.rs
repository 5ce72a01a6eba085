//! Streams of bytes between Skep's clients and shards that need no TCP. The client and the server use the same code.
//!
//! Each is one end of two ordered streams of bytes, as a TCP connection is. So the front ends of the server and the
//! lanes of the client are the same on every transport.

pub mod datagram;
#[cfg(feature = "rdma")]
pub mod rdma;
pub mod shared;
