//! One page with all items of both papers: plot, figures, deviations and sources. It needs no other file.

use skep_nic::paper::{NO_ITEMS, Point, source};

use super::{Measured, number, percent, tolerance};

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

/// Returns the part of the page about KV-Direct.
pub(super) fn kv_direct(measured: &[Measured], plots: &[String], seed: u64) -> String {
    let mut body = format!(
        "<h1>KV-Direct's evaluation, reproduced</h1>\n<p>The paper's figures and tables (SOSP 2017), measured by skep {} on \
         its model of the programmable NIC, seed {seed}. Rings are the paper's points, discs are ours; dashed curves are \
         closed forms and other runs.</p>\n",
        env!("CARGO_PKG_VERSION")
    );
    body +=
        "<table>\n<tr><th>item</th><th>points</th><th>within</th><th>tolerance</th><th>largest deviation</th></tr>\n";
    for Measured { item, findings } in measured {
        let within = findings.points.iter().filter(|point| point.is_within(item.tolerance)).count();
        let deviations = findings.points.iter().map(Point::deviation);
        let largest = deviations.max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or_default();
        let count = findings.points.len();
        body += &format!(
            "<tr{}><td><a href=\"#{name}\">{name}</a>: {}</td><td>{count}</td><td>{within}</td><td>{}</td><td>{}</td></tr>\n",
            if within == count { "" } else { " class=\"beyond\"" },
            escaped(item.title),
            tolerance(item.tolerance),
            percent(largest),
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
    for (name, words) in
        [("Paper", source(item.paper)), ("Run", &findings.setting), ("Deviation", &findings.explanation)]
    {
        if !words.is_empty() {
            text += &format!("<p><b>{name}.</b> {}</p>\n", escaped(words));
        }
    }
    let link = format!("{0}.csv", item.name);
    text += &format!("<p>All figures: <a href=\"{link}\">{link}</a></p>\n");
    text += "<table>\n<tr><th>point</th><th>paper</th><th>ours</th><th>deviation</th></tr>\n";
    for point in &findings.points {
        text += &format!(
            "<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            if point.is_within(item.tolerance) { "" } else { " class=\"beyond\"" },
            escaped(&point.name()),
            number(point.paper),
            number(point.ours),
            percent(point.deviation()),
        );
    }
    text + "</table>\n"
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Measured, html, kv_direct};
    use skep_nic::paper::{Findings, Item, Point};

    #[test]
    fn a_point_beyond_the_tolerance_is_marked_and_explained() {
        let point = |x, ours| Point { series: "a<b".to_owned(), x, paper: 10.0, ours };
        let findings = Findings {
            points: vec![point(1.0, 10.0), point(2.0, 20.0)],
            explanation: "Because.".to_owned(),
            ..Findings::default()
        };
        let part = kv_direct(&[Measured { item: Item::named("fig03a").unwrap(), findings }], &["<svg/>".to_owned()], 5);
        let page = html(&[part]);
        assert_eq!(page.matches("class=\"beyond\"").count(), 2, "the point and its item: {page}");
        for part in
            ["thesis, congestion avoidance: its", "a&lt;b 2", "+100.0 %", "Because.", "<svg/>", "seed 5", "fig03a.csv"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
