//! How much an isolated command takes.

/// The effort of an isolated command, about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effort {
    /// A small part of a turn.
    #[default]
    Small,
    /// A turn at most.
    Medium,
    /// More: it may take many turns, in which nothing else is executed on its stores.
    Large,
}

impl Effort {
    /// All efforts, the smallest first.
    pub(crate) const ALL: [Effort; 3] = [Effort::Small, Effort::Medium, Effort::Large];

    /// Returns the next larger effort, or the largest.
    pub(crate) fn larger(self) -> Effort {
        match self {
            Effort::Small => Effort::Medium,
            Effort::Medium | Effort::Large => Effort::Large,
        }
    }
}
