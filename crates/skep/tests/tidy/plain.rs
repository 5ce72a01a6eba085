//! The rules about language: phrases that a reader must read twice, and the width of lines in Markdown.

use crate::{Finding, Tree, finding, is_written_by_hand};

/// Phrases and identifiers that must not occur in code or prose. Phrases are also found across a line break.
const BANNED: &[&str] =
    &["announce", "at_hand", "look_on", "so many", "whoever", "whatever", "under way", "but for", "nobody", "somebody"];

/// The files of this test contain the phrases that it searches for.
const THESE_FILES: &str = "crates/skep/tests/tidy/";

/// The most columns of a line in Markdown.
const COLUMNS_MAX: usize = 100;

/// Pages with a line that is too long.
pub(crate) const LONG_LINES: &[(&str, &str)] = &[
    (
        "a.md",
        "A line of prose that is longer than the width of the window in which its readers compare two versions of it.",
    ),
    (
        "docs/a.md",
        "```sh\nls\n```\n- An item of a list after a block of code that is longer than the width of the window, too.\n\
                   - An item of a list after a block of code that is much longer than the width of the window of its readers.\n",
    ),
];

/// Pages with long lines that cannot be wrapped, and another kind of file.
pub(crate) const LINES_THAT_CANNOT_BE_WRAPPED: &[(&str, &str)] = &[
    (
        "a.md",
        "```text\nA line of a block of code, which is as wide as the program that prints it makes it in every terminal.\n```\n",
    ),
    (
        "a.md",
        "| a row of a table | which is wide because its cells are wide | and which cannot be wrapped in Markdown |\n",
    ),
    (
        "a.md",
        "![a picture](plots/2026-11-22-amd-epyc-family-26-model-2-2-cores-servers-and-some-words-for-its-length.svg)",
    ),
    (
        "a.rs",
        "//! A line of a source file. The rule does not check it, because rustfmt.toml has a width for source files.",
    ),
];

/// Finds banned phrases.
pub(crate) fn check_phrases(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.iter().filter(|(path, _)| is_written_by_hand(path) && !path.starts_with(THESE_FILES)) {
        let found = phrases(text).into_iter();
        findings.extend(found.map(|(line, phrase)| finding(path, format!("line {line}: \"{phrase}\""))));
    }
    findings
}

/// Returns the banned phrases of a text, each with the number of the line on which it begins.
fn phrases(text: &str) -> Vec<(usize, &'static str)> {
    let without_marker = |line: &str| line.trim_start().trim_start_matches(['/', '!', '#', '*', '>']).to_lowercase();
    let lines: Vec<String> = text.lines().map(without_marker).collect();
    let numbered = lines.iter().enumerate();
    let words = numbered.flat_map(|(index, line)| line.split_whitespace().map(move |word| (index + 1, word)));
    let words: Vec<(usize, &str)> = words.collect();
    let mut found = Vec::new();
    for phrase in BANNED {
        let parts: Vec<&str> = phrase.split(' ').collect();
        let begins = words.windows(parts.len()).filter(|window| is_phrase(window, &parts));
        found.extend(begins.map(|window| (window[0].0, *phrase)));
    }
    found
}

/// Returns true if the words are the phrase. A single part may be within an identifier, but not within a word.
fn is_phrase(words: &[(usize, &str)], parts: &[&str]) -> bool {
    let begins_word = |word: &str, at: usize| !word[..at].ends_with(char::is_alphanumeric);
    match (words, parts) {
        ([(_, word)], [part]) => word.match_indices(part).any(|(at, _)| begins_word(word, at)),
        ([(_, first), (_, second)], [part, last]) => {
            let rest = second.strip_prefix(last);
            first.strip_suffix(part).is_some_and(|before| !before.ends_with(char::is_alphanumeric))
                && rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        }
        _ => false,
    }
}

/// Finds lines of Markdown that are too long. Fenced blocks, tables and pictures cannot be wrapped.
pub(crate) fn check_columns(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.iter().filter(|(path, _)| path.ends_with(".md")) {
        let mut is_fenced = false;
        for (index, line) in text.lines().enumerate() {
            let start = line.trim_start();
            is_fenced ^= start.starts_with("```");
            let is_whole = is_fenced || start.starts_with('|') || start.starts_with("![");
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !is_whole {
                findings.push(finding(path, format!("line {}: {columns} columns", index + 1)));
            }
        }
    }
    findings
}
