//! Loads a server, and measures one round of a case against it.

use std::time::Duration;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_measure::{Figure, Progress, Turn, Work, median};

use super::child::Server;
use super::client::{Client, Source, Tally};
use super::plan::Plan;
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

impl skep_measure::Sample for Sample {
    fn number(&self) -> f64 {
        self.tally.rate()
    }
}

impl Sample {
    /// Returns the seconds of processor time that the server used for a million operations.
    pub(super) fn server_seconds_per_million(&self) -> f64 {
        self.server_cpu * 1e6 / self.tally.rate()
    }
}

/// Puts all pairs, and waits until the server is idle: memcached goes on to enlarge its table in a thread of its own.
pub(crate) fn load(server: &Server, plan: &Plan, form: PairForm, progress: &Progress) -> Result<(), String> {
    let step = format!("loading {} pairs of {} B into {}", plan.keys, form.key_size() + form.value_size(), server.name);
    progress.begin(step, plan.load_seconds());
    let (protocol, address) = server.front_ends[0];
    let template = Template::new(protocol, Verb::Set, form, LOAD_DEPTH);
    let mut client = Client::connect_by(address, server.tls.as_ref(), template, plan.connections)?;
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

/// The load of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The form of its pairs.
    pub(crate) form: PairForm,
    pub(crate) verb: Verb,
    /// Requests in a batch.
    pub(crate) depth: usize,
}

/// Measures one round of a case against one target.
pub(crate) fn measure(
    turn: Turn,
    server: &Server,
    protocol: Protocol,
    load: Load,
    plan: &Plan,
) -> Result<Sample, String> {
    let Load { form, verb, depth } = load;
    let address = server.address(protocol).ok_or("the server has no port for this protocol")?;
    let template = Template::new(protocol, verb, form, depth);
    let mut client = Client::connect_by(address, server.tls.as_ref(), template, plan.connections)?;
    let mut source = Source::Drawn(Draw::uniform(Xoshiro256PlusPlus::seed_from_u64(seed(turn)), plan.keys));
    let mut slice = None;
    turn.work(|at_least| {
        let begun = server.processor_seconds();
        let tally = client.run(&mut source, Some(at_least))?;
        slice = Some(Sample { tally, server_cpu: (server.processor_seconds() - begun) / tally.seconds });
        let spent = Duration::from_secs_f64(tally.seconds);
        Ok::<_, String>(Work { spent, operations: tally.operations as usize })
    })?;
    Ok(slice.expect("the slice ends a measurement"))
}

/// Returns the seed of the requests: the same for all sides of a row in a round.
fn seed(turn: Turn) -> u64 {
    (turn.round as u64) << 32 | turn.row as u64
}
