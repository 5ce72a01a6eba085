//! Random numbers that follow from a seed (SplitMix64).

/// A source of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a source whose numbers follow from `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns a number of 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// Returns true once in `times` on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of the choices.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns the bytes of a number of this width: often 0, the smallest, the largest, or near to them.
    pub fn number_bytes(&mut self, width: usize, is_float: bool) -> [u8; 8] {
        let ones = u64::MAX >> (64 - 8 * width);
        let sign = ones ^ (ones >> 1);
        let special = match (is_float, width) {
            (true, 4) => {
                [0x3f80_0000, 0x7f80_0000, 0x7fc0_0001, 0x7f80_0001, 0x0080_0000, 0x7f7f_ffff, 0x4b80_0000, 0x4f00_0000]
            }
            (true, 8) => [
                0x3ff0_0000_0000_0000,
                0x7ff0_0000_0000_0000,
                0x7ff8_0000_0000_0001,
                0x7ff0_0000_0000_0001,
                0x0010_0000_0000_0000,
                0x7fef_ffff_ffff_ffff,
                0x4330_0000_0000_0000,
                0x43e0_0000_0000_0000,
            ],
            (true, _) => [0x3c00, 0x7c00, 0x7e01, 0x7c01, 0x0400, 0x7bff, 0x6400, 0x0001],
            (false, _) => [1, 2, 3, 7, 10, 100, ones >> 1, sign],
        };
        let bits = match self.below(8) {
            0 => 0,
            1 => ones,
            2 => self.choose(&special),
            3 => self.choose(&special) ^ sign,
            4 => (self.bits() % 17).wrapping_sub(8),
            // A float of moderate size.
            5 if is_float && width == 4 => u64::from((self.below(2000) as f32 / 8.0 - 100.0).to_bits()),
            5 | 6 if is_float && width == 8 => (self.below(2000) as f64 / 8.0 - 100.0).to_bits(),
            5 => self.bits() & 0xff,
            _ => self.bits(),
        };
        (bits & ones).to_le_bytes()
    }
}
