//! The pages of all saved results: a summary, and for each machine the tables and pictures, the dates, and the commands
//! that produced them.
//!
//! ```text
//! benches/results/*.json ─▶ docs/performance.md               the latest results, in short
//!                         ├▶ docs/performance/<machine>.md    all results of a machine
//!                         └▶ docs/plots/*.svg
//! ```
//!
//! No number on the pages is written by hand. They hold the saved results and nothing else, so they can be generated
//! again at any time.

mod summary;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::program::Measured;
use crate::results::folder;
use crate::{durability, engine, honeycomb, latency, maps, ordered, servers, shards, vectors};
use summary::Summary;

/// File name of the summary, within the folder of documents.
pub const PAGE: &str = "performance.md";
/// Folder of the machines' pages, within the folder of documents.
const MACHINES: &str = "performance";
/// File name of the summary's picture.
const SUMMARY_PICTURE: &str = "summary.svg";
/// Folder of the pictures, within the folder of documents.
const PLOTS: &str = "plots";

const HEAD: &str = "\
# Performance

Every figure was measured and saved by a command of this repository. `just plots` writes the pages
from the saved results. A figure is a median of several rounds with its spread, ± half of (upper
quartile − lower quartile) / median. With a spread above ±12.5% it is noisy: it is marked, and no
goal is judged by it. Some older results show `noisy` instead of a number. M/s are million
operations a second. All sides of a comparison were measured in turn, each after a warm-up; ratios
are calculated round by round.
";

const BUILD: &str = "\
Build the programs first:

```sh
cargo build --release -p skep -p skep-benches
```
";

/// A saved result. The variants are in the order of the page.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Saved {
    Engine(engine::Report),
    Maps(maps::Report),
    Ordered(ordered::Report),
    Honeycomb(honeycomb::Report),
    Servers(servers::Report),
    Memcached(servers::MemcachedReport),
    Shards(shards::Report),
    Durability(durability::Report),
    Vectors(vectors::Report),
    Latency(latency::Report),
}

impl Saved {
    /// Reads a result. Computes its figures again where it has their rounds.
    fn read(json: &str) -> Result<Saved, serde_json::Error> {
        let mut saved = serde_json::from_str(json)?;
        match &mut saved {
            Saved::Servers(report) => report.compute(),
            Saved::Memcached(report) => report.compute(),
            Saved::Durability(report) => report.compute(),
            _ => {}
        }
        Ok(saved)
    }

    /// Returns true if the summary has the figures, because it compares stores and servers. Those of durability and
    /// vectors are only on the page of their machine.
    fn is_compared(&self) -> bool {
        !matches!(self, Saved::Durability(_) | Saved::Vectors(_) | Saved::Latency(_))
    }

    /// Returns the heading on the page, and its position among all headings.
    fn heading(&self) -> (usize, String) {
        let (position, heading) = match self {
            Saved::Engine(report) => {
                let (position, store) = if report.is_ordered() { (2, "ordered store") } else { (0, "store") };
                let size = report.engine.kv_size;
                return (position, format!("The {store} against the memory's limit: pairs of {size} B"));
            }
            Saved::Maps(_) => (1, "The store and Rust's maps"),
            Saved::Ordered(_) => (3, "The ordered store and Rust's ordered maps"),
            Saved::Honeycomb(report) => return (4, format!("Honeycomb's {}", report.name())),
            Saved::Servers(_) => (5, "The server and other servers"),
            Saved::Memcached(_) => (6, "memcached's protocol"),
            Saved::Shards(_) => (7, "Several shards"),
            Saved::Durability(_) => (8, "Durability"),
            Saved::Vectors(_) => (9, "Vectors: KV-Direct's Table 2"),
            Saved::Latency(_) => (10, "Latency against throughput: KV-Direct's Figure 17, Honeycomb's Figure 12"),
        };
        (position, heading.to_owned())
    }

    /// Returns the parts that all results have.
    fn measured(&self) -> &dyn Measured {
        match self {
            Saved::Engine(report) => report,
            Saved::Maps(report) => report,
            Saved::Ordered(report) => report,
            Saved::Honeycomb(report) => report,
            Saved::Servers(report) => report,
            Saved::Memcached(report) => report,
            Saved::Shards(report) => report,
            Saved::Durability(report) => report,
            Saved::Vectors(report) => report,
            Saved::Latency(report) => report,
        }
    }
}

