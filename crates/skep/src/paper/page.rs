//! One page with all items of both papers: plot, figures, deviations and sources. It needs no other file.

use skep_nic::paper::{Kind, NO_ITEMS, Point, source};

use super::{Effort, Evidence, Measured, number, percent, tolerance};

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
         could have failed. <i>Calculations</i> are closed forms, or another item's figures. <i>Inputs</i> are given \
         back: the model got them, or a constant was fitted to their series. {}</p>\n",
        env!("CARGO_PKG_VERSION"),
        effort.seed,
        effort.seed.wrapping_add(effort.seeds - 1),
        Evidence::of(measured).sentence(),
    );
    body += "<table>\n<tr><th>item</th><th>evidence</th><th>within</th><th>tolerance</th><th>largest deviation</th><th>calculations</th><th>inputs</th></tr>\n";
    for one in measured {
        let Measured { item, findings } = one;
        let Evidence { evidence, within, calculations, inputs, .. } = Evidence::of([one]);
        let of_evidence = findings.points.iter().filter(|point| item.kind(point) == Kind::Evidence);
        let largest = of_evidence.map(Point::deviation).max_by(|a, b| a.abs().total_cmp(&b.abs()));
        body += &format!(
            "<tr{}><td><a href=\"#{name}\">{name}</a>: {}</td><td>{evidence}</td><td>{within}</td><td>{}</td><td>{}</td><td>{calculations}</td><td>{inputs}</td></tr>\n",
            if within == evidence { "" } else { " class=\"beyond\"" },
            escaped(item.title),
            tolerance(item.tolerance),
            largest.map_or("–".to_owned(), percent),
            name = item.name,
        );
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
    text += "<table>\n<tr><th>point</th><th>paper</th><th>ours</th><th>lowest</th><th>highest</th><th>deviation</th><th>within</th><th>kind</th></tr>\n";
    for point in &findings.points {
        text += &format!(
            "<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            if item.is_within(point) { "" } else { " class=\"beyond\"" },
            escaped(&point.name()),
            number(point.paper),
            number(point.ours),
            number(point.low),
            number(point.high),
            percent(point.deviation()),
            item.judge(point).word(),
            item.kind(point).word(),
        );
    }
    text + "</table>\n"
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Effort, Measured, html, modelled};
    use skep_nic::paper::{Findings, Item, Point, Sentence};

    const EFFORT: Effort = Effort { seed: 5, seeds: 3, jobs: 1 };

    #[test]
    fn a_point_beyond_the_tolerance_is_marked_and_explained() {
        let point = |series, x, ours| Point::further(series, x, 10.0, ours);
        let findings = Findings {
            points: vec![point("a<b", 1.0, 10.0), point("a<b", 2.0, 20.0), point("write", 2.0, 11.0)],
            sentences: vec![Sentence::Fact("Because.".to_owned())],
            ..Findings::default()
        };
        let part =
            modelled(&[Measured { item: Item::named("fig03a").unwrap(), findings }], &["<svg/>".to_owned()], EFFORT);
        let page = html(&[part]);
        assert_eq!(page.matches("class=\"beyond\"").count(), 2, "the point and its item: {page}");
        for part in [
            "thesis, congestion avoidance: its",
            "a&lt;b 2",
            "+100.0 %",
            "Because.",
            "<svg/>",
            "seeds 5 to 7",
            "fig03a.csv",
            "Of 3 points 2 are evidence, 0 calculations and 1 inputs. Of the evidence, 1 are within their tolerance",
            "<td>+10.0 %</td><td>yes</td><td>input</td>",
            "<b>Input.</b> The DMA engine's cycles",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
