//! How the program says that it cannot go on: one line on standard error that says what to do, and an exit code.
//!
//! The code is 2 when the command line or the configuration file must change, 1 when something else must: a port,
//! the memory of the machine, a server that does not answer, a key that does not exist.

use std::error::Error;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Why the program ends without having done what it was asked to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the configuration file cannot be understood.
    Usage(String),
    /// It was understood, and could not be done.
    Runtime(String),
    /// The answer is no. It has been printed, and the exit code repeats it for scripts.
    Answered,
    /// Whoever read our standard output has gone; there is nobody to tell and nothing is wrong.
    ReaderGone,
}

impl Failure {
    /// The code that the process exits with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Runtime(_) | Failure::Answered => ExitCode::FAILURE,
            Failure::ReaderGone => ExitCode::SUCCESS,
        }
    }

    /// What to say about it, if anything.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Failure::Usage(message) | Failure::Runtime(message) => Some(message),
            Failure::Answered | Failure::ReaderGone => None,
        }
    }
}

/// Failures of reading standard input and writing standard output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Runtime(reason(&error)),
        }
    }
}

/// What the system says, without the number that Rust adds.
pub(crate) fn reason(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((reason, rest)) => reason.to_owned() + rest.split_once(')').map_or("", |(_, after)| after),
        None => text,
    }
}

/// What clap has to say, as one line. Its own form takes five lines. `help` is what to type for help; it is left out
/// where the line says what to write.
pub(crate) fn one_line(error: &clap::Error, help: &str) -> String {
    if let (ErrorKind::ValueValidation, Some(ContextValue::String(argument)), Some(reason)) =
        (error.kind(), error.get(ContextKind::InvalidArg), error.source())
    {
        let argument = argument.trim_matches(['[', ']']);
        let reason = in_words(&reason.to_string());
        return match error.get(ContextKind::InvalidValue) {
            Some(ContextValue::String(value)) if !reason.starts_with('`') && !reason.starts_with(value) => {
                format!("{argument}: `{value}`: {reason}")
            }
            _ => format!("{argument}: {reason}"),
        };
    }
    let rendered = error.to_string();
    let mut paragraphs = rendered.split("\n\n").map(|paragraph| {
        paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    });
    let mut line = paragraphs.next().unwrap_or_default();
    line = line.strip_prefix("error: ").unwrap_or(&line).to_owned();
    for paragraph in paragraphs {
        if let Some(tip) = paragraph.strip_prefix("tip: ") {
            line.push_str(": ");
            line.push_str(tip);
        }
    }
    format!("{line}: see `{help}`")
}

/// What Rust says about a text that is no number, as something to do.
fn in_words(reason: &str) -> String {
    match reason {
        "invalid digit found in string" | "cannot parse integer from empty string" => "write a whole number".to_owned(),
        "number too large to fit in target type" => "write a smaller number".to_owned(),
        "number too small to fit in target type" => "write a larger number".to_owned(),
        "invalid float literal" | "cannot parse float from empty string" => "write a number".to_owned(),
        _ => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{one_line, reason};

    #[test]
    fn the_number_of_a_system_error_is_left_out() {
        let refused = std::io::Error::from_raw_os_error(111);
        assert_eq!(reason(&refused), "Connection refused");
        assert_eq!(reason(&format!("shard 3: {refused}: gone")), "shard 3: Connection refused: gone");
        assert_eq!(reason(&"as it is"), "as it is");
    }

    #[test]
    fn clap_errors_become_one_line() {
        let command =
            clap::Command::new("skep").arg(clap::Arg::new("memory").long("memory")).arg(clap::Arg::new("k").long("k"));
        let error = command.clone().try_get_matches_from(["skep", "--memry", "1"]).unwrap_err();
        let line = one_line(&error, "skep --help");
        assert!(line.starts_with("unexpected argument '--memry' found: "), "{line}");
        assert!(line.contains("--memory"), "{line}");
        assert!(line.ends_with(": see `skep --help`") && !line.contains('\n'), "{line}");
    }

    #[test]
    fn values_that_are_no_numbers_are_told_what_to_write() {
        let number = clap::Arg::new("n").value_name("N").value_parser(clap::value_parser!(u8));
        let command = clap::Command::new("skep").arg(number);
        for (value, expected) in [("x", "N: `x`: write a whole number"), ("256", "N: 256 is not in 0..=255")] {
            let error = command.clone().try_get_matches_from(["skep", value]).unwrap_err();
            assert_eq!(one_line(&error, "skep --help"), expected);
        }
    }
}
