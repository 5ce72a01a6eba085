//! Figures 4 and 6 of HERD's evaluation, on the model of an RDMA NIC.
//!
//! The curves of the figures could not be read. So the items judge the numbers and the statements of the text. HERD's
//! other items are measured on a machine and are no part of this crate.

mod fig04;
mod fig06;

pub(super) use fig04::ITEM as FIG04;
pub(super) use fig06::ITEM as FIG06;

/// Processes of the server, if their number is not varied. The text has up to 16 in Figure 6.
const PROCESSES: u32 = 16;
