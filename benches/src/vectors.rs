//! The report of `skep bench vectors`, with its date and machine: KV-Direct's Table 2, beside redis-server.
//!
//! The program measures and prints the report. This module starts redis-server, runs the program, saves the report and
//! shows it.

use std::path::PathBuf;

use skep_measure::{Progress, VectorLine, VectorsReport, size_text};

use crate::plot::{Group, Plot};
use crate::program::Measured;
use crate::results::Head;
use crate::servers::{Plan as ServersPlan, Protocol, Setting};
use crate::skep_bench::report_of;
use crate::tables::{Tables, table};

/// The sizes in the picture.
const PICTURED: [u64; 4] = [64, 1 << 10, 64 << 10, 1 << 20];

/// The settings of a run.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    pub skep: PathBuf,
    /// Arguments of `skep bench vectors`, such as --sizes 64,1024.
    #[arg(last = true)]
    pub arguments: Vec<String>,
}

/// The report with its origin.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The kind is `vectors`.
    #[serde(flatten)]
    pub head: Head,
    /// The report that the program printed.
    pub vectors: VectorsReport,
}

/// Starts redis-server and runs `skep bench vectors`, which shows its own progress and errors. Both servers have the
/// first core.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    let servers = ServersPlan { keys: 0, depth: 1, connections: 1, seconds: 1.0, skep: plan.skep.clone() };
    let redis = Setting::new(&servers, &["redis-server"])?.redis()?;
    let address = redis.address(Protocol::Resp).ok_or("redis-server does not listen")?.to_string();
    let arguments = [&["--redis".to_owned(), address][..], &plan.arguments].concat();
    let vectors = report_of(&plan.skep, "vectors", &arguments, progress)?;
    Ok(Report { head: Head::here("vectors"), vectors })
}

impl Measured for Report {
    fn head(&self) -> &Head {
        &self.head
    }

    fn plot(&self) -> Plot {
        let lines = &self.vectors.out_of_cache;
        let group = |size: u64| {
            let bars = lines.iter().filter_map(move |line| {
                let speed = line.speeds.iter().find(|speed| speed.size == size)?;
                Some((bar(line), speed.bytes_per_s.divided_by(1e9)))
            });
            Group::new(format!("vectors of {}, GB/s", size_text(size)), bars)
        };
        let sizes = VectorLine::sizes(lines).into_iter().filter(|size| PICTURED.contains(size));
        let title = format!("Every f32 is incremented, vectors of {} in all", size_text(self.vectors.memory));
        Plot::new(title, self.origin(), sizes.map(group).collect())
    }

    fn tables(&self) -> Tables {
        let of_part = |(name, lines): (&str, &[VectorLine])| {
            let (header, sizes) = (VectorLine::header(name, lines), VectorLine::sizes(lines));
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            table(&header, 2, lines.iter().map(|line| line.cells(&sizes)))
        };
        Tables { tables: self.vectors.parts().into_iter().map(of_part).collect(), note: self.vectors.note() }
    }
}

/// Returns the name of the bar of a line. Names of Skep's bars begin with `skep`.
fn bar(line: &VectorLine) -> String {
    match line.over.as_str() {
        "redis-server" => format!("redis, {}", line.way),
        over => format!("skep {over}, {}", line.way),
    }
}
