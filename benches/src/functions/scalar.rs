//! Updates of single numbers, by a λ and by the built-in function, in batches over many keys.

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{CallReply, Operation, Shape, Update};
use skep_measure::{Figure, Rounds, Row};

use super::Run;
use super::lambda::{self, BUILT_IN};
use super::report::Line;
use super::table::Table;
use crate::durability::Bar;
use crate::figures::millions;

/// The cases, and the goal of the first.
const CASES: [&str; 2] = ["λ / built-in: u64 v + d, returns the old", "λ / built-in: u64 v + d, returns nothing"];
const GOAL: Bar = Bar::AtLeast(0.8);
/// Δ.
const OPERAND: [u8; 8] = 1_u64.to_le_bytes();
/// About how many seconds the fill of a store takes for each key.
const KEY_SECONDS: f64 = 300e-9;

/// Returns about how many seconds the section takes.
pub(super) fn expected_seconds(run: &Run<'_>) -> f64 {
    run.plan.keys as f64 * KEY_SECONDS + rounds(run).expected_seconds()
}

fn rounds(run: &Run<'_>) -> Rounds {
    Rounds::new(run.plan.effort, CASES.map(|name| Row::new(name, 2)).to_vec())
}

/// Measures, and returns the lines of the report.
pub(super) fn run(run: &Run<'_>) -> Result<Vec<Line>, String> {
    run.progress.begin("filling a store with numbers", run.plan.keys as f64 * KEY_SECONDS);
    let mut table = Table::new(run.plan.keys, &[0; 8])?;
    let functions = lambda::compile(BUILT_IN)?;
    let operations = [true, false].map(|return_old| {
        let update = Update {
            function: UpdateFunction::Add,
            element: Element::U64,
            shape: Shape::ScalarToScalar,
            operand: &OPERAND,
            initial: None,
            return_old,
        };
        let reply = if return_old { CallReply::Old } else { CallReply::Nothing };
        lambda::call(functions, "add_u64", &OPERAND, reply).map(|call| [Operation::Update(update), call])
    });
    let [with_old, without] = operations;
    let operations = [with_old?, without?];
    let samples = rounds(run)
        .run(run.progress, |turn| turn.rate(|at_least| table.run(operations[turn.row][turn.side], at_least)))?;
    let line = |(index, name): (usize, &&str)| {
        let [built_in, lambda] = [0, 1].map(|side| &samples[index][side]);
        let rate = |rates: &[f64]| Figure::of(rates).text(|rate| format!("{} M/s", millions(rate)));
        Line {
            name: (*name).to_owned(),
            figure: Figure::of_ratio(lambda, built_in),
            unit: "×",
            goal: (index == 0).then_some(GOAL),
            from: format!("{} / {}", rate(lambda), rate(built_in)),
        }
    };
    Ok(CASES.iter().enumerate().map(line).collect())
}
