//! The delays of operations in a shard, counted so that every thread can read them at any time.
//!
//! ```text
//!   bucket 4·k + j holds delays from 2ᵏ · (4 + j) / 4 nanoseconds on, up to the next bucket
//! ```
//!
//! A quarter of an octave is fine enough for a tail: a quantile is at most a fifth too large, never too small.

use std::time::Duration;

use crate::counter::Counter;

/// Buckets: up to 2³⁶ nanoseconds, over a minute. The last one holds all that is longer.
const BUCKET_COUNT: usize = 36 * STEPS;
/// Buckets of an octave.
const STEPS: usize = 4;

/// A histogram that one thread writes and all may read.
#[derive(Debug)]
pub(crate) struct Delays {
    buckets: [Counter; BUCKET_COUNT],
}

impl Default for Delays {
    fn default() -> Self {
        Delays { buckets: std::array::from_fn(|_| Counter::default()) }
    }
}

impl Delays {
    /// Records `count` operations with this delay; only for the thread that owns the histogram.
    pub(crate) fn add(&self, delay: Duration, count: u64) {
        self.buckets[bucket_of(delay)].add(count);
    }

    /// Adds the counts to `sum`.
    pub(crate) fn add_to(&self, sum: &mut DelayCounts) {
        for (sum, bucket) in sum.0.iter_mut().zip(&self.buckets) {
            *sum += bucket.get();
        }
    }
}

/// The counts of histograms at a moment.
#[derive(Clone, Debug)]
pub(crate) struct DelayCounts([u64; BUCKET_COUNT]);

impl Default for DelayCounts {
    fn default() -> Self {
        DelayCounts([0; BUCKET_COUNT])
    }
}

impl DelayCounts {
    /// Returns a delay that no more than this share of the operations exceeded; zero if there were none.
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        let total: u64 = self.0.iter().sum();
        let wanted = (total as f64 * quantile).ceil() as u64;
        let mut met = 0;
        let found = self.0.iter().position(|count| {
            met += count;
            met > 0 && met >= wanted
        });
        found.map_or(Duration::ZERO, upper_end)
    }

    /// Returns the number of operations.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Subtracts counts of an earlier moment.
    pub(crate) fn subtract(&mut self, earlier: &DelayCounts) {
        for (count, earlier) in self.0.iter_mut().zip(&earlier.0) {
            *count = count.saturating_sub(*earlier);
        }
    }

    /// Returns delays that double from 1.024 µs on, each with the number of operations that had at most this delay. Only
    /// those are returned with which the number grows.
    pub(crate) fn cumulative(&self) -> Vec<(Duration, u64)> {
        let mut steps = Vec::new();
        let (mut count, mut next) = (0, 0);
        for octave in 10..=BUCKET_COUNT / STEPS {
            let bound = Duration::from_nanos(1 << octave);
            let before = count;
            while next < BUCKET_COUNT && upper_end(next) <= bound {
                count += self.0[next];
                next += 1;
            }
            if count > before {
                steps.push((bound, count));
            }
        }
        steps
    }

    /// Returns the buckets that are not empty, each with its longest delay and its count.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        self.0.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, count)| (upper_end(index), *count))
    }
}

fn bucket_of(delay: Duration) -> usize {
    let nanoseconds = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX).max(STEPS as u64);
    let octave = nanoseconds.ilog2() as usize;
    let step = (nanoseconds >> (octave - STEPS.ilog2() as usize)) as usize % STEPS;
    (octave * STEPS + step).min(BUCKET_COUNT - 1)
}

/// Returns the start of the next bucket.
fn upper_end(index: usize) -> Duration {
    let (octave, step) = ((index + 1) / STEPS, (index + 1) % STEPS);
    Duration::from_nanos((1 << octave) * (STEPS + step) as u64 / STEPS as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BUCKET_COUNT, DelayCounts, Delays, bucket_of, upper_end};

    #[test]
    fn every_delay_lies_in_its_bucket() {
        for nanoseconds in (4..10_000).chain([1 << 20, (1 << 30) - 1, 1 << 30, 60_000_000_000]) {
            let delay = Duration::from_nanos(nanoseconds);
            let bucket = bucket_of(delay);
            assert!(delay < upper_end(bucket) && delay >= upper_end(bucket - 1), "{nanoseconds}");
            assert!(upper_end(bucket) <= delay * 5 / 4 + Duration::from_nanos(1), "{nanoseconds}");
        }
        assert_eq!(bucket_of(Duration::MAX), BUCKET_COUNT - 1);
        assert!(bucket_of(Duration::ZERO) < BUCKET_COUNT);
    }

    #[test]
    fn a_cumulative_distribution_has_all_operations() {
        let delays = Delays::default();
        for (microseconds, count) in [(0, 1), (3, 5), (1000, 7), (100_000_000, 2)] {
            delays.add(Duration::from_micros(microseconds), count);
        }
        let mut counts = DelayCounts::default();
        delays.add_to(&mut counts);
        let steps: Vec<(u128, u64)> =
            counts.cumulative().iter().map(|(delay, count)| (delay.as_micros(), *count)).collect();
        assert_eq!(steps, [(1, 1), (4, 6), (1048, 13), (68_719_476, 15)]);
        assert_eq!(counts.total(), 15);
        counts.subtract(&counts.clone());
        assert_eq!((counts.total(), counts.cumulative()), (0, Vec::new()));
    }

    #[test]
    fn quantiles_are_those_of_all_shards() {
        let shards = [Delays::default(), Delays::default()];
        let mut sum = DelayCounts::default();
        assert_eq!(sum.quantile(0.5), Duration::ZERO);
        shards[0].add(Duration::from_micros(10), 990);
        shards[1].add(Duration::from_millis(1), 10);
        shards.iter().for_each(|shard| shard.add_to(&mut sum));
        for (quantile, microseconds) in [(0.5, 10), (0.99, 10), (0.991, 1000), (1.0, 1000)] {
            let (found, exact) = (sum.quantile(quantile), Duration::from_micros(microseconds));
            assert!(found > exact && found <= exact * 5 / 4, "{quantile}: {found:?}");
        }
        assert_eq!(sum.buckets().map(|(_, count)| count).collect::<Vec<_>>(), [990, 10]);
    }
}
