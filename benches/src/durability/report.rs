//! The result of a run: each figure with its bar, as a table and as JSON.

use skep_measure::Figure;

use super::Section;
use crate::figures::cell;
use crate::plot::{Group, Plot, in_millions_text};
use crate::program::Measured;
use crate::results::Head;
use crate::tables::{Tables, table};

/// The result of a run.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The kind is `durability`.
    #[serde(flatten)]
    pub head: Head,
    /// Pairs of 10 bytes in every server.
    pub keys: u64,
    /// Seconds of each round of a side.
    pub seconds: f64,
    /// Rounds; for snapshots and starts at most 5.
    pub rounds: usize,
    /// True if the run only checked that everything works.
    pub quick: bool,
    /// The file system of the data directories.
    pub file_system: String,
    /// The core of the servers and that of the client.
    pub cores: [usize; 2],
    /// The figures.
    pub rows: Vec<Row>,
}

/// A figure.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Its group.
    pub section: Section,
    /// Its name.
    pub name: String,
    /// Its unit; "×" for a ratio.
    pub unit: String,
    /// The bar; `None` if the figure is only reported.
    pub bar: Option<Bar>,
    /// The median of the rounds.
    pub figure: Figure,
    /// The rounds.
    pub rounds: Vec<f64>,
    /// Why the figure cannot be compared with its bar, if that is so.
    pub objection: Option<String>,
    /// The numbers that it is computed from.
    pub from: String,
}

/// The number that a figure must reach.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// The figure is at least this.
    AtLeast(f64),
    /// The figure is at most this.
    AtMost(f64),
}

impl Row {
    /// Returns a figure of these rounds.
    pub(super) fn new(section: Section, name: String, unit: &str, bar: Option<Bar>, rounds: Vec<f64>) -> Row {
        let (figure, unit) = (Figure::of(&rounds), unit.to_owned());
        Row { section, name, unit, bar, figure, rounds, objection: None, from: String::new() }
    }

    /// Returns the figure of a ratio, calculated round by round.
    pub(super) fn of_ratio(
        section: Section,
        name: String,
        bar: Option<Bar>,
        numerator: &[f64],
        denominator: &[f64],
    ) -> Row {
        let rounds = numerator.iter().zip(denominator).map(|(above, below)| above / below).collect();
        Row::new(section, name, "×", bar, rounds)
    }

    /// Returns the figure in proportion to its bar: 1 or more if the bar is reached. `None` if there is no bar, or if they
    /// cannot be compared.
    pub fn of_bar(&self) -> Option<Figure> {
        let (bar, median, spread) = (self.bar?, self.figure.noisy_median()?, self.figure.spread());
        let number = match bar {
            Bar::AtLeast(bar) => median / bar,
            Bar::AtMost(bar) => bar / median,
        };
        self.objection.is_none().then(|| Figure::with_spread(number, spread))
    }

    /// Returns the median and half of the spread, and also the lowest and the highest round if they differ too much.
    fn measured(&self) -> String {
        let text = cell(&self.figure, |median| format!("{median:.2} {}", self.unit));
        if !self.figure.is_noisy() {
            return text;
        }
        let lowest = self.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = self.rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{text}, {lowest:.2} to {highest:.2}")
    }

    /// Compares the median with the bar, or all rounds if they differ too much.
    fn verdict(&self) -> String {
        match (self.bar, self.figure.median(), &self.objection) {
            (None, _, _) => "no bar".to_owned(),
            (_, _, Some(objection)) => objection.clone(),
            (Some(bar), None, None) if self.rounds.iter().all(|round| bar.is_reached(*round)) => {
                "reached in every round".to_owned()
            }
            (_, None, _) => "the rounds differ too much".to_owned(),
            (Some(bar), Some(median), None) if bar.is_reached(median) => "reached".to_owned(),
            _ => "not reached".to_owned(),
        }
    }
}

impl Bar {
    fn is_reached(self, number: f64) -> bool {
        match self {
            Bar::AtLeast(bar) => number >= bar,
            Bar::AtMost(bar) => number <= bar,
        }
    }

