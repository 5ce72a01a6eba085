//! Compares key heads, fingerprints or back pointers side by side, without a branch for each.
//!
//! ```text
//! key heads      ├ 2 B ┼ 2 B ┼ ... 8 of them ┤     each: is it below this one?        ▶ 8 bits, the first lowest
//! fingerprints   ├ 1 ┼ 1 ┼ ...    16 of them ┤     each: is it this one?              ▶ 16 bits, the first lowest
//! back pointers  ├ - - 1 1 ┼ ...  16 of them ┤     each: is it below this one, or is it this one?   ▶ twice 16 bits
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
pub(crate) use plain::{below, below_of_two, compare_ranks, equal};
#[cfg(target_arch = "x86_64")]
pub(crate) use sse2::{below, below_of_two, compare_ranks, equal};

/// Words whose ranks are compared at once.
const RANK_COUNT: usize = 16;

/// The comparison of ranks with another one. Bits are those of the words, the first lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranks {
    /// A bit for each rank that is below the other one.
    pub(crate) below: u32,
    /// A bit for each rank that is the other one.
    pub(crate) equal: u32,
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cmpeq_epi16, _mm_cmpgt_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128,
        _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi8, _mm_set1_epi16, _mm_setzero_si128, _mm_slli_epi16,
        _mm_srai_epi32, _mm_srli_epi16,
    };

    use super::{LANES_SIZE, RANK_COUNT, Ranks};

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

    /// Compares the ranks of these words with another one. The rank of a word is its upper half, big-endian and signed.
    #[inline(always)]
    pub(crate) fn compare_ranks(words: &[u32; RANK_COUNT], own: i16) -> Ranks {
        let address = words.as_ptr().cast::<__m128i>();
        // SAFETY: x86-64 has SSE2; the reference is to four times sixteen bytes, and the loads need no alignment.
        unsafe {
            let upper = |index: usize| _mm_srai_epi32::<16>(_mm_loadu_si128(address.add(index)));
            let swapped = |ranks: __m128i| _mm_or_si128(_mm_slli_epi16::<8>(ranks), _mm_srli_epi16::<8>(ranks));
            let low = swapped(_mm_packs_epi32(upper(0), upper(1)));
            let high = swapped(_mm_packs_epi32(upper(2), upper(3)));
            let own = _mm_set1_epi16(own);
            let below = _mm_packs_epi16(_mm_cmpgt_epi16(own, low), _mm_cmpgt_epi16(own, high));
            let equal = _mm_packs_epi16(_mm_cmpeq_epi16(own, low), _mm_cmpeq_epi16(own, high));
            Ranks { below: _mm_movemask_epi8(below) as u32, equal: _mm_movemask_epi8(equal) as u32 }
        }
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod plain {
    use super::{LANES_SIZE, RANK_COUNT, Ranks};

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

    /// Compares the ranks of these words with another one. The rank of a word is its upper half, big-endian and signed.
    #[inline]
    pub(crate) fn compare_ranks(words: &[u32; RANK_COUNT], own: i16) -> Ranks {
        let mut ranks = Ranks { below: 0, equal: 0 };
        for (lane, word) in words.iter().enumerate() {
            let rank = ((word >> 16) as u16).swap_bytes().cast_signed();
            ranks.below |= u32::from(rank < own) << lane;
            ranks.equal |= u32::from(rank == own) << lane;
        }
        ranks
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
            let half = |random: &mut rand_xoshiro::Xoshiro256PlusPlus| bytes[random.random_range(0..LANES_SIZE)];
            let words: [u32; RANK_COUNT] =
                std::array::from_fn(|_| u32::from_le_bytes(std::array::from_fn(|_| half(&mut random))));
            let rank = i16::from_be_bytes([half(&mut random), half(&mut random)]);
            assert_eq!(
                compare_ranks(&words, rank),
                plain::compare_ranks(&words, rank),
                "{context} {words:x?} {rank:#x}"
            );
        }
    }

    #[test]
    fn the_first_lane_is_the_lowest_bit() {
        let mut bytes = [0; LANES_SIZE];
        bytes[2..4].copy_from_slice(&i16::MIN.to_le_bytes());
        assert_eq!(below(&bytes, 0), 0b10);
        assert_eq!(below(&bytes, 1), 0xff);
        assert_eq!(equal(&bytes, 0x80), 0b1000);
        let mut words = [0x0001_ffff; RANK_COUNT];
        words[3] = 0x0100_0000;
        assert_eq!(compare_ranks(&words, 0x0001), Ranks { below: 0, equal: 0b1000 });
        assert_eq!(compare_ranks(&words, 0x0100), Ranks { below: 0b1000, equal: 0xfff7 });
    }
}
