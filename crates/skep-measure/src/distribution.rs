//! The distribution of operations over the records of a YCSB workload: uniform, Zipf, or the latest.
//!
//! Zipf with θ = 0.99, as in KV-Direct (section 5.1). Ranks are drawn by the method of Gray et al., "Quickly generating
//! billion-record synthetic databases" (SIGMOD 1994), figure 6, as YCSB does. Ranks 0 and 1 have exactly their
//! probability. A continuous approximation draws the others; it gives the first ranks together up to 6% more than their
//! share. The approximation is kept, so that figures can be compared with published ones. YCSB scatters the ranks over
//! the records by a hash. There records collide, which changes the distribution. Here a permutation scatters them, so
//! the ranks keep their probabilities.
//!
//! Comparisons in `benches` draw their ranks exactly, by rejection: they are compared with each other alone.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The skew of YCSB.
pub const THETA: f64 = 0.99;

/// The distribution of popularity over the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "clap would turn the help of all flags into pages")]
pub enum Distribution {
    // The record of rank i with probability proportional to 1 / i^θ; ranks are scattered over the records.
    Zipf,
    // All records are equally popular.
    Uniform,
    // Zipf: the record that was loaded last is the most popular.
    Latest,
}

/// Draws record numbers below `record_count`.
#[derive(Debug)]
pub struct Generator {
    distribution: Distribution,
    record_count: u64,
    zipf: Zipf,
    scatter: Scatter,
}

impl Generator {
    /// Returns a generator for `record_count` records, at least 1.
    pub fn new(distribution: Distribution, record_count: u64) -> Self {
        Generator { distribution, record_count, zipf: Zipf::new(record_count), scatter: Scatter::new(record_count) }
    }

    /// Draws the next record.
    pub fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        match self.distribution {
            Distribution::Uniform => random.random_range(0..self.record_count),
            Distribution::Zipf => self.scatter.record_of(self.zipf.rank(random.random())),
            Distribution::Latest => self.record_count - 1 - self.zipf.rank(random.random()),
        }
    }
}

/// Draws ranks with Zipf's probabilities.
#[derive(Debug)]
struct Zipf {
    rank_count: u64,
    /// The sum of `1 / i^θ` over all ranks, from 1.
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(rank_count: u64) -> Self {
        let zeta = zeta(rank_count);
        let eta = (1.0 - (2.0 / rank_count as f64).powf(1.0 - THETA)) / (1.0 - zeta_of_two() / zeta);
        Zipf { rank_count, zeta, alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// Returns the rank, from 0, for a random number `u` in 0..1.
    fn rank(&self, u: f64) -> u64 {
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < zeta_of_two() {
            1
        } else {
            let rank = self.rank_count as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.rank_count - 1)
        }
    }
}

fn zeta_of_two() -> f64 {
    1.0 + 0.5f64.powf(THETA)
}

/// Returns the sum of `1 / i^θ` for `i` from 1 to `count`. The first terms are added one by one, the rest is computed
/// by the formula of Euler and Maclaurin. Its error is below 10⁻⁹ for these terms. Adding up a billion terms would take
/// a minute.
fn zeta(count: u64) -> f64 {
    const EXACT: u64 = 10_000;
    let exact: f64 = (1..=count.min(EXACT)).map(|i| (i as f64).powf(-THETA)).sum();
    if count <= EXACT {
        return exact;
    }
    let (from, to) = (EXACT as f64, count as f64);
    let integral = (to.powf(1.0 - THETA) - from.powf(1.0 - THETA)) / (1.0 - THETA);
    exact + integral + (to.powf(-THETA) - from.powf(-THETA)) / 2.0
}

/// A permutation of the records that separates neighbouring ranks.
#[derive(Debug)]
struct Scatter {
    record_count: u64,
    multiplier: u64,
}

impl Scatter {
    fn new(record_count: u64) -> Self {
        // Multiples of the golden section are spread most evenly. Without a common divisor they reach every record.
        let golden = (record_count as f64 * 0.618_033_988_749_895) as u64;
        let multiplier = (golden.max(1)..).find(|&m| greatest_common_divisor(m, record_count) == 1);
        Scatter { record_count, multiplier: multiplier.expect("a number and its successor have no common divisor") }
    }