    fn text(self, unit: &str) -> String {
        match self {
            Bar::AtLeast(bar) => format!("≥ {bar} {unit}"),
            Bar::AtMost(bar) => format!("≤ {bar} {unit}"),
        }
    }
}

impl Report {
    /// Computes all figures from the rounds. Older results have no medians of noisy figures.
    pub(crate) fn compute(&mut self) {
        self.rows.iter_mut().for_each(|row| row.figure = Figure::of(&row.rounds));
    }
}

impl Measured for Report {
    fn head(&self) -> &Head {
        &self.head
    }

    fn plot(&self) -> Plot {
        let bars = self.rows.iter().filter_map(|row| Some((row.name.clone(), row.of_bar()?)));
        let name = "figure / bar, or bar / figure if less is better (reached: 1 or more)";
        let keys = in_millions_text(self.keys);
        let title = format!("{keys} million pairs of 8 + 2 B with a log and snapshots, one shard");
        Plot::new(title, self.origin(), vec![Group::new(name, bars)])
    }

    fn tables(&self) -> Tables {
        let figures = self.rows.iter().map(|row| {
            let bar = row.bar.map_or_else(|| "-".to_owned(), |bar| bar.text(&row.unit));
            vec![row.name.clone(), bar, row.measured(), row.verdict()]
        });
        let sources = self.rows.iter().map(|row| vec![row.name.clone(), row.from.clone()]);
        let quick = if self.quick { "A quick run: its figures say nothing. " } else { "" };
        let note = format!(
            "{quick}{} pairs of 10 B, half as many of 64 B, two fifths of 254 B; uniform puts, 16 connections × 64 unless stated; \
             medians of {} rounds of {} s, of snapshots and starts at most 5; ratios were calculated round by round. One shard; \
             servers on core {}, client on core {}, starts on all cores. Data directories on {}. Starts: to the first PONG.",
            self.keys, self.rounds, self.seconds, self.cores[0], self.cores[1], self.file_system,
        );
        let tables =
            vec![table(&["figure", "bar", "measured", ""], 1, figures), table(&["figure", "from"], 2, sources)];
        Tables { tables, note }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(bar: Option<Bar>, rounds: &[f64]) -> String {
        Row::new(Section::Second, String::new(), "×", bar, rounds.to_vec()).verdict()
    }

    #[test]
    fn the_number_chooses_the_verdict() {
        let (least, most) = (Some(Bar::AtLeast(0.8)), Some(Bar::AtMost(1.5)));
        assert_eq!(verdict(least, &[0.79, 0.8, 0.82]), "reached");
        assert_eq!(verdict(least, &[0.78, 0.79, 0.81]), "not reached");
        assert_eq!(verdict(most, &[1.4, 1.5, 1.6]), "reached");
        assert_eq!(verdict(most, &[1.5, 1.51, 1.6]), "not reached");
        assert_eq!(verdict(least, &[0.5, 1.0, 2.0]), "the rounds differ too much");
        assert_eq!(verdict(least, &[0.8, 1.5, 3.0]), "reached in every round");
        assert_eq!(verdict(most, &[0.5, 0.9, 1.6]), "the rounds differ too much");
        assert_eq!(verdict(None, &[1.0]), "no bar");
        let mut row = Row::new(Section::Second, String::new(), "×", least, vec![1.0]);
        row.objection = Some("the disk is the limit".to_owned());
        assert_eq!(row.verdict(), "the disk is the limit");
    }

    #[test]
    fn a_ratio_is_one_of_rounds() {
        let row = Row::of_ratio(Section::Second, String::new(), None, &[4.0, 9.0], &[2.0, 4.5]);
        assert_eq!((row.rounds, row.figure.median()), (vec![2.0, 2.0], Some(2.0)));
        let of_bar = |bar| Row::new(Section::Second, String::new(), "×", Some(bar), vec![2.0]).of_bar();
        let bar = |bar| of_bar(bar).and_then(|figure| figure.median());
        assert_eq!((bar(Bar::AtLeast(4.0)), bar(Bar::AtMost(4.0))), (Some(0.5), Some(2.0)));
    }
}
