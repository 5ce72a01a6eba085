//! Sizes of memory as people write them: `4GiB`, `512MB`.
//!
//! `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024, `KB`, `MB`, `GB`, `TB` powers of 1000, `B` is one byte; case does
//! not matter. A lone `G` is refused, because half of the programs that take it mean one and half the other.

use std::fmt;
use std::str::FromStr;

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct MemorySize(pub(crate) u64);

/// The units, the largest of each family first so that [`fmt::Display`] finds the largest that fits.
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

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refusal = || format!("`{text}` is not a size: write a whole number and a unit, such as 512MB or 4GiB");
        let trimmed = text.trim();
        let digits_end = trimmed.find(|c: char| !c.is_ascii_digit()).ok_or_else(refusal)?;
        let (digits, unit) = trimmed.split_at(digits_end);
        let number: u64 = digits.parse().map_err(|_| refusal())?;
        let unit = unit.trim_start();
        let (_, factor) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(refusal)?;
        let bytes =
            number.checked_mul(*factor).ok_or_else(|| format!("`{text}` is more than a machine can address"))?;
        Ok(MemorySize(bytes))
    }
}

impl TryFrom<String> for MemorySize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// In the largest power of 1024 that is not larger than the size, with one decimal where it does not divide it.
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
            ("7B", 7),
            ("0B", 0),
            (" 2TiB ", 2 << 40),
            ("18446744073709551615B", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(MemorySize(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_a_way_out() {
        for text in ["", "4", "4G", "GiB", "-1GiB", "1.5GiB", "4 GiBs", "0x10B", "99999999999999999999B", "４GiB"] {
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
