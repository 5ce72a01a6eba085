//! How a program reports its result: as tables or JSON, and in the folder of saved results.

use std::process::ExitCode;

use crate::results::Origin;
use crate::tables::Tables;

/// The options that choose the form of a result.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Output {
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Save the result in benches/results.
    #[arg(long)]
    save: bool,
}

impl Output {
    /// Prints a result, and saves it under this kind if that was asked.
    pub fn show(
        self,
        kind: &str,
        report: &impl serde::Serialize,
        tables: Tables,
        origin: &Origin,
    ) -> Result<(), String> {
        match self.json {
            true => println!("{}", serde_json::to_string(report).map_err(|error| error.to_string())?),
            false => println!("{}\n{origin}", tables.text()),
        }
        if self.save {
            eprintln!("saved {}", origin.save(kind, report)?.display());
        }
        Ok(())
    }
}

/// Returns the exit status of a program; prints why it failed.
pub fn exit_code(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
