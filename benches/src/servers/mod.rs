//! Skep's server compared with redis-server, memcached and a bare echo, over loopback.
//!
//! ```text
//! first core    the servers: one at a time gets requests; the others sleep
//! second core   the client: one thread, the same code for all, one batch in flight on each connection
//! ```
//!
//! The client must be so cheap that the server is the bottleneck. Its requests are encoded once, in a template in which
//! only the keys are replaced. It counts the bytes of the replies, whose number is known in advance, and compares every
//! 64th batch byte by byte. The time that it waits for replies is measured, and so is the processor time of client and
//! server. A client that never waits was the bottleneck itself.
//!
//! Two more parts have redis-server alone beside Skep: commands that only these two have, and redis-benchmark against
//! servers with default settings, on all cores.
//!
//! The echo reads requests of the native protocol as bare bytes and sends as many bytes as Skep would. It shows the
//! limit of the kernel's TCP on this machine.

mod child;
mod client;
mod commands;
mod conditions;
mod defaults;
mod echo;
mod measure;
mod memcached;
mod operation;
mod plan;
mod redis_benchmark;
mod report;
mod rows;
mod run;
mod stream;
mod template;

pub(crate) use child::{Server, Setting, free_udp_address, skep_addresses};
pub(crate) use client::{Client, Source};
pub use conditions::Conditions;
pub use defaults::DefaultRow;
pub use echo::serve as serve_echo;
pub(crate) use measure::{Load, Sample, load, measure};
pub use memcached::{MemcachedReport, compare_memcached};
pub use operation::measure_operation;
pub use plan::Plan;
pub(crate) use plan::ROUNDS;
pub use redis_benchmark::BenchmarkRow;
pub use report::Report;
pub use rows::Row;
pub use run::run;
pub(crate) use template::Template;
pub use template::{Protocol, Verb};
