//! How the program says that it cannot go on: one line on standard error that says what to do, and an exit code.
//!
//! The code is 2 when the command line or the configuration file must change, 1 when something else must: a port,
//! the memory of the machine, a server that does not answer, a key that does not exist.

use std::process::ExitCode;

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

/// What clap has to say, as one line. Its own form takes five lines and leaves out where to look.
pub(crate) fn one_line(error: &clap::Error) -> String {
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
    line
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
        let line = one_line(&error);
        assert!(line.starts_with("unexpected argument '--memry' found: "), "{line}");
        assert!(line.contains("--memory"), "{line}");
        assert!(!line.contains('\n'));
    }
}
