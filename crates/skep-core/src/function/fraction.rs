//! Decimal fractions in text: the numbers of RESP's `INCRBYFLOAT`, with the results of Redis on x86-64.
//!
//! Redis adds with `long double`, the 80-bit numbers of the x87, and prints with `%.17Lf`:
//!
//! 1. Both texts are read as C's `strtold` reads them, and rounded to a [`Float`].
//! 2. The exact sum is rounded to a [`Float`].
//! 3. It is printed with 17 digits after the point. Then trailing zeros are removed.
//!
//! Each step rounds to nearest, and half to even. Integers of any size make the steps exact on every machine. A text has
//! at most 5 KiB, so a sum takes some microseconds, rarely more.
//!
//! ```text
//!   Float   ± mantissa × 2^exponent        mantissa < 2^64, exponent ≥ -16445, value < 2^16384
//! ```

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use num_bigint::BigUint;

use crate::error::OperationError;

/// Bits of the mantissa.
const MANTISSA_BITS: u64 = 64;
/// The exponent of the smallest number.
const EXPONENT_MIN: i64 = -16445;
/// The largest exponent of a mantissa of all bits.
const EXPONENT_MAX: i64 = 16384 - MANTISSA_BITS as i64;
/// Bytes of the buffer into which Redis copies a text, with its end.
const TEXT_SIZE_MAX: usize = 5 * 1024;
/// The exponents `e` of all decimal numbers `0.1… × 10^e` that are not rounded to infinity or zero, and of few others.
const DECIMAL_RANGE: RangeInclusive<i64> = -4950..=4933;
/// Digits after the point that are printed.
const FRACTION_DIGITS: u32 = 17;

/// Products of two digits for each byte that could be copied instead.
const WORK_PER_BYTE: usize = 64;

/// A number of 80 bits, or infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Finite(Float),
    Infinite { is_negative: bool },
}

/// A finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Float {
    is_negative: bool,
    mantissa: u64,
    exponent: i64,
}

/// Checks that a text is a number, as `INCRBYFLOAT` reads it, without computing it. [`add_fraction`] also refuses numbers
/// that are rounded to infinity or zero, which only those at the ends of the range are that pass here.
///
/// # Errors
/// Returns [`OperationError::NotAFloat`] if it is none.
pub fn check_fraction(text: &[u8]) -> Result<(), OperationError> {
    split(text).map(|_| ()).ok_or(OperationError::NotAFloat)
}

/// Returns how much work [`add_fraction`] is, as bytes that could be copied in about that time: the square of the digits
/// of its integers.
pub fn fraction_work(old: &[u8], delta: &[u8]) -> usize {
    let digits = |text: &[u8]| {
        let exponent = split_exponent(text, 10).map_or(0, |(_, exponent)| exponent.unsigned_abs() as usize);
        text.len().min(TEXT_SIZE_MAX) + exponent.min(-DECIMAL_RANGE.start() as usize)
    };
    let digits = digits(old) + digits(delta);
    digits * digits / WORK_PER_BYTE
}

/// Returns the text of `old + delta`.
///
/// # Errors
/// Returns [`OperationError::NotAFloat`] if a text is not a number, and [`OperationError::FractionOverflow`] if the sum
/// is infinite or not a number.
pub fn add_fraction(old: &[u8], delta: &[u8]) -> Result<Vec<u8>, OperationError> {
    let old = parse(old).ok_or(OperationError::NotAFloat)?;
    let delta = parse(delta).ok_or(OperationError::NotAFloat)?;
    match (old, delta) {
        (Number::Finite(old), Number::Finite(delta)) => match old.add(delta) {
            Number::Finite(sum) => Ok(sum.print()),
            Number::Infinite { .. } => Err(OperationError::FractionOverflow),
        },
        _ => Err(OperationError::FractionOverflow),
    }
}

/// The parts of a number in text.
struct Parts {
    is_negative: bool,
    radix: u32,
    /// Without leading zeros. `None` for infinity, and empty for zero.
    digits: Option<Vec<u8>>,
    /// Of the last digit.
    exponent: i64,
}

