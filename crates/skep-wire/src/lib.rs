//! The bytes that clients and servers of Skep exchange, and the hash that assigns keys to shards. This crate has no
//! sockets.
//!
//! Decoding borrows from the bytes that arrived. It allocates nothing and never panics, even on invalid bytes. Only the
//! reader of files of Redis (`rdb`) copies: it reads from a stream, with bounded memory.

pub mod memcached;
pub mod native;
pub mod partition;
pub mod rdb;
pub mod resp;
