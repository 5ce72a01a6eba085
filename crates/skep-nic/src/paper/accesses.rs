//! A run that several items share: independent accesses of one line each, started at the rate of the pipeline's clock.

use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clock::{Clock, run};
use crate::dispatcher::{DispatchCounts, Dispatcher, Extent, LINE_BYTES, Policy};
use crate::hardware::Hardware;
use crate::popularity::Popularity;
use crate::resource::{Meter, Path};
use crate::time::Time;

/// Accesses and their memory.
pub(super) struct Accesses<'a> {
    pub(super) hardware: &'a Hardware,
    pub(super) extent: Extent,
    pub(super) policy: Policy,
    pub(super) popularity: &'a Popularity,
    /// Share of reads. The other accesses write a line.
    pub(super) read_share: f64,
    /// Number of measured accesses.
    pub(super) count: u32,
    /// Number of accesses that warm the cache's metadata before the run, for each line of the memory.
    pub(super) warm_per_line: f64,
    pub(super) seed: u64,
}

/// The rate of the accesses, and the statistics of the dispatcher.
pub(super) struct Outcome {
    pub(super) mops: f64,
    pub(super) counts: DispatchCounts,
}

impl Accesses<'_> {
    pub(super) fn run(&self) -> Outcome {
        let clock = Rc::new(Clock::default());
        let dispatcher = Dispatcher::new(&clock, self.hardware, self.extent, self.policy, self.seed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut draw = || (self.popularity.draw(&mut random), random.random_bool(self.read_share));
        if dispatcher.caches() {
            for _ in 0..(self.extent.host_lines as f64 * self.warm_per_line) as u64 {
                let (line, reads) = draw();
                dispatcher.warm(line, !reads);
            }
        }
        let cycle = Time::cycle(self.hardware.card.clock_mhz);
        let pipeline = Path::default();
        let meter = Meter::default();
        let drawn = (0..self.count).map(|_| draw());
        let access = async |(line, reads): (u64, bool)| {
            clock.until(pipeline.reserve(clock.now(), cycle)).await;
            let offset = line * u64::from(LINE_BYTES);
            if reads {
                dispatcher.read(offset, LINE_BYTES).await;
            } else {
                dispatcher.write(offset, LINE_BYTES).await;
            }
            meter.count(&clock);
        };
        run(&clock, self.hardware.processor.operations_in_flight as usize, drawn.map(access));
        Outcome { mops: meter.mops(), counts: dispatcher.counts() }
    }
}

impl Outcome {
    /// Returns the share of all accesses that the NIC's DRAM served.
    pub(super) fn near_share(&self) -> f64 {
        self.counts.hits as f64 / self.counts.lines as f64
    }

    /// Returns the share of the cacheable accesses that the NIC's DRAM served.
    pub(super) fn hit_rate(&self) -> f64 {
        self.counts.hits as f64 / self.counts.cacheable.max(1) as f64
    }
}
