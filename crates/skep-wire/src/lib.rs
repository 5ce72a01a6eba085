//! skep-wire
