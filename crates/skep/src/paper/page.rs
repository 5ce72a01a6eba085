//! One page with all items of both papers: plot, figures, deviations and sources. It needs no other file.

use skep_nic::paper::{Kind, NO_ITEMS, source};

use super::{COLUMNS, Effort, Evidence, Measured, cells, not_explained, percent};

/// The columns of the table of all items.
const SUMMARY: [&str; 7] = [
    "item",
    "figures within their tolerance",
    "largest deviation",
    "bounds that hold",
    "statements that hold",
    "calculations",
    "inputs",
];
const STYLE: &str = "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.15rem .8rem;text-align:right;border-bottom:1px solid #ddd}\
td:first-child,th:first-child,table.words td,table.words th{text-align:left}tr.beyond td{background:#fbe9d0}svg{max-width:100%;height:auto}\
h2{margin-top:3rem}";

/// Returns the page of these parts.
pub(super) fn html(parts: &[String]) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Papers, reproduced</title>\n\
         <style>{STYLE}</style>\n{}</html>\n",
        parts.concat()
    )
}

/// Returns the part of the page about the items of the models.
pub(super) fn modelled(measured: &[Measured], plots: &[String], effort: Effort) -> String {
    let mut body = format!(
        "<h1>The evaluations of KV-Direct and Honeycomb, reproduced</h1>\n<p>Figures and tables of the papers (SOSP 2017, \
         IEEE TC 2024), measured by skep {} on its models of their programmable NICs: medians over seeds {} to {}. Rings are the papers' points, discs are ours; dashed curves are \
         closed forms and other runs.</p>\n<p>Only <i>evidence</i> counts: figures that were simulated or counted, and \
         could have failed. It is of three claims: <i>figures</i>, upper <i>bounds</i>, and <i>statements</i> without a \
         number, whose limits are ours. <i>Calculations</i> are closed forms, or another item's figures. <i>Inputs</i> are given \
         back: the model got them, or a constant was fitted to their series. {}</p>\n",
        env!("CARGO_PKG_VERSION"),
        effort.seed,
        effort.seed.wrapping_add(effort.seeds - 1),
        Evidence::of(measured).sentence(),
    );
    body += "<table>\n";
    body += &row("", "th", &SUMMARY.map(str::to_owned));
    for one in measured {
        let Measured { item, findings } = one;
        let counts = Evidence::of([one]);
        let of_evidence = findings.points.iter().filter(|point| item.kind(point) == Kind::Evidence);
        let deviations = of_evidence.filter_map(|point| item.deviation(point));
        let largest = deviations.max_by(|a, b| a.abs().total_cmp(&b.abs()));
        let link = format!("<a href=\"#{0}\">{0}</a>: {1}", item.name, escaped(item.title));
        let of_all = |hold: usize, all: usize| if all == 0 { String::new() } else { format!("{hold} of {all}") };
        let cells = [
            link,
            of_all(counts.within, counts.figures),
            largest.map_or_else(String::new, percent),
            of_all(counts.bounds_hold, counts.bounds),
            of_all(counts.statements_hold, counts.statements),
            counts.calculations.to_string(),
            counts.inputs.to_string(),
        ];
        body += &row(if counts.all_hold() { "" } else { " class=\"beyond\"" }, "td", &cells);
    }
    body += "</table>\n";
    for (one, plot) in measured.iter().zip(plots) {
        body += &section(one, plot);
    }
    body += "<h2>Published figures and tables that are omitted</h2>\n<ul>\n";
    for (name, reason) in NO_ITEMS {
        body += &format!("<li>{}: {}.</li>\n", escaped(name), escaped(reason));
    }
    body + "</ul>\n"
}

