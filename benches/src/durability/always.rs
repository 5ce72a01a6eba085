//! Puts at the level `always` against redis-server with `appendfsync always`. One client program sends them, each server
//! is measured at several depths, and the best depth of each counts.

use skep_measure::{Row as Measurement, median};

use super::report::{Bar, Row};
use super::{Run, Section};
use crate::figures::millions;
use crate::keys::PairForm;
use crate::servers::Protocol;

/// Requests in a batch.
const DEPTHS: [usize; 4] = [16, 64, 256, 1024];
/// The index of the depth of the first figure.
const FIRST: usize = 1;
/// The protocols of the sides: Skep, Skep, Redis.
const SIDES: [Protocol; 3] = [Protocol::Native, Protocol::Resp, Protocol::Resp];

pub(super) fn run(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let (form, keys) = (PairForm::Random, run.plan.keys);
    let skep = run.skep(form, keys, Some((&run.folder.empty("always")?, "always")))?;
    let redis = run.redis(&run.folder.empty("always-redis")?, Some("always"))?;
    run.load(&skep, form, keys)?;
    run.load(&redis, form, keys)?;
    let rows = DEPTHS.map(|depth| Measurement::new(format!("always, depth {depth}"), SIDES.len()));
    let rates = run.rounds_of(rows.to_vec(), usize::MAX).run(run.progress, |turn| {
        let server = [&skep, &skep, &redis][turn.side];
        let sample = run.puts(turn, server, SIDES[turn.side], form, DEPTHS[turn.row])?;
        Ok::<_, String>(sample.tally.rate())
    })?;
    let best = [0, 1, 2].map(|side| {
        let rate = |depth: &usize| median(&rates[*depth][side]);
        (0..DEPTHS.len()).max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(FIRST)
    });
    let row = |side: usize, depth: usize, name: String, bar| {
        let (ours, theirs) = (&rates[depth][side], &rates[best[2]][2]);
        let mut row = Row::of_ratio(Section::Always, name, bar, ours, theirs);
        row.from = format!(
            "{} M/s at depth {} / {} M/s at depth {}",
            millions(median(ours)),
            DEPTHS[depth],
            millions(median(theirs)),
            DEPTHS[best[2]],
        );
        row
    };
    Ok(vec![
        row(0, best[0], "always, native / redis, best depths".to_owned(), Some(Bar::AtLeast(6.0))),
        row(0, FIRST, format!("always, native, depth {} / redis, best depth", DEPTHS[FIRST]), None),
        row(1, best[1], "always, RESP / redis, best depths".to_owned(), Some(Bar::AtLeast(2.0))),
    ])
}
