//! The rules of this repository that a compiler does not check, each with its reason and its controls.
//!
//! A rule is a function from the files of the repository to findings. [`RULES`] also lists texts that it must accuse
//! and texts that it must spare. A rule that can no longer fail makes [`each_rule_can_fail`] fail. The tables of
//! exceptions ([`UNSAFE`], [`LONG`], [`LAYERS`]) are in this file alone. CONTRIBUTING.md repeats the first one, and a
//! rule compares them. The files are read from disk, without build outputs and hidden folders; no program runs.

mod circles;
mod code;
mod globs;
mod links;
mod parameters;
mod plain;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::code::{code_of, has_word};
use crate::globs::check_glob_imports;
use crate::parameters::{NO_TUPLE_PARAMETERS, TUPLE_PARAMETERS, check_tuple_parameters};
use crate::plain::{LINES_THAT_CANNOT_BE_WRAPPED, LONG_LINES, check_columns, check_phrases};
use crate::types::{FEW_FIELDS, MANY_FIELDS, check_fields};

/// The modules that may contain `unsafe`. CONTRIBUTING.md lists the same ones, each with its reason.
const UNSAFE: &[&str] = &[
    "crates/skep-function/src/code.rs",
    "crates/skep-store/src/hash/find.rs",
    "crates/skep-store/src/memory/local.rs",
    "crates/skep-store/src/memory/mapping.rs",
    "crates/skep-store/src/ordered/key_head/lanes.rs",
    "crates/skep-store/src/ordered/node/frame.rs",
    "crates/skep-store/src/processor/interleaver.rs",
    "crates/skep-store/tests/ordered_page_end.rs",
    "crates/skep-store/tests/ordered_small_machines.rs",
    "crates/skep-transport/src/rdma/verbs.rs",
    "crates/skep-transport/src/shared/mapping.rs",
    "crates/skep/src/serve/allocator.rs",
];

/// The most lines of a source file, unless [`LONG`] names it.
const LINES_MAX: usize = 600;

/// Longer source files, each with the reason why it is still one concept.
const LONG: &[(&str, &str)] = &[];

/// The crates, and the dependencies that each may have, except for tests. No crate may depend on `benches`, because it
/// would also depend on the peers.
#[rustfmt::skip]
const LAYERS: &[(&str, &[&str])] = &[
    ("skep-core", &[]),
    ("skep-store", &["skep-core"]),
    ("skep-function", &["skep-core"]),
    ("skep-wire", &["skep-core"]),
    ("skep-log", &["skep-core", "skep-wire"]),
    ("skep-transport", &[]),
    ("skep-server", &["skep-core", "skep-function", "skep-store", "skep-wire", "skep-log", "skep-transport"]),
    ("skep-client", &["skep-core", "skep-wire", "skep-transport"]),
    ("skep-nic", &["skep-core", "skep-store"]),
    ("skep-measure", &[]),
    ("skep-fuzz-targets", &["skep-core", "skep-store", "skep-function", "skep-wire", "skep-log", "skep-transport"]),
    ("skep", &["skep-core", "skep-function", "skep-store", "skep-wire", "skep-log", "skep-server", "skep-client",
        "skep-nic", "skep-measure"]),
    ("benches", &["skep-core", "skep-function", "skep-store", "skep-wire", "skep-log", "skep-transport", "skep-server",
        "skep-client", "skep-nic", "skep-measure", "skep"]),
];

/// The pages that a newcomer reads first.
const PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// This file contains the words that it searches for, so the rules about words skip it.
const THIS_FILE: &str = "crates/skep/tests/tidy/main.rs";

/// A control for the rule of length: this file passes, twice the file does not.
const TWICE_THIS_FILE: &str = concat!(include_str!("main.rs"), include_str!("main.rs"));

/// The files by their path from the root of the repository. Binary files have an empty text.
type Tree = BTreeMap<String, String>;

/// A violation of a rule, and its file.
struct Finding {
    path: String,
    what: String,
}

/// A rule: its reason, its check, and the controls of the check.
struct Rule {
    name: &'static str,
    why: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
    /// Files (path and text) that break the rule, each by itself.
    caught: &'static [(&'static str, &'static str)],
    /// Files that almost break the rule.
    spared: &'static [(&'static str, &'static str)],
}

