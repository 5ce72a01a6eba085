//! Commands that only Redis and Skep's RESP port have: puts with an expiry, and transactions of five increments.

use skep_measure::{Progress, Rounds, Row as Measurement};

use super::child::Setting;
use super::measure::{Load, figures, load, measure};
use super::plan::Plan;
use super::rows::Row;
use super::template::{INCREMENTS, Protocol, Verb};
use crate::keys::PairForm;

/// Transactions in a batch of the deeper case.
const TRANSACTIONS: usize = 12;

/// Returns the verbs, each with its depths. After the last one, pairs have an expiry.
fn cases(plan: &Plan) -> [(Verb, Vec<usize>); 2] {
    [(Verb::Transaction, vec![INCREMENTS, INCREMENTS * TRANSACTIONS]), (Verb::SetExpiring, vec![plan.depth])]
}

/// Returns the rounds of a verb.
fn rounds(plan: &Plan, verb: Verb, depths: &[usize]) -> Rounds {
    let rows = depths.iter().map(|depth| Measurement::new(format!("{verb:?}, depth {depth}"), 2));
    Rounds::new(plan.effort(), rows.collect())
}

/// Returns about how many seconds they take.
pub(super) fn expected_seconds(plan: &Plan) -> f64 {
    let of_verbs = cases(plan).map(|(verb, depths)| rounds(plan, verb, &depths).expected_seconds());
    2.0 * plan.load_seconds() + of_verbs.iter().sum::<f64>()
}

/// Measures both servers in turn; they hold counters. Adds the rows of each verb.
pub(super) fn run(setting: &Setting, plan: &Plan, progress: &Progress, rows: &mut Vec<Row>) -> Result<(), String> {
    let servers = [setting.skep(PairForm::Counter)?, setting.redis()?];
    for server in &servers {
        load(server, plan, PairForm::Counter, progress)?;
    }
    for (verb, depths) in cases(plan) {
        let samples = rounds(plan, verb, &depths).run(progress, |turn| {
            let load = Load { form: PairForm::Counter, verb, depth: depths[turn.row] };
            measure(turn, &servers[turn.side], Protocol::Resp, load, plan)
        })?;
        rows.extend(servers.iter().enumerate().map(|(side, server)| Row {
            server: server.name.to_owned(),
            verb,
            bytes_per_pair: 0.0,
            depths: depths.iter().zip(&samples).map(|(depth, of_depth)| figures(&of_depth[side], *depth)).collect(),
        }));
    }
    Ok(())
}
