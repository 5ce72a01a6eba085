//! skep-server
