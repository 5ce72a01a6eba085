//! `COMMAND`: the description of the commands, for clients that ask the server for it. One of them is `redis-cli`, which
//! shows it as hints.

use skep_wire::resp::ReplyWriter;

use super::subcommands::Subcommand;
use super::table::{COMMANDS, CommandInfo, CommandName};
use super::{Arguments, wrong_argument_count};
use crate::account::Account;
use crate::glob::Pattern;
use crate::limits::{COMMAND_NAMES_MAX, LOOK_WORK, PATTERN_SIZE_MAX};

const HELP: [&str; 16] = [
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    Return details about all commands.",
    "COUNT",
    "    Return the total number of commands in this server.",
    "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]",
    "    Return a list of all commands in this server.",
    "INFO [<command-name> ...]",
    "    Return details about multiple commands.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple commands.",
    "GETKEYS <full-command>",
    "    Return the keys from a full command.",
    "HELP",
    "    Print this help.",
    "",
];

/// Runs a subcommand, whose number of arguments was checked; without one, describes all commands.
/// Spends the work from the account, except that of the text.
pub(super) fn run(arguments: Arguments<'_>, writer: &mut ReplyWriter<'_>, account: &mut Account) -> Result<(), String> {
    account.spend(LOOK_WORK * (COMMANDS.len() + arguments.count()));
    if arguments.count() == 1 {
        writer.array(COMMANDS.len());
        COMMANDS.iter().for_each(|info| describe(info, writer));
        return Ok(());
    }
    let subcommand = String::from_utf8_lossy(arguments.get(1)).to_ascii_lowercase();
    match subcommand.as_str() {
        "count" => writer.integer(COMMANDS.len() as i64),
        "list" => {
            let names: Vec<&str> = filtered(arguments, account)?.map(|info| info.name).collect();
            writer.array(names.len());
            names.iter().for_each(|name| writer.bulk(name.as_bytes()));
        }
        "info" | "docs" if arguments.count() > 2 + COMMAND_NAMES_MAX => {
            return Err(wrong_argument_count(&format!("command|{subcommand}")));
        }
        "info" if arguments.count() == 2 => {
            writer.array(COMMANDS.len());
            COMMANDS.iter().for_each(|info| describe(info, writer));
        }
        "info" => {
            writer.array(arguments.count() - 2);
            for name in arguments.from(2) {
                match (CommandName::find(name), Subcommand::find(name)) {
                    (Some(name), _) => describe(name.info(), writer),
                    (None, Some(subcommand)) => describe_subcommand(subcommand, writer),
                    (None, None) => writer.null(),
                }
            }
        }
        "docs" if arguments.count() == 2 => {
            writer.map(COMMANDS.len());
            COMMANDS.iter().for_each(|info| document(info, writer));
        }
        "docs" => {
            // Redis leaves unknown commands out.
            let names: Vec<CommandName> = arguments.from(2).filter_map(CommandName::find).collect();
            writer.map(names.len());
            names.iter().for_each(|name| document(name.info(), writer));
        }
        "getkeys" => return keys(arguments, writer),
        _ => writer.lines(&HELP[..HELP.len() - 1]),
    }
    Ok(())
}

/// Returns the commands that pass the filter of `COMMAND LIST`.
fn filtered<'a>(
    arguments: Arguments<'a>,
    account: &'a mut Account,
) -> Result<impl Iterator<Item = &'static CommandInfo> + 'a, String> {
    let is_filter = arguments.count() == 5 && arguments.is(2, "filterby");
    let is_kind = |kind: &str| is_filter && arguments.is(3, kind);
    let (is_module, is_category, is_pattern) = (is_kind("module"), is_kind("aclcat"), is_kind("pattern"));
    if arguments.count() > 2 && !is_module && !is_category && !is_pattern {
        return Err("ERR syntax error".to_owned());
    }
    // One that is too long matches nothing.
    let is_usual = is_pattern && arguments.get(4).len() <= PATTERN_SIZE_MAX;
    let pattern = if is_usual { arguments.get(4).to_ascii_lowercase() } else { Vec::new() };
    let mut pattern = Pattern::new(&pattern, account);
    Ok(COMMANDS.iter().filter(move |info| match () {
        () if is_module => false,
        () if is_category => info.categories().any(|category| {
            account.spend(LOOK_WORK);
            arguments.is(4, category)
        }),
        () if is_pattern => pattern.matches(info.name.as_bytes(), account),
        () => true,
    }))
}

