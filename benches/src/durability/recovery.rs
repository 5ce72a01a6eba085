//! Starts from a snapshot and from a log: how many pairs a second Skep loads, and the time against redis-server's.
//!
//! ```text
//! prepare    start ─▶ put all pairs ─▶ snapshot, or only the log ─▶ SIGKILL
//! round      start ─▶ first PONG ─▶ time that the server took to read its directory, for each prepared directory
//! ```
//!
//! Pairs a second are those of the time to read the directory. The comparison with redis-server is that of whole starts:
//! that of Skep has the first touch of all its memory. Skep reads its files past the page cache, so from the disk; those of
//! redis-server are in the page cache.

use std::path::PathBuf;

use skep_measure::median;

use super::report::{Bar, Row};
use super::side::{Asker, size, start_redis, start_skep};
use super::{LONG_ROUNDS, Run, Section};
use crate::keys::PairForm;
use crate::servers::Setting;

/// The level at which servers start; it is also the default.
const LEVEL: &str = "always";
/// A log that is long is replaced by a snapshot, from which the next start would be.
const SNAPSHOT_OF_LOG: &str = "the server took a snapshot of its log: choose fewer --keys";

/// The program that starts, and the files that it finds.
#[derive(Clone, Copy, PartialEq)]
enum Files {
    SkepSnapshot,
    SkepLog,
    RedisRdb,
    RedisAof,
}

/// A prepared directory, and the starts from it.
struct Case {
    files: Files,
    form: PairForm,
    folder: PathBuf,
    /// Seconds in which Skep read its directory, of each start.
    loads: Vec<f64>,
    /// Seconds of each start.
    starts: Vec<f64>,
}

/// Measures starts of Skep.
pub(super) fn run(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let cases = measure(
        run,
        &[
            (Files::SkepSnapshot, PairForm::Random),
            (Files::SkepSnapshot, PairForm::Large),
            (Files::SkepLog, PairForm::Random),
        ],
    )?;
    let row = |case: &Case, name: &str, unit, count: f64, bar| {
        let rates = case.loads.iter().map(|seconds| count / seconds).collect();
        let mut row =
            Row::new(Section::Recovery, format!("recovery from {name}"), unit, Some(Bar::AtLeast(bar)), rates);
        let (load, start) = (median(&case.loads), median(&case.starts));
        row.from = format!("{} pairs in {load:.2} s of a start of {start:.2} s", run.keys(case.form));
        row
    };
    let pairs = |case: &Case| run.keys(case.form) as f64 / 1e6;
    let bytes = |case: &Case| run.keys(case.form) as f64 * size(case.form) as f64 / 1e9;
    Ok(vec![
        row(&cases[0], "a snapshot, 10 B pairs", "M/s", pairs(&cases[0]), 6.0),
        row(&cases[1], "a snapshot, 254 B pairs", "GB/s", bytes(&cases[1]), 0.8),
        row(&cases[2], "the log, 10 B puts, one shard", "M/s", pairs(&cases[2]), 6.0),
    ])
}

/// Measures starts of Skep and redis-server.
pub(super) fn load(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let files = [Files::RedisRdb, Files::SkepSnapshot, Files::RedisAof, Files::SkepLog];
    let cases = measure(run, &files.map(|files| (files, PairForm::Random)))?;
    let row = |redis: &Case, skep: &Case, name: &str, bar| {
        let mut row =
            Row::of_ratio(Section::Load, name.to_owned(), Some(Bar::AtLeast(bar)), &redis.starts, &skep.starts);
        row.from = format!("{:.2} / {:.2} s for {} pairs", median(&redis.starts), median(&skep.starts), run.plan.keys);
        row
    };
    Ok(vec![
        row(&cases[0], &cases[1], "load time: redis, RDB / Skep, snapshot", 5.0),
        row(&cases[2], &cases[3], "load time: redis, AOF / Skep, log", 10.0),
    ])
}

/// Prepares directories, and starts from each in turns.
fn measure(run: &Run<'_>, cases: &[(Files, PairForm)]) -> Result<Vec<Case>, String> {
    // There is no client while a server starts.
    let setting = Setting { server_cores: run.cores.clone(), ..run.setting.clone() };
    let mut cases = cases
        .iter()
        .enumerate()
        .map(|(index, (files, form))| prepare(run, index, *files, *form))
        .collect::<Result<Vec<Case>, String>>()?;
    run.rounds("starts", cases.len(), LONG_ROUNDS).run(run.progress, |turn| cases[turn.side].start(run, &setting))?;
    Ok(cases)
}

/// Writes the files of a case.
fn prepare(run: &Run<'_>, index: usize, files: Files, form: PairForm) -> Result<Case, String> {
    let folder = run.folder.empty(&format!("prepared-{index}"))?;
    let keys = run.keys(form);
    let server = match files {
        Files::SkepSnapshot | Files::SkepLog => run.skep(form, keys, Some((&folder, "second")))?,
        Files::RedisRdb => run.redis(&folder, None)?,
        Files::RedisAof => run.redis(&folder, Some("everysec"))?,
    };
    run.load(&server, form, keys)?;
    let mut asker = Asker::of(&server)?;
    match files {
        Files::SkepSnapshot => asker.take_snapshot()?,
        Files::SkepLog if asker.persistence("rdb_saves")? > 0 => {
            return Err(SNAPSHOT_OF_LOG.to_owned());
        }
        Files::SkepLog => asker.wait_for_zero("skep_log_unflushed_bytes")?,
        Files::RedisRdb => asker.ask("SAVE").map(|_| ())?,
        // It has written its file before it replied.
        Files::RedisAof => {}
    }
    drop(server);
    Ok(Case { files, form, folder, loads: Vec::new(), starts: Vec::new() })
}

impl Case {
    /// Starts the program, checks the number of keys, and kills it. Notes and returns the seconds to the first PONG.
    fn start(&mut self, run: &Run<'_>, setting: &Setting) -> Result<f64, String> {
        let keys = run.keys(self.form);
        let is_skep = matches!(self.files, Files::SkepSnapshot | Files::SkepLog);
        let (server, seconds) = match self.files {
            _ if is_skep => start_skep(setting, self.form, keys, Some((&self.folder, LEVEL)))?,
            Files::RedisAof => start_redis(setting, &self.folder, Some("everysec"))?,
            _ => start_redis(setting, &self.folder, None)?,
        };
        self.starts.push(seconds);
        let mut asker = Asker::of(&server)?;
        let found = asker.ask("DBSIZE")?;
        if found != keys.to_string() {
            return Err(format!("{} has {found} keys after its start, not {keys}", server.name));
        }
        if is_skep {
            self.loads.push(asker.persistence("skep_load_milliseconds")?.max(1) as f64 / 1000.0);
        }
        if self.files == Files::SkepLog && asker.persistence("rdb_saves")? > 0 {
            return Err(SNAPSHOT_OF_LOG.to_owned());
        }
        Ok(seconds)
    }
}
