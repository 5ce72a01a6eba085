//! What replies rest on: the part of the log that must be on disk before they leave.

/// What replies rest on, or what is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The blocks of the log up to this one.
    pub(crate) block: u64,
    /// The effects on the ordered space up to this version.
    pub(crate) version: u64,
}

impl Reached {
    /// Returns true if this has all that the other one has.
    pub(crate) fn covers(self, other: Reached) -> bool {
        self.block >= other.block && self.version >= other.version
    }
}

/// The time from which on replies may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// From now on, also those before them.
    Now,
    /// There are none: those before them wait as before.
    Same,
    /// After this is on disk.
    After(Reached),
    /// After the block that is open now is on disk. The next write of the connection says which one that is.
    AfterOpen,
}

/// The replies of a connection that were just encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncodedReplies<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) release: Release,
}

impl EncodedReplies<'_> {
    /// No replies.
    pub(crate) const NONE: Self = EncodedReplies { bytes: &[], release: Release::Same };
}

/// What a connection's replies may rest on after a write of the log has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    /// Replies to operations in work may rest on what the log does not have.
    pub(crate) is_doubtful: bool,
    /// The connection has operations in work.
    pub(crate) has_work: bool,
}
