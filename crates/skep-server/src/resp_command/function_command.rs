//! `SKEP.FUNCTION`: loads, shows and deletes modules of user functions, and counts their calls.

use skep_core::function::{CallCounts, UserFunction};
use skep_wire::resp::ReplyWriter;

use super::{Arguments, Context, Session, excerpt};
use crate::function_loader::{Change, Module};
use crate::limits::{FUNCTION_LOOK_TIME, TEXT_WORK};

const HELP: [&str; 14] = [
    "SKEP.FUNCTION <subcommand> [<arg> ...]. Subcommands are:",
    "LOAD [REPLACE] <source>",
    "    Compile the functions of a module, and return its name. REPLACE: also if there is one of this name.",
    "LIST",
    "    Return the modules, each with its functions and records.",
    "SHOW <module>",
    "    Return the source of a module.",
    "DELETE <module>",
    "    Remove a module.",
    "STATS",
    "    Return the calls of each function since the start, their elements, and those that have failed.",
    "HELP",
    "    Print this help.",
    "The language is described in docs/functions.md.",
];
const BUSY: &str = "ERR other modules are being loaded: try again";

/// Runs a subcommand of `SKEP.FUNCTION`, whose number of arguments was checked.
pub(super) fn run(
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let before = writer.written();
    let loader = &context.shared.loader;
    match arguments.get(1).to_ascii_lowercase().as_slice() {
        b"load" | b"delete" => change(arguments, writer, session, context)?,
        b"list" => {
            let modules = loader.modules();
            writer.array(modules.len());
            modules.iter().for_each(|module| write_module(module, writer));
        }
        b"stats" => write_statistics(&loader.modules(), writer),
        b"show" => {
            let (modules, name) = (loader.modules(), arguments.text(2));
            let found = modules.iter().find(|module| module.name == name);
            writer.bulk(found.ok_or_else(|| unknown_module(arguments))?.source.as_bytes());
        }
        _ => writer.lines(&HELP),
    }
    context.account.spend(TEXT_WORK * (writer.written() - before));
    Ok(())
}

/// Returns true if a subcommand changes the modules. Others do not wait for anything.
pub(crate) fn is_change(arguments: Arguments<'_>) -> bool {
    arguments.is(1, "load") || arguments.is(1, "delete")
}

/// Runs `LOAD [REPLACE] source` or `DELETE module`. Other connections do not wait for it.
fn change(
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let is_load = arguments.is(1, "load");
    let begun = match session.function_change.take() {
        None => context.shared.loader.begin(decode(arguments, is_load)?).ok_or(BUSY)?,
        Some(begun) => begun,
    };
    let outcome = match begun.get() {
        // Also while the server stops: the change may be on disk already.
        None => {
            session.function_change = Some(begun);
            context.outcome.held_until = Some(context.now + FUNCTION_LOOK_TIME);
            return Ok(());
        }
        Some(outcome) => outcome.clone(),
    };
    match outcome.map_err(|error| format!("ERR {error}"))? {
        Some(name) if is_load => writer.bulk(name.as_bytes()),
        Some(_) => writer.ok(),
        None => return Err(unknown_module(arguments)),
    }
    Ok(())
}

fn decode(arguments: Arguments<'_>, is_load: bool) -> Result<Change, String> {
    if !is_load {
        return Ok(Change::Delete { name: arguments.text(2).into_owned() });
    }
    let replaces = arguments.count() == 4 && arguments.is(2, "replace");
    if arguments.count() == 4 && !replaces || arguments.count() > 4 {
        return Err("ERR syntax error: SKEP.FUNCTION LOAD [REPLACE] source".to_owned());
    }
    let size = arguments.get(arguments.count() - 1).len();
    skep_function::check_size(size).map_err(|error| format!("ERR {error}"))?;
    let source = std::str::from_utf8(arguments.get(arguments.count() - 1));
    let source = source.map_err(|_| "ERR the source is not UTF-8 text")?.to_owned();
    Ok(Change::Load { source, replaces })
}

fn unknown_module(arguments: Arguments<'_>) -> String {
    format!("ERR no module '{}' is loaded", excerpt(arguments.get(2), 128))
}

/// Writes a module as a map: its name, its revision, the descriptions and numbers of its functions, and its records. If it
/// does not compile any more, it has none of these, but the error.
fn write_module(module: &Module, writer: &mut ReplyWriter<'_>) {
    writer.map(if module.error().is_some() { 6 } else { 5 });
    writer.bulk(b"module");
    writer.bulk(module.name.as_bytes());
    writer.bulk(b"revision");
    writer.integer(module.revision.into());
    writer.bulk(b"functions");
    writer.array(module.functions().len());
    module.descriptions().iter().for_each(|text| writer.bulk(text.as_bytes()));
    writer.bulk(b"numbers");
    writer.array(module.numbers().len());
    module.numbers().iter().for_each(|number| writer.integer((*number).into()));
    writer.bulk(b"records");
    let records = module.record_descriptions();
    writer.array(records.len());
    records.iter().for_each(|text| writer.bulk(text.as_bytes()));
    if let Some(error) = module.error_excerpt() {
        writer.bulk(b"error");
        writer.bulk(error.as_bytes());
    }
}

/// Writes what the shards have counted about each function, as maps.
fn write_statistics(modules: &[Module], writer: &mut ReplyWriter<'_>) {
    let functions: Vec<&UserFunction> = modules.iter().flat_map(Module::functions).copied().collect();
    writer.array(functions.len());
    for function in functions {
        let totals = function.counts.map(CallCounts::totals).unwrap_or_default();
        writer.map(4);
        writer.bulk(b"function");
        writer.bulk(function.name.as_bytes());
        for (name, count) in [("calls", totals.calls), ("elements", totals.elements), ("failed", totals.failed)] {
            writer.bulk(name.as_bytes());
            writer.integer(count.min(i64::MAX as u64) as i64);
        }
    }
}
