//! `skep size`: computes the performance of a programmable NIC under a given load, the resource that limits it, and the
//! best settings of the store. All of it is measured on the model of the NIC.

use std::fs;
use std::io::{self, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use skep_nic::hardware::Hardware;
use skep_nic::sizing::{Demand, Sizing, size};

use crate::failure::{Failure, reason};
use crate::size::MemorySize;

/// Prints the performance of a programmable NIC under a load, and the resource that limits it.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The board: one of the names kv-direct, kv-direct-one-link and kv-direct-ten-nics, or a TOML file.
    #[arg(long, value_name = "NAME|FILE", default_value = "kv-direct")]
    hardware: String,
    /// Print the board as a TOML file, to edit and use with --hardware.
    #[arg(long)]
    print_hardware: bool,
    /// Size of a key and its value in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    kv_size: u32,
    /// Share of PUTs, from 0 to 1; the others are GETs.
    #[arg(long, value_name = "RATIO", default_value_t = 0.05, allow_negative_numbers = true)]
    put_ratio: f64,
    /// Skew of the popularity of keys: 0 for equal popularity, 0.99 for YCSB's long tail.
    #[arg(long, value_name = "THETA", default_value_t = 0.99, allow_negative_numbers = true)]
    skew: f64,
    /// Bytes of keys and values divided by bytes of memory [default: that of a server with this --kv-size].
    #[arg(long, value_name = "RATIO", allow_negative_numbers = true)]
    utilization: Option<f64>,
    /// Memory of the host for keys and values, for all NICs together [default: the board's].
    #[arg(long, value_name = "SIZE")]
    memory: Option<MemorySize>,
    /// Seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one line of JSON instead of tables.
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct Report<'a> {
    hardware: &'a str,
    nics: u32,
    /// Operations of the busiest NIC, divided by the average.
    busiest_nic: f64,
    kv_size: u32,
    put_ratio: f64,
    skew: f64,
    utilization: f64,
    /// Number of pairs in the whole memory.
    pairs: u64,
    memory_bytes: u64,
    throughput_mops: f64,
    bottleneck: &'a str,
    hash_index_ratio: f64,
    inline_threshold: usize,
    load_dispatch_ratio: f64,
    lines_per_operation: f64,
    nic_dram_share: f64,
    forwarded_share: f64,
    latencies: Vec<ReportLatency>,
    resources: Vec<ReportResource<'a>>,
}

#[derive(serde::Serialize)]
struct ReportLatency {
    at_mops: f64,
    mean_us: f64,
    p95_us: f64,
    p99_us: f64,
}

#[derive(serde::Serialize)]
struct ReportResource<'a> {
    name: &'a str,
    /// Share of the time in which the resource is busy, from 0 to 1.
    busy: f64,
    throughput_if_doubled_mops: f64,
    parts: Vec<ReportPart<'a>>,
}

#[derive(serde::Serialize)]
struct ReportPart<'a> {
    name: &'a str,
    busy: f64,
}

/// Computes the report and prints it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut hardware = hardware(&arguments.hardware)?;
    if let Some(memory) = arguments.memory {
        hardware.host_dram.size_gib = memory.0 as f64 / f64::from(1_u32 << 30) / f64::from(hardware.server.nics);
    }
    if arguments.print_hardware {
        hardware.check().map_err(|error| Failure::Usage(error.to_string()))?;
        return Ok(write!(io::stdout(), "{}", hardware.to_toml())?);
    }
    let demand = Demand {
        kv_bytes: arguments.kv_size,
        put_share: arguments.put_ratio,
        skew: arguments.skew,
        utilization: arguments.utilization,
    };
    let style = ProgressStyle::with_template("sizing {wide_bar} {percent}% {eta}").expect("the template is valid");
    let bar = ProgressBar::new(1000).with_style(style);
    let sizing = size(&hardware, &demand, arguments.seed, &mut |share| bar.set_position((share * 1e3) as u64));
    bar.finish_and_clear();
    let sizing = sizing.map_err(|error| Failure::Usage(error.to_string()))?;
    let text = if arguments.json { json(&hardware, &demand, &sizing) } else { tables(&hardware, &demand, &sizing) };
    Ok(writeln!(io::stdout(), "{text}")?)
}

/// Returns the board with this name, or from this file.
fn hardware(name: &str) -> Result<Hardware, Failure> {
    if let Some(board) = Hardware::preset(name) {
        return Ok(board);
    }
    let text = fs::read_to_string(name).map_err(|error| {
        let known: Vec<_> = Hardware::PRESETS.iter().map(|(name, _)| *name).collect();
        let (known, reason) = (known.join(", "), reason(&error));
        Failure::Usage(format!("--hardware {name}: neither one of {known} nor a readable file: {reason}"))
    })?;
    Hardware::from_toml(&text).map_err(|error| Failure::Usage(format!("{name}: {error}")))
}