const RULES: &[Rule] = &[
    Rule {
        name: "header",
        why: "the reader of a file needs to know what it is, which section of a paper it implements, and what it guarantees",
        check: check_headers,
        caught: &[("src/a.rs", "use std::fs;\n//! Too late.\n"), ("src/b.rs", "// A plain comment.\n"), ("c.rs", "")],
        spared: &[("src/a.rs", "//! What this is.\n"), ("a.py", "import os\n")],
    },
    Rule {
        name: "length",
        why: "a file is one concept; past 600 lines it is usually two",
        check: check_lengths,
        caught: &[("src/a.rs", TWICE_THIS_FILE)],
        spared: &[("src/a.rs", include_str!("main.rs")), ("a.md", TWICE_THIS_FILE)],
    },
    Rule {
        name: "unsafe",
        why: "unsafe code has an address, so that a review can read all of it",
        check: check_unsafe,
        caught: &[
            ("src/a.rs", "fn f(p: *const u8) -> u8 { unsafe { *p } }"),
            ("src/a.rs", "#![allow(unsafe_code)]"),
            ("src/a.rs", "const QUOTE: char = '\"'; unsafe fn f<'a>() {} // \""),
            ("src/a.rs", "let s = r#\"a \" b\"#; unsafe { f() }"),
            (UNSAFE[0], "//! No longer holds any.\nfn f() {}"),
            ("CONTRIBUTING.md", "## Where unsafe may live\n\n- `src/elsewhere.rs`: a reason.\n"),
            ("CONTRIBUTING.md", "No list at all."),
        ],
        spared: &[
            ("src/a.rs", "// unsafe\nfn f() -> &'static str { \"unsafe \\\" unsafe\" } /* /* unsafe */ unsafe */"),
            ("src/a.rs", "fn unsafely(c: char) -> bool { c == '\\'' || matches!(r##\"unsafe \"# unsafe\"##, _) }"),
            (UNSAFE[0], "fn f(p: *const u8) -> u8 { unsafe { *p } }"),
        ],
    },
    Rule {
        name: "layers",
        why: "dependencies point downwards, so that the store can be read, tested and embedded without the rest",
        check: check_layers,
        caught: &[
            ("crates/skep-store/Cargo.toml", "lints.workspace = true\ndependencies.skep-wire.workspace = true"),
            ("crates/skep-wire/Cargo.toml", "lints.workspace = true\nbuild-dependencies.skep-client.path = '../x'"),
            (
                "crates/skep-client/Cargo.toml",
                "lints.workspace = true\n[target.'cfg(unix)'.dependencies]\nx = { package = 'skep-server', path = '' }",
            ),
            ("crates/skep-common/Cargo.toml", "lints.workspace = true"),
            ("crates/skep/Cargo.toml", "lints.workspace = true\ndependencies.skep-benches.path = '../../benches'"),
            ("benches/Cargo.toml", "lints.workspace = true\ndependencies.skep-fuzz.path = '../fuzz'"),
        ],
        spared: &[
            (
                "crates/skep-server/Cargo.toml",
                "[dependencies]\nskep-store.workspace = true\nskep-wire.workspace = true",
            ),
            ("crates/skep-server/Cargo.toml", "[dev-dependencies]\nskep-client.workspace = true"),
            ("benches/Cargo.toml", "[dependencies]\nskep.workspace = true\nskep-store.workspace = true"),
        ],
    },
    Rule {
        name: "lints",
        why: "a crate that does not take the workspace's lints may hold unsafe code anywhere",
        check: check_lints,
        caught: &[
            ("crates/skep/Cargo.toml", "[package]\nname = 'skep'"),
            ("crates/skep/Cargo.toml", "[lints.rust]"),
            ("benches/Cargo.toml", "[package]"),
        ],
        spared: &[("crates/skep/Cargo.toml", "[lints]\nworkspace = true"), ("fuzz/Cargo.toml", "[package]")],
    },
    Rule {
        name: "outside world",
        why: "the store and the wire format take bytes, time and randomness as arguments, so that any run can be repeated",
        check: check_outside_world,
        caught: &[
            ("crates/skep-store/src/a.rs", "use std::net::TcpStream;"),
            ("crates/skep-wire/src/a.rs", "let now = Instant::now();"),
        ],
        spared: &[
            ("crates/skep-store/tests/a.rs", "let csv = std::fs::read_to_string(path);"),
            ("crates/skep-store/src/a.rs", "// Not std::fs, see above."),
        ],
    },
    Rule {
        name: "words",
        why: "unfinished work belongs into an issue, where it is seen; the tree contains finished work",
        check: check_words,
        caught: &[
            ("src/a.rs", "fn f() {} // TODO: more"),
            ("a.md", "FIXME"),
            ("justfile", "# XXX"),
            ("Cargo.toml", "# HACK around cargo"),
            ("a.md", "It is enough for now."),
        ],
        spared: &[("a.md", "A TODOs column, and what stands for nowhere."), ("a.csv", "TODO,1")],
    },
    Rule {
        name: "plain words",
        why: "a reader who has never seen a file must understand each sentence at the first reading",
        check: check_phrases,
        caught: &[
            ("src/a.rs", "// Whoever reads it."),
            ("src/a.rs", "fn run_at_hand() {}"),
            ("src/a.rs", "/// Requests that are under\n/// way."),
            ("a.md", "There are so\nmany of them, but for one."),
            ("a.toml", "# Nobody needs it."),
        ],
        spared: &[
            ("src/a.rs", "// Not so: many more, butler for hire.\nfn that_handler() {}"),
            ("a.md", "Under a way; but forty are also many."),
            ("a.csv", "nobody,1"),
        ],
    },
    Rule {
        name: "columns",
        why: "a line of at most 100 columns can be read, and compared, in every window",
        check: check_columns,
        caught: LONG_LINES,
        spared: LINES_THAT_CANNOT_BE_WRAPPED,
    },
    Rule {
        name: "left-overs",
        why: "a macro of a debugging session, a hole, or a test that never runs is not finished code",
        check: check_left_overs,
        caught: &[
            ("src/a.rs", "let x = dbg!(y);"),
            ("src/a.rs", "fn f() { todo!() }"),
            ("src/a.rs", "fn f() { unimplemented!(\"no\") }"),
            ("src/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}"),
        ],
        spared: &[("src/a.rs", "// dbg!(x) and #[ignore]\nlet ignored = \"todo!()\";")],
    },
    Rule {
        name: "module names",
        why: "a name that says nothing of its content gathers everything; a concept has the name that the papers give it",
        check: check_module_names,
        caught: &[("src/utils.rs", ""), ("tests/common/mod.rs", ""), ("src/a.rs", "mod helpers { }")],
        spared: &[("src/utility_model.rs", ""), ("src/a.rs", "// mod utils\nfn common() {}")],
    },
    Rule {
        name: "glob imports",
        why: "a reader finds where a name comes from at the top of the file",
        check: check_glob_imports,
        caught: &[
            ("src/a.rs", "use std::collections::*;"),
            ("src/a.rs", "pub use crate::{memory::{*, line}, hash};"),
            ("src/a.rs", "pub(crate) use a::{\n    b,\n    c::*,\n};"),
            ("src/a.rs", "use super::*;\nfn f() {}"),
            ("src/a.rs", "#[cfg(test)]\nmod tests {\n    use proptest::prelude::*;\n}"),
        ],
        spared: &[
            ("src/a.rs", "#[cfg(test)]\nmod tests {\n    use super::*;\n}"),
            ("src/a.rs", "let because = a * b; // use x::*;\nuse std::mem;"),
        ],
    },
    Rule {
        name: "full tests",
        why: "`.ci/run` finds the tests that need SKEP_FULL=1 by the name of their file",
        check: check_full_tests,
        caught: &[
            ("crates/skep/tests/redis.rs", "if std::env::var_os(\"SKEP_FULL\").is_none() { return; }"),
            ("crates/skep/tests/redis.rs", "mod full_run;"),
            ("crates/skep/tests/full_redis.rs", "//! Does not ask."),
        ],
        spared: &[
            ("crates/skep/tests/full_redis.rs", "mod full_run;"),
            ("crates/skep/tests/full_run/mod.rs", "std::env::var(\"SKEP_FULL\")"),
            ("benches/tests/full_soak.rs", "if std::env::var_os(\"SKEP_FULL\").is_none() { return; }"),
            ("crates/skep/tests/redis.rs", "//! SKEP_FULL is for others.\nfn f() {}"),
        ],
    },
    Rule {
        name: "fields",
        why: "a type with more than 20 fields is several types that have not been told apart",
        check: check_fields,
        caught: MANY_FIELDS,
        spared: FEW_FIELDS,
    },
    Rule {
        name: "tuple parameters",
        why: "two values that belong together are a type with a name; others are two parameters",
        check: check_tuple_parameters,
        caught: TUPLE_PARAMETERS,
        spared: NO_TUPLE_PARAMETERS,
    },
    Rule {
        name: "paths in pages",
        why: "a page that names a file which has moved misleads its reader",
        check: check_paths,
        caught: &[
            ("a.md", "See `crates/skep-store/src/gone.rs`."),
            ("a.md", "See `gone.rs` there."),
            ("docs/a.md", "All of `docs/gone` and `crates/gone/`."),
        ],
        spared: &[
            ("docs/a.md", "`docs/a.md`, `a.md`, `docs/`, [this](gone.md), which is for another rule."),
            (
                "a.md",
                "```\n`gone.rs`\n```\n`get/put`, `/etc/gone.md`, `full_*.rs`, `target/release/skep`, `127.0.0.1:1/x.rs`",
            ),
        ],
    },
    Rule {
        name: "links",
        why: "a link leads to the heading that it names",
        check: links::check_links,
        caught: links::BROKEN_LINKS,
        spared: links::RIGHT_LINKS,
    },
    Rule {
        name: "site",
        why: "the site has all pages, and its readers have no other files",
        check: links::check_site,
        caught: links::OUTSIDE_THE_SITE,
        spared: links::NO_PART_OF_THE_SITE,
    },
    Rule {
        name: "alerts",
        why: "an alert at night links to the page that says what to do",
        check: links::check_alerts,
        caught: links::ALERTS_WITHOUT_PAGES,
        spared: links::NO_ALERTS,
    },
];

