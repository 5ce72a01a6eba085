//! How much is measured.

use skep_measure::Times;

/// Batch size, number of rounds and times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) batch: usize,
    pub(super) rounds: u64,
    pub(super) times: Times,
}
