//! Lowers branches: as blocks, or in lanes by computing both sides and selecting.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, Value};

use super::{Exit, Form, Lowering, Stop, Values};
use crate::tree::{Binary, Range};
use crate::types::{Leaf, Number};

/// One side of a branch.
type Side<'s, 'a, 'b> = &'s mut dyn FnMut(&mut Lowering<'a, 'b>) -> Result<Values, Stop>;

impl<'a, 'b> Lowering<'a, 'b> {
    /// Computes one side if the condition is true, else the other. The result has these leaves.
    pub(super) fn choose(
        &mut self,
        condition: Value,
        leaves: &[Leaf],
        then: Side<'_, 'a, 'b>,
        other: Side<'_, 'a, 'b>,
    ) -> Result<Values, Stop> {
        match self.form {
            Form::Scalar => self.choose_block(condition, leaves, then, other),
            Form::Lanes(_) => self.choose_lanes(condition, then, other),
        }
    }

    fn choose_block(
        &mut self,
        condition: Value,
        leaves: &[Leaf],
        then: Side<'_, 'a, 'b>,
        other: Side<'_, 'a, 'b>,
    ) -> Result<Values, Stop> {
        let sides: [Side<'_, 'a, 'b>; 2] = [then, other];
        let blocks = [self.builder.create_block(), self.builder.create_block()];
        self.ins().brif(condition, blocks[0], &[], blocks[1], &[]);
        let mut merge = None;
        for (block, side) in blocks.into_iter().zip(sides) {
            self.builder.switch_to_block(block);
            self.builder.seal_block(block);
            let values = match side(self) {
                Ok(values) => values,
                Err(Stop::Ends) => continue,
                Err(stop) => return Err(stop),
            };
            let merge = match merge {
                Some(merge) => merge,
                None => {
                    let block = self.builder.create_block();
                    for leaf in leaves {
                        let ty = self.type_of_leaf(*leaf)?;
                        self.builder.append_block_param(block, ty);
                    }
                    *merge.insert(block)
                }
            };
            // Each value is moved to the place where both sides leave it.
            self.spend(values.len() as u32);
            let arguments: Vec<BlockArg> = values.into_iter().map(BlockArg::Value).collect();
            self.ins().jump(merge, &arguments);
        }
        let merge = merge.ok_or(Stop::Ends)?;
        self.builder.switch_to_block(merge);
        self.builder.seal_block(merge);
        Ok(self.builder.block_params(merge).to_vec())
    }

    fn choose_lanes(
        &mut self,
        condition: Value,
        then: Side<'_, 'a, 'b>,
        other: Side<'_, 'a, 'b>,
    ) -> Result<Values, Stop> {
        let before = self.locals();
        let active = self.active();
        let mask = self.and_active(active, condition);
        self.set_active(Some(mask));
        let one = passed(then(self))?;
        let one_locals = self.locals();
        let one_active = self.active();
        self.set_locals(&before);
        let opposite = self.not(condition);
        let mask = self.and_active(active, opposite);
        self.set_active(Some(mask));
        let two = passed(other(self))?;
        let two_active = self.active();
        match (one, two) {
            (None, None) => Err(Stop::Ends),
            (None, Some(two)) => Ok(two),
            (Some(one), None) => {
                self.set_locals(&one_locals);
                self.set_active(one_active);
                Ok(one)
            }
            (Some(one), Some(two)) => {
                let two_locals = self.locals();
                let merged: Vec<Option<Values>> = one_locals
                    .into_iter()
                    .zip(two_locals)
                    .zip(&before)
                    .map(|((one, two), before)| {
                        before.as_ref()?;
                        let pairs = one?.into_iter().zip(two?);
                        Some(pairs.map(|(one, two)| self.select(condition, one, two)).collect())
                    })
                    .collect();
                self.set_locals(&merged);
                let active = match (one_active, two_active) {
                    (Some(one), Some(two)) if self.has_returned() => Some(self.ins().bor(one, two)),
                    _ => active,
                };
                self.set_active(active);
                Ok(one.into_iter().zip(two).map(|(one, two)| self.select(condition, one, two)).collect())
            }
        }
    }

    /// Returns the values of all locals, of all functions that are being inlined.
    fn locals(&mut self) -> Vec<Option<Values>> {
        let variables: Vec<_> = self.frames.iter().flat_map(|frame| frame.locals.clone()).collect();
        let read = |variables: Option<Vec<_>>| {
            Some(variables?.into_iter().map(|variable| self.builder.use_var(variable)).collect())
        };
        variables.into_iter().map(read).collect()
    }

    /// Sets the values of all locals. A local that has none now keeps its last one, which is not read again.
    fn set_locals(&mut self, values: &[Option<Values>]) {
        let variables: Vec<_> = self.frames.iter().flat_map(|frame| frame.locals.clone()).collect();
        for (variables, values) in variables.into_iter().zip(values) {
            let (Some(variables), Some(values)) = (variables, values) else { continue };
            for (variable, value) in variables.into_iter().zip(values) {
                self.builder.def_var(variable, *value);
            }
        }
    }

    fn active(&self) -> Option<Value> {
        match &self.frame().exit {
            Exit::Lanes(returns) => returns.active,
            Exit::Scalar(_) => None,
        }
    }

    fn set_active(&mut self, mask: Option<Value>) {
        if let Exit::Lanes(returns) = &mut self.frame_mut().exit {
            returns.active = mask;
        }
    }

    fn has_returned(&self) -> bool {
        matches!(&self.frame().exit, Exit::Lanes(returns) if !returns.returned.is_empty())
    }

    fn and_active(&mut self, active: Option<Value>, condition: Value) -> Value {
        match active {
            Some(active) => self.ins().band(active, condition),
            None => condition,
        }
    }

    /// Returns true where the value is in the range. A value without a number type is a bool.
    pub(super) fn is_in_range(&mut self, value: Value, number: Option<Number>, range: Range) -> Result<Value, Stop> {
        let Some(number) = number else {
            return Ok(if range.first == 1 { value } else { self.not(value) });
        };
        if range.first == range.last {
            let expected = self.int(number, range.first)?;
            return Ok(self.ins().icmp(IntCC::Equal, value, expected));
        }
        let mut inside = None;
        for (op, bound, is_open) in [
            (Binary::GreaterEqual, range.first, range.first <= number.min()),
            (Binary::LessEqual, range.last, range.last >= number.max()),
        ] {
            if !is_open {
                let bound = self.int(number, bound)?;
                let holds = self.integer_operator(op, number, value, bound)?;
                inside = Some(match inside {
                    Some(before) => self.ins().band(before, holds),
                    None => holds,
                });
            }
        }
        Ok(match inside {
            Some(inside) => inside,
            None => self.bool(true),
        })
    }
}

/// Returns the values of a side, or `None` if it returned from the function.
fn passed(side: Result<Values, Stop>) -> Result<Option<Values>, Stop> {
    match side {
        Ok(values) => Ok(Some(values)),
        Err(Stop::Ends) => Ok(None),
        Err(stop) => Err(stop),
    }
}
