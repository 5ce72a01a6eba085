//! `skep paper`: figures and tables of KV-Direct's evaluation, measured on the model of its NIC and compared with the
//! paper.
//!
//! With `--out`, the command writes the points of each item as a CSV and an SVG, and one page for all items,
//! `index.html`. The same seed writes the same bytes. `skep paper trace` shows one operation instead, see [`trace`].

mod page;
mod plot;
mod trace;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use skep_nic::paper::{Findings, ITEMS, Item, Tolerance, source};

use crate::failure::{Failure, reason};

/// Reproduces the paper's figures and tables.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Items to measure, such as fig03a; `all` for all of them.
    #[arg(value_name = "ITEM", required_unless_present = "list")]
    items: Vec<String>,
    /// List the items.
    #[arg(long, conflicts_with_all = ["items", "out", "json"])]
    list: bool,
    /// Write data, plots and a page into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of everything that is random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one line of JSON instead of tables.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show the life of one operation on the model: its events with their times.
    Trace(trace::Arguments),
}

/// An item and its findings.
struct Measured {
    item: &'static Item,
    findings: Findings,
}

/// The points of all items.
#[derive(serde::Serialize)]
struct Report {
    points: Vec<ReportPoint>,
}

#[derive(serde::Serialize)]
struct ReportPoint {
    item: &'static str,
    point: String,
    paper: f64,
    ours: f64,
    /// The quotient of our figure and the paper's, minus one.
    deviation: f64,
    within: bool,
}

/// Measures the items, writes the files and prints the tables. A deviation is not a failure: the page explains it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(Command::Trace(arguments)) = &arguments.command {
        return trace::run(arguments);
    }
    if arguments.list {
        return list();
    }
    let items = chosen(&arguments.items)?;
    if let Some(directory) = &arguments.out {
        fs::create_dir_all(directory).map_err(|error| cannot_write(directory, &error))?;
    }
    let measured = measure(&items, arguments.seed);
    if let Some(directory) = &arguments.out {
        write_all(directory, &measured, arguments.seed)?;
    }
    let text = if arguments.json { json(&measured) } else { tables(&measured) };
    writeln!(io::stdout(), "{text}")?;
    if let (Some(directory), false) = (&arguments.out, arguments.json) {
        writeln!(io::stdout(), "written to {}", directory.join("index.html").display())?;
    }
    Ok(())
}

fn list() -> Result<(), Failure> {
    let mut out = io::stdout();
    for item in ITEMS {
        writeln!(out, "{:8} {}", item.name, item.title)?;
    }
    Ok(())
}

/// Returns the items with these names, each once, in the order of the paper.
fn chosen(names: &[String]) -> Result<Vec<&'static Item>, Failure> {
    if let Some(name) = names.iter().find(|name| *name != "all" && Item::named(name).is_none()) {
        let known: Vec<_> = ITEMS.iter().map(|item| item.name).collect();
        return Err(Failure::Usage(format!("no item `{name}`: write all, {}", known.join(", "))));
    }
    let wanted = |item: &&Item| names.iter().any(|name| name == "all" || name == item.name);
    Ok(ITEMS.iter().filter(wanted).collect())
}

fn measure(items: &[&'static Item], seed: u64) -> Vec<Measured> {
    const STEPS: u64 = 1000;
    let style = ProgressStyle::with_template("{msg:8} {wide_bar} {percent}% {eta}").expect("the template is valid");
    let bar = ProgressBar::new(STEPS * items.len() as u64).with_style(style);
    let measured = items.iter().zip(0..).map(|(item, number)| {
        bar.set_message(item.name);
        let mut progress = |share: f64| bar.set_position(number * STEPS + (share * STEPS as f64) as u64);
        progress(0.0);
        Measured { item, findings: item.measure(seed, &mut progress) }
    });
    let measured = measured.collect();
    bar.finish_and_clear();
    measured
}

fn json(measured: &[Measured]) -> String {
    let points = measured.iter().flat_map(|Measured { item, findings }| {
        findings.points.iter().map(|point| ReportPoint {
            item: item.name,
            point: point.name(),
            paper: point.paper,
            ours: point.ours,
            deviation: point.deviation(),
            within: point.is_within(item.tolerance),
        })
    });
    serde_json::to_string(&Report { points: points.collect() }).expect("numbers and text are always valid JSON")
}

fn tables(measured: &[Measured]) -> String {
    let mut text = String::new();
    for Measured { item, findings } in measured {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header([item.name, "paper", "ours", "deviation", "within"]);
        for point in &findings.points {
            let within = if point.is_within(item.tolerance) { "yes" } else { "no" };
            let figures = [number(point.paper), number(point.ours), percent(point.deviation()), within.to_owned()];
            table.add_row([vec![point.name()], figures.to_vec()].concat());
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        text += &format!("{}: {}, {}\n{table}\n", item.name, item.title, item.y.label);
        for sentence in [&findings.setting, &findings.explanation] {
            if !sentence.is_empty() {
                text += &format!("{sentence}\n");
            }
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}

fn write_all(directory: &Path, measured: &[Measured], seed: u64) -> Result<(), Failure> {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|error| cannot_write(&path, &error))
    };
    let mut plots = Vec::new();
    for one in measured {
        let svg = plot::svg(one.item, &one.findings).map_err(Failure::Runtime)?;
        write(&format!("{}.csv", one.item.name), &csv(one))?;
        write(&format!("{}.svg", one.item.name), &svg)?;
        plots.push(svg);
    }
    write("index.html", &page::html(measured, &plots, seed))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Runtime(format!("cannot write {}: {}", path.display(), reason(error)))
}

/// Returns the CSV: the paper's points with ours, then the other curves, whose figures are in the column `ours`.
fn csv(measured: &Measured) -> String {
    let Measured { item, findings } = measured;
    let mut text = format!("# {}\n# paper: {}\nseries,x,paper,ours,deviation,within\n", item.title, source(item.paper));
    for point in &findings.points {
        let (x, paper, ours, deviation) = (point.x, point.paper, point.ours, point.deviation());
        let within = point.is_within(item.tolerance);
        text += &format!("{},{x},{paper},{ours},{deviation},{within}\n", quoted(&point.series));
    }
    for curve in &findings.curves {
        for (x, y) in &curve.points {
            text += &format!("{},{x},,{y},,\n", quoted(&curve.name));
        }
    }
    text
}

/// Returns a cell of a CSV.
fn quoted(text: &str) -> String {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// Returns the figure with four significant digits, or with all digits before the decimal point.
fn number(figure: f64) -> String {
    let digits = 3 - (figure.abs().max(1e-9).log10().floor() as i32).clamp(-3, 3);
    format!("{figure:.*}", usize::try_from(digits).unwrap_or_default())
}

fn percent(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

fn tolerance(tolerance: Tolerance) -> String {
    match tolerance {
        Tolerance::Relative(share) => format!("{} %", 100.0 * share),
        Tolerance::Absolute(distance) => distance.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{number, percent, quoted};

    #[test]
    fn figures_are_short() {
        for (figure, text) in
            [(180.04, "180.0"), (0.366, "0.3660"), (27.274, "27.27"), (12345.6, "12346"), (0.0, "0.000000")]
        {
            assert_eq!(number(figure), text);
        }
        assert_eq!(percent(-0.0512), "-5.1 %");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
