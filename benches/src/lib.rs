//! Measures Skep and its alternatives in one run on one machine.
//!
//! | command | what it measures |
//! |---|---|
//! | `cargo bench -p skep-benches` | each part by itself: bucket, slabs, station, codecs, functions |
//! | `cargo run --release -p skep-benches --bin maps` | the store and Rust's maps: speed, and memory from the same fill |
//! | `cargo run --release -p skep-benches --bin ordered` | the ordered store and Rust's ordered maps, on one thread and on two |
//! | `cargo run --release -p skep-benches --bin honeycomb -- fig17` | a figure of Honeycomb's evaluation on the ordered store |
//! | `cargo run --release -p skep-benches --bin servers` | both front ends of the server, redis-server, memcached and a bare echo |
//! | `cargo run --release -p skep-benches --bin memcached` | the cache and memcached, over memcached's protocol: speed, and memory for each pair |
//! | `cargo run --release -p skep-benches --bin shards` | one and two shards in one process, and the load of the hottest shard |
//! | `cargo run --release -p skep-benches --bin soak` | nothing: it attacks a server in all ways at once and watches two clients |
//! | `cargo run --release -p skep-benches --bin connections` | a thousand connections, half of them slow or silent: latencies of the others alone and beside them |
//! | `cargo run --release -p skep-benches --bin expiry` | the memory of ten million expired keys: the time until it is free |
//! | `cargo run --release -p skep-benches --bin durability` | puts with a log, snapshots and starts: against the level `memory`, a bare loop of writes and redis-server |
//! | `cargo run --release -p skep-benches --bin durable` | what a log costs a store inside a program |
//! | `cargo run --release -p skep-benches --bin instructions` | instructions of one operation of the hash store, counted by callgrind |
//! | `cargo run --release -p skep-benches --bin engine` | `skep bench engine`, and saves its report |
//! | `cargo run -p skep-benches --bin plots` | nothing: it draws the saved results and writes `docs/performance.md` |
//!
//! Every workload also runs in the tests with tiny settings, and a hash of its work is compared, so that no workload
//! stops working unnoticed. A figure is the median of several rounds in which all contenders take turns. Each contender
//! is warmed up until its rate is steady. The spread of a figure is (upper quartile − lower quartile) / median; a
//! figure with too large a spread is withheld (`skep_measure`). Saved results are in `benches/results`, named by date
//! and machine.
//!
//! This crate is separate from the others, so that none of them depends on a peer.

pub mod connections;
pub mod durability;
pub mod durable;
pub mod engine;
pub mod expiry;
pub mod figures;
pub mod honeycomb;
pub mod instructions;
pub mod keys;
pub mod maps;
pub mod micro;
pub mod ordered;
pub mod output;
pub mod page;
pub mod plot;
pub mod process;
pub mod results;
pub mod servers;
pub mod shards;
pub mod soak;
pub mod tables;
