//! The bodies of the fuzz targets: functions of bytes that panic if they find a fault.
//!
//! They do not need libFuzzer. `fuzz/` links each with it, and `tests/corpus.rs` runs each on the inputs in `corpus/`
//! with the stable toolchain. A fault that fuzzing finds becomes an input there.

pub mod datagram_packets;
pub mod function_source;
pub mod log_chunk;
pub mod log_functions;
pub mod log_group;
pub mod log_manifest;
pub mod memcached_request;
mod operations;
pub mod ordered_operations;
pub mod rdb_file;
pub mod reply_frame;
pub mod request_frame;
pub mod resp_request;
pub mod session;
pub mod store_operations;

/// A target: the name of its module and of its folder in `corpus/`, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets. Each has a program of the same name in `fuzz/fuzz_targets`.
pub const TARGETS: [Target; 14] = [
    ("datagram_packets", datagram_packets::run),
    ("function_source", function_source::run),
    ("log_chunk", log_chunk::run),
    ("log_functions", log_functions::run),
    ("log_group", log_group::run),
    ("log_manifest", log_manifest::run),
    ("memcached_request", memcached_request::run),
    ("ordered_operations", ordered_operations::run),
    ("rdb_file", rdb_file::run),
    ("reply_frame", reply_frame::run),
    ("request_frame", request_frame::run),
    ("resp_request", resp_request::run),
    ("session", session::run),
    ("store_operations", store_operations::run),
];
