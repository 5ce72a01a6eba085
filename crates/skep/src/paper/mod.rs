//! `skep paper`: figures and tables of the evaluations of KV-Direct, Honeycomb and HERD, compared with the papers.
//! Those of KV-Direct and Honeycomb, and HERD's Figures 4 and 6, are measured on models of their NICs. HERD's other items
//! are measured on this machine, see [`herd`].
//!
//! With `--out`, the command writes the points of each item as a CSV and an SVG, and one page for all items,
//! `index.html`. The items of [`herd`] are also in `herd.md`. The same seed writes the same bytes, except for these.
//! `skep paper trace` shows one operation instead, see [`trace`].

mod herd;
mod page;
mod trace;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use skep_measure::Figure;
use skep_nic::paper::{Claim, Findings, ITEMS, Item, Judgement, Kind, Point, Sentence, Tolerance, merged, source};

use crate::failure::{self, Failure};
use crate::output_file::{OutputFile, cannot_write};
use crate::plot::{Picture, Series, SeriesPoint};

/// Reproduces figures and tables of KV-Direct, Honeycomb and HERD.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Items to measure: KV-Direct's, such as fig03a, Honeycomb's, such as honeycomb-fig16, and herd-fig04 and
    /// herd-fig06 run on models; HERD's others, such as herd-fig07, on this machine. `all` for all of them.
    #[arg(value_name = "ITEM", required_unless_present = "list")]
    items: Vec<String>,
    /// List the items.
    #[arg(long, conflicts_with_all = ["items", "out", "json"])]
    list: bool,
    /// Write data, plots and a page into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of everything that is random on the model. Further seeds follow it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of seeds. Figures are the medians over them.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Number of measurements at a time [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Print one line of JSON instead of tables.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show the life of one operation on the model: its events with their times.
    Trace(trace::Arguments),
}

/// The names of the pages with all items, and with those of HERD.
const PAGE: &str = "index.html";
const HERD_PAGE: &str = "herd.md";

/// An item and its findings.
struct Measured {
    item: &'static Item,
    findings: Findings,
}

/// An item of HERD and its findings.
type HerdMeasured = (&'static herd::Item, herd::Found);

/// The seeds of the items, and the number of measurements at a time.
#[derive(Clone, Copy, Debug)]
struct Effort {
    seed: u64,
    seeds: u64,
    jobs: usize,
}

/// The measurement of an item with one seed.
struct Task {
    item: &'static Item,
    seed: u64,
}

/// The chosen items.
struct Chosen {
    modelled: Vec<&'static Item>,
    herd: Vec<&'static herd::Item>,
}

impl Chosen {
    /// Returns the items of the models that have to be measured, each once.
    fn measured(&self) -> Vec<&'static Item> {
        let mut items: Vec<_> = self.modelled.iter().map(|item| item.measured()).collect();
        items.sort_unstable_by_key(|item| item.name);
        items.dedup_by_key(|item| item.name);
        items
    }
}

