//! A pause of the commands of all connections.

use std::time::Instant;

/// Commands that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// When they continue.
    pub(crate) until: Instant,
    /// Only commands that may change keys wait.
    pub(crate) writes_only: bool,
}
