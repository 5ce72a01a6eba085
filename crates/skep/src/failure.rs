//! Failures of the program: one line on standard error that says what to do, and an exit code.
//!
//! The exit code is 2 if the command line or the configuration file must change. It is 1 for everything else, such as a
//! port in use, a lack of memory, a server that does not reply, or a key that does not exist.

use std::error::Error;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use skep::OperationError;

/// The reason why the program ends without the requested result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the configuration file is invalid.
    Usage(String),
    /// The command is valid, and its execution failed.
    Runtime(String),
    /// The same, and the connection to the server is lost.
    Lost(String),
    /// A signal has ended the program.
    Interrupted { signal: i32, message: String },
    /// The result is "no". It has been printed, and the exit code repeats it for scripts.
    No,
    /// The command line is invalid, or another failure; its message was printed in another form.
    Told { is_usage: bool },
    /// The reader of our standard output has closed it. This is not an error, and no message can be printed.
    ReaderGone,
}

impl Failure {
    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) | Failure::Told { is_usage: true } => ExitCode::from(2),
            Failure::Runtime(_) | Failure::Lost(_) | Failure::No | Failure::Told { is_usage: false } => {
                ExitCode::FAILURE
            }
            // As a shell reports a process that a signal has ended.
            Failure::Interrupted { signal, .. } => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
            Failure::ReaderGone => ExitCode::SUCCESS,
        }
    }

    /// Returns the message for standard error, if there is one.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Failure::Usage(message)
            | Failure::Runtime(message)
            | Failure::Lost(message)
            | Failure::Interrupted { message, .. } => Some(message),
            Failure::No | Failure::Told { .. } | Failure::ReaderGone => None,
        }
    }
}

/// Converts failures of reading standard input and of writing standard output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Runtime(reason(&error)),
        }
    }
}

/// Returns the system's error message without the number that Rust adds.
pub(crate) fn reason(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((reason, rest)) => reason.to_owned() + rest.split_once(')').map_or("", |(_, after)| after),
        None => text,
    }
}

/// The most characters of a message, and of a typed word in one.
const MESSAGE_MAX: usize = 4096;
const QUOTED_MAX: usize = 100;

/// Returns a message for a terminal, without the end of a very long one. A user, a file or a server may have put control
/// characters into it, which the terminal would obey: they are escaped.
pub(crate) fn printable(message: &str) -> String {
    shown(message, MESSAGE_MAX)
}

/// Returns typed text as a message quotes it: escaped, and only its beginning if it is long.
pub(crate) fn quoted(text: &str) -> String {
    shown(text, QUOTED_MAX)
}

/// Returns the first characters of a text, and escapes those that a terminal does not show.
fn shown(text: &str, count_max: usize) -> String {
    let mut shown = String::new();
    for (index, char) in text.chars().enumerate() {
        if index == count_max {
            shown.push('…');
            break;
        }
        match is_shown(char) {
            true => shown.push(char),
            false => shown.extend(char.escape_default()),
        }
    }
    shown
}

/// Returns true if a terminal shows the character, and shows the characters around it in their order.
pub(crate) fn is_shown(character: char) -> bool {
    let is_hidden = matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !character.is_control() && !is_hidden
}

/// Returns a message in which a typed text is quoted as [`quoted`] returns it.
pub(crate) fn requote(message: &str, typed: &str) -> String {
    let quoted = quoted(typed);
    if quoted == typed { message.to_owned() } else { message.replace(typed, &quoted) }
}

/// Returns the error of an operation, and the options of the server that help if its memory is full.
pub(crate) fn with_options(error: OperationError) -> String {
    match error {
        OperationError::IndexFull | OperationError::SlabFull => format!("{error} (--memory)"),
        OperationError::NodesFull => format!("{error} (--ordered-memory)"),
        error => error.to_string(),
    }
}

/// Formats an error of clap as one line; clap's own format has five. `help` is the command that prints help. It is left
/// out if the line says what to write.
pub(crate) fn one_line(mut error: clap::Error, help: &str) -> String {
    if let (ErrorKind::ValueValidation, Some(ContextValue::String(argument)), Some(reason)) =
        (error.kind(), error.get(ContextKind::InvalidArg), error.source())
    {
        let argument = argument.trim_matches(['[', ']']);
        let reason = in_words(&reason.to_string());
        let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
            return format!("{argument}: {reason}");
        };
        let (reason, value) = (requote(&reason, value), quoted(value));
        return match reason.starts_with('`') || reason.starts_with(&value) {
            true => format!("{argument}: {reason}"),
            false => format!("{argument}: `{value}`: {reason}"),
        };
    }
    cut(&mut error);
    if let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(command))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    {
        let similar = match error.get(ContextKind::SuggestedSubcommand) {
            Some(ContextValue::Strings(similar)) if !similar.is_empty() => Some(format!("`{}`", similar.join("`, `"))),
            _ => None,
        };
        let own = command_in_place_of(command).map(str::to_owned).or(similar);
        let own = own.map_or_else(String::new, |own| format!(": write {own}"));
        return format!("there is no command `{command}`{own}: see `{help}`");
    }
    let rendered = error.to_string();
    let mut paragraphs = rendered.split("\n\n").map(|paragraph| {
        paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    });
    let mut line = paragraphs.next().unwrap_or_default();
    line = line.strip_prefix("error: ").unwrap_or(&line).to_owned();
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
        && let Some(own) = in_place_of(argument)
    {
        return format!("{line}: {own}: see `{help}`");
    }
    for paragraph in paragraphs {
        if let Some(tip) = paragraph.strip_prefix("tip: ") {
            line.push_str(": ");
            line.push_str(tip);
        }
    }
    format!("{line}: see `{help}`")
}

