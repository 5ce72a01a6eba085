//! A client of a benchmark: loads its share of the records, then sends each batch when it has all replies to the last
//! one.
//!
//! Operations are drawn before the clock runs. The latency of an operation is the time from sending its batch to
//! receiving all replies. Each reply is checked: a read that does not find its record, or finds a value of another
//! size, is an error. Operations that a server refuses as BUSY are not errors and are counted separately.

use std::ops::Range;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use skep::{Operation, Page, PutCondition, Reply, Request, WireError};

use super::inserts::Inserts;
use super::interrupt;
use super::modify::widest_element;
use super::target::Target;
use super::workload::{Draw, Keys, Values, append_key, operation};
use crate::failure::with_options;
use skep_measure::mix::{Mix, Read, Write};

/// The settings that all clients of a run share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of the server's space.
    pub(crate) space: u16,
    pub(crate) mix: Mix,
    /// True if the records that were inserted last are the most popular.
    pub(crate) prefers_latest: bool,
    pub(crate) keys: Keys,
    pub(crate) value_size: usize,
    pub(crate) batch: usize,
}

impl Plan {
    /// Returns the record of an operation.
    pub(super) fn record(&self, draw: Draw, inserts: &mut Inserts) -> u64 {
        if self.is_insert(draw) {
            inserts.next()
        } else if self.prefers_latest {
            inserts.latest(draw.record())
        } else {
            draw.record()
        }
    }

    pub(super) fn is_insert(&self, draw: Draw) -> bool {
        draw.is_write() && self.mix.write == Write::Insert
    }
}

/// The end of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// After this many operations.
    Operations(u64),
    /// After this time.
    Time(Duration),
}

/// The result of one client.
pub(crate) struct Findings {
    pub(crate) operations: u64,
    /// Operations that the server refused as BUSY; they are not among `operations`.
    pub(crate) refused: u64,
    /// Operations that were due and not sent.
    pub(crate) unsent: u64,
    pub(crate) errors: u64,
    /// Description of the first error.
    pub(crate) first_error: Option<String>,
    /// Latencies in nanoseconds.
    pub(crate) latencies: Histogram<u64>,
}

impl Findings {
    /// Returns findings without operations. Latencies keep three digits, from a nanosecond to an hour.
    pub(crate) fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are valid");
        Findings { operations: 0, refused: 0, unsent: 0, errors: 0, first_error: None, latencies }
    }

    /// Adds the findings of another client.
    pub(crate) fn add(&mut self, other: Findings) {
        self.operations += other.operations;
        self.refused += other.refused;
        self.unsent += other.unsent;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.latencies.add(&other.latencies).expect("all histograms have the same bounds");
    }

    /// Counts the operations of a batch that were executed, with this latency.
    pub(super) fn batch(&mut self, count: usize, latency: Duration) {
        self.operations += count as u64;
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.saturating_record_n(nanoseconds, count as u64);
    }

    pub(super) fn error(&mut self, count: usize, description: impl FnOnce() -> String) {
        self.errors += count as u64;
        self.first_error.get_or_insert_with(description);
    }

    /// Compares the reply to an operation with the expected one.
    pub(super) fn check(&mut self, plan: &Plan, draw: Draw, reply: Result<Reply<'_>, WireError>) {
        let is_expected = match (reply, draw.is_write()) {
            (Ok(Reply::Done), is_write) => is_write && plan.mix.write != Write::Modify,
            (Ok(Reply::Value(value)), true) => plan.mix.write == Write::Modify && value.len() == plan.value_size,
            (Ok(Reply::Value(value)), false) => match plan.mix.read {
                Read::Get => value.len() == plan.value_size,
                Read::Sum => value.len() == widest_element(plan.value_size).width(),
                // The record at its start, or the floor of its start, exists. A page has fewer pairs than requested only at the end of the keys.
                Read::Scan(..) | Read::ScanFromFloor(..) => Page::decode(value).is_some_and(|page| {
                    page.count() == draw.pair_count() || !page.more() && (1..draw.pair_count()).contains(&page.count())
                }),
            },
            _ => false,
        };
        if !is_expected {
            self.error(1, || describe(reply));
        }
    }
}

/// Puts all records of the range. Calls `loaded` after every batch with the number of its records. An error comes with
/// the range of records that may have been put. A signal is an error.
pub(crate) fn load(
    target: &mut Target,
    plan: &Plan,
    records: Range<u64>,
    mut loaded: impl FnMut(u64),
) -> Result<(), (String, Range<u64>)> {
    let mut values = Values::new(plan.value_size, records.start);
    let mut keys = Vec::new();
    let mut first = records.start;
    while first < records.end {
        if interrupt::is_set() {
            return Err(("interrupted".to_owned(), records.start..first));
        }
        let batch = first..records.end.min(first + plan.batch as u64);
        keys.clear();
        let mut positions = Vec::with_capacity(plan.batch);
        for record in batch.clone() {
            let key_start = keys.len();
            plan.keys.append(record, &mut keys);
            positions.push((key_start..keys.len(), values.next_start()));
        }
        let requests: Vec<_> = positions
            .iter()
            .map(|(key, value_start)| Request {
                key: &keys[key.clone()],
                operation: Operation::Put { value: values.at(*value_start), condition: PutCondition::Always },
            })
            .collect();
        retry_busy(target, &requests).map_err(|error| (error, records.start..batch.end))?;
        loaded(batch.end - batch.start);
        first = batch.end;
    }
    Ok(())
}

/// Records in a batch of deletes. Deletes are not measured, so the batch size of the run does not apply.
const DELETE_BATCH: u64 = 1024;

