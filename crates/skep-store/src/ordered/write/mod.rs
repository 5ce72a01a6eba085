//! Writing to the tree: appends, merges, splits and joins, and the memory for them.

pub(super) mod attempt;
pub(super) mod change;
pub(super) mod effects;
pub(super) mod evacuate;
pub(super) mod overflow;
pub(super) mod plain_put;
pub(super) mod restructure;
pub(super) mod tight;
pub(super) mod write_leaf;
