//! The keys that a user may read and write: all, or those that match one of some patterns.
//!
//! As in Redis, one pattern must allow all that a command does to a key: `%R~a*` and `%W~*b` together do not allow a
//! command that reads and writes `ab`. A pattern without a star but at its end, which most are, is compared as bytes.

use std::sync::Arc;

use skep_core::operation::KEY_SIZE_MAX;

use crate::account::Account;
use crate::glob::{Pattern, SHORT_PATTERN};

/// The most patterns that a user may have. A command of a user with patterns may compare each of its keys with each.
pub(crate) const PATTERNS_MAX: usize = 64;

/// The most bytes of a pattern: no key is longer.
pub(crate) const PATTERN_SIZE_MAX: usize = KEY_SIZE_MAX;

const _: () = assert!(PATTERN_SIZE_MAX <= SHORT_PATTERN);

/// What a command does to a key, or what a pattern allows. A command that only asks if a key exists does neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyAccess {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl KeyAccess {
    pub(crate) const NONE: KeyAccess = KeyAccess { reads: false, writes: false };
    pub(crate) const READ: KeyAccess = KeyAccess { reads: true, writes: false };
    pub(crate) const WRITE: KeyAccess = KeyAccess { reads: false, writes: true };
    pub(crate) const BOTH: KeyAccess = KeyAccess { reads: true, writes: true };

    /// Returns true if this is allowed where `needed` is needed.
    fn allows(self, needed: KeyAccess) -> bool {
        (self.reads || !needed.reads) && (self.writes || !needed.writes)
    }
}

/// A pattern of keys, and what it allows.
#[derive(Debug)]
struct KeyPattern {
    text: Vec<u8>,
    access: KeyAccess,
    matcher: Matcher,
}

/// A pattern that is ready to be compared.
#[derive(Debug)]
enum Matcher {
    /// The key is the text.
    Equal,
    /// The key begins with the text, without the star at its end.
    Prefix,
    Glob(Pattern),
}

impl KeyPattern {
    fn new(text: &[u8], access: KeyAccess) -> KeyPattern {
        let is_plain = |text: &[u8]| !text.iter().any(|byte| b"*?[\\".contains(byte));
        let matcher = match text {
            text if is_plain(text) => Matcher::Equal,
            [prefix @ .., b'*'] if is_plain(prefix) => Matcher::Prefix,
            // The work is that of one command: a pattern is short.
            text => Matcher::Glob(Pattern::new(text, &mut Account::new(0))),
        };
        KeyPattern { text: text.to_vec(), access, matcher }
    }

    fn matches(&self, key: &[u8]) -> bool {
        match &self.matcher {
            Matcher::Equal => self.text == key,
            Matcher::Prefix => key.starts_with(self.prefix()),
            Matcher::Glob(pattern) => pattern.matches_short(key),
        }
    }

    /// Returns the text without its last byte, the star.
    fn prefix(&self) -> &[u8] {
        &self.text[..self.text.len() - 1]
    }
}

/// The reason why a pattern is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// All keys are allowed already.
    AfterAll,
    /// It is too long, or there are too many.
    TooMuch,
}

/// The keys that a user may read and write.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyPatterns {
    is_all: bool,
    patterns: Vec<Arc<KeyPattern>>,
}

impl KeyPatterns {
    /// Returns those that allow all keys.
    pub(crate) fn all() -> KeyPatterns {
        KeyPatterns { is_all: true, patterns: Vec::new() }
    }

    /// Returns true if all keys are allowed.
    #[inline]
    pub(crate) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Allows the keys that match a pattern. If it is there already, what it allows is united.
    pub(crate) fn add(&mut self, text: &[u8], access: KeyAccess) -> Result<(), PatternError> {
        if self.is_all {
            return Err(PatternError::AfterAll);
        }
        if text.len() > PATTERN_SIZE_MAX {
            return Err(PatternError::TooMuch);
        }
        if let Some(pattern) = self.patterns.iter_mut().find(|pattern| pattern.text == text) {
            let old = pattern.access;
            let access = KeyAccess { reads: old.reads || access.reads, writes: old.writes || access.writes };
            *pattern = Arc::new(KeyPattern::new(text, access));
            return Ok(());
        }
        if self.patterns.len() == PATTERNS_MAX {
            return Err(PatternError::TooMuch);
        }
        self.patterns.push(Arc::new(KeyPattern::new(text, access)));
        Ok(())
    }

    /// Returns the work of comparing keys of this number of bytes in all with the patterns, in bytes touched.
    pub(crate) fn work(&self, key_bytes: usize) -> usize {
        let of_pattern = |pattern: &Arc<KeyPattern>| match pattern.matcher {
            Matcher::Equal | Matcher::Prefix => 1,
            // A word of the state for each 64 bytes of the pattern.
            Matcher::Glob(_) => 1 + pattern.text.len() / 8,
        };
        key_bytes * self.patterns.iter().map(of_pattern).sum::<usize>()
    }