    fn record_of(&self, rank: u64) -> u64 {
        let product = u128::from(rank) * u128::from(self.multiplier) % u128::from(self.record_count);
        u64::try_from(product).expect("a remainder is smaller than its divisor")
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::{Distribution, Generator, Scatter, THETA, Zipf, zeta};
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    const SEED: u64 = 20;
    const DRAWS: u32 = 400_000;

    /// Returns how often each record was drawn.
    fn counts(distribution: Distribution, record_count: u64) -> Vec<u32> {
        let generator = Generator::new(distribution, record_count);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut counts = vec![0; usize::try_from(record_count).unwrap()];
        for _ in 0..DRAWS {
            counts[usize::try_from(generator.draw(&mut random)).unwrap()] += 1;
        }
        counts
    }

    fn exact_probability(rank: usize, record_count: u64) -> f64 {
        let sum: f64 = (1..=record_count).map(|i| (i as f64).powf(-THETA)).sum();
        ((rank + 1) as f64).powf(-THETA) / sum
    }

    /// Returns five standard deviations of a binomial distribution.
    fn tolerance(probability: f64) -> f64 {
        5.0 * (probability * (1.0 - probability) / f64::from(DRAWS)).sqrt()
    }

    #[test]
    fn zipf_has_the_exact_probabilities_as_far_as_the_method_goes() {
        for record_count in [2, 10, 1000, 20_000] {
            let drawn = counts(Distribution::Zipf, record_count);
            let scatter = Scatter::new(record_count);
            let share = |rank: usize| {
                f64::from(drawn[usize::try_from(scatter.record_of(rank as u64)).unwrap()]) / f64::from(DRAWS)
            };
            for rank in [0, 1] {
                let exact = exact_probability(rank, record_count);
                assert!((share(rank) - exact).abs() < tolerance(exact), "rank {rank} of {record_count}, seed {SEED}");
            }
            // From the third rank on Gray's method approximates: the first ranks together get up to 6% too much.
            for head in [5, 10, 100, 1000].into_iter().filter(|&head| head as u64 <= record_count) {
                let exact: f64 = (0..head).map(|rank| exact_probability(rank, record_count)).sum();
                let found: f64 = (0..head).map(share).sum();
                assert!(
                    (0.99..1.06).contains(&(found / exact)),
                    "first {head} of {record_count}: {found}, not {exact}, seed {SEED}"
                );
            }
        }
    }

    #[test]
    fn uniform_is_uniform() {
        let drawn = counts(Distribution::Uniform, 100);
        for (record, count) in drawn.iter().enumerate() {
            let share = f64::from(*count) / f64::from(DRAWS);
            assert!((share - 0.01).abs() < tolerance(0.01), "record {record}, seed {SEED}");
        }
    }

    #[test]
    fn the_latest_record_is_the_most_popular() {
        let drawn = counts(Distribution::Latest, 1000);
        let exact = exact_probability(0, 1000);
        assert!((f64::from(drawn[999]) / f64::from(DRAWS) - exact).abs() < tolerance(exact), "seed {SEED}");
        assert!(drawn[999] > drawn[998] && drawn[998] > drawn[900]);
    }

    #[test]
    fn ranks_stay_in_range() {
        for record_count in [1, 2, 3, 10, 1 << 40] {
            let zipf = Zipf::new(record_count);
            for u in [0.0, 0.3, 0.5, 0.999_999, 1.0 - f64::EPSILON / 2.0] {
                assert!(zipf.rank(u) < record_count, "{record_count} {u}");
            }
        }
    }

    #[test]
    fn the_sum_is_right_beyond_the_exact_terms() {
        let exact: f64 = (1..=1_000_000).map(|i| f64::from(i).powf(-THETA)).sum();
        assert!((zeta(1_000_000) - exact).abs() < 1e-8, "{} {exact}", zeta(1_000_000));
    }

    #[test]
    fn scattering_is_a_permutation() {
        for record_count in [1, 2, 3, 4, 5, 6, 64, 1000, 2310, 65_537] {
            let scatter = Scatter::new(record_count);
            let mut reached = vec![false; usize::try_from(record_count).unwrap()];
            for rank in 0..record_count {
                reached[usize::try_from(scatter.record_of(rank)).unwrap()] = true;
            }
            assert!(reached.into_iter().all(|reached| reached), "{record_count}");
        }
    }
}