/// The points of all items of the models with their variants, and the findings of those of HERD.
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
    claim: Claim,
    /// The published figure or bound. The paper has none for a statement.
    paper: Option<f64>,
    ours: f64,
    /// The lowest and the highest of our figures over the seeds, and the judgement that follows from both.
    low: f64,
    high: f64,
    judgement: Judgement,
    /// The quotient of our figure and the paper's, minus one. Bounds and statements have none.
    deviation: Option<f64>,
    tolerance: Tolerance,
    /// The limit that a statement is judged by.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<f64>,
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
    /// Evidence of all three claims: figures, bounds and statements.
    evidence: usize,
    figures: usize,
    /// Figures within their tolerance.
    within: usize,
    /// Figures within 5 % of the paper.
    within_5_percent: usize,
    bounds: usize,
    bounds_hold: usize,
    statements: usize,
    statements_hold: usize,
    /// Evidence that is within its tolerance with some seeds, and beyond it with others.
    undecided: usize,
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
                self.undecided += usize::from(item.judge(point) == Judgement::Undecided);
                let (count, hold) = match item.claim(point) {
                    Claim::Figure => (&mut self.figures, &mut self.within),
                    Claim::Bound => (&mut self.bounds, &mut self.bounds_hold),
                    Claim::Statement => (&mut self.statements, &mut self.statements_hold),
                };
                *count += 1;
                *hold += usize::from(item.is_within(point));
                let is_near = item.deviation(point).is_some_and(|deviation| deviation.abs() <= 0.05);
                self.within_5_percent += usize::from(is_near);
            }
        }
    }

    /// Returns the counts as a sentence.
    fn sentence(self) -> String {
        let Evidence { evidence, figures, within, within_5_percent, bounds, statements, .. } = self;
        let Evidence { bounds_hold, statements_hold, undecided, calculations, inputs, .. } = self;
        let points = evidence + calculations + inputs;
        format!(
            "Of {points} points {evidence} are evidence, {calculations} calculations and {inputs} inputs. Of the \
             evidence, {figures} are figures, of which {within} are within their tolerance and {within_5_percent} within \
             5 %. Of {bounds} bounds {bounds_hold} hold, and of {statements} statements {statements_hold}. The seeds \
             disagree about {undecided}."
        )
    }

    /// Returns true if all evidence is within its tolerance.
    fn all_hold(self) -> bool {
        self.within + self.bounds_hold + self.statements_hold == self.evidence
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
        check_output(directory, &items)?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or(cores, usize::from);
    let effort = Effort { seed: arguments.seed, seeds: arguments.seeds, jobs };
    let (measured, herd) = measure(&items, effort, &herd::Plan::FULL)?;
    if let Some(directory) = &arguments.out {
        write_all(directory, &measured, &herd, effort)?;
    }
    let text = if arguments.json { json(&measured, &herd) } else { tables(&measured, &herd) };
    writeln!(io::stdout(), "{text}")?;
    if let (Some(directory), false) = (&arguments.out, arguments.json) {
        writeln!(io::stdout(), "written to {}", directory.join(PAGE).display())?;
    }
    Ok(())
}

/// Creates the directory, and fails if a file of these items cannot be written into it.
fn check_output(directory: &Path, items: &Chosen) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|error| cannot_write(directory, &error))?;
    let check = |name: &str| OutputFile::open(&directory.join(name)).map(drop);
    let (modelled, herd) = (items.modelled.iter().map(|item| item.name), items.herd.iter().map(|item| item.name));
    modelled.chain(herd).try_for_each(|name| {
        check(&format!("{name}.csv"))?;
        check(&format!("{name}.svg"))
    })?;
    if !items.herd.is_empty() {
        check(HERD_PAGE)?;
    }
    check(PAGE)
}

fn list() -> Result<(), Failure> {
    let mut out = io::stdout();
    for (name, title) in known() {
        writeln!(out, "{name:16} {title}")?;
    }
    Ok(())
}

/// Returns the names and titles of all items: those of the models, then those of HERD.
fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    let modelled = ITEMS.iter().map(|item| (item.name, item.title));
    modelled.chain(herd::ITEMS.iter().map(|item| (item.name, item.title)))
}

/// Returns the items with these names, each once, in the order of their paper.
fn chosen(names: &[String]) -> Result<Chosen, Failure> {
    let is_known = |name: &String| name == "all" || known().any(|(known, _)| known == name);
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<_> = known().map(|(name, _)| name).collect();
        return Err(Failure::Usage(format!("no item `{}`: write all, {}", failure::quoted(name), known.join(", "))));
    }
    let is_wanted = |item: &str| names.iter().any(|name| name == "all" || name == item);
    Ok(Chosen {
        modelled: ITEMS.iter().filter(|item| is_wanted(item.name)).collect(),
        herd: herd::ITEMS.iter().filter(|item| is_wanted(item.name)).collect(),
    })
}

