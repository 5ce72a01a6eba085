//! Draws the line of an access: uniform, or with a long tail (Zipf 0.99, KV-Direct, section 5).
//!
//! ```text
//! rank ─▶ permutation of k bits ─▶ line          popular lines are anywhere, as after a hash
//! ```

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::cache::HostLine;
use crate::zipf::Zipf;

/// The skew of the paper's long tail.
const THETA: f64 = 0.99;

/// Draws lines of a memory whose size is a power of two.
#[derive(Clone, Debug)]
pub struct Popularity {
    line_bits: u32,
    salt: u64,
    zipf: Option<Zipf>,
}

impl Popularity {
    /// Returns uniform popularity.
    pub fn uniform(line_bits: u32) -> Self {
        Popularity { line_bits, salt: 0, zipf: None }
    }

    /// Returns a long tail. The salt decides which lines are popular.
    pub fn long_tail(line_bits: u32, salt: u64) -> Self {
        Popularity { line_bits, salt, zipf: Some(Zipf::new(1 << line_bits, THETA)) }
    }

    /// Draws the next line.
    pub fn draw(&self, random: &mut Xoshiro256PlusPlus) -> HostLine {
        match &self.zipf {
            None => random.random_range(0..1 << self.line_bits),
            Some(zipf) => self.scatter(zipf.draw(random)),
        }
    }

    /// Maps a rank to a line. Each step can be inverted, so no two ranks map to one line: an addition, a shift of upper
    /// bits into lower ones, a multiplication by an odd factor.
    fn scatter(&self, rank: u64) -> HostLine {
        let mask = (1 << self.line_bits) - 1;
        let half = self.line_bits.div_ceil(2);
        let mut bits = rank.wrapping_add(self.salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)) & mask;
        for factor in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93] {
            bits = bits.wrapping_mul(factor) & mask;
            bits ^= bits >> half;
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn scattering_is_a_permutation_and_breaks_up_neighbours() {
        for (bits, salt) in [(1, 0), (5, 1), (12, 2), (16, 3)] {
            let popularity = Popularity::long_tail(bits, salt);
            let mut met = vec![false; 1 << bits];
            for rank in 0..1 << bits {
                met[popularity.scatter(rank) as usize] = true;
            }
            assert!(met.into_iter().all(|met| met), "{bits} bits");
        }
        // As with balls thrown into as many bins, 63 % of the sets of a cache get at least one of as many popular
        // lines.
        let popularity = Popularity::long_tail(16, 5);
        let mut sets: Vec<u64> = (0..4096).map(|rank| popularity.scatter(rank) % 4096).collect();
        sets.sort_unstable();
        sets.dedup();
        assert!((0.58..0.68).contains(&(sets.len() as f64 / 4096.0)), "{}", sets.len());
    }

    #[test]
    fn the_first_rank_has_its_share() {
        let popularity = Popularity::long_tail(10, 6);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let first = popularity.scatter(0);
        let hits = (0..100_000).filter(|_| popularity.draw(&mut random) == first).count() as f64 / 1e5;
        let sum: f64 = (1..=1024).map(|rank| f64::from(rank).powf(-THETA)).sum();
        assert!((hits - 1.0 / sum).abs() < 0.005, "{hits}, not {}", 1.0 / sum);
    }
}
