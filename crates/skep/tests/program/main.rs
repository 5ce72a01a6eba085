//! Runs the program as a child process on free ports: checks its output and its exit codes.

mod backup;
mod bench;
mod cli;
mod data_directory;
mod data_refusals;
mod fake_source;
mod function_calls;
mod functions;
mod import;
mod metrics;
mod paper;
mod process;
mod restart;
mod saves;
mod serve;
mod sizing;
mod start;
mod stop;
mod terminal;
mod tls;
mod top;
mod transfer;
mod transfer_faults;
#[path = "../redis/wire.rs"]
#[expect(dead_code, reason = "the tests that compare with Redis use the other functions")]
mod wire;