#[test]
fn the_repository_keeps_its_rules() {
    let tree = repository();
    assert!(tree.contains_key(THIS_FILE), "the walk through the repository did not find this test");
    let mut report = String::new();
    for rule in RULES {
        let findings = (rule.check)(&tree);
        if !findings.is_empty() {
            report += &format!("\n{}: {}\n", rule.name, rule.why);
        }
        for finding in findings {
            report += &format!("  {}: {}\n", finding.path, finding.what);
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn the_pages_are_there() {
    assert_eq!(missing_pages(&repository()), [] as [&str; 0], "pages that a newcomer needs are missing");
    let without_readme = tree_of(&[("ARCHITECTURE.md", ""), ("CONTRIBUTING.md", ""), ("docs/README.md", "")]);
    assert_eq!(missing_pages(&without_readme), ["README.md"]);
}

#[test]
fn each_rule_can_fail() {
    for rule in RULES {
        assert!(!rule.caught.is_empty() && !rule.spared.is_empty(), "{}: no controls", rule.name);
        for file in rule.caught {
            let accused = (rule.check)(&tree_of(&[*file])).iter().any(|finding| finding.path == file.0);
            assert!(accused, "{} did not catch {file:?}", rule.name);
        }
        for file in rule.spared {
            let accused = (rule.check)(&tree_of(&[*file])).into_iter().find(|finding| finding.path == file.0);
            assert!(accused.is_none(), "{} accused {file:?}: {}", rule.name, accused.unwrap().what);
        }
    }
}

fn check_headers(tree: &Tree) -> Vec<Finding> {
    let late = |(path, text): (&String, &String)| {
        (!text.starts_with("//!")).then(|| finding(path, "does not open with a `//!` header"))
    };
    sources(tree).filter_map(late).collect()
}

fn check_lengths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in sources(tree) {
        let lines = text.lines().count();
        let listed = LONG.iter().any(|(long, _)| long == path);
        if lines > LINES_MAX && !listed {
            findings.push(finding(path, format!("{lines} lines; split it, or give a reason in LONG")));
        } else if lines <= LINES_MAX && listed {
            findings.push(finding(path, "is not long any more; take it out of LONG"));
        }
    }
    let gone = LONG.iter().filter(|(path, _)| !tree.contains_key(*path) && tree.contains_key(THIS_FILE));
    findings.extend(gone.map(|(path, _)| finding(path, "is in LONG, but not in the repository")));
    findings
}

fn check_unsafe(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in sources(tree) {
        let code = code_of(text);
        let listed = UNSAFE.contains(&path.as_str());
        if !listed && (has_word(&code, "unsafe") || has_word(&code, "unsafe_code")) {
            findings.push(finding(path, "holds unsafe code, but is not in UNSAFE"));
        } else if listed && !has_word(&code, "unsafe") {
            findings.push(finding(path, "holds no unsafe code any more; take it out of UNSAFE"));
        }
    }
    if let Some(text) = tree.get("CONTRIBUTING.md") {
        let section = text.split("\n## ").find(|section| section.trim_start_matches("## ").starts_with("Where unsafe"));
        let entries =
            section.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("- `")?.split('`').next());
        let described: BTreeSet<&str> = entries.collect();
        let permitted: BTreeSet<&str> = UNSAFE.iter().copied().collect();
        for path in described.symmetric_difference(&permitted) {
            findings.push(finding(
                "CONTRIBUTING.md",
                format!("{path} is either in its list of unsafe modules or in UNSAFE"),
            ));
        }
    }
    findings
}

fn check_layers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in manifests(tree) {
        let krate = path.trim_end_matches("/Cargo.toml").rsplit('/').next().unwrap_or_default();
        let Some((_, below)) = LAYERS.iter().find(|(name, _)| *name == krate) else {
            findings.push(finding(path, "is missing in LAYERS"));
            continue;
        };
        match text.parse::<toml::Table>() {
            Err(error) => findings.push(finding(path, error.to_string())),
            Ok(manifest) => {
                let mut names = Vec::new();
                dependencies(&manifest, &mut names);
                for name in names.iter().filter(|name| name.starts_with("skep") && !below.contains(&name.as_str())) {
                    findings.push(finding(path, format!("{krate} may not depend on {name}")));
                }
            }
        }
    }
    findings
}

