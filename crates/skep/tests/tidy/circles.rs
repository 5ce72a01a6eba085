//! Circles of imports: modules of one folder that need each other cannot be read, tested or moved by themselves.
//!
//! Each folder of a crate's sources is one graph. Its nodes are the modules of the folder, each with all that is below it.
//! An arrow from a to b means that code of a names something of b, by `use` or by a path; names that are imported again on
//! the way are followed to where they come from. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::code::code_of;
use crate::{Finding, Tree, finding};

/// Circles in a folder: the sets of modules that reach each other.
type Circles = BTreeMap<String, Vec<BTreeSet<String>>>;

/// A path as segments, such as `[crate, shard, Turn]`.
type Path = Vec<String>;

/// What a module imports and names.
#[derive(Default)]
struct Module {
    /// The names that it imports, with the paths that they stand for.
    imports: BTreeMap<String, Path>,
    /// All paths to other modules.
    paths: Vec<Path>,
}

/// The modules of a crate, by their paths without the crate.
type Modules = BTreeMap<Path, Module>;

pub(crate) fn check_circles(tree: &Tree) -> Vec<Finding> {
    let found = circles(tree).into_iter();
    let sets = found.flat_map(|(folder, sets)| sets.into_iter().map(move |set| (folder.clone(), set)));
    sets.map(|(folder, set)| finding(&folder, format!("these modules import each other in a circle: {set:?}")))
        .collect()
}

/// Returns the folders that have circles.
fn circles(tree: &Tree) -> Circles {
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for (path, text) in tree.iter().filter(|(path, _)| path.ends_with(".rs")) {
        if let Some((krate, module)) = module_of(path) {
            crates.entry(krate).or_default().insert(module, read(text));
        }
    }
    let mut circles = Circles::new();
    for (krate, modules) in &crates {
        for (folder, arrows) in arrows(modules) {
            let sets = sets_that_reach_each_other(&arrows);
            if !sets.is_empty() {
                circles.insert([&[format!("{krate}/src")][..], &folder].concat().join("/"), sets);
            }
        }
    }
    circles
}

/// Returns the crate and the module of a source file; nothing of tests.
fn module_of(path: &str) -> Option<(&str, Path)> {
    let (krate, file) = path.split_once("/src/")?;
    let mut parts: Path = file.trim_end_matches(".rs").split('/').map(String::from).collect();
    if parts.iter().any(|part| part == "tests" || part.ends_with("_tests")) {
        return None;
    }
    if matches!(parts.last()?.as_str(), "mod" | "lib" | "main") {
        parts.pop();
    }
    Some((krate, parts))
}

/// Reads what a module imports and names, without its tests.
fn read(text: &str) -> Module {
    let mut code = code_of(text);
    code.truncate(code.find("#[cfg(test)]\nmod ").unwrap_or(code.len()));
    let mut module = Module::default();
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        let start = statement.rfind("use ").filter(|at| is_declaration(&statement[..*at]));
        let Some(start) = start else {
            rest += statement;
            continue;
        };
        rest += &statement[..start];
        let mut names = Vec::new();
        expand(statement[start + 4..].trim_end_matches(';'), &[], &mut names);
        for (name, path) in names {
            module.paths.push(path.clone());
            module.imports.insert(name, path);
        }
    }
    module.paths.extend(paths_in(&rest));
    module
}

/// Returns true if a `use` after this text begins a statement.
fn is_declaration(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default().trim();
    line.is_empty() || line.starts_with("pub")
}

