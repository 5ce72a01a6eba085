//! The memory of nodes: numbers and sizes, frames that no reader can find, the page table.

pub(super) mod frame_state;
pub(super) mod number;
pub(super) mod page_table;
