//! The questions of `skep size` besides the throughput: cards for a rate, a rate for a latency, and a table over the
//! values of a field.

use skep_nic::hardware::Hardware;
use skep_nic::sizing::{Cards, Demand, Sizing, Within, cards_for, rate_within, size};

use super::report::{signed_percent, table};
use super::{Arguments, board, with_progress};
use crate::failure::Failure;

/// Millions of operations a second, as `500M`, `2.5G` or a plain number of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) mops: f64,
}

/// A latency, as `5us`, `5µs`, `800ns` or `1ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Microseconds(pub(super) f64);

/// A field and the values that it has in turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sweep {
    pub(super) field: String,
    pub(super) values: Vec<String>,
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, factor) = match text.char_indices().last() {
            Some((at, 'k' | 'K')) => (&text[..at], 1e-3),
            Some((at, 'm' | 'M')) => (&text[..at], 1.0),
            Some((at, 'g' | 'G')) => (&text[..at], 1e3),
            _ => (text, 1e-6),
        };
        match number.trim().parse::<f64>() {
            Ok(number) if number > 0.0 && number.is_finite() => Ok(Rate { mops: number * factor }),
            _ => Err(format!("`{text}` is no rate above 0: write operations a second, as 500M or 2.5G")),
        }
    }
}

impl std::str::FromStr for Microseconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("ns", 1e-3), ("us", 1.0), ("µs", 1.0), ("ms", 1e3)];
        let found = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
        match found.and_then(|(number, factor)| Some(number.trim().parse::<f64>().ok()? * factor)) {
            Some(us) if us > 0.0 && us.is_finite() => Ok(Microseconds(us)),
            _ => Err(format!("`{text}` is no time above 0: write a number and a unit, as 5us or 800ns")),
        }
    }
}

impl std::str::FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((field, values)) if !field.is_empty() && !values.is_empty() => Ok(Sweep {
                field: field.trim().to_owned(),
                // The shares of a list of sizes contain commas, so values may also be divided by semicolons.
                values: values
                    .split(if values.contains(';') { ';' } else { ',' })
                    .map(|value| value.trim().to_owned())
                    .collect(),
            }),
            _ => Err(format!("`{text}` is no sweep: write a field and its values, as pcie.links=1,2,4")),
        }
    }
}

/// The fields of the load that a sweep can change.
const LOAD_FIELDS: [&str; 11] = [
    "cards",
    "key-size",
    "value-size",
    "put",
    "insert",
    "delete",
    "update",
    "hot-key",
    "skew",
    "utilization",
    "memory",
];

/// Finds the cards that reach a rate. Returns the text of the report.
pub(super) fn cards(
    hardware: &Hardware,
    demand: &Demand,
    rate: Rate,
    arguments: &Arguments,
) -> Result<String, Failure> {
    let seeds = arguments.all_seeds();
    let cards = with_progress("counting cards", |progress| cards_for(hardware, demand, rate.mops, &seeds, progress))?;
    let Cards { cards, mops, busiest, tried } = cards;
    if arguments.json {
        let tried: Vec<_> = tried.iter().map(|one| serde_json::json!([one.cards, one.mops])).collect();
        let report = serde_json::json!({
            "hardware": hardware.name, "target_mops": rate.mops, "cards": cards, "throughput_mops": mops,
            "busiest_card": busiest, "tried": tried,
        });
        return Ok(report.to_string());
    }
    let rows = tried.iter().map(|one| vec![one.cards.to_string(), format!("{:.1}", one.mops)]);
    let tried = table(&["cards", "million/s"], rows);
    Ok(format!(
        "{cards} cards of {} make {mops:.1} million operations/s, for the {:.1} that were asked for\n\n{tried}\n\nEach card has \
         a region and keys of its own. The busiest has {busiest:.2} times the average load.",
        hardware.name, rate.mops
    ))
}

/// Finds the rate at which a latency holds. Returns the text of the report.
pub(super) fn within(
    hardware: &Hardware,
    demand: &Demand,
    limit: Microseconds,
    arguments: &Arguments,
) -> Result<String, Failure> {
    let seeds = arguments.all_seeds();
    let found = with_progress("searching a load", |progress| rate_within(hardware, demand, limit.0, &seeds, progress))?;
    let Within { at, full_mops, idle_p99_us } = found;
    if arguments.json {
        let report = serde_json::json!({
            "hardware": hardware.name, "p99_limit_us": limit.0, "throughput_mops": at.mops, "mean_us": at.mean_us,
            "p95_us": at.p95_us, "p99_us": at.p99_us, "full_throughput_mops": full_mops, "idle_p99_us": idle_p99_us,
        });
        return Ok(report.to_string());
    }
    Ok(format!(
        "{:.1} million operations/s with a 99th percentile of at most {} µs: mean {:.2} µs, 95 % {:.2} µs, 99 % {:.2} µs\n\
         {full_mops:.1} million/s without a limit; 99 % of an idle card {idle_p99_us:.2} µs",
        at.mops, limit.0, at.mean_us, at.p95_us, at.p99_us
    ))
}

