//! `CONFIG`: the settings that clients and tools ask for, under the names that Redis gives them, and changes of those
//! that can change while the server runs.

use skep_wire::native::{CACHE_SPACE, HASH_SPACE, ORDERED_SPACE, Password};
use skep_wire::resp::{BULK_SIZE_MAX, ReplyWriter};

use super::{Arguments, Context, excerpt, wrong_argument_count};
use crate::adjustable::{Adjustable, Setting};
use crate::glob::Pattern;
use crate::limits::{BACKLOG, LOOK_WORK, PATTERN_SIZE_MAX, PATTERNS_MAX, SLOW_LOG_LENGTH_MAX};
use crate::shared::Shared;
use crate::vocabulary::Durability;

const HELP: [&str; 11] = [
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "REWRITE",
    "    Not available: the server does not write its configuration file.",
    "HELP",
    "    Print this help.",
];

/// How a setting changes.
enum Change {
    /// It keeps the value of the start.
    Fixed(fn(&Shared) -> String),
    /// A number within these bounds.
    Number(fn(&Adjustable) -> &Setting, i64, i64),
    Password,
    Protection,
    /// The rules for automatic snapshots: there are none.
    Saves,
    /// The level of durability: whether there is a log.
    AppendOnly,
    /// The level of durability: when the log is flushed.
    AppendFsync,
}

/// The settings in the order of their names.
const SETTINGS: &[(&str, Change)] = &[
    ("appendfsync", Change::AppendFsync),
    ("appendonly", Change::AppendOnly),
    ("bind", Change::Fixed(|shared| shared.settings.resp.map_or_else(String::new, |address| address.ip().to_string()))),
    (
        "databases",
        Change::Fixed(|shared| {
            let highest =
                [CACHE_SPACE, ORDERED_SPACE].into_iter().find(|number| shared.spaces().find(*number).is_some());
            (highest.unwrap_or(HASH_SPACE) + 1).to_string()
        }),
    ),
    (
        "dir",
        Change::Fixed(|shared| {
            shared.settings.data_dir.as_ref().map_or_else(String::new, |path| path.display().to_string())
        }),
    ),
    ("io-threads", Change::Fixed(|shared| shared.settings.shards.to_string())),
    ("latency-tracking", Change::Fixed(|_| "yes".to_owned())),
    ("latency-tracking-info-percentiles", Change::Fixed(|_| "50 99 99.9".to_owned())),
    ("maxclients", Change::Fixed(|shared| shared.settings.connections_max.to_string())),
    ("maxmemory", Change::Fixed(|shared| shared.settings.memory.to_string())),
    ("maxmemory-policy", Change::Fixed(|_| "noeviction".to_owned())),
    ("notify-keyspace-events", Change::Fixed(|_| String::new())),
    ("port", Change::Fixed(|shared| shared.settings.resp.map_or(0, |address| address.port()).to_string())),
    ("proto-max-bulk-len", Change::Fixed(|_| BULK_SIZE_MAX.to_string())),
    ("protected-mode", Change::Protection),
    ("requirepass", Change::Password),
    ("save", Change::Saves),
    ("slowlog-log-slower-than", Change::Number(|numbers| &numbers.slow_log_from, -1, i64::MAX)),
    ("slowlog-max-len", Change::Number(|numbers| &numbers.slow_log_length, 0, SLOW_LOG_LENGTH_MAX as i64)),
    ("tcp-backlog", Change::Fixed(|_| BACKLOG.to_string())),
    ("tcp-keepalive", Change::Number(|numbers| &numbers.tcp_keepalive, 0, i32::MAX as i64)),
    ("timeout", Change::Number(|numbers| &numbers.timeout, 0, i32::MAX as i64)),
];

/// Runs a subcommand, whose number of arguments was checked.
/// Spends the work from the account, except that of the text.
pub(super) fn run(
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let subcommand = String::from_utf8_lossy(arguments.get(1)).to_ascii_lowercase();
    if subcommand == "get" && arguments.count() > 2 + PATTERNS_MAX {
        return Err(wrong_argument_count("config|get"));
    }
    match subcommand.as_str() {
        "get" => get(arguments, writer, context),
        "set" => {
            set(arguments, context)?;
            writer.simple("OK");
        }
        "resetstat" => {
            context.shared.reset_totals(context.account);
            writer.simple("OK");
        }
        "rewrite" => return Err("ERR Skep does not write its configuration file".to_owned()),
        _ => writer.lines(&HELP),
    }
    Ok(())
}