fn check_lints(tree: &Tree) -> Vec<Finding> {
    let own = |(path, text): (&String, &String)| {
        let lints =
            text.parse::<toml::Table>().ok().and_then(|manifest| manifest.get("lints")?.get("workspace").cloned());
        (lints != Some(toml::Value::Boolean(true))).then(|| finding(path, "needs `[lints] workspace = true`"))
    };
    manifests(tree).filter_map(own).collect()
}

fn check_outside_world(tree: &Tree) -> Vec<Finding> {
    let inner = ["crates/skep-store/src/", "crates/skep-wire/src/"];
    let reaching = ["std::net", "std::fs", "Instant::now", "SystemTime::now"];
    let mut findings = Vec::new();
    for (path, text) in sources(tree).filter(|(path, _)| inner.iter().any(|folder| path.starts_with(folder))) {
        let code = code_of(text);
        findings.extend(reaching.iter().filter(|what| code.contains(*what)).map(|what| finding(path, *what)));
    }
    findings
}

fn check_words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.iter().filter(|(path, _)| is_written_by_hand(path) && *path != THIS_FILE) {
        for word in ["TODO", "FIXME", "XXX", "HACK", "for now"] {
            let lines = text.lines().enumerate().filter(|(_, line)| has_word(line, word));
            findings.extend(lines.map(|(at, _)| finding(path, format!("line {}: \"{word}\"", at + 1))));
        }
    }
    findings
}

