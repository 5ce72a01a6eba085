//! The random numbers of the generator and of tests.
//!
//! SplitMix64 (Steele, Lea and Flood, 2014): one addition and one mixing function, so that no other crate is needed
//! to use the generator and a seed means the same everywhere.

use std::ops::RangeInclusive;

use super::Scalar;
use skep_core::function::Element;

/// Elements at the front of a value are chosen with care; the rest of a long one, from this byte on, at random.
const CHOSEN_SIZE_MAX: usize = 256;

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns the sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// Returns one of many independent sequences of a seed.
    pub(crate) fn stream(seed: u64, number: u64) -> Self {
        let mut random = SplitMix64(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        SplitMix64(random.next())
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a number in a range.
    pub(crate) fn within(&mut self, range: RangeInclusive<usize>) -> usize {
        range.start() + self.below((range.end() - range.start() + 1) as u64) as usize
    }

    /// Returns true `part` times in `whole`.
    pub(crate) fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// Returns one of the items.
    pub(crate) fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// Returns an index, with these weights.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        let sum = weights.iter().map(|&weight| u64::from(weight)).sum();
        assert!(sum > 0, "the weights must not all be zero");
        let mut rest = self.below(sum);
        for (index, &weight) in weights.iter().enumerate() {
            match rest.checked_sub(u64::from(weight)) {
                Some(less) => rest = less,
                None => return index,
            }
        }
        unreachable!("the number is below the sum of the weights")
    }

    /// Returns `size` bytes of elements; the last may be incomplete.
    pub(crate) fn elements(&mut self, element: Element, size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size + 8);
        while bytes.len() < size.min(CHOSEN_SIZE_MAX) {
            self.element(element).append_to(&mut bytes);
        }
        while bytes.len() < size {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(size);
        bytes
    }

    /// Returns an element: half of them small numbers, so that comparisons hold, the rest extremes and random bits.
    fn element(&mut self, element: Element) -> Scalar {
        let small = |random: &mut Self| {
            let limit = 1 + random.below(20);
            random.below(limit)
        };
        let bits = match (element, self.below(4)) {
            (_, 0) => self.next(),
            (Element::F32, 1) => {
                let extremes = [-0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, f32::EPSILON];
                let nans = [0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xffff_ffff, 1];
                if self.chance(1, 2) { u64::from(self.choose(&extremes).to_bits()) } else { self.choose(&nans) }
            }
            (Element::F64, 1) => {
                let extremes = [-0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE, f64::EPSILON];
                let nans = [0x7ff8 << 48, 0xfff8 << 48, 0x7ff0_0000_0000_0001, u64::MAX, 1];
                if self.chance(1, 2) { self.choose(&extremes).to_bits() } else { self.choose(&nans) }
            }
            (_, 1) => {
                let sign = 1u64 << (8 * element.width() - 1);
                self.choose(&[0, u64::MAX, sign, sign - 1, sign + 1])
            }
            (Element::F32, _) => u64::from((small(self) as f32 + self.choose(&[0.0, 0.0, 0.5])).to_bits()),
            (Element::F64, _) => (small(self) as f64 + self.choose(&[0.0, 0.0, 0.5])).to_bits(),
            _ => small(self),
        };
        Scalar::from_bits(element, bits)
    }
}

/// Returns the seeds of the tests in this crate's modules.
#[cfg(test)]
pub(crate) fn test_seeds() -> Vec<u64> {
    super::seeds(&[1, 20_171_028, 0x5eed_5eed_5eed_5eed])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the published algorithm from seed 0: a seed in a report always has the same meaning.
    #[test]
    fn the_published_sequence() {
        let mut random = SplitMix64::new(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(random.next(), 0x06c4_5d18_8009_454f);
    }
}