/// Writes the settings whose names match one of the patterns.
fn get(arguments: Arguments<'_>, writer: &mut ReplyWriter<'_>, context: &mut Context<'_>) {
    let Context { shared, account, .. } = context;
    let mut is_wanted = [false; SETTINGS.len()];
    for pattern in arguments.from(2).filter(|pattern| pattern.len() <= PATTERN_SIZE_MAX) {
        let mut pattern = Pattern::new(&pattern.to_ascii_lowercase(), account);
        for ((name, _), is_wanted) in SETTINGS.iter().zip(&mut is_wanted) {
            *is_wanted |= pattern.matches(name.as_bytes(), account);
        }
    }
    let found = SETTINGS.iter().zip(is_wanted).filter(|(_, is_wanted)| *is_wanted).map(|(setting, _)| setting);
    let found: Vec<&(&str, Change)> = found.collect();
    writer.map(found.len());
    for (name, change) in found {
        writer.bulk(name.as_bytes());
        writer.bulk(change.value(shared).as_bytes());
    }
}

/// A new value that was checked.
enum Checked {
    Same,
    Number(i64),
    Password(Option<Password>),
    Protection(bool),
    AppendOnly(bool),
    AppendFsync(Durability),
}

/// Returns the flag of `skep serve` that chooses a setting which keeps the value of the start, if there is one.
fn flag_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "bind" | "port" => "--resp HOST:PORT",
        "dir" => "--data-dir DIR",
        "io-threads" => "--shards N",
        "maxclients" => "--max-clients N",
        "maxmemory" => "--memory SIZE",
        _ => return None,
    })
}

/// Changes settings, all or none.
fn set(arguments: Arguments<'_>, context: &mut Context<'_>) -> Result<(), String> {
    context.account.spend(LOOK_WORK * arguments.count() * SETTINGS.len());
    if !arguments.count().is_multiple_of(2) {
        return Err("ERR syntax error".to_owned());
    }
    let mut changes: Vec<(usize, Checked)> = Vec::new();
    for index in (2..arguments.count()).step_by(2) {
        let Some(setting) = SETTINGS.iter().position(|(name, _)| arguments.is(index, name)) else {
            let name = excerpt(arguments.get(index), 128);
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'"));
        };
        let (name, change) = &SETTINGS[setting];
        let refusal =
            |reason: &str| Err(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"));
        if changes.iter().any(|(other, _)| *other == setting) {
            return refusal("duplicate parameter");
        }
        match change.check(arguments.get(index + 1), context.shared) {
            Ok(value) => changes.push((setting, value)),
            Err(reason) => {
                let flag = if matches!(change, Change::Fixed(_)) { flag_of(name) } else { None };
                let advice = flag.map_or_else(String::new, |flag| format!(": restart the server with {flag}"));
                return refusal(&(reason + &advice));
            }
        }
    }
    let level = level_of(&changes, context.shared)?;
    for (setting, value) in changes {
        match (&SETTINGS[setting].1, value) {
            (Change::Number(setting, ..), Checked::Number(number)) => setting(&context.shared.adjustable).set(number),
            (_, Checked::Password(password)) => context.shared.access.set_password(password.as_ref()),
            (_, Checked::Protection(is_protected)) => context.shared.access.set_protected(is_protected),
            _ => {}
        }
    }
    if let (Some((level, with_log)), Some(log)) = (level, &context.shared.log) {
        log.set_levels(level, with_log);
    }
    // A shard may sleep without a timeout.
    context.wake_shards();
    Ok(())
}

/// Returns the level of durability that the new values of `appendonly` and `appendfsync` mean together, in any order, and the
/// level that `appendonly yes` means from then on.
fn level_of(changes: &[(usize, Checked)], shared: &Shared) -> Result<Option<(Durability, Durability)>, String> {
    let (mut has_log, mut fsync) = (None, None);
    for (_, value) in changes {
        match value {
            Checked::AppendOnly(value) => has_log = Some(*value),
            Checked::AppendFsync(value) => fsync = Some(*value),
            _ => {}
        }
    }
    let with_log = fsync.unwrap_or_else(|| level_with_log(shared));
    let level = match (has_log, fsync) {
        (None, None) => return Ok(None),
        (Some(false), _) => Durability::Memory,
        _ => with_log,
    };
    let is_possible = shared.log.is_some()
        // Values that are there already, as tools write them back.
        || has_log != Some(true) && fsync.is_none_or(|fsync| fsync == level_with_log(shared));
    if !is_possible {
        let name = if fsync.is_some() { "appendfsync" } else { "appendonly" };
        return Err(format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - the server has no data directory: start it \
             with --data-dir"
        ));
    }
    Ok(Some((level, with_log)))
}

