//! Holds the tables of commands in `docs/resp.md`.

use super::table::{COMMANDS, CommandName};

/// Commands of Redis that are missing, by group.
const MISSING: [(&str, &[&str]); 8] = [
    ("administration, not yet", &["ACL", "DEBUG", "LATENCY", "MONITOR", "ROLE", "SHUTDOWN", "SLOWLOG", "WAIT"]),
    ("lists", &["BLPOP", "LPUSH", "LRANGE", "RPUSH", "…"]),
    ("hashes", &["HGET", "HSET", "…"]),
    ("sets and sorted sets", &["SADD", "SMEMBERS", "ZADD", "ZRANGE", "…"]),
    ("streams", &["XADD", "XREAD", "…"]),
    ("messages", &["PSUBSCRIBE", "PUBLISH", "SUBSCRIBE", "…"]),
    ("scripts", &["EVAL", "EVALSHA", "FCALL", "SCRIPT", "…"]),
    ("others", &["CLUSTER", "FAILOVER", "LCS", "MIGRATE", "MOVE", "REPLICAOF", "SORT", "SWAPDB"]),
];

fn assert_documented(lines: &[String]) {
    let page = include_str!("../../../../docs/resp.md");
    let table = lines.join("\n");
    assert!(page.contains(&format!("|---|---|\n{table}\n")), "docs/resp.md lacks this table:\n{table}");
}

#[test]
fn all_commands_are_documented() {
    let line = |name: &str, summary: &str| format!("| `{}` | {} |", name.to_uppercase(), summary.replace('|', "\\|"));
    assert_documented(&COMMANDS.iter().map(|info| line(info.name, info.summary)).collect::<Vec<_>>());
}

#[test]
fn missing_commands_are_documented() {
    let lines = MISSING.iter().map(|(group, names)| format!("| {group} | {} |", names.join(", ")));
    assert_documented(&lines.collect::<Vec<_>>());
    for name in MISSING.iter().flat_map(|(_, names)| *names) {
        assert_eq!(CommandName::find(name.as_bytes()), None, "{name}");
    }
}
