//! Patterns of keys, with the rules of Redis's `KEYS` and `SCAN … MATCH`.
//!
//! ```text
//!   *  any characters     ?  one character     \c  the character c
//!   [abc]  one of them    [a-z]  one of a range    [^a-z]  one that is not among them
//! ```
//!
//! A class without `]` ends with the pattern. A range may be written in either order.

/// Returns true if a key matches a pattern. Takes at most the product of the two lengths.
pub(crate) fn matches(pattern: &[u8], key: &[u8]) -> bool {
    let (mut at, mut in_key) = (0, 0);
    // The position to continue at when the last `*` must take one more character. An earlier `*` need not take more: the
    // characters up to the last one match already.
    let mut retry = None;
    loop {
        if at < pattern.len() && pattern[at] == b'*' {
            at += 1;
            retry = Some((at, in_key + 1));
            continue;
        }
        match key.get(in_key) {
            None if at == pattern.len() => return true,
            None => return false,
            Some(character) => {
                if let Some(size) = element(&pattern[at..], *character) {
                    at += size;
                    in_key += 1;
                    continue;
                }
            }
        }
        let Some((after_star, next)) = retry else { return false };
        (at, in_key) = (after_star, next);
        retry = Some((after_star, next + 1));
    }
}

/// Returns the size of the first element of a pattern if it matches the character. The element is not `*`.
fn element(pattern: &[u8], character: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', expected, ..] => (*expected == character).then_some(2),
        [b'[', class @ ..] => {
            let is_negated = class.first() == Some(&b'^');
            let class = &class[usize::from(is_negated)..];
            let (is_member, size) = is_in_class(class, character);
            (is_member != is_negated).then_some(1 + usize::from(is_negated) + size)
        }
        [expected, ..] => (*expected == character).then_some(1),
    }
}

/// Returns true if a character is in the class, and the size of the class with its `]`.
fn is_in_class(class: &[u8], character: u8) -> (bool, usize) {
    let (mut at, mut is_member) = (0, false);
    loop {
        at += match &class[at..] {
            [] => return (is_member, at),
            [b'\\', expected, ..] => {
                is_member |= *expected == character;
                2
            }
            [b']', ..] => return (is_member, at + 1),
            [start, b'-', end, ..] => {
                is_member |= (*start.min(end)..=*start.max(end)).contains(&character);
                3
            }
            [expected, ..] => {
                is_member |= *expected == character;
                1
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("*", &["a", "abc", "*", "[", "\\"], &[]),
            ("**", &["a", "abc"], &[]),
            ("a", &["a"], &["b", "A", "aa"]),
            ("?", &["a", "?", "*"], &["ab"]),
            ("h?llo", &["hello", "hallo"], &["hllo", "heello"]),
            ("h*llo", &["hllo", "heeeello", "hllollo"], &["hell", "hllox"]),
            ("*llo", &["llo", "hello", "lllo"], &["llox"]),
            ("user:*", &["user:", "user:1"], &["user", "xuser:1"]),
            ("*:*:*", &["::", "a:b:c", "a:::c"], &["a:b"]),
            ("*a*b*a*", &["aba", "xaxbxax", "aabbaa"], &["ab", "bab"]),
            ("h[ae]llo", &["hello", "hallo"], &["hillo", "hllo", "haello"]),
            ("h[^e]llo", &["hallo", "hbllo", "h^llo"], &["hello", "hllo"]),
            ("h[a-b]llo", &["hallo", "hbllo"], &["hcllo", "h-llo"]),
            ("h[b-a]llo", &["hallo", "hbllo"], &["hcllo"]),
            ("[^a-c]", &["d"], &["a", "b", "c"]),
            ("[a-]", &["a", "]", "^", "_"], &["-", "b"]),
            ("[-a]", &["-", "a"], &["b"]),
            ("[a\\]b]", &["a", "]", "b"], &["\\", "a]b]"]),
            ("[\\a-c]", &["a", "-", "c"], &["b", "\\"]),
            ("[]", &[], &["]", "[", "a"]),
            ("[^]", &["]", "a"], &["^]"]),
            ("[abc", &["a", "b", "c"], &["d", "[abc"]),
            ("[", &[], &["[", "a"]),
            ("[^", &["a", "^"], &["ab"]),
            ("[a-", &["a", "-"], &["b"]),
            ("[^abc", &["d"], &["a", "dd"]),
            ("\\*", &["*"], &["a", "\\*", "\\a"]),
            ("\\?x", &["?x"], &["ax"]),
            ("\\[a]", &["[a]"], &["a"]),
            ("a\\", &["a\\"], &["a"]),
            ("\\\\", &["\\"], &["\\\\"]),
            ("*[0-9]", &["key1", "9"], &["key", "key1a"]),
            ("*?", &["a", "ab"], &[]),
            ("a**b", &["ab", "axb"], &["a", "b"]),
            ("", &[], &["a"]),
        ];
        for (pattern, matching, others) in cases {
            for key in *matching {
                assert!(matches(pattern.as_bytes(), key.as_bytes()), "{pattern} {key}");
            }
            for key in *others {
                assert!(!matches(pattern.as_bytes(), key.as_bytes()), "{pattern} {key}");
            }
        }
        assert!(matches(b"\xff[\x80-\x90]\0", b"\xff\x85\0"));
    }

    #[test]
    fn many_stars_take_little_time() {
        assert!(!matches(&b"*a".repeat(500), &b"a".repeat(460)));
        assert!(!matches(&[&b"*a".repeat(200)[..], b"b"].concat(), &b"a".repeat(460)));
    }
}
