//! `skep bench --saturate`: searches the greatest rate that a server sustains, and the latencies at rates below it.
//!
//! ```text
//! latency │                 ×  not sustained
//!         │               ×
//!         │        ·  · · ◀──── the search halves the distance between the two
//!         │  ·  ·
//!         └──────────────────── operations a second
//! ```
//!
//! 1. Clients that wait for replies tell about how much the server can do.
//! 2. Rates rise in shares of that, until one is not sustained: fewer operations were executed than offered, some were
//!    refused, or the 99th percentile is above `--latency-max`.
//! 3. The search halves the distance between the greatest rate that was sustained and the least that was not, a few times.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use skep_measure::machine;
use skep_nic::paper::Axis;

use super::drive::{Findings, Limit, Plan};
use super::inserts::Inserts;
use super::interrupt;
use super::offer::Offerer;
use super::report::{grouped, microseconds_at};
use super::workload::Draw;
use crate::failure::Failure;
use crate::output_file::OutputFile;
use crate::password::Login;
use crate::plot::{Picture, Series, SeriesPoint};

/// The rates before the search, as shares of what clients reach that wait for replies.
const SHARES: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// The factor between two rates after these, and the most of them.
const GROWTH: f64 = 1.125;
const GROWTH_STEPS_MAX: usize = 8;
/// Times that the search halves the distance.
const HALVINGS: usize = 4;
/// The part of the offered operations that a server executes in time at a rate that it sustains.
const REACHED_MIN: f64 = 0.99;

/// What was measured at a rate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Step {
    /// Operations offered in a second, and executed.
    rate: f64,
    operations_per_second: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    refused: u64,
    unsent: u64,
    sustained: bool,
    /// Why it is not sustained.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// The result of a search.
#[derive(Debug, Serialize)]
pub(super) struct Saturation {
    /// The greatest rate that was sustained; 0 if none was.
    saturation: f64,
    /// Operations a second of clients that wait for replies.
    closed_loop: f64,
    latency_max_us: f64,
    workload: String,
    target: String,
    batch: usize,
    connections: usize,
    machine: String,
    #[serde(skip)]
    steps: Vec<Step>,
    /// False if a signal has ended the search. Then it has only steps.
    #[serde(skip)]
    is_complete: bool,
}

/// What each rate is measured with.
pub(super) struct Search<'a> {
    pub(super) login: &'a Login,
    pub(super) plan: &'a Plan,
    pub(super) draws: &'a [Draw],
    pub(super) inserts: &'a mut [Inserts],
    pub(super) connections: usize,
    pub(super) seconds: Duration,
    pub(super) seed: u64,
    pub(super) latency_max: Duration,
}

impl Search<'_> {
    /// Searches the saturation, until a signal. `closed_loop` is the rate of clients that wait for replies.
    pub(super) fn run(mut self, closed_loop: f64, workload: String) -> Result<Saturation, String> {
        let growing = (1..=GROWTH_STEPS_MAX as i32).map(|step| GROWTH.powi(step));
        let rates = SHARES.into_iter().chain([1.0]).chain(growing).map(|share| (share * closed_loop).max(1.0));
        let mut steps = Vec::new();
        // The greatest rate that was sustained, and the least that was not.
        let (mut low, mut high) = (0.0, None);
        for rate in rates {
            let Some(step) = self.measure(rate)? else { break };
            let sustained = step.sustained;
            steps.push(step);
            if !sustained {
                high = Some(rate);
                break;
            }
            low = rate;
        }
        if let Some(mut high) = high {
            for _ in 0..HALVINGS {
                let rate = f64::midpoint(low, high);
                let Some(step) = self.measure(rate)? else { break };
                if step.sustained {
                    low = rate;
                } else {
                    high = rate;
                }
                steps.push(step);
            }
        }
        steps.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        Ok(Saturation {
            saturation: low,
            closed_loop,
            latency_max_us: self.latency_max.as_secs_f64() * 1e6,
            workload,
            target: self.login.address.clone(),
            batch: self.plan.batch,
            connections: self.connections,
            machine: machine(),
            steps,
            is_complete: !interrupt::is_set(),
        })
    }

    /// Offers a rate for a while, on connections of its own: so no reply to an earlier rate is left. Returns nothing if a
    /// signal has ended it.
    fn measure(&mut self, rate: f64) -> Result<Option<Step>, String> {
        let mut offerer = Offerer::connect(self.login, self.connections)?;
        let begun = Instant::now();
        let limit = Limit::Time(self.seconds);
        let findings = offerer.offer(self.plan, self.draws, self.inserts, rate, limit, self.seed);
        match &findings.first_error {
            _ if interrupt::is_set() => Ok(None),
            Some(error) => Err(format!("at {} operations/s: {error}", grouped(rate))),
            None => Ok(Some(Step::of(rate, &findings, begun.elapsed(), self.latency_max))),
        }
    }
}

impl Step {
    fn of(rate: f64, findings: &Findings, elapsed: Duration, latency_max: Duration) -> Step {
        let at = |quantile| microseconds_at(&findings.latencies, quantile);
        let operations_per_second = findings.operations as f64 / elapsed.as_secs_f64();
        let (refused, unsent) = (findings.refused, findings.unsent);
        let (p50_us, p99_us, p999_us) = (at(0.5), at(0.99), at(0.999));
        let reason = match () {
            () if refused > 0 => Some("refused"),
            // What was not sent at the end was not executed.
            () if operations_per_second < REACHED_MIN * rate => Some("fewer"),
            () if p99_us > latency_max.as_secs_f64() * 1e6 => Some("p99"),
            () => None,
        };
        let sustained = reason.is_none();
        Step { rate, operations_per_second, p50_us, p99_us, p999_us, refused, unsent, sustained, reason }
    }
}

