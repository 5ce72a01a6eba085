//! Reading the tree: descents, groups of gets, scans, pages.

pub(super) mod descent;
pub(super) mod group;
pub(super) mod page;
pub(super) mod reader;
pub(super) mod scan;
