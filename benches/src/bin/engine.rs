//! `engine`: runs `skep bench engine` and saves the report that it prints.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use skep_benches::engine::run;

/// Runs `skep bench engine` and saves the report that it prints.
#[derive(Parser)]
struct Arguments {
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    skep: PathBuf,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Save the result in benches/results.
    #[arg(long)]
    save: bool,
    /// Arguments of `skep bench engine`, such as --kv-size 62.
    #[arg(last = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = run(&arguments.skep, &arguments.arguments).and_then(|report| {
        match arguments.json {
            true => println!("{}", serde_json::to_string(&report).map_err(|error| error.to_string())?),
            false => println!("{}\n{}", report.tables().text(), report.origin),
        }
        if arguments.save {
            let ordered = if report.engine.engine == "ordered" { "ordered-" } else { "" };
            let kind = format!("engine-{ordered}{}", report.engine.kv_size);
            eprintln!("saved {}", report.origin.save(&kind, &report)?.display());
        }
        Ok(())
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
