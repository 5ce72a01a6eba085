//! `skep paper trace`: the events of one operation on the model, as text and as a file for a trace viewer.
//!
//! The file has the Trace Event Format of Chrome (`chrome://tracing`) and Perfetto. It contains complete events
//! (`"ph":"X"`) with start and duration in µs. Events of one lane are nested.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;
use skep_nic::hardware::Hardware;
use skep_nic::paper::{LIFE_KV_BYTES, Life, LifeSettings};
use skep_nic::trace::{Track, lanes};

use crate::failure::Failure;
use crate::output_file::OutputFile;

/// Shows the life of one operation on an idle NIC, event by event.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Kind of the operation.
    #[arg(long, value_enum, default_value_t = Kind::Get)]
    operation: Kind,
    /// Bytes of its key and value together.
    #[arg(long, value_name = "BYTES", default_value_t = 10)]
    kv_size: u32,
    /// Seed of everything that is random: the key, the cacheable lines, and the latencies of the host.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write a trace for Chrome or Perfetto into this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Get,
    Put,
}

/// Runs the operation on the model, writes the file and prints the events.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { operation, kv_size, seed, out } = arguments;
    if !LIFE_KV_BYTES.contains(kv_size) {
        let (least, most) = (LIFE_KV_BYTES.start(), LIFE_KV_BYTES.end());
        return Err(Failure::Usage(format!("--kv-size {kv_size} is not possible: write {least} to {most}")));
    }
    let settings = LifeSettings { puts: *operation == Kind::Put, kv_bytes: *kv_size, seed: *seed };
    let file = out.as_deref().map(OutputFile::open).transpose()?;
    let life = Life::of(&Hardware::kv_direct(), &settings);
    if let Some(file) = file {
        file.write(&chrome(&life))?;
    }
    write!(io::stdout(), "{}", text(&life))?;
    if let Some(path) = out {
        writeln!(io::stdout(), "written to {}", path.display())?;
    }
    Ok(())
}

/// Returns a line for each event. An event within another is indented. The events in the NIC are indented further than
/// those of the network.
fn text(life: &Life) -> String {
    let mut text = format!("{}: {:.3} µs\n{:>10} {:>10}\n", life.title, life.latency.as_us(), "at ns", "for ns");
    for (event, (lane, depth)) in life.events.iter().zip(lanes(&life.events)) {
        let (begin, span) = (event.begin.as_ns(), (event.end - event.begin).as_ns());
        let depth = if event.track == Track::Nic { depth + 2 } else { depth };
        // The first two lanes are those of the network and of the NIC.
        let parallel = if lane > 1 { format!(" (in parallel, lane {lane})") } else { String::new() };
        text += &format!("{begin:10.1} {span:10.1}  {}{}{parallel}\n", "  ".repeat(depth), event.name);
    }
    text
}

fn chrome(life: &Life) -> String {
    let events = life.events.iter().zip(lanes(&life.events)).map(|(event, (lane, _))| {
        let (begin, span) = (event.begin.as_us(), (event.end - event.begin).as_us());
        json!({"name": event.name, "cat": "nic", "ph": "X", "ts": begin, "dur": span, "pid": 1, "tid": lane + 1})
    });
    let named = json!({"name": "process_name", "ph": "M", "pid": 1, "args": {"name": life.title}});
    let events: Vec<_> = std::iter::once(named).chain(events).collect();
    json!({"displayTimeUnit": "ns", "traceEvents": events}).to_string() + "\n"
}
