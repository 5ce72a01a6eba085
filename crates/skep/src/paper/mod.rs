//! `skep paper`: figures and tables of KV-Direct's evaluation, measured on the model of its NIC and compared with the
//! paper. Items whose names begin with `herd-` are those of HERD, measured on this machine, see [`herd`].
//!
//! With `--out`, the command writes the points of each item as a CSV and an SVG, and one page for all items,
//! `index.html`. HERD's items are also in `herd.md`. The same seed writes the same bytes, except for HERD's.
//! `skep paper trace` shows one operation instead, see [`trace`].

mod herd;
mod page;
mod plot;
mod trace;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use skep_measure::Figure;
use skep_nic::paper::{Findings, ITEMS, Item, Kind, Point, Sentence, Tolerance, source};

use crate::failure::{Failure, reason};
use plot::{Picture, Series, SeriesPoint};

/// Reproduces figures and tables of KV-Direct and HERD.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Items to measure: KV-Direct's, such as fig03a, run on a model; HERD's, such as herd-fig07, on this machine. `all`
    /// for all of them.
    #[arg(value_name = "ITEM", required_unless_present = "list")]
    items: Vec<String>,
    /// List the items.
    #[arg(long, conflicts_with_all = ["items", "out", "json"])]
    list: bool,
    /// Write data, plots and a page into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of everything that is random on the model.
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

/// An item of HERD and its findings.
type HerdMeasured = (&'static herd::Item, herd::Found);

/// The chosen items.
struct Chosen {
    kv_direct: Vec<&'static Item>,
    herd: Vec<&'static herd::Item>,
}

/// The points of all items of KV-Direct with their variants, and the findings of those of HERD.
#[derive(serde::Serialize)]
struct Report<'a> {
    points: Vec<ReportPoint>,
    variants: Vec<ReportVariant<'a>>,
    evidence: Evidence,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    herd: Vec<herd::HerdReport<'a>>,
}

#[derive(serde::Serialize)]
struct ReportPoint {
    item: &'static str,
    point: String,
    kind: Kind,
    paper: f64,
    ours: f64,
    /// The quotient of our figure and the paper's, minus one.
    deviation: f64,
    within: bool,
}

/// Another assumption, and the largest deviation of a series without and with it.
#[derive(serde::Serialize)]
struct ReportVariant<'a> {
    item: &'static str,
    variant: &'a str,
    series: &'a str,
    before: f64,
    after: f64,
    effect: &'static str,
}

/// The number of points that are evidence, and of those that are not.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
struct Evidence {
    evidence: usize,
    /// Evidence within its tolerance.
    within: usize,
    /// Evidence within 5 % of the paper.
    within_5_percent: usize,
    calculations: usize,
    inputs: usize,
}

impl Evidence {
    fn of<'a>(measured: impl IntoIterator<Item = &'a Measured>) -> Self {
        let mut counts = Evidence::default();
        for Measured { item, findings } in measured {
            findings.points.iter().for_each(|point| counts.count(item, point));
        }
        counts
    }

    fn count(&mut self, item: &Item, point: &Point) {
        match item.kind(point) {
            Kind::Calculation => self.calculations += 1,
            Kind::Input => self.inputs += 1,
            Kind::Evidence => {
                self.evidence += 1;
                self.within += usize::from(item.is_within(point));
                // A bound has no distance.
                let is_near = match item.tolerance_of(point) {
                    Tolerance::AtMost => item.is_within(point),
                    _ => point.deviation().abs() <= 0.05,
                };
                self.within_5_percent += usize::from(is_near);
            }
        }
    }

    /// Returns the counts as a sentence.
    fn sentence(self) -> String {
        let Evidence { evidence, within, within_5_percent, calculations, inputs } = self;
        let points = evidence + calculations + inputs;
        format!(
            "Of {points} points {evidence} are evidence, {calculations} calculations and {inputs} inputs. Of the \
             evidence, {within} are within their tolerance and {within_5_percent} within 5 %."
        )
    }
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
    let (measured, herd) = measure(&items, arguments.seed, &herd::Plan::FULL)?;
    if let Some(directory) = &arguments.out {
        write_all(directory, &measured, &herd, arguments.seed)?;
    }
    let text = if arguments.json { json(&measured, &herd) } else { tables(&measured, &herd) };
    writeln!(io::stdout(), "{text}")?;
    if let (Some(directory), false) = (&arguments.out, arguments.json) {
        writeln!(io::stdout(), "written to {}", directory.join("index.html").display())?;
    }
    Ok(())
}

