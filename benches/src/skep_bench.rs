//! Runs a part of `skep bench` that prints its report as JSON, and reads the report.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use skep_measure::Progress;

/// Runs `skep bench <part> --json` with these arguments. It shows its own progress and errors. Returns its report.
pub(crate) fn report_of<R: DeserializeOwned>(
    skep: &Path,
    part: &str,
    arguments: &[String],
    progress: &Progress,
) -> Result<R, String> {
    let failed = |reason: &dyn std::fmt::Display| format!("{} bench {part}: {reason}", skep.display());
    let mut command = Command::new(skep);
    command.args(["bench", part, "--json"]).args(arguments);
    progress.hide();
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))
}
