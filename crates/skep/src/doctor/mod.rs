//! `skep doctor`: what of this machine makes a server slower, refuses it something, or loses its data; what that costs, and
//! how to change it.
//!
//! It reads what the kernel says in files, asks for limits, reads the clock, and writes a file in a data directory. It
//! changes nothing.

mod clock;
mod disk;
mod kernel;
mod limits;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::Failure;

/// Examines the machine. The exit code is 1 if something may lose data or keeps the server from starting.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Examine the disk of this data directory too; it may be one of a server that runs, or one that does not exist yet. A
    /// file of 64MiB is written there, or in the folder that will hold it, and removed, which takes a few seconds.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Most concurrent connections of the server.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    max_clients: u64,
    /// Print a JSON array of objects with the fields what, state, is, costs and change.
    #[arg(long)]
    json: bool,
}

/// How well a server runs with what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As well as it can.
    Good,
    /// It would be faster, or take more, otherwise.
    Advice,
    /// It may lose data, or keeps the server from starting.
    Danger,
}

/// Something that was examined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// Its name.
    what: &'static str,
    state: State,
    /// What is.
    is: String,
    /// What that costs; empty if nothing.
    costs: String,
    /// How to change it; empty if it is good.
    change: String,
}

impl Finding {
    fn good(what: &'static str, is: impl Into<String>) -> Finding {
        Finding { what, state: State::Good, is: is.into(), costs: String::new(), change: String::new() }
    }

    fn advice(
        what: &'static str,
        is: impl Into<String>,
        costs: impl Into<String>,
        change: impl Into<String>,
    ) -> Finding {
        Finding { what, state: State::Advice, is: is.into(), costs: costs.into(), change: change.into() }
    }

    fn danger(
        what: &'static str,
        is: impl Into<String>,
        costs: impl Into<String>,
        change: impl Into<String>,
    ) -> Finding {
        Finding { state: State::Danger, ..Finding::advice(what, is, costs, change) }
    }
}

/// Examines the machine, and prints what was found. Fails if there is a danger.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let root = Path::new("/");
    let mut findings = kernel::examine(root);
    findings.extend(limits::examine(root, arguments.max_clients));
    findings.extend(clock::examine(root));
    if let Some(directory) = &arguments.data_dir {
        findings.extend(disk::examine(root, directory)?);
    }
    let text = if arguments.json { json(&findings) } else { text(&findings) };
    io::stdout().write_all(text.as_bytes())?;
    verdict(&findings)
}

/// Fails if something may lose data, or keeps the server from starting.
fn verdict(findings: &[Finding]) -> Result<(), Failure> {
    match findings.iter().any(|finding| finding.state == State::Danger) {
        true => Err(Failure::No),
        false => Ok(()),
    }
}

/// Returns the findings as lines: those that are good have one, others say what they cost and how to change them.
fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { what, state, is, costs, change } in findings {
        let state = match state {
            State::Good => "good",
            State::Advice => "advice",
            State::Danger => "DANGER",
        };
        text += &format!("{state:<7} {what:<13} {is}\n");
        for (name, rest) in [("costs", costs), ("change", change)] {
            if !rest.is_empty() {
                text += &format!("        {name}: {rest}\n");
            }
        }
    }
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    match (count(State::Advice), count(State::Danger)) {
        (0, 0) => text + "Nothing to change.\n",
        (advice, 0) => text + &format!("{advice} to improve.\n"),
        (advice, danger) => text + &format!("{advice} to improve, {danger} must be changed.\n"),
    }
}

fn json(findings: &[Finding]) -> String {
    serde_json::to_string_pretty(findings).expect("findings are text") + "\n"
}

/// Returns the text of a file of the kernel under `root`, without blanks around it.
fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Finding, State, json, text, verdict};

    /// Writes files of a kernel.
    pub(super) fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    /// Returns the states of the findings.
    pub(super) fn states(findings: &[Finding]) -> Vec<(&str, State)> {
        findings.iter().map(|finding| (finding.what, finding.state)).collect()
    }

    #[test]
    fn a_finding_says_what_it_costs_and_how_to_change_it() {
        let findings = [Finding::good("cores", "4"), Finding::advice("swap", "on", "time", "switch it off")];
        assert_eq!(
            text(&findings),
            "good    cores         4\nadvice  swap          on\n        costs: time\n        change: switch it off\n\
             1 to improve.\n"
        );
        let [good, advice, danger] = ["good", "advice", "danger"].map(|state| format!("\"state\": \"{state}\""));
        let lost = Finding::danger("disk", "none", "all", "buy one");
        assert!(text(std::slice::from_ref(&lost)).ends_with("0 to improve, 1 must be changed.\n"));
        assert!(text(&findings[..1]).ends_with("Nothing to change.\n"));
        assert!(verdict(&findings).is_ok() && verdict(std::slice::from_ref(&lost)).is_err());
        let json = json(&[&findings[..], &[lost]].concat());
        assert!([good, advice, danger].iter().all(|part| json.contains(part)), "{json}");
    }
}
