//! Measures Skep and its alternatives in one run on one machine.
//!
//! `cargo build --release -p skep -p skep-benches` builds the programs in `target/release`.
//!
//! | command | what it measures |
//! |---|---|
//! | `cargo bench -p skep-benches` | each part by itself: bucket, slabs, station, codecs, functions |
//! | `skep-maps maps` | the store and Rust's maps: speed, and memory from the same fill |
//! | `skep-maps ordered` | the ordered store and Rust's ordered maps, on one thread and on two |
//! | `skep-maps honeycomb fig17` | a figure of Honeycomb's evaluation on the ordered store |
//! | `skep-benches servers` | both front ends of the server, redis-server, memcached and a bare echo |
//! | `skep-benches memcached` | the cache and memcached, over memcached's protocol: speed, and memory for each pair |
//! | `skep-benches operation` | gets over TLS, and while metrics are read each second, beside plain ones |
//! | `skep-benches shards` | one and two shards in one process, and the load of the hottest shard |
//! | `skep-benches soak` | nothing: it attacks a server in all ways at once and watches two clients |
//! | `skep-benches connections` | a thousand connections, half of them slow or silent: latencies of the others alone and beside them |
//! | `skep-benches expiry` | the memory of ten million expired keys: the time until it is free |
//! | `skep-benches durability` | puts with a log, snapshots and starts: against the level `memory`, a bare loop of writes and redis-server |
//! | `skep-benches functions` | user functions: against built-in ones, Lua in redis-server, and compare-and-set |
//! | `skep-benches latency` | latency against throughput over shared memory, TCP and UDP |
//! | `skep-benches vectors` | `skep bench vectors` beside redis-server: KV-Direct's Table 2, and saves its report |
//! | `skep-benches durable` | what a log costs a store inside a program |
//! | `skep-benches instructions` | instructions of one operation of each store and of whole servers, counted by callgrind |
//! | `skep-benches engine` | `skep bench engine`, and saves its report |
//! | `skep-benches plots` | nothing: it draws the saved results and writes `docs/performance.md` |
//!
//! Every workload also runs in the tests with tiny settings, and a hash of its work is compared, so that no workload
//! stops working unnoticed. A figure is the median of several rounds in which all contenders take turns. Each contender
//! is warmed up until its rate is steady. The spread of a figure is (upper quartile − lower quartile) / median. A row
//! with too large a spread is measured longer; if it is still noisy, it is marked (`skep_measure`). Saved results are in
//! `benches/results`, named by date and machine.
//!
//! A new measurement is a function of its plan and the progress that [`program::main`] shows:
//!
//! 1. Its `Plan` has clap's arguments, among them an `Effort`: rounds and slices.
//! 2. It lists its rows, measures them with `skep_measure::Rounds`, and says when it begins steps before and after.
//! 3. Its report implements [`program::Measured`]; `page` shows it if `Saved` has a variant and a heading for it.
//!
//! This crate is separate from the others, so that none of them depends on a peer.

pub mod connections;
pub mod durability;
pub mod durable;
pub mod engine;
pub mod expiry;
pub mod figures;
pub mod functions;
pub mod honeycomb;
pub mod instructions;
pub mod keys;
pub mod latency;
pub mod maps;
pub mod micro;
pub mod ordered;
pub mod page;
pub mod plot;
pub mod process;
pub mod program;
pub mod results;
pub mod servers;
pub mod shards;
mod skep_bench;
pub mod soak;
pub mod tables;
pub mod vectors;
