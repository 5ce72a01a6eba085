//! The stores of Skep, without input or output: what KV-Direct, Honeycomb and HERD keep in memory, and how operations
//! run on it.
//!
//! | module | what it is | source |
//! |---|---|---|
//! | [`memory`] | lines of 64 bytes, on this machine or counted | |
//! | [`hash`] | buckets, slabs, large values | KV-Direct, sections 3.3.1, 3.3.2 |
//! | [`ordered`] | the B+ tree that threads share | Honeycomb |
//! | [`counted`] | the same with an observer of its reads | |
//! | [`cache`] | a lossy index and a circular log: a store that may forget | HERD, section 4.1; MICA |
//! | [`processor`] | admission, reservation station, interleaver | KV-Direct, section 3.3.3 |
//! | [`naive`] | the obvious store that all tests compare with | |

mod apply;
pub mod cache;
// Unit tests see the shipped store only.
#[cfg(not(test))]
pub mod counted;
pub mod hash;
mod lines;
pub mod memory;
pub mod naive;
pub mod ordered;
pub mod processor;

use skep_core::short;
