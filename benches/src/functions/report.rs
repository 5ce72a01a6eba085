//! The table of the figures, each with its goal.

use skep_measure::Figure;

use crate::durability::Bar;
use crate::figures::cell;
use crate::tables::{Tables, table};

/// A figure.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    /// The median of the rounds; of a ratio, computed round by round.
    pub(super) figure: Figure,
    /// "×" for a ratio.
    pub(super) unit: &'static str,
    pub(super) goal: Option<Bar>,
    /// The numbers that it is computed from.
    pub(super) from: String,
}

impl Line {
    /// Returns the goal, and whether it is reached. Nothing is concluded from a noisy figure.
    fn goal(&self) -> String {
        let (sign, goal, is_reached) = match (self.goal, self.figure.median()) {
            (None, _) => return String::new(),
            (Some(Bar::AtLeast(goal)), median) => ("≥", goal, median.map(|median| median >= goal)),
            (Some(Bar::AtMost(goal)), median) => ("≤", goal, median.map(|median| median <= goal)),
        };
        let verdict = match is_reached {
            None => "?",
            Some(true) => "yes",
            Some(false) => "NO",
        };
        format!("{sign} {goal} {verdict}")
    }
}

/// Returns the table.
pub(super) fn tables(lines: &[Line], note: String) -> Tables {
    let rows = lines.iter().map(|line| {
        let figure = cell(&line.figure, |median| format!("{median:.2} {}", line.unit));
        vec![line.name.clone(), figure, line.goal(), line.from.clone()]
    });
    Tables { tables: vec![table(&["", "median", "goal", "from"], 1, rows)], note }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_compared_with_its_goal() {
        let goal = |goal: Bar, median: f64, spread: f64| {
            let figure = Figure::with_spread(median, spread);
            Line { name: String::new(), figure, unit: "×", goal: Some(goal), from: String::new() }.goal()
        };
        assert_eq!(goal(Bar::AtLeast(0.7), 0.7, 0.1), "≥ 0.7 yes");
        assert_eq!(goal(Bar::AtLeast(0.7), 0.6, 0.1), "≥ 0.7 NO");
        assert_eq!(goal(Bar::AtMost(20.0), 3.0, 0.1), "≤ 20 yes");
        assert_eq!(goal(Bar::AtMost(20.0), 3.0, 0.9), "≤ 20 ?");
    }
}
