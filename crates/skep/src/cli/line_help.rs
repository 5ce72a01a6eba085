//! Completes and explains a line that is being typed, from the table of its commands.

use clap::{Arg, Command};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use std::borrow::Cow;

/// The commands, and the names that their arguments may have.
pub(super) struct LineHelp {
    line: Command,
    /// Returns the names that the argument with this name may have.
    value_names: fn(&str) -> Vec<&'static str>,
}

/// A line that is being typed, as far as it was understood.
struct Typed<'h, 'l> {
    /// The command that it names.
    command: Option<&'h Command>,
    /// Words of the line before the last one.
    count: usize,
    /// Arguments of the command that are given by their position.
    positionals: usize,
    /// The flag whose value is the last word.
    flag: Option<&'h Arg>,
    /// The word at the end, perhaps an empty one.
    last: &'l str,
}

impl LineHelp {
    pub(super) fn new(mut line: Command, value_names: fn(&str) -> Vec<&'static str>) -> LineHelp {
        // Adds `help`, and what all commands share to each.
        line.build();
        LineHelp { line, value_names }
    }

    /// Looks at the words of a line. A word in quotes that has blanks counts as several: then less is completed.
    fn typed<'h, 'l>(&'h self, line: &'l str) -> Typed<'h, 'l> {
        let last = line.rsplit(char::is_whitespace).next().unwrap_or_default();
        let mut typed = Typed { command: None, count: 0, positionals: 0, flag: None, last };
        for word in line[..line.len() - last.len()].split_whitespace() {
            typed.count += 1;
            if typed.flag.take().is_some() {
                continue;
            }
            let of = typed.command.unwrap_or(&self.line);
            if let Some(flag) = word.strip_prefix("--") {
                let flag = of.get_arguments().find(|argument| argument.get_long() == Some(flag));
                typed.flag = flag.filter(|argument| argument.get_action().takes_values());
            } else if typed.command.is_none() {
                typed.command = self.line.find_subcommand(word);
            } else {
                typed.positionals += 1;
            }
        }
        typed
    }

    /// Returns what the last word of a line may be.
    fn candidates(&self, typed: &Typed<'_, '_>) -> Vec<String> {
        let names = || self.line.get_subcommands().map(|command| command.get_name().to_owned());
        let of = typed.command.unwrap_or(&self.line);
        if let Some(flag) = typed.flag {
            return self.values(flag);
        }
        if typed.last.starts_with('-') {
            return of.get_arguments().filter_map(Arg::get_long).map(|flag| format!("--{flag}")).collect();
        }
        match typed.command {
            None if typed.count == 0 => names().collect(),
            None => Vec::new(),
            Some(command) if command.get_name() == "help" => names().collect(),
            Some(command) => {
                command.get_positionals().nth(typed.positionals).map_or_else(Vec::new, |argument| self.values(argument))
            }
        }
    }

    /// Returns the values that an argument may have.
    fn values(&self, argument: &Arg) -> Vec<String> {
        let possible = argument.get_possible_values();
        let listed = possible.iter().map(|value| value.get_name().to_owned());
        listed.chain((self.value_names)(argument.get_id().as_str()).into_iter().map(str::to_owned)).collect()
    }
}

impl Completer for LineHelp {
    type Candidate = Pair;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = self.typed(&line[..position]);
        let candidates = self.candidates(&typed).into_iter().filter(|word| word.starts_with(typed.last));
        let pair = |word: String| Pair { display: word.clone(), replacement: word + " " };
        Ok((position - typed.last.len(), candidates.map(pair).collect()))
    }
}

impl Hinter for LineHelp {
    type Hint = String;

    /// Returns the arguments that a line still lacks.
    fn hint(&self, line: &str, position: usize, _: &Context<'_>) -> Option<String> {
        let typed = self.typed(line);
        if position < line.len() || !typed.last.is_empty() || typed.flag.is_some() {
            return None;
        }
        let left = typed.command?.get_positionals().skip(typed.positionals);
        let names: Vec<String> = left.map(Arg::to_string).collect();
        (!names.is_empty()).then(|| names.join(" "))
    }
}

impl Highlighter for LineHelp {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        // Grey.
        Cow::Owned(format!("\x1b[90m{hint}\x1b[m"))
    }
}

impl Validator for LineHelp {}

impl Helper for LineHelp {}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction, Command};
    use rustyline::Context;
    use rustyline::hint::Hinter;
    use rustyline::history::DefaultHistory;

    use super::LineHelp;

    fn help() -> LineHelp {
        let space = Arg::new("space").long("space").global(true).value_parser(["hash", "ordered"]);
        let quiet = Arg::new("quiet").long("quiet").action(ArgAction::SetTrue);
        let update = Command::new("update").args([Arg::new("key").required(true), Arg::new("function"), quiet]);
        let line = Command::new("").arg(space).subcommands([update, Command::new("get")]);
        LineHelp::new(line, |argument| if argument == "function" { vec!["add"] } else { vec![] })
    }

    #[test]
    fn words_are_completed_by_what_they_may_be() {
        let help = help();
        let of = |line: &str| help.candidates(&help.typed(line));
        assert_eq!(of("u"), ["update", "get", "help"]);
        assert_eq!(of("help "), ["update", "get", "help"]);
        assert_eq!(of("update "), [""; 0]);
        for line in ["update k ", "update --quiet k ", "--space hash update k --quiet "] {
            assert_eq!(of(line), ["add"], "{line}");
        }
        assert!(of("update k --").contains(&"--space".to_owned()));
        assert_eq!(of("update k --space "), ["hash", "ordered"]);
        assert_eq!(of("unknown "), [""; 0]);
    }

    #[test]
    fn a_line_shows_what_it_lacks() {
        let (help, history) = (help(), DefaultHistory::new());
        let hint = |line: &str| help.hint(line, line.len(), &Context::new(&history));
        assert_eq!(hint("update ").as_deref(), Some("<key> [function]"));
        assert_eq!(hint("update --quiet k ").as_deref(), Some("[function]"));
        for line in ["update", "update k add ", "update --space ", "get ", "unknown ", ""] {
            assert_eq!(hint(line), None, "{line}");
        }
    }
}
