//! The levels of durability.

/// What a fault may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Everything since the last snapshot that was asked for. There is no log.
    Memory,
    /// The last second: replies leave at once, and the log is flushed at least twice a second.
    Second,
    /// Nothing that was acknowledged: replies leave when what they rest on is on disk.
    #[default]
    Always,
}

impl std::fmt::Display for Durability {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Durability::Memory => "memory",
            Durability::Second => "second",
            Durability::Always => "always",
        })
    }
}
