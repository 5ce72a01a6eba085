//! The report of a benchmark, as a table for people and as JSON for programs. It always names the settings and the
//! machine next to the figures.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use hdrhistogram::Histogram;

use super::server_delays::ServerDelays;
use super::workload::Workload;
use crate::cli::Space;
use skep_measure::distribution::Distribution;

/// The settings of a run and its result. The order of the fields is the order in the JSON.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Report {
    /// The version of this program.
    pub(crate) skep: &'static str,
    pub(crate) workload: Workload,
    pub(crate) distribution: Distribution,
    /// The space of the server; embedded stores are hash stores.
    pub(crate) space: Space,
    /// Number of reads in a hundred operations.
    pub(crate) reads_in_100: u32,
    /// The address of the server, or `embedded`.
    pub(crate) target: String,
    /// Records that were loaded.
    pub(crate) records: u64,
    /// Operations that were executed.
    pub(crate) operations: u64,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    /// Operations sent together.
    pub(crate) batch: usize,
    /// Threads, each with its own connections or its own store.
    pub(crate) clients: usize,
    pub(crate) seed: u64,
    pub(crate) machine: String,
    pub(crate) ops_per_s: f64,
    /// Latencies: each operation has that of its batch.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    /// Operations to send per second, if a rate was set. Latencies then begin when a batch is due.
    pub(crate) rate: Option<u64>,
    /// Operations that the server refused as BUSY.
    pub(crate) refused: u64,
    /// Operations that were due but not sent before the end, because the server throttled its clients.
    pub(crate) unsent: u64,
    /// The server's own delays, if `--resp` was set.
    pub(crate) server: Option<ServerDelays>,
    /// Operations without the expected reply.
    pub(crate) errors: u64,
}

/// Returns the latency at a quantile, in microseconds. The histogram holds nanoseconds.
pub(crate) fn microseconds_at(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}

impl Report {
    /// Formats the report as one line of JSON.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text are always valid JSON")
    }

    /// Formats the report as a table, with its settings below.
    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header([
            "workload",
            "distribution",
            "operations/s",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "max µs",
            "refused",
            "errors",
        ]);
        table.add_row([
            match self.workload {
                Workload::Cloud => format!("cloud, {}% reads", self.reads_in_100),
                workload => name(&workload),
            },
            name(&self.distribution),
            grouped(self.ops_per_s),
            format!("{:.1}", self.p50_us),
            format!("{:.1}", self.p99_us),
            format!("{:.1}", self.p999_us),
            format!("{:.1}", self.max_us),
            self.refused.to_string(),
            self.errors.to_string(),
        ]);
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "{table}\n{} operations in {:.2} s on {}, {} space; {} records of {} + {} B; {} client{}, batches of {}; seed {}\n{}\n\
             A latency is that of the whole batch{}.{}",
            self.operations,
            self.seconds,
            self.target,
            name(&self.space),
            self.records,
            self.key_size,
            self.value_size,
            self.clients,
            if self.clients == 1 { "" } else { "s" },
            self.batch,
            self.seed,
            self.machine,
            if self.rate.is_some() { ", from when it was due" } else { "" },
            self.offer() + &self.server_delays(),
        )
    }

    /// Describes the rate and the operations that could not be sent.
    fn offer(&self) -> String {
        let Some(rate) = self.rate else { return String::new() };
        let throttled = match self.unsent {
            0 => String::new(),
            unsent => format!("; {unsent} were due and never sent, because the server throttled its clients"),
        };
        format!("\nThe rate was {} operations/s{throttled}.", grouped(rate as f64))
    }

    /// Describes the server's own delays.
    fn server_delays(&self) -> String {
        let Some(server) = &self.server else { return String::new() };
        let bound = if server.bound_us > 0.0 { format!(" of at most {:.0}", server.bound_us) } else { String::new() };
        format!(
            "\nIn the server, from read to reply: p50 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1} µs{bound}; {} refused, {} \
             reads throttled.",
            server.p50_us, server.p99_us, server.p999_us, server.max_us, server.refused, server.reads_throttled
        )
    }
}

/// Returns the name of a choice on the command line.
pub(super) fn name(choice: &impl clap::ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Formats a whole number with a space between groups of three digits.
pub(super) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_are_separated() {
        for (number, text) in [(0.0, "0"), (999.4, "999"), (1000.0, "1 000"), (12_345_678.9, "12 345 679")] {
            assert_eq!(grouped(number), text);
        }
    }
}
