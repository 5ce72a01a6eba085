//! `skep size`: computes the performance of a programmable NIC under a given load, the resource that limits it, and the
//! best settings of the store. All of it is measured on the model of the NIC: KV-Direct's, or Honeycomb's (`ordered.rs`).

mod cores;
mod ordered;
mod questions;
mod report;

use std::fs;
use std::io::{self, Read, Write};

use indicatif::{ProgressBar, ProgressStyle};
use skep_nic::hardware::{Hardware, HardwareError, MEMORY_OF_CARD_MAX};
use skep_nic::honeycomb::card::HoneycombCard;
use skep_nic::load::mix::Mix;
use skep_nic::load::pairs::{KEY_BYTES_MIN, Pairs, Sizes};
use skep_nic::sizing::{Demand, SizingError, size};

use crate::failure::{Failure, reason};
use crate::size::MemorySize;
use questions::{Microseconds, Rate, Sweep};

/// Prints the performance of a programmable NIC under a load, and the resource that limits it.
///
/// Without a question, it answers how fast the board is. Other questions: --target, --p99, --sweep.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The board: kv-direct, kv-direct-one-link, kv-direct-ten-nics, gen5-x16; for an ordered store, honeycomb or
    /// honeycomb-gen5; or a TOML file.
    #[arg(long, value_name = "NAME|FILE", default_value = "kv-direct")]
    hardware: String,
    /// Print the board as a TOML file with the source of each value, to edit and use with --hardware.
    #[arg(long)]
    print_hardware: bool,
    #[command(flatten)]
    load: LoadArguments,
    /// Memory of the host for keys and values, for all cards together [default: the board's].
    #[arg(long, value_name = "SIZE")]
    memory: Option<MemorySize>,
    /// Number of cards in the server, each with its own region and keys [default: the board's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    cards: Option<u32>,
    /// Find the number of cards that reach this rate, in operations a second: 500M.
    #[arg(long, value_name = "RATE", conflicts_with_all = ["p99", "sweep", "cards"])]
    target: Option<Rate>,
    /// Find the largest rate at which 99 % of the operations take at most this time: 9us.
    #[arg(long, value_name = "TIME", conflicts_with = "sweep")]
    p99: Option<Microseconds>,
    /// Size the board with each of these values of a field of the load or the board: value-size=64,256 or
    /// pcie.links=1,2,4.
    #[arg(long, value_name = "FIELD=A,B,C")]
    sweep: Option<Sweep>,
    /// Print the sweep as CSV.
    #[arg(long, requires = "sweep", conflicts_with = "json")]
    csv: bool,
    /// Compare with the cores of this machine: a saved result of `skep bench engine --json`.
    #[arg(long, value_name = "FILE")]
    cores: Option<String>,
    /// Seed of all random numbers, and the first of several.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of seeds. Figures are their medians.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Print one line of JSON instead of tables.
    #[arg(long, conflicts_with = "sweep")]
    json: bool,
}

/// The load. Operations that have no share are GETs.
#[derive(clap::Args, Clone, Debug)]
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
    /// Items of a scan, which each read is instead of a GET. For an ordered store only.
    #[arg(long, value_name = "ITEMS")]
    scan: Option<u32>,
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
    /// Skew of the popularity of keys: 0 for equal popularity, 0.99 for YCSB's long tail [default: 0.99].
    #[arg(long, value_name = "THETA", allow_negative_numbers = true)]
    skew: Option<f64>,
    /// Bytes of keys and values divided by bytes of memory [default: that of a server with pairs of these sizes].
    #[arg(long, value_name = "RATIO", allow_negative_numbers = true)]
    utilization: Option<f64>,
    /// Number of pairs in the memory, instead of --utilization.
    #[arg(long, value_name = "N", conflicts_with = "utilization")]
    pairs: Option<u64>,
}

/// The skew of YCSB's long tail.
const SKEW: f64 = 0.99;

