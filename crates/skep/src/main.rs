//! The `skep` program: the server, a client for single commands, an import of files of Redis, tools for data directories,
//! benchmarks, and a model of the paper's NIC. The model reproduces the paper's evaluation and computes the performance of
//! other loads and boards.
//!
//! Every failure is one line on standard error, `skep: what is wrong: what to do`, and an exit code: 2 for the command
//! line and the configuration file, 1 for everything else.

mod backup;
mod bench;
mod cli;
mod doctor;
mod export;
mod failure;
mod function;
mod import;
mod live;
mod local_server;
mod log;
mod output_file;
mod package_files;
mod paper;
mod password;
mod plot;
mod resp_link;
mod serve;
mod size;
mod sizing;
mod tls;
mod top;
mod transfer;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use failure::Failure;
use serve::allocator::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// An in-memory key-value store for state that many programs share and change at memory speed.
#[derive(Parser, Debug)]
#[command(name = "skep", version, disable_version_flag = true, max_term_width = 100)]
struct Arguments {
    /// Print the version.
    #[arg(short = 'v', short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(subcommand)]
    command: Command,
}

/// The subcommands of the program.
#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Start a server.
    Serve(Box<serve::Arguments>),
    /// Send one command to a server.
    Cli(cli::Arguments),
    /// Put the strings of a file (RDB, RESP, CSV, JSON lines) or of a running Redis into a server.
    Import(import::Arguments),
    /// Write the pairs of a server to a file (RDB, RESP, CSV, JSON lines), a pipe or a running Redis.
    Export(export::Arguments),
    /// Measure a server, or a store alone, under a YCSB workload.
    Bench(bench::Arguments),
    /// Reproduce figures and tables: KV-Direct's and Honeycomb's on models of their NICs, HERD's on this machine.
    Paper(paper::Arguments),
    /// Print what a programmable NIC reaches with a load, what limits it, and how to tune the store for it.
    Size(sizing::Arguments),
    /// Check modules of user functions, and load them into a server.
    Function(function::Arguments),
    /// Check or print the log of a data directory.
    Log(log::Arguments),
    /// Copy a data directory, also while a server uses it.
    Backup(backup::BackupArguments),
    /// Make a data directory from a backup.
    Restore(backup::RestoreArguments),
    /// Check this machine for settings that slow a server down or endanger its data.
    Doctor(doctor::Arguments),
    /// Show what a running server does, each second.
    Top(top::Arguments),
    /// Write man pages, completions of shells and a configuration file into a folder, for a package.
    #[command(hide = true)]
    PackageFiles(package_files::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::try_parse() {
        Ok(arguments) => match arguments.command {
            Command::Serve(arguments) => serve::run(&arguments),
            Command::Cli(arguments) => cli::run(arguments),
            Command::Import(arguments) => import::run(&arguments),
            Command::Export(arguments) => export::run(&arguments),
            Command::Bench(arguments) => bench::run(&arguments),
            Command::Paper(arguments) => paper::run(&arguments),
            Command::Size(arguments) => sizing::run(&arguments),
            Command::Function(arguments) => function::run(&arguments),
            Command::Log(arguments) => log::run(&arguments),
            Command::Backup(arguments) => backup::backup(&arguments),
            Command::Restore(arguments) => backup::restore(&arguments),
            Command::Doctor(arguments) => doctor::run(&arguments),
            Command::Top(arguments) => top::run(&arguments),
            Command::PackageFiles(arguments) => package_files::run(&arguments),
        },
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                // If standard output is closed, the text cannot be printed anywhere.
                _ = error.print();
                return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
            }
            _ => Err(Failure::Usage(failure::one_line(error, &help_command()))),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                eprintln!("skep: {}", failure::printable(message));
            }
            failure.exit_code()
        }
    }
}

/// Returns the command that prints help for the typed command.
fn help_command() -> String {
    let program = Arguments::command();
    let mut command = &program;
    let mut line = "skep ".to_owned();
    for word in std::env::args_os().skip(1) {
        if let Some(subcommand) = command.find_subcommand(&word) {
            command = subcommand;
            line = line + command.get_name() + " ";
        }
    }
    line + "--help"
}