/// Measures the items. Those of the models run at the same time, the others alone.
fn measure(items: &Chosen, effort: Effort, plan: &herd::Plan) -> Result<(Vec<Measured>, Vec<HerdMeasured>), Failure> {
    let tasks = |is_real_time: bool| {
        let seeds = if is_real_time { 1 } else { effort.seeds };
        let of_kind = items.measured().into_iter().filter(move |item| item.is_real_time() == is_real_time);
        let of_item = move |item: &'static Item| {
            (0..seeds).map(move |number| Task { item, seed: effort.seed.wrapping_add(number) })
        };
        of_kind.flat_map(of_item).collect::<Vec<Task>>()
    };
    let [on_the_model, in_real_time] = [false, true].map(tasks);
    let style = ProgressStyle::with_template("{msg:16} {wide_bar} {percent}% {eta}").expect("the template is valid");
    let task_count = on_the_model.len() + in_real_time.len() + items.herd.len();
    let bar = ProgressBar::new(STEPS * task_count as u64).with_style(style);
    let mut found = measure_all(&on_the_model, effort.jobs, &bar);
    found.extend(measure_all(&in_real_time, 1, &bar));
    let of_herd = |item: &&'static herd::Item| {
        Ok((*item, with_progress(&bar, item.name, |progress| item.measure(plan, progress))?))
    };
    let herd: Result<_, Failure> = items.herd.iter().map(of_herd).collect();
    bar.finish_and_clear();
    let of_model = |item: &&'static Item| {
        let of_item = found.iter().filter(|(measured, _)| measured.name == item.measured().name);
        let all: Vec<Findings> = of_item.map(|(_, findings)| item.of_measured(findings)).collect();
        Measured { item, findings: merged(&all) }
    };
    Ok((items.modelled.iter().map(of_model).collect(), herd?))
}

/// Steps of the progress bar for a task.
const STEPS: u64 = 1000;

/// Carries out the tasks, some of them at the same time. Returns their findings in the order of the tasks.
fn measure_all(tasks: &[Task], jobs: usize, bar: &ProgressBar) -> Vec<(&'static Item, Findings)> {
    let next = AtomicUsize::new(0);
    let found: Vec<OnceLock<Findings>> = tasks.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < tasks.len()) {
            let Task { item, seed } = &tasks[index];
            let findings = with_progress(bar, item.name, |progress| item.measure(*seed, progress));
            found[index].set(findings).expect("a task is carried out once");
        }
    };
    std::thread::scope(|scope| (0..jobs.min(tasks.len())).for_each(|_| _ = scope.spawn(work)));
    let findings = found.into_iter().map(|one| one.into_inner().expect("every task is carried out"));
    tasks.iter().map(|task| task.item).zip(findings).collect()
}

/// Carries out a task that reports its progress as a share. Shows it, together with that of all others.
fn with_progress<R>(bar: &ProgressBar, name: &'static str, task: impl FnOnce(&mut (dyn FnMut(f64) + Send)) -> R) -> R {
    bar.set_message(name);
    let mut shown = 0;
    let mut show = |share: f64| {
        let now = ((share * STEPS as f64) as u64).clamp(shown, STEPS);
        bar.inc(now - shown);
        shown = now;
    };
    let result = task(&mut show);
    show(1.0);
    result
}

