//! Bytes of clients in the messages of the server.

/// The most bytes of a client in a field of a message.
const FIELD_SIZE_MAX: usize = 128;

/// Returns bytes of a client for a field of a message: at most 128. Give it to the field as `&str`, never by `%`: then the
/// format of the messages puts it in quotes and escapes control characters, so a client cannot make a line of its own.
///
/// Characters that a format may leave as they are, and that a terminal obeys, become `U+FFFD`.
pub(crate) fn log_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(FIELD_SIZE_MAX)]);
    let shown = |character: char| match character {
        // DEL, the second set of control characters, and what changes lines or the direction of the text after it.
        '\x7f'..='\u{9f}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ => character,
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::log_text;

    #[test]
    fn a_field_is_short_and_commands_no_terminal() {
        assert_eq!(log_text("Käse \u{1f600}".as_bytes()), "Käse \u{1f600}");
        assert_eq!(log_text("a\u{9b}2J\u{7f}\u{202e}b\u{2028}".as_bytes()), "a\u{fffd}2J\u{fffd}\u{fffd}b\u{fffd}");
        assert_eq!(log_text(b"a\xffb"), "a\u{fffd}b");
        // The format escapes these, and their bytes stay known.
        assert_eq!(format!("{:?}", log_text(b"a\nb\x1b")), r#""a\nb\u{1b}""#);
        assert_eq!(log_text(&[b'x'; 1000]).len(), 128);
    }
}
