//! Counts the fields of types.

use crate::code::code_of;
use crate::{Finding, Tree, finding, sources};

/// Most fields of a type.
const FIELDS_MAX: usize = 20;

/// Types with more fields, each with its file: options that users set one by one, a layout of C, and one that is still
/// to be divided. One that has no more than the others is accused.
const BROAD: &[(&str, &str)] = &[
    ("crates/skep-server/src/settings.rs", "ServerSettings"),
    ("crates/skep-transport/src/rdma/abi.rs", "QpAttr"),
    ("crates/skep/src/bench/report.rs", "Report"),
    ("crates/skep/src/serve/config.rs", "Configuration"),
];

/// A type with 21 fields.
pub(crate) const MANY_FIELDS: &[(&str, &str)] = &[(
    "src/a.rs",
    "struct A<T> {\n a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8,\n m: u8, \
     n: Vec<(u8, T)>, o: u8, p: u8, q: u8, r: u8, s: u8, t: fn(u8) -> u8, u: u8 }",
)];
/// Types with at most 20.
pub(crate) const FEW_FIELDS: &[(&str, &str)] = &[
    ("src/a.rs", "struct A { a: Vec<(u8, u8)>, b: [u8; 3] }\nstruct B(u8, u8);\nstruct C;"),
    (
        "src/b.rs",
        "struct A { a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8, m: u8, \
         n: u8, o: u8, p: u8, q: u8, r: u8, s: u8, t: std::vec::Vec<u8>, }",
    ),
];

pub(crate) fn check_fields(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in sources(tree) {
        let broad = fields_of_structs(text).into_iter().filter(|(_, count)| *count > FIELDS_MAX);
        let mut listed: Vec<&str> = BROAD.iter().filter(|(of, _)| of == path).map(|(_, name)| *name).collect();
        for (name, count) in broad {
            match listed.iter().position(|listed| *listed == name) {
                Some(place) => _ = listed.swap_remove(place),
                None => findings.push(finding(path, format!("{name} has {count} fields"))),
            }
        }
        findings.extend(listed.iter().map(|name| finding(path, format!("{name} is listed as broad, and is not"))));
    }
    findings
}

/// Returns the names of the structs of a file, with the numbers of their named fields.
fn fields_of_structs(text: &str) -> Vec<(String, usize)> {
    let code = code_of(text);
    let begins = code.match_indices("struct ").filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric()));
    begins
        .filter_map(|(at, word)| {
            let rest = &code[at + word.len()..];
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let block = rest.find(['{', ';', '(']).filter(|at| rest[*at..].starts_with('{'))?;
            Some((name, field_count(&rest[block..])))
        })
        .collect()
}

/// Returns the number of fields of the block that the text begins with.
fn field_count(text: &str) -> usize {
    let (mut depth, mut count, mut is_field) = (0, 0, false);
    for c in text.chars() {
        match c {
            '{' | '(' | '[' | '<' => depth += 1,
            // An arrow closes nothing.
            '}' | ')' | ']' => depth -= 1,
            '>' if depth > 1 => depth -= 1,
            ':' if depth == 1 && !is_field => (count, is_field) = (count + 1, true),
            ',' if depth == 1 => is_field = false,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    count
}