impl Change {
    /// Returns the value as text. A password is not shown.
    fn value(&self, shared: &Shared) -> String {
        match self {
            Change::Fixed(value) => value(shared),
            Change::Saves => String::new(),
            Change::Number(setting, ..) => setting(&shared.adjustable).get().to_string(),
            Change::Password => if shared.access.needs_password() { "(hidden)" } else { "" }.to_owned(),
            Change::Protection => if shared.access.is_protected() { "yes" } else { "no" }.to_owned(),
            Change::AppendOnly => if level(shared) == Durability::Memory { "no" } else { "yes" }.to_owned(),
            Change::AppendFsync => {
                if level_with_log(shared) == Durability::Second { "everysec" } else { "always" }.to_owned()
            }
        }
    }

    /// Checks a new value. A fixed setting takes only the value that it has.
    fn check(&self, text: &[u8], shared: &Shared) -> Result<Checked, String> {
        match self {
            Change::Fixed(value) if value(shared).as_bytes().eq_ignore_ascii_case(text) => Ok(Checked::Same),
            Change::Fixed(_) => Err("can't set immutable config".to_owned()),
            Change::Saves if text.is_empty() => Ok(Checked::Same),
            Change::Saves => {
                Err("a log makes this unnecessary (--data-dir); at the level memory, let cron send BGSAVE".to_owned())
            }
            Change::Number(_, least, most) => {
                let number = super::decimal(text).ok_or("argument couldn't be parsed into an integer")?;
                if (*least..=*most).contains(&number) {
                    Ok(Checked::Number(number))
                } else {
                    Err(format!("argument must be between {least} and {most} inclusive"))
                }
            }
            Change::Password if text.is_empty() => Ok(Checked::Password(None)),
            Change::Password => match Password::new(text) {
                Some(password) => Ok(Checked::Password(Some(password))),
                None => Err("a password has 1 to 512 bytes".to_owned()),
            },
            Change::AppendOnly => match text.to_ascii_lowercase().as_slice() {
                b"yes" => Ok(Checked::AppendOnly(true)),
                b"no" => Ok(Checked::AppendOnly(false)),
                _ => Err("argument must be 'yes' or 'no'".to_owned()),
            },
            Change::AppendFsync => match text.to_ascii_lowercase().as_slice() {
                b"everysec" => Ok(Checked::AppendFsync(Durability::Second)),
                b"always" => Ok(Checked::AppendFsync(Durability::Always)),
                b"no" => Err("the log is never left to the kernel: choose everysec, or appendonly no".to_owned()),
                _ => Err("argument must be 'everysec' or 'always'".to_owned()),
            },
            Change::Protection => match text.to_ascii_lowercase().as_slice() {
                b"yes" => Ok(Checked::Protection(true)),
                b"no" => Ok(Checked::Protection(false)),
                _ => Err("argument must be 'yes' or 'no'".to_owned()),
            },
        }
    }
}

/// Returns the level of durability that was asked for last.
fn level(shared: &Shared) -> Durability {
    shared.log.as_ref().map_or(Durability::Memory, |log| log.wanted_level())
}

/// Returns the last level with a log that was asked for.
fn level_with_log(shared: &Shared) -> Durability {
    shared.log.as_ref().map_or(Durability::Always, |log| log.level_with_log())
}
