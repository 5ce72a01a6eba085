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

/// The word at the end of a line, and the words before it.
struct Words<'l> {
    before: Vec<&'l str>,
    last: &'l str,
}

impl<'l> Words<'l> {
    /// Splits a line. A word in quotes that has blanks counts as several: then nothing is completed.
    fn of(line: &'l str) -> Words<'l> {
        let last = line.rsplit(char::is_whitespace).next().unwrap_or_default();
        Words { before: line[..line.len() - last.len()].split_whitespace().collect(), last }
    }
}

impl LineHelp {
    pub(super) fn new(mut line: Command, value_names: fn(&str) -> Vec<&'static str>) -> LineHelp {
        // Adds `help`, and what all commands share to each.
        line.build();
        LineHelp { line, value_names }
    }

    /// Returns what the last word of a line may be.
    fn candidates(&self, words: &Words<'_>) -> Vec<String> {
        let names = || self.line.get_subcommands().map(|command| command.get_name().to_owned());
        let Some(command) = words.before.first().and_then(|name| self.line.find_subcommand(name)) else {
            return if words.before.is_empty() { names().collect() } else { Vec::new() };
        };
        if command.get_name() == "help" {
            return names().collect();
        }
        if words.last.starts_with('-') {
            let flags = command.get_arguments().filter_map(Arg::get_long);
            return flags.map(|flag| format!("--{flag}")).collect();
        }
        let flag = words.before.last().and_then(|word| word.strip_prefix("--"));
        let of_flag = flag.and_then(|flag| command.get_arguments().find(|argument| argument.get_long() == Some(flag)));
        let argument = of_flag.filter(|argument| argument.get_action().takes_values());
        let argument = argument.or_else(|| positional(command, words.before.len() - 1));
        argument.map_or_else(Vec::new, |argument| {
            let possible = argument.get_possible_values();
            let listed = possible.iter().map(|value| value.get_name().to_owned());
            listed.chain((self.value_names)(argument.get_id().as_str()).into_iter().map(str::to_owned)).collect()
        })
    }
}

/// Returns the argument at this position. The last one may take all words from its position on.
fn positional(command: &Command, index: usize) -> Option<&Arg> {
    command.get_positionals().nth(index)
}

impl Completer for LineHelp {
    type Candidate = Pair;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let words = Words::of(&line[..position]);
        let candidates = self.candidates(&words).into_iter().filter(|word| word.starts_with(words.last));
        let pair = |word: String| Pair { display: word.clone(), replacement: word + " " };
        Ok((position - words.last.len(), candidates.map(pair).collect()))
    }
}

impl Hinter for LineHelp {
    type Hint = String;

    /// Returns the arguments that a line still lacks.
    fn hint(&self, line: &str, position: usize, _: &Context<'_>) -> Option<String> {
        let words = Words::of(line);
        if position < line.len() || !words.last.is_empty() {
            return None;
        }
        let command = self.line.find_subcommand(words.before.first()?)?;
        let left = command.get_positionals().skip(words.before.len() - 1);
        let names: Vec<String> = left.map(|argument| argument.to_string()).collect();
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
    use clap::{Arg, Command};

    use super::{LineHelp, Words};

    #[test]
    fn words_are_completed_by_what_they_may_be() {
        let update = Command::new("update")
            .args([Arg::new("key").required(true), Arg::new("function"), Arg::new("space").long("space")])
            .mut_arg("space", |argument| argument.value_parser(["hash", "ordered"]));
        let line = Command::new("").subcommands([update, Command::new("get")]);
        let help = LineHelp::new(line, |argument| if argument == "function" { vec!["add"] } else { vec![] });
        let of = |line: &str| help.candidates(&Words::of(line));
        assert_eq!(of("u"), ["update", "get", "help"]);
        assert_eq!(of("help "), ["update", "get", "help"]);
        assert_eq!(of("update "), [""; 0]);
        assert_eq!(of("update k "), ["add"]);
        assert!(of("update k --").contains(&"--space".to_owned()));
        assert_eq!(of("update k --space "), ["hash", "ordered"]);
        assert_eq!(of("unknown "), [""; 0]);
    }
}