fn check_left_overs(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in sources(tree) {
        let code = code_of(text);
        let words = ["dbg!", "todo!", "unimplemented!", "#[ignore"];
        findings.extend(words.iter().filter(|word| code.contains(*word)).map(|word| finding(path, *word)));
    }
    findings
}

fn check_module_names(tree: &Tree) -> Vec<Finding> {
    let vague = ["utils", "util", "helpers", "helper", "common", "misc"];
    let mut findings = Vec::new();
    for (path, text) in sources(tree) {
        let code = code_of(text);
        let in_path = |name: &&str| path.trim_end_matches(".rs").split('/').any(|part| part == *name);
        let in_code = |name: &&str| has_word(&code, &format!("mod {name}"));
        let found = vague.iter().filter(|name| in_path(name) || in_code(name));
        findings.extend(found.map(|name| finding(path, format!("a module named `{name}`"))));
    }
    findings
}

fn check_full_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let asked_for_others = "crates/skep/tests/full_run/mod.rs";
    for (path, text) in sources(tree).filter(|(path, _)| ![THIS_FILE, asked_for_others].contains(&path.as_str())) {
        let named =
            path.split_once("/tests/").is_some_and(|(_, file)| file.starts_with("full_") && !file.contains('/'));
        let asks = text.lines().any(|line| line.contains("\"SKEP_FULL\"") || line == "mod full_run;");
        match (named, asks) {
            (false, true) => findings.push(finding(path, "asks for SKEP_FULL, but is no `tests/full_*.rs`")),
            (true, false) => findings.push(finding(path, "is named `full_`, but does not ask for SKEP_FULL")),
            _ => {}
        }
    }
    findings
}

