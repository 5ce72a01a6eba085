//! Holds the tables of commands in `docs/resp.md`. They follow from the tables here. To write them anew, run these tests
//! with `SKEP_WRITE_DOCS=1`.

use std::sync::Mutex;

use super::subcommands::{SUBCOMMANDS, Subcommand};
use super::table::{COMMANDS, CommandName};

/// Commands of Redis that are missing, by group.
const MISSING: [(&str, &[&str]); 8] = [
    ("lists", &["BLPOP", "LPUSH", "LRANGE", "RPUSH", "…"]),
    ("hashes", &["HGET", "HSET", "…"]),
    ("sets and sorted sets", &["SADD", "SMEMBERS", "ZADD", "ZRANGE", "…"]),
    ("streams", &["XADD", "XREAD", "…"]),
    ("messages", &["PSUBSCRIBE", "PUBLISH", "SUBSCRIBE", "…"]),
    ("scripts", &["EVAL", "EVALSHA", "FCALL", "SCRIPT", "…"]),
    ("positions and HyperLogLogs", &["GEOADD", "GEOSEARCH", "PFADD", "PFCOUNT", "…"]),
    ("others", &["CLUSTER", "FAILOVER", "LCS", "MIGRATE", "MODULE", "MOVE", "REPLICAOF", "SORT", "SWAPDB", "…"]),
];

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/resp.md");

/// Checks the table that begins with this header, or writes it.
fn assert_documented(header: &str, lines: &[String]) {
    // One test at a time, because each rewrites the page.
    static PAGE_IN_USE: Mutex<()> = Mutex::new(());
    let _in_use = PAGE_IN_USE.lock();
    let page = std::fs::read_to_string(PAGE).unwrap();
    let header = format!("{header}\n|---|---|\n");
    let begin = page.find(&header).unwrap_or_else(|| panic!("docs/resp.md lacks {header}")) + header.len();
    let end = begin + page[begin..].find("\n\n").map_or(page.len() - begin, |end| end + 1);
    let table: String = lines.iter().map(|line| format!("{line}\n")).collect();
    if std::env::var("SKEP_WRITE_DOCS").is_ok_and(|value| value == "1") {
        std::fs::write(PAGE, format!("{}{table}{}", &page[..begin], &page[end..])).unwrap();
    } else {
        assert!(page[begin..end] == table, "docs/resp.md is out of date: run this test with SKEP_WRITE_DOCS=1");
    }
}

#[test]
fn all_commands_are_documented() {
    let line = |name: &str, summary: &str| format!("| `{}` | {} |", name.to_uppercase(), summary.replace('|', "\\|"));
    let lines = COMMANDS.iter().map(|info| line(info.name, info.summary));
    assert_documented("| command | effect |", &lines.collect::<Vec<_>>());
}

#[test]
fn all_subcommands_are_documented() {
    let name = |subcommand: &Subcommand| subcommand.full_name().to_uppercase().replace('|', " ");
    let line = |subcommand: &Subcommand| format!("| `{}` | {} |", name(subcommand), subcommand.summary);
    let shown = SUBCOMMANDS.iter().filter(|subcommand| subcommand.name != "help");
    assert_documented("| subcommand | effect |", &shown.map(line).collect::<Vec<_>>());
}

#[test]
fn missing_commands_are_documented() {
    let lines = MISSING.iter().map(|(group, names)| format!("| {group} | {} |", names.join(", ")));
    assert_documented("| group | commands |", &lines.collect::<Vec<_>>());
    for name in MISSING.iter().flat_map(|(_, names)| *names) {
        assert_eq!(CommandName::find(name.as_bytes()), None, "{name}");
    }
}