fn list() -> Result<(), Failure> {
    let mut out = io::stdout();
    for (name, title) in known() {
        writeln!(out, "{name:11} {title}")?;
    }
    Ok(())
}

/// Returns the names and titles of all items: those of KV-Direct, then those of HERD.
fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    let kv_direct = ITEMS.iter().map(|item| (item.name, item.title));
    kv_direct.chain(herd::ITEMS.iter().map(|item| (item.name, item.title)))
}

/// Returns the items with these names, each once, in the order of their paper.
fn chosen(names: &[String]) -> Result<Chosen, Failure> {
    let is_known = |name: &String| name == "all" || known().any(|(known, _)| known == name);
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<_> = known().map(|(name, _)| name).collect();
        return Err(Failure::Usage(format!("no item `{name}`: write all, {}", known.join(", "))));
    }
    let is_wanted = |item: &str| names.iter().any(|name| name == "all" || name == item);
    Ok(Chosen {
        kv_direct: ITEMS.iter().filter(|item| is_wanted(item.name)).collect(),
        herd: herd::ITEMS.iter().filter(|item| is_wanted(item.name)).collect(),
    })
}

fn measure(items: &Chosen, seed: u64, plan: &herd::Plan) -> Result<(Vec<Measured>, Vec<HerdMeasured>), Failure> {
    const STEPS: u64 = 1000;
    let style = ProgressStyle::with_template("{msg:11} {wide_bar} {percent}% {eta}").expect("the template is valid");
    let bar = ProgressBar::new(STEPS * (items.kv_direct.len() + items.herd.len()) as u64).with_style(style);
    let mut number = 0;
    let mut begin = |name: &'static str| {
        bar.set_message(name);
        bar.set_position(number * STEPS);
        let (bar, before) = (&bar, number * STEPS);
        number += 1;
        move |share: f64| bar.set_position(before + (share * STEPS as f64) as u64)
    };
    let of_kv_direct = |item: &&'static Item| {
        let findings = item.measure(seed, &mut begin(item.name));
        Measured { item, findings }
    };
    let kv_direct = items.kv_direct.iter().map(of_kv_direct).collect();
    let of_herd = |item: &&'static herd::Item| Ok((*item, item.measure(plan, &mut begin(item.name))?));
    let herd: Result<_, Failure> = items.herd.iter().map(of_herd).collect();
    bar.finish_and_clear();
    Ok((kv_direct, herd?))
}

fn json(measured: &[Measured], herd: &[HerdMeasured]) -> String {
    let points = measured.iter().flat_map(|Measured { item, findings }| {
        findings.points.iter().map(|point| ReportPoint {
            item: item.name,
            point: point.name(),
            kind: item.kind(point),
            paper: point.paper,
            ours: point.ours,
            deviation: point.deviation(),
            within: item.is_within(point),
        })
    });
    let variants = measured.iter().flat_map(|Measured { item, findings }| {
        findings.sentences.iter().filter_map(|sentence| match sentence {
            Sentence::Variant(variant) => Some(ReportVariant {
                item: item.name,
                variant: &variant.name,
                series: &variant.series,
                before: variant.before,
                after: variant.after,
                effect: variant.effect.words(),
            }),
            Sentence::Fact(_) | Sentence::Figures(_) => None,
        })
    });
    let herd = herd.iter().map(|(item, found)| herd::HerdReport::new(item, found));
    let report = Report {
        points: points.collect(),
        variants: variants.collect(),
        evidence: Evidence::of(measured),
        herd: herd.collect(),
    };
    serde_json::to_string(&report).expect("numbers and text are always valid JSON")
}