/// Writes the keys of the command in the arguments from the third on.
fn keys(arguments: Arguments<'_>, writer: &mut ReplyWriter<'_>) -> Result<(), String> {
    let name = CommandName::find(arguments.get(2)).ok_or("ERR Invalid command specified")?;
    let CommandInfo { arity, keys: (first, last, step), .. } = *name.info();
    if first == 0 {
        return Err("ERR The command has no key arguments".to_owned());
    }
    let count = arguments.count() as i64 - 2;
    let last = if last < 0 { count + last } else { last };
    if (arity >= 0 && count != arity) || count < -arity || last < first || last >= count {
        return Err("ERR Invalid number of arguments specified for command".to_owned());
    }
    let indexes: Vec<usize> = (first..=last).step_by(step as usize).map(|index| index as usize + 2).collect();
    writer.array(indexes.len());
    indexes.iter().for_each(|&index| writer.bulk(arguments.get(index)));
    Ok(())
}

/// Writes the ten parts of Redis 7: name, arity, flags, the positions of keys (three numbers), categories, tips, keys,
/// subcommands. There are no tips, and the description of keys would repeat their positions.
fn describe(info: &CommandInfo, writer: &mut ReplyWriter<'_>) {
    writer.array(10);
    writer.bulk(info.name.as_bytes());
    writer.integer(info.arity);
    writer.set(info.flags.len());
    info.flags.iter().for_each(|flag| writer.simple(flag));
    let (first, last, step) = info.keys;
    for position in [first, last, step] {
        writer.integer(position);
    }
    let categories: Vec<String> = info.categories().map(|category| format!("@{category}")).collect();
    writer.set(categories.len());
    categories.iter().for_each(|category| writer.simple(category));
    writer.set(0);
    writer.set(0);
    let subcommands: Vec<&Subcommand> = Subcommand::all_of(info.name).collect();
    writer.set(subcommands.len());
    subcommands.iter().for_each(|subcommand| describe_subcommand(subcommand, writer));
}

/// Writes the ten parts for a subcommand.
fn describe_subcommand(subcommand: &Subcommand, writer: &mut ReplyWriter<'_>) {
    writer.array(10);
    writer.bulk(subcommand.full_name().as_bytes());
    writer.integer(subcommand.arity);
    writer.set(subcommand.flags.len());
    subcommand.flags.iter().for_each(|flag| writer.simple(flag));
    for position in subcommand.keys() {
        writer.integer(position);
    }
    let categories: Vec<String> = subcommand.categories().map(|category| format!("@{category}")).collect();
    writer.set(categories.len());
    categories.iter().for_each(|category| writer.simple(category));
    for _ in 0..3 {
        writer.set(0);
    }
}

fn document(info: &CommandInfo, writer: &mut ReplyWriter<'_>) {
    let subcommands: Vec<&Subcommand> = Subcommand::all_of(info.name).collect();
    writer.bulk(info.name.as_bytes());
    writer.map(if subcommands.is_empty() { 3 } else { 4 });
    for (field, text) in [("summary", info.summary), ("since", info.since), ("group", info.group)] {
        writer.bulk(field.as_bytes());
        writer.bulk(text.as_bytes());
    }
    if !subcommands.is_empty() {
        writer.bulk(b"subcommands");
        writer.map(subcommands.len());
        for subcommand in subcommands {
            writer.bulk(subcommand.full_name().as_bytes());
            writer.map(2);
            for (field, text) in [("summary", subcommand.summary), ("group", info.group)] {
                writer.bulk(field.as_bytes());
                writer.bulk(text.as_bytes());
            }
        }
    }
}