impl Saturation {
    /// Prints the result, as a table or as lines of JSON, and writes the plot. Without a result, prints the steps.
    pub(super) fn print(&self, is_json: bool, svg: Option<OutputFile>) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        if !self.is_complete && self.steps.is_empty() {
            return Ok(());
        }
        if is_json {
            for step in &self.steps {
                writeln!(out, "{}", serde_json::to_string(step).expect("its numbers are JSON"))?;
            }
            if self.is_complete {
                writeln!(out, "{}", serde_json::to_string(self).expect("its numbers and texts are JSON"))?;
            }
        } else {
            writeln!(out, "{}", self.table())?;
        }
        match svg {
            Some(file) if self.is_complete => file.write(&self.svg().map_err(Failure::Runtime)?),
            _ => Ok(()),
        }
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["offered/s", "executed/s", "p50 µs", "p99 µs", "p99.9 µs", "sustained"]);
        for step in &self.steps {
            table.add_row([
                grouped(step.rate),
                grouped(step.operations_per_second),
                format!("{:.1}", step.p50_us),
                format!("{:.1}", step.p99_us),
                format!("{:.1}", step.p999_us),
                step.reason.map_or_else(|| "yes".to_owned(), |reason| format!("no: {reason}")),
            ]);
        }
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if !self.is_complete {
            return format!("{table}\nThe search was interrupted.");
        }
        let hint = match self.saturation > 0.0 {
            true => "",
            false => "\nNo rate was sustained: the machine does other work, or --latency-max is too short for it.",
        };
        format!(
            "{table}\nSaturation: {} operations/s with a p99 of at most {:.0} µs. Clients that wait for replies reach {}.\n\
             Workload {} on {}; {} connections, batches of {}.\n{}\n\
             A latency is that of the whole batch, from when it was due. Not sustained: fewer than 99 % of the offered \
             operations were executed, some were refused, or the p99 was too long.{hint}",
            grouped(self.saturation),
            self.latency_max_us,
            grouped(self.closed_loop),
            self.workload,
            self.target,
            self.connections,
            self.batch,
            self.machine,
        )
    }

    /// Draws the latencies over the executed operations.
    fn svg(&self) -> Result<String, String> {
        let series = |name, latency: fn(&Step) -> f64| Series {
            name,
            points: self
                .steps
                .iter()
                // Thousands with one digit: the axis shows each figure if there are few.
                .map(|step| SeriesPoint {
                    x: (step.operations_per_second / 100.0).round() / 10.0,
                    paper: None,
                    ours: latency(step).max(0.1),
                })
                .collect(),
        };
        let title = format!("saturation at {} operations/s", grouped(self.saturation));
        let series = vec![
            series("p50", |step| step.p50_us),
            series("p99", |step| step.p99_us),
            series("p99.9", |step| step.p999_us),
        ];
        let x = Axis::linear("thousand operations a second");
        let y = Axis::logarithmic("latency, µs");
        Picture { name: "skep bench", title: &title, x, y, series, curves: &[] }.svg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(rate: f64, p99_us: f64, sustained: bool) -> Step {
        let (p50_us, p999_us) = (p99_us / 2.0, p99_us * 3.0);
        Step {
            rate,
            operations_per_second: rate,
            p50_us,
            p99_us,
            p999_us,
            refused: 0,
            unsent: 0,
            sustained,
            reason: (!sustained).then_some("p99"),
        }
    }

    #[test]
    fn a_rate_is_sustained_if_all_of_it_is_executed_in_time() {
        let findings = |operations, nanoseconds, refused| {
            let mut findings = Findings::new();
            (0..operations).for_each(|_| findings.batch(1, Duration::from_nanos(nanoseconds)));
            findings.refused = refused;
            findings
        };
        let second = Duration::from_secs(1);
        let of = |findings: &Findings, rate| Step::of(rate, findings, second, Duration::from_millis(1)).sustained;
        assert!(of(&findings(1000, 900_000, 0), 1000.0));
        assert!(!of(&findings(1000, 1_200_000, 0), 1000.0), "too slow");
        assert!(!of(&findings(1000, 900_000, 0), 1100.0), "too few");
        assert!(!of(&findings(1000, 900_000, 1), 1000.0), "refused");
    }

    #[test]
    fn the_table_and_the_plot_have_each_rate() {
        let steps = vec![step(1e5, 50.0, true), step(2e5, 80.0, true), step(3e5, 9000.0, false)];
        let mut saturation = Saturation {
            saturation: 2e5,
            closed_loop: 2.5e5,
            latency_max_us: 1000.0,
            workload: "a".to_owned(),
            target: "here".to_owned(),
            batch: 32,
            connections: 4,
            machine: "machine".to_owned(),
            steps,
            is_complete: true,
        };
        let table = saturation.table();
        for part in ["Saturation: 200 000 operations/s", "300 000", "9000.0", "no", "reach 250 000"] {
            assert!(table.contains(part), "{part}: {table}");
        }
        let svg = saturation.svg().unwrap();
        // A disc for each point, and for each series in the legend.
        assert_eq!(svg.matches("<circle").count(), 3 * 3 + 3, "{svg}");
        assert!(svg.contains("p99.9") && svg.contains("latency, µs"), "{svg}");
        saturation.is_complete = false;
        let table = saturation.table();
        assert!(table.contains("300 000") && table.contains("interrupted") && !table.contains("Saturation"), "{table}");
    }
}
