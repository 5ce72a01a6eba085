//! Skep's server beside redis-server, memcached and a bare echo, over loopback.
//!
//! ```text
//! first core    one server at a time is asked; the others sleep
//! second core   the client: one thread, the same code for all, one batch under way on each connection
//! ```
//!
//! The client has to be so cheap that the server is what is measured: requests lie encoded in a template in which only
//! keys are replaced; of the answers it counts the bytes, which are known beforehand, and compares every 64th batch
//! byte by byte. How long it waited for answers is measured, and so is everybody's processor time: a client that never
//! waits was itself the limit.
//!
//! The echo reads requests of the native protocol as bare bytes and sends as many bytes as Skep would: what the kernel's
//! TCP allows on this machine.

mod child;
mod client;
mod echo;
mod redis_benchmark;
mod report;
mod run;
mod template;

pub use echo::serve as serve_echo;
pub use redis_benchmark::BenchmarkRow;
pub use report::{Report, Row};
pub use run::{Plan, run};
pub use template::{Protocol, Verb};
