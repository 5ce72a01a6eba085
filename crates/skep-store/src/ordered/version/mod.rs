//! Versions, and when retired memory can be used again (Honeycomb, section 3.2).

pub(super) mod asks;
pub(super) mod clock;
pub(super) mod epoch;
pub(super) mod expiries;
pub(super) mod floors;
pub(super) mod garbage;
pub(super) mod lease;
pub(super) mod reclaim;
pub(super) mod versions;
pub(super) mod window;
