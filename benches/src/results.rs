//! The folder of saved results, and the date and machine that each result records.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use skep_measure::machine;

/// The program that measures servers, and the one that measures maps.
const BENCHES: &str = "skep-benches";
const MAPS: &str = "skep-maps";

/// Date, machine and command of a measurement.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Origin {
    /// Year, month and day, UTC.
    pub date: String,
    /// Model of the processor and number of cores.
    pub machine: String,
    /// Version of Skep.
    pub skep: String,
    /// The commit that was measured; "and changes" if the files were not those of the commit.
    pub commit: String,
    /// The command that measured the result.
    pub command: String,
}

/// What all results have.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Head {
    /// What was measured.
    pub kind: String,
    /// Date, machine and command.
    #[serde(flatten)]
    pub origin: Origin,
}

impl Head {
    /// Returns the head of a result.
    pub fn new(kind: &str, origin: Origin) -> Self {
        Head { kind: kind.to_owned(), origin }
    }

    /// Returns the head of a measurement made here and now.
    pub fn here(kind: &str) -> Self {
        Head::new(kind, Origin::here())
    }
}

impl Origin {
    /// Returns the origin of a measurement made here and now.
    pub fn here() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Origin {
            date: date_of(now),
            machine: machine(),
            skep: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            command: command_of(std::env::args()),
        }
    }

    /// Returns the command. Older results have one of a time when each measurement was a program of its own.
    pub fn command(&self) -> String {
        let older = |program: &str, now: &str| {
            let rest = self.command.strip_prefix(&format!("target/release/{program}"))?;
            (rest.is_empty() || rest.starts_with(' ')).then(|| format!("target/release/{now} {program}{rest}"))
        };
        let programs = ["servers", "memcached", "shards", "durability", "engine"].map(|program| (program, BENCHES));
        let maps = ["maps", "ordered", "honeycomb"].map(|program| (program, MAPS));
        let now = programs.into_iter().chain(maps).find_map(|(program, now)| older(program, now));
        now.unwrap_or_else(|| self.command.clone())
    }

    /// Returns the machine as a part of a file name.
    pub fn machine_name(&self) -> String {
        let machine: String = self.machine.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let parts: Vec<&str> = machine.split('-').filter(|part| !part.is_empty()).collect();
        parts.join("-")
    }

    /// Writes a result to `benches/results/<date>-<machine>-<kind>.json` and returns the path.
    pub fn save(&self, kind: &str, result: &impl serde::Serialize) -> Result<PathBuf, String> {
        let path = folder().join(format!("{}-{}-{kind}.json", self.date, self.machine_name()));
        let text = serde_json::to_string_pretty(result).map_err(|error| error.to_string())?;
        fs::create_dir_all(folder())
            .and_then(|()| fs::write(&path, text + "\n"))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path)
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}; version {}, commit {}", self.machine, self.date, self.skep, self.commit)
    }
}

/// Returns the folder of saved results.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results")
}

/// Returns a command as a user types it, regardless of the folder of the program.
fn command_of(mut arguments: impl Iterator<Item = String>) -> String {
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
    let quoted =
        arguments.map(|argument| match argument.contains(|c: char| c.is_whitespace() || "'\"$`\\*?".contains(c)) {
            true => format!("'{}'", argument.replace('\'', r"'\''")),
            false => argument,
        });
    std::iter::once(format!("target/release/{}", name.unwrap_or_default())).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// Returns the commit of the source files, or "unknown" outside of a clone.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // Saving a result changes a folder that is no source.
    let changes = ["status", "--porcelain", "--", ":/", ":(top,exclude)benches/results", ":(top,exclude)docs"];
    match (git(&["rev-parse", "--short", "HEAD"]), git(&changes)) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), _) => format!("{commit} and changes"),
        (None, _) => "unknown".to_owned(),
    }
}

/// Computes a date of the Gregorian calendar. Eras of 400 years begin in March, so that a leap day is the last day of a
/// year.
fn date_of(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (days, date) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_453, "2025-12-31"),
        ] {
            assert_eq!(date_of(days * 86_400 + 86_399), date);
        }
    }

    #[test]
    fn a_command_can_be_typed_again() {
        let arguments = ["/somewhere/skep-maps", "maps", "--pairs", "20", "a b"].map(str::to_owned);
        assert_eq!(command_of(arguments.into_iter()), "target/release/skep-maps maps --pairs 20 'a b'");
    }

    #[test]
    fn an_older_command_is_written_as_it_is_now() {
        let command = |command: &str| Origin { command: command.to_owned(), ..Origin::here() }.command();
        for (older, now) in [
            ("target/release/servers --save", "target/release/skep-benches servers --save"),
            ("target/release/maps", "target/release/skep-maps maps"),
            ("target/release/skep-maps maps --save", "target/release/skep-maps maps --save"),
        ] {
            assert_eq!(command(older), now);
        }
    }

    #[test]
    fn here_is_named() {
        let origin = Origin::here();
        assert!(origin.machine.contains("cores") && origin.date.len() == 10 && !origin.commit.is_empty(), "{origin:?}");
    }
}
