//! `skep size`: computes the performance of a programmable NIC under a given load, the resource that limits it, and the
//! best settings of the store. All of it is measured on the model of the NIC.

mod report;

use std::fs;
use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use skep_nic::hardware::Hardware;
use skep_nic::load::mix::Mix;
use skep_nic::load::pairs::{KEY_BYTES_MIN, Pairs, Sizes};
use skep_nic::sizing::{Demand, size};

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
    #[command(flatten)]
    load: LoadArguments,
    /// Memory of the host for keys and values, for all NICs together [default: the board's].
    #[arg(long, value_name = "SIZE")]
    memory: Option<MemorySize>,
    /// Seed of all random numbers, and the first of several.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of seeds. Figures are their medians.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Print one line of JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// The load. Operations that have no share are GETs.
#[derive(clap::Args, Debug)]
struct LoadArguments {
    /// Size of a key in bytes: a number, a range as 8..24, or shares of both as 9:16,1:32..64.
    #[arg(long, value_name = "SIZES", default_value = "16")]
    key_size: Sizes,
    /// Size of a value in bytes, in the same form. Clients divide pairs of more than 508 bytes.
    #[arg(long, value_name = "SIZES", default_value = "48")]
    value_size: Sizes,
    /// Size of a key of 4 bytes and its value, together.
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["key_size", "value_size"])]
    kv_size: Option<u32>,
    /// Share of PUTs of existing keys, from 0 to 1 [default: 0.05, or 0 if another share is given].
    #[arg(long, alias = "put-ratio", value_name = "SHARE", allow_negative_numbers = true)]
    put: Option<f64>,
    /// Share of insertions of new keys.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, allow_negative_numbers = true)]
    insert: f64,
    /// Share of deletions.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, allow_negative_numbers = true)]
    delete: f64,
    /// Share of atomic updates, which add to the value and return the old one.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, allow_negative_numbers = true)]
    update: f64,
    /// Share of GETs, PUTs and updates that are on one and the same key.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, allow_negative_numbers = true)]
    hot_key: f64,
    /// Skew of the popularity of keys: 0 for equal popularity, 0.99 for YCSB's long tail.
    #[arg(long, value_name = "THETA", default_value_t = 0.99, allow_negative_numbers = true)]
    skew: f64,
    /// Bytes of keys and values divided by bytes of memory [default: that of a server with pairs of these sizes].
    #[arg(long, value_name = "RATIO", allow_negative_numbers = true)]
    utilization: Option<f64>,
    /// Number of pairs in the memory, instead of --utilization.
    #[arg(long, value_name = "N", conflicts_with = "utilization")]
    pairs: Option<u64>,
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
    let demand = arguments.load.demand(&hardware)?;
    let seeds: Vec<u64> = (0..arguments.seeds).map(|more| arguments.seed.wrapping_add(more)).collect();
    let style = ProgressStyle::with_template("sizing {wide_bar} {percent}% {eta}").expect("the template is valid");
    let bar = ProgressBar::new(1000).with_style(style);
    let sizing = size(&hardware, &demand, &seeds, &|share| bar.set_position((share * 1e3) as u64));
    bar.finish_and_clear();
    let sizing = sizing.map_err(|error| Failure::Usage(error.to_string()))?;
    let text = if arguments.json {
        report::json(&hardware, &demand, &sizing)
    } else {
        report::tables(&hardware, &demand, &sizing)
    };
    Ok(writeln!(io::stdout(), "{text}")?)
}

impl LoadArguments {
    /// Returns the load of this board.
    fn demand(&self, hardware: &Hardware) -> Result<Demand, Failure> {
        let pairs = match self.kv_size {
            None => Pairs { keys: self.key_size.clone(), values: self.value_size.clone() },
            Some(bytes) if bytes > KEY_BYTES_MIN => Pairs::of_bytes(bytes),
            Some(bytes) => {
                let least = KEY_BYTES_MIN + 1;
                return Err(Failure::Usage(format!("kv-size: {bytes} is less than {least}, a key of 4 bytes and a value")));
            }
        };
        let others = self.insert + self.delete + self.update;
        let put = self.put.unwrap_or(if others > 0.0 { 0.0 } else { 0.05 });
        let mix = Mix { put, insert: self.insert, delete: self.delete, update: self.update };
        let mut utilization = self.utilization;
        if let Some(count) = self.pairs {
            let share = count as f64 * pairs.mean() / memory_bytes(hardware) as f64;
            if share >= 1.0 {
                let (memory, bytes) = (MemorySize(memory_bytes(hardware)), pairs.mean());
                let reason = format!("{count} pairs of {bytes} B need more than the {memory} of the board");
                return Err(Failure::Usage(format!("pairs: {reason}")));
            }
            utilization = Some(share);
        }
        Ok(Demand { pairs, mix, hot_share: self.hot_key, skew: self.skew, utilization })
    }
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

/// Returns the memory of all NICs.
fn memory_bytes(hardware: &Hardware) -> u64 {
    (hardware.host_dram.size_gib * f64::from(1_u32 << 30) * f64::from(hardware.server.nics)) as u64
}
