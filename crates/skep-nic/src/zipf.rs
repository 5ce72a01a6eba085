//! Draws ranks by Zipf's law, in a time that does not depend on their number.
//!
//! ```text
//! ranks     0  1  2  …  511 │ 512 … 527 │ 528 … 543 │ …       segments: single ranks, then a 32nd of their rank
//! draw      alias table over the segments ─▶ a rank of the segment, accepted as its weight over that of the first
//! ```
//!
//! The table has about a thousand entries for a billion ranks, so it stays in the processor's cache. In a wide segment,
//! all ranks have nearly the weight of the first. So a power is calculated for one draw in 30 at most.

use rand::RngExt;
use rand_distr::Distribution as _;
use rand_distr::weighted::WeightedAliasIndex;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Ranks that have a segment of their own.
const SINGLE: u64 = 512;
/// Part of its first rank that a segment is wide.
const WIDTH_PART: u64 = 32;

/// Zipf's law: the rank r, counted from 0, has the weight (r + 1)^−θ.
#[derive(Clone, Debug)]
pub struct Zipf {
    theta: f64,
    segments: Vec<Segment>,
    chosen: WeightedAliasIndex<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    /// The first rank, counted from 1.
    first: u64,
    width: u64,
    /// Weight of the last rank over that of the first.
    least: f64,
}

impl Zipf {
    /// Returns the law for this number of ranks. With a θ of 0, all of them are equally likely.
    ///
    /// # Panics
    /// If there are no ranks, or θ is negative or not finite.
    pub fn new(ranks: u64, theta: f64) -> Self {
        let mut segments = Vec::new();
        let mut first = 1;
        while first <= ranks {
            let width = if first <= SINGLE { 1 } else { (first / WIDTH_PART).min(ranks + 1 - first) };
            let least = ((first + width - 1) as f64 / first as f64).powf(-theta);
            segments.push(Segment { first, width, least });
            first += width;
        }
        let weights = segments.iter().map(|segment| segment.weight(theta)).collect();
        let chosen = WeightedAliasIndex::new(weights).expect("there are ranks, and the skew is not negative");
        Zipf { theta, segments, chosen }
    }

    /// Draws a rank, counted from 0.
    pub fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        let Segment { first, width, least } = self.segments[self.chosen.sample(random)];
        if width == 1 {
            return first - 1;
        }
        loop {
            let rank = first + random.random_range(0..width);
            let share: f64 = random.random();
            if share < least || share < (rank as f64 / first as f64).powf(-self.theta) {
                return rank - 1;
            }
        }
    }
}

impl Segment {
    /// Returns the sum of the weights of its ranks: the integral from half a rank before the first to half a rank after
    /// the last, with the next term of Euler and Maclaurin.
    fn weight(&self, theta: f64) -> f64 {
        if self.width == 1 {
            return (self.first as f64).powf(-theta);
        }
        let [from, to] = [self.first as f64 - 0.5, (self.first + self.width) as f64 - 0.5];
        let power = 1.0 - theta;
        // Near 1, the difference of powers would lose its digits.
        let integral = if power.abs() < 1e-6 {
            (to / from).ln() * from.powf(power)
        } else {
            (to.powf(power) - from.powf(power)) / power
        };
        let slope = |x: f64| -theta * x.powf(-theta - 1.0);
        integral - (slope(to) - slope(from)) / 24.0
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_segment_weighs_as_much_as_its_ranks() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.5] {
            for (first, width) in [(513, 16), (100_000, 3125), (7, 1)] {
                let sum: f64 = (first..first + width).map(|rank| (rank as f64).powf(-theta)).sum();
                let weight = Segment { first, width, least: 0.0 }.weight(theta);
                assert!((weight / sum - 1.0).abs() < 1e-9, "θ {theta}, {first}: {weight}, not {sum}");
            }
        }
    }

    #[test]
    fn ranks_have_their_shares() {
        const DRAWS: u32 = 400_000;
        for (ranks, theta) in [(1, 0.99), (600, 0.0), (5000, 0.99), (100_000, 1.5)] {
            let zipf = Zipf::new(ranks, theta);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
            let bounds = [1, 10, 100, 530, 1000, ranks].map(|bound: u64| bound.min(ranks));
            let mut below = [0_u32; 6];
            for _ in 0..DRAWS {
                let rank = zipf.draw(&mut random);
                assert!(rank < ranks);
                bounds.iter().zip(&mut below).for_each(|(bound, count)| *count += u32::from(rank < *bound));
            }
            let sum = |to: u64| (1..=to).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
            for (bound, count) in bounds.iter().zip(below) {
                let [share, expected] = [f64::from(count) / f64::from(DRAWS), sum(*bound) / sum(ranks)];
                assert!((share - expected).abs() < 0.004, "{ranks}, θ {theta}, {bound}: {share}, not {expected}");
            }
        }
    }

    #[test]
    fn a_billion_ranks_need_few_segments() {
        assert!(Zipf::new(1_000_000_000, 0.99).segments.len() < 1100);
    }
}
