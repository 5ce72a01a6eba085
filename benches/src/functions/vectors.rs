//! Updates of vectors in a hash store inside this program, by a λ and by the built-in function of the same meaning, and
//! a copy of as many bytes.
//!
//! In cache, all values together have [`CACHED`] bytes: less than the second cache of a core. Out of cache, they have
//! as many as the plan says.

use std::hint::black_box;
use std::time::{Duration, Instant};

use skep_core::function::{Element, UpdateFunction, UserFunction};
use skep_core::operation::{CallReply, Operation, Shape, Update};
use skep_measure::{Figure, Rounds, Row, Work};

use super::Run;
use super::lambda::{self, BUILT_IN};
use super::report::Line;
use super::table::Table;
use crate::durability::Bar;

/// Bytes of all values together that are in cache.
const CACHED: usize = 256 << 10;
/// Bytes of the values that are in cache, and of those that are not.
const SIZES_IN: [usize; 2] = [1 << 10, 64 << 10];
const SIZES_OUT: [usize; 3] = [1 << 10, 64 << 10, 1 << 20];
/// The goals of a λ.
const GOALS: [Bar; 2] = [Bar::AtLeast(0.7), Bar::AtLeast(0.95)];
/// The goal of a built-in update against a copy.
const GOAL_COPY: Bar = Bar::AtLeast(0.6);
/// Bytes that are copied at once: much more than the caches hold.
const COPY_SIZE: usize = 64 << 20;
/// About how many seconds the fill of a store takes for each byte.
const BYTE_SECONDS: f64 = 1e-9;

/// The functions that are compared.
const FUNCTIONS: [Function; 3] = [
    Function {
        name: "add_f32",
        text: "f32 v + d",
        built_in: UpdateFunction::Add,
        element: Element::F32,
        operand: [0, 0, 0x80, 0x3e],
    },
    Function {
        name: "add_u32",
        text: "u32 v + d",
        built_in: UpdateFunction::Add,
        element: Element::U32,
        operand: [1, 0, 0, 0],
    },
    Function {
        name: "max_f32",
        text: "f32 v.max(d)",
        built_in: UpdateFunction::Max,
        element: Element::F32,
        operand: [0, 0, 0xc0, 0x3f],
    },
];

/// A λ and the built-in function of the same meaning.
struct Function {
    name: &'static str,
    text: &'static str,
    built_in: UpdateFunction,
    element: Element,
    operand: [u8; 4],
}

impl Function {
    /// Returns the update by the built-in function, and by the λ.
    fn operations(&'static self, functions: &'static [UserFunction]) -> Result<[Operation<'static>; 2], String> {
        let update = Update {
            function: self.built_in,
            element: self.element,
            shape: Shape::ScalarToVector,
            operand: &self.operand,
            initial: None,
            return_old: false,
        };
        Ok([Operation::Update(update), lambda::call(functions, self.name, &self.operand, CallReply::Nothing)?])
    }
}

/// A store of vectors of one size.
struct Vectors {
    size: usize,
    is_cached: bool,
    table: Table,
}

impl Vectors {
    fn new(size: usize, memory: Option<usize>) -> Result<Vectors, String> {
        let value: Vec<u8> = 1.0_f32.to_le_bytes().into_iter().cycle().take(size).collect();
        let count = (memory.unwrap_or(CACHED) / size).max(1);
        Ok(Vectors { size, is_cached: memory.is_none(), table: Table::new(count, &value)? })
    }

    fn name(&self) -> String {
        let size =
            if self.size < 1 << 20 { format!("{} KiB", self.size >> 10) } else { format!("{} MiB", self.size >> 20) };
        format!("{size} {} cache", if self.is_cached { "in" } else { "out of" })
    }
}

/// Memory that is copied from one half to the other.
struct Copied {
    halves: [Vec<u8>; 2],
    next: usize,
}

impl Copied {
    fn new(memory: usize) -> Copied {
        let half = (memory / 2).next_multiple_of(COPY_SIZE.min(memory));
        Copied { halves: [vec![1; half], vec![2; half]], next: 0 }
    }

