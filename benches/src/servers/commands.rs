//! Commands that only Redis and Skep's RESP port have: puts with an expiry, and transactions of five increments.

use super::child::Setting;
use super::measure::{figures, load, measure};
use super::plan::{Plan, ROUNDS};
use super::rows::Row;
use super::template::{INCREMENTS, Protocol, Verb};
use crate::keys::PairForm;

/// Transactions in a batch of the deeper case.
const TRANSACTIONS: usize = 12;

/// Measures both servers in turn; they hold counters.
pub(super) fn run(setting: &Setting, plan: &Plan, progress: &impl Fn(&str)) -> Result<Vec<Row>, String> {
    let servers = [setting.skep(PairForm::Counter)?, setting.redis()?];
    for server in &servers {
        progress(&format!("commands of RESP: loading {}", server.name));
        load(server, plan, PairForm::Counter)?;
    }
    let cases = [
        (Verb::Transaction, vec![INCREMENTS, INCREMENTS * TRANSACTIONS]),
        // After it, pairs have an expiry.
        (Verb::SetExpiring, vec![plan.depth]),
    ];
    let mut rows = Vec::new();
    for (verb, depths) in cases {
        let mut of_servers = servers.each_ref().map(|server| Row {
            server: server.name.to_owned(),
            verb,
            bytes_per_pair: 0.0,
            depths: Vec::new(),
        });
        for depth in depths {
            progress(&format!("commands of RESP: {verb:?}, depth {depth}"));
            let mut samples = [const { Vec::new() }; 2];
            for round in 0..ROUNDS {
                for (server, samples) in servers.iter().zip(&mut samples) {
                    let case = (PairForm::Counter, verb, depth);
                    samples.push(measure(server, Protocol::Resp, case, plan, round as u64)?);
                }
            }
            for (row, samples) in of_servers.iter_mut().zip(samples) {
                row.depths.push(figures(&samples, depth));
            }
        }
        rows.extend(of_servers);
    }
    Ok(rows)
}
