//! One leaf: searching, walking, editing and building it.

pub(super) mod build;
pub(super) mod cursor;
pub(super) mod edit;
pub(super) mod find;
pub(super) mod merge;
pub(super) mod pack;
pub(super) mod range;
pub(super) mod replace;