fn section(measured: &Measured, plot: &str) -> String {
    let Measured { item, findings } = measured;
    let mut text = format!("<h2 id=\"{0}\">{0}: {1}</h2>\n{plot}\n", item.name, escaped(item.title));
    for (name, words) in [("Paper", source(item.paper)), ("Run", &findings.setting)] {
        if !words.is_empty() {
            text += &format!("<p><b>{name}.</b> {}</p>\n", escaped(words));
        }
    }
    for group in item.no_evidence {
        let kind = group.kind.word();
        let (first, rest) = kind.split_at(1);
        text += &format!("<p><b>{}{rest}.</b> {}</p>\n", first.to_uppercase(), escaped(group.reason));
    }
    if !findings.sentences.is_empty() {
        text += "<ul>\n";
        for sentence in &findings.sentences {
            text += &format!("<li>{}</li>\n", escaped(&sentence.to_string()));
        }
        text += "</ul>\n";
    }
    let link = format!("{0}.csv", item.name);
    text += &format!("<p>All figures: <a href=\"{link}\">{link}</a></p>\n");
    if let Some(series) = not_explained(item, findings) {
        text += &format!("<p><b>Not explained.</b> {}</p>\n", escaped(&series));
    }
    text += "<table>\n";
    text += &row("", "th", &[&["point"][..], &COLUMNS].concat().into_iter().map(str::to_owned).collect::<Vec<_>>());
    for point in &findings.points {
        let mut all = vec![escaped(&point.name())];
        all.extend(cells(item, point));
        text += &row(if item.is_within(point) { "" } else { " class=\"beyond\"" }, "td", &all);
    }
    text + "</table>\n"
}

/// Returns a row of a table, whose cells are escaped.
fn row(class: &str, tag: &str, cells: &[String]) -> String {
    let cells: String = cells.iter().map(|cell| format!("<{tag}>{cell}</{tag}>")).collect();
    format!("<tr{class}>{cells}</tr>\n")
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Effort, Measured, html, modelled};
    use skep_nic::paper::{Findings, Item, Point, Sentence, Tolerance};

    const EFFORT: Effort = Effort { seed: 5, seeds: 3, jobs: 1 };

    #[test]
    fn a_point_beyond_the_tolerance_is_marked_and_explained() {
        let point = |series, x, ours| Point::further(series, x, 10.0, ours);
        let findings = Findings {
            points: vec![
                point("a<b", 1.0, 10.0),
                point("a<b", 2.0, 20.0),
                point("write", 2.0, 11.0),
                point("bound", 1.0, 4.0).within(Tolerance::AtMost),
                point("busy", 1.0, 4.0).within(Tolerance::StatedAtLeast),
            ],
            sentences: vec![Sentence::Fact("Because.".to_owned())],
            ..Findings::default()
        };
        let part =
            modelled(&[Measured { item: Item::named("fig03a").unwrap(), findings }], &["<svg/>".to_owned()], EFFORT);
        let page = html(&[part]);
        assert_eq!(page.matches("class=\"beyond\"").count(), 3, "two points and their item: {page}");
        for part in [
            "thesis, congestion avoidance: its",
            "a&lt;b 2",
            "+100.0 %",
            "Because.",
            "<svg/>",
            "seeds 5 to 7",
            "fig03a.csv",
            "Of 5 points 4 are evidence, 0 calculations and 1 inputs. Of the evidence, 2 are figures, of which 1 are \
             within their tolerance",
            "Of 1 bounds 1 hold, and of 1 statements 0.",
            "<td>1 of 2</td><td>+100.0 %</td><td>1 of 1</td><td>0 of 1</td><td>0</td><td>1</td>",
            "<td>+10.0 %</td><td>15 %</td><td>yes</td><td>figure</td><td>input</td>",
            "<td>–</td><td>at most</td><td>yes</td><td>bound</td><td>evidence</td>",
            "<b>Not explained.</b> a&lt;b; busy",
            "<td>–</td><td>at least 10</td><td>no</td><td>statement</td><td>evidence</td>",
            "<b>Input.</b> The DMA engine's cycles",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
