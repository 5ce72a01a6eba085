//! The result of a comparison of servers, as tables and as JSON.

use skep_measure::Figure;

use super::conditions::Conditions;
use super::defaults::DefaultRow;
use super::redis_benchmark::BenchmarkRow;
use super::rows::{DepthFigures, Ratio, Row};
use super::template::Verb;
use crate::figures::{cell, millions, percent, ratio_cell};
use crate::plot::{Group, Plot, in_millions, in_millions_text};
use crate::program::Measured;
use crate::results::Head;
use crate::tables::{Tables, table};

/// The result of a comparison.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The kind is `servers`.
    #[serde(flatten)]
    pub head: Head,
    /// The settings of the run, and its cores.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// One row for each server, protocol and verb.
    pub rows: Vec<Row>,
    /// Commands that only Redis and Skep's RESP port have; their rows have depths of their own.
    #[serde(default)]
    pub commands: Vec<Row>,
    /// The rows of redis-benchmark; empty if it is not installed.
    pub redis_benchmark: Vec<BenchmarkRow>,
    /// The rows of redis-benchmark with default settings on all cores; empty if it is not installed.
    #[serde(default)]
    pub default: Vec<DefaultRow>,
    /// Skep's figures divided by those of the others.
    pub ratios: Vec<Ratio>,
}

impl Report {
    /// Computes all figures from the rates of the rounds. Older results have no medians of noisy figures.
    pub(crate) fn compute(&mut self) {
        self.rows.iter_mut().chain(&mut self.commands).for_each(Row::compute);
        let Report { rows, commands, redis_benchmark, default, .. } = &*self;
        self.ratios = Report::ratios(rows, commands, redis_benchmark, default, self.conditions.depth);
    }

    /// Returns the ratios that the page shows.
    fn ratios(
        rows: &[Row],
        commands: &[Row],
        benchmark: &[BenchmarkRow],
        default: &[DefaultRow],
        depth: usize,
    ) -> Vec<Ratio> {
        let row = |server: &str, verb| rows.iter().find(|row| row.server == server && row.verb == verb);
        let benchmark = |server: &str, verb, depth| {
            let row = benchmark.iter().find(|row| row.server == server && row.verb == verb && row.depth == depth);
            row.map(|row| &row.rates[..])
        };
        let mut ratios = Vec::new();
        let mut add = |name: String, ours: Option<&[f64]>, theirs: Option<&[f64]>| {
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                ratios.push(Ratio { name, ratio: Figure::of_ratio(ours, theirs) });
            }
        };
        for verb in [Verb::Get, Verb::Set] {
            let at = |server: &str, depth| row(server, verb)?.at(depth);
            let best = |server: &str| row(server, verb)?.best();
            for peer in ["redis", "memcached", "bare echo"] {
                add(format!("{verb:?}: native / {peer}, depth {depth}"), at("skep, native", depth), at(peer, depth));
                add(format!("{verb:?}: native / {peer}, best depths"), best("skep, native"), best(peer));
            }
            add(format!("{verb:?}: RESP / memcached, depth {depth}"), at("skep, RESP", depth), at("memcached", depth));
            add(format!("{verb:?}: RESP / bare echo, depth {depth}"), at("skep, RESP", depth), at("bare echo", depth));
            for depth in [depth, 1] {
                add(format!("{verb:?}: RESP / redis, depth {depth}"), at("skep, RESP", depth), at("redis", depth));
                let name = format!("{verb:?}: RESP / redis by redis-benchmark, depth {depth}");
                add(name, benchmark("skep", verb, depth), benchmark("redis", verb, depth));
            }
        }
        // Skep and Redis by turns.
        for pair in commands.chunks_exact(2) {
            for (ours, theirs) in pair[0].depths.iter().zip(&pair[1].depths) {
                let name = format!("{:?}: RESP / redis, depth {}", pair[0].verb, ours.depth);
                add(name, Some(&ours.rates), Some(&theirs.rates));
            }
        }
        for pair in default.chunks_exact(2) {
            let shards = pair[0].shards.map_or(String::new(), |shards| format!(", {shards} shards"));
            let name =
                format!("{} by redis-benchmark, default settings{shards}, depth {}", pair[0].test, pair[0].depth);
            add(format!("{name}: skep / redis"), Some(&pair[0].rates), Some(&pair[1].rates));
            add(format!("{name}: p99, skep / redis"), Some(&pair[0].p99_ms), Some(&pair[1].p99_ms));
        }
        ratios
    }

    /// Returns the ratio of this name.
    pub fn ratio(&self, name: &str) -> Option<Figure> {
        self.ratios.iter().find(|ratio| ratio.name == name).map(|ratio| ratio.ratio)
    }

    /// Returns the rate of a server at the depth at which all servers are compared.
    pub fn rate(&self, server: &str, verb: Verb) -> Option<Figure> {
        let row = self.rows.iter().find(|row| row.server == server && row.verb == verb)?;
        row.depths.iter().find(|figures| figures.depth == self.conditions.depth).map(|figures| figures.ops_per_s)
    }
}

impl Measured for Report {
    fn head(&self) -> &Head {
        &self.head
    }

    fn plot(&self) -> Plot {
        let mut groups = Vec::new();
        for verb in [Verb::Get, Verb::Set] {
            for depth in [1, self.conditions.depth] {
                let bars = self.rows.iter().filter(|row| row.verb == verb).filter_map(|row| {
                    let figures = row.depths.iter().find(|figures| figures.depth == depth)?;
                    Some((row.server.clone(), in_millions(&figures.ops_per_s)))
                });
                groups.push(Group::new(format!("{verb:?}, depth {depth} (million/s)"), bars));
            }
        }
        let title = format!(
            "{} million pairs of 8 + 2 B over loopback, one core a server, {} connections",
            in_millions_text(self.conditions.keys),
            self.conditions.connections
        );
        Plot::new(title, self.origin(), groups)
    }

