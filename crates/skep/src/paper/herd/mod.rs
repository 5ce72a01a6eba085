//! HERD's evaluation, measured on this machine where it can be.
//!
//! HERD's numbers are those of RDMA NICs in a cluster. Skep's RDMA transport needs such a NIC and is not measured here,
//! so no published rate is measured. An [`Item`] lists its published numbers, each with the reason why it is not
//! measured. It measures Skep's other transports in their place, under names of their own. The paper's statements about
//! shapes, such as the gain of prefetching, are judged by ratios of these measurements.
//!
//! ```text
//! papers/herd-*.csv ─▶ published: row, verdict, reason
//! a server here     ─▶ curves: medians with their spread  ─▶ statements: ratio, verdict
//! ```
//!
//! These items measure time. The same seed does not write the same bytes. Figures 4 and 6 are no items here:
//! [`skep_nic::paper`] has them, on the model of an RDMA NIC.

mod claims;
mod fig05;
mod fig07;
mod published;
mod report;
mod verdict;

use std::time::Duration;

use skep_measure::{Figure, SLICE};
use skep_nic::paper::Axis;

use crate::failure::Failure;
pub(super) use published::Published;
pub(super) use report::{HerdReport, csv, html, markdown, text};
pub(super) use verdict::Verdict;

/// All items, in the order of the paper.
pub(super) const ITEMS: &[Item] = &[fig05::ITEM, fig07::ITEM, claims::ITEM];

/// Published figures that are not items, with the reasons.
pub(super) const NO_ITEMS: &[(&str, &str)] = &[
    ("Figures 2 and 3", "they measure single verbs of an RDMA NIC"),
    ("Figures 4 and 6", "herd-fig04 and herd-fig06 have them on the model of an RDMA NIC"),
    ("the curves of Figures 2 to 7", "only their axes and the numbers in the text are available"),
];

/// The published statements of all figures.
const CLAIMS: &str = include_str!("../../../papers/herd-claims.csv");

/// Measures an item. Calls the closure with the share that is done.
type Run = fn(&Plan, &mut dyn FnMut(f64)) -> Result<Found, Failure>;

/// A figure of HERD, or the statements of its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// Its name: `herd-fig05`.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The published numbers, as the text of their file.
    pub(super) paper: &'static str,
    pub(super) x: Axis,
    /// The axis of all curves.
    pub(super) y: Axis,
    run: Run,
}

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    rounds: u64,
    slice: Duration,
    /// Records in the store of which GETs are compared with ECHOs.
    records: u64,
    /// Bytes whose lines are read at random; half of them, and so on, if the system does not have them.
    lines_memory: u64,
}

impl Plan {
    /// The plan of a measurement.
    pub(super) const FULL: Plan = Plan { rounds: 9, slice: SLICE, records: 1_000_000, lines_memory: 4 << 30 };

    /// A plan for tests, which need no times.
    #[cfg(test)]
    pub(super) const TINY: Plan =
        Plan { rounds: 2, slice: Duration::from_millis(1), records: 1000, lines_memory: 64 << 20 };
}

/// What an item has found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// All published numbers of the item.
    pub(super) published: Vec<Published>,
    /// What was measured here.
    pub(super) curves: Vec<Curve>,
    /// The statements that the curves confirm or refute.
    pub(super) statements: Vec<Statement>,
    /// The conditions of the run.
    pub(super) setting: String,
}

/// Figures that were measured here.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    /// Million operations per second.
    pub(super) points: Vec<(f64, Figure)>,
}

/// A statement that a ratio of measured rates is at least a number.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) ratio: Figure,
    pub(super) at_least: f64,
}

impl Statement {
    pub(super) fn verdict(&self) -> Verdict {
        Verdict::of(&self.ratio, self.at_least)
    }
}

impl Item {
    /// Returns the item with this name.
    #[cfg(test)]
    fn named(name: &str) -> Option<&'static Item> {
        ITEMS.iter().find(|item| item.name == name)
    }

    /// Measures the item in a thread of its own, which is pinned to a core. Calls `progress` with the share that is
    /// done.
    pub(super) fn measure(&self, plan: &Plan, progress: &mut (dyn FnMut(f64) + Send)) -> Result<Found, Failure> {
        std::thread::scope(|scope| {
            let measuring = scope.spawn(|| (self.run)(plan, &mut |share| progress(share)));
            measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Returns the rates in millions.
fn millions(rates: &[f64]) -> Vec<f64> {
    rates.iter().map(|rate| rate / 1e6).collect()
}

#[cfg(test)]
mod tests {
    use super::{Item, published};

    #[test]
    fn all_rows_of_the_files_are_listed() {
        let listed = |item: &str| Item::named(item).unwrap().paper;
        assert_eq!(published::rows(listed("herd-fig05")).len(), 3);
        assert_eq!(published::rows(listed("herd-claims")).len(), 14);
        assert!(Item::named("herd-fig06").is_none());
        assert_eq!(published::rows(listed("herd-fig07")).iter().filter(|row| row.section.contains("Fig 7")).count(), 1);
    }
}
