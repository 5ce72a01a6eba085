//! `instructions`: counts the instructions of one operation of a store with callgrind.

use std::process::ExitCode;

use clap::Parser;
use skep_benches::instructions::{Case, count, run_counted, tables};

/// Counts the instructions of one operation of a store with callgrind. Wants valgrind, and a release build.
#[derive(Parser)]
struct Arguments {
    /// Run this operation once, as it is run under valgrind: get, put, fetch-add, vector-update, put-new, delete,
    /// get-one-key or fetch-add-one-key of the hash store, ordered-put or ordered-put-batch of the ordered store;
    /// cache-get, cache-put, cache-fetch-add, cache-put-new or cache-delete of a cache.
    #[arg(long, requires_all = ["value_size", "batches"])]
    case: Option<String>,
    /// Bytes of its values: 8 or 100, 16 or 100 for the ordered store.
    #[arg(long)]
    value_size: Option<usize>,
    /// Batches to execute.
    #[arg(long)]
    batches: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match (&arguments.case, arguments.value_size, arguments.batches) {
        (Some(operation), Some(value_size), Some(batches)) => match Case::named(operation, value_size) {
            Some(case) => Ok(format!("{:x}", run_counted(case, batches))),
            None => Err(format!("there is no case {operation} with values of {value_size} bytes")),
        },
        _ => std::env::current_exe()
            .map_err(|error| format!("this program does not know its path: {error}"))
            .and_then(|program| Ok(tables(&count(&program)?).text())),
    };
    match outcome {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
