//! The published numbers: CSV files with `series,x,y` and, in some, `y_low,y_high`. Lines with `#` give their source
//! and how they were read.

/// A published point.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The curve of the point.
    pub series: String,
    /// Position on the x axis, or its name if that is not a number.
    pub x: String,
    /// The figure.
    pub y: f64,
    /// The ends of its error bar or range, if any.
    pub bounds: Option<(f64, f64)>,
}

impl Reference {
    /// Returns x as a number.
    ///
    /// # Panics
    /// If it is not a number. The caller knows the file.
    pub fn x(&self) -> f64 {
        self.x.parse().expect("this file has numbers on its x axis")
    }
}

/// Parses a file of this crate. Omits rows without y, which have only bounds.
///
/// # Panics
/// If the file is invalid. The files are compiled in, and a test parses all of them.
pub fn references(csv: &str) -> Vec<Reference> {
    let mut rows = csv.lines().filter(|line| !line.starts_with('#'));
    assert!(rows.next().is_some_and(|header| header.starts_with("series,x,y")), "no header");
    rows.filter_map(|row| {
        let mut cells = row.split(',');
        let mut cell = || cells.next().unwrap_or_default();
        let (series, x, y, low, high) = (cell().to_owned(), cell().to_owned(), cell(), cell(), cell());
        let bounds = low.parse().ok().zip(high.parse().ok());
        Some(Reference { series, x, y: y.parse().ok()?, bounds })
    })
    .collect()
}

/// Returns the source of the numbers: the `source:` line of a file.
pub fn source(csv: &str) -> &str {
    csv.lines().find_map(|line| line.strip_prefix("# source: ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let csv = "# source: Figure 0\n# note\nseries,x,y,y_low,y_high\na,32,1.5,,\nb,GET,2,1.75,3\nc,1,,0,\n";
        let rows = references(csv);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].series.as_str(), rows[0].x(), rows[0].y, rows[0].bounds), ("a", 32.0, 1.5, None));
        assert_eq!((rows[1].x.as_str(), rows[1].bounds), ("GET", Some((1.75, 3.0))));
        assert_eq!(source(csv), "Figure 0");
    }
}
