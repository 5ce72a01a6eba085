//! The throughput of Honeycomb's card and its host, for an ordered store.

use std::io::{self, Write};

use serde_json::json;
use skep_nic::honeycomb::card::HoneycombCard;
use skep_nic::honeycomb::tree::PairSizes;
use skep_nic::load::pairs::Sizes;
use skep_nic::sizing::{LastTree, OrderedDemand, OrderedSizing, size_ordered};

use super::report::{percent, signed_percent, table};
use super::{Arguments, LoadArguments, with_progress};
use crate::failure::Failure;
use crate::size::MemorySize;

/// The fields of the load that a sweep can change.
const LOAD_FIELDS: [&str; 5] = ["key-size", "value-size", "scan", "put", "insert"];
/// Share of PUTs without a share in the arguments.
const PUT: f64 = 0.05;

/// Returns true for the description of a card of an ordered store.
pub(super) fn is_description(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "[accelerator]")
}

/// Computes the report and prints it.
pub(super) fn run(text: &str, arguments: &Arguments) -> Result<(), Failure> {
    let card =
        HoneycombCard::from_toml(text).map_err(|error| Failure::Usage(format!("{}: {error}", arguments.hardware)))?;
    if arguments.print_hardware {
        return Ok(write!(io::stdout(), "{text}")?);
    }
    refuse_others(&card, arguments)?;
    let report = match &arguments.sweep {
        Some(sweep) => {
            let rows = sweep_rows(&card, arguments, &sweep.field, &sweep.values)?;
            if arguments.csv { csv(&sweep.field, &rows) } else { rows_as_table(&sweep.field, &rows) }
        }
        None => {
            let (demand, sizing) = sized("sizing", &card, arguments, &mut LastTree::default())?;
            if arguments.json { as_json(&card, &demand, &sizing) } else { tables(&card, &demand, &sizing) }
        }
    };
    Ok(writeln!(io::stdout(), "{report}")?)
}