    /// Returns true if a key may be used so.
    pub(crate) fn allow(&self, key: &[u8], needed: KeyAccess) -> bool {
        // A longer key is not compared: the store has none.
        let is_key = key.len() <= KEY_SIZE_MAX;
        self.is_all
            || is_key && self.patterns.iter().any(|pattern| pattern.access.allows(needed) && pattern.matches(key))
    }

    /// Returns true if all keys that begin with a text may be read: one pattern allows them.
    pub(crate) fn allow_reading_prefix(&self, text: &[u8]) -> bool {
        let is_covered = |pattern: &KeyPattern| match pattern.matcher {
            Matcher::Prefix => text.starts_with(pattern.prefix()),
            Matcher::Equal | Matcher::Glob(_) => {
                pattern.text.iter().all(|byte| *byte == b'*') && !pattern.text.is_empty()
            }
        };
        self.is_all || self.patterns.iter().any(|pattern| pattern.access.allows(KeyAccess::READ) && is_covered(pattern))
    }

    /// Returns the rules by which they are made, such as `~a*` and `%R~b`.
    pub(crate) fn rules(&self) -> Vec<Vec<u8>> {
        if self.is_all {
            return vec![b"~*".to_vec()];
        }
        let sign = |access: KeyAccess| match (access.reads, access.writes) {
            (true, true) => &b"~"[..],
            (true, false) => b"%R~",
            _ => b"%W~",
        };
        self.patterns.iter().map(|pattern| [sign(pattern.access), &pattern.text].concat()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyAccess, KeyPatterns, PATTERN_SIZE_MAX, PATTERNS_MAX, PatternError};

    fn patterns(list: &[(&str, KeyAccess)]) -> KeyPatterns {
        let mut patterns = KeyPatterns::default();
        list.iter().for_each(|(text, access)| patterns.add(text.as_bytes(), *access).unwrap());
        patterns
    }

    #[test]
    fn one_pattern_allows_all_that_is_done() {
        let list = patterns(&[("a*", KeyAccess::READ), ("*b", KeyAccess::WRITE), ("c", KeyAccess::BOTH)]);
        for (key, needed, expected) in [
            ("a", KeyAccess::READ, true),
            ("ab", KeyAccess::WRITE, true),
            ("ab", KeyAccess::BOTH, false),
            ("ab", KeyAccess::NONE, true),
            ("c", KeyAccess::BOTH, true),
            ("cc", KeyAccess::NONE, false),
            ("", KeyAccess::NONE, false),
        ] {
            assert_eq!(list.allow(key.as_bytes(), needed), expected, "{key} {needed:?}");
        }
        assert_eq!(list.rules(), [&b"%R~a*"[..], b"%W~*b", b"~c"]);
        assert!(KeyPatterns::all().allow(b"x", KeyAccess::BOTH));
        assert!(!KeyPatterns::default().allow(b"x", KeyAccess::NONE));
    }

    #[test]
    fn the_same_pattern_unites_what_it_allows() {
        let list = patterns(&[("a*", KeyAccess::READ), ("a*", KeyAccess::WRITE)]);
        assert_eq!(list.rules(), [b"~a*"]);
        assert!(list.allow(b"ab", KeyAccess::BOTH));
    }

    #[test]
    fn a_prefix_is_covered_by_a_shorter_one() {
        let list = patterns(&[("user:*", KeyAccess::READ), ("x*", KeyAccess::WRITE), ("[a]*", KeyAccess::BOTH)]);
        for (prefix, expected) in
            [("user:", true), ("user:1", true), ("user", false), ("", false), ("x", false), ("a", false)]
        {
            assert_eq!(list.allow_reading_prefix(prefix.as_bytes()), expected, "{prefix}");
        }
        assert!(patterns(&[("**", KeyAccess::READ)]).allow_reading_prefix(b""));
        assert!(!patterns(&[("", KeyAccess::READ)]).allow_reading_prefix(b""));
    }

    #[test]
    fn patterns_are_bounded() {
        let mut list = KeyPatterns::default();
        assert_eq!(list.add(&[b'a'; PATTERN_SIZE_MAX + 1], KeyAccess::BOTH), Err(PatternError::TooMuch));
        for number in 0..PATTERNS_MAX {
            list.add(number.to_string().as_bytes(), KeyAccess::BOTH).unwrap();
        }
        assert_eq!(list.add(b"more", KeyAccess::BOTH), Err(PatternError::TooMuch));
        assert_eq!(list.add(b"1", KeyAccess::READ), Ok(()));
        assert_eq!(KeyPatterns::all().add(b"a", KeyAccess::READ), Err(PatternError::AfterAll));
    }
}
