//! memcached's protocol, spoken by Skep's cache and by memcached: speed of gets and sets, and memory for each pair.
//!
//! | server | speed | memory |
//! |---|---|---|
//! | Skep, one shard | a cache with room for all pairs, resident from the start | another cache, which is full |
//! | memcached, one thread | with room for all pairs | the same process |
//!
//! So a row of Skep has the figures of two caches, each with the size for its figure. Memory is the growth of the resident
//! memory during the load, divided by the pairs that a client can read after it. One shard is also Skep's default on two
//! cores.

use skep_measure::Figure;

use super::child::{Server, Setting};
use super::client::{Client, Source};
use super::measure::{LOAD_DEPTH, figures, load, measure};
use super::plan::{Plan, ROUNDS};
use super::rows::{Ratio, Row};
use super::template::{Protocol, Template, Verb};
use crate::figures::{cell, millions, percent, ratio_cell};
use crate::keys::PairForm;
use crate::results::Origin;
use crate::tables::{Tables, table};

/// Bytes of a cache for each pair. Few buckets of the index are then full, so few pairs are evicted.
const ROOM: u64 = 160;
/// Bytes of a cache for each pair, fewer than a pair takes.
const NO_ROOM: u64 = 40;
/// Of this many gets, one may miss at most.
const GETS_PER_MISS: u64 = 1000;

/// The result of a comparison over memcached's protocol.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct MemcachedReport {
    /// Always `memcached`.
    pub kind: String,
    /// Date and machine.
    #[serde(flatten)]
    pub origin: Origin,
    /// Pairs in every server.
    pub keys: u64,
    /// Requests in a batch.
    pub depth: usize,
    /// Connections of the client.
    pub connections: usize,
    /// Seconds for a case, all its rounds together.
    pub seconds: f64,
    /// Rounds for each case.
    pub rounds: usize,
    /// The core of the servers and that of the client.
    pub cores: [usize; 2],
    /// One row for each server and verb.
    pub memcached_rows: Vec<Row>,
    /// Skep's figures divided by those of memcached.
    pub ratios: Vec<Ratio>,
}

/// Measures both servers in turn. `progress` gets a line of text for each step.
pub fn compare_memcached(plan: &Plan, progress: impl Fn(&str)) -> Result<MemcachedReport, String> {
    let setting = Setting::new(plan, &["memcached"])?;
    progress("filling a cache");
    let (_, skep_size) = loaded(setting.skep_cache(plan.keys * NO_ROOM, false)?, plan)?;
    progress("loading the servers");
    let (skep, _) = loaded(setting.skep_cache(plan.keys * ROOM, true)?, plan)?;
    let (memcached, memcached_size) = loaded(setting.memcached()?, plan)?;
    let servers = [(skep, skep_size), (memcached, memcached_size)];
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for verb in [Verb::Get, Verb::GetEach, Verb::Set] {
        let mut samples = [const { Vec::new() }; 2];
        for round in 0..ROUNDS {
            progress(&format!("round {} of {ROUNDS}: {verb:?}", round + 1));
            for ((server, _), samples) in servers.iter().zip(&mut samples) {
                let case = (PairForm::Item, verb, plan.depth);
                let sample = measure(server, Protocol::Memcached, case, plan, round as u64)?;
                if sample.tally.misses * GETS_PER_MISS > sample.tally.operations {
                    return Err(format!("{} has lost pairs: {} misses", server.name, sample.tally.misses));
                }
                samples.push(sample);
            }
        }
        let of_verb = servers.iter().zip(samples).map(|((server, bytes_per_pair), samples)| Row {
            server: server.name.to_owned(),
            verb,
            bytes_per_pair: *bytes_per_pair,
            depths: vec![figures(&samples, plan.depth)],
        });
        let of_verb: Vec<Row> = of_verb.collect();
        let ratio = Figure::of_ratio(&of_verb[0].depths[0].rates, &of_verb[1].depths[0].rates);
        ratios.push(Ratio { name: format!("{verb:?}: skep / memcached"), ratio });
        rows.extend(of_verb);
    }
    let ratio = Figure::with_spread(memcached_size / skep_size, 0.0);
    ratios.push(Ratio { name: "bytes for each pair: memcached / skep".to_owned(), ratio });
    Ok(MemcachedReport {
        kind: "memcached".to_owned(),
        origin: Origin::here(),
        keys: plan.keys,
        depth: plan.depth,
        connections: plan.connections,
        seconds: plan.seconds,
        rounds: ROUNDS,
        cores: [setting.server_cores[0], setting.client_cores[0]],
        memcached_rows: rows,
        ratios,
    })
}

impl MemcachedReport {
    /// Returns the ratio of this name.
    pub fn ratio(&self, name: &str) -> Option<Figure> {
        self.ratios.iter().find(|ratio| ratio.name == name).map(|ratio| ratio.ratio)
    }

    /// Returns the tables and a note on their settings.
    pub fn tables(&self) -> Tables {
        let rows = self.memcached_rows.iter().map(|row| {
            let figures = &row.depths[0];
            let shares = [figures.server_cpu, figures.client_cpu, figures.client_waiting].map(percent);
            vec![
                row.server.clone(),
                format!("{:?}", row.verb),
                cell(&figures.ops_per_s, millions),
                format!("{:.1}", row.bytes_per_pair),
                format!("{} / {}, {}", shares[0], shares[1], shares[2]),
            ]
        });
        let ratios = self.ratios.iter().map(|ratio| vec![ratio.name.clone(), ratio_cell(&ratio.ratio)]);
        let note = format!(
            "{} pairs of 8 + 8 B, uniform; {} connections, one batch of {} requests in flight on each; medians of {} rounds, \
             {} s together, each after a warm-up until the rate was steady; ratios were calculated round by round. Servers on \
             core {}, client on core {}. Skep has one shard, memcached one thread. Get: one get of all keys of the batch. \
             GetEach: a get for each key, and mn. Bytes for each pair: the growth of the resident memory, divided by the \
             pairs that can be read. A row of Skep has two caches: the speed is that of one with {ROOM} B for each pair, which \
             has room for all of them and is resident from the start, the bytes those of a full one with {NO_ROOM} B for each \
             pair. memcached has both figures from one process. By its default (-R 20), it turns to another connection after \
             20 requests of a batch.",
            self.keys, self.connections, self.depth, self.rounds, self.seconds, self.cores[0], self.cores[1],
        );
        let header = ["memcached's protocol", "", "M/s", "B/pair", "CPU: server / client, client waiting"];
        Tables { tables: vec![table(&header, 2, rows), table(&["ratio", "×"], 1, ratios)], note }
    }
}

/// Puts all pairs. Returns the server, and the growth of its memory for each pair that it still has.
fn loaded(server: Server, plan: &Plan) -> Result<(Server, f64), String> {
    let empty = server.resident_size();
    load(&server, plan, PairForm::Item)?;
    let grown = server.resident_size().saturating_sub(empty) as f64;
    let template = Template::new(Protocol::Memcached, Verb::Get, PairForm::Item, LOAD_DEPTH);
    let mut client = Client::connect(server.front_ends[0].1, template, plan.connections)?;
    let tally = client.run(&mut Source::Each(0..plan.keys), None)?;
    Ok((server, grown / (plan.keys - tally.misses) as f64))
}
