//! The rule that names are imported one by one.

use crate::code::{code_of, has_word};
use crate::{Finding, Tree, finding, sources};

pub(crate) fn check_glob_imports(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in sources(tree) {
        let code = code_of(text);
        let tests_start = code.find("#[cfg(test)]").unwrap_or(code.len());
        let mut end = 0;
        // A statement that imports begins a line, perhaps after its visibility, and ends with a semicolon.
        for line in code.split_inclusive('\n') {
            let start = end;
            end += line.len();
            let words = line.trim_start();
            if !(words.starts_with("use ") || words.starts_with("pub") && has_word(words, "use")) {
                continue;
            }
            let statement = code[start..].split(';').next().unwrap_or_default().trim();
            let own_tests = start > tests_start && statement == "use super::*";
            if statement.contains('*') && !own_tests {
                findings.push(finding(path, format!("`{statement}`")));
            }
        }
    }
    findings
}