fn tables(measured: &[Measured], herd: &[HerdMeasured]) -> String {
    let mut text = String::new();
    for Measured { item, findings } in measured {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header([item.name, "paper", "ours", "deviation", "within", "kind"]);
        for point in &findings.points {
            let within = if item.is_within(point) { "yes" } else { "no" }.to_owned();
            let kind = item.kind(point).word().to_owned();
            let figures = [number(point.paper), number(point.ours), percent(point.deviation()), within, kind];
            table.add_row([vec![point.name()], figures.to_vec()].concat());
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        text += &format!("{}: {}, {}\n{table}\n", item.name, item.title, item.y.label);
        if !findings.setting.is_empty() {
            text += &format!("{}\n", findings.setting);
        }
        for sentence in &findings.sentences {
            text += &format!("{sentence}\n");
        }
        text.push('\n');
    }
    if !measured.is_empty() {
        text += &format!("{}\n\n", Evidence::of(measured).sentence());
    }
    text.extend(herd.iter().map(|(item, found)| herd::text(item, found)));
    text.trim_end().to_owned()
}

fn write_all(directory: &Path, measured: &[Measured], herd: &[HerdMeasured], seed: u64) -> Result<(), Failure> {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|error| cannot_write(&path, &error))
    };
    let write_item = |name: &str, csv: String, picture: &Picture<'_>| {
        let svg = picture.svg().map_err(Failure::Runtime)?;
        write(&format!("{name}.csv"), &csv)?;
        write(&format!("{name}.svg"), &svg)?;
        Ok::<_, Failure>(svg)
    };
    let mut parts = Vec::new();
    if !measured.is_empty() {
        let written =
            measured.iter().map(|one| write_item(one.item.name, csv(one), &Picture::of(one.item, &one.findings)));
        parts.push(page::kv_direct(measured, &written.collect::<Result<Vec<_>, _>>()?, seed));
    }
    if !herd.is_empty() {
        let written =
            herd.iter().map(|(item, found)| write_item(item.name, herd::csv(item, found), &picture(item, found)));
        parts.push(herd::html(herd, &written.collect::<Result<Vec<_>, _>>()?));
        write("herd.md", &herd::markdown(herd))?;
    }
    write("index.html", &page::html(&parts))
}

/// Returns the plot of an item of HERD. Withheld figures are left out.
fn picture<'a>(item: &'a herd::Item, found: &'a herd::Found) -> Picture<'a> {
    let point = |(x, figure): &(f64, Figure)| Some(SeriesPoint { x: *x, paper: None, ours: figure.median()? });
    let series =
        |curve: &'a herd::Curve| Series { name: &curve.name, points: curve.points.iter().filter_map(point).collect() };
    let series = found.curves.iter().map(series).collect();
    Picture { name: item.name, title: item.title, x: item.x, y: item.y, series, curves: &[] }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Runtime(format!("cannot write {}: {}", path.display(), reason(error)))
}

/// Returns the CSV: the paper's points with ours, then the other curves, whose figures are in the column `ours`.
fn csv(measured: &Measured) -> String {
    let Measured { item, findings } = measured;
    let mut text =
        format!("# {}\n# paper: {}\nseries,x,paper,ours,deviation,within,kind\n", item.title, source(item.paper));
    for point in &findings.points {
        let (x, paper, ours, deviation) = (point.x, point.paper, point.ours, point.deviation());
        let (within, kind) = (item.is_within(point), item.kind(point).word());
        text += &format!("{},{x},{paper},{ours},{deviation},{within},{kind}\n", quoted(&point.series));
    }
    for curve in &findings.curves {
        for (x, y) in &curve.points {
            text += &format!("{},{x},,{y},,,\n", quoted(&curve.name));
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
        Tolerance::AtMost => "a bound".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{chosen, herd, json, measure, number, percent, quoted, tables, write_all};

    /// Measures HERD's items with tiny settings, and writes all files. Checks their structure, not their times.
    #[test]
    fn the_items_of_herd_are_written_and_printed() {
        let names = ["herd-fig05", "herd-fig07", "herd-claims"];
        let items = chosen(&names.map(str::to_owned)).unwrap();
        let (measured, herd) = measure(&items, 1, &herd::Plan::TINY).unwrap();
        let directory = std::env::temp_dir().join(format!("skep-herd-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        write_all(&directory, &measured, &herd, 1).unwrap();
        let file = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        let pages = [file("index.html"), file("herd.md"), tables(&measured, &herd)];
        for name in names {
            assert!(pages.iter().all(|page| page.contains(name)), "{name}: {pages:?}");
            assert!(file(&format!("{name}.svg")).contains("<svg"));
        }
        let report: serde_json::Value = serde_json::from_str(&json(&measured, &herd)).unwrap();
        let published: Vec<_> = herd.iter().map(|(_, found)| found.published.len()).collect();
        assert_eq!(published, [3, 1, 14]);
        for (item, found) in &herd {
            assert!(found.published.iter().all(|published| !published.reason.is_empty()), "{}", item.name);
            for herd::Curve { name, points } in &found.curves {
                assert!(!points.is_empty(), "{name}");
                // No measured figure has a published name.
                assert!(found.published.iter().all(|one| one.row.x != *name && one.row.series != *name), "{name}");
            }
        }
        for (number, name) in names.iter().enumerate() {
            let one = &report["herd"][number];
            let count = |key: &str| one[key].as_array().unwrap().len();
            assert_eq!((one["item"].as_str(), count("published")), (Some(*name), published[number]));
            let rows = file(&format!("{name}.csv")).lines().filter(|line| !line.starts_with('#')).count();
            assert_eq!(rows, 1 + count("published") + count("measured") + count("statements"), "{name}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }

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
