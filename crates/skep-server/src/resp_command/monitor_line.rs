//! The lines that monitors get.

use std::io::Write;

use super::Arguments;
use super::shown::arguments_shown;
use super::table::CommandName;
use crate::limits::{MONITOR_ARGUMENT_SIZE_MAX, MONITOR_LINE_SIZE_MAX};
use crate::shared::Shared;
use crate::unix_time::UnixTime;

/// Appends the line of a command that a connection has executed at this time. Long arguments, and those of long commands, are shortened.
pub(super) fn append_line(
    lines: &mut Vec<u8>,
    name: CommandName,
    arguments: Arguments<'_>,
    connection: u64,
    time: UnixTime,
    shared: &Shared,
) {
    let (seconds, microseconds) = time.seconds_and_microseconds();
    let (space, address) = match shared.clients().get(&connection) {
        Some(client) => (client.space.number(), client.address.clone()),
        None => return,
    };
    let begin = lines.len();
    write!(lines, "+{seconds}.{microseconds:06} [{space} {address}]").expect("a Vec takes every byte");
    for (index, argument) in arguments_shown(name, arguments).enumerate() {
        if lines.len() - begin > MONITOR_LINE_SIZE_MAX {
            write!(lines, " \"... ({} more arguments)\"", arguments.count() - index).expect("a Vec takes every byte");
            break;
        }
        let shown = &argument[..argument.len().min(MONITOR_ARGUMENT_SIZE_MAX)];
        lines.extend_from_slice(b" \"");
        shown.iter().for_each(|&byte| append_escaped(lines, byte));
        if shown.len() < argument.len() {
            write!(lines, "... ({} more bytes)", argument.len() - shown.len()).expect("a Vec takes every byte");
        }
        lines.push(b'"');
    }
    lines.extend_from_slice(b"\r\n");
}

/// Appends a byte as Redis shows it.
fn append_escaped(lines: &mut Vec<u8>, byte: u8) {
    match byte {
        b'\\' | b'"' => lines.extend_from_slice(&[b'\\', byte]),
        b'\n' => lines.extend_from_slice(b"\\n"),
        b'\r' => lines.extend_from_slice(b"\\r"),
        b'\t' => lines.extend_from_slice(b"\\t"),
        7 => lines.extend_from_slice(b"\\a"),
        8 => lines.extend_from_slice(b"\\b"),
        b' '..=b'~' => lines.push(byte),
        _ => write!(lines, "\\x{byte:02x}").expect("a Vec takes every byte"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_escaped_as_in_redis() {
        let mut line = Vec::new();
        b"a\"\\\n\r\t\x07\x08\0\x7f\xff~".iter().for_each(|&byte| super::append_escaped(&mut line, byte));
        assert_eq!(line.escape_ascii().to_string(), br#"a\"\\\n\r\t\a\b\x00\x7f\xff~"#.escape_ascii().to_string());
    }
}
