//! Patterns of keys, with the rules of Redis's `KEYS` and `SCAN … MATCH`.
//!
//! ```text
//!   *  any characters     ?  one character     \c  the character c
//!   [abc]  one of them    [a-z]  one of a range    [^a-z]  one that is not among them
//! ```
//!
//! A class without `]` ends with the pattern. A range may be written in either order.
//!
//! The pattern becomes an automaton. Its state is a set of numbers, one bit each: number *i* is in the set if the first
//! *i* elements of the pattern match the characters so far. A character moves each number to the next one if it matches
//! the element between them, and keeps those before a `*`. So a key takes a step of some words for each of its
//! characters, and no pattern makes the time grow with the product of the two lengths.

use crate::account::Account;

/// Bits of a word of a set.
const WORD: usize = u64::BITS as usize;

/// Work of a step on a word of the state, which takes less than a nanosecond.
const STEP_WORK: usize = 4;
/// Work of a character that an element matches, when a pattern is prepared.
const MEMBER_WORK: usize = 4;

/// The most bytes of a pattern that [`Pattern::matches_short`] takes.
pub(crate) const SHORT_PATTERN: usize = 512;

/// A set of characters.
type Class = [u64; 256 / WORD];

/// A pattern that is ready to be matched.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// Words of a set.
    words: usize,
    /// For each character, the set of the elements that match it.
    matching: Vec<u64>,
    /// The numbers that each character keeps: there is a `*` after that number of elements.
    stars: Vec<u64>,
    /// The number of elements.
    count: usize,
    /// Memory for the state.
    state: Vec<u64>,
}

impl Pattern {
    /// Prepares a pattern. Spends the work.
    pub(crate) fn new(mut pattern: &[u8], account: &mut Account) -> Pattern {
        let words = pattern.len() / WORD + 1;
        let (mut matching, mut stars, mut count) = (vec![0; 256 * words], vec![0; words], 0);
        while let Some(&first) = pattern.first() {
            if first == b'*' {
                stars[count / WORD] |= 1 << (count % WORD);
                pattern = &pattern[1..];
                continue;
            }
            let (class, size) = element(pattern);
            account.spend(size * size_of::<Class>());
            for (index, mut members) in class.into_iter().enumerate() {
                while members != 0 {
                    let character = index * WORD + members.trailing_zeros() as usize;
                    matching[character * words + count / WORD] |= 1 << (count % WORD);
                    members &= members - 1;
                }
            }
            // Each member is set in a line of its own.
            account.spend(MEMBER_WORK * class.iter().map(|word| word.count_ones() as usize).sum::<usize>());
            pattern = &pattern[size..];
            count += 1;
        }
        account.spend(size_of_val(&matching[..]));
        Pattern { words, matching, stars, count, state: Vec::with_capacity(words) }
    }

    /// Returns true if a key matches. Spends the work.
    pub(crate) fn matches(&mut self, key: &[u8], account: &mut Account) -> bool {
        let mut state = std::mem::take(&mut self.state);
        state.clear();
        state.resize(self.words, 0);
        let (is_match, steps) = self.run(&mut state, key);
        self.state = state;
        account.spend(STEP_WORK * (self.words + 1) * steps);
        is_match
    }

    /// Returns true if a key matches, for a pattern of at most [`SHORT_PATTERN`] bytes that several threads share.
    pub(crate) fn matches_short(&self, key: &[u8]) -> bool {
        let mut state = [0; SHORT_PATTERN / WORD + 1];
        self.run(&mut state[..self.words], key).0
    }

    /// Returns true if a key matches, and the number of steps that this took. The state is all zero.
    fn run(&self, state: &mut [u64], key: &[u8]) -> (bool, usize) {
        let Pattern { words, matching, stars, count, .. } = self;
        state[0] = 1;
        for (index, character) in key.iter().enumerate() {
            let matching = &matching[usize::from(*character) * *words..][..*words];
            let (mut carry, mut any) = (0, 0);
            for ((numbers, matching), stars) in state.iter_mut().zip(matching).zip(stars) {
                let moved = *numbers & matching;
                *numbers = moved << 1 | carry | *numbers & stars;
                carry = moved >> (WORD - 1);
                any |= *numbers;
            }
            if any == 0 {
                return (false, index + 1);
            }
        }
        (state[*count / WORD] >> (*count % WORD) & 1 == 1, key.len() + 1)
    }
}

