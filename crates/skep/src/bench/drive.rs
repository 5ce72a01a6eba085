//! One client of a benchmark: loads its share of the records, then sends batches as fast as they are answered.
//!
//! Operations are drawn before the clock runs. The latency of an operation is the time from handing its batch over
//! to having all its answers. Each answer is checked: a read that does not find its record, or finds a value of
//! another size, is an error. What a server refuses because it is busy is none, and is counted by itself.

use std::ops::Range;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use skep::{Operation, Page, PutCondition, Reply, Request, WireError};

use super::inserts::Inserts;
use super::mix::{Mix, Read, Write, widest_element};
use super::target::Target;
use super::workload::{Draw, Keys, Values, operation};

/// What all clients of a run have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The space of the server, by its number.
    pub(crate) space: u16,
    pub(crate) mix: Mix,
    /// Whether the records that were inserted last are the most popular.
    pub(crate) prefers_latest: bool,
    pub(crate) keys: Keys,
    pub(crate) value_size: usize,
    pub(crate) batch: usize,
}

impl Plan {
    /// The record that an operation is about.
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

/// When a client stops.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// After so many operations.
    Operations(u64),
    /// After so much time.
    Time(Duration),
}

/// What one client found.
pub(crate) struct Findings {
    pub(crate) operations: u64,
    /// Operations that the server was too busy for; they are not among the others.
    pub(crate) refused: u64,
    /// Operations that were due and could not be sent.
    pub(crate) unsent: u64,
    pub(crate) errors: u64,
    /// The first error, in words.
    pub(crate) first_error: Option<String>,
    /// Nanoseconds.
    pub(crate) latencies: Histogram<u64>,
}

impl Findings {
    /// Nothing yet. Latencies are kept to three digits, from a nanosecond to an hour.
    pub(crate) fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are valid");
        Findings { operations: 0, refused: 0, unsent: 0, errors: 0, first_error: None, latencies }
    }

    /// Takes in what another client found.
    pub(crate) fn add(&mut self, other: Findings) {
        self.operations += other.operations;
        self.refused += other.refused;
        self.unsent += other.unsent;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.latencies.add(&other.latencies).expect("all histograms have the same bounds");
    }

    /// So many operations of a batch were carried out, and answered after this time.
    pub(super) fn batch(&mut self, count: usize, latency: Duration) {
        self.operations += count as u64;
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.saturating_record_n(nanoseconds, count as u64);
    }

    pub(super) fn error(&mut self, count: usize, words: impl FnOnce() -> String) {
        self.errors += count as u64;
        self.first_error.get_or_insert_with(words);
    }

    /// Compares the answer to an operation with what it has to be.
    pub(super) fn check(&mut self, plan: &Plan, draw: Draw, answer: Result<Reply<'_>, WireError>) {
        let is_expected = match (answer, draw.is_write()) {
            (Ok(Reply::Done), is_write) => is_write && plan.mix.write != Write::Modify,
            (Ok(Reply::Value(value)), true) => plan.mix.write == Write::Modify && value.len() == plan.value_size,
            (Ok(Reply::Value(value)), false) => match plan.mix.read {
                Read::Get => value.len() == plan.value_size,
                Read::Sum => value.len() == widest_element(plan.value_size).width(),
                // The record that it begins with is there; fewer than were asked for come before the last key.
                Read::Scan(..) => Page::decode(value).is_some_and(|page| {
                    page.count() == draw.pair_count() || !page.more() && (1..draw.pair_count()).contains(&page.count())
                }),
            },
            _ => false,
        };
        if !is_expected {
            self.error(1, || describe(answer));
        }
    }
}

/// Puts all records of the range. `loaded` is told how many after every batch. An error comes with the records that
/// may have been put up to then.
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
        let batch = first..records.end.min(first + plan.batch as u64);
        keys.clear();
        let mut places = Vec::with_capacity(plan.batch);
        for record in batch.clone() {
            let key_start = keys.len();
            plan.keys.append(record, &mut keys);
            places.push((key_start..keys.len(), values.next_start()));
        }
        let requests: Vec<_> = places
            .iter()
            .map(|(key, value_start)| Request {
                key: &keys[key.clone()],
                operation: Operation::Put { value: values.at(*value_start), condition: PutCondition::Always },
            })
            .collect();
        insist(target, &requests).map_err(|error| (error, records.start..batch.end))?;
        loaded(batch.end - batch.start);
        first = batch.end;
    }
    Ok(())
}

/// Records that are deleted together, whatever the batches of the run are: this is not measured.
const DELETED_TOGETHER: u64 = 1024;

/// Deletes the records of the range that are there.
pub(crate) fn unload(target: &mut Target, keys: Keys, records: Range<u64>) -> Result<(), String> {
    let mut first = records.start;
    while first < records.end {
        let end = records.end.min(first + DELETED_TOGETHER);
        delete(target, keys, first..end)?;
        first = end;
    }
    Ok(())
}

/// Deletes the records that a client has inserted, and those behind them that one of a run that was killed has.
pub(crate) fn unload_inserts(target: &mut Target, keys: Keys, inserts: &Inserts) -> Result<(), String> {
    let mut first = 0;
    loop {
        let found = delete(target, keys, (first..first + DELETED_TOGETHER).map(|insert| inserts.number(insert)))?;
        first += DELETED_TOGETHER;
        if first >= inserts.count() && found == 0 {
            return Ok(());
        }
    }
}

/// Deletes these records; answers how many were there.
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
    insist(target, &requests)
}

/// How long a server may be too busy for what is not measured, and how long to wait before it is asked again.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Carries out puts or deletes, over and over until the server was not too busy for any of them. Answers how many were done.
fn insist(target: &mut Target, requests: &[Request<'_>]) -> Result<u64, String> {
    let until = Instant::now() + PATIENCE;
    let mut done = 0;
    loop {
        target.execute(requests)?;
        let mut is_busy = false;
        for index in 0..requests.len() {
            match target.answer(index) {
                Ok(Reply::Done) => done += 1,
                Ok(Reply::NotFound) => {}
                Err(WireError::Busy) if Instant::now() < until => is_busy = true,
                unexpected => return Err(describe(unexpected)),
            }
        }
        if !is_busy {
            return Ok(done);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Sends the operations, over and over if there are too few, until the limit.
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
            plan.keys.append(plan.record(draw, inserts), &mut keys);
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
            let answer = target.answer(index);
            if plan.is_insert(*draw) {
                inserts.answer(answer != Ok(Reply::Done));
            }
            match answer {
                Err(WireError::Busy) => refused += 1,
                answer => findings.check(plan, *draw, answer),
            }
        }
        findings.refused += refused as u64;
        findings.batch(count - refused, latency);
    }
}

fn describe(answer: Result<Reply<'_>, WireError>) -> String {
    match answer {
        Ok(Reply::Failed(error)) => error.to_string(),
        Ok(Reply::NotFound) => "a record that was loaded is not there".to_owned(),
        Ok(Reply::Value(value)) => format!("an answer of {} bytes, which is not what was asked for", value.len()),
        Ok(Reply::Done | Reply::Exists | Reply::Deferred) => "an answer to another operation".to_owned(),
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
