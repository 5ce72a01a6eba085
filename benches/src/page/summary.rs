//! The first screen of the page: one table, one picture, and what was asked for and not reached.
//!
//! ```text
//! of each kind the latest result ─▶ lines: Skep, the best other, the limit ─▶ table, picture
//!                                └▶ goals: asked, measured ───────────────▶ table of those not reached
//! ```

use std::path::Path;

use skep_measure::{Figure, NOISY, SPREAD_MAX};

use super::Saved;
use crate::figures::{cell, millions, ratio_cell};
use crate::plot::{Group, Plot};
use crate::tables::{Tables, table};

/// A figure of Skep, with what a user would take instead and with the limit.
struct Line {
    what: &'static str,
    /// Operations per second.
    skep: Figure,
    /// The name of the fastest other, and Skep's rate divided by its.
    other: Option<(String, Figure)>,
    /// Skep's rate divided by that of the limit.
    of_limit: Option<Figure>,
}

/// A figure that was asked for.
struct Goal {
    what: &'static str,
    at_least: f64,
    source: Source,
}

/// Where a figure is found.
enum Source {
    /// The share of the limit of a case of the hash store with pairs of 10 B.
    Engine(&'static str),
    /// A ratio of the comparison of servers.
    Servers(&'static str),
    /// A ratio of the comparison over memcached's protocol.
    Memcached(&'static str),
}

const fn goal(what: &'static str, at_least: f64, source: Source) -> Goal {
    Goal { what, at_least, source }
}

/// The goals that the project has set itself.
const GOALS: [Goal; 26] = [
    goal("hash store, get / limit", 0.65, Source::Engine("get_uniform")),
    goal("hash store, put / limit", 0.60, Source::Engine("put_existing")),
    goal("hash store, fetch-add / limit", 0.60, Source::Engine("fetch_add_uniform")),
    goal("hash store, fetch-add on one key / limit", 2.0, Source::Engine("fetch_add_one_key")),
    goal("hash store, get, Zipf / limit", 0.55, Source::Engine("ycsb_c_zipf")),
    goal("hash store, put of a new key / limit", 0.40, Source::Engine("put_new")),
    goal("hash store, delete / limit", 0.40, Source::Engine("delete")),
    goal("server, native, GET, depth 64 / bare echo", 0.80, Source::Servers("Get: native / bare echo, depth 64")),
    goal("server, RESP, GET, depth 64 / bare echo", 0.65, Source::Servers("Get: RESP / bare echo, depth 64")),
    goal("server, native, GET, best depths / redis", 16.0, Source::Servers("Get: native / redis, best depths")),
    goal("server, RESP, GET, depth 64 / redis", 5.0, Source::Servers("Get: RESP / redis, depth 64")),
    goal("server, RESP, SET, depth 64 / redis", 5.0, Source::Servers("Set: RESP / redis, depth 64")),
    goal("server, RESP, GET, depth 1 / redis", 1.0, Source::Servers("Get: RESP / redis, depth 1")),
    goal("server, RESP, SET, depth 1 / redis", 1.0, Source::Servers("Set: RESP / redis, depth 1")),
    goal("server, RESP, SET with EX, depth 64 / redis", 3.0, Source::Servers("SetExpiring: RESP / redis, depth 64")),
    goal("server, RESP, one MULTI of 5 INCR / redis", 1.0, Source::Servers("Transaction: RESP / redis, depth 5")),
    goal("server, RESP, 12 MULTI of 5 INCR / redis", 1.0, Source::Servers("Transaction: RESP / redis, depth 60")),
    goal(
        "redis-benchmark, SET, depth 32, default / redis",
        3.0,
        Source::Servers("set by redis-benchmark, default settings, depth 32: skep / redis"),
    ),
    goal(
        "redis-benchmark, GET, depth 32, default / redis",
        3.0,
        Source::Servers("get by redis-benchmark, default settings, depth 32: skep / redis"),
    ),
    goal(
        "redis-benchmark, SET, depth 1, default / redis",
        1.2,
        Source::Servers("set by redis-benchmark, default settings, depth 1: skep / redis"),
    ),
    goal(
        "redis-benchmark, GET, depth 1, default / redis",
        1.2,
        Source::Servers("get by redis-benchmark, default settings, depth 1: skep / redis"),
    ),
    goal(
        "redis-benchmark, MSET, depth 1, 2 shards / redis",
        1.0,
        Source::Servers("mset by redis-benchmark, default settings, 2 shards, depth 1: skep / redis"),
    ),
    goal(
        "redis-benchmark, MSET, depth 32, 2 shards / redis",
        1.0,
        Source::Servers("mset by redis-benchmark, default settings, 2 shards, depth 32: skep / redis"),
    ),
    goal("memcached's protocol, GET, depth 64 / memcached", 8.0, Source::Memcached("Get: skep / memcached")),
    goal("memcached's protocol, SET, depth 64 / memcached", 8.0, Source::Memcached("Set: skep / memcached")),
    goal(
        "bytes for 8 + 8 B: memcached / skep's full cache",
        2.0,
        Source::Memcached("bytes for each pair: memcached / skep"),
    ),
];

/// The latest result of each kind that the summary shows.
#[derive(Default)]
pub(super) struct Summary<'a> {
    hash: Option<&'a crate::engine::Report>,
    ordered_limit: Option<&'a crate::engine::Report>,
    maps: Option<&'a crate::maps::Report>,
    ordered: Option<&'a crate::ordered::Report>,
    servers: Option<&'a crate::servers::Report>,
    memcached: Option<&'a crate::servers::MemcachedReport>,
}

impl<'a> Summary<'a> {
    /// Chooses among the results of a machine, in the order of their dates.
    pub(super) fn of(results: impl Iterator<Item = &'a Saved>) -> Self {
        let mut summary = Summary::default();
        for saved in results {
            match saved {
                Saved::Engine(report) if report.is_ordered() => summary.ordered_limit = Some(report),
                Saved::Engine(report) if report.engine.kv_size == 10 => summary.hash = Some(report),
                Saved::Maps(report) => summary.maps = Some(report),
                Saved::Ordered(report) => summary.ordered = Some(report),
                Saved::Servers(report) => summary.servers = Some(report),
                Saved::Memcached(report) => summary.memcached = Some(report),
                Saved::Engine(_)
                | Saved::Honeycomb(_)
                | Saved::Shards(_)
                | Saved::Durability(_)
                | Saved::Vectors(_)
                | Saved::Latency(_) => {}
            }
        }
        summary
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some(maps) = self.maps {
            for (what, case, of_limit) in [
                ("hash store, GET in batches", 0, "get_uniform"),
                ("hash store, PUT in batches", 1, "put_existing"),
                ("hash store, fetch-add in batches", 2, "fetch_add_uniform"),
            ] {
                let other = Some((maps.best[case].clone(), maps.over_best[case]));
                lines.push(Line {
                    what,
                    skep: maps.rows[0].ops_per_s[case],
                    other,
                    of_limit: share(self.hash, of_limit),
                });
            }
        }
        if let Some(ordered) = self.ordered {
            for (what, name, of_limit) in [
                ("ordered store, GET in batches", "GET in batches (YCSB C, uniform)", "get_uniform"),
                ("ordered store, GET, one at a time", "GET, one at a time", "get_single_uniform"),
                ("ordered store, scans in batches", "scans in batches", "scan_24_uniform"),
                ("ordered store, PUT in batches", "PUT", "put_existing"),
            ] {
                let Some(case) = ordered.cases.iter().position(|case| case == name) else { continue };
                let other = Some((ordered.best[case].clone(), ordered.over_best[case]));
                let of_limit = share(self.ordered_limit, of_limit);
                lines.push(Line { what, skep: ordered.rows[0].ops_per_s[case], other, of_limit });
            }
        }
        if let Some(servers) = self.servers {
            for (what, server, verb) in [
                ("server, native protocol, GET", "native", crate::servers::Verb::Get),
                ("server, native protocol, SET", "native", crate::servers::Verb::Set),
                ("server, RESP, GET", "RESP", crate::servers::Verb::Get),
                ("server, RESP, SET", "RESP", crate::servers::Verb::Set),
            ] {
                let depth = servers.conditions.depth;
                let ratio = |peer: &str| servers.ratio(&format!("{verb:?}: {server} / {peer}, depth {depth}"));
                let Some(skep) = servers.rate(&format!("skep, {server}"), verb) else { continue };
                // A noisy ratio may be the lowest: it counts as that, and the line is noisy.
                let least = |(_, over): &(&str, Figure)| over.median().unwrap_or(0.0);
                let others = ["redis", "memcached"].into_iter().filter_map(|peer| Some((peer, ratio(peer)?)));
                let other = others.min_by(|a, b| least(a).total_cmp(&least(b)));
                let other = other.map(|(peer, over)| (peer.to_owned(), over));
                lines.push(Line { what, skep, other, of_limit: ratio("bare echo") });
            }
        }
        lines
    }

    /// Returns the table and that of the goals, and nothing if there are no results of these kinds.
    pub(super) fn markdown(&self, picture: &str) -> String {
        let lines = self.lines();
        if lines.is_empty() {
            return String::new();
        }
        let rows = lines.iter().map(|line| {
            let (name, over) =
                line.other.as_ref().map_or(("-", "-".to_owned()), |(name, over)| (name, ratio_cell(over)));
            let of_limit = line.of_limit.as_ref().map_or("-".to_owned(), ratio_cell);
            vec![line.what.to_owned(), cell(&line.skep, millions), name.to_owned(), over, of_limit]
        });
        let header = ["", "M/s", "best other", "skep / best other", "skep / limit"];
        let goals = GOALS.iter().filter_map(|goal| {
            let figure = match goal.source {
                Source::Engine(case) => share(self.hash, case),
                Source::Servers(name) => self.servers.and_then(|servers| servers.ratio(name)),
                Source::Memcached(name) => self.memcached.and_then(|memcached| memcached.ratio(name)),
            };
            let figure = figure?;
            let verdict = match figure.median() {
                Some(median) if median >= goal.at_least => "reached",
                Some(_) => "not reached",
                None => NOISY,
            };
            Some(vec![goal.what.to_owned(), format!("{:.2}", goal.at_least), ratio_cell(&figure), verdict.to_owned()])
        });
        let goals: Vec<Vec<String>> = goals.collect();
        let tables = vec![table(&header, 1, rows), table(&["goal", "asked", "measured", ""], 1, goals)];
        let note = "*Depth* is the number of requests that a connection has in flight. The limit of a server is a bare echo: a \
                    server that returns as many bytes, and has no store. That of a store is a loop that touches only the lines \
                    that an ideal store would. Redis and memcached are servers on one core, as Skep is here. Each comparison \
                    has its own settings and depths: see the page of the machine.";
        format!(
            "\n{}\n\n![Skep beside the best other]({picture})\n",
            Tables { tables, note: note.to_owned() }.markdown()
        )
    }

    /// Draws how many times as fast as the best other Skep is.
    pub(super) fn write_picture(&self, path: &Path) -> Result<(), String> {
        let bars = self.lines().into_iter().filter_map(|line| {
            let (_, over) = line.other?;
            Some((format!("skep, {}", line.what), over))
        });
        let groups = vec![Group::new("times as fast as the best other", bars)];
        let note = format!("noisy: a spread above ±{}%", 50.0 * SPREAD_MAX);
        Plot { title: "Skep and the fastest alternative".to_owned(), note, groups }.write(path)
    }
}

/// The share of the limit of a case.
fn share(report: Option<&crate::engine::Report>, name: &str) -> Option<Figure> {
    Some(report?.engine.cases.iter().find(|case| case.case == name)?.of_limit)
}
