//! The two text formats of the metrics, and the choice between them by the request's header `Accept`.
//!
//! | | OpenMetrics 1.0 | Prometheus text 0.0.4 |
//! |---|---|---|
//! | for | clients that name it, such as Prometheus | all others, such as curl, promtool and older agents |
//! | a counter's `HELP` and `TYPE` | the name of the family | the name of its sample, with `_total` |
//! | end | `# EOF` | |

use std::borrow::Cow;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    /// Returns the format for a request with these values of `Accept`: OpenMetrics if the client names it, and prefers no
    /// other.
    pub(super) fn accepted<'a>(values: impl Iterator<Item = &'a str>) -> Format {
        // The weights of both: 0 if they are not acceptable.
        let (mut open_metrics, mut plain) = (0.0_f64, 0.0_f64);
        for range in values.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let weight = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
                "application/openmetrics-text" => &mut open_metrics,
                "text/plain" | "text/*" | "*/*" => &mut plain,
                _ => continue,
            };
            let own = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            *weight = weight.max(own.map_or(1.0, |own| own.trim().parse().unwrap_or(0.0)));
        }
        if open_metrics > 0.0 && open_metrics >= plain { Format::OpenMetrics } else { Format::Prometheus }
    }

    /// Returns the type of the content.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts metrics from OpenMetrics.
    pub(super) fn convert(self, metrics: String) -> String {
        match self {
            Format::OpenMetrics => metrics,
            Format::Prometheus => to_prometheus(&metrics),
        }
    }
}

/// Converts metrics to Prometheus's text format.
fn to_prometheus(metrics: &str) -> String {
    const COUNTER: &str = " counter";
    let mut text = String::with_capacity(metrics.len());
    // `HELP` is before `TYPE`, which has the kind of the metric.
    let mut help: Option<(&str, &str)> = None;
    for line in metrics.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
            continue;
        }
        let Some(family) = line.strip_prefix("# TYPE ") else {
            text.extend([line, "\n"]);
            continue;
        };
        let (name, kind) = match family.strip_suffix(COUNTER) {
            Some(name) => (Cow::from(format!("{name}_total")), "counter"),
            None => family.split_once(' ').map_or((Cow::from(family), "untyped"), |(name, kind)| (name.into(), kind)),
        };
        if let Some((_, help)) = help.take() {
            text.extend(["# HELP ", &name, " ", help, "\n"]);
        }
        text.extend(["# TYPE ", &name, " ", kind, "\n"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn a_client_gets_the_format_that_it_prefers() {
        let of_prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,\
                             text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            (&[of_prometheus][..], Format::OpenMetrics),
            (&["application/openmetrics-text"], Format::OpenMetrics),
            (&["Application/OpenMetrics-Text; version=1.0.0", "*/*"], Format::OpenMetrics),
            (&["text/plain;version=0.0.4;q=0.6, application/openmetrics-text;q=0.5"], Format::Prometheus),
            (&["application/openmetrics-text;q=0"], Format::Prometheus),
            (&["text/plain;version=0.0.4"], Format::Prometheus),
            (&["text/html,application/xhtml+xml,*/*;q=0.8"], Format::Prometheus),
            (&["*/*"], Format::Prometheus),
            (&["application/*"], Format::Prometheus),
            (&["", ";;q=,,q"], Format::Prometheus),
            (&[], Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept.iter().copied()), format, "{accept:?}");
        }
    }

    #[test]
    fn counters_are_named_by_their_samples() {
        let metrics = "# HELP a_keys Keys.\n# TYPE a_keys gauge\na_keys{space=\"# EOF\"} 5\n\
                       # HELP a_hits Hits of it.\n# TYPE a_hits counter\na_hits_total 7\n# EOF\n";
        let expected = "# HELP a_keys Keys.\n# TYPE a_keys gauge\na_keys{space=\"# EOF\"} 5\n\
                        # HELP a_hits_total Hits of it.\n# TYPE a_hits_total counter\na_hits_total 7\n";
        assert_eq!(Format::Prometheus.convert(metrics.to_owned()), expected);
        assert_eq!(Format::OpenMetrics.convert(metrics.to_owned()), metrics);
    }
}