/// Adds the names of a tree of imports, each with its path.
fn expand(tree: &str, before: &[String], names: &mut Vec<(String, Path)>) {
    let tree = tree.trim();
    let segments = |text: &str| -> Path {
        text.split("::").map(str::trim).filter(|part| !part.is_empty()).map(String::from).collect()
    };
    if let Some(open) = tree.find('{') {
        let prefix = [before, &segments(&tree[..open])].concat();
        let (mut depth, mut from) = (0, open + 1);
        for (at, c) in tree.char_indices().skip(open + 1).chain([(tree.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => {
                    expand(&tree[from..at], &prefix, names);
                    break;
                }
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&tree[from..at], &prefix, names);
                    from = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut path = [before, &segments(path)].concat();
    if path.last().is_some_and(|part| part == "self") {
        path.pop();
    }
    if let Some(last) = path.last() {
        names.push((alias.unwrap_or(last).to_string(), path.clone()));
    }
}

/// Returns the paths in code that begin with `crate` or `super`.
fn paths_in(code: &str) -> Vec<Path> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let tokens = code.split(|c| !is_part(c));
    let paths = tokens.filter(|token| token.starts_with("crate::") || token.starts_with("super::"));
    paths.map(|token| token.split("::").filter(|part| !part.is_empty()).map(String::from).collect()).collect()
}

/// Returns the arrows of each folder, from a module to those of the same folder that it needs.
fn arrows(modules: &Modules) -> BTreeMap<Path, BTreeMap<String, BTreeSet<String>>> {
    let mut arrows: BTreeMap<Path, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (from, module) in modules {
        for path in &module.paths {
            let Some(to) = resolve(modules, from, path, 8) else { continue };
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(from_part), Some(to_part)) = (from.get(shared), to.get(shared)) {
                let folder = arrows.entry(from[..shared].to_vec()).or_default();
                folder.entry(from_part.clone()).or_default().insert(to_part.clone());
            }
        }
    }
    arrows
}

/// Returns the module in which the item of a path is defined; nothing if it is not of this crate.
fn resolve(modules: &Modules, from: &Path, path: &[String], steps: usize) -> Option<Path> {
    let mut at = from.clone();
    let mut parts = path.iter().peekable();
    match parts.peek()?.as_str() {
        "crate" => at.clear(),
        "self" | "super" => {}
        first => {
            let child = [&from[..], &[first.to_string()]].concat();
            if !modules.contains_key(&child) {
                return None;
            }
        }
    }
    for part in parts {
        match part.as_str() {
            "crate" | "self" => continue,
            "super" => {
                at.pop()?;
                continue;
            }
            _ => {}
        }
        let child = [&at[..], std::slice::from_ref(part)].concat();
        if modules.contains_key(&child) {
            at = child;
            continue;
        }
        // The name may be imported there from another module.
        let imported = modules.get(&at).and_then(|module| module.imports.get(part)).filter(|_| steps > 0);
        return imported.and_then(|path| resolve(modules, &at, path, steps - 1)).or(Some(at));
    }
    Some(at)
}

/// Returns the sets of more than one module, each of which reaches all others of its set.
fn sets_that_reach_each_other(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = arrows
        .keys()
        .map(|from| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(module) = next.pop() {
                let unseen = arrows.get(module).into_iter().flatten().filter(|to| seen.insert(*to));
                next.extend(unseen.collect::<Vec<_>>());
            }
            (from, seen)
        })
        .collect();
    let reaches = |a: &String, b: &String| reach.get(a).is_some_and(|seen| seen.contains(b));
    let mut sets: Vec<BTreeSet<String>> = Vec::new();
    for module in arrows.keys().filter(|module| reaches(module, module)) {
        if !sets.iter().any(|set| set.contains(module)) {
            sets.push(arrows.keys().filter(|b| reaches(module, b) && reaches(b, module)).cloned().collect());
        }
    }
    sets.retain(|set| set.len() > 1);
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree_of;

    const A: &str = "crates/x/src/a.rs";

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let count = |sets: Vec<BTreeSet<String>>| sets.iter().map(BTreeSet::len).sum();
        circles(&tree_of(files)).into_iter().map(|(folder, sets)| (folder, count(sets))).collect()
    }

    #[test]
    fn the_modules_of_each_folder_have_no_circle() {
        let findings = check_circles(&crate::repository());
        let report: String = findings.iter().map(|finding| format!("{}: {}\n", finding.path, finding.what)).collect();
        assert!(report.is_empty(), "{report}");
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        let root = ("crates/x/src/lib.rs", "mod a; mod b;\npub use self::b::B;\n");
        let circle = [("crates/x/src".to_string(), 2)];
        for (a, b) in [
            ("use crate::b::B;\n", "use super::a::{self, A};\n"),
            ("use crate::{B, c::{D, E}};\n", "fn f() { crate::a::f(); }\n"),
            ("pub(crate) use crate::b;\n", "impl super::a::T for B {}\n"),
        ] {
            assert_eq!(found(&[root, (A, a), ("crates/x/src/b.rs", b)]), circle, "{a} {b}");
            // The arrows of what is below a module are its own.
            assert_eq!(
                found(&[
                    root,
                    (A, a),
                    ("crates/x/src/b/mod.rs", ""),
                    ("crates/x/src/b/c.rs", &b.replace("super::a", "crate::a"))
                ]),
                circle
            );
        }
    }

    #[test]
    fn what_is_no_circle_is_spared() {
        let root = ("crates/x/src/lib.rs", "pub use self::b::B;\n");
        for (a, b) in [
            ("use crate::b::B;\n", "use std::a::A;\n// use crate::a::A;\n"),
            ("use crate::B;\n", "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"),
            ("use super::X;\n", "use crate::a::A;\n"),
        ] {
            assert_eq!(found(&[root, (A, a), ("crates/x/src/b.rs", b)]), [], "{a} {b}");
        }
    }

    #[test]
    fn each_circle_is_a_finding() {
        let tree = tree_of(&[(A, "use crate::b::B;"), ("crates/x/src/b.rs", "use crate::a::A;")]);
        assert_eq!(check_circles(&tree).len(), 1);
    }
}
