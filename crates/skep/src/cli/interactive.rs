//! `skep cli` without a command: reads commands from standard input and sends them over one connection.
//!
//! ```text
//! 127.0.0.1:7379> put greeting "good morning"        a word in quotes may have blanks, \n, \t, \xNN
//! 127.0.0.1:7379> space ordered                      only here: another space for the commands after it
//! 127.0.0.1:7379 ordered> prefix user:
//! ```
//!
//! - On a terminal a line can be edited, Tab completes it, and what it still lacks is shown in grey. The lines of earlier runs
//!   are kept in `$XDG_STATE_HOME/skep/history`, or below `~/.local/state`. A line with bytes that are not UTF-8 is dropped.
//! - From a pipe each line is a command, and each value is printed as one line. A command that fails does not stop the
//!   others; the exit code is 1 if one has failed, or if an `exists` has printed no.
//! - Empty lines, and lines that begin with `#`, are skipped. `-` is not standard input, as it has the commands: it is refused
//!   as a value, and is that text in quotes.

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use skep::{Client, Element, Fold, Predicate, UpdateFunction};
use skep_wire::resp::split_words;

use super::line_help::LineHelp;
use super::words::Words;
use super::{Form, Prepared, Source, Space, connect, json};
use crate::failure::{Failure, one_line, printable};
use crate::password::Login;

/// Lines that the history keeps.
const HISTORY_MAX: usize = 1000;

/// Says why a line was not read.
const NOT_UTF8: &str = "the line is not UTF-8, and was not sent: write such bytes as \\xNN in double quotes";

/// The time in which the rest of a line arrives that was pasted.
const PASTE_TIME: Duration = Duration::from_millis(50);

/// Says why a line has no words.
const QUOTES: &str = "quotes are not closed, or something follows one: write \\\" for a quote in a word";

/// A line: a command, or one for this program.
#[derive(clap::Parser, Debug)]
#[command(no_binary_name = true, name = "", disable_version_flag = true, subcommand_required = true)]
struct Line {
    /// Space of the server for this command.
    #[arg(long, global = true, value_enum)]
    space: Option<Space>,
    #[command(subcommand)]
    command: LineCommand,
}

/// The commands of a line.
#[derive(clap::Subcommand, Debug)]
enum LineCommand {
    #[command(flatten)]
    Words(Words),
    /// Use a space for the commands after this one; without a name, the usual one of each command.
    #[command(after_help = "Example: space ordered")]
    Space {
        /// hash, ordered or cache.
        #[arg(value_enum)]
        space: Option<Space>,
    },
    /// End the program, as Ctrl-D does.
    #[command(alias = "quit")]
    Exit,
}

/// What follows a line.
enum Next {
    Line,
    Exit,
}

/// The connection, and what the lines have chosen.
struct Session<'l> {
    login: &'l Login,
    /// Absent when it is lost: then the next command connects again.
    client: Option<Client>,
    space: Option<Space>,
    is_json: bool,
}

/// Reads commands and executes them until the input ends.
pub(super) fn run(login: &Login, space: Option<Space>, is_json: bool) -> Result<(), Failure> {
    let client = Some(connect(login).map_err(Failure::Runtime)?);
    let mut session = Session { login, client, space, is_json };
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if is_terminal { session.edit_lines() } else { session.read_lines() }
}