/// Writes all pages from the saved results of this repository, and prints the written paths.
pub fn write_all() -> Result<(), String> {
    let written = write(&folder(), &Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs"))?;
    written.iter().for_each(|path| println!("{}", path.display()));
    match written.is_empty() {
        true => Err(format!("no results in {}: the other commands write them with --save", folder().display())),
        false => Ok(()),
    }
}

/// Writes the pages and their pictures from a folder of results. Returns the written paths: none if there are no results.
pub fn write(results: &Path, documents: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: &dyn std::fmt::Display| format!("{path}: {error}")
    };
    if !results.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(results).map_err(|error| failed(results)(&error))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|error| failed(&path)(&error))?;
        let saved = Saved::read(&text).map_err(|error| failed(&path)(&error))?;
        all.push((saved.heading(), path, saved));
    }
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let plots = documents.join(PLOTS);
    let machines = documents.join(MACHINES);
    for folder in [&plots, &machines] {
        fs::create_dir_all(folder).map_err(|error| failed(folder)(&error))?;
    }
    let mut written = Vec::new();
    let compared = all.iter().map(|(.., saved)| saved).filter(|saved| saved.is_compared());
    let latest = compared.map(|saved| saved.measured().origin()).max_by(|one, other| one.date.cmp(&other.date));
    let machine = latest.map(|origin| origin.machine.clone()).unwrap_or_default();
    let of_machine = all.iter().map(|(.., saved)| saved).filter(|saved| saved.measured().origin().machine == machine);
    let summary = Summary::of(of_machine);
    let picture = plots.join(SUMMARY_PICTURE);
    let mut page = HEAD.to_owned();
    let table = summary.markdown(&format!("{PLOTS}/{SUMMARY_PICTURE}"));
    if !table.is_empty() {
        summary.write_picture(&picture)?;
        written.push(picture);
    }
    page += &format!("\n{machine}:\n{table}");
    page += "\n## All results\n\n";
    // The sort is stable: results with the same heading stay in the order of their dates.
    all.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let mut pages: BTreeMap<String, (String, String)> = BTreeMap::new();
    for ((_, heading), path, saved) in &all {
        let picture = path.with_extension("svg");
        let picture = picture.file_name().unwrap_or_default();
        let saved = saved.measured();
        saved.plot().write(&plots.join(picture))?;
        written.push(plots.join(picture));
        let origin = saved.origin();
        let about = origin.to_string().replacen("; ", ";\n", 1);
        let (_, text) = pages.entry(origin.machine_name()).or_insert_with(|| (origin.machine.clone(), String::new()));
        *text += &format!(
            "\n## {heading}\n\n{about}.\n\n```sh\n{}\n```\n\n{}\n\n![{heading}](../{PLOTS}/{})\n",
            origin.command(),
            saved.tables().markdown(),
            picture.display(),
        );
    }
    for (name, (machine, text)) in pages {
        page += &format!("- {machine}:\n  [all results]({MACHINES}/{name}.md)\n");
        let path = machines.join(format!("{name}.md"));
        let head =
            format!("# Performance: {machine}\n\n[performance.md](../{PAGE}) says how figures are measured. {BUILD}");
        fs::write(&path, head + &text).map_err(|error| failed(&path)(&error))?;
        written.push(path);
    }
    let path = documents.join(PAGE);
    fs::write(&path, page).map_err(|error| failed(&path)(&error))?;
    written.push(path);
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skep_measure::{
        Effort, EngineCase, EngineReport, Figure, LimitWithWork, Progress, SPREAD_MAX, StationCost, VectorLine,
        VectorSpeed, VectorsReport,
    };

    use super::*;
    use crate::results::{Head, Origin};

    const EFFORT: Effort = Effort { rounds: 1, slice: Duration::from_micros(200) };

    fn origin(command: &str) -> Origin {
        Origin {
            date: "2001-02-03".to_owned(),
            machine: "abacus, 2 cores".to_owned(),
            skep: "0.0.0".to_owned(),
            commit: "0123abc".to_owned(),
            command: command.to_owned(),
        }
    }

    /// Returns an invented report on vectors.
    fn invented_vectors() -> vectors::Report {
        let speed = |size, speed| VectorSpeed { size, bytes_per_s: Figure::with_spread(speed, 0.1) };
        let line =
            |over: &str, way: &str, speeds| vec![VectorLine { over: over.to_owned(), way: way.to_owned(), speeds }];
        let vectors = VectorsReport {
            skep: "0.0.0".to_owned(),
            machine: "abacus, 2 cores".to_owned(),
            cached: 1 << 18,
            memory: 1 << 26,
            batch: 256,
            batch_size: 1 << 20,
            rounds: 5,
            spread_max: 0.25,
            are_apart: true,
            in_cache: line("TCP", "update", vec![speed(1024, 7.654e9)]),
            out_of_cache: line("redis-server", "Lua", vec![speed(64, 2.3e7), speed(1024, 1.4e8)]),
            published: line("KV-Direct's card", "fetch to client", vec![speed(512, 2.4e8)]),
        };
        let origin = origin("target/release/skep-benches vectors --save");
        vectors::Report { head: Head::new("vectors", origin), vectors }
    }

    /// Returns an invented report on an engine.
    fn invented() -> engine::Report {
        let origin = origin("target/release/engine --save -- --kv-size 62");
        let case = EngineCase {
            case: "get_uniform".to_owned(),
            ops_per_s: Figure::with_spread(12_340_000.0, 0.11),
            limit_lines_per_s: Figure::with_spread(16_030_000.0, 0.07),
            limit_lines: 1,
            of_limit: Figure::with_spread(0.77, 0.05),
            accesses: 2.01,
            lines: 2.02,
            bytes_read: None,
            cycles: None,
        };
        let engine = EngineReport {
            skep: "0.0.0".to_owned(),
            machine: "abacus, 2 cores".to_owned(),
            engine: "hash".to_owned(),
            memory: 1 << 30,
            kv_size: 62,
            utilization: 0.3,
            hash_index_ratio: None,
            tree: None,
            batch: 256,
            rounds: 9,
            spread_max: 0.25,
            limit_read: Figure::with_spread(3e7, 0.01),
            limit_rmw: Figure::with_spread(2e7, 0.4),
            cases: vec![case],
            station: vec![StationCost {
                case: "get_uniform".to_owned(),
                time_over_without: Figure::with_spread(1.05, 0.02),
            }],
            limit_with_work: vec![LimitWithWork {
                nanoseconds: Figure::with_spread(12.6, 0.0),
                of_limit: Figure::with_spread(0.46, 0.03),
            }],
        };
        engine::Report { head: Head::new("engine", origin), engine }
    }

    /// Writes a page from results of several kinds, invented or measured quickly. All their numbers are on the page,
    /// with pictures.
    #[test]
    fn a_page_is_written_from_what_was_saved() {
        let folder = std::env::temp_dir().join(format!("skep-page-{}", std::process::id()));
        let (results, documents) = (folder.join("results"), folder.join("docs"));
        assert_eq!(write(&results, &documents), Ok(Vec::new()), "there is no folder");
        fs::create_dir_all(&results).unwrap();
        assert_eq!(write(&results, &documents), Ok(Vec::new()), "there are no results");
        let report = invented();
        let (effort, progress) = (EFFORT, Progress::hidden());
        let plan = maps::Plan { pairs: 500, batch: 32, effort, operations: 100, utilization: 0.3 };
        let maps = maps::run(&plan, &progress).unwrap();
        let save = |name: &str, json: String| fs::write(results.join(name), json).unwrap();
        save("0-vectors.json", serde_json::to_string_pretty(&invented_vectors()).unwrap());
        save("1-engine-62.json", serde_json::to_string_pretty(&report).unwrap());
        save("0-maps.json", serde_json::to_string_pretty(&maps).unwrap());
        let plan = ordered::Plan { pairs: 500, batch: 32, scan: 24, effort, operations: 100, all: true };
        let ordered = ordered::run(&plan, &progress).unwrap();
        save("0-ordered.json", serde_json::to_string_pretty(&ordered).unwrap());
        let plan = honeycomb::Plan { figure: "fig17".to_owned(), pairs: 500, batch: 32, effort, operations: 100 };
        let figure = honeycomb::run(&plan, &progress).unwrap();
        save("0-honeycomb-fig17.json", serde_json::to_string_pretty(&figure).unwrap());

        let written = write(&results, &documents).unwrap();
        let page = fs::read_to_string(documents.join(PAGE)).unwrap();
        assert!(page.contains(&format!("±{}%", 50.0 * SPREAD_MAX)), "the page names the bound: {page}");
        assert!(page.contains("(plots/summary.svg)") && page.contains("| hash store, GET in batches "), "{page}");
        assert_eq!(written.len(), 9, "five pictures, that of the summary, it, and pages of two machines: {written:?}");
        assert!(written.iter().all(|path| path.is_file()));
        let pages = written.iter().filter(|path| path.starts_with(documents.join(MACHINES)));
        let page: String = pages.map(|path| fs::read_to_string(path).unwrap()).collect();
        let unwrapped = page.replace('\n', " ");
        for part in [
            "## The store against the memory's limit: pairs of 62 B",
            "abacus, 2 cores; 2001-02-03; version 0.0.0, commit 0123abc.",
            "\n```sh\ntarget/release/skep-benches engine --save -- --kv-size 62\n```\n",
            "| get_uniform | 12.34 |",
            "| 13 ns ",
            "30.00 M/s read,",
            "20.00 M/s noisy read and written",
            "16.03 ",
            "(../plots/1-engine-62.svg)",
            "## The store and Rust's maps",
            "| papaya ",
            "(../plots/0-maps.svg)",
            "## The ordered store and Rust's ordered maps",
            "| crossbeam SkipMap ",
            "(../plots/0-ordered.svg)",
            "## Honeycomb's Figure 17: log block size",
            "(../plots/0-honeycomb-fig17.svg)",
            "## Vectors: KV-Direct's Table 2",
            "| TCP ",
            " 7.65 ±5% |",
            "| GB/s, out of cache |",
            "(../plots/0-vectors.svg)",
        ] {
            assert!(page.contains(part) || unwrapped.contains(part), "{part}: {page}");
        }
        assert!(page.find("## The store and Rust's maps") < page.find("## The ordered store and"), "{page}");

        save("2-else.json", "{}".to_owned());
        assert!(write(&results, &documents).is_err_and(|reason| reason.contains("2-else.json")));
        fs::remove_dir_all(&folder).unwrap();
    }
}
