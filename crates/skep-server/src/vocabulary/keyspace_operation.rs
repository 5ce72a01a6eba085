//! Operations on all keys that one shard has of a space.

/// The position after the last key.
pub(crate) const END: u64 = u64::MAX;

/// Says that the position of the step is not known.
pub(crate) const UNKNOWN: u64 = u64::MAX - 1;

/// An operation on all keys that one shard has, or on those of the ordered space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyspaceOperation {
    /// Returns the next keys.
    Walk {
        /// The position of the step.
        from: WalkStart,
        /// Keys from which on the step ends.
        key_count: u32,
        /// Bytes of keys from which on the step ends.
        size: u32,
    },
    /// Counts the keys. First removes some of those that have expired, except in the cache.
    Count,
    /// Removes all keys: those of the hash space and of the cache at one moment, those of the ordered space in steps.
    Flush {
        /// The position of the step.
        from: u64,
    },
    /// Removes all keys that the cache has at a time.
    FlushAt {
        /// The time, in milliseconds since 1970. 0 means at once: the flush was counted in `CacheFlushes` when it was
        /// decoded.
        time: u64,
    },
}

impl KeyspaceOperation {
    /// Returns true if the operation removes all keys. It is the last one of its batch.
    pub(crate) fn is_flush(&self) -> bool {
        matches!(self, KeyspaceOperation::Flush { .. } | KeyspaceOperation::FlushAt { .. })
    }
}

/// The position at which a step of a walk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkStart {
    /// This one.
    At(u64),
    /// One that a random number chooses.
    Random(u64),
}
