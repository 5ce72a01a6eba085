//! Loads a server, and measures one round of a case against it.

use std::time::Duration;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_measure::{Figure, Times, Work, median};

use super::child::Server;
use super::client::{Client, Source, Tally};
use super::plan::{Plan, ROUNDS};
use super::rows::DepthFigures;
use super::template::{Protocol, Template, Verb};
use crate::keys::{Draw, PairForm};

/// Depth of the batches that load the pairs.
pub(super) const LOAD_DEPTH: usize = 256;

/// The result of one round of a case.
pub(crate) struct Sample {
    pub(crate) tally: Tally,
    server_cpu: f64,
}

/// Puts all pairs, and waits until the server is idle: memcached goes on to enlarge its table in a thread of its own.
pub(crate) fn load(server: &Server, plan: &Plan, form: PairForm) -> Result<(), String> {
    let (protocol, address) = server.front_ends[0];
    let template = Template::new(protocol, Verb::Set, form, LOAD_DEPTH);
    let mut client = Client::connect(address, template, plan.connections)?;
    client.run(&mut Source::Each(0..plan.keys), None).map_err(|error| format!("loading {}: {error}", server.name))?;
    server.wait_until_idle()
}

/// Returns the figures of the rounds of a case.
pub(super) fn figures(samples: &[Sample], depth: usize) -> DepthFigures {
    let rounds = |of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<_>>();
    let rates = rounds(|sample| sample.tally.operations as f64 / sample.tally.seconds);
    DepthFigures {
        depth,
        ops_per_s: Figure::of(&rates),
        rates,
        server_cpu: median(&rounds(|sample| sample.server_cpu)),
        client_cpu: median(&rounds(|sample| sample.tally.client_cpu)),
        client_waiting: median(&rounds(|sample| sample.tally.waiting)),
    }
}

/// Measures one round of a case against one target: the form of its pairs, the verb and the depth.
pub(crate) fn measure(
    server: &Server,
    protocol: Protocol,
    (form, verb, depth): (PairForm, Verb, usize),
    plan: &Plan,
    seed: u64,
) -> Result<Sample, String> {
    let address = server.address(protocol).ok_or("the server has no port for this protocol")?;
    let template = Template::new(protocol, verb, form, depth);
    let mut client = Client::connect(address, template, plan.connections)?;
    let mut source = Source::Drawn(Draw::uniform(Xoshiro256PlusPlus::seed_from_u64(seed), plan.keys));
    let mut slice = None;
    Times::for_slice(Duration::from_secs_f64(plan.seconds / ROUNDS as f64)).measure(|at_least| {
        let begun = server.processor_seconds();
        let tally = client.run(&mut source, Some(at_least))?;
        slice = Some(Sample { tally, server_cpu: (server.processor_seconds() - begun) / tally.seconds });
        let spent = Duration::from_secs_f64(tally.seconds);
        Ok::<_, String>(Work { spent, operations: tally.operations as usize })
    })?;
    Ok(slice.expect("the slice ends a measurement"))
}