fn check_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (page, text) in tree.iter().filter(|(path, _)| path.ends_with(".md")) {
        // Every second part is a fenced block: output of commands, and files of the reader.
        for prose in text.split("```").step_by(2) {
            let quoted = prose.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
            for path in quoted.filter(|span| looks_like_path(span) && !exists(tree, span)) {
                findings.push(finding(page, format!("names `{path}`, which does not exist")));
            }
        }
    }
    findings
}

fn missing_pages(tree: &Tree) -> Vec<&'static str> {
    PAGES.iter().copied().filter(|page| !tree.contains_key(*page)).collect()
}

/// Returns true if a quoted part of a page names a file or folder of this repository.
fn looks_like_path(span: &str) -> bool {
    let plain = span.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte));
    let ending = [".rs", ".md", ".csv"].iter().any(|ending| span.ends_with(ending) && span.len() > ending.len());
    let folders = ["crates/", "docs/", "examples/", "benches/", "tests/", "fuzz/", "src/", ".ci/"];
    let inside = folders.iter().any(|folder| span.starts_with(folder));
    plain && !span.starts_with('/') && !span.starts_with("target/") && (ending || inside)
}

/// Returns true if the repository has this file or folder. A page may leave out the leading folders.
fn exists(tree: &Tree, path: &str) -> bool {
    let path = path.trim_start_matches("../").trim_start_matches("./").trim_end_matches('/');
    let inside = format!("/{path}/");
    tree.keys().any(|file| format!("/{file}/").contains(&inside))
}

/// Collects the names of the dependencies that a crate needs outside tests, at any depth of the manifest.
fn dependencies(table: &toml::Table, names: &mut Vec<String>) {
    for (key, value) in table {
        match (key.as_str(), value) {
            ("dev-dependencies", _) => {}
            ("dependencies" | "build-dependencies", toml::Value::Table(entries)) => {
                for (name, entry) in entries {
                    let renamed = entry.get("package").and_then(toml::Value::as_str);
                    names.push(renamed.unwrap_or(name).to_owned());
                }
            }
            (_, toml::Value::Table(inner)) => dependencies(inner, names),
            _ => {}
        }
    }
}

fn is_written_by_hand(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let endings = [".rs", ".md", ".toml", ".sh", ".service", ".yml"];
    ["justfile", "run"].contains(&name) || endings.iter().any(|ending| name.ends_with(ending))
}

fn sources(tree: &Tree) -> impl Iterator<Item = (&String, &String)> {
    tree.iter().filter(|(path, _)| path.ends_with(".rs"))
}

/// Returns the manifests of the workspace's crates.
fn manifests(tree: &Tree) -> impl Iterator<Item = (&String, &String)> {
    let is_member = |path: &str| path.starts_with("crates/") || path.starts_with("benches/");
    tree.iter().filter(move |(path, _)| is_member(path) && path.ends_with("/Cargo.toml"))
}

fn finding(path: &str, what: impl Into<String>) -> Finding {
    Finding { path: path.to_owned(), what: what.into() }
}

fn tree_of(files: &[(&str, &str)]) -> Tree {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// Reads the files of this repository.
fn repository() -> Tree {
    let mut tree = Tree::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), "", &mut tree);
    tree
}

fn walk(folder: &Path, prefix: &str, tree: &mut Tree) {
    for entry in fs::read_dir(folder).expect("the repository can be read") {
        let entry = entry.expect("the repository can be read");
        let name = entry.file_name().into_string().expect("file names are UTF-8");
        let kind = entry.file_type().expect("files have a type");
        let built = ["target", "corpus", "artifacts", "coverage"].contains(&name.as_str());
        if kind.is_dir() && !built && (!name.starts_with('.') || name == ".ci") {
            walk(&entry.path(), &format!("{prefix}{name}/"), tree);
        } else if kind.is_file() {
            tree.insert(format!("{prefix}{name}"), fs::read_to_string(entry.path()).unwrap_or_default());
        }
    }
}
