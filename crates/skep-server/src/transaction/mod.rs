//! Transactions, and commands of several keys: *isolated* commands, which no other operation can observe half done.
//!
//! ```text
//!   connection ─▶ parsed batch ─▶ isolated command ─┬─ all keys are this shard's ──▶ run, between two batches
//!   MULTI: queue ─────────────▶ EXEC ───────────────┤                                 ▲  ▲
//!                                                   ├─ all another one's ─▶ visit ────┘  │ ─▶ come back
//!                                                   └─ several shards' ─▶ hold: borrow ──┘ ─▶ give back
//! ```
//!
//! 1. The parsed batch of a connection ends its ordinary operations at the first isolated command. The shard runs that
//!    command when every reply before it is in the output, and writes its reply there (`command.rs`, `several.rs`, `exec.rs`).
//! 2. While a command runs, no other operation is executed on the stores of the shards that it involves. So it takes
//!    effect at one moment. If it has to wait, because a store merges free memory or its turn is full, these shards go on
//!    polling, receiving and sleeping, but execute nothing.
//! 3. If all keys belong to one other shard, the parsed batch visits it (`shard/visits.rs`), and no shard stops.
//! 4. Otherwise the shard borrows the stores of other shards (`shard/hold.rs`): an owner lends its part of the hash space
//!    as an object, so nothing else can be executed on it until it is back. A command on the ordered space, which all
//!    shards share, involves all of them.
//! 5. A command that is not run in parts begins with a *forecast* (`forecast.rs`): it is refused before anything of it is
//!    executed if it might take too long, or have larger replies than its connection may hold.
//! 6. Commands between `MULTI` and `EXEC` are copied to a queue (`resp_command/queue.rs`), which is complete before anything is held.
//! 7. `WATCH` registers a connection in the tables of the stores (`watches.rs`). Every write that changes a watched key
//!    sets the connection's flag.

mod bounds;
mod combine;
mod command;
mod course;
mod effort;
mod environment;
mod exec;
mod forecast;
mod run;
mod several;

pub(crate) use bounds::Bounds;
pub(crate) use effort::Judgement;
pub(crate) use environment::Environment;
pub(crate) use run::Run;
