//! `CONFIG GET`: the settings that clients and tools ask for, under the names that Redis gives them.

use skep_wire::resp::{BULK_SIZE_MAX, ReplyWriter};

use super::{Arguments, unknown_subcommand, wrong_argument_count};
use crate::limits::{PATTERN_SIZE_MAX, PATTERNS_MAX};
use crate::shared::Shared;

/// Runs a subcommand.
pub(super) fn run(arguments: Arguments<'_>, writer: &mut ReplyWriter<'_>, shared: &Shared) -> Result<(), String> {
    if !arguments.is(1, "get") {
        return Err(unknown_subcommand(arguments));
    }
    if arguments.count() == 2 || arguments.count() > 2 + PATTERNS_MAX {
        return Err(wrong_argument_count("config|get"));
    }
    let settings = settings(shared);
    let patterns = || arguments.from(2).filter(|pattern| pattern.len() <= PATTERN_SIZE_MAX);
    let wanted = |name: &str| patterns().any(|pattern| matches(pattern, name.as_bytes()));
    let found: Vec<&(&str, String)> = settings.iter().filter(|(name, _)| wanted(name)).collect();
    writer.map(found.len());
    for (name, value) in found {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
    Ok(())
}

fn settings(shared: &Shared) -> [(&'static str, String); 12] {
    let settings = &shared.settings;
    let resp = settings.resp;
    [
        ("appendonly", "no".to_owned()),
        ("bind", resp.map_or_else(String::new, |address| address.ip().to_string())),
        ("databases", if shared.spaces().has_ordered { "2" } else { "1" }.to_owned()),
        ("io-threads", settings.shards.to_string()),
        ("maxclients", shared.settings.connections_max.to_string()),
        ("maxmemory", settings.memory.to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", resp.map_or(0, |address| address.port()).to_string()),
        ("proto-max-bulk-len", BULK_SIZE_MAX.to_string()),
        ("requirepass", String::new()),
        ("save", String::new()),
        ("timeout", "0".to_owned()),
    ]
}

/// Returns true if a name matches a pattern of `*`, `?` and characters in either case. Takes at most the product of the
/// two lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    // The position to continue at when a `*` must take one more character.
    let mut retry = None;
    loop {
        match (pattern.get(at), name.get(in_name)) {
            (Some(b'*'), _) => {
                at += 1;
                retry = Some((at, in_name + 1));
                continue;
            }
            (Some(b'?'), Some(_)) => {}
            (Some(expected), Some(found)) if expected.eq_ignore_ascii_case(found) => {}
            (None, None) => return true,
            _ => match retry {
                Some((after_star, next)) if next <= name.len() => {
                    (at, in_name) = (after_star, next);
                    retry = Some((after_star, next + 1));
                    continue;
                }
                _ => return false,
            },
        }
        at += 1;
        in_name += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for pattern in ["save", "SAVE", "*", "s*", "*e", "s?v?", "s**e", "*a*e*", "save*"] {
            assert!(matches(pattern.as_bytes(), b"save"), "{pattern}");
        }
        for pattern in ["", "sav", "saves", "?", "*x*", "s*x", "????e", "save?"] {
            assert!(!matches(pattern.as_bytes(), b"save"), "{pattern}");
        }
        assert!(!matches("*a".repeat(10_000).as_bytes(), b"aaaaaaaaaaaaaaab"));
    }
}
