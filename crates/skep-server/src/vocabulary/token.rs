//! The name of a connection in its shard.

/// Names a connection of a shard. A token outlives its connection without harm: it then names nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Token {
    /// Returns the token as one word, for epoll.
    pub(crate) fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Returns the token in a word.
    pub(crate) fn from_u64(word: u64) -> Token {
        Token { index: word as u32, generation: (word >> 32) as u32 }
    }
}
