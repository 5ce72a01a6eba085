//! The bytes of Skep: what clients and servers send each other, and which shard owns a key. No sockets here.
//!
//! Decoding borrows from the bytes that arrived, allocates nothing and never panics, whatever arrived.

pub mod native;
pub mod partition;
pub mod resp;
