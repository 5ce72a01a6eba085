//! The vocabulary of Skep, shared by engines, wire formats, clients and servers.
//!
//! | module | content | source |
//! |---|---|---|
//! | [`operation`] | requests, operations, replies, limits, errors | KV-Direct, Table 1 |
//! | [`function`] | element types and the functions that run next to the data (λ) | KV-Direct, section 3.2 |
//! | [`short`] | up to eight bytes as one number: copies and comparisons without a call | |
//!
//! This crate stores, sends and parses nothing. Engines, `skep-wire` and the clients build on its types. The codes of
//! these types on the wire belong to `skep-wire`.

mod error;
pub mod function;
pub mod operation;
pub mod short;