/// Returns the characters that the first element of a pattern matches, and the size of the element. It is not `*`.
fn element(pattern: &[u8]) -> (Class, usize) {
    match pattern {
        [b'?', ..] => ([u64::MAX; 256 / WORD], 1),
        [b'\\', expected, ..] => (range(*expected, *expected), 2),
        [b'[', b'^', class @ ..] => {
            let (members, size) = class_of(class);
            (members.map(|word| !word), size + 2)
        }
        [b'[', class @ ..] => {
            let (members, size) = class_of(class);
            (members, size + 1)
        }
        [expected, ..] => (range(*expected, *expected), 1),
        [] => unreachable!("the caller has looked at the first character"),
    }
}

/// Returns the members of a class, and its size with its `]`.
fn class_of(class: &[u8]) -> (Class, usize) {
    let (mut at, mut members) = (0, Class::default());
    loop {
        let (more, size) = match &class[at..] {
            [] => return (members, at),
            [b'\\', expected, ..] => (range(*expected, *expected), 2),
            [b']', ..] => return (members, at + 1),
            [start, b'-', end, ..] => (range(*start.min(end), *start.max(end)), 3),
            [expected, ..] => (range(*expected, *expected), 1),
        };
        members.iter_mut().zip(more).for_each(|(word, more)| *word |= more);
        at += size;
    }
}

/// Returns the characters of a range, with both ends.
fn range(first: u8, last: u8) -> Class {
    let (first, last) = (usize::from(first), usize::from(last));
    std::array::from_fn(|index| {
        let (low, high) = (index * WORD, index * WORD + WORD - 1);
        if last < low || first > high {
            return 0;
        }
        let (from, to) = (first.max(low) - low, last.min(high) - low);
        u64::MAX << from & u64::MAX >> (WORD - 1 - to)
    })
}

#[cfg(test)]
mod tests {
    use super::Pattern;
    use crate::account::Account;

    fn matches(pattern: &[u8], key: &[u8]) -> bool {
        let mut account = Account::new(0);
        Pattern::new(pattern, &mut account).matches(key, &mut account)
    }

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

    /// Returns true if a key matches, by definition: a `*` takes any number of characters.
    fn matches_by_definition(pattern: &[u8], key: &[u8]) -> bool {
        match (pattern, key) {
            ([], key) => key.is_empty(),
            ([b'*', rest @ ..], key) => (0..=key.len()).any(|taken| matches_by_definition(rest, &key[taken..])),
            (_, []) => false,
            (pattern, [character, key @ ..]) => {
                let (class, size) = super::element(pattern);
                let is_member = class[usize::from(*character) / 64] >> (character % 64) & 1 == 1;
                is_member && matches_by_definition(&pattern[size..], key)
            }
        }
    }

    #[test]
    fn short_patterns_match_as_defined() {
        let digits = |number: u32, bits: u32, count: u32, of: &[u8]| -> Vec<u8> {
            (0..count).map(|index| of[(number >> (bits * index)) as usize % of.len()]).collect()
        };
        let keys: Vec<Vec<u8>> = (0..4_u32.pow(3)).map(|number| digits(number, 2, 3, b"ab]^")).collect();
        for number in 0..8_u32.pow(4) {
            let pattern = digits(number, 3, 4, b"ab*?\\[]^");
            let mut prepared = Pattern::new(&pattern, &mut Account::new(0));
            for key in keys.iter().flat_map(|key| [&key[..], &key[1..], &key[..1]]) {
                let expected = matches_by_definition(&pattern, key);
                assert_eq!(prepared.matches(key, &mut Account::new(0)), expected, "{pattern:?} {key:?}");
            }
        }
    }

    #[test]
    fn no_pattern_takes_more_than_some_words_for_each_character() {
        for pattern in [&b"*a".repeat(500)[..], &[b"*[", &[b'b'; 1000][..], b"]"].concat(), &b"*a?a".repeat(250)] {
            let mut account = Account::new(usize::MAX);
            let mut prepared = Pattern::new(pattern, &mut account);
            assert!(account.spent() <= 300 * pattern.len() + (256 << 10), "{}", account.spent());
            let before = account.spent();
            prepared.matches(&[b'a'; 460], &mut account);
            assert!(account.spent() - before <= 461 * 4 * (pattern.len() / 64 + 2));
        }
    }

    #[test]
    fn many_stars_take_little_time() {
        assert!(!matches(&b"*a".repeat(500), &b"a".repeat(460)));
        assert!(!matches(&[&b"*a".repeat(200)[..], b"b"].concat(), &b"a".repeat(460)));
    }
}