    fn tables(&self) -> Tables {
        let bytes =
            |row: &Row| if row.bytes_per_pair > 0.0 { format!("{:.0}", row.bytes_per_pair) } else { "-".into() };
        let depths = self.rows.first().map_or(&[][..], |row| &row.depths);
        let depths: Vec<String> = depths.iter().map(|figures| format!("depth {}", figures.depth)).collect();
        let header = |first: &[&'static str]| -> Vec<&str> {
            first.iter().copied().chain(depths.iter().map(String::as_str)).collect()
        };
        let name = |row: &Row| vec![row.server.clone(), format!("{:?}", row.verb)];
        let speed = |figures: &DepthFigures| cell(&figures.ops_per_s, millions);
        let speeds =
            self.rows.iter().map(|row| [name(row), vec![bytes(row)], row.depths.iter().map(speed).collect()].concat());
        let loads =
            self.rows.iter().map(|row| [name(row), row.depths.iter().map(DepthFigures::load_text).collect()].concat());
        let benchmark = self.redis_benchmark.iter().map(|row| {
            let depth = row.depth.to_string();
            let verb = format!("{:?}", row.verb);
            vec![
                row.server.clone(),
                verb,
                depth,
                cell(&Figure::of(&row.rates), millions),
                percent(row.server_cpu),
                percent(row.client_cpu),
            ]
        });
        let commands = self.commands.iter().flat_map(|row| {
            let cells = |figures: &DepthFigures| {
                [name(row), vec![figures.depth.to_string(), speed(figures), figures.load_text()]].concat()
            };
            row.depths.iter().map(cells).collect::<Vec<_>>()
        });
        let default = self.default.iter().map(|row| {
            let shards = row.shards.map_or("default".to_owned(), |shards| shards.to_string());
            let p99 = cell(&Figure::of(&row.p99_ms), |ms| format!("{ms:.2}"));
            let rate = cell(&Figure::of(&row.rates), millions);
            vec![row.server.clone(), row.test.to_uppercase(), shards, row.depth.to_string(), rate, p99]
        });
        let ratios = self.ratios.iter().map(|ratio| vec![ratio.name.clone(), ratio_cell(&ratio.ratio)]);
        let Conditions { keys, connections, seconds, rounds, cores, .. } = &self.conditions;
        let note = format!(
            "{} pairs of 8 + 2 B, uniform; {} connections, one batch in flight on each; medians of {} rounds, {} s together, \
             each after a warm-up until the rate was steady; ratios were calculated round by round. Servers on core {}, client on core {}. memcached: one get of many keys; the echo sends as many bytes as Skep.",
            keys, connections, rounds, seconds, cores[0], cores[1],
        );
        let mut tables = vec![
            table(&header(&["M/s", "", "B/pair"]), 2, speeds),
            table(&header(&["CPU: server / client, client waiting", ""]), 2, loads),
            table(&["redis-benchmark", "", "depth", "M/s", "server", "client"], 2, benchmark),
            table(&["commands of RESP", "", "depth", "M/s", "CPU: server / client, client waiting"], 2, commands),
            table(&["default settings, all cores", "", "shards", "depth", "M/s", "p99, ms"], 3, default),
            table(&["ratio", "×"], 1, ratios),
        ];
        // An incomplete result has only some of them.
        tables.retain(|table| !table.is_empty());
        Tables { tables, note }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: &str, speeds: [f64; 3]) -> Row {
        let figures = |(depth, rate)| DepthFigures {
            depth,
            ops_per_s: Figure::of(&[rate, rate]),
            rates: vec![rate, rate],
            server_cpu: 1.0,
            client_cpu: 1.0,
            client_waiting: 0.5,
        };
        let depths = [1, 64, 256].into_iter().zip(speeds).map(figures).collect();
        Row { server: server.to_owned(), verb: Verb::Get, bytes_per_pair: 20.0, depths }
    }

    #[test]
    fn ratios_are_at_the_depth_and_at_the_best_ones() {
        let rows = [row("skep, native", [1.0, 8.0, 10.0]), row("redis", [1.0, 2.0, 1.0]), row("skep, RESP", [3.0; 3])];
        let ratios = Report::ratios(&rows, &[], &[], &[], 64);
        let ratio = |name: &str| ratios.iter().find(|ratio| ratio.name == name).unwrap().ratio.median().unwrap();
        assert_eq!(ratio("Get: native / redis, depth 64"), 4.0);
        assert_eq!(ratio("Get: native / redis, best depths"), 5.0);
        assert_eq!(ratio("Get: RESP / redis, depth 1"), 3.0);
        assert_eq!(ratios.len(), 4);
    }

    /// A disturbance that slows all servers of a round down does not move their ratio.
    #[test]
    fn ratios_are_of_rounds() {
        let mut rows = [row("skep, native", [1.0, 8.0, 10.0]), row("redis", [1.0, 2.0, 1.0])];
        (rows[0].depths[1].rates, rows[1].depths[1].rates) = (vec![8.0, 2.0], vec![2.0, 0.5]);
        let ratio = |rows: &[Row], name: &str| {
            Report::ratios(rows, &[], &[], &[], 64).into_iter().find(|ratio| ratio.name == name).unwrap().ratio
        };
        assert_eq!(ratio(&rows, "Get: native / redis, depth 64"), Figure::with_spread(4.0, 0.0));
        rows[1].depths[1].rates = vec![2.0, 1.0];
        assert_eq!(ratio(&rows, "Get: native / redis, depth 64").median(), None);
    }
}
