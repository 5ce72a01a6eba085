//! The result of a soak, as tables and as a list of failures.

use std::fmt::Write as _;
use std::time::Duration;

use super::attack::ATTACKS;
use super::server::End;
use super::turn::Tally;
use super::witness::Findings;
use crate::tables::{Tables, table};

/// The 99th percentile of a witness's latencies must be below this, in milliseconds.
const P99_MAX: f64 = 20.0;
/// The 99th percentile over time must be below this, in milliseconds. All stalls together then take less than a
/// hundredth of the time.
const P99_OVER_TIME_MAX: f64 = 100.0;
/// The longest time from SIGTERM to the end of the server.
const END_MAX: Duration = Duration::from_secs(3);
/// Resident memory in the second half may exceed that in the first half by this share and these bytes together.
const GROWTH_MAX: f64 = 0.05;
const GROWTH_SIZE_MAX: f64 = (32 << 20) as f64;

/// The result of a soak.
pub struct Report {
    pub(super) time: Duration,
    /// The findings of each witness, with its name.
    pub(super) witnesses: Vec<(&'static str, Findings)>,
    /// Resident bytes, second by second.
    pub(super) resident: Vec<u64>,
    /// In the order of the attacks.
    pub(super) tallies: Vec<Tally>,
    /// `None` if the soak ended early.
    pub(super) end: Option<End>,
    /// The reason if the soak ended early.
    pub(super) cut: Option<String>,
}

impl Report {
    /// Returns the failures that must never occur: wrong replies, errors, a crash, a hang, an exit status other than 0.
    pub fn failures(&self) -> Vec<String> {
        let mut failures: Vec<String> = self.cut.iter().cloned().collect();
        for (name, findings) in &self.witnesses {
            if findings.error_count > 0 {
                failures.push(format!("witness {name}: {} errors", findings.error_count));
                failures.extend(findings.errors.iter().map(|error| format!("  {error}")));
            }
            if findings.operations == 0 {
                failures.push(format!("witness {name}: no operation"));
            }
        }
        for (attack, tally) in ATTACKS.iter().zip(&self.tallies) {
            let count = tally.wrong_count.load(std::sync::atomic::Ordering::Relaxed);
            if count > 0 {
                failures.push(format!("{}: {count} wrong replies", attack.name));
                let wrong = tally.wrong.lock().expect("all threads have ended");
                failures.extend(wrong.iter().map(|wrong| format!("  {wrong}")));
            }
        }
        match self.end {
            Some(End { status: Some(status), .. }) if !status.success() => failures.push(format!("server: {status}")),
            Some(End { status: None, after }) => failures.push(format!("server: killed {after:.1?} after SIGTERM")),
            _ => {}
        }
        failures
    }

    /// Returns the failures of a long run on an otherwise idle machine: high latencies, growing memory, a slow end.
    pub fn slow_failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for (name, findings) in &self.witnesses {
            let [_, p99, _, over_time] = findings.latencies();
            if p99 >= P99_MAX {
                failures.push(format!("witness {name}: p99 of {p99:.1} ms, {P99_MAX} ms at most"));
            }
            if over_time >= P99_OVER_TIME_MAX {
                failures.push(format!(
                    "witness {name}: p99 over time of {over_time:.1} ms, {P99_OVER_TIME_MAX} ms at most"
                ));
            }
        }
        if is_growing(&self.resident) {
            let [first, second] = halves(&self.resident);
            failures.push(format!("memory: {:.0} MiB, {:.0} MiB in the second half", mib(first), mib(second)));
        }
        if let Some(End { after, .. }) = self.end.filter(|end| end.after > END_MAX) {
            failures.push(format!("server: ended {after:.1?} after SIGTERM, {END_MAX:?} at most"));
        }
        failures
    }

    /// Returns the tables as text.
    pub fn text(&self) -> String {
        let witnesses = self.witnesses.iter().map(|(name, findings)| {
            let counts = [findings.operations, findings.error_count, findings.out_of_memory].map(|n| n.to_string());
            let latencies = findings.latencies().map(|latency| format!("{latency:.2}"));
            [vec![(*name).to_owned()], counts.to_vec(), latencies.to_vec()].concat()
        });
        let attacks = ATTACKS.iter().zip(&self.tallies).map(|(attack, tally)| {
            let counts = [&tally.operations, &tally.failures, &tally.wrong_count];
            let counts = counts.map(|count| count.load(std::sync::atomic::Ordering::Relaxed).to_string());
            [vec![attack.name.to_owned()], counts.to_vec()].concat()
        });
        let at = |share: f64| {
            let index = (share * self.resident.len().saturating_sub(1) as f64) as usize;
            format!("{:.0}", self.resident.get(index).map_or(0.0, |&bytes| mib(bytes as f64)))
        };
        let most = self.resident.iter().copied().max().unwrap_or(0);
        let memory = vec![at(0.1), at(0.5), at(1.0), format!("{:.0}", mib(most as f64))];
        let mut note = format!("{:.0} s. ", self.time.as_secs_f64());
        _ = match self.end {
            Some(End { status: Some(status), after }) => write!(note, "SIGTERM: {status} after {after:.2?}."),
            Some(End { status: None, after }) => write!(note, "SIGTERM: no end; killed after {after:.2?}."),
            None => write!(note, "Cut short."),
        };
        for (name, findings) in &self.witnesses {
            for slow in &findings.slow {
                let _ = write!(note, "\nwitness {name}: {slow}");
            }
        }
        let tables = vec![
            table(
                &["witness", "operations", "errors", "OUT_OF_MEMORY", "p50, ms", "p99, ms", "max, ms", "p99 over time"],
                1,
                witnesses,
            ),
            table(&["resident MiB, after 10 %", "50 %", "100 %", "largest"], 0, [memory]),
            table(&["attack", "operations", "turns cut", "wrong"], 1, attacks),
        ];
        Tables { tables, note }.text()
    }
}

/// Returns true if these samples of resident memory, second by second, grow in their second half.
pub(crate) fn is_growing(resident: &[u64]) -> bool {
    let [first, second] = halves(resident);
    second > first * (1.0 + GROWTH_MAX) + GROWTH_SIZE_MAX
}

/// Returns the largest sample of the first half, without the first tenth, and that of the second.
fn halves(samples: &[u64]) -> [f64; 2] {
    let (first, second) = samples.split_at(samples.len() / 2);
    let first = &first[samples.len() / 10..];
    [first, second].map(|samples| samples.iter().copied().max().unwrap_or(0) as f64)
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_compared_by_halves() {
        let flat: Vec<u64> = (0..100).map(|second| if second < 10 { second } else { 300 + second % 7 }).collect();
        assert_eq!(halves(&flat), [306.0, 306.0]);
        let growing: Vec<u64> = (0..100).collect();
        assert_eq!(halves(&growing), [49.0, 99.0]);
        assert_eq!(halves(&[]), [0.0, 0.0]);
    }
}