    /// Copies pieces for this time. An operation is a copied byte.
    fn run(&mut self, at_least: Duration) -> Result<Work, String> {
        let mut work = Work::default();
        let [from, to] = &mut self.halves;
        let size = COPY_SIZE.min(from.len());
        while work.spent < at_least {
            let range = self.next..self.next + size;
            let begun = Instant::now();
            to[range.clone()].copy_from_slice(black_box(&from[range.clone()]));
            black_box(&mut *to);
            work.add(begun.elapsed(), size);
            self.next = if range.end + size > from.len() { 0 } else { range.end };
        }
        Ok(work)
    }
}

/// Returns about how many seconds the section takes.
pub(super) fn expected_seconds(run: &Run<'_>) -> f64 {
    fill_seconds(run) + rounds(run, &[]).expected_seconds()
}

fn fill_seconds(run: &Run<'_>) -> f64 {
    (SIZES_OUT.len() + 1) as f64 * run.memory() as f64 * BYTE_SECONDS
}

fn rounds(run: &Run<'_>, names: &[String]) -> Rounds {
    let count = FUNCTIONS.len() * (SIZES_IN.len() + SIZES_OUT.len());
    let name = |index: usize| names.get(index).cloned().unwrap_or_default();
    let rows = (0..count).map(|index| Row::new(name(index), 2)).chain([Row::new("copy", 2)]);
    Rounds::new(run.plan.effort, rows.collect())
}

/// Measures, and returns the lines of the report.
pub(super) fn run(run: &Run<'_>) -> Result<Vec<Line>, String> {
    run.progress.begin("filling stores with vectors", fill_seconds(run));
    let memory = run.memory();
    let cached = SIZES_IN.iter().map(|size| Vectors::new(*size, None));
    let others = SIZES_OUT.iter().map(|size| Vectors::new(*size, Some(memory)));
    let mut stores: Vec<Vectors> = cached.chain(others).collect::<Result<_, _>>()?;
    let mut copied = Copied::new(memory);
    let functions = lambda::compile(BUILT_IN)?;
    let operations: Vec<_> =
        FUNCTIONS.iter().map(|function| function.operations(functions)).collect::<Result<_, _>>()?;
    let names: Vec<String> = stores
        .iter()
        .flat_map(|store| FUNCTIONS.iter().map(|function| format!("{}, {}", function.text, store.name())))
        .collect();
    let index_copied = SIZES_IN.len();
    let samples = rounds(run, &names).run(run.progress, |turn| {
        let (store, operation) = match turn.row < names.len() {
            true => (&mut stores[turn.row / FUNCTIONS.len()], operations[turn.row % FUNCTIONS.len()][turn.side]),
            false if turn.side == 0 => (&mut stores[index_copied], operations[0][0]),
            false => return turn.rate(|at_least| copied.run(at_least)),
        };
        let size = store.size as f64;
        turn.rate(|at_least| store.table.run(operation, at_least)).map(|rate| rate * size)
    })?;
    let mut lines: Vec<Line> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let goal = GOALS[usize::from(!stores[index / FUNCTIONS.len()].is_cached)];
        lines.push(line(format!("λ / built-in: {name}"), &samples[index][1], &samples[index][0], goal));
    }
    let [update, copy] = [0, 1].map(|side| &samples[names.len()][side]);
    lines.push(line("built-in f32 v + d, 1 KiB out of cache / copy".to_owned(), update, copy, GOAL_COPY));
    Ok(lines)
}

fn line(name: String, ours: &[f64], theirs: &[f64], goal: Bar) -> Line {
    let speed = |rates: &[f64]| Figure::of(rates).text(|rate| format!("{:.1} GB/s", rate / 1e9));
    let from = format!("{} / {}", speed(ours), speed(theirs));
    Line { name, figure: Figure::of_ratio(ours, theirs), unit: "×", goal: Some(goal), from }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a λ and the built-in function change a value alike.
    #[test]
    fn both_sides_compute_the_same() {
        let functions = lambda::compile(BUILT_IN).unwrap();
        for function in &FUNCTIONS {
            let values = function.operations(functions).unwrap().map(|operation| {
                let mut store = Vectors::new(1 << 10, Some(1 << 10)).unwrap();
                store.table.run(operation, Duration::from_nanos(1)).unwrap();
                store.table.value()
            });
            assert_eq!(values[0], values[1], "{}", function.name);
            assert_ne!(values[0][..4], 1.0_f32.to_le_bytes(), "{}", function.name);
        }
    }
}
