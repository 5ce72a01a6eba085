//! Bytes as one line of text, in which different bytes look different.
//!
//! ```text
//!   \\            a backslash
//!   \t \n \r      a tab, a newline, a carriage return
//!   \xNN          a byte that is not UTF-8, or of a character that is not shown: a control, a mark that changes the
//!                 direction of text, one without width
//! ```
//!
//! Other characters stay as they are. No two texts are the same, because an escape begins with a backslash, and every
//! backslash of the input is escaped. `printf %b` of a shell returns the bytes.

use std::fmt::Write;

use crate::failure::is_shown;

/// Returns the bytes as text.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                _ if is_shown(character) => text.push(character),
                _ => push_bytes(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_bytes(&mut text, chunk.invalid());
    }
    text
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    bytes.iter().for_each(|byte| write!(text, "\\x{byte:02x}").expect("a String takes every text"));
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::escape;

    #[test]
    fn a_key_or_value_is_one_line() {
        for (bytes, text) in [
            (&b"plain text"[..], "plain text"),
            ("zwölf 日本".as_bytes(), "zwölf 日本"),
            (b"a\tb\n\r", "a\\tb\\n\\r"),
            (b"a\\tb", "a\\\\tb"),
            (b"\xffa\xc3", "\\xffa\\xc3"),
            (b"\x1b[31m", "\\x1b[31m"),
            ("a\u{202e}b".as_bytes(), "a\\xe2\\x80\\xaeb"),
            ("\u{85}\u{feff}".as_bytes(), "\\xc2\\x85\\xef\\xbb\\xbf"),
        ] {
            assert_eq!(escape(bytes), text);
        }
    }

    #[test]
    fn different_bytes_are_different_text() {
        const BYTES: [u8; 12] = [b'\\', b'x', b't', b'0', b'1', b'f', 1, b'\t', 0xff, 0xc3, 0xb6, 0xe2];
        let mut seen: HashMap<String, Vec<u8>> = HashMap::new();
        let mut keys = vec![Vec::new()];
        for _ in 0..4 {
            keys = keys.iter().flat_map(|key| BYTES.map(|byte| [&key[..], &[byte]].concat())).collect();
            for key in &keys {
                let other = seen.insert(escape(key), key.clone());
                assert_eq!(other, None, "{}", key.escape_ascii());
            }
        }
    }
}
