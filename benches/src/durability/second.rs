//! Puts at the level `second` against puts at the level `memory`, over the native protocol.
//!
//! The figure counts only if the log takes less than 0.7 of the disk's bandwidth. That is measured in each round by the
//! bare loop of `bandwidth`. The bytes of the log are those of one put, which the load has shown, times the rate.

use skep_measure::median;

use super::bandwidth::{GROUP, bare};
use super::report::{Bar, Row};
use super::side::{Asker, size};
use super::{DEPTH, Run, Section};
use crate::figures::millions;
use crate::keys::PairForm;
use crate::servers::Protocol;

/// The bytes of the log's blocks, in `INFO persistence`.
const WRITTEN: &str = "skep_log_written_bytes";
/// The largest share of the disk's bandwidth at which the figure counts.
const SHARE_MAX: f64 = 0.7;

pub(super) fn run(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for form in [PairForm::Random, PairForm::Medium] {
        let keys = run.keys(form);
        let folder = run.folder.empty("second")?;
        let memory = run.skep(form, keys, None)?;
        let second = run.skep(form, keys, Some((&folder, "second")))?;
        run.load(&memory, form, keys)?;
        let mut asker = Asker::of(&second)?;
        let before = asker.persistence(WRITTEN)?;
        run.load(&second, form, keys)?;
        asker.wait_for_zero("skep_log_unflushed_bytes")?;
        let put_size = (asker.persistence(WRITTEN)? - before) as f64 / keys as f64;
        let rounds = run.rounds(format!("second, {} B", size(form)), 3, usize::MAX);
        let samples = rounds.run(run.progress, |turn| {
            asker.wait_for_zero("rdb_bgsave_in_progress")?;
            let server = match turn.side {
                0 => &memory,
                1 => &second,
                _ => return bare(run.folder.path(), GROUP, run.plan.seconds),
            };
            Ok::<_, String>(run.puts(turn, server, Protocol::Native, form, DEPTH)?.tally.rate())
        })?;
        let [rates @ .., disk] = &samples[0][..] else { return Err("a side is missing".to_owned()) };
        let logged: Vec<f64> = rates[1].iter().map(|rate| rate * put_size / 1e6).collect();
        let shares: Vec<f64> = logged.iter().zip(disk).map(|(log, disk)| log / disk).collect();
        let share = median(&shares);
        let mut row = Row::of_ratio(
            Section::Second,
            format!("puts of {} B: second / memory", size(form)),
            Some(Bar::AtLeast(0.8)),
            &rates[1],
            &rates[0],
        );
        row.from = format!(
            "{} / {} M/s; log {:.0} MB/s, which is {share:.2} of the disk's {:.0} MB/s",
            millions(median(&rates[1])),
            millions(median(&rates[0])),
            median(&logged),
            median(disk),
        );
        row.objection = (share > SHARE_MAX).then(|| "the disk is the limit".to_owned());
        rows.push(row);
    }
    Ok(rows)
}
