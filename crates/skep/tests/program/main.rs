//! Runs the program as a child process on free ports: checks its output and its exit codes.

mod bench;
mod cli;
mod paper;
mod process;
mod serve;
mod sizing;
mod start;
mod stop;