/// Sizes the board with each value of a field. Returns the text of a table, or CSV.
pub(super) fn sweep(arguments: &Arguments, text: &str, sweep: &Sweep) -> Result<String, Failure> {
    let base = board(arguments, text)?.hardware;
    if !LOAD_FIELDS.contains(&sweep.field.as_str()) && base.with(&sweep.field, "1").is_none() {
        let (load, board) = (LOAD_FIELDS.join(", "), base.fields().join(", "));
        return Err(Failure::Usage(format!(
            "--sweep {}: no field; those of the load are {load}; those of the board are {board}",
            sweep.field
        )));
    }
    let mut rows = Vec::new();
    for value in &sweep.values {
        let mut changed = arguments.clone();
        let hardware = if LOAD_FIELDS.contains(&sweep.field.as_str()) {
            changed
                .set(&sweep.field, value)
                .map_err(|error| Failure::Usage(format!("--sweep {}: {error}", sweep.field)))?;
            board(&changed, text)?.hardware
        } else {
            let with = base.with(&sweep.field, value).expect("it is a field");
            let hardware = with.and_then(|hardware| hardware.check().map(|()| hardware));
            hardware.map_err(|error| Failure::Usage(format!("--sweep: {error}")))?
        };
        let demand = changed.load.demand(&hardware)?;
        let name = format!("{} = {value}", sweep.field);
        let sizing = with_progress(&name, |progress| size(&hardware, &demand, &changed.all_seeds(), progress))?;
        rows.push((value.clone(), sizing));
    }
    Ok(if arguments.csv { csv(&sweep.field, &rows) } else { as_table(&sweep.field, &rows) })
}

fn csv(field: &str, rows: &[(String, Sizing)]) -> String {
    let mut text = format!("{field},mops,mops_low,mops_high,bottleneck,load_dispatch_ratio,mean_us_at_90,p99_us_at_90");
    for (value, sizing) in rows {
        let ([low, high], latency) = (sizing.mops_range, &sizing.latencies[1]);
        // A list of sizes has commas.
        let value = if value.contains(',') { format!("\"{value}\"") } else { value.clone() };
        text += &format!(
            "\n{value},{:.3},{low:.3},{high:.3},{},{:.2},{:.3},{:.3}",
            sizing.mops, sizing.bottleneck, sizing.dispatch.ratio, latency.mean_us, latency.p99_us
        );
    }
    text
}

fn as_table(field: &str, rows: &[(String, Sizing)]) -> String {
    let first = rows.first().map_or(1.0, |(_, sizing)| sizing.mops);
    let rows = rows.iter().map(|(value, sizing)| {
        let ([low, high], latency) = (sizing.mops_range, &sizing.latencies[1]);
        let limit = sizing.resources.iter().find(|one| one.name == sizing.bottleneck).map(|one| one.narrowest().name);
        vec![
            value.clone(),
            format!("{:.1}", sizing.mops),
            format!("{low:.1} to {high:.1}"),
            signed_percent(sizing.mops / first - 1.0),
            format!("{}: {}", sizing.bottleneck, limit.unwrap_or_default()),
            format!("{:.2}", sizing.dispatch.ratio),
            format!("{:.1}", latency.p99_us),
        ]
    });
    table(&[field, "million/s", "seeds", "change", "bottleneck", "l", "99 % µs at 90 % load"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_times_and_sweeps_are_read() {
        for (text, mops) in [("500M", 500.0), ("2.5G", 2500.0), ("30k", 0.03), ("1000000", 1.0)] {
            assert!((text.parse::<Rate>().unwrap().mops / mops - 1.0).abs() < 1e-9, "{text}");
        }
        for (text, us) in [("5us", 5.0), ("5 µs", 5.0), ("800ns", 0.8), ("1ms", 1000.0)] {
            assert!((text.parse::<Microseconds>().unwrap().0 / us - 1.0).abs() < 1e-9, "{text}");
        }
        for text in ["", "M", "-1M", "0", "fast", "infM"] {
            assert!(text.parse::<Rate>().unwrap_err().contains("500M"), "{text}");
        }
        for text in ["", "5", "-1us", "0us", "us", "5s"] {
            assert!(text.parse::<Microseconds>().unwrap_err().contains("5us"), "{text}");
        }
        let sweep = |text: &str| text.parse::<Sweep>().map(|sweep| sweep.values.join("|"));
        assert_eq!(sweep("pcie.links=1, 2,4"), Ok("1|2|4".to_owned()));
        assert_eq!(sweep("value-size=9:16,1:1024;64"), Ok("9:16,1:1024|64".to_owned()));
        assert!(sweep("links").unwrap_err().contains("pcie.links=1,2,4"));
    }
}
