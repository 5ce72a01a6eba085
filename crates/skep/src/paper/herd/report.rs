//! The findings of HERD's items as JSON, CSV, text, HTML and Markdown. All but the first two show the same tables.

use std::time::SystemTime;

use comfy_table::ContentArrangement;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use skep_measure::{Figure, machine};
use skep_nic::paper::source;

use super::{Curve, Found, Item, NO_ITEMS, Published, Statement, Verdict};
use crate::paper::page::escaped;
use crate::paper::{number, quoted};

/// Columns of a table in a terminal, and of a paragraph in a page.
const TEXT_WIDTH: u16 = 120;
const PAGE_WIDTH: usize = 100;

/// An item as JSON.
#[derive(serde::Serialize)]
pub(in crate::paper) struct HerdReport<'a> {
    item: &'static str,
    machine: String,
    published: &'a [Published],
    measured: Vec<MeasuredReport<'a>>,
    statements: Vec<StatementReport<'a>>,
}

/// A measured point, in million operations per second.
#[derive(serde::Serialize)]
struct MeasuredReport<'a> {
    series: &'a str,
    x: f64,
    #[serde(flatten)]
    figure: Figure,
}

#[derive(serde::Serialize)]
struct StatementReport<'a> {
    statement: &'a str,
    #[serde(flatten)]
    ratio: Figure,
    at_least: f64,
    verdict: Verdict,
}

impl<'a> HerdReport<'a> {
    pub(in crate::paper) fn new(item: &Item, found: &'a Found) -> Self {
        let measured = found.curves.iter().flat_map(|Curve { name, points }| {
            points.iter().map(|(x, figure)| MeasuredReport { series: name, x: *x, figure: *figure })
        });
        let statement = |statement: &'a Statement| StatementReport {
            statement: &statement.text,
            ratio: statement.ratio,
            at_least: statement.at_least,
            verdict: statement.verdict(),
        };
        HerdReport {
            item: item.name,
            machine: machine(),
            published: &found.published,
            measured: measured.collect(),
            statements: found.statements.iter().map(statement).collect(),
        }
    }
}

/// Returns the CSV: the published numbers, what was measured, and the statements. The column `kind` tells them apart.
pub(in crate::paper) fn csv(item: &Item, found: &Found) -> String {
    let mut text = format!(
        "# {}\n# paper: {}\n# measured: {}, million/s\nkind,series,x,paper,ours,spread,at_least,verdict,reason\n",
        item.title,
        source(item.paper),
        machine()
    );
    for Published { row, verdict, reason } in &found.published {
        let (series, x) = (quoted(&row.series), quoted(&row.x));
        text += &format!("published,{series},{x},{},,,,{},{}\n", row.number(), verdict.words(), quoted(reason));
    }
    let median = |figure: &Figure| figure.noisy_median().map_or_else(String::new, |median| median.to_string());
    for Curve { name, points } in &found.curves {
        for (x, figure) in points {
            text += &format!("measured,{},{x},,{},{},,,\n", quoted(name), median(figure), figure.spread());
        }
    }
    for statement in &found.statements {
        let Statement { text: words, ratio, at_least } = statement;
        let (ours, spread, verdict) = (median(ratio), ratio.spread(), statement.verdict().words());
        text += &format!("statement,{},,,{ours},{spread},{at_least},{verdict},\n", quoted(words));
    }
    text
}

/// A table: its header, and its rows.
struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> Table {
        Table { header: header.map(str::to_owned).to_vec(), rows: rows.map(|row| row.to_vec()).collect() }
    }

    fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(TEXT_WIDTH);
        table.set_header(&self.header).add_rows(&self.rows);
        format!("{table}\n")
    }

    fn html(&self) -> String {
        let row = |tag: &str, cells: &[String]| {
            let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().map(|cells| row("td", cells)).collect();
        format!("<table class=\"words\">\n{}{rows}</table>\n", row("th", &self.header))
    }

    fn markdown(&self) -> String {
        let widths: Vec<usize> = (0..self.header.len())
            .map(|column| {
                let cells = self.rows.iter().chain([&self.header]).map(|row| row[column].chars().count());
                cells.max().unwrap_or_default()
            })
            .collect();
        let line = |cells: &[String]| {
            let cells = cells.iter().zip(&widths).map(|(cell, width)| format!(" {cell:width$} |"));
            format!("|{}\n", cells.collect::<String>())
        };
        let rule: String = widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}|{rule}\n{rows}", line(&self.header))
    }
}

