//! `SKEP.FUNCTION`: loads, shows and deletes modules of user functions.

use skep_wire::resp::ReplyWriter;

use super::{Arguments, Context, LOOK_TIME, Session, excerpt};
use crate::function_loader::{Module, Record};
use crate::limits::{FUNCTION_DESCRIPTION_MAX, TEXT_WORK};
use crate::vocabulary::Functions;

const HELP: [&str; 12] = [
    "SKEP.FUNCTION <subcommand> [<arg> ...]. Subcommands are:",
    "LOAD [REPLACE] <source>",
    "    Compile the functions of a module, and return its name. REPLACE: also if there is one of this name.",
    "LIST",
    "    Return the modules, each with its functions and records.",
    "SHOW <module>",
    "    Return the source of a module.",
    "DELETE <module>",
    "    Remove a module.",
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
    match arguments.get(1).to_ascii_lowercase().as_slice() {
        b"load" => load(arguments, writer, session, context)?,
        b"delete" => {
            let name = arguments.text(2);
            match context.shared.loader.delete(&name) {
                Ok(true) => writer.ok(),
                Ok(false) => return Err(unknown_module(arguments)),
                Err(error) => return Err(format!("ERR {error}")),
            }
        }
        b"list" => {
            let modules = context.shared.loader.modules().ok_or(BUSY)?;
            writer.array(modules.len());
            let functions = context.shared.loader.functions();
            modules.iter().for_each(|module| write_module(module, functions, writer));
        }
        b"show" => {
            let modules = context.shared.loader.modules().ok_or(BUSY)?;
            let name = arguments.text(2);
            let module = modules.iter().find(|module| module.name == name).ok_or_else(|| unknown_module(arguments))?;
            writer.bulk(module.source.as_bytes());
        }
        _ => writer.lines(&HELP),
    }
    context.account.spend(TEXT_WORK * (writer.written() - before));
    Ok(())
}

/// Runs `LOAD [REPLACE] source`. Other connections do not wait while the module is compiled.
fn load(
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let replaces = arguments.count() == 4 && arguments.is(2, "replace");
    if arguments.count() == 4 && !replaces || arguments.count() > 4 {
        return Err("ERR syntax error: SKEP.FUNCTION LOAD [REPLACE] source".to_owned());
    }
    let Some(load) = &session.load else {
        let source = std::str::from_utf8(arguments.get(arguments.count() - 1));
        let source = source.map_err(|_| "ERR the source is not UTF-8 text")?;
        session.load = Some(context.shared.loader.begin(source.to_owned(), replaces).ok_or(BUSY)?);
        context.outcome.held_until = Some(context.now + LOOK_TIME);
        return Ok(());
    };
    match load.get() {
        None if !context.is_stopping() => {
            context.outcome.held_until = Some(context.now + LOOK_TIME);
            return Ok(());
        }
        None => return Err("ERR the server stops".to_owned()),
        Some(Ok(name)) => writer.bulk(name.as_bytes()),
        Some(Err(error)) => {
            let error = format!("ERR {error}");
            session.load = None;
            return Err(error);
        }
    }
    session.load = None;
    Ok(())
}

fn unknown_module(arguments: Arguments<'_>) -> String {
    format!("ERR no module '{}' is loaded", excerpt(arguments.get(2), 128))
}

/// Writes a module as a map: its name, its revision, the descriptions and numbers of its functions, and its records.
fn write_module(module: &Module, functions: &Functions, writer: &mut ReplyWriter<'_>) {
    writer.map(5);
    writer.bulk(b"module");
    writer.bulk(module.name.as_bytes());
    writer.bulk(b"revision");
    writer.integer(module.revision.into());
    writer.bulk(b"functions");
    writer.array(module.functions().len());
    for function in module.functions() {
        let text = function.signature.describe(function.kind(), &function.name);
        writer.bulk(shorten(text).as_bytes());
    }
    writer.bulk(b"numbers");
    writer.array(module.functions().len());
    for function in module.functions() {
        writer.integer(functions.find(&function.name).map_or(0, |handle| handle.id.into()));
    }
    writer.bulk(b"records");
    writer.array(module.records().len());
    for Record { name, layout } in module.records() {
        writer.bulk(shorten(format!("{name} {layout}")).as_bytes());
    }
}

fn shorten(text: String) -> String {
    match text.char_indices().nth(FUNCTION_DESCRIPTION_MAX / 4) {
        Some((end, _)) if text.len() > FUNCTION_DESCRIPTION_MAX => format!("{}…", &text[..end]),
        _ => text,
    }
}
