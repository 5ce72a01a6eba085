//! Sizes of keys and values.
//!
//! The card has no values of more than one slab. Clients divide such a pair into several, whose keys have the number of
//! the part at their end. They are sent together, and the pair is read or written when all of its parts are.
//!
//! ```text
//! key, 1 KiB ─▶ key·0, 490 B │ key·1, 490 B │ key·2, 44 B
//! ```

use std::fmt;
use std::str::FromStr;

use crate::dispatcher::hash;

/// Largest pair that fits one slab, key and value, in bytes.
pub const PAIR_BYTES_MAX: u32 = 508;
/// Shortest key: all keys of a scaled memory have their number in it.
pub const KEY_BYTES_MIN: u32 = 4;
/// Bytes that the number of a part adds to a key.
pub(crate) const PART_BYTES: u32 = 2;

/// Sizes in bytes, as ranges with shares. Within a range, all sizes are equally likely.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes(pub Vec<SizeRange>);

/// A range of sizes, and the share of pairs that have one of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeRange {
    /// Share of the pairs. The shares of all ranges need not add up to 1: only their proportions matter.
    pub share: f64,
    /// Smallest size in bytes.
    pub least: u32,
    /// Largest size in bytes.
    pub most: u32,
}

/// The sizes of all pairs. A key always has the same sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    /// Bytes of a key.
    pub keys: Sizes,
    /// Bytes of a value.
    pub values: Sizes,
}

impl Sizes {
    /// Returns one size for all.
    pub fn fixed(bytes: u32) -> Self {
        Sizes(vec![SizeRange { share: 1.0, least: bytes, most: bytes }])
    }

    /// Returns the mean size in bytes.
    pub fn mean(&self) -> f64 {
        let (mut sum, mut shares) = (0.0, 0.0);
        for range in &self.0 {
            sum += range.share * f64::from(range.least + range.most) / 2.0;
            shares += range.share;
        }
        sum / shares
    }

    /// Returns the smallest size in bytes.
    pub fn least(&self) -> u32 {
        self.0.iter().map(|range| range.least).min().unwrap_or_default()
    }

    /// Returns the largest size in bytes.
    pub fn most(&self) -> u32 {
        self.0.iter().map(|range| range.most).max().unwrap_or_default()
    }

    /// Returns true if there is only one size.
    pub fn is_fixed(&self) -> bool {
        self.least() == self.most()
    }

    /// Returns the size at a number that is evenly distributed over all 64-bit numbers.
    fn at(&self, number: u64) -> u32 {
        let [range] = self.0[..] else {
            let shares: f64 = self.0.iter().map(|range| range.share).sum();
            let mut at = number as f64 / 2_f64.powi(64) * shares;
            for range in &self.0 {
                if at < range.share {
                    return range.at(hash(number));
                }
                at -= range.share;
            }
            return self.most();
        };
        range.at(number)
    }
}

/// Parses sizes: `64`, `16..1024`, or several of these with their shares: `9:16..64,1:1024`.
impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refusal = || format!("`{text}` is no size: write 64, or 16..1024, or shares of both as 9:16..64,1:1024");
        let range = |text: &str| {
            let (share, range) = text.split_once(':').unwrap_or(("1", text));
            let (least, most) = range.split_once("..").unwrap_or((range, range));
            let bytes = |text: &str| text.trim().parse::<u32>().map_err(|_| refusal());
            let share = share.trim().parse::<f64>().map_err(|_| refusal())?;
            Ok(SizeRange { share, least: bytes(least)?, most: bytes(most)? })
        };
        Ok(Sizes(text.split(',').map(range).collect::<Result<_, String>>()?))
    }
}

/// Formats the sizes as they are parsed.
impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, SizeRange { share, least, most }) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match self.0.len() {
                1 => {}
                _ => write!(f, "{comma}{share}:")?,
            }
            if least == most { write!(f, "{least}")? } else { write!(f, "{least}..{most}")? }
        }
        Ok(())
    }
}

impl SizeRange {
    fn at(self, number: u64) -> u32 {
        let width = u64::from(self.most - self.least) + 1;
        self.least + ((u128::from(number) * u128::from(width)) >> 64) as u32
    }
}

impl Pairs {
    /// Returns pairs of one size with short keys, as in the paper's figures.
    pub fn of_bytes(kv_bytes: u32) -> Self {
        Pairs { keys: Sizes::fixed(KEY_BYTES_MIN), values: Sizes::fixed(kv_bytes - KEY_BYTES_MIN) }
    }

    /// Returns the mean size of key and value together, in bytes.
    pub fn mean(&self) -> f64 {
        self.keys.mean() + self.values.mean()
    }

