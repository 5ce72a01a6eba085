//! skep-wire

pub mod resp;
