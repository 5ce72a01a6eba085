//! The report of a sizing, for people and for programs.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use skep_nic::hardware::Hardware;
use skep_nic::load::mix::Mix;
use skep_nic::sizing::{Demand, Sizing};

use super::cores::Cores;
use super::memory_bytes;
use crate::size::MemorySize;

/// What is reported.
pub(super) struct Sized<'a> {
    pub(super) hardware: &'a Hardware,
    pub(super) demand: &'a Demand,
    pub(super) sizing: &'a Sizing,
    pub(super) cores: Option<Cores>,
}

#[derive(serde::Serialize)]
struct Report<'a> {
    hardware: HardwareReport<'a>,
    load: LoadReport,
    /// Median of the seeds.
    throughput_mops: f64,
    /// Lowest and highest of the seeds.
    throughput_range_mops: [f64; 2],
    bottleneck: &'a str,
    hash_index_ratio: f64,
    inline_threshold: usize,
    load_dispatch_ratio: f64,
    /// Ratios between these are within 3 % of the best rate.
    load_dispatch_plateau: [f64; 2],
    lines_per_operation: f64,
    requests_per_operation: f64,
    nic_dram_share: f64,
    forwarded_share: f64,
    latencies: Vec<LatencyReport>,
    resources: Vec<ResourceReport<'a>>,
    /// If PCIe is the bottleneck.
    pcie_part_doubled: Vec<DoubledReport<'a>>,
}

#[derive(serde::Serialize)]
struct HardwareReport<'a> {
    name: &'a str,
    nics: u32,
    /// Requests of the busiest NIC, divided by the average.
    busiest_nic: f64,
    memory_bytes: u64,
    /// Thousands of operations a second for each watt of the server. Missing if its power is not given.
    kops_per_watt: Option<f64>,
    /// Thousands of operations a second for each unit of the server's price. Missing if it is not given.
    kops_per_price: Option<f64>,
    /// Cores of the compared machine that do as much.
    equal_cores: Option<f64>,
}

#[derive(serde::Serialize)]
struct LoadReport {
    key_size: String,
    value_size: String,
    put: f64,
    insert: f64,
    delete: f64,
    update: f64,
    hot_key: f64,
    skew: f64,
    utilization: f64,
    /// Number of pairs in the whole memory.
    pairs: u64,
}

#[derive(serde::Serialize)]
struct LatencyReport {
    at_mops: f64,
    mean_us: f64,
    p95_us: f64,
    p99_us: f64,
}

#[derive(serde::Serialize)]
struct ResourceReport<'a> {
    name: &'a str,
    /// Share of the time in which the busiest part is busy, from 0 to 1.
    busy: f64,
    throughput_if_doubled_mops: f64,
    parts: Vec<PartReport<'a>>,
}

#[derive(serde::Serialize)]
struct PartReport<'a> {
    name: &'a str,
    busy: f64,
    /// What this part alone would allow. Missing if it is not used.
    bound_mops: Option<f64>,
}

#[derive(serde::Serialize)]
struct DoubledReport<'a> {
    name: &'a str,
    throughput_mops: f64,
}

