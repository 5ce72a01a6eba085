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

use skep_measure::{Figure, Progress, Rounds, Row as Measurement};

use super::child::{Server, Setting};
use super::client::{Client, Source};
use super::conditions::Conditions;
use super::measure::{LOAD_DEPTH, Load, Sample, figures, load, measure};
use super::plan::Plan;
use super::rows::{Ratio, Row};
use super::template::{Protocol, Template, Verb};
use crate::figures::{cell, millions, ratio_cell};
use crate::keys::PairForm;
use crate::plot::{Group, Plot, exact, in_millions, in_millions_text};
use crate::program::Measured;
use crate::results::Head;
use crate::tables::{Tables, table};

/// Bytes of a cache for each pair. Few buckets of the index are then full, so few pairs are evicted; and the log has room for
/// what the puts append while it is measured.
const ROOM: u64 = 320;
/// Bytes of a cache for each pair, fewer than a pair takes.
const NO_ROOM: u64 = 40;
/// Of this many gets, one may miss at most.
const GETS_PER_MISS: u64 = 1000;

/// The result of a comparison over memcached's protocol.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct MemcachedReport {
    /// The kind is `memcached`.
    #[serde(flatten)]
    pub head: Head,
    /// The settings of the run, and its cores.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// One row for each server and verb.
    pub memcached_rows: Vec<Row>,
    /// Skep's figures divided by those of memcached.
    pub ratios: Vec<Ratio>,
}

const VERBS: [Verb; 3] = [Verb::Get, Verb::GetEach, Verb::Set];

/// Measures both servers in turn.
pub fn compare_memcached(plan: &Plan, progress: &Progress) -> Result<MemcachedReport, String> {
    let setting = Setting::new(plan, &["memcached"])?;
    let rows = VERBS.map(|verb| Measurement::new(format!("{verb:?}"), 2));
    let rounds = Rounds::new(plan.effort(), rows.to_vec());
    progress.expect(3.0 * plan.load_seconds() + rounds.expected_seconds());
    let (_, skep_size) = loaded(setting.skep_cache(plan.keys * NO_ROOM, false)?, plan, progress)?;
    let (skep, _) = loaded(setting.skep_cache(plan.keys * ROOM, true)?, plan, progress)?;
    let (memcached, memcached_size) = loaded(setting.memcached()?, plan, progress)?;
    let servers = [(skep, skep_size), (memcached, memcached_size)];
    let samples = rounds.run(progress, |turn| {
        let server = &servers[turn.side].0;
        let load = Load { form: PairForm::Item, verb: VERBS[turn.row], depth: plan.depth };
        let sample = measure(turn, server, Protocol::Memcached, load, plan)?;
        match sample.tally.misses * GETS_PER_MISS > sample.tally.operations {
            true => Err(format!("{} has lost pairs: {} misses", server.name, sample.tally.misses)),
            false => Ok(sample),
        }
    })?;
    let of_verb = |(verb, of_servers): (Verb, &Vec<Vec<Sample>>)| {
        let row = |((server, bytes_per_pair), samples): (&(Server, f64), &Vec<Sample>)| Row {
            server: server.name.to_owned(),
            verb,
            bytes_per_pair: *bytes_per_pair,
            depths: vec![figures(samples, plan.depth)],
        };
        servers.iter().zip(of_servers).map(row).collect::<Vec<_>>()
    };
    let rows: Vec<Row> = VERBS.into_iter().zip(&samples).flat_map(of_verb).collect();
    let mut ratios = ratios(&rows);
    let ratio = Figure::with_spread(memcached_size / skep_size, 0.0);
    ratios.push(Ratio { name: "bytes for each pair: memcached / skep".to_owned(), ratio });
    Ok(MemcachedReport {
        head: Head::here("memcached"),
        conditions: Conditions::new(plan, &setting),
        memcached_rows: rows,
        ratios,
    })
}