/// Returns the tables of an item. A table without rows is left out.
fn tables(item: &Item, found: &Found) -> Vec<Table> {
    let spread = |figure: &Figure| format!("±{:.0}%", 50.0 * figure.spread());
    let published = found.published.iter().map(|Published { row, verdict, reason }| {
        let name = format!("{}: {}", row.series, row.x);
        [name, row.number(), verdict.words().to_owned(), reason.clone()]
    });
    let measured = found.curves.iter().flat_map(|Curve { name, points }| {
        points.iter().map(move |(x, figure)| [name.clone(), x.to_string(), figure.text(number), spread(figure)])
    });
    let statements = found.statements.iter().map(|statement| {
        let Statement { text, ratio, at_least } = statement;
        let asked = format!("≥ {at_least}");
        [text.clone(), ratio.text(number), spread(ratio), asked, statement.verdict().words().to_owned()]
    });
    let all = [
        Table::new(["published", "paper", "verdict", "reason"], published),
        Table::new(["measured on this machine", item.x.label, item.y.label, "spread"], measured),
        Table::new(["statement", "ratio", "spread", "asked", "verdict"], statements),
    ];
    all.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// Returns an item for a terminal.
pub(in crate::paper) fn text(item: &Item, found: &Found) -> String {
    let tables: String = tables(item, found).iter().map(Table::text).collect();
    format!("{}: {}\n{tables}{}\n\n", item.name, item.title, found.setting)
}

/// Returns the part of the page about HERD.
pub(in crate::paper) fn html(measured: &[(&Item, Found)], plots: &[String]) -> String {
    let mut text = format!("<h1>HERD's evaluation</h1>\n<p>{}</p>\n", escaped(&head()));
    for ((item, found), plot) in measured.iter().zip(plots) {
        let tables: String = tables(item, found).iter().map(Table::html).collect();
        text += &format!(
            "<h2 id=\"{name}\">{name}: {}</h2>\n{plot}\n<p><b>Paper.</b> {}</p>\n<p><b>Run.</b> {}</p>\n\
             <p>All figures: <a href=\"{name}.csv\">{name}.csv</a></p>\n{tables}",
            escaped(item.title),
            escaped(source(item.paper)),
            escaped(&found.setting),
            name = item.name,
        );
    }
    let omitted: String =
        NO_ITEMS.iter().map(|(name, reason)| format!("<li>{}: {}.</li>\n", escaped(name), escaped(reason))).collect();
    format!("{text}<h2>Figures of HERD that are not measured</h2>\n<ul>\n{omitted}</ul>\n")
}

/// Returns a page about HERD that needs only the plots beside it.
pub(in crate::paper) fn markdown(measured: &[(&Item, Found)]) -> String {
    let names: Vec<_> = measured.iter().map(|(item, _)| item.name).collect();
    let mut text = format!(
        "# HERD's evaluation\n\n{}\n\n```sh\nskep paper {} --out DIRECTORY\n```\n",
        wrapped(&head(), PAGE_WIDTH),
        names.join(" ")
    );
    for (item, found) in measured {
        text += &format!("\n## {}: {}\n\n", item.name, item.title);
        text += &format!("![{}]({}.svg)\n\n{}\n", item.title, item.name, wrapped(&found.setting, PAGE_WIDTH));
        for table in tables(item, found) {
            text += &format!("\n{}", table.markdown());
        }
    }
    text += "\n## Figures that are not measured\n\n";
    for (name, reason) in NO_ITEMS {
        let line = wrapped(&format!("- {name}: {reason}."), PAGE_WIDTH - 2);
        text += &format!("{}\n", line.replace('\n', "\n  "));
    }
    text
}

/// Returns the sentences that begin a page.
fn head() -> String {
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    format!(
        "Measured by skep {} on {}, {}. HERD (SIGCOMM 2014) measured RDMA NICs in a cluster. Skep's RDMA transport \
         needs such a NIC, so none of these rates is measured here. Skep's other transports are measured in their \
         place. Their rates are comparable with each other, but not with the paper's. A figure is a median with its \
         spread, ± half of (upper quartile − lower quartile) / median. Ratios are calculated round by round. A \
         statement holds if the lower end of the spread is at least the number asked, and does not hold if the upper \
         end is below it. Otherwise it is undecided.",
        env!("CARGO_PKG_VERSION"),
        machine(),
        &date[..10],
    )
}

/// Breaks lines before words that would exceed this many columns.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::herd::published::rows;

    fn found() -> Found {
        let row = rows("series,x,y,y_low,y_high,unit,where\necho,WRITE / WRITE,26,,,Mops,3.2\n").remove(0);
        Found {
            published: vec![row.not_measured("a < b, no NIC")],
            curves: vec![Curve { name: "Skep, UDP".to_owned(), points: vec![(16.0, Figure::with_spread(2.5, 0.1))] }],
            statements: vec![Statement {
                text: "a gain".to_owned(),
                ratio: Figure::with_spread(0.5, 0.1),
                at_least: 1.0,
            }],
            setting: "One core.".to_owned(),
        }
    }

    #[test]
    fn every_form_has_every_table() {
        let (item, found) = (Item::named("herd-fig05").unwrap(), found());
        let measured = [(item, found.clone())];
        let forms = [text(item, &found), html(&measured, &["<svg/>".to_owned()]), markdown(&measured)];
        for form in &forms {
            for part in ["WRITE / WRITE", "26 Mops", "not measured", "Skep, UDP", "2.500", "±5%", "does not hold"] {
                assert!(form.contains(part), "{part}: {form}");
            }
        }
        assert!(forms[1].contains("a &lt; b") && forms[1].contains("<svg/>") && forms[1].contains("Figures 4 and 6"));
        assert!(forms[2].contains("![ECHOs of 32 B, by transport](herd-fig05.svg)"), "{}", forms[2]);
        let is_narrow = |line: &str| line.starts_with('|') || line.chars().count() <= PAGE_WIDTH;
        assert!(forms[2].lines().all(is_narrow), "{}", forms[2]);
    }

    #[test]
    fn programs_get_every_row() {
        let (item, found) = (Item::named("herd-fig05").unwrap(), found());
        let rows: Vec<String> = csv(item, &found).lines().skip(3).map(str::to_owned).collect();
        assert_eq!(
            rows,
            [
                "kind,series,x,paper,ours,spread,at_least,verdict,reason",
                "published,echo,WRITE / WRITE,26 Mops,,,,not measured,\"a < b, no NIC\"",
                "measured,\"Skep, UDP\",16,,2.5,0.1,,,",
                "statement,a gain,,,0.5,0.1,1,does not hold,",
            ]
        );
        let json = serde_json::to_value(HerdReport::new(item, &found)).unwrap();
        assert_eq!(json["published"][0]["verdict"], "not_measured");
        assert_eq!(json["measured"][0]["median"], 2.5);
        assert_eq!(
            (&json["statements"][0]["verdict"], &json["statements"][0]["at_least"]),
            (&"does_not_hold".into(), &1.0.into())
        );
    }
}