/// Computes the report and prints it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let text = description(&arguments.hardware)?;
    if ordered::is_description(&text) {
        return ordered::run(&text, arguments);
    }
    let board = board(arguments, &text)?;
    if arguments.print_hardware {
        return Ok(write!(io::stdout(), "{}", board.text)?);
    }
    let hardware = board.hardware;
    for warning in hardware.warnings() {
        writeln!(io::stderr(), "warning: {warning}")?;
    }
    let report = match (&arguments.sweep, arguments.target, arguments.p99) {
        (Some(sweep), ..) => questions::sweep(arguments, &text, sweep)?,
        (None, Some(rate), _) => questions::cards(&hardware, &arguments.load.demand(&hardware)?, rate, arguments)?,
        (None, None, Some(limit)) => {
            questions::within(&hardware, &arguments.load.demand(&hardware)?, limit, arguments)?
        }
        (None, None, None) => throughput(&hardware, arguments)?,
    };
    Ok(writeln!(io::stdout(), "{report}")?)
}

/// Sizes the board. Returns the text of the report.
fn throughput(hardware: &Hardware, arguments: &Arguments) -> Result<String, Failure> {
    let demand = arguments.load.demand(hardware)?;
    let sizing = with_progress("sizing", |progress| size(hardware, &demand, &arguments.all_seeds(), progress))?;
    let cores = arguments.cores.as_ref().map(|path| cores::equal_cores(path, &demand, sizing.mops)).transpose()?;
    let report = report::Sized { hardware, demand: &demand, sizing: &sizing, cores };
    Ok(if arguments.json { report.json() } else { report.tables() })
}

/// Carries out a task that reports its progress as a share, and shows it.
fn with_progress<T>(
    name: &str,
    task: impl FnOnce(&(dyn Fn(f64) + Sync)) -> Result<T, SizingError>,
) -> Result<T, Failure> {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta}").expect("the template is valid");
    let bar = ProgressBar::new(1000).with_style(style).with_message(name.to_owned());
    let result = task(&|share| bar.set_position((share * 1e3) as u64));
    bar.finish_and_clear();
    result.map_err(|error| Failure::Usage(error.to_string()))
}

impl Arguments {
    fn all_seeds(&self) -> Vec<u64> {
        (0..self.seeds).map(|more| self.seed.wrapping_add(more)).collect()
    }

    /// Sets a field of the load by its name.
    fn set(&mut self, field: &str, value: &str) -> Result<(), String> {
        fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(value: &str) -> Result<T, String> {
            value.parse().map_err(|error: T::Err| format!("`{value}`: {error}"))
        }
        let load = &mut self.load;
        match field {
            "cards" => self.cards = Some(parsed(value)?),
            "memory" => self.memory = Some(parsed(value)?),
            "key-size" => load.key_size = parsed(value)?,
            "value-size" => load.value_size = parsed(value)?,
            "scan" => load.scan = Some(parsed(value)?),
            "put" => load.put = Some(parsed(value)?),
            "insert" => load.insert = parsed(value)?,
            "delete" => load.delete = parsed(value)?,
            "update" => load.update = parsed(value)?,
            "hot-key" => load.hot_key = parsed(value)?,
            "skew" => load.skew = Some(parsed(value)?),
            _ => load.utilization = Some(parsed(value)?),
        }
        if field.ends_with("-size") {
            load.kv_size = None;
        }
        Ok(())
    }
}