/// Deletes those records of the range that exist.
pub(crate) fn unload(target: &mut Target, keys: Keys, records: Range<u64>) -> Result<(), String> {
    let mut first = records.start;
    while first < records.end {
        let end = records.end.min(first + DELETE_BATCH);
        delete(target, keys, first..end)?;
        first = end;
    }
    Ok(())
}

/// Deletes the records that a client has inserted, and later ones that a killed run of the same client has left.
pub(crate) fn unload_inserts(target: &mut Target, keys: Keys, inserts: &Inserts) -> Result<(), String> {
    let mut first = 0;
    loop {
        let found = delete(target, keys, (first..first + DELETE_BATCH).map(|insert| inserts.number(insert)))?;
        first += DELETE_BATCH;
        if first >= inserts.count() && found == 0 {
            return Ok(());
        }
    }
}

/// Deletes these records. Returns how many existed.
fn delete(target: &mut Target, keys: Keys, records: impl Iterator<Item = u64>) -> Result<u64, String> {
    let mut bytes = Vec::new();
    let ends: Vec<_> = records
        .map(|record| {
            keys.append(record, &mut bytes);
            bytes.len()
        })
        .collect();
    let mut start = 0;
    let requests: Vec<_> = ends
        .iter()
        .map(|&end| Request { key: &bytes[std::mem::replace(&mut start, end)..end], operation: Operation::Delete })
        .collect();
    retry_busy(target, &requests)
}

/// The longest time for which a batch that is not measured is retried while the server is busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before a retry.
const PAUSE: Duration = Duration::from_millis(5);

/// Executes puts or deletes, and repeats the batch until the server refuses none of them as BUSY. Returns how many took
/// effect.
fn retry_busy(target: &mut Target, requests: &[Request<'_>]) -> Result<u64, String> {
    let until = Instant::now() + PATIENCE;
    let mut done = 0;
    loop {
        target.execute(requests)?;
        let mut is_busy = false;
        for index in 0..requests.len() {
            match target.reply(index) {
                Ok(Reply::Done) => done += 1,
                Ok(Reply::NotFound) => {}
                Err(WireError::Busy | WireError::TooFast) if Instant::now() < until => is_busy = true,
                unexpected => return Err(describe(unexpected)),
            }
        }
        if !is_busy {
            return Ok(done);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Sends the drawn operations until the limit or a signal, and begins again with the first one after the last.
pub(crate) fn drive(
    target: &mut Target,
    plan: &Plan,
    draws: &[Draw],
    inserts: &mut Inserts,
    limit: Limit,
    seed: u64,
) -> Findings {
    let mut findings = Findings::new();
    let mut values = Values::new(plan.value_size, seed);
    let mut keys = Vec::new();
    let mut batch = Vec::with_capacity(plan.batch);
    let mut next = 0;
    let mut sent_count = 0;
    let begun = Instant::now();
    loop {
        let count = match limit {
            _ if interrupt::is_set() => 0,
            Limit::Operations(operations) => {
                usize::try_from(operations - sent_count).unwrap_or(usize::MAX).min(plan.batch)
            }
            Limit::Time(time) if begun.elapsed() >= time => 0,
            Limit::Time(_) => plan.batch,
        };
        if count == 0 {
            return findings;
        }
        keys.clear();
        batch.clear();
        for _ in 0..count {
            let draw = draws[next];
            next = if next + 1 == draws.len() { 0 } else { next + 1 };
            let key_start = keys.len();
            append_key(plan.mix, draw, plan.keys, plan.record(draw, inserts), &mut keys);
            batch.push((key_start..keys.len(), draw, values.next_start()));
        }
        let requests: Vec<_> = batch
            .iter()
            .map(|(key, draw, value_start)| Request {
                key: &keys[key.clone()],
                operation: operation(plan.mix, *draw, values.at(*value_start)),
            })
            .collect();

        let sent = Instant::now();
        let outcome = target.execute(&requests);
        let latency = sent.elapsed();

        if let Err(error) = outcome {
            findings.error(count, || error);
            return findings;
        }
        sent_count += count as u64;
        let mut refused = 0;
        for (index, (_, draw, _)) in batch.iter().enumerate() {
            let reply = target.reply(index);
            if plan.is_insert(*draw) {
                inserts.acknowledge(reply != Ok(Reply::Done));
            }
            match reply {
                Err(WireError::Busy | WireError::TooFast) => refused += 1,
                reply => findings.check(plan, *draw, reply),
            }
        }
        findings.refused += refused as u64;
        findings.batch(count - refused, latency);
    }
}

fn describe(reply: Result<Reply<'_>, WireError>) -> String {
    match reply {
        Ok(Reply::Failed(error)) => with_options(error),
        Ok(Reply::NotFound) => "a record that was loaded does not exist".to_owned(),
        Ok(Reply::Value(value)) => format!("a reply of {} bytes, which is not the expected size", value.len()),
        Ok(Reply::Done | Reply::Exists | Reply::Deferred) => "a reply to another operation".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Findings;
    use crate::bench::report::microseconds_at;

    #[test]
    fn every_operation_has_the_latency_of_its_batch() {
        let mut one = Findings::new();
        one.batch(900, Duration::from_micros(5));
        let mut other = Findings::new();
        other.batch(99, Duration::from_millis(3));
        other.batch(1, Duration::from_secs(7200));
        other.error(2, || "first".to_owned());
        one.add(other);
        assert_eq!((one.operations, one.errors, one.first_error.as_deref()), (1000, 2, Some("first")));
        for (quantile, microseconds) in [(0.5, 5.0), (0.9, 5.0), (0.95, 3e3), (0.999, 3e3), (1.0, 3.6e9)] {
            let found = microseconds_at(&one.latencies, quantile);
            assert!((found / microseconds - 1.0).abs() < 0.002, "{quantile}: {found}");
        }
    }
}
