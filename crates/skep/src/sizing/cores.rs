//! The cores of a machine that do as much as a card, from a saved measurement.

use std::fs;

use skep_nic::load::mix::Mix;
use skep_nic::sizing::Demand;

use crate::failure::{Failure, reason};

/// Cores of a machine that do as much as the card.
pub(super) struct Cores {
    /// Their number.
    pub(super) count: f64,
    /// Millions of operations a second of one core with the mix.
    pub(super) mops: f64,
    /// The machine, and the pairs that it was measured with.
    pub(super) of: String,
}

/// Reads the rates of a core from a saved result of `skep bench engine --json`.
pub(super) fn equal_cores(path: &str, demand: &Demand, mops: f64) -> Result<Cores, Failure> {
    let refuse = |reason: String| Failure::Usage(format!("--cores {path}: {reason}"));
    let text = fs::read_to_string(path).map_err(|error| refuse(reason(&error)))?;
    let saved: serde_json::Value = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    // A file of the benchmarks has the report and where it was measured.
    let report = saved.get("engine").filter(|inner| inner.is_object()).unwrap_or(&saved);
    let cases =
        report["cases"].as_array().ok_or_else(|| refuse("it has no cases of `skep bench engine`".to_owned()))?;
    let rate = |names: &[&str]| {
        let found = names.iter().find_map(|name| {
            let case = cases.iter().find(|case| case["case"] == **name)?;
            case["ops_per_s"]["median"].as_f64()
        });
        found.ok_or_else(|| refuse(format!("it has no rate of {}, or it was too noisy", names.join(" or "))))
    };
    let gets: &[&str] =
        if demand.skew > 0.0 { &["ycsb_c_zipf", "ycsb_c_uniform"] } else { &["get_uniform", "ycsb_c_uniform"] };
    let updates: &[&str] = if demand.hot_share > 0.5 { &["fetch_add_one_key"] } else { &["fetch_add_uniform"] };
    let Mix { put, insert, delete, update } = demand.mix;
    let mut seconds = 0.0;
    for (share, names) in [
        (demand.mix.get(), gets),
        (put, &["put_existing"] as &[&str]),
        (insert, &["put_new"]),
        (delete, &["delete"]),
        (update, updates),
    ] {
        if share > 0.0 {
            seconds += share / rate(names)?;
        }
    }
    let machine = report["machine"].as_str().unwrap_or("another machine");
    let of = format!("{machine}, pairs of {} B", report["kv_size"]);
    Ok(Cores { count: mops * 1e6 * seconds, mops: 1e-6 / seconds, of })
}
