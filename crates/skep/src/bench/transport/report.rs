//! The report of `skep bench transport`: as JSON for programs, as tables for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use hdrhistogram::Histogram;
use skep_measure::{Figure, machine};

use super::{Arguments, Measured, Rates};
use crate::bench::report::{grouped, microseconds_at};
use crate::failure::Failure;

/// The settings of a run and its results.
#[derive(Debug, serde::Serialize)]
pub(super) struct Report {
    /// The version of this program.
    skep: &'static str,
    machine: String,
    records: u64,
    key_size: usize,
    value_size: u16,
    rounds: u64,
    /// Client and server had a core each. If not, all figures are those of one core.
    are_apart: bool,
    #[serde(flatten)]
    transports: BTreeMap<&'static str, TransportReport>,
}

/// The results of a transport.
#[derive(Debug, serde::Serialize)]
struct TransportReport {
    /// Operations per second at the depth at which GETs are fastest.
    echo_per_s: Figure,
    get_per_s: Figure,
    put_per_s: Figure,
    /// Shares of the ECHOs of the same round and depth.
    get_of_echo: Figure,
    put_of_echo: Figure,
    /// Latencies of single operations, in microseconds.
    p50_us: f64,
    p99_us: f64,
    echo_p50_us: f64,
    echo_p99_us: f64,
    put_p50_us: f64,
    put_p99_us: f64,
    depths: Vec<DepthReport>,
}

/// The rates at one depth.
#[derive(Clone, Copy, Debug, serde::Serialize)]
struct DepthReport {
    depth: u32,
    echo_per_s: Figure,
    get_per_s: Figure,
    put_per_s: Figure,
    get_of_echo: Figure,
    put_of_echo: Figure,
}

impl DepthReport {
    fn new(depth: u32, [echo, get, put]: &Rates) -> DepthReport {
        DepthReport {
            depth,
            echo_per_s: Figure::of(echo),
            get_per_s: Figure::of(get),
            put_per_s: Figure::of(put),
            get_of_echo: Figure::of_ratio(get, echo),
            put_of_echo: Figure::of_ratio(put, echo),
        }
    }
}

impl TransportReport {
    fn new(depths: &[u32], measured: &Measured) -> TransportReport {
        let depths: Vec<_> =
            depths.iter().zip(&measured.rates).map(|(depth, rates)| DepthReport::new(*depth, rates)).collect();
        let rate = |report: &&DepthReport| report.get_per_s.noisy_median().unwrap_or(0.0);
        let best = depths.iter().max_by(|one, other| rate(one).total_cmp(&rate(other))).expect("there is a depth");
        let DepthReport { echo_per_s, get_per_s, put_per_s, get_of_echo, put_of_echo, .. } = *best;
        let at = |histogram: &Histogram<u64>, quantile| microseconds_at(histogram, quantile);
        let [echo, get, put] = &measured.latencies;
        TransportReport {
            echo_per_s,
            get_per_s,
            put_per_s,
            get_of_echo,
            put_of_echo,
            p50_us: at(get, 0.5),
            p99_us: at(get, 0.99),
            echo_p50_us: at(echo, 0.5),
            echo_p99_us: at(echo, 0.99),
            put_p50_us: at(put, 0.5),
            put_p99_us: at(put, 0.99),
            depths,
        }
    }
}

impl Report {
    pub(super) fn new(arguments: &Arguments, are_apart: bool, measured: &[Measured]) -> Report {
        let report = |measured: &Measured| (measured.name, TransportReport::new(&arguments.depths, measured));
        Report {
            skep: env!("CARGO_PKG_VERSION"),
            machine: machine(),
            records: arguments.records,
            key_size: size_of::<u64>(),
            value_size: arguments.value_size,
            rounds: arguments.effort.rounds as u64,
            are_apart,
            transports: measured.iter().map(report).collect(),
        }
    }

    /// Prints one line of JSON, or tables.
    pub(super) fn print(&self, as_json: bool) -> Result<(), Failure> {
        let mut out = io::stdout();
        if as_json {
            writeln!(out, "{}", serde_json::to_string(self).expect("numbers and text are always valid JSON"))?;
            return Ok(());
        }
        writeln!(out, "{}\n{}", self.rates(), self.latencies())?;
        let cores = if self.are_apart { "server and client on a core each" } else { "server and client on one core" };
        writeln!(
            out,
            "{} records of {} + {} B; {cores}; medians of {} rounds with their spread; shares are of the ECHOs of the same \
             round.\n{}; version {}",
            grouped(self.records as f64),
            self.key_size,
            self.value_size,
            self.rounds,
            self.machine,
            self.skep,
        )?;
        Ok(())
    }

    fn rates(&self) -> Table {
        let mut table = table(["transport", "depth", "ECHO/s", "GET/s", "of ECHO", "PUT/s", "of ECHO"]);
        let with_spread = |figure: Figure, text: String| format!("{text} ±{:.0}%", 100.0 * figure.spread());
        let rate = |figure: Figure| with_spread(figure, figure.text(grouped));
        let share = |figure: Figure| with_spread(figure, figure.text(|share| format!("{share:.2}")));
        for (name, transport) in &self.transports {
            for report in &transport.depths {
                table.add_row([
                    (*name).to_owned(),
                    report.depth.to_string(),
                    rate(report.echo_per_s),
                    rate(report.get_per_s),
                    share(report.get_of_echo),
                    rate(report.put_per_s),
                    share(report.put_of_echo),
                ]);
            }
        }
        table
    }

    fn latencies(&self) -> Table {
        let mut table = table(["one at a time, µs", "ECHO p50", "p99", "GET p50", "p99", "PUT p50", "p99"]);
        for (name, of) in &self.transports {
            let times = [of.echo_p50_us, of.echo_p99_us, of.p50_us, of.p99_us, of.put_p50_us, of.put_p99_us];
            table.add_row(std::iter::once((*name).to_owned()).chain(times.map(|time| format!("{time:.2}"))));
        }
        table
    }
}

/// Returns a table whose columns after the first one are numbers.
fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(header);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}
