//! Nodes: their bytes, and who may read and write which (Honeycomb, section 3.1).

pub(super) mod builder;
pub(super) mod division;
pub(super) mod frame;
pub(super) mod header;
pub(super) mod hint;
pub(super) mod interior;
pub(super) mod lock;
pub(super) mod log;
pub(super) mod overflow;
pub(super) mod segment;
pub(super) mod shortcut;
pub(super) mod value;
