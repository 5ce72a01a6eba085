//! The load dispatch ratio at which a workload is fastest. The paper tunes it for each point (section 5.2.1).
//!
//! ```text
//! rate   ▁▃▆█████▇▆▄▂        low and high: where the rate falls below 97 % of the best
//! ratio  0  └──┬──┘   1      the middle of this plateau is recommended, and its ends say how much it matters
//! ```
//!
//! Near the best ratio, rates differ by less than the variation of a run. So the fastest of several ratios would depend
//! on the seed, and the middle of the plateau hardly does.

use super::corpus::{Corpus, Workload};
use crate::dispatcher::Policy;

/// Operations of a run that only compares load dispatch ratios.
const TUNING_COUNT: u32 = 5_000;
/// Share of the best rate that the plateau has.
const PLATEAU: f64 = 0.97;
/// Ratios that are measured first, in twentieths.
const COARSE: [u32; 6] = [0, 4, 8, 12, 16, 20];
/// Distance of the ratios that are measured beside the best of these.
const FINE: u32 = 2;

/// The best load dispatch ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuned {
    /// The middle of the plateau, in twentieths.
    pub ratio: f64,
    /// The smallest ratio whose rate is within 3 % of the best.
    pub low: f64,
    /// The largest such ratio.
    pub high: f64,
}

impl Corpus {
    /// Returns the load dispatch ratio at which a workload is fastest.
    pub(crate) fn tuned(&mut self, workload: &Workload) -> Tuned {
        plateau(|ratio| {
            let policy = Policy::Dispatch(ratio);
            self.run(&Workload { policy, count: workload.count.min(TUNING_COUNT), ..*workload }).carried_mops
        })
    }
}

/// A measured rate.
#[derive(Clone, Copy)]
struct Rate {
    twentieths: u32,
    mops: f64,
}

/// Rates in the order of their ratios.
struct Rates(Vec<Rate>);

/// Returns the plateau of a rate that rises up to one best ratio and then falls.
fn plateau(mut rate: impl FnMut(f64) -> f64) -> Tuned {
    let mut rates = Rates(Vec::new());
    let mut measure = |rates: &mut Rates, twentieths: u32| {
        let at = rates.0.partition_point(|known| known.twentieths < twentieths);
        if rates.0.get(at).is_none_or(|known| known.twentieths != twentieths) {
            rates.0.insert(at, Rate { twentieths, mops: rate(f64::from(twentieths) / 20.0) });
        }
    };
    COARSE.iter().for_each(|ratio| measure(&mut rates, *ratio));
    let best = rates.0[rates.best()].twentieths;
    measure(&mut rates, best.saturating_sub(FINE));
    measure(&mut rates, (best + FINE).min(20));
    for [inner, outer] in rates.crossings().into_iter().flatten() {
        measure(&mut rates, u32::midpoint(inner.twentieths, outer.twentieths));
    }
    let least = PLATEAU * rates.0[rates.best()].mops;
    let ends = rates.crossings().map(|pair| {
        pair.map(|[inner, outer]| {
            let part = (inner.mops - least) / (inner.mops - outer.mops);
            let [from, to] = [inner, outer].map(|rate| f64::from(rate.twentieths));
            (from + part * (to - from)) / 20.0
        })
    });
    let (low, high) = (ends[0].unwrap_or(0.0), ends[1].unwrap_or(1.0));
    Tuned { ratio: (f64::midpoint(low, high) * 20.0).round() / 20.0, low, high }
}

impl Rates {
    /// Returns the index of the best rate.
    fn best(&self) -> usize {
        (0..self.0.len())
            .max_by(|one, other| self.0[*one].mops.total_cmp(&self.0[*other].mops))
            .expect("there are rates")
    }

    /// Returns the two neighbours between which the rate leaves the plateau, below and above the best: first the inner
    /// one. `None` if the plateau reaches the end.
    fn crossings(&self) -> [Option<[Rate; 2]>; 2] {
        let best = self.best();
        let is_outside = |index: &usize| self.0[*index].mops < PLATEAU * self.0[best].mops;
        let below = (0..best).rev().find(is_outside);
        let above = (best..self.0.len()).find(is_outside);
        [below.map(|index| [self.0[index + 1], self.0[index]]), above.map(|index| [self.0[index - 1], self.0[index]])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_plateau_is_found() {
        // A hill whose sides fall by the rate each over the ratio of 1.
        let hill = |peak: f64| plateau(|ratio| 100.0 * (1.0 - (ratio - peak).abs()));
        assert_eq!(hill(0.4).ratio, 0.4);
        assert!((hill(0.4).high - 0.43).abs() < 0.011 && (hill(0.4).low - 0.37).abs() < 0.011, "{:?}", hill(0.4));
        assert_eq!((hill(0.0).low, hill(1.0).high), (0.0, 1.0));
        assert_eq!(plateau(|_| 7.0), Tuned { ratio: 0.5, low: 0.0, high: 1.0 });
        // Bounded by the clock between 0.25 and 0.85.
        let clock = plateau(|ratio| 100.0 - (0.25 - ratio).max(ratio - 0.85).max(0.0) * 200.0);
        assert_eq!(clock.ratio, 0.55);
        assert!((clock.low - 0.235).abs() < 0.06 && (clock.high - 0.865).abs() < 0.06, "{clock:?}");
    }
}