fn json(hardware: &Hardware, demand: &Demand, sizing: &Sizing) -> String {
    let latencies = sizing.latencies.iter().map(|one| ReportLatency {
        at_mops: one.mops,
        mean_us: one.mean_us,
        p95_us: one.p95_us,
        p99_us: one.p99_us,
    });
    let resources = sizing.resources.iter().map(|one| ReportResource {
        name: one.name,
        busy: one.busy,
        throughput_if_doubled_mops: one.mops_if_doubled,
        parts: one.parts.iter().map(|(name, busy)| ReportPart { name, busy: *busy }).collect(),
    });
    let report = Report {
        hardware: &hardware.name,
        nics: hardware.server.nics,
        busiest_nic: sizing.busiest_nic,
        kv_size: demand.kv_bytes,
        put_ratio: demand.put_share,
        skew: demand.skew,
        utilization: sizing.utilization,
        pairs: sizing.pairs,
        memory_bytes: memory_bytes(hardware),
        throughput_mops: sizing.mops,
        bottleneck: sizing.bottleneck,
        hash_index_ratio: sizing.hash_index_ratio,
        inline_threshold: sizing.inline_threshold,
        load_dispatch_ratio: sizing.dispatch_ratio,
        lines_per_operation: sizing.lines,
        nic_dram_share: sizing.near_share,
        forwarded_share: sizing.forwarded_share,
        latencies: latencies.collect(),
        resources: resources.collect(),
    };
    serde_json::to_string(&report).expect("numbers and text are always valid JSON")
}

fn tables(hardware: &Hardware, demand: &Demand, sizing: &Sizing) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let limit = sizing.resources.iter().find(|one| one.name == sizing.bottleneck).expect("it is one of them");
    let busiest = limit.parts.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let bottleneck = match busiest {
        Some((part, busy)) => format!("{}: {part}, {} busy", limit.name, percent(*busy)),
        None => format!("{}, {} busy", limit.name, percent(limit.busy)),
    };
    let mut text = format!(
        "{}: pairs of {} B, {} PUT, skew {}, {} full: {} million pairs in {}\n\n",
        hardware.name,
        demand.kv_bytes,
        percent(demand.put_share),
        demand.skew,
        percent(sizing.utilization),
        sizing.pairs / 1_000_000,
        MemorySize(memory_bytes(hardware)),
    );
    text += &format!("throughput            {:.1} million operations/s\n", sizing.mops);
    if hardware.server.nics > 1 {
        let (nics, busiest) = (hardware.server.nics, sizing.busiest_nic);
        text += &format!("NICs                  {nics}; the busiest gets {busiest:.2} times the average load\n");
    }
    text += &format!("bottleneck            {bottleneck}\n");
    text += &format!("hash index ratio      {:.3}\n", sizing.hash_index_ratio);
    text += &format!("inline threshold      {} B\n", sizing.inline_threshold);
    text += &format!("load dispatch ratio   {:.2}\n", sizing.dispatch_ratio);
    text += &format!(
        "an operation          {:.2} lines, {} of them from the NIC's DRAM; {} forwarded\n\n",
        sizing.lines,
        percent(sizing.near_share),
        percent(sizing.forwarded_share)
    );
    let latencies = sizing.latencies.iter().map(|one| {
        let figures = [one.mops, one.mean_us, one.p95_us, one.p99_us];
        figures.map(|figure| format!("{figure:.1}")).to_vec()
    });
    text += &table(["at million/s", "latency, mean µs", "95 %", "99 %"], latencies);
    text += "\n\n";
    let resources = sizing.resources.iter().map(|one| {
        let gain = signed_percent(one.mops_if_doubled / sizing.mops - 1.0);
        vec![one.name.to_owned(), percent(one.busy), format!("{:.1}", one.mops_if_doubled), gain]
    });
    text + &table(["resource", "busy", "million/s if doubled", "gain"], resources)
}

/// Formats a difference as a whole number of per cent with its sign. One that is rounded to zero has a plus.
fn signed_percent(difference: f64) -> String {
    // A negative zero and a zero are zero.
    let percent = (100.0 * difference).round() + 0.0;
    format!("{percent:+.0} %")
}

fn table(header: [&str; 4], rows: impl Iterator<Item = Vec<String>>) -> String {
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

fn memory_bytes(hardware: &Hardware) -> u64 {
    (hardware.host_dram.size_gib * f64::from(1_u32 << 30) * f64::from(hardware.server.nics)) as u64
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
