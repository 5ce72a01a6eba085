//! The rule that no parameter of a function is a tuple.
//!
//! A tuple type is searched as text: in the type of a parameter, in its pattern, and in the aliases of the same file.
//! Closures are free, because an iterator over pairs hands out tuples. So is the implementation of a trait for a tuple,
//! such as `From<(&str, u16)>`: the header of such an implementation contains the type.

use crate::code::{code_of, has_word};
use crate::{Finding, Tree, finding, sources};

/// Files with a tuple as a parameter.
pub(crate) const TUPLE_PARAMETERS: &[(&str, &str)] = &[
    ("src/a.rs", "fn f((a, b): (u8, u8)) {}"),
    ("src/a.rs", "fn f<T: Fn(u8) -> u8, const N: usize>(&self, a: [u8; 1 << N], pair: &'a mut (u8, T)) {}"),
    ("src/a.rs", "fn f((a, b): Elsewhere) {}"),
    ("src/a.rs", "pub(crate) type Pair<'a> = (u8, &'a u8);\nfn f(pair: &Pair<'_>) {}"),
    ("src/a.rs", "impl A {\n    fn from(a: (u8, u16)) -> A {}\n}"),
    ("src/a.rs", "impl From<(u8, u16)> for A {\n    fn from(a: (u8, u8)) -> A {}\n}"),
    ("src/a.rs", "impl From<(u8, u16)> for A {}\nfn from(a: (u8, u16)) -> A {}"),
];
/// Files that have tuples elsewhere.
pub(crate) const NO_TUPLE_PARAMETERS: &[(&str, &str)] = &[
    ("src/a.rs", "fn f(a: Vec<(u8, u8)>, b: &[(u8, u8)], c: (), d: impl Fn((u8, u8)) -> u8) -> (u8, u8) { (1, 2) }"),
    ("src/a.rs", "fn f(list: &[u8]) { list.iter().map(|(a, b): (u8, u8)| a) } // fn f(a: (u8, u8))"),
    ("src/a.rs", "impl From<(&str, u16)> for A {\n    fn from((host, port): (&str, u16)) -> A { A }\n}"),
    ("src/a.rs", "fn f(Pair { a, b }: Pair, [c, d]: [u8; 2], e: a::b<fn(u8, u8)>) {}\nstruct Pair { a: u8, b: u8 }"),
    ("src/a.rs", "type Pair = (u8, u8);\nimpl Iterator for A {\n    type Item = Pair;\n    fn f(list: &[Pair]) {}\n}"),
];

pub(crate) fn check_tuple_parameters(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in sources(tree) {
        let code = code_of(text);
        let aliases: Vec<&str> = code.lines().filter_map(alias_of_tuple).collect();
        let impls: Vec<(&str, &str)> = words(&code, "impl").filter_map(implementation).collect();
        for (name, parameters) in words(&code, "fn").filter_map(function) {
            for (pattern, kind) in parts(parameters).into_iter().filter_map(parameter) {
                let is_alias = aliases.iter().any(|alias| kind.split('<').next() == Some(alias));
                let is_free = impls.iter().any(|(header, block)| {
                    header.contains(kind) && header.contains(" for ") && is_within(parameters, block)
                });
                if (is_tuple(pattern) || is_tuple(kind) || is_alias) && !is_free {
                    findings.push(finding(path, format!("a parameter of `{name}` is a tuple: {kind}")));
                }
            }
        }
    }
    findings
}

/// Returns the rest of the text after each occurrence of a keyword.
fn words<'a>(code: &'a str, keyword: &'static str) -> impl Iterator<Item = &'a str> {
    code.match_indices(keyword).filter_map(move |(at, _)| {
        let rest = &code[at + keyword.len()..];
        let around = &code[at.saturating_sub(1)..(at + keyword.len() + 1).min(code.len())];
        has_word(around, keyword).then_some(rest)
    })
}