/// Replaces the typed words of an error as [`quoted`] returns them.
fn cut(error: &mut clap::Error) {
    let quote = |(kind, value): (ContextKind, &ContextValue)| match value {
        ContextValue::String(text) => Some((kind, quoted(text))).filter(|(_, quoted)| quoted != text),
        _ => None,
    };
    for (kind, text) in error.context().filter_map(quote).collect::<Vec<_>>() {
        error.insert(kind, ContextValue::String(text));
        // The suggestion to write it in another place repeats it.
        error.remove(ContextKind::Suggested);
    }
}

/// Returns what a user of Redis writes in place of an argument of redis-server.
fn in_place_of(argument: &str) -> Option<&'static str> {
    Some(match argument {
        "--appendonly" | "--appendfsync" => "write --data-dir DIRECTORY, and --durability always, second or memory",
        "--dir" => "write --data-dir DIRECTORY",
        "--save" | "--dbfilename" => "write --data-dir DIRECTORY; snapshots are taken by themselves, and by BGSAVE",
        "--maxmemory" => "write --memory SIZE",
        "--port" | "--bind" => "write --resp HOST:PORT",
        _ => return None,
    })
}

/// Returns the commands of this program in place of one of Redis.
fn command_in_place_of(command: &str) -> Option<&'static str> {
    Some(match command.to_ascii_lowercase().as_str() {
        "set" | "setnx" | "setex" => "`put`",
        "del" | "unlink" => "`delete`",
        "ttl" | "pttl" => "`expiry`",
        "incrby" | "decr" | "decrby" => "`incr`",
        "keys" => "`prefix` or `scan`, in the ordered space",
        "select" => "`space`, or --space",
        "skep" | "cli" => "the command alone",
        _ => return None,
    })
}

/// Translates Rust's message about an invalid number into an instruction.
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
    use super::{one_line, printable, quoted, reason};

    #[test]
    fn a_message_has_no_control_characters() {
        assert_eq!(printable("a\u{1b}[2J\r\nb\u{9b}: ü"), "a\\u{1b}[2J\\r\\nb\\u{9b}: ü");
    }

    #[test]
    fn typed_words_are_quoted_in_part() {
        assert_eq!(quoted("a b\u{1b}\u{202e}ü"), "a b\\u{1b}\\u{202e}ü");
        assert_eq!(quoted(&"ü".repeat(100)), "ü".repeat(100));
        assert_eq!(quoted(&"ü".repeat(101)), "ü".repeat(100) + "…");
        let number = clap::Arg::new("n").value_name("N").value_parser(clap::value_parser!(u8));
        let choice = clap::Arg::new("c").long("c").value_parser(["a", "b"]);
        let command = clap::Command::new("skep").args([number, choice]).subcommand(clap::Command::new("known"));
        let long = "y\n\n\u{1b}".to_owned() + &"x".repeat(5000);
        let number = "9".repeat(5000);
        let flag = format!("--{long}");
        for words in [&[&long[..]][..], &[&number], &[&flag], &["--c", &long], &["1", "2", &long], &["known", &long]] {
            let error = command.clone().try_get_matches_from([&["skep"], words].concat()).unwrap_err();
            let line = one_line(error, "help");
            assert!(line.chars().count() < 400 && !line.contains(char::is_control), "{words:?}: {line}");
        }
    }

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
        let line = one_line(error, "skep --help");
        assert!(line.starts_with("unexpected argument '--memry' found: "), "{line}");
        assert!(line.contains("--memory"), "{line}");
        assert!(line.ends_with(": see `skep --help`") && !line.contains('\n'), "{line}");
    }

    #[test]
    fn arguments_of_redis_have_a_hint() {
        let command = clap::Command::new("skep").arg(clap::Arg::new("data-dir").long("data-dir"));
        let error = command.try_get_matches_from(["skep", "--dir", "x"]).unwrap_err();
        let expected = "unexpected argument '--dir' found: write --data-dir DIRECTORY: see `skep --help`";
        assert_eq!(one_line(error, "skep --help"), expected);
    }

    #[test]
    fn errors_about_invalid_numbers_say_what_to_write() {
        let number = clap::Arg::new("n").value_name("N").value_parser(clap::value_parser!(u8));
        let command = clap::Command::new("skep").arg(number);
        for (value, expected) in [("x", "N: `x`: write a whole number"), ("256", "N: 256 is not in 0..=255")] {
            let error = command.clone().try_get_matches_from(["skep", value]).unwrap_err();
            assert_eq!(one_line(error, "skep --help"), expected);
        }
    }
}
