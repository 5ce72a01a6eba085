//! `OBJECT` and `MEMORY`: properties that Redis's values have, as far as they mean anything here.

use skep_core::operation::StringRead;
use skep_wire::resp::ReplyWriter;

use super::expiry::integer;
use super::key_command::KeyCommand;
use super::string_command::{ENCODED_SIZE_MAX, ReplyForm, StringCommand, StringOperation};
use super::{Arguments, unknown_subcommand, wrong_argument_count};

const OBJECT_HELP: [&str; 6] = [
    "OBJECT <subcommand> [<arg> ...]. Subcommands are:",
    "ENCODING <key> -- Return the encoding that Redis gives such a value when it is set.",
    "FREQ <key> -- Refused: accesses are not counted.",
    "HELP -- Print this help.",
    "IDLETIME <key> -- Return 0: accesses are not recorded.",
    "REFCOUNT <key> -- Return 1: values are not shared.",
];

const MEMORY_HELP: [&str; 3] = [
    "MEMORY <subcommand> [<arg> ...]. Subcommands are:",
    "HELP -- Print this help.",
    "USAGE <key> [SAMPLES <count>] -- Return the bytes of a key and its value, without the store's own.",
];

/// Decodes `OBJECT ENCODING|FREQ|IDLETIME|REFCOUNT key`. `None`: it is not on a key.
pub(super) fn object(arguments: Arguments<'_>) -> Result<Option<KeyCommand>, String> {
    let (name, form) = match () {
        () if arguments.is(1, "ENCODING") => ("encoding", ReplyForm::Encoding),
        () if arguments.is(1, "FREQ") => ("freq", ReplyForm::Frequency),
        () if arguments.is(1, "IDLETIME") => ("idletime", ReplyForm::Constant(0)),
        () if arguments.is(1, "REFCOUNT") => ("refcount", ReplyForm::Constant(1)),
        () => return help(arguments),
    };
    if arguments.count() != 3 {
        return Err(wrong_argument_count(&format!("object|{name}")));
    }
    let command = match form {
        ReplyForm::Encoding => StringCommand::read(StringRead::Slice { start: 0, end: ENCODED_SIZE_MAX as i64 }, form),
        _ => StringCommand::new(StringOperation::Contains, form),
    };
    Ok(Some(KeyCommand::String(command)))
}

/// Decodes `MEMORY USAGE key [SAMPLES count]…`. `None`: it is not on a key.
pub(super) fn memory(arguments: Arguments<'_>) -> Result<Option<KeyCommand>, String> {
    if !arguments.is(1, "USAGE") {
        return help(arguments);
    }
    if arguments.count() < 3 {
        return Err(wrong_argument_count("memory|usage"));
    }
    for index in (3..arguments.count()).step_by(2) {
        if !arguments.is(index, "SAMPLES") || index + 1 == arguments.count() || integer(arguments, index + 1)? < 0 {
            return Err("ERR syntax error".to_owned());
        }
    }
    let form = ReplyForm::SizePlus(arguments.get(2).len() as i64);
    Ok(Some(KeyCommand::String(StringCommand::read(StringRead::Size, form))))
}

fn help(arguments: Arguments<'_>) -> Result<Option<KeyCommand>, String> {
    let name = arguments.text(0).to_ascii_lowercase();
    match arguments.count() {
        _ if !arguments.is(1, "HELP") => Err(unknown_subcommand(arguments)),
        2 => Ok(None),
        _ => Err(wrong_argument_count(&format!("{name}|help"))),
    }
}

/// Writes the reply to `OBJECT HELP`.
pub(super) fn object_help(writer: &mut ReplyWriter<'_>) {
    write_lines(&OBJECT_HELP, writer);
}

/// Writes the reply to `MEMORY HELP`.
pub(super) fn memory_help(writer: &mut ReplyWriter<'_>) {
    write_lines(&MEMORY_HELP, writer);
}

fn write_lines(lines: &[&str], writer: &mut ReplyWriter<'_>) {
    writer.array(lines.len());
    for line in lines {
        writer.simple(line);
    }
}
