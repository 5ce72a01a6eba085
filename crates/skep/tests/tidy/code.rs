//! Extracts the code of a source file, without comments, strings and characters, and finds whole words.

/// Blanks out comments, strings and characters. All other bytes keep their offsets.
pub(crate) fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let length = literal_or_comment(&bytes[at..]);
        code[at..at + length].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at += length.max(1);
    }
    String::from_utf8(code).expect("literals and comments are blanked as a whole")
}

/// Returns the length of the comment, string or character that begins here; 0 if none does.
fn literal_or_comment(bytes: &[u8]) -> usize {
    let until = |end: &[u8], from: usize| {
        let found = bytes[from..].windows(end.len()).position(|window| window == end);
        found.map_or(bytes.len(), |at| from + at + end.len())
    };
    let quoted = |quote: u8| {
        let mut at = 1;
        while at < bytes.len() && bytes[at] != quote {
            at += if bytes[at] == b'\\' { 2 } else { 1 };
        }
        (at + 1).min(bytes.len())
    };
    match bytes {
        [b'/', b'/', ..] => until(b"\n", 0),
        [b'/', b'*', ..] => {
            let (mut depth, mut at) = (1, 2);
            while at < bytes.len() && depth > 0 {
                match &bytes[at..] {
                    [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
                    [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
                    _ => at += 1,
                }
            }
            at
        }
        [b'"', ..] => quoted(b'"'),
        [b'r', b'"' | b'#', ..] => {
            let hashes = bytes[1..].iter().take_while(|byte| **byte == b'#').count();
            match bytes.get(1 + hashes) {
                Some(b'"') => until(&[b"\"", &bytes[1..1 + hashes]].concat(), 2 + hashes),
                _ => 0,
            }
        }
        [b'\'', b'\\', ..] => quoted(b'\''),
        // The closing quote of a character is one character away; otherwise the quote begins a lifetime.
        [b'\'', first, ..] => {
            let width = [1, 1, 2, 3, 4][first.leading_ones().min(4) as usize];
            if bytes.get(1 + width) == Some(&b'\'') { 2 + width } else { 0 }
        }
        _ => 0,
    }
}

/// Returns true if the text contains the word, not as a part of a longer one.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !before.chars().next_back().is_some_and(joins) && !after.chars().next().is_some_and(joins)
    })
}
