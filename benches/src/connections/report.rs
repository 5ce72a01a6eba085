//! The result of a run, as tables and as a list of failures.

use super::idlers::Tally;
use super::workers::Phase;
use crate::soak::{End, is_growing};
use crate::tables::{Tables, table};

/// The 99th percentile of the crowded phase may be this many times that of the calm one.
const P99_RATIO_MAX: f64 = 2.0;

/// The result of a run.
pub struct Report {
    pub(super) calm: Phase,
    pub(super) crowded: Phase,
    pub(super) idlers: Tally,
    /// Resident bytes of the server, second by second, in the crowded phase.
    pub(super) resident: Vec<u64>,
    pub(super) end: End,
}

impl Report {
    /// Returns the failures that must never occur: wrong replies, closed connections, an exit status other than 0.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for (name, phase) in [("calm", &self.calm), ("crowded", &self.crowded)] {
            if phase.error_count > 0 {
                failures.push(format!("{name}: {} errors", phase.error_count));
                failures.extend(phase.errors.iter().map(|error| format!("  {error}")));
            }
            if phase.operations == 0 {
                failures.push(format!("{name}: no operation"));
            }
        }
        if self.crowded.resets == 0 || self.idlers.resets == 0 || self.idlers.read == 0 {
            failures.push("no connection was reset, or nothing was read slowly".to_owned());
        }
        if !self.end.status.is_some_and(|status| status.success()) {
            failures.push(format!("server: {:?} after SIGTERM", self.end.status));
        }
        failures
    }

    /// Returns the failures of a long run on an otherwise idle machine: high latencies, growing memory.
    pub fn slow_failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let ratio = self.crowded.latencies()[1] / self.calm.latencies()[1];
        if ratio > P99_RATIO_MAX {
            failures.push(format!("crowded: p99 is {ratio:.2} times that of the calm phase, {P99_RATIO_MAX} at most"));
        }
        if is_growing(&self.resident) {
            failures.push("memory grows".to_owned());
        }
        failures
    }

    /// Returns the tables as text.
    pub fn text(&self) -> String {
        let phases = [("calm", &self.calm), ("crowded", &self.crowded)].map(|(name, phase)| {
            let latencies = phase.latencies().map(|latency| format!("{latency:.2}"));
            let rate = format!("{:.0}", phase.operations as f64 / phase.seconds / 1e3);
            let counts = [phase.resets, phase.error_count].map(|count| count.to_string());
            [vec![name.to_owned(), format!("{:.0}", phase.seconds), rate], counts.to_vec(), latencies.to_vec()].concat()
        });
        let at = |share: f64| {
            let index = (share * self.resident.len().saturating_sub(1) as f64) as usize;
            self.resident.get(index).map_or(0, |&bytes| bytes >> 20).to_string()
        };
        let idlers = [self.idlers.read >> 20, self.idlers.resets, self.idlers.closed].map(|count| count.to_string());
        let tables = vec![
            table(&["phase", "s", "kop/s", "reset", "errors", "p50, ms", "p99, ms", "max, ms"], 1, phases),
            table(&["slow and silent: MiB read", "reset", "closed by the server"], 0, [idlers.to_vec()]),
            table(&["resident MiB, after 10 %", "50 %", "100 %"], 0, [vec![at(0.1), at(0.5), at(1.0)]]),
        ];
        let note = format!(
            "Latencies of batches. SIGTERM: {} after {:.2?}.",
            self.end.status.map_or("no end".to_owned(), |status| status.to_string()),
            self.end.after
        );
        Tables { tables, note }.text()
    }
}
