//! skep-client
