//! Compares key heads or fingerprints side by side, without a branch for each.
//!
//! ```text
//! key heads      ├ 2 B ┼ 2 B ┼ ... 8 of them ┤     each: is it below this one?        ▶ 8 bits, the first lowest
//! fingerprints   ├ 1 ┼ 1 ┼ ...    16 of them ┤     each: is it this one?              ▶ 16 bits, the first lowest
//! ```
//!
//! Sixteen bytes are one comparison of SSE2, which every x86-64 processor has. Other processors use plain numbers,
//! which are tested against SSE2.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "loads of sixteen bytes, and comparisons of SSE2"))]

/// Bytes that are compared at once.
pub(crate) const LANES_SIZE: usize = 16;
/// Key heads in them.
pub(crate) const KEY_HEAD_LANES: usize = LANES_SIZE / 2;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use plain::{below, below_of_two, equal};
#[cfg(target_arch = "x86_64")]
pub(crate) use sse2::{below, below_of_two, equal};

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_cmpgt_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi8,
        _mm_set1_epi16, _mm_setzero_si128,
    };

    use super::LANES_SIZE;

    /// Returns a bit for each key head (little-endian) that is below this one.
    #[inline(always)]
    pub(crate) fn below(key_heads: &[u8; LANES_SIZE], own: i16) -> u32 {
        // SAFETY: x86-64 has SSE2; the reference is to sixteen bytes, and the load needs no alignment.
        unsafe {
            let below = _mm_cmpgt_epi16(_mm_set1_epi16(own), _mm_loadu_si128(key_heads.as_ptr().cast()));
            _mm_movemask_epi8(_mm_packs_epi16(below, _mm_setzero_si128())) as u32
        }
    }

    /// Does the same for twice as many, in one mask.
    #[inline(always)]
    pub(crate) fn below_of_two(low: &[u8; LANES_SIZE], high: &[u8; LANES_SIZE], own: i16) -> u32 {
        // SAFETY: x86-64 has SSE2; the references are to sixteen bytes each, and the loads need no alignment.
        unsafe {
            let own = _mm_set1_epi16(own);
            let low = _mm_cmpgt_epi16(own, _mm_loadu_si128(low.as_ptr().cast()));
            let high = _mm_cmpgt_epi16(own, _mm_loadu_si128(high.as_ptr().cast()));
            _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
        }
    }

    /// Returns a bit for each byte that is equal to this one.
    #[inline(always)]
    pub(crate) fn equal(bytes: &[u8; LANES_SIZE], own: u8) -> u32 {
        // SAFETY: x86-64 has SSE2; the reference is to sixteen bytes, and the load needs no alignment.
        unsafe {
            let all = _mm_loadu_si128(bytes.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_set1_epi8(own as i8))) as u32
        }
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod plain {
    use super::LANES_SIZE;

    /// Returns a bit for each key head (little-endian) that is below this one.
    #[inline]
    pub(crate) fn below(key_heads: &[u8; LANES_SIZE], own: i16) -> u32 {
        let key_heads = key_heads.as_chunks::<2>().0.iter().enumerate();
        key_heads.map(|(lane, key_head)| u32::from(i16::from_le_bytes(*key_head) < own) << lane).sum()
    }

    /// Does the same for twice as many, in one mask.
    #[inline]
    pub(crate) fn below_of_two(low: &[u8; LANES_SIZE], high: &[u8; LANES_SIZE], own: i16) -> u32 {
        below(low, own) | below(high, own) << super::KEY_HEAD_LANES
    }

    /// Returns a bit for each byte that is equal to this one.
    #[inline]
    pub(crate) fn equal(bytes: &[u8; LANES_SIZE], own: u8) -> u32 {
        bytes.iter().enumerate().map(|(lane, byte)| u32::from(*byte == own) << lane).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_compared_as_numbers_are() {
        use rand::{RngExt, SeedableRng};
        let seed = 7;
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        for round in 0..100_000 {
            // Bytes at the ends of their range, so that lanes agree and signs differ.
            let bytes: [u8; LANES_SIZE] = std::array::from_fn(|_| [0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)]);
            let own = random.random_range(0..LANES_SIZE - 1);
            let (key_head, byte) = (i16::from_le_bytes([bytes[own], bytes[own + 1]]), bytes[own]);
            let context = format!("seed {seed} round {round}: {bytes:?} {key_head:#x}");
            assert_eq!(below(&bytes, key_head), plain::below(&bytes, key_head), "{context}");
            let mut others = bytes;
            others.reverse();
            let of_two = plain::below_of_two(&bytes, &others, key_head);
            assert_eq!(below_of_two(&bytes, &others, key_head), of_two, "{context}");
            assert_eq!(equal(&bytes, byte), plain::equal(&bytes, byte), "{context}");
        }
    }

    #[test]
    fn the_first_lane_is_the_lowest_bit() {
        let mut bytes = [0; LANES_SIZE];
        bytes[2..4].copy_from_slice(&i16::MIN.to_le_bytes());
        assert_eq!(below(&bytes, 0), 0b10);
        assert_eq!(below(&bytes, 1), 0xff);
        assert_eq!(equal(&bytes, 0x80), 0b1000);
    }
}