impl Sized<'_> {
    /// Returns the report as one line of JSON.
    pub(super) fn json(&self) -> String {
        let Sized { hardware, demand, sizing, .. } = self;
        let per = |of: Option<f64>| Some(1e3 * sizing.mops / of?);
        let latencies = sizing.latencies.iter().map(|one| LatencyReport {
            at_mops: one.mops,
            mean_us: one.mean_us,
            p95_us: one.p95_us,
            p99_us: one.p99_us,
        });
        let resources = sizing.resources.iter().map(|one| ResourceReport {
            name: one.name,
            busy: one.busiest().busy,
            throughput_if_doubled_mops: one.mops_if_doubled,
            parts: one
                .parts
                .iter()
                .map(|part| PartReport {
                    name: part.name,
                    busy: part.busy,
                    bound_mops: Some(part.bound_mops).filter(|bound| bound.is_finite()),
                })
                .collect(),
        });
        let Mix { put, insert, delete, update } = demand.mix;
        let report = Report {
            hardware: HardwareReport {
                name: &hardware.name,
                nics: hardware.server.nics,
                busiest_nic: sizing.busiest_nic,
                memory_bytes: memory_bytes(hardware),
                kops_per_watt: per(hardware.card.watts),
                kops_per_price: per(hardware.card.price),
                equal_cores: self.cores.as_ref().map(|cores| cores.count),
            },
            load: LoadReport {
                key_size: demand.pairs.keys.to_string(),
                value_size: demand.pairs.values.to_string(),
                put,
                insert,
                delete,
                update,
                hot_key: demand.hot_share,
                skew: demand.skew,
                utilization: sizing.utilization,
                pairs: sizing.pairs,
            },
            throughput_mops: sizing.mops,
            throughput_range_mops: sizing.mops_range,
            bottleneck: sizing.bottleneck,
            hash_index_ratio: sizing.hash_index_ratio,
            inline_threshold: sizing.inline_threshold,
            load_dispatch_ratio: sizing.dispatch.ratio,
            load_dispatch_plateau: [sizing.dispatch.low, sizing.dispatch.high],
            lines_per_operation: sizing.lines,
            requests_per_operation: sizing.parts,
            nic_dram_share: sizing.near_share,
            forwarded_share: sizing.forwarded_share,
            latencies: latencies.collect(),
            resources: resources.collect(),
            pcie_part_doubled: sizing
                .widened
                .iter()
                .map(|one| DoubledReport { name: one.name, throughput_mops: one.mops })
                .collect(),
        };
        serde_json::to_string(&report).expect("numbers and text are always valid JSON")
    }

    /// Returns the report as text and tables.
    pub(super) fn tables(&self) -> String {
        let Sized { hardware, demand, sizing, .. } = self;
        let limit = sizing.resources.iter().find(|one| one.name == sizing.bottleneck).expect("it is one of them");
        let part = limit.narrowest();
        let [low, high] = sizing.mops_range;
        let mut text = format!("{}: {}\n\n", hardware.name, load(hardware, demand, sizing));
        let mut line = |name: &str, value: String| text += &format!("{name:<22}{value}\n");
        line("throughput", format!("{:.1} million operations/s ({low:.1} to {high:.1} over the seeds)", sizing.mops));
        if hardware.server.nics > 1 {
            let (nics, busiest) = (hardware.server.nics, sizing.busiest_nic);
            line("NICs", format!("{nics}; the busiest gets {busiest:.2} times the average load"));
        }
        if let Some(watts) = hardware.card.watts {
            line("for each watt", format!("{:.0} thousand operations/s, of {watts} W", 1e3 * sizing.mops / watts));
        }
        if let Some(price) = hardware.card.price {
            line(
                "for the price",
                format!("{:.1} thousand operations/s for each of {price}", 1e3 * sizing.mops / price),
            );
        }
        if let Some(Cores { count, mops, of }) = &self.cores {
            line("equal cores", format!("{count:.1}, each {mops:.1} million/s ({of})"));
        }
        line("bottleneck", format!("{}: {}, {} busy", limit.name, part.name, percent(part.busy)));
        line("hash index ratio", format!("{:.3}", sizing.hash_index_ratio));
        line("inline threshold", format!("{} B", sizing.inline_threshold));
        let dispatch = sizing.dispatch;
        let plateau = format!("{:.2}; {:.2} to {:.2} are within 3 %", dispatch.ratio, dispatch.low, dispatch.high);
        line("load dispatch ratio", plateau);
        if sizing.parts > 1.0 {
            line("requests", format!("{:.1} for an operation: clients divide pairs above a slab", sizing.parts));
        }
        let (near, forwarded) = (percent(sizing.near_share), percent(sizing.forwarded_share));
        let lines = format!("{:.2} lines, {near} of them from the NIC's DRAM; {forwarded} forwarded", sizing.lines);
        line("an operation", lines);
        let latencies = sizing.latencies.iter().map(|one| {
            let figures = [one.mops, one.mean_us, one.p95_us, one.p99_us];
            figures.map(|figure| format!("{figure:.1}")).to_vec()
        });
        text += &format!("\n{}\n\n", table(&["at million/s", "latency, mean µs", "95 %", "99 %"], latencies));
        let mut rows = Vec::new();
        for one in &sizing.resources {
            let gain = signed_percent(one.mops_if_doubled / sizing.mops - 1.0);
            for (index, part) in one.parts.iter().enumerate() {
                let doubled = [format!("{:.1}", one.mops_if_doubled), gain.clone()];
                let [doubled, gain] = if index == 0 { doubled } else { [String::new(), String::new()] };
                let name = if index == 0 { one.name.to_owned() } else { String::new() };
                rows.push(vec![name, part.name.to_owned(), percent(part.busy), bound(part.bound_mops), doubled, gain]);
            }
        }
        let header = ["resource", "part", "busy", "bound, million/s", "million/s if doubled", "gain"];
        text += &table(&header, rows.into_iter());
        if !sizing.widened.is_empty() {
            let rows = sizing.widened.iter().map(|one| {
                vec![one.name.to_owned(), format!("{:.1}", one.mops), signed_percent(one.mops / sizing.mops - 1.0)]
            });
            text += &format!("\n\n{}", table(&["part of PCIe", "million/s if doubled", "gain"], rows));
        }
        text
    }
}

/// Describes the load in a line.
fn load(hardware: &Hardware, demand: &Demand, sizing: &Sizing) -> String {
    let Mix { put, insert, delete, update } = demand.mix;
    let mut text = format!("keys of {} B, values of {} B", demand.pairs.keys, demand.pairs.values);
    for (name, share) in
        [("GET", demand.mix.get()), ("PUT", put), ("insert", insert), ("delete", delete), ("update", update)]
    {
        if share > 0.0 {
            text += &format!(", {} {name}", percent(share));
        }
    }
    if demand.hot_share > 0.0 {
        text += &format!(", {} of the operations on one key", percent(demand.hot_share));
    }
    let (full, memory) = (percent(sizing.utilization), MemorySize(memory_bytes(hardware)));
    let millions = sizing.pairs as f64 / 1e6;
    text + &format!(", skew {}, {full} full: {millions:.0} million pairs in {memory}", demand.skew)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Formats a bound. A part that is not used has none.
fn bound(mops: f64) -> String {
    if mops.is_finite() { format!("{mops:.1}") } else { "none".to_owned() }
}

/// Formats a difference as a whole number of per cent with its sign. One that is rounded to zero has a plus.
pub(super) fn signed_percent(difference: f64) -> String {
    // A negative zero and a zero are zero.
    let percent = (100.0 * difference).round() + 0.0;
    format!("{percent:+.0} %")
}

pub(super) fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::signed_percent;

    #[test]
    fn a_difference_that_is_rounded_to_zero_has_no_minus() {
        let cases = [(-0.004, "+0 %"), (-0.0, "+0 %"), (0.0, "+0 %"), (-0.006, "-1 %"), (0.126, "+13 %")];
        for (difference, expected) in cases {
            assert_eq!(signed_percent(difference), expected, "{difference}");
        }
    }
}
