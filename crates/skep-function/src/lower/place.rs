//! Lowers places: reads and writes locals, fields and elements.
//!
//! A place has no address. A local is a list of variables, so a field is a part of the list. An element whose index is not
//! known is selected from all elements, and written by selecting the new value in its position.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::Variable;
use skep_core::operation::OperationError;

use super::{Lowering, Stop, Values};
use crate::tree::{Expr, Initializer, Kind};
use crate::types::{Number, Type};

/// A step from a value to a part of it.
enum Step {
    /// The part begins with this leaf.
    Part(usize),
    /// The element with this index, of `count` elements.
    Element { index: Value, count: usize },
}

/// A place whose indexes are computed: the local, and the steps to the part, each with the number of its leaves.
pub(super) struct Found {
    local: Option<usize>,
    /// The value that is read, if it is no local.
    value: Values,
    steps: Vec<FoundStep>,
}

struct FoundStep {
    step: Step,
    leaf_count: usize,
}

impl<'a> Lowering<'a, '_> {
    /// Reads a place.
    pub(super) fn read(&mut self, place: &'a Expr) -> Result<Values, Stop> {
        let found = self.find(place)?;
        Ok(self.read_found(&found))
    }

    /// Writes a place of a local.
    pub(super) fn write(&mut self, place: &'a Expr, new: &[Value]) -> Result<(), Stop> {
        let found = self.find(place)?;
        self.write_found(&found, new);
        Ok(())
    }

    /// Reads a place whose indexes are computed.
    pub(super) fn read_found(&mut self, found: &Found) -> Values {
        let (mut values, steps) = match found.local {
            // Fields of a local are read alone.
            Some(local) => {
                let (variables, steps) = self.part_of_local(local, &found.steps);
                (variables.into_iter().map(|variable| self.builder.use_var(variable)).collect(), steps)
            }
            None => (found.value.clone(), found.steps.as_slice()),
        };
        for step in steps {
            values = match step.step {
                Step::Part(first) => values[first..first + step.leaf_count].to_vec(),
                Step::Element { index, count } => self.select_element(&values, index, count),
            };
        }
        values
    }

    /// Writes a place of a local whose indexes are computed.
    pub(super) fn write_found(&mut self, found: &Found, new: &[Value]) {
        let local = found.local.expect("only locals are assigned");
        let (variables, steps) = self.part_of_local(local, &found.steps);
        let old: Values = variables.iter().map(|variable| self.builder.use_var(*variable)).collect();
        let values = self.replace(&old, steps, new);
        for (variable, value) in variables.into_iter().zip(values) {
            self.builder.def_var(variable, value);
        }
    }

    /// Returns the variables of the part of a local to which the first steps lead, and the steps that are left.
    fn part_of_local<'s>(&self, local: usize, steps: &'s [FoundStep]) -> (Vec<Variable>, &'s [FoundStep]) {
        let variables = self.frame().locals[local].as_ref().expect("a local has a value before it is used");
        let mut variables = variables.as_slice();
        let mut rest = steps;
        while let [FoundStep { step: Step::Part(first), leaf_count }, others @ ..] = rest {
            variables = &variables[*first..first + leaf_count];
            rest = others;
        }
        (variables.to_vec(), rest)
    }

    /// Computes the indexes of a place, from left to right, and checks that they are in their arrays.
    pub(super) fn find(&mut self, place: &'a Expr) -> Result<Found, Stop> {
        match &place.kind {
            Kind::Local(local) => Ok(Found { local: Some(*local), value: Vec::new(), steps: Vec::new() }),
            Kind::Field(base, first) => {
                let mut found = self.find(base)?;
                let leaf_count = self.tree.records.leaf_count(&place.ty);
                found.steps.push(FoundStep { step: Step::Part(*first), leaf_count });
                Ok(found)
            }
            Kind::Index(base, index) => {
                let mut found = self.find(base)?;
                let Type::Array(_, count) = base.ty else { unreachable!("only arrays are indexed") };
                let leaf_count = self.tree.records.leaf_count(&place.ty);
                let index = self.single(index)?;
                let step = match self.known_int(index).and_then(|index| usize::try_from(index).ok()) {
                    Some(known) if known < count => Step::Part(known * leaf_count),
                    _ => {
                        self.scalar_only()?;
                        let length = self.int(Number::Usize, count as i128)?;
                        let outside = self.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, index, length);
                        self.fail_if(outside, OperationError::IndexOutOfRange)?;
                        Step::Element { index, count }
                    }
                };
                found.steps.push(FoundStep { step, leaf_count });
                Ok(found)
            }
            _ => Ok(Found { local: None, value: self.expr(place)?, steps: Vec::new() }),
        }
    }

    /// Returns the element with an index that is not known. The bits of the index select halves of what is left.
    fn select_element(&mut self, values: &[Value], index: Value, count: usize) -> Values {
        let leaf_count = values.len() / count;
        let mut elements: Vec<Values> = values.chunks(leaf_count).map(<[Value]>::to_vec).collect();
        let mut bit = 0;
        while elements.len() > 1 {
            let shifted = self.ins().ushr_imm_u(index, bit);
            let low = self.ins().band_imm_u(shifted, 1);
            let is_odd = self.ins().icmp_imm_u(IntCC::NotEqual, low, 0);
            let mut halved = Vec::new();
            for pair in elements.chunks(2) {
                halved.push(match pair {
                    [even, odd] => even.iter().zip(odd).map(|(even, odd)| self.select(is_odd, *odd, *even)).collect(),
                    _ => pair[0].clone(),
                });
            }
            elements = halved;
            bit += 1;
        }
        elements.remove(0)
    }

    /// Returns a value in which the part at the end of the steps is replaced.
    fn replace(&mut self, old: &[Value], steps: &[FoundStep], new: &[Value]) -> Values {
        let Some((step, rest)) = steps.split_first() else { return new.to_vec() };
        match step.step {
            Step::Part(first) => {
                let mut values = old.to_vec();
                let range = first..first + step.leaf_count;
                let part = self.replace(&old[range.clone()], rest, new);
                values[range].copy_from_slice(&part);
                values
            }
            Step::Element { index, count } => {
                let mut values = Vec::new();
                for (position, element) in old.chunks(old.len() / count).enumerate() {
                    let here = self.ins().icmp_imm_u(IntCC::Equal, index, position as i64);
                    let changed = self.replace(element, rest, new);
                    for (old, new) in element.iter().zip(changed) {
                        values.push(self.select(here, new, *old));
                    }
                }
                values
            }
        }
    }

    /// Lowers a new record. Its fields are computed in the order in which they are written.
    pub(super) fn record(&mut self, ty: &Type, fields: &'a [Initializer]) -> Result<Values, Stop> {
        let mut parts = Vec::new();
        for field in fields {
            parts.push((field.first, self.expr(&field.value)?));
        }
        parts.sort_by_key(|part| part.0);
        let values: Values = parts.into_iter().flat_map(|part| part.1).collect();
        debug_assert_eq!(values.len(), self.tree.records.leaf_count(ty), "every field has a value");
        Ok(values)
    }
}
