//! Puts at the level `always` against redis-server with `appendfsync always`. One client program sends them, each server
//! is measured at several depths, and the best depth of each counts.

use skep_measure::median;

use super::report::{Bar, Row};
use super::{Run, Section};
use crate::figures::millions;
use crate::keys::PairForm;
use crate::servers::Protocol;

/// Requests in a batch.
const DEPTHS: [usize; 4] = [16, 64, 256, 1024];
/// The index of the depth of the first figure.
const FIRST: usize = 1;
const SIDES: [(&str, Protocol); 3] =
    [("native", Protocol::Native), ("RESP", Protocol::Resp), ("redis", Protocol::Resp)];

pub(super) fn run(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let (form, keys) = (PairForm::Random, run.plan.keys);
    let skep = run.skep(form, keys, Some((&run.folder.empty("always")?, "always")))?;
    let redis = run.redis(&run.folder.empty("always-redis")?, Some("always"))?;
    run.load(&skep, form, keys)?;
    run.load(&redis, form, keys)?;
    let mut rates = SIDES.map(|_| DEPTHS.map(|_| Vec::new()));
    for round in 0..run.plan.rounds {
        (run.progress)(&format!("always: round {} of {}", round + 1, run.plan.rounds));
        for (index, depth) in DEPTHS.into_iter().enumerate() {
            for (side, server) in [&skep, &skep, &redis].into_iter().enumerate() {
                let sample = run.puts(server, SIDES[side].1, (form, keys, depth), round)?;
                rates[side][index].push(sample.tally.rate());
            }
        }
    }
    let best = rates.each_ref().map(|depths| {
        (0..DEPTHS.len()).max_by(|a, b| median(&depths[*a]).total_cmp(&median(&depths[*b]))).unwrap_or(FIRST)
    });
    let row = |side: usize, depth: usize, name: String, bar| {
        let (ours, theirs) = (&rates[side][depth], &rates[2][best[2]]);
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
