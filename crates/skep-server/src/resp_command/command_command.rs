//! `COMMAND`: the table of commands, told to clients and to `redis-cli`, which shows it as hints.

use skep_wire::resp::ReplyWriter;

use super::table::{COMMANDS, CommandInfo, CommandName};
use super::{Arguments, unknown_subcommand, wrong_argument_count};
use crate::limits::COMMAND_NAMES_MAX;

/// Runs a subcommand; without one, describes all commands.
pub(super) fn run(arguments: Arguments<'_>, writer: &mut ReplyWriter<'_>) -> Result<(), String> {
    if arguments.count() == 1 {
        writer.array(COMMANDS.len());
        for info in COMMANDS {
            describe(info, writer);
        }
        return Ok(());
    }
    let subcommand = String::from_utf8_lossy(arguments.get(1)).to_ascii_lowercase();
    let named = || arguments.from(2).map(|name| CommandName::find(name).map(CommandName::info));
    let all_or_named = || -> Vec<Option<&CommandInfo>> {
        if arguments.count() == 2 { COMMANDS.iter().map(Some).collect() } else { named().collect() }
    };
    match subcommand.as_str() {
        "count" if arguments.count() > 2 => return Err(wrong_argument_count("command|count")),
        "count" => writer.integer(COMMANDS.len() as i64),
        "list" if arguments.count() > 2 => return Err("ERR syntax error".to_owned()),
        "list" => {
            writer.array(COMMANDS.len());
            for info in COMMANDS {
                writer.bulk(info.name.as_bytes());
            }
        }
        "info" | "docs" if arguments.count() > 2 + COMMAND_NAMES_MAX => {
            return Err(wrong_argument_count(&format!("command|{subcommand}")));
        }
        "info" => {
            let infos = all_or_named();
            writer.array(infos.len());
            for info in infos {
                match info {
                    Some(info) => describe(info, writer),
                    None => writer.null(),
                }
            }
        }
        "docs" => {
            // Redis leaves unknown commands out.
            let infos: Vec<&CommandInfo> = all_or_named().into_iter().flatten().collect();
            writer.map(infos.len());
            for info in infos {
                document(info, writer);
            }
        }
        _ => return Err(unknown_subcommand(arguments)),
    }
    Ok(())
}

/// Writes the ten parts of Redis 7: name, arity, flags, the positions of keys, categories, tips, keys, subcommands. The
/// last four are not told.
fn describe(info: &CommandInfo, writer: &mut ReplyWriter<'_>) {
    writer.array(10);
    writer.bulk(info.name.as_bytes());
    writer.integer(info.arity);
    writer.array(info.flags.len());
    for flag in info.flags {
        writer.simple(flag);
    }
    let (first, last, step) = info.keys;
    for place in [first, last, step] {
        writer.integer(place);
    }
    for _ in 0..4 {
        writer.array(0);
    }
}

fn document(info: &CommandInfo, writer: &mut ReplyWriter<'_>) {
    writer.bulk(info.name.as_bytes());
    writer.map(3);
    for (field, text) in [("summary", info.summary), ("since", info.since), ("group", info.group)] {
        writer.bulk(field.as_bytes());
        writer.bulk(text.as_bytes());
    }
}
