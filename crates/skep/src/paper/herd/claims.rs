//! The statements of HERD's text in numbers: each is measured here, or the reason is given why it is not.
//!
//! Run: GETs and ECHOs of 32 B over every transport, from one client to one shard. The published rate of a server is
//! that of an ECHO in the paper, so this is the one statement of its section 5 that other transports can repeat.

use skep_measure::Figure;
use skep_nic::paper::Axis;

use super::fig05::{VALUE_SIZE, name, on_cores};
use super::published::{Published, Row, rows};
use super::{CLAIMS, Curve, Found, Item, Plan, Statement, fig07, millions};
use crate::bench::transport::{self, Measured, Verb};
use crate::failure::Failure;
use crate::local_server::Cores;

pub(super) const ITEM: Item = Item {
    name: "herd-claims",
    title: "The statements of the text, and GETs beside ECHOs",
    paper: CLAIMS,
    x: Axis::logarithmic("operations in a batch"),
    y: Axis::logarithmic("operations (million/s)"),
    run: measure,
};

/// Operations in a batch.
const DEPTHS: [u32; 3] = [16, 256, 4096];
const VERBS: [Verb; 2] = [Verb::Echo, Verb::Get];
const ECHO: usize = Verb::Echo as usize;
const GET: usize = Verb::Get as usize;
/// The statement about cores, and those that are compared.
const CORES: &str = "cores that reach peak throughput with 8 accesses per request";
const REQUESTS: &str = "requests of one server";
const BEST_ECHO: &str = "best ECHO rate (32 B)";

const NIC: &str = "needs an RDMA NIC and a cluster of clients. GETs over Skep's transports are below";
const READ: &str = "needs an RDMA NIC that serves READs";
const OTHERS: &str = "FaRM-KV and Pilaf need RDMA NICs";
const VERBS_OF_NIC: &str = "needs an RDMA NIC. herd-fig05 has the ECHOs of Skep's transports";
const MODELLED: &str = "needs RDMA NICs. herd-fig06 has it on the model of one";

/// The reasons why statements are not measured.
const REASONS: &[(&str, &str)] = &[
    (REQUESTS, NIC),
    ("average latency at that rate", NIC),
    ("value size up to which the rate exceeds native READ", READ),
    ("throughput over FaRM-KV and Pilaf", OTHERS),
    ("latency below Pilaf and FaRM-KV at their peak", OTHERS),
    ("client processes at peak throughput", "needs an RDMA NIC, and cores for 250 clients"),
    (BEST_ECHO, VERBS_OF_NIC),
    ("WRITE-based ECHO rate (16 B)", VERBS_OF_NIC),
    ("SEND-based ECHO rate", VERBS_OF_NIC),
    ("SEND-based ECHO over inbound READ", READ),
    ("outbound WRITE with 256 queue pairs over its maximum", MODELLED),
    ("inbound WRITE from 1600 clients", MODELLED),
    ("connected clients above which SEND degrades slightly", MODELLED),
];

fn measure(plan: &Plan, progress: &mut dyn FnMut(f64)) -> Result<Found, Failure> {
    let rows = rows(ITEM.paper);
    let (cores, core_count) = (Cores::divide(1)?, Cores::count()?);
    let cores_of_paper = rows.iter().find(|row| row.x == CORES).and_then(Row::value).unwrap_or_default();
    let of_shards = fig07::rates_of(plan, cores_of_paper, core_count, &mut |share| progress(share / 2.0))?;
    let measured = transport::measure(
        &transport::Plan {
            records: plan.records,
            value_size: VALUE_SIZE,
            verbs: &VERBS,
            depths: &DEPTHS,
            rounds: plan.rounds,
            slice: plan.slice,
            timed_count: 0,
        },
        &cores,
        &mut |share| progress(0.5 + share / 2.0),
    )?;
    let of = |x: &str| rows.iter().find(|row| row.x == x).and_then(Row::value).unwrap_or(f64::NAN);
    let (requests, best_echo) = (of(REQUESTS), of(BEST_ECHO));
    let at_least = requests / best_echo;
    Ok(Found {
        statements: measured
            .iter()
            .map(|measured| of_echo(measured, at_least))
            .chain(of_shards.iter().filter_map(|rates| rates.peak(cores_of_paper)))
            .collect(),
        published: rows.into_iter().map(|row| judged(row, of_shards.as_slice(), core_count)).collect(),
        curves: measured.iter().flat_map(curves).collect(),
        setting: format!(
            "One client and one shard with {} records of 8 + {VALUE_SIZE} B; {}. Medians of {} rounds, in which all \
             transports, batches and operations take turns. The paper's server reaches the rate of its best ECHO: {requests} \
             and {best_echo} Mops, whose quotient is {at_least}. The statements test if Skep's GETs reach the rate of its ECHOs. \
             The paper's rates are bounded by the NIC, so its cores have time for the store. Skep's are bounded by \
             the cores.",
            plan.records,
            on_cores(&cores),
            plan.rounds,
        ),
    })
}

/// Returns the verdict on a row.
fn judged(row: Row, of_shards: &[fig07::Rates], core_count: usize) -> Published {
    if row.x == CORES {
        return fig07::of_cores(row, of_shards, core_count);
    }
    let reason = REASONS.iter().find(|(x, _)| *x == row.x).expect("a test looks up all rows").1;
    row.not_measured(reason)
}

/// Returns the curves of a transport.
fn curves(measured: &Measured) -> [Curve; 2] {
    [("ECHO", ECHO), ("GET", GET)].map(|(verb, number)| {
        let rates = DEPTHS.iter().zip(&measured.rates);
        let points = rates.map(|(depth, rates)| (f64::from(*depth), Figure::of(&millions(&rates[number]))));
        Curve { name: format!("Skep, {}, {verb}", name(measured)), points: points.collect() }
    })
}

/// Returns the statement that GETs reach the ECHOs, at the depth with the highest rate of GETs.
fn of_echo(measured: &Measured, at_least: f64) -> Statement {
    let rate = |rates: &transport::Rates| Figure::of(&rates[GET]).median().unwrap_or_default();
    let depths = DEPTHS.iter().zip(&measured.rates);
    let (depth, rates) = depths.max_by(|one, other| rate(one.1).total_cmp(&rate(other.1))).expect("there is a depth");
    Statement {
        text: format!("{}: GETs over ECHOs, batches of {depth}", name(measured)),
        ratio: Figure::of_ratio(&rates[GET], &rates[ECHO]),
        at_least,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::herd::Verdict;

    #[test]
    fn every_statement_has_a_reason_and_every_reason_a_statement() {
        let rows = rows(CLAIMS);
        assert_eq!(rows.len(), REASONS.len() + 1);
        for row in rows {
            let published = judged(row, &[], 2);
            assert_eq!(published.verdict, Verdict::NotMeasured);
            assert!(!published.reason.is_empty(), "{published:?}");
        }
    }
}
