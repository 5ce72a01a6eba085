//! The time to register a module: it is parsed, checked and compiled.

use std::time::Instant;

use skep_measure::{Effort, Figure, Rounds, Row, median};

use super::Run;
use super::lambda::LIMITS;
use super::report::Line;
use crate::durability::Bar;

/// Modules that are compiled in a round.
const COUNT: usize = 10;
/// The least number of rounds: 50 modules.
const ROUNDS_MIN: usize = 5;
/// The goal, in milliseconds.
const GOAL: Bar = Bar::AtMost(20.0);
/// About how many seconds a module takes.
const MODULE_SECONDS: f64 = 5e-3;

fn rounds(run: &Run<'_>) -> Rounds {
    let effort = Effort { rounds: run.plan.effort.rounds.max(ROUNDS_MIN), ..run.plan.effort };
    Rounds::new(effort, vec![Row::new("registering a module", 1)]).with_seconds(COUNT as f64 * MODULE_SECONDS)
}

/// Returns about how many seconds the section takes.
pub(super) fn expected_seconds(run: &Run<'_>) -> f64 {
    rounds(run).expected_seconds()
}

/// Measures, and returns the line of the report.
pub(super) fn run(run: &Run<'_>) -> Result<Vec<Line>, String> {
    let samples = rounds(run).run(run.progress, |_| {
        let compile = || {
            let begun = Instant::now();
            let module = skep_function::compile(LIMITS).map_err(|error| error.to_string());
            module.map(|_| begun.elapsed().as_secs_f64() * 1e3)
        };
        (0..COUNT).map(|_| compile()).collect::<Result<Vec<f64>, String>>().map(|times: Vec<f64>| median(&times))
    })?;
    let name = format!("registering a module of {} lines", LIMITS.trim().lines().count());
    let from = format!("{} modules, one after another", COUNT * samples[0][0].len());
    Ok(vec![Line { name, figure: Figure::of(&samples[0][0]), unit: "ms", goal: Some(GOAL), from }])
}
