//! HERD's published numbers: CSV files with `series,x,y` and, for statements, `y_low,y_high,unit,where`.

use super::Verdict;

/// A row of a file.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(in crate::paper) struct Row {
    pub(in crate::paper) series: String,
    /// The quantity.
    pub(in crate::paper) x: String,
    y: Option<f64>,
    y_low: Option<f64>,
    y_high: Option<f64>,
    unit: String,
    /// Section of the paper.
    pub(in crate::paper) section: String,
}

/// A published number, and the verdict on it.
#[derive(Clone, Debug, serde::Serialize)]
pub(in crate::paper) struct Published {
    #[serde(flatten)]
    pub(in crate::paper) row: Row,
    pub(in crate::paper) verdict: Verdict,
    /// The reason for the verdict.
    pub(in crate::paper) reason: String,
}

impl Row {
    /// Returns the number, if the row has more than a bound.
    pub(super) fn value(&self) -> Option<f64> {
        self.y
    }

    /// Returns the number, or its range or bound, with its unit.
    pub(in crate::paper) fn number(&self) -> String {
        let number = match (self.y, self.y_low, self.y_high) {
            (Some(y), _, _) => y.to_string(),
            (None, Some(low), Some(high)) => format!("{low} to {high}"),
            (None, Some(low), None) => format!("≥ {low}"),
            (None, None, Some(high)) => format!("≤ {high}"),
            (None, None, None) => String::new(),
        };
        // The unit of a ratio is 1.
        if self.unit == "1" { number } else { format!("{number} {}", self.unit) }
    }

    /// Returns the row as a published number that is not measured.
    pub(super) fn not_measured(self, reason: impl Into<String>) -> Published {
        Published { row: self, verdict: Verdict::NotMeasured, reason: reason.into() }
    }
}

/// Parses a file of this crate. Rows without a unit have that of y in the `units:` line.
///
/// # Panics
/// If the file is invalid. The files are compiled in, and a test parses all of them.
pub(super) fn rows(csv: &str) -> Vec<Row> {
    let mut lines = csv.lines().filter(|line| !line.starts_with('#'));
    assert!(lines.next().is_some_and(|header| header.starts_with("series,x,y")), "no header");
    let of_y = csv.lines().find_map(|line| line.strip_prefix("# units: ")?.split_once("y = "));
    let unit_of_y = of_y.map(|(_, unit)| unit).unwrap_or_default();
    let row = |line: &str| {
        let mut cells = line.split(',');
        let mut cell = || cells.next().unwrap_or_default();
        let (series, x) = (cell().to_owned(), cell().to_owned());
        let (y, y_low, y_high) = (cell().parse().ok(), cell().parse().ok(), cell().parse().ok());
        let (unit, section) = (cell(), cell().to_owned());
        let unit = if unit.is_empty() { unit_of_y } else { unit }.to_owned();
        Row { series, x, y, y_low, y_high, unit, section }
    };
    lines.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ranges_and_bounds_are_read() {
        let csv = "# source: Figure 0\nseries,x,y,y_low,y_high,unit,where\na,b,26,,,Mops,5\na,c,,2,,times,5\na,d,,,60,B,5\n\
                   a,e,,1,2,1,5\n";
        let rows = rows(csv);
        let numbers: Vec<_> = rows.iter().map(Row::number).collect();
        assert_eq!(numbers, ["26 Mops", "≥ 2 times", "≤ 60 B", "1 to 2"]);
        assert_eq!(rows[0].section, "5");
        assert_eq!(super::rows("# units: x = name; y = M/s\nseries,x,y\na,b,1\n")[0].number(), "1 M/s");
    }
}