/// Returns the ratios of the rates of Skep and memcached, whose rows follow each other.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let ratio = |pair: &[Row]| Ratio {
        name: format!("{:?}: skep / memcached", pair[0].verb),
        ratio: Figure::of_ratio(&pair[0].depths[0].rates, &pair[1].depths[0].rates),
    };
    rows.chunks_exact(2).map(ratio).collect()
}

impl MemcachedReport {
    /// Computes all figures from the rates of the rounds. Older results have no medians of noisy figures.
    pub(crate) fn compute(&mut self) {
        self.memcached_rows.iter_mut().for_each(Row::compute);
        let computed = ratios(&self.memcached_rows);
        self.ratios.splice(..computed.len(), computed);
    }

    /// Returns the ratio of this name.
    pub fn ratio(&self, name: &str) -> Option<Figure> {
        self.ratios.iter().find(|ratio| ratio.name == name).map(|ratio| ratio.ratio)
    }
}

impl Measured for MemcachedReport {
    fn head(&self) -> &Head {
        &self.head
    }

    fn plot(&self) -> Plot {
        let group = |pair: &[Row]| {
            let bars = pair.iter().map(|row| (row.server.clone(), in_millions(&row.depths[0].ops_per_s)));
            Group::new(format!("{:?} (million/s)", pair[0].verb), bars)
        };
        let mut groups: Vec<Group> = self.memcached_rows.chunks_exact(2).map(group).collect();
        let bars = self.memcached_rows.iter().take(2).map(|row| (row.server.clone(), exact(row.bytes_per_pair)));
        groups.push(Group::new("memory (bytes for each pair)", bars));
        let title = format!(
            "{} million pairs of 8 + 8 B over memcached's protocol, one core a server, {} connections",
            in_millions_text(self.conditions.keys),
            self.conditions.connections
        );
        Plot::new(title, self.origin(), groups)
    }

    fn tables(&self) -> Tables {
        let rows = self.memcached_rows.iter().map(|row| {
            let figures = &row.depths[0];
            vec![
                row.server.clone(),
                format!("{:?}", row.verb),
                cell(&figures.ops_per_s, millions),
                format!("{:.1}", row.bytes_per_pair),
                figures.load_text(),
            ]
        });
        let ratios = self.ratios.iter().map(|ratio| vec![ratio.name.clone(), ratio_cell(&ratio.ratio)]);
        let Conditions { keys, depth, connections, seconds, rounds, cores } = &self.conditions;
        let note = format!(
            "{} pairs of 8 + 8 B, uniform; {} connections, one batch of {} requests in flight on each; medians of {} rounds, \
             {} s together, each after a warm-up until the rate was steady; ratios were calculated round by round. Servers on \
             core {}, client on core {}. Skep has one shard, memcached one thread. Get: one get of all keys of the batch. \
             GetEach: a get for each key, and mn. Bytes for each pair: the growth of the resident memory, divided by the \
             pairs that can be read. A row of Skep has two caches: the speed is that of one with {ROOM} B for each pair, which \
             has room for all of them and is resident from the start, the bytes those of a full one with {NO_ROOM} B for each \
             pair. memcached has both figures from one process. By its default (-R 20), it turns to another connection after \
             20 requests of a batch.",
            keys, connections, depth, rounds, seconds, cores[0], cores[1],
        );
        let header = ["memcached's protocol", "", "M/s", "B/pair", "CPU: server / client, client waiting"];
        Tables { tables: vec![table(&header, 2, rows), table(&["ratio", "×"], 1, ratios)], note }
    }
}

/// Puts all pairs. Returns the server, and the growth of its memory for each pair that it still has.
fn loaded(server: Server, plan: &Plan, progress: &Progress) -> Result<(Server, f64), String> {
    let empty = server.resident_size();
    load(&server, plan, PairForm::Item, progress)?;
    let grown = server.resident_size().saturating_sub(empty) as f64;
    let template = Template::new(Protocol::Memcached, Verb::Get, PairForm::Item, LOAD_DEPTH);
    let mut client = Client::connect(server.front_ends[0].1, template, plan.connections)?;
    let tally = client.run(&mut Source::Each(0..plan.keys), None)?;
    Ok((server, grown / (plan.keys - tally.misses) as f64))
}
