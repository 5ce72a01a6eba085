//! `skep-maps`: measures Skep's stores beside Rust's maps, in one process.
//!
//! The maps allocate with mimalloc, which packs small boxes tightly; the C library takes at least 32 bytes for each. It
//! asks for huge pages when `MIMALLOC_ALLOW_LARGE_OS_PAGES` is set. The program therefore executes itself again with
//! that variable. It is a program of its own because the servers and the counts of instructions have the allocator of
//! the system.

use std::process::ExitCode;

use clap::Parser;
use skep_benches::process::with_huge_pages;
use skep_benches::program::{self, Comparison};
use skep_benches::{honeycomb, maps, ordered};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Skep's stores beside Rust's maps.
#[derive(Parser)]
enum Command {
    /// Compares the hash store with Rust's maps.
    Maps(Comparison<maps::Plan>),
    /// Compares the ordered store with Rust's ordered maps.
    Ordered(Comparison<ordered::Plan>),
    /// Measures a figure of Honeycomb's evaluation on the running store.
    Honeycomb(Comparison<honeycomb::Plan>),
}

fn main() -> ExitCode {
    program::main(|command: Command, progress| {
        with_huge_pages()?;
        match command {
            Command::Maps(comparison) => comparison.run(progress, maps::run),
            Command::Ordered(comparison) => comparison.run(progress, ordered::run),
            Command::Honeycomb(comparison) => comparison.run(progress, honeycomb::run),
        }
    })
}
