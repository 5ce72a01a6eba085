//! Signed decimal numbers in text: the counters of RESP's `INCR`, `DECR` and `INCRBY`.
//!
//! A number has the form that Redis accepts: an optional `-`, then digits without leading zeros, within the range of an
//! `i64`. It has no `+`, no spaces and no `-0`, and it is not empty.

use std::fmt;

use crate::error::OperationError;

/// Bytes of the longest number: `-9223372036854775808`.
const TEXT_SIZE_MAX: usize = 20;

/// The text of one number, without allocation.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct DecimalText {
    /// The text, followed by zeros.
    bytes: [u8; TEXT_SIZE_MAX],
    size: usize,
}

impl DecimalText {
    /// Returns the text of a number.
    pub fn new(number: i64) -> Self {
        let (mut reversed, mut size) = ([0; TEXT_SIZE_MAX], 0);
        let mut rest = number.unsigned_abs();
        while rest > 0 || size == 0 {
            reversed[size] = b'0' + (rest % 10) as u8;
            (rest, size) = (rest / 10, size + 1);
        }
        if number < 0 {
            reversed[size] = b'-';
            size += 1;
        }
        let mut text = DecimalText { bytes: [0; TEXT_SIZE_MAX], size };
        std::iter::zip(&mut text.bytes, reversed[..size].iter().rev()).for_each(|(to, from)| *to = *from);
        text
    }

    /// Returns the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

impl fmt::Debug for DecimalText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecimalText({})", self.as_bytes().escape_ascii())
    }
}

/// Sets `out` to the text of `old + delta`. Leaves `out` unchanged if it fails.
///
/// # Errors
/// Returns [`OperationError::NotAnInteger`] if `old` is not a number, and [`OperationError::DecimalOverflow`] if the
/// sum is outside the range of an `i64`.
pub fn add_decimal(old: &[u8], delta: i64, out: &mut DecimalText) -> Result<(), OperationError> {
    let number = parse(old).ok_or(OperationError::NotAnInteger)?;
    let sum = number.checked_add(delta).ok_or(OperationError::DecimalOverflow)?;
    *out = DecimalText::new(sum);
    Ok(())
}

fn parse(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        b"0" => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    // Summed as a negative number, because the negative range is larger by one.
    let mut number = 0i64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(number) } else { number.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(old: &[u8], delta: i64) -> Result<String, OperationError> {
        let mut out = DecimalText::new(77);
        match add_decimal(old, delta, &mut out) {
            Ok(()) => Ok(String::from_utf8(out.as_bytes().to_vec()).unwrap()),
            Err(error) => {
                assert_eq!(out, DecimalText::new(77), "a failure changed the text");
                Err(error)
            }
        }
    }

    #[test]
    fn numbers_are_added() {
        for (old, delta, sum) in [
            ("0", 0, "0"),
            ("0", -1, "-1"),
            ("9", 1, "10"),
            ("-10", 1, "-9"),
            ("-1", 1, "0"),
            ("9223372036854775806", 1, "9223372036854775807"),
            ("9223372036854775807", i64::MIN, "-1"),
            ("-9223372036854775808", 0, "-9223372036854775808"),
            ("-9223372036854775808", i64::MAX, "-1"),
        ] {
            assert_eq!(add(old.as_bytes(), delta).as_deref(), Ok(sum), "{old} + {delta}");
        }
    }

    #[test]
    fn texts_that_redis_rejects_are_not_numbers() {
        for old in [
            "", "-", "+1", "+0", "-0", "00", "01", "-01", " 1", "1 ", "1\n", "1.0", "1e3", "0x1", "a", "1a", "--1",
            "1-", "９",
        ] {
            assert_eq!(add(old.as_bytes(), 1), Err(OperationError::NotAnInteger), "{old:?}");
        }
        assert_eq!(add(b"1\0", 1), Err(OperationError::NotAnInteger));
        assert_eq!(add(&[b'1'; 1 << 16], 1), Err(OperationError::NotAnInteger));
    }

    #[test]
    fn the_range_ends_where_an_i64_does() {
        assert_eq!(add(b"9223372036854775808", 0), Err(OperationError::NotAnInteger));
        assert_eq!(add(b"-9223372036854775809", 0), Err(OperationError::NotAnInteger));
        assert_eq!(add(b"9223372036854775807", 1), Err(OperationError::DecimalOverflow));
        assert_eq!(add(b"-9223372036854775808", -1), Err(OperationError::DecimalOverflow));
        assert_eq!(add(b"-1", i64::MIN), Err(OperationError::DecimalOverflow));
    }
}