impl Session<'_> {
    /// Executes the lines of a pipe.
    fn read_lines(&mut self) -> Result<(), Failure> {
        let mut failed = 0;
        for (index, line) in io::stdin().lock().split(b'\n').enumerate() {
            match self.execute(line?, if self.is_json { Form::Json } else { Form::Escaped }) {
                Ok(Next::Line) => {}
                Ok(Next::Exit) => break,
                Err(Failure::ReaderGone) => return Err(Failure::ReaderGone),
                Err(failure) => {
                    failed += 1;
                    if self.is_json {
                        json::report(failure, Some(index + 1));
                    } else if let Some(message) = failure.message() {
                        writeln!(io::stderr(), "skep: line {}: {}", index + 1, printable(message))?;
                    }
                }
            }
        }
        if failed > 0 { Err(Failure::No) } else { Ok(()) }
    }

    /// Executes the lines that are typed.
    fn edit_lines(&mut self) -> Result<(), Failure> {
        let failed = |error: ReadlineError| Failure::Runtime(format!("cannot read from the terminal: {error}"));
        let config = Config::builder().max_history_size(HISTORY_MAX).map_err(failed)?.auto_add_history(true).build();
        let mut editor = Editor::<LineHelp, FileHistory>::with_config(config).map_err(failed)?;
        editor.set_helper(Some(LineHelp::new(table(), value_names)));
        let mut history = history_file();
        history.iter().for_each(|file| drop(editor.load_history(file)));
        let address = &self.login.address;
        writeln!(io::stdout(), "Connected to {address}. Tab completes, `help COMMAND` explains, Ctrl-D ends.")?;
        loop {
            let lines = match editor.readline(&self.prompt()) {
                Ok(lines) => lines,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(()),
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    drop_input();
                    writeln!(io::stderr(), "{NOT_UTF8}")?;
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            // A history that cannot be written is not worth an error.
            history = history.filter(|file| editor.append_history(file).is_ok());
            // Pasted text may be several lines.
            for line in lines.lines() {
                match self.execute(line.as_bytes().to_vec(), if self.is_json { Form::Json } else { Form::Line }) {
                    Ok(Next::Line) => {}
                    Ok(Next::Exit) => return Ok(()),
                    Err(Failure::ReaderGone) => return Err(Failure::ReaderGone),
                    Err(failure) => {
                        if let Some(message) = failure.message() {
                            writeln!(io::stderr(), "{}", printable(message))?;
                        }
                    }
                }
            }
        }
    }

    fn prompt(&self) -> String {
        let space = self.space.map_or_else(String::new, |space| format!(" {}", space.name()));
        format!("{}{space}> ", self.login.address)
    }

    /// Executes a line, and prints its result in this form.
    fn execute(&mut self, mut line: Vec<u8>, form: Form) -> Result<Next, Failure> {
        if line.trim_ascii_start().starts_with(b"#") {
            return Ok(Next::Line);
        }
        let (typed, mut ranges) = (line.clone(), Vec::new());
        split_words(&mut line, &mut ranges).map_err(|_| Failure::Usage(QUOTES.to_owned()))?;
        if ranges.is_empty() {
            return Ok(Next::Line);
        }
        // As in Redis, a command may be in capitals.
        line[ranges[0].range()].make_ascii_lowercase();
        // The range of a word in quotes begins with the quote.
        let dash = ranges.iter().rev().map(|word| word.range()).find(|range| line[range.clone()] == *b"-");
        let source = Source::Line { is_dash_quoted: dash.is_some_and(|range| typed[range.start] != b'-') };
        let words = ranges.iter().map(|word| OsString::from_vec(line[word.range()].to_vec()));
        let line = table().try_get_matches_from(words).and_then(|matches| Line::from_arg_matches(&matches));
        let line = match line {
            Ok(line) => line,
            Err(help) if !help.use_stderr() => {
                help.print()?;
                return Ok(Next::Line);
            }
            Err(error) => return Err(Failure::Usage(one_line(error, "help"))),
        };
        match line.command {
            LineCommand::Exit => return Ok(Next::Exit),
            LineCommand::Space { space } => self.space = space,
            LineCommand::Words(words) => self.send(words, source, line.space, form)?,
        }
        Ok(Next::Line)
    }

    /// Sends a command. Connects again if the last one has lost the connection.
    fn send(&mut self, words: Words, source: Source, space: Option<Space>, form: Form) -> Result<(), Failure> {
        let prepared = Prepared::new(words, source)?;
        let mut client = match self.client.take() {
            Some(client) => client,
            None => connect(self.login).map_err(Failure::Runtime)?,
        };
        let result = prepared.execute(&mut client, space.or(self.space), form);
        match result {
            Err(Failure::Lost(message)) => Err(Failure::Lost(message + ": the next command connects again")),
            result => {
                self.client = Some(client);
                result
            }
        }
    }
}

/// Drops what was typed or pasted and is not read yet: the rest of a line must not become a command.
fn drop_input() {
    thread::sleep(PASTE_TIME);
    // If it stays, it is read as the next line.
    _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
}

/// Returns the table of the commands. Their examples are those of lines.
fn table() -> clap::Command {
    Line::command().mut_subcommands(|command| {
        let help = command.get_after_help().map(|help| help.to_string().replace("skep cli ", ""));
        help.into_iter().fold(command, clap::Command::after_help)
    })
}

/// Returns the names that an argument may have, as its help lists them.
fn value_names(argument: &str) -> Vec<&'static str> {
    match argument {
        "function" => UpdateFunction::ALL.map(UpdateFunction::name).to_vec(),
        "fold" => Fold::ALL.map(Fold::name).to_vec(),
        "predicate" => Predicate::ALL.map(Predicate::name).to_vec(),
        "element" => Element::ALL.map(Element::name).to_vec(),
        _ => Vec::new(),
    }
}

/// Returns the file of the history, which only its user may read. Creates it. `None` if there is no place for it.
fn history_file() -> Option<PathBuf> {
    let of_home = || std::env::home_dir().map(|home| home.join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|state| state.is_absolute());
    let folder = state.or_else(of_home)?.join("skep");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let file = folder.join("history");
    let opened = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&file).ok()?;
    opened.set_permissions(std::fs::Permissions::from_mode(0o600)).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::{table, value_names};

    #[test]
    fn each_command_has_an_example_and_the_names_of_its_arguments_are_known() {
        for command in table().get_subcommands().filter(|command| command.get_name() != "exit") {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with(&format!("Example: {}", command.get_name())), "{}: {help}", command.get_name());
        }
        for (argument, name) in [("function", "swap"), ("fold", "sum"), ("predicate", "greater"), ("element", "f32")] {
            assert!(value_names(argument).contains(&name), "{argument}");
        }
    }
}