/// Splits a text into the parts of a number. Blanks are refused, and numbers that are beyond the range or below it even
/// before they are rounded.
fn split(text: &[u8]) -> Option<Parts> {
    if text.len() >= TEXT_SIZE_MAX {
        return None;
    }
    let (is_negative, text) = match text {
        [b'-', text @ ..] => (true, text),
        [b'+', text @ ..] => (false, text),
        text => (false, text),
    };
    if ["inf", "infinity"].iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes())) {
        return Some(Parts { is_negative, radix: 10, digits: None, exponent: 0 });
    }
    let (radix, text) = match text {
        [b'0', b'x' | b'X', text @ ..] => (16, text),
        text => (10, text),
    };
    let (digits, exponent) = split_exponent(text, radix)?;
    let mut point = None;
    let mut whole = Vec::with_capacity(digits.len());
    for &byte in digits {
        match char::from(byte).to_digit(radix) {
            Some(digit) => whole.push(digit as u8),
            None if byte == b'.' && point.is_none() => point = Some(whole.len()),
            None => return None,
        }
    }
    let places = point.map_or(0, |point| whole.len() - point) as i64;
    if whole.is_empty() {
        return None;
    }
    let leading = whole.iter().take_while(|&&digit| digit == 0).count();
    whole.drain(..leading);
    let exponent = exponent.saturating_sub(if radix == 16 { 4 * places } else { places });
    let Some(&first) = whole.first() else {
        return Some(Parts { is_negative, radix, digits: Some(whole), exponent: 0 });
    };
    let is_in_range = if radix == 16 {
        let bits = 4 * whole.len() as i64 - i64::from(first.leading_zeros()) + 4;
        (EXPONENT_MIN - 1..=EXPONENT_MAX + MANTISSA_BITS as i64 + 1).contains(&exponent.saturating_add(bits))
    } else {
        DECIMAL_RANGE.contains(&exponent.saturating_add(whole.len() as i64))
    };
    is_in_range.then_some(Parts { is_negative, radix, digits: Some(whole), exponent })
}

/// Reads a text as `strtold` does. Blanks, and numbers that are rounded to infinity or zero, are refused.
fn parse(text: &[u8]) -> Option<Number> {
    let Parts { is_negative, radix, digits, exponent } = split(text)?;
    let Some(digits) = digits else { return Some(Number::Infinite { is_negative }) };
    if digits.is_empty() {
        return Some(Number::Finite(Float::new(is_negative, 0, EXPONENT_MIN)));
    }
    let mantissa = BigUint::from_radix_be(&digits, radix)?;
    let float = if radix == 16 {
        round(is_negative, &mantissa, exponent, false)
    } else {
        let power = BigUint::from(10u8).pow(exponent.unsigned_abs() as u32);
        if exponent >= 0 {
            round(is_negative, &(mantissa * power), 0, false)
        } else {
            // With this shift, the quotient has more bits than a mantissa. Of the rest, only its existence matters.
            let shift = (MANTISSA_BITS + 2 + power.bits()).saturating_sub(mantissa.bits());
            let dividend = mantissa << shift;
            let quotient = &dividend / &power;
            let is_inexact = &quotient * &power != dividend;
            round(is_negative, &quotient, -(shift as i64), is_inexact)
        }
    };
    match float {
        Number::Finite(float) if float.mantissa > 0 => Some(Number::Finite(float)),
        _ => None,
    }
}

