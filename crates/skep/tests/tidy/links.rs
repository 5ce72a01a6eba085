//! The rules about links: in pages, in the site that `site/` makes of them, and from alerts to their pages.

use std::collections::BTreeMap;

use crate::{Finding, Tree, finding};

/// The table of contents of the site. The folder has links to the pages, so its paths are those of the repository.
const CONTENTS: &str = "site/src/SUMMARY.md";
/// Files of the site that are not below `docs/` and are no pages.
const BESIDE_PAGES: &[&str] = &["LICENSE-MIT", "LICENSE-APACHE"];
/// The rules for alerts.
const ALERTS: &str = "packaging/prometheus/skep.rules.yml";

/// Pages with a link that leads nowhere.
pub(crate) const BROKEN_LINKS: &[(&str, &str)] = &[
    ("docs/a.md", "See [the page](gone.md)."),
    ("docs/a.md", "See [the page](../docs/b/../gone.md#part)."),
    ("docs/a.md", "# A page\n\nSee [above](#a-pag)."),
    ("docs/a.md", "# A page\n\n```sh\n## Part\n```\n\nSee [above](a.md#part)."),
    ("docs/a.md", "# Twice\n\n# Twice\n\n[Both](#twice-2)."),
];

/// Pages whose links are right, or no links.
pub(crate) const RIGHT_LINKS: &[(&str, &str)] = &[
    (
        "docs/a.md",
        "# A `page`, (1) and [more](a.md)\n\n[Here](#a-page-1-and-more), [there](../docs/a.md#a-page-1-and-more)",
    ),
    (
        "docs/a.md",
        "# Twice\n\n# Twice\n\n[Both](#twice-1), [the folder](../docs/), [elsewhere](https://example.org/#x).",
    ),
    ("a.md", "`[no](link.md)` and\n```text\n[no](link.md)\n```\n"),
];

/// Pages that are not in the site, or link to a file that is not.
pub(crate) const OUTSIDE_THE_SITE: &[(&str, &str)] =
    &[("docs/a.md", "# Not in the table of contents"), ("README.md", "[Sources](crates/a.rs)")];

/// Pages that need not be in the site.
pub(crate) const NO_PART_OF_THE_SITE: &[(&str, &str)] = &[
    ("crates/a/README.md", "# A\n[Sources](src/lib.rs)"),
    ("README.md", "[License](LICENSE-MIT), [a plot](docs/a.svg)"),
];

/// Alerts without a page, and the reverse.
pub(crate) const ALERTS_WITHOUT_PAGES: &[(&str, &str)] = &[
    (ALERTS, "- alert: SkepDown\n  annotations:\n    runbook_url: \"docs/alerts/SkepDown.html\"\n"),
    (ALERTS, "- alert: SkepDown\n  annotations:\n    summary: \"down\"\n"),
    ("docs/alerts/SkepDown.md", "# SkepDown"),
];

/// Files without alerts.
pub(crate) const NO_ALERTS: &[(&str, &str)] = &[(ALERTS, "groups:\n"), ("docs/SkepDown.md", "# SkepDown")];

/// Finds links to files and headings that do not exist.
pub(crate) fn check_links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (page, text) in pages(tree) {
        for target in links(text) {
            let (path, fragment) =
                target.split_once('#').map_or((target.as_str(), None), |(path, part)| (path, Some(part)));
            let path = if path.is_empty() { page.clone() } else { resolve(page, path) };
            if !is_in(tree, &path) {
                findings.push(finding(page, format!("links to `{target}`: there is no {path}")));
            } else if let Some(part) = fragment
                && !tree.get(&path).is_some_and(|text| anchors(text).iter().any(|anchor| anchor == part))
            {
                findings.push(finding(page, format!("links to `{target}`: {path} has no such heading")));
            }
        }
    }
    findings
}

/// Finds pages that are missing in the site, and links that lead out of it.
pub(crate) fn check_site(tree: &Tree) -> Vec<Finding> {
    let contents: Vec<String> = tree.get(CONTENTS).map(|text| links(text)).unwrap_or_default();
    let is_part = |path: &String| contents.contains(path);
    let mut findings = Vec::new();
    for (page, text) in pages(tree).filter(|(page, _)| page.starts_with("docs/") || !page.contains('/')) {
        if page.starts_with("docs/") && !is_part(page) {
            findings.push(finding(page, format!("is missing in {CONTENTS}")));
        }
        for target in links(text) {
            let path = resolve(page, target.split('#').next().unwrap_or_default());
            let is_file = path.starts_with("docs/") && !path.ends_with(".md") || BESIDE_PAGES.contains(&path.as_str());
            if !target.starts_with('#') && !is_file && !is_part(&path) {
                findings.push(finding(page, format!("links to `{target}`, which is not in the site: write its path")));
            }
        }
    }
    findings
}

/// Finds alerts whose annotation names no page, and pages of alerts that do not exist.
pub(crate) fn check_alerts(tree: &Tree) -> Vec<Finding> {
    let rules = tree.get(ALERTS).map_or("", String::as_str);
    let mut names = Vec::new();
    let mut findings = Vec::new();
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap_or_default();
        names.push(format!("docs/alerts/{name}.md"));
        if !rule.contains(&format!("runbook_url: \"docs/alerts/{name}.html\"")) {
            findings.push(finding(ALERTS, format!("{name} has no annotation runbook_url with its page")));
        }
        if !tree.contains_key(&format!("docs/alerts/{name}.md")) {
            findings.push(finding(ALERTS, format!("{name} has no page")));
        }
    }
    let pages = tree.keys().filter(|path| path.starts_with("docs/alerts/"));
    findings.extend(pages.filter(|path| !names.contains(path)).map(|path| finding(path, "is about no alert")));
    findings
}

fn pages(tree: &Tree) -> impl Iterator<Item = (&String, &String)> {
    tree.iter().filter(|(path, _)| path.ends_with(".md"))
}

/// Returns the lines of a page that are not in fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// Returns the targets of a page's links within the repository.
fn links(text: &str) -> Vec<String> {
    let prose: Vec<&str> = prose(text).collect();
    let without_code: String = prose.join("\n").split('`').step_by(2).collect();
    let targets = without_code.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains(':')).map(str::to_owned).collect()
}

/// Returns the names by which links reach the headings of a page, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let headings =
        prose(text).filter_map(|line| Some(line.trim_start_matches('#')).filter(|rest| rest.len() < line.len()));
    let name = |heading: &str| -> String {
        // Of a link, the text counts.
        let parts = heading.trim().split("](").enumerate();
        let text = parts
            .map(|(index, part)| if index == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) });
        let kept = text.collect::<String>().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || ['-', '_', ' '].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    let mut numbered = |name: String| {
        let count = counts.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name}-{}", *count - 1) }
    };
    headings.map(|heading| numbered(name(heading))).collect()
}

/// Returns the path of a link's target from the root of the repository.
fn resolve(page: &str, target: &str) -> String {
    let folder = if page == CONTENTS { "" } else { page.rsplit_once('/').map_or("", |(folder, _)| folder) };
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/').filter(|part| !["", "."].contains(part)) {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// Returns true if the repository has this file or folder.
fn is_in(tree: &Tree, path: &str) -> bool {
    tree.contains_key(path) || tree.keys().any(|file| file.starts_with(&format!("{path}/")))
}