fn json(measured: &[Measured], herd: &[HerdMeasured]) -> String {
    let points = measured.iter().flat_map(|Measured { item, findings }| {
        findings.points.iter().map(|point| ReportPoint {
            item: item.name,
            point: point.name(),
            kind: item.kind(point),
            claim: item.claim(point),
            paper: published(item, point),
            ours: point.ours,
            low: point.low,
            high: point.high,
            judgement: item.judge(point),
            deviation: item.deviation(point),
            tolerance: item.tolerance_of(point),
            limit: (item.claim(point) == Claim::Statement).then_some(point.paper),
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
        let mut header = vec![item.name];
        header.extend(COLUMNS);
        table.set_header(header);
        for point in &findings.points {
            let mut row = vec![point.name()];
            row.extend(cells(item, point));
            table.add_row(row);
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
        if let Some(series) = not_explained(item, findings) {
            text += &format!("Not explained: {series}.\n");
        }
        text.push('\n');
    }
    if !measured.is_empty() {
        text += &format!("{}\n\n", Evidence::of(measured).sentence());
    }
    text.extend(herd.iter().map(|(item, found)| herd::text(item, found)));
    text.trim_end().to_owned()
}

fn write_all(directory: &Path, measured: &[Measured], herd: &[HerdMeasured], effort: Effort) -> Result<(), Failure> {
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
        parts.push(page::modelled(measured, &written.collect::<Result<Vec<_>, _>>()?, effort));
    }
    if !herd.is_empty() {
        let written =
            herd.iter().map(|(item, found)| write_item(item.name, herd::csv(item, found), &picture(item, found)));
        parts.push(herd::html(herd, &written.collect::<Result<Vec<_>, _>>()?));
        write(HERD_PAGE, &herd::markdown(herd))?;
    }
    write(PAGE, &page::html(&parts))
}

/// Returns the plot of an item of HERD. Withheld figures are left out.
fn picture<'a>(item: &'a herd::Item, found: &'a herd::Found) -> Picture<'a> {
    let point = |(x, figure): &(f64, Figure)| Some(SeriesPoint { x: *x, paper: None, ours: figure.median()? });
    let series =
        |curve: &'a herd::Curve| Series { name: &curve.name, points: curve.points.iter().filter_map(point).collect() };
    let series = found.curves.iter().map(series).collect();
    Picture { name: item.name, title: item.title, x: item.x, y: item.y, series, curves: &[] }
}

/// The columns of a point in tables, after its name.
const COLUMNS: [&str; 9] = ["paper", "ours", "lowest", "highest", "deviation", "tolerance", "within", "claim", "kind"];

/// Returns the cells of a point in tables.
fn cells(item: &Item, point: &Point) -> [String; 9] {
    let [ours, low, high] = [point.ours, point.low, point.high].map(number);
    let none = || "–".to_owned();
    let [within, claim, kind] =
        [item.judge(point).word(), item.claim(point).word(), item.kind(point).word()].map(str::to_owned);
    [
        published(item, point).map_or_else(none, number),
        ours,
        low,
        high,
        item.deviation(point).map_or_else(none, percent),
        tolerance(item, point),
        within,
        claim,
        kind,
    ]
}

/// Returns the series beyond their tolerance that no variant is about, if there are some.
fn not_explained(item: &Item, findings: &Findings) -> Option<String> {
    let mut series: Vec<&str> = item.without_variant(findings).map(|point| &*point.series).collect();
    series.dedup();
    (!series.is_empty()).then(|| series.join("; "))
}

/// Returns the figure or the bound that the paper has.
fn published(item: &Item, point: &Point) -> Option<f64> {
    (item.claim(point) != Claim::Statement).then_some(point.paper)
}

/// Returns the CSV: the paper's points with ours, then the other curves, whose figures are in the column `ours`.
fn csv(measured: &Measured) -> String {
    let Measured { item, findings } = measured;
    let mut text = format!(
        "# {}\n# paper: {}\nseries,x,paper,ours,low,high,deviation,tolerance,within,claim,kind\n",
        item.title,
        source(item.paper)
    );
    for point in &findings.points {
        let exactly = |figure: Option<f64>| figure.map(|figure| figure.to_string()).unwrap_or_default();
        let [paper, deviation] = [published(item, point), item.deviation(point)].map(exactly);
        let Point { series, x, ours, low, high, .. } = point;
        let [.., tolerance, within, claim, kind] = cells(item, point);
        let series = quoted(series);
        text += &format!("{series},{x},{paper},{ours},{low},{high},{deviation},{tolerance},{within},{claim},{kind}\n");
    }
    for curve in &findings.curves {
        for (x, y) in &curve.points {
            text += &format!("{},{x},,{y},,,,,,,\n", quoted(&curve.name));
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

fn tolerance(item: &Item, point: &Point) -> String {
    match item.tolerance_of(point) {
        Tolerance::Relative(share) => format!("{} %", (1e4 * share).round() / 1e2),
        Tolerance::Absolute(distance) => distance.to_string(),
        Tolerance::AtMost => "at most".to_owned(),
        Tolerance::StatedAtMost => format!("at most {}", point.paper),
        Tolerance::StatedAtLeast => format!("at least {}", point.paper),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Effort, chosen, herd, json, measure, number, percent, quoted, tables, write_all};

    /// Measures HERD's items with tiny settings, and writes all files. Checks their structure, not their times.
    #[test]
    fn the_items_of_herd_are_written_and_printed() {
        let names = ["herd-fig05", "herd-fig07", "herd-claims"];
        let items = chosen(&names.map(str::to_owned)).unwrap();
        let effort = Effort { seed: 1, seeds: 1, jobs: 1 };
        let (measured, herd) = measure(&items, effort, &herd::Plan::TINY).unwrap();
        let directory = std::env::temp_dir().join(format!("skep-herd-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        write_all(&directory, &measured, &herd, effort).unwrap();
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