/// Refuses what only other cards have.
fn refuse_others(card: &HoneycombCard, arguments: &Arguments) -> Result<(), Failure> {
    let load = &arguments.load;
    let given = [
        ("delete", load.delete > 0.0),
        ("update", load.update > 0.0),
        ("hot-key", load.hot_key > 0.0),
        ("skew", load.skew.is_some_and(|skew| skew > 0.0)),
        ("utilization", load.utilization.is_some()),
        ("kv-size", load.kv_size.is_some()),
        ("memory", arguments.memory.is_some()),
        ("cards", arguments.cards.is_some()),
        ("target", arguments.target.is_some()),
        ("p99", arguments.p99.is_some()),
        ("cores", arguments.cores.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((field, _)) => Err(Failure::Usage(format!(
            "{field}: {} has GETs, scans, insertions and PUTs of equally popular keys: use --hardware kv-direct for this",
            card.name
        ))),
    }
}

/// Returns the load of the arguments.
fn demand(load: &LoadArguments) -> Result<OrderedDemand, Failure> {
    let one = |field: &str, sizes: &Sizes| match sizes.is_fixed() {
        true => Ok(sizes.most() as usize),
        false => Err(Failure::Usage(format!("{field}: `{sizes}` is not one size, which an ordered store needs here"))),
    };
    let sizes = PairSizes { key: one("key-size", &load.key_size)?, value: one("value-size", &load.value_size)? };
    let put = load.put.unwrap_or(if load.insert > 0.0 { 0.0 } else { PUT });
    for (field, share) in [("put", put), ("insert", load.insert)] {
        if !(0.0..=1.0).contains(&share) {
            return Err(Failure::Usage(format!("{field}: {share} is not between 0 and 1")));
        }
    }
    Ok(OrderedDemand { sizes, items: load.scan.unwrap_or(1), writes: put + load.insert, pairs: load.pairs })
}

fn sized(
    name: &str,
    card: &HoneycombCard,
    arguments: &Arguments,
    tree: &mut LastTree,
) -> Result<(OrderedDemand, OrderedSizing), Failure> {
    let demand = demand(&arguments.load)?;
    let sizing = with_progress(name, |progress| size_ordered(card, &demand, &arguments.all_seeds(), tree, progress))?;
    Ok((demand, sizing))
}

/// Sizes the card with each value of a field.
fn sweep_rows(
    card: &HoneycombCard,
    arguments: &Arguments,
    field: &str,
    values: &[String],
) -> Result<Vec<(String, OrderedSizing)>, Failure> {
    let is_of_load = LOAD_FIELDS.contains(&field);
    if !is_of_load && card.with(field, "1").is_none() {
        let (load, board) = (LOAD_FIELDS.join(", "), card.fields().join(", "));
        return Err(Failure::Usage(format!(
            "--sweep {field}: no field; those of the load are {load}; those of the board are {board}"
        )));
    }
    let mut tree = LastTree::default();
    let of_value = |value: &String| {
        let (mut changed, mut other) = (arguments.clone(), card.clone());
        if is_of_load {
            let set = changed.set(field, value);
            set.map_err(|error| Failure::Usage(format!("--sweep {field}: {error}")))?;
        } else {
            let with = card.with(field, value).expect("it is a field");
            other = with
                .and_then(|card| card.check().map(|()| card))
                .map_err(|error| Failure::Usage(format!("--sweep: {error}")))?;
        }
        let (_, sizing) = sized(&format!("{field} = {value}"), &other, &changed, &mut tree)?;
        Ok((value.clone(), sizing))
    };
    values.iter().map(of_value).collect()
}

fn csv(field: &str, rows: &[(String, OrderedSizing)]) -> String {
    let mut text = format!("{field},mops,mops_low,mops_high,bottleneck,bytes,reads_by_cores,read_us,read_alone_us");
    for (value, sizing) in rows {
        let OrderedSizing { mops, mops_range: [low, high], bottleneck, bytes, read_us: [full, alone], .. } = sizing;
        let of_cores = sizing.reads_by_cores;
        text += &format!(
            "\n{value},{mops:.3},{low:.3},{high:.3},{bottleneck},{bytes:.0},{of_cores:.3},{full:.3},{alone:.3}"
        );
    }
    text
}

fn rows_as_table(field: &str, rows: &[(String, OrderedSizing)]) -> String {
    let first = rows.first().map_or(1.0, |(_, sizing)| sizing.mops);
    let rows = rows.iter().map(|(value, sizing)| {
        let [low, high] = sizing.mops_range;
        vec![
            value.clone(),
            format!("{:.2}", sizing.mops),
            format!("{low:.2} to {high:.2}"),
            signed_percent(sizing.mops / first - 1.0),
            sizing.bottleneck.to_owned(),
            format!("{:.0}", sizing.bytes),
            percent(sizing.reads_by_cores),
        ]
    });
    let header = [field, "million/s", "seeds", "change", "bottleneck", "bytes read", "reads by cores"];
    table(&header, rows)
}

/// Returns the report as one line of JSON.
fn as_json(card: &HoneycombCard, demand: &OrderedDemand, sizing: &OrderedSizing) -> String {
    let per = |of: Option<f64>| Some(1e3 * sizing.mops / of?);
    let resources = sizing.resources.iter().map(|one| {
        json!({
            "name": one.name, "busy": one.busy, "bound_mops": one.bound_mops(sizing.mops),
            "throughput_if_doubled_mops": one.mops_if_doubled,
        })
    });
    let resources: Vec<_> = resources.collect();
    let report = json!({
        "hardware": {
            "name": card.name, "kops_per_watt": per(card.card.watts), "kops_per_price": per(card.card.price),
            "cores": card.host.cores,
        },
        "load": {
            "key_size": demand.sizes.key, "value_size": demand.sizes.value, "scan": demand.items,
            "writes": demand.writes, "pairs": sizing.pairs,
        },
        "throughput_mops": sizing.mops, "throughput_range_mops": sizing.mops_range,
        "bottleneck": sizing.bottleneck, "memory_bytes": sizing.memory_bytes, "bytes_per_operation": sizing.bytes,
        "reads_by_cores": sizing.reads_by_cores, "read_us": sizing.read_us[0], "read_alone_us": sizing.read_us[1],
        "insertion_us": (demand.writes > 0.0).then_some(sizing.insertion_us), "resources": resources,
    });
    report.to_string()
}

/// Returns the report as text and tables.
fn tables(card: &HoneycombCard, demand: &OrderedDemand, sizing: &OrderedSizing) -> String {
    let [low, high] = sizing.mops_range;
    let reads = match demand.items {
        1 => "GETs".to_owned(),
        items => format!("scans of {items} items"),
    };
    let mut text = format!(
        "{}: keys of {} B, values of {} B, {} {reads}, {} insertions or PUTs: {:.0} million pairs in {}\n\n",
        card.name,
        demand.sizes.key,
        demand.sizes.value,
        percent(1.0 - demand.writes),
        percent(demand.writes),
        sizing.pairs as f64 / 1e6,
        MemorySize(sizing.memory_bytes),
    );
    let mut line = |name: &str, value: String| text += &format!("{name:<22}{value}\n");
    line("throughput", format!("{:.2} million operations/s ({low:.2} to {high:.2} over the seeds)", sizing.mops));
    if let Some(watts) = card.card.watts {
        line("for each watt", format!("{:.0} thousand operations/s, of {watts} W", 1e3 * sizing.mops / watts));
    }
    if let Some(price) = card.card.price {
        line("for the price", format!("{:.1} thousand operations/s for each of {price}", 1e3 * sizing.mops / price));
    }
    line("bottleneck", sizing.bottleneck.to_owned());
    line("an operation", format!("{:.0} B that the card reads", sizing.bytes));
    line("reads by cores", format!("{}, of {} cores of the host", percent(sizing.reads_by_cores), card.host.cores));
    let [full, alone] = sizing.read_us;
    line("a read by the card", format!("{full:.1} µs at this rate, {alone:.1} µs alone, without the network"));
    if demand.writes > 0.0 {
        line("an insertion", format!("{:.1} µs at this rate, without the network and the wait", sizing.insertion_us));
    }
    let rows = sizing.resources.iter().map(|one| {
        vec![
            one.name.to_owned(),
            one.busy.map_or_else(String::new, percent),
            one.bound_mops(sizing.mops).map_or_else(String::new, |bound| format!("{bound:.2}")),
            format!("{:.2}", one.mops_if_doubled),
            signed_percent(one.mops_if_doubled / sizing.mops - 1.0),
        ]
    });
    let header = ["resource", "busy", "bound, million/s", "million/s if doubled", "gain"];
    text + "\n" + &table(&header, rows)
}