/// Returns the name and the parameters of the function whose text follows. A type such as `fn(u8)` has no name.
fn function(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let name = text.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())?;
    let rest = &text[name.len()..];
    let generics = if rest.starts_with('<') { bracketed(rest)?.len() } else { 0 };
    let parameters = bracketed(rest[generics..].trim_start()).filter(|parameters| parameters.starts_with('('))?;
    Some((name, &parameters[1..parameters.len() - 1]))
}

/// Returns the header and the block of the implementation whose text follows.
fn implementation(text: &str) -> Option<(&str, &str)> {
    let block = text.find(['{', ';']).filter(|at| text[*at..].starts_with('{'))?;
    Some((&text[..block], bracketed(&text[block..])?))
}

/// Returns the pattern and the type of a parameter. The type is without references.
fn parameter(text: &str) -> Option<(&str, &str)> {
    let colon =
        top_level(text).find(|(at, c)| *c == ':' && !text[*at..].starts_with("::") && !text[..*at].ends_with(':'));
    let (pattern, kind) = text.split_at(colon?.0);
    let mut kind = kind[1..].trim();
    loop {
        let before = kind;
        kind = kind.trim_start_matches('&').trim_start();
        kind = kind.strip_prefix("mut ").unwrap_or(kind).trim_start();
        if let Some(lifetime) = kind.strip_prefix('\'') {
            kind = lifetime.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
        }
        if kind == before {
            return Some((pattern.trim(), kind));
        }
    }
}

/// Returns the name of the alias that the line declares, if it is one of a tuple. Those in a block belong to a trait.
fn alias_of_tuple(line: &str) -> Option<&str> {
    let (declared, kind) = line.split_once('=')?;
    let (before, name) = declared.split_once("type ")?;
    let is_outside = before.is_empty() || before.starts_with("pub");
    (is_outside && is_tuple(kind.trim())).then(|| name.split('<').next().unwrap_or(name).trim())
}

/// Returns true if the text begins with a tuple of at least two parts.
fn is_tuple(text: &str) -> bool {
    text.starts_with('(') && bracketed(text).is_some_and(|tuple| parts(&tuple[1..tuple.len() - 1]).len() > 1)
}

/// Divides a list at its commas.
fn parts(list: &str) -> Vec<&str> {
    let mut begin = 0;
    let mut parts = Vec::new();
    for (at, _) in top_level(list).filter(|(_, c)| *c == ',') {
        parts.push(&list[begin..at]);
        begin = at + 1;
    }
    parts.push(&list[begin..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Returns the beginning of the text up to the end of the bracket with which it begins.
fn bracketed(text: &str) -> Option<&str> {
    let end = with_depth(text).skip(1).find(|(_, _, depth)| *depth == 0)?.0;
    Some(&text[..=end])
}

/// Returns the characters that are in no bracket, each with its offset.
fn top_level(text: &str) -> impl Iterator<Item = (usize, char)> {
    with_depth(text).filter(|(_, _, depth)| *depth == 0).map(|(at, c, _)| (at, c))
}

/// Returns the characters, each with its offset and the number of brackets that are open after it. A `<` that is no
/// bracket ends with the bracket around it.
fn with_depth(text: &str) -> impl Iterator<Item = (usize, char, usize)> {
    let mut open = Vec::new();
    let mut before = ' ';
    text.char_indices().map(move |(at, c)| {
        match c {
            '(' | '[' | '{' | '<' => open.push(c),
            ')' | ']' | '}' => while open.pop() == Some('<') {},
            // An arrow closes nothing.
            '>' if open.last() == Some(&'<') && before != '-' && before != '=' => _ = open.pop(),
            _ => {}
        }
        before = c;
        (at, c, open.len())
    })
}

/// Returns true if a part of a text is in another part of the same text.
fn is_within(part: &str, whole: &str) -> bool {
    whole.as_bytes().as_ptr_range().contains(&part.as_ptr())
}
