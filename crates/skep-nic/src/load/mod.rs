//! The load of a card: pairs of chosen sizes in the memory of one or several NICs, and the operations of clients on
//! them.
//!
//! ```text
//! pairs ─▶ load, in no time ─▶ warm the NICs' DRAM, in no time ─▶ run in virtual time ─▶ outcome
//!          as many as fit       lines of popular keys              wires, pipelines, memory
//! ```
//!
//! | module | content |
//! |---|---|
//! | `pairs` | sizes of keys and values, and the parts of a pair that is larger than a slab |
//! | `mix` | shares of operations, and the popularity of keys |
//! | `requests` | the requests of a run, as the store takes them |
//! | `corpus` | the loaded stores of all NICs, and what a run begins with |
//! | `warming` | the lines that warm the caches before a run |
//! | `run` | a run, and its outcome |
//! | `tuner` | the best load dispatch ratio |
//!
//! [`crate::sizing`] and [`crate::paper`] both use it, so their figures are comparable. A hash of the keys divides the
//! pairs among the NICs, and clients draw keys of all NICs.

pub(crate) mod corpus;
pub mod mix;
pub mod pairs;
pub(crate) mod requests;
pub(crate) mod run;
pub(crate) mod tuner;
mod warming;
