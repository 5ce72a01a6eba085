//! The words of a line, and the numbers among them.

/// The words of a line, which blanks separate. As in memcached, a tab is part of a word.
#[derive(Clone, Copy)]
pub struct Words<'b>(&'b [u8]);

impl<'b> Words<'b> {
    /// Returns the words of a line, or of the part of one that [`Words::rest`] returned.
    pub fn new(line: &'b [u8]) -> Self {
        Words(line)
    }

    /// Returns the bytes after the words that were taken.
    pub fn rest(self) -> &'b [u8] {
        self.0
    }

    /// Takes the words of a line into an array. Returns them and their number, which is one above the array's size if
    /// there are more.
    pub(super) fn array<const N: usize>(mut self) -> ([&'b [u8]; N], usize) {
        let mut words = [&[][..]; N];
        for (index, slot) in words.iter_mut().enumerate() {
            let Some(word) = self.next() else { return (words, index) };
            *slot = word;
        }
        let count = N + usize::from(self.next().is_some());
        (words, count)
    }
}

impl<'b> Iterator for Words<'b> {
    type Item = &'b [u8];

    #[inline]
    fn next(&mut self) -> Option<&'b [u8]> {
        let start = self.0.iter().position(|&byte| byte != b' ')?;
        let line = &self.0[start..];
        let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
        let (word, rest) = line.split_at(end);
        self.0 = rest;
        Some(word)
    }
}

/// Words are equal if the blanks between them are not.
impl PartialEq for Words<'_> {
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl Eq for Words<'_> {}

impl std::fmt::Debug for Words<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.map(|word| word.escape_ascii().to_string())).finish()
    }
}

/// Parses an unsigned decimal number. A plus and leading zeros are accepted.
#[inline]
pub(super) fn unsigned(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// Parses an unsigned decimal number of 32 bits.
#[inline]
pub(super) fn unsigned_32(word: &[u8]) -> Option<u32> {
    unsigned(word).and_then(|number| u32::try_from(number).ok())
}

/// Parses a decimal number with an optional sign.
#[inline]
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        None => unsigned(word).and_then(|number| i64::try_from(number).ok()),
        Some([b'+', ..]) => None,
        Some(digits) => unsigned(digits).and_then(|number| 0_i64.checked_sub_unsigned(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Words, signed, unsigned, unsigned_32};

    #[test]
    fn words_of_a_line() {
        let words = |line: &'static str| Words::new(line.as_bytes()).collect::<Vec<_>>();
        assert_eq!(words("get a\tb  c "), [&b"get"[..], b"a\tb", b"c"]);
        assert_eq!(words("  a"), [b"a"]);
        assert!(words("   ").is_empty() && words("").is_empty());
        assert_eq!(Words::new(b"a b").array::<3>(), ([&b"a"[..], b"b", b""], 2));
        assert_eq!(Words::new(b"a b").array::<2>().1, 2);
        assert_eq!(Words::new(b"a b c d").array::<2>().1, 3);
    }

    #[test]
    fn numbers() {
        for (text, number) in [("0", 0), ("+1", 1), ("0018", 18), ("18446744073709551615", u64::MAX)] {
            assert_eq!(unsigned(text.as_bytes()), Some(number), "{text}");
        }
        for text in ["", "+", "-0", "-1", "1x", "x", "0x1", "1\r", " 1", "++1", "18446744073709551616"] {
            assert_eq!(unsigned(text.as_bytes()), None, "{text}");
        }
        assert_eq!((unsigned_32(b"4294967295"), unsigned_32(b"4294967296")), (Some(u32::MAX), None));
        for (text, number) in
            [("-1", -1), ("-0", 0), ("+5", 5), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(signed(text.as_bytes()), Some(number), "{text}");
        }
        for text in ["", "-", "--1", "-+1", "+-1", "9223372036854775808", "-9223372036854775809"] {
            assert_eq!(signed(text.as_bytes()), None, "{text}");
        }
    }
}
