//! Measurement of throughput for `skep bench engine` and for every comparison in `benches`, and the table of workloads:
//! [`mix`] has the shares of operations, [`distribution`] the popularity of records.
//!
//! After a change of the working set, a machine needs some time to reach its steady rate. Caches, address translations
//! and the page-walk entries of the last level fill again. A figure from that time does not show the steady rate. So
//! each side of a comparison is measured in three steps:
//!
//! ```text
//! 1. pieces of a few milliseconds, until their rates are steady, at most for the longest warm-up   (`is_steady`)
//! 2. one long slice, the only part that counts                                               (`Times::measure`)
//! 3. the other side does the same; then the next round begins
//! ```
//!
//! [`Rounds`] takes the sides of all rows through these steps, shows the [`Progress`], and measures noisy rows longer. A
//! [`Figure`] is the median of the rounds. It is noisy if they differ by more than [`SPREAD_MAX`].
//!
//! The crate depends on no other crate of Skep, and no crate that serves users depends on it.

pub mod distribution;
mod engine;
mod figure;
mod machine;
pub mod mix;
mod progress;
mod rounds;
mod slice;
mod steady;
mod vectors;

pub use engine::{EngineCase, EngineReport, LimitWithWork, StationCost, TreeStatistics};
pub use figure::{Figure, NOISY, SPREAD_MAX};
pub use machine::machine;
pub use progress::Progress;
pub use rounds::{Effort, Rounds, Row, Sample, Samples, Step, Turn};
pub use slice::{SLICE, Times, Work};
pub use steady::{is_steady, median};
pub use vectors::{VectorLine, VectorSpeed, VectorsReport, size_text};