impl LoadArguments {
    /// Returns the load of this board.
    fn demand(&self, hardware: &Hardware) -> Result<Demand, Failure> {
        if self.scan.is_some() {
            let reason = format!("scan: {} has no ordered store: use --hardware honeycomb", hardware.name);
            return Err(Failure::Usage(reason));
        }
        let pairs = match self.kv_size {
            None => Pairs { keys: self.key_size.clone(), values: self.value_size.clone() },
            Some(bytes) if bytes > KEY_BYTES_MIN => Pairs::of_bytes(bytes),
            Some(bytes) => {
                let least = KEY_BYTES_MIN + 1;
                return Err(Failure::Usage(format!(
                    "kv-size: {bytes} is less than {least}, a key of 4 bytes and a value"
                )));
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
        Ok(Demand { pairs, mix, hot_share: self.hot_key, skew: self.skew.unwrap_or(SKEW), utilization })
    }
}

/// Returns the description of a board: one that comes with the program, or a file.
fn description(name: &str) -> Result<String, Failure> {
    let presets = || Hardware::PRESETS.iter().chain(HoneycombCard::PRESETS);
    match presets().find(|preset| preset.name == name) {
        Some(preset) => Ok(preset.text.to_owned()),
        None => read_file(name).map_err(|error| {
            let known: Vec<_> = presets().map(|preset| preset.name).collect();
            let (known, reason) = (known.join(", "), reason(&error));
            Failure::Usage(format!("--hardware {name}: neither one of {known} nor a readable file: {reason}"))
        }),
    }
}

/// Largest file that can be a description.
const DESCRIPTION_MAX: u64 = 1 << 20;

/// Reads a file once, so that it may be a pipe.
fn read_file(name: &str) -> io::Result<String> {
    let mut text = String::new();
    let read = fs::File::open(name)?.take(DESCRIPTION_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > DESCRIPTION_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 1 MiB"));
    }
    Ok(text)
}

/// A board with its file.
struct Board {
    hardware: Hardware,
    text: String,
}

/// Returns the chosen board from its description, with the memory that was asked for.
fn board(arguments: &Arguments, text: &str) -> Result<Board, Failure> {
    let name = &arguments.hardware;
    let mut board = Board {
        hardware: Hardware::from_toml(text).map_err(|error| Failure::Usage(format!("{name}: {error}")))?,
        text: text.to_owned(),
    };
    if let Some(cards) = arguments.cards.filter(|cards| *cards != board.hardware.server.nics) {
        let Hardware { server, card, .. } = &mut board.hardware;
        server.nics = cards;
        server.memory_nodes = server.memory_nodes.min(cards);
        (card.watts, card.price) = (None, None);
        let nodes = server.memory_nodes;
        for (table, field, line) in [
            ("server", "nics", format!("nics = {cards}  # --cards")),
            ("server", "memory_nodes", format!("memory_nodes = {nodes}  # --cards")),
            ("card", "watts", "# watts = 0.0  # not known with --cards".to_owned()),
            ("card", "price", "# price = 0.0  # not known with --cards".to_owned()),
        ] {
            board.text = with_line(&board.text, table, field, &line);
        }
    }
    if let Some(memory) = arguments.memory {
        let gib = memory.0 as f64 / f64::from(1_u32 << 30) / f64::from(board.hardware.server.nics);
        board.text = with_line(&board.text, "host_dram", "size_gib", &format!("size_gib = {gib:?}  # --memory"));
        board.hardware.host_dram.size_gib = gib;
    }
    board.hardware.check().map_err(|error| {
        let memory = arguments.memory.map_or_else(String::new, |memory| format!("--memory {memory}: "));
        Failure::Usage(format!("{memory}{error}{}", more_cards(arguments.memory, &error)))
    })?;
    Ok(board)
}

/// Returns what helps if the memory is more than the cards can address.
fn more_cards(memory: Option<MemorySize>, error: &HardwareError) -> String {
    match (memory, error) {
        (Some(memory), HardwareError::Value { field: "host_dram.size_gib", .. }) => {
            let cards = memory.0.div_ceil(MEMORY_OF_CARD_MAX);
            format!("; use --cards {cards}, or at most {} a card", MemorySize(MEMORY_OF_CARD_MAX))
        }
        _ => String::new(),
    }
}

/// Returns the file with another line for a field. All other lines stay as they are, with their comments.
fn with_line(text: &str, table: &str, field: &str, new: &str) -> String {
    let (header, mut current) = (format!("[{table}]"), "");
    let mut changed = String::new();
    for line in text.lines() {
        if line.starts_with('[') {
            current = line.trim();
        }
        let is_field = current == header && line.split('=').next().is_some_and(|key| key.trim() == field);
        changed += if is_field { new } else { line };
        changed.push('\n');
    }
    changed
}

/// Returns the memory of all cards.
fn memory_bytes(hardware: &Hardware) -> u64 {
    (hardware.host_dram.size_gib * f64::from(1_u32 << 30) * f64::from(hardware.server.nics)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_changed_and_every_comment_stays() {
        for preset in Hardware::PRESETS {
            let changed = with_line(preset.text, "host_dram", "size_gib", "size_gib = 16.0  # --memory");
            let hardware = Hardware::from_toml(&changed).expect("it is still a board");
            assert_eq!((hardware.host_dram.size_gib, changed.lines().count()), (16.0, preset.text.lines().count()));
            let same = changed.lines().zip(preset.text.lines()).filter(|(changed, before)| changed == before).count();
            assert_eq!(same, preset.text.lines().count() - 1);
        }
    }
}
