//! How long a store takes to free the memory of keys that have expired all at once.
//!
//! ```text
//! empty store ─▶ fill until a put is refused ─▶ all keys expire ─▶ steps until none is left ─▶ fill again
//!                      keys that fit                                processor time                keys that fit
//! ```
//!
//! The steps are those that a shard makes between its batches, one after the other. The time is that of the processor.

use skep_core::operation::{Condition, Expiry, ExpiryChange, Operation, Reply, Request, StringWrite};
use skep_store::hash::Settings;
use skep_store::memory::LocalMemory;
use skep_store::processor::{Processor, Replies};

use skep_measure::Progress;

use crate::process::processor_seconds_of_thread;
use crate::tables::{Tables, table};

/// Puts in a batch.
const BATCH: usize = 256;
/// Bytes of memory for each key of 8 B, its value of 8 B and its expiry, about, in a full store.
const KEY_MEMORY: u64 = 88;

/// About how many seconds a fill takes for each key, and the steps that free it.
const KEY_SECONDS: [f64; 2] = [300e-9, 150e-9];

/// The settings of a run.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Plan {
    /// Keys, about.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    pub keys: u64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Keys that fit into the empty store.
    pub keys: u64,
    /// Steps that freed them.
    pub steps: u64,
    /// The most keys that a step has freed.
    pub step_max: usize,
    /// Processor time of the steps, in seconds.
    pub seconds: f64,
    /// Keys that fit afterwards.
    pub keys_again: u64,
}

/// Fills a store, lets its keys expire, frees them and fills it again.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    let [fill_seconds, free_seconds] = KEY_SECONDS.map(|seconds| seconds * plan.keys as f64);
    progress.expect(2.0 * fill_seconds + free_seconds);
    progress.begin("filling a store", fill_seconds);
    let settings = Settings::for_kv_size(plan.keys * KEY_MEMORY, 24, 7);
    let mut processor = Processor::new(&settings).map_err(|error| error.to_string())?;
    let filled = fill(&mut processor, 0, 1000)?;
    processor.set_now(1000);
    progress.begin("freeing expired keys", free_seconds);
    let (mut steps, mut step_max) = (0, 0);
    let begun = processor_seconds_of_thread();
    while processor.is_reclaim_due() {
        step_max = step_max.max(processor.reclaim());
        steps += 1;
    }
    let seconds = processor_seconds_of_thread() - begun;
    if processor.statistics().pairs > 0 {
        return Err(format!("{} keys are left", processor.statistics().pairs));
    }
    progress.begin("filling the store again", fill_seconds);
    let keys_again = fill(&mut processor, filled, 2000)?;
    Ok(Report { keys: filled, steps, step_max, seconds, keys_again })
}

/// Puts keys from this number on, which expire at a time, until a put is refused. Returns how many were put.
fn fill(processor: &mut Processor<LocalMemory>, first: u64, time: i64) -> Result<u64, String> {
    let expiry = ExpiryChange::set(Expiry::at(time).expect("a small time"));
    let mut replies = Replies::with_budget(1 << 20);
    let set = StringWrite::Set { value: b"8 bytes.", condition: Condition::ALWAYS, expiry, return_old: false };
    let mut next = first;
    loop {
        // Neighbouring numbers are no neighbours in the store: it hashes them.
        let keys: Vec<[u8; 8]> = (0..BATCH as u64).map(|index| (next + index).to_le_bytes()).collect();
        let requests: Vec<Request<'_>> =
            keys.iter().map(|key| Request { key, operation: Operation::StringWrite(set) }).collect();
        processor.execute(&requests, &mut replies);
        for index in 0..BATCH {
            match replies.get(index) {
                Reply::Done => next += 1,
                Reply::Failed(error) if error.is_out_of_memory() => return Ok(next - first),
                Reply::Deferred => break,
                other => return Err(format!("a put has the reply {other:?}")),
            }
        }
    }
}

impl Report {
    /// Returns the table.
    pub fn tables(&self) -> Tables {
        let row = vec![
            self.keys.to_string(),
            self.steps.to_string(),
            self.step_max.to_string(),
            format!("{:.2}", self.seconds),
            format!("{:.0}", self.seconds * 1e9 / self.keys as f64),
            format!("{:.1}%", self.keys_again as f64 * 100.0 / self.keys as f64),
        ];
        let header = ["keys", "steps", "most keys of a step", "processor, s", "ns a key", "fit again"];
        let note = "Keys and values of 8 B with an expiry; all expire at once.".to_owned();
        Tables { tables: vec![table(&header, 0, std::iter::once(row))], note }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_are_freed_and_fit_again() {
        let report = run(&Plan { keys: 20_000 }, &Progress::hidden()).unwrap();
        assert!(report.keys > 10_000 && report.steps > 0 && report.keys_again * 100 >= report.keys * 95, "{report:?}");
    }
}
