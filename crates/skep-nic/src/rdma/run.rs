//! Many verbs at once: processes that post to the NICs of their machines (HERD, sections 3.3 and 4.1.1).
//!
//! ```text
//! outbound   processes of the server ─▶ its NIC ─▶ a random client of each
//! inbound    processes of all machines ─▶ NIC of each machine ─▶ NIC of the server, for a random process there
//! ```
//!
//! A process posts one operation after the other. Operations are unsignaled: the process waits for the NIC only if it
//! has as many in flight as its queue holds.

use std::cell::RefCell;
use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::card::RdmaNic;
use super::nic::{Nic, Verb};
use crate::clock::{self, Clock};
use crate::resource::{Meter, Path};
use crate::time::Time;

/// Processes that post operations.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Machines with a NIC each.
    pub machines: u32,
    /// Processes of a machine.
    pub processes: u32,
    /// Queue pairs of a process. One of them is drawn for each operation.
    pub queue_pairs: u32,
    /// The verb of all operations.
    pub verb: Verb,
    /// Bytes of the payload.
    pub payload: u32,
    /// Operations of a run, rounded up to a multiple of those in flight.
    pub operations: u32,
}

/// The results of a run. Of several NICs, shares are means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Million operations per second.
    pub mops: f64,
    /// Share of the time in which work requests were written to the NIC.
    pub pio: f64,
    /// Share of the time in which the engine handled outbound verbs.
    pub engine: f64,
    /// Share of the outbound verbs whose contexts were not on the NIC.
    pub miss_ratio: f64,
}

/// Runs operations to machines whose NICs take no time.
pub fn outbound(card: &RdmaNic, load: Load, seed: u64) -> Outcome {
    drive(card, load, seed, false)
}

/// Runs WRITEs to one server.
///
/// # Panics
/// If the verb is another.
pub fn inbound(card: &RdmaNic, load: Load, seed: u64) -> Outcome {
    assert_eq!(load.verb, Verb::Write, "the rate of another inbound verb is not known");
    drive(card, load, seed, true)
}

fn drive(card: &RdmaNic, load: Load, seed: u64, has_server: bool) -> Outcome {
    let Load { machines, processes, queue_pairs, verb, payload, operations } = load;
    let clock = Rc::new(Clock::default());
    let mut seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut nic = |queue_pairs: u32| Nic::new(Rc::clone(&clock), card, queue_pairs, seeds.random());
    let server = has_server.then(|| nic(1));
    let nics: Vec<Nic> = (0..machines).map(|_| nic(processes * queue_pairs)).collect();
    let cores: Vec<Path> = (0..machines * processes).map(|_| Path::default()).collect();
    let random = RefCell::new(Xoshiro256PlusPlus::seed_from_u64(seeds.random()));
    let meter = Meter::default();
    let width = machines * processes * card.process.operations_in_flight;
    // Posts one operation after the other. A process has as many of these loops as its queue holds operations.
    let post = async |number: u32| {
        let core = number % (machines * processes);
        let (nic, first) = (&nics[(core / processes) as usize], core % processes * queue_pairs);
        for _ in 0..operations.div_ceil(width) {
            let posted = cores[core as usize].reserve(clock.now(), Time::from_ns(card.process.post_ns));
            clock.until(posted).await;
            let queue_pair = first + random.borrow_mut().random_range(0..queue_pairs);
            nic.outbound(verb, payload, queue_pair).await;
            if let Some(server) = &server {
                server.inbound_write().await;
            }
            meter.count(&clock);
        }
    };
    clock::run(&clock, width as usize, (0..width).map(post));
    let mean = |of: fn(&Nic) -> f64| nics.iter().map(of).sum::<f64>() / f64::from(machines);
    let share = |busy: fn(&Nic) -> Time| {
        nics.iter().map(|nic| busy(nic).share_of(clock.now())).sum::<f64>() / f64::from(machines)
    };
    Outcome {
        mops: meter.mops(),
        pio: share(Nic::pio_busy),
        engine: share(Nic::outbound_busy),
        miss_ratio: mean(Nic::miss_ratio),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load =
        Load { machines: 1, processes: 16, queue_pairs: 1, verb: Verb::Write, payload: 0, operations: 20_000 };

    fn near(outcome: &Outcome, mops: f64) {
        assert!((outcome.mops / mops - 1.0).abs() < 0.02, "{outcome:?}, not {mops}");
    }

    #[test]
    fn the_slowest_part_bounds_the_rate() {
        let mut card = RdmaNic::of_herd();
        (card.engine.outbound_write_mops, card.engine.outbound_read_mops) = (40.0, 20.0);
        card.engine.inbound_write_mops = 30.0;
        (card.pio.million_units_per_s, card.process.post_ns) = (60.0, 100.0);
        near(&outbound(&card, Load { processes: 2, ..LOAD }, 1), 20.0);
        near(&outbound(&card, LOAD, 1), 40.0);
        near(&outbound(&card, Load { payload: 29, ..LOAD }, 1), 30.0);
        near(&outbound(&card, Load { verb: Verb::Send, payload: 61, ..LOAD }, 1), 20.0);
        near(&outbound(&card, Load { verb: Verb::Read, payload: 256, ..LOAD }, 1), 20.0);
        near(&inbound(&card, Load { machines: 2, processes: 1, ..LOAD }, 1), 20.0);
        near(&inbound(&card, Load { machines: 4, processes: 4, ..LOAD }, 1), 30.0);
    }

    /// The control of Figure 6: queue pairs cost nothing if all contexts are on the NIC.
    #[test]
    fn only_contexts_that_are_not_cached_cost_something() {
        let mut card = RdmaNic::of_herd();
        let load = Load { queue_pairs: 16, ..LOAD };
        let missing = outbound(&card, load, 1);
        assert!(missing.mops < 0.3 * card.engine.outbound_write_mops, "{missing:?}");
        let expected = 1.0 - f64::from(card.contexts.cached) / 256.0;
        assert!((missing.miss_ratio - expected).abs() < 0.02, "{missing:?}, not {expected}");
        card.contexts.cached = 256;
        let cached = outbound(&card, load, 1);
        near(&cached, card.engine.outbound_write_mops);
        assert_eq!(cached.miss_ratio, 0.0);
    }

    /// The control of Figure 4: words in place of lines, at the same bandwidth, let the rate fall gradually.
    #[test]
    fn without_write_combining_the_rate_has_no_steps_of_64_bytes() {
        let card = RdmaNic::of_herd();
        let mut words = card.clone();
        (words.pio.unit_bytes, words.pio.million_units_per_s) = (8, card.pio.million_units_per_s * 8.0);
        let rates = |card: &RdmaNic| [24, 28, 32, 36].map(|payload| outbound(card, Load { payload, ..LOAD }, 1).mops);
        let (lines, words) = (rates(&card), rates(&words));
        assert!(lines[1] > 0.99 * lines[0] && lines[2] < 0.8 * lines[1], "{lines:?}");
        assert!(words.windows(2).all(|two| two[1] > 0.88 * two[0]), "{words:?}");
    }
}