/// Returns the digits and the exponent, which follows an `e`, or a `p` if the digits are hexadecimal. One that is beyond
/// all bounds is cut.
fn split_exponent(text: &[u8], radix: u32) -> Option<(&[u8], i64)> {
    let is_mark = |byte: &u8| byte.eq_ignore_ascii_case(if radix == 16 { &b'p' } else { &b'e' });
    let Some(at) = text.iter().position(is_mark) else { return Some((text, 0)) };
    let (is_negative, digits) = match &text[at + 1..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add_digit = |number: i64, digit: &u8| (number * 10 + i64::from(digit - b'0')).min(1 << 40);
    let exponent = digits.iter().fold(0, add_digit);
    Some((&text[..at], if is_negative { -exponent } else { exponent }))
}

/// Returns `mantissa × 2^exponent`, and a bit more if `is_inexact`, rounded to nearest and half to even.
fn round(is_negative: bool, mantissa: &BigUint, exponent: i64, is_inexact: bool) -> Number {
    let excess = (mantissa.bits() as i64 - MANTISSA_BITS as i64).max(EXPONENT_MIN - exponent);
    if excess <= 0 {
        let mantissa = u64::try_from(mantissa).expect("it has at most 64 bits");
        return finite(Float::new(is_negative, mantissa, exponent));
    }
    let excess = excess as u64;
    let kept: BigUint = mantissa >> excess;
    let half = mantissa.bit(excess - 1);
    let rest = is_inexact || mantissa.trailing_zeros().is_some_and(|zeros| zeros < excess - 1);
    let is_up = half && (rest || kept.bit(0));
    let (kept, exponent) = (kept + u8::from(is_up), exponent + excess as i64);
    match u64::try_from(&kept) {
        Ok(mantissa) => finite(Float::new(is_negative, mantissa, exponent)),
        Err(_) => finite(Float::new(is_negative, 1 << (MANTISSA_BITS - 1), exponent + 1)),
    }
}

/// Returns the number, or infinity if it is beyond the range.
fn finite(float: Float) -> Number {
    let top = float.exponent + i64::from(u64::BITS - float.mantissa.leading_zeros());
    if float.mantissa > 0 && top > EXPONENT_MAX + MANTISSA_BITS as i64 {
        Number::Infinite { is_negative: float.is_negative }
    } else {
        Number::Finite(float)
    }
}

impl Float {
    fn new(is_negative: bool, mantissa: u64, exponent: i64) -> Self {
        Float { is_negative, mantissa, exponent }
    }

    fn add(self, other: Float) -> Number {
        let exponent = self.exponent.min(other.exponent);
        let scaled = |float: Float| BigUint::from(float.mantissa) << (float.exponent - exponent) as u64;
        let (a, b) = (scaled(self), scaled(other));
        if self.is_negative == other.is_negative {
            return round(self.is_negative, &(a + b), exponent, false);
        }
        match a.cmp(&b) {
            Ordering::Less => round(other.is_negative, &(b - a), exponent, false),
            _ => round(self.is_negative, &(a - b), exponent, false),
        }
    }

    /// Returns the text with [`FRACTION_DIGITS`] after the point, without trailing zeros.
    fn print(self) -> Vec<u8> {
        let (whole, fraction) = if self.exponent >= 0 {
            ((BigUint::from(self.mantissa) << self.exponent as u64).to_string(), 0)
        } else {
            let unit = 10u128.pow(FRACTION_DIGITS);
            let scaled = u128::from(self.mantissa) * unit;
            let shift = self.exponent.unsigned_abs();
            // The product has at most 121 bits.
            let rounded = if shift >= 123 {
                0
            } else {
                let (kept, rest, half) = (scaled >> shift, scaled & ((1 << shift) - 1), 1 << (shift - 1));
                kept + u128::from(rest > half || rest == half && kept % 2 == 1)
            };
            ((rounded / unit).to_string(), rounded % unit)
        };
        let width = FRACTION_DIGITS as usize;
        let mut text = if fraction > 0 { format!("{whole}.{fraction:0width$}") } else { whole };
        if fraction > 0 {
            text.truncate(text.trim_end_matches('0').len());
        }
        if self.is_negative && text != "0" {
            text.insert(0, '-');
        }
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(old: &str, delta: &str) -> Result<String, OperationError> {
        add_fraction(old.as_bytes(), delta.as_bytes()).map(|sum| String::from_utf8(sum).unwrap())
    }

    #[test]
    fn sums_are_those_of_long_doubles() {
        for (old, delta, sum) in [
            ("0", "0", "0"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "-3", "0"),
            ("-0", "-0", "0"),
            ("-0.000000000000000001", "0", "0"),
            ("1", "1e-17", "1.00000000000000001"),
            ("1", "-.5", "0.5"),
            ("0x1p4", "+1.", "17"),
            ("0x.8", "0", "0.5"),
            ("17179869184", "1.5", "17179869185.5"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            ("18446744073709551616", "3", "18446744073709551620"),
            ("2e-4951", "0", "0"),
            ("0e99999999999999999999", "1", "1"),
        ] {
            assert_eq!(add(old, delta).as_deref(), Ok(sum), "{old} + {delta}");
        }
        let largest = add("1.18973149535723176502e4932", "0").unwrap();
        assert_eq!((largest.len(), &largest[..20]), (4933, "11897314953572317650"));
    }

    #[test]
    fn texts_that_are_not_numbers_are_refused() {
        for text in [
            "",
            " 1",
            "1 ",
            "-",
            "+",
            ".",
            "1e",
            "1e+",
            "e5",
            "1.2.3",
            "0x",
            "0xp1",
            "nan",
            "-nan",
            "nan(1)",
            "1a",
            "--1",
            "1e5000",
            "1e-5000",
            "1.18973149535723176509e4932",
            "1,5",
            "0x1p16384",
            "1\0",
            "infinit",
        ] {
            assert_eq!(add(text, "1"), Err(OperationError::NotAFloat), "{text:?}");
            let is_at_the_end = ["1.18973149535723176509e4932", "0x1p16384"].contains(&text);
            assert_eq!(check_fraction(text.as_bytes()).is_ok(), is_at_the_end, "{text:?}");
        }
        assert_eq!(add_fraction(&[b'1'; TEXT_SIZE_MAX], b"1"), Err(OperationError::NotAFloat));
        assert_eq!(check_fraction(&[b'1'; TEXT_SIZE_MAX]), Err(OperationError::NotAFloat));
    }

    #[test]
    fn what_is_a_number_passes_the_check() {
        let (mut numbers, mut others) = (0, 0);
        for exponent in (-4960..-4940).chain(4925..4940) {
            for digits in ["1", "0.0012", "9.99", "1183", "1.82259976594123730127", "0x1.8p", "0x.0000001p"] {
                let power = if digits.starts_with("0x") { exponent * 16_610 / 5000 } else { exponent };
                let text = digits.trim_end_matches('p').to_owned() + if power == exponent { "e" } else { "p" };
                let text = text + &power.to_string();
                let is_number = parse(text.as_bytes()).is_some();
                assert!(!is_number || check_fraction(text.as_bytes()).is_ok(), "{text}");
                numbers += u32::from(is_number);
                others += u32::from(!is_number);
            }
        }
        assert!(numbers > 50 && others > 50, "{numbers} and {others}");
    }

    #[test]
    fn infinite_sums_are_refused() {
        for (old, delta) in [
            ("inf", "1"),
            ("-Infinity", "inf"),
            ("1", "-inf"),
            ("1.18973149535723176502e4932", "1.18973149535723176502e4932"),
        ] {
            assert_eq!(add(old, delta), Err(OperationError::FractionOverflow), "{old} + {delta}");
        }
    }
}
