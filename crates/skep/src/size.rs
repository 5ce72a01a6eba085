//! Sizes of memory in text form: `4GiB`, `512MB`.
//!
//! `KiB`, `MiB`, `GiB` and `TiB` in any case are powers of 1024, and `B` is one byte. `KB`, `MB`, `GB` and `TB` are powers of
//! 1000 in capital letters, and powers of 1024 in small letters, as in `redis.conf`. `Gb` and a lone `G` are refused, because
//! programs disagree about their meaning. A fraction, as in
//! `1.5GiB`, is rounded down to whole bytes.

use std::fmt;
use std::str::FromStr;

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct MemorySize(pub(crate) u64);

/// The units. [`fmt::Display`] takes the first one that fits, so the largest of each family is first.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// The units of `redis.conf`.
const REDIS_UNITS: [(&str, u64); 4] = [("tb", 1 << 40), ("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)];

/// Returns the bytes of a unit.
fn factor_of(unit: &str) -> Option<u64> {
    let is_named = |name: &str| if name.len() == 2 { name == unit } else { name.eq_ignore_ascii_case(unit) };
    let mut units = UNITS.iter().chain(&REDIS_UNITS);
    units.find(|(name, _)| is_named(name)).map(|(_, factor)| *factor)
}

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refusal = || format!("`{text}` is not a size: write a number and a unit, such as 512MB or 4GiB");
        let trimmed = text.trim();
        let number_end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refusal)?;
        let (number, unit) = trimmed.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let whole: u64 = whole.parse().map_err(|_| refusal())?;
        // Further digits change the size by less than a byte.
        let fraction_size = fraction.len().min(9);
        let parts: u64 = fraction.get(..fraction_size).and_then(|digits| digits.parse().ok()).ok_or_else(refusal)?;
        if fraction.contains('.') {
            return Err(refusal());
        }
        let unit = unit.trim_start();
        let factor = factor_of(unit).ok_or_else(refusal)?;
        let part = u128::from(parts) * u128::from(factor) / 10_u128.pow(fraction_size as u32);
        let bytes = u128::from(whole) * u128::from(factor) + part;
        u64::try_from(bytes).map(MemorySize).map_err(|_| format!("`{text}` is more than a machine can address"))
    }
}

/// Converts the size from its form in a configuration file.
impl TryFrom<toml::Value> for MemorySize {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match &value {
            toml::Value::String(text) => text.parse(),
            _ => Err(format!(
                "`{value}` is not a size: write a number and a unit in quotes, such as \"512MiB\" or \"4GiB\""
            )),
        }
    }
}

/// Formats the size in the largest power of 1024 that is not larger, with one decimal if it is not a multiple.
impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = UNITS.iter().take(4).find(|(_, factor)| self.0 >= *factor);
        match binary {
            Some((name, factor)) if self.0.is_multiple_of(*factor) => write!(f, "{} {name}", self.0 / factor),
            Some((name, factor)) => write!(f, "{:.1} {name}", self.0 as f64 / *factor as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MemorySize;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("4GiB", 4 << 30),
            ("512MB", 512_000_000),
            ("1 kib", 1024),
            ("1gb", 1 << 30),
            ("3 mb", 3 << 20),
            ("64kb", 64 << 10),
            ("1GB", 1_000_000_000),
            ("9b", 9),
            ("7B", 7),
            ("1.5GiB", 3 << 29),
            ("0.1234567891 KB", 123),
            ("0B", 0),
            (" 2TiB ", 2 << 40),
            ("18446744073709551615B", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(MemorySize(bytes)), "{text}");
        }
    }

    #[test]
    fn the_error_of_an_invalid_size_shows_a_valid_one() {
        for text in [
            "",
            "4",
            "4G",
            "4Gb",
            "4gB",
            "4g",
            "GiB",
            "-1GiB",
            "1.GiB",
            ".5GiB",
            "1.5",
            "1.5.5GiB",
            "1.-5GiB",
            "1.5555555555.5GiB",
            "4 GiBs",
            "0x10B",
            "99999999999999999999B",
            "４GiB",
        ] {
            let refusal = text.parse::<MemorySize>().unwrap_err();
            assert!(refusal.contains("512MB or 4GiB"), "{text}: {refusal}");
        }
        assert!("17179869184TiB".parse::<MemorySize>().unwrap_err().contains("more than a machine"));
    }

    #[test]
    fn sizes_are_printed() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1 GiB"), (512 << 20, "512 MiB")]
        {
            assert_eq!(MemorySize(bytes).to_string(), text);
        }
    }
}
