//! What all programs share: a measurement gets its settings and the progress that it must keep, and its result is
//! printed and saved in one way.
//!
//! ```text
//! arguments ─▶ Comparison { plan, output } ─▶ measure(&plan, &progress) ─▶ tables or JSON ─▶ benches/results
//!                                                        └─ fails ─▶ the tables so far, and why
//! ```

use std::ops::RangeInclusive;
use std::process::ExitCode;

use clap::builder::RangedU64ValueParser;
use skep_measure::Progress;

use crate::plot::Plot;
use crate::results::{Head, Origin};
use crate::tables::Tables;

/// The result of a measurement, which can be saved and shown on a page.
pub trait Measured {
    /// Returns what all results have.
    fn head(&self) -> &Head;

    /// Returns the kind, as a part of a file name.
    fn kind(&self) -> String {
        self.head().kind.clone()
    }

    /// Returns date, machine and command.
    fn origin(&self) -> &Origin {
        &self.head().origin
    }

    /// Returns the tables and a note on their settings.
    fn tables(&self) -> Tables;

    /// Returns the picture of the page.
    fn plot(&self) -> Plot;
}

/// A measurement that failed.
pub struct Failed<R> {
    /// Why it failed.
    pub reason: String,
    /// What was measured until then.
    pub so_far: Option<Box<R>>,
}

impl<R> From<String> for Failed<R> {
    fn from(reason: String) -> Self {
        Failed { reason, so_far: None }
    }
}

/// The arguments of a measurement: its settings, and the form of its result.
#[derive(Clone, Debug, clap::Args)]
pub struct Comparison<P: clap::Args> {
    #[command(flatten)]
    plan: P,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Save the result in benches/results.
    #[arg(long)]
    save: bool,
}

impl<P: clap::Args> Comparison<P> {
    /// Measures, and prints the result. Saves it if that was asked. If the measurement fails, prints what there is.
    pub fn run<R: Measured + serde::Serialize, E: Into<Failed<R>>>(
        &self,
        progress: Progress,
        measure: impl FnOnce(&P, &Progress) -> Result<R, E>,
    ) -> Result<(), String> {
        let outcome = measure(&self.plan, &progress).map_err(Into::into);
        // Nothing is measured from now on.
        drop(progress);
        match outcome {
            Ok(report) => {
                self.print(&report)?;
                if self.save {
                    eprintln!("saved {}", report.origin().save(&report.kind(), &report)?.display());
                }
                Ok(())
            }
            Err(Failed { reason, so_far: None }) => Err(reason),
            Err(Failed { reason, so_far: Some(report) }) => {
                self.print(&*report)?;
                Err(format!("the result is incomplete, and not saved: {reason}"))
            }
        }
    }

    fn print(&self, report: &(impl Measured + serde::Serialize)) -> Result<(), String> {
        match self.json {
            true => println!("{}", serde_json::to_string(report).map_err(|error| error.to_string())?),
            false => println!("{}\n{}", report.tables().text(), report.origin()),
        }
        Ok(())
    }
}

/// Runs a program: calls `run` with its arguments and the progress that it shows, and prints why it failed.
pub fn main<A: clap::Parser>(run: impl FnOnce(A, Progress) -> Result<(), String>) -> ExitCode {
    let arguments = A::parse();
    match run(arguments, Progress::shown()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the text of a check, and fails with its failures if there are any.
pub fn judge(text: &str, failures: &[String]) -> Result<(), String> {
    println!("{text}");
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Returns the parser of a number in a range.
pub fn number(range: RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(range)
}
