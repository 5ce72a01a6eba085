//! Measures the hit rate of the model's direct-mapped cache under a long tail, by k and l, for Tables 5 and 6.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Context;
use crate::cache::{Cache, Lookup};
use crate::popularity::Popularity;

const LINE_BITS: u32 = 16;
/// Draws for each line. The first part of them warms the cache.
const DRAWS_PER_LINE: u64 = 3;
/// Values of l at which the hit rate is measured. It is interpolated between them.
const RATIOS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0];

/// Measured hit rates.
pub(super) struct HitRates {
    /// For each k, the hit rates at [`RATIOS`].
    rates: Vec<(f64, [f64; RATIOS.len()])>,
}

impl HitRates {
    pub(super) fn measure(ks: &[f64], context: &mut Context<'_>) -> Self {
        let mut rates = Vec::new();
        for (done, k) in ks.iter().enumerate() {
            context.progress(done, ks.len());
            rates.push((*k, RATIOS.map(|ratio| hit_rate(*k, ratio, context.seed))));
        }
        HitRates { rates }
    }

    /// Returns the hit rate for a measured k. An l below the first of [`RATIOS`] has the hit rate of the first.
    pub(super) fn at(&self, k: f64, ratio: f64) -> f64 {
        let (_, rates) = self.rates.iter().find(|(measured, _)| *measured == k).expect("it was measured");
        let above = RATIOS.partition_point(|measured| *measured < ratio).clamp(1, RATIOS.len() - 1);
        let part = ((ratio - RATIOS[above - 1]) / (RATIOS[above] - RATIOS[above - 1])).clamp(0.0, 1.0);
        rates[above - 1] + part * (rates[above] - rates[above - 1])
    }

    pub(super) fn setting(&self) -> String {
        format!("Hit rates are those of 2^{LINE_BITS} lines, a direct-mapped cache of k times as many, and Zipf 0.99.")
    }
}

fn hit_rate(k: f64, ratio: f64, seed: u64) -> f64 {
    let host_lines = 1_u64 << LINE_BITS;
    let nic_lines = (host_lines as f64 * k).round() as u64;
    let mut cache = Cache::new(nic_lines, host_lines, u16::BITS);
    let popularity = Popularity::long_tail(LINE_BITS, seed);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut asked, mut hits) = (0_u64, 0_u64);
    let draws = host_lines * DRAWS_PER_LINE;
    for draw in 0..draws {
        let line = popularity.draw(&mut random);
        // As in the dispatcher, whose hash is independent of the popularity: this selects a share of the lines.
        if crate::dispatcher::hash(line) as f64 >= ratio * 2_f64.powi(64) {
            continue;
        }
        let found = cache.look_up(line, false);
        if draw >= draws / 2 {
            asked += 1;
            hits += u64::from(found == Lookup::Hit);
        }
    }
    hits as f64 / asked.max(1) as f64
}
