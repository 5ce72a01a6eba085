//! Follows the pages for users word for word: their commands print what the pages say, and their Rust compiles and runs.
//! Needs root, and Debian's redis-tools, redis-server, netcat-openbsd and curl.

mod documented;
mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use documented::{Reader, Running, blocks};
use full_run::is_full_run;
use process::text;

/// The words after `skep serve` of the server that pages without such a command talk to.
const SERVER: &str =
    "--memory 64MiB --ordered-memory 64MiB --cache-memory 16MiB --data-dir ./data --metrics 127.0.0.1:9121";

/// The pages that have programs in Rust.
const PROGRAMS: &[&str] = &[
    "README.md",
    "docs/operations/values.md",
    "docs/operations/numbers.md",
    "docs/operations/vectors.md",
    "docs/operations/strings.md",
    "docs/operations/expiries.md",
    "docs/operations/ranges.md",
    "docs/operations/several.md",
    "docs/operations/calls.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("the page is there")
}

/// Returns the paths of the pages in a folder.
fn folder(path: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(path)).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    let mut paths: Vec<String> = names.map(|name| format!("{path}/{name}")).collect();
    paths.sort();
    paths
}

/// Follows a page with a server.
fn follow(path: &str, page: &str) {
    println!("following {path}");
    let mut reader = Reader::new();
    reader.serve(SERVER);
    reader.follow(page);
}

#[test]
fn the_first_five_minutes_go_as_described() {
    if !is_full_run() {
        return;
    }
    let start = page("docs/start.md");
    // The program is built already.
    let (_, after_install) = start.split_once("\n## 2. ").expect("the page has steps");
    Reader::new().follow(after_install);
}

#[test]
fn the_operations_print_what_their_pages_say() {
    if !is_full_run() {
        return;
    }
    let pages = folder("docs/operations");
    assert!(pages.len() >= 7, "{pages:?}");
    for path in pages {
        follow(&path, &page(&path));
    }
}

#[test]
fn commands_of_the_guide_and_of_alerts_work() {
    if !is_full_run() {
        return;
    }
    let pages = folder("docs/alerts");
    assert!(pages.len() >= 10, "{pages:?}");
    for path in pages {
        follow(&path, &page(&path));
    }
    let guide = page("docs/operating.md");
    let rules = root().join("packaging/prometheus/skep.rules.yml");
    follow(
        "docs/operating.md",
        &guide
            .replace("/usr/share/skep/prometheus/skep.rules.yml", &rules.display().to_string())
            .replace("/etc/prometheus/", "./"),
    );
}

#[test]
fn programs_move_from_redis_and_memcached() {
    if !is_full_run() {
        return;
    }
    Reader::new().follow(&page("docs/from-memcached.md"));
    let mut reader = Reader::new();
    let _redis = Running::start(reader.command("redis-server").args(["--save", ""]));
    let wait = "```sh\nuntil redis-cli PING; do sleep 0.01; done\nredis-cli SET from redis\n```\n";
    let check = "```console\n$ redis-cli -p 6380 GET from\n\"redis\"\n$ redis-cli GET greeting\n\"hello\"\n```\n";
    let before = "```sh\nredis-cli -p 6380 SET greeting hello\n```\n\n**Back.**";
    let guide = page("docs/from-redis.md").replace("**Back.**", before);
    reader.follow(&format!("{wait}{guide}{check}"));
}

#[test]
fn the_readme_can_be_followed() {
    if !is_full_run() {
        return;
    }
    let readme = page("README.md");
    let (_, section) = readme.split_once("\n## Build and run it\n").expect("README has the section");
    let (section, _) = section.split_once("\n## ").expect("another one follows");
    let dump = "```sh
redis-server --port 6399 --save '' --daemonize yes
until redis-cli -p 6399 SET from redis; do sleep 0.01; done
redis-cli -p 6399 --rdb dump.rdb
redis-cli -p 6399 SHUTDOWN NOSAVE || true
```\n";
    // An example is built by cargo, and has tests of its own.
    let section = section.replace("cargo run --release --example word_count -- FILE...", "true");
    let check = "```console\n$ redis-cli -n 2 GET a\n\"1\"\n```\n";
    Reader::new().follow(&format!("{dump}{section}{check}"));
}

#[test]
fn reference_pages_can_be_followed() {
    if !is_full_run() {
        return;
    }
    Reader::new().follow(&page("docs/memcached.md").replace("4GiB", "64MiB"));
    let durability = page("docs/durability.md").replace("/var/lib/", "./var/lib/").replace("/backup/", "./backup/");
    Reader::new().follow(&format!("```sh\nmkdir -p var/lib backup\n```\n{durability}"));
    let security = page("docs/security.md");
    let (users, _) = security.split_once("\n### The file of users\n").expect("the page has the section");
    follow("docs/security.md", users);
}

#[test]
fn a_page_that_is_wrong_is_noticed() {
    if !is_full_run() {
        return;
    }
    for page in
        ["```console\n$ echo a\nb\n```", "```sh\ntrue | false\n```", "```sh\nskep serve\nskep cli get missing\n```"]
    {
        let followed = std::panic::catch_unwind(|| Reader::new().follow(page));
        assert!(followed.is_err(), "{page}");
    }
}

#[test]
fn programs_of_the_pages_run() {
    if !is_full_run() {
        return;
    }
    let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("documented");
    let sources = project.join("src/bin");
    fs::create_dir_all(&sources).expect("a folder");
    let client = root().join("crates/skep-client").canonicalize().expect("the crate is there");
    let manifest = format!(
        "[package]\nname = \"documented\"\nedition = \"2024\"\n[dependencies]\nskep-client = {{ path = {client:?} }}\n\
         [workspace]\n"
    );
    fs::write(project.join("Cargo.toml"), manifest).expect("a file");
    fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock")).expect("a file");
    for path in PROGRAMS {
        let page = page(path);
        let examples = blocks(&page).into_iter().filter(|block| block.kind == "rust");
        let body: String = examples.map(|block| block.text).collect();
        assert!(!body.is_empty(), "{path} has no Rust");
        let program = format!("fn main() -> Result<(), Box<dyn std::error::Error>> {{\n{body}\nOk(())\n}}\n");
        fs::write(sources.join(format!("{}.rs", name(path))), program).expect("a file");
    }
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    cargo.args(["build", "--quiet", "--offline", "--bins"]).current_dir(&project);
    let built = cargo.env("CARGO_TARGET_DIR", project.join("target")).output().expect("there is cargo");
    assert!(built.status.success(), "{}", text(&built.stderr));
    for path in PROGRAMS {
        let mut reader = Reader::new();
        reader.serve(SERVER);
        let program = project.join("target/debug").join(name(path));
        let output = reader.command(&program.display().to_string()).output().expect("it was built");
        assert!(output.status.success(), "{path}: {}", text(&output.stderr));
    }
}

/// Returns the name of the program of a page.
fn name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".md");
    name.to_lowercase()
}