    /// Returns true if all pairs have one size.
    pub fn are_equal(&self) -> bool {
        self.keys.is_fixed() && self.values.is_fixed()
    }

    /// Returns the largest size of key and value together, in bytes.
    pub fn most(&self) -> u32 {
        self.keys.most() + self.values.most()
    }

    /// Returns the bytes of the key with this number, without that of a part.
    pub(crate) fn key_bytes(&self, key: u32) -> u32 {
        if self.keys.is_fixed() { self.keys.least() } else { self.keys.at(hash(u64::from(key) << 32)) }
    }

    /// Returns the bytes of the value of a key.
    pub(crate) fn value_bytes(&self, key: u32) -> u32 {
        if self.values.is_fixed() { self.values.least() } else { self.values.at(hash(u64::from(key) << 32 | 1)) }
    }

    /// Returns the number of pairs in which a pair is stored.
    pub(crate) fn part_count(&self, key: u32) -> u32 {
        let (key_bytes, value_bytes) = (self.key_bytes(key), self.value_bytes(key));
        if key_bytes + value_bytes <= PAIR_BYTES_MAX { 1 } else { value_bytes.div_ceil(part_bytes(key_bytes)) }
    }

    /// Returns the bytes of a part of a value.
    pub(crate) fn part_value_bytes(&self, key: u32, part: u32) -> u32 {
        let value_bytes = self.value_bytes(key);
        if self.part_count(key) == 1 {
            return value_bytes;
        }
        let full = part_bytes(self.key_bytes(key));
        full.min(value_bytes - part * full)
    }

    /// Returns the bytes that the store keeps for an average pair, with the keys of all parts, and the number of its
    /// parts, from the first `count` keys.
    pub(crate) fn stored(&self, count: u32) -> (f64, f64) {
        let (mut bytes, mut parts) = (0.0, 0.0);
        for key in 0..count {
            let (key_bytes, of_key) = (self.key_bytes(key), self.part_count(key));
            let more = if of_key > 1 { (of_key - 1) * key_bytes + of_key * PART_BYTES } else { 0 };
            bytes += f64::from(key_bytes + self.value_bytes(key) + more);
            parts += f64::from(of_key);
        }
        (bytes / f64::from(count), parts / f64::from(count))
    }
}

/// Returns the bytes of a value in a full part.
fn part_bytes(key_bytes: u32) -> u32 {
    PAIR_BYTES_MAX - key_bytes - PART_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_shares() {
        let range = |share, least, most| SizeRange { share, least, most };
        let sizes = Sizes(vec![range(9.0, 16, 31), range(1.0, 400, 400)]);
        let all: Vec<u32> = (0..20_000).map(|number| sizes.at(hash(number))).collect();
        let mean = all.iter().map(|size| f64::from(*size)).sum::<f64>() / 20_000.0;
        assert!((mean / sizes.mean() - 1.0).abs() < 0.03, "{mean}, not {}", sizes.mean());
        assert!((16..=31).all(|size| all.contains(&size)) && all.iter().all(|size| *size == 400 || *size < 32));
        assert_eq!((sizes.least(), sizes.most(), sizes.is_fixed()), (16, 400, false));
    }

    #[test]
    fn sizes_are_read_and_printed() {
        for text in ["64", "16..1024", "9:16..64,1:1024", "0.5:4,0.5:5"] {
            assert_eq!(text.parse::<Sizes>().unwrap().to_string(), text);
        }
        for text in ["", "x", "1..", "-1", "1:2:3", "4,", "1..2..3", "a:4"] {
            assert!(text.parse::<Sizes>().unwrap_err().contains("16..1024"), "{text}");
        }
    }

    #[test]
    fn a_large_pair_is_divided_and_nothing_is_lost() {
        for (key, value) in [(4, 504), (16, 1024), (460, 4000), (4, 1 << 16), (508 - 100, 100)] {
            let pairs = Pairs { keys: Sizes::fixed(key), values: Sizes::fixed(value) };
            let parts = pairs.part_count(7);
            let sum: u32 = (0..parts).map(|part| pairs.part_value_bytes(7, part)).sum();
            assert_eq!(sum, value, "{key} and {value} B");
            assert_eq!(parts > 1, key + value > PAIR_BYTES_MAX);
            let longest = pairs.part_value_bytes(7, 0) + key + if parts > 1 { PART_BYTES } else { 0 };
            assert!(longest <= PAIR_BYTES_MAX && pairs.part_value_bytes(7, parts - 1) > 0);
            assert_eq!(pairs.stored(10).1, f64::from(parts));
        }
    }
}
