//! Lowers expressions: one function for the kinds, and the small ones.

use cranelift_codegen::ir::{self, BlockArg, InstBuilder, Value};

use super::{Exit, Lowering, Returned, Stop, Values};
use crate::tree::{Arm, Binary, Expr, Function, Kind, Statement};
use crate::types::{Number, Type};

impl<'a> Lowering<'a, '_> {
    /// Lowers an expression, and returns its numbers.
    pub(super) fn expr(&mut self, expr: &'a Expr) -> Result<Values, Stop> {
        self.check_length()?;
        match &expr.kind {
            Kind::Unit => Ok(Vec::new()),
            Kind::Bool(value) => Ok(vec![self.bool(*value)]),
            Kind::Int(value) => {
                let number = self.number(&expr.ty);
                Ok(vec![self.int(number, *value)?])
            }
            Kind::Float(digits) => {
                let number = self.number(&expr.ty);
                // A literal is rounded once, to its own type.
                let value = match number {
                    Number::F32 => f64::from(digits.parse::<f32>().expect("digits of a float")),
                    _ => digits.parse().expect("digits of a float"),
                };
                Ok(vec![self.float(number, value)?])
            }
            Kind::FloatValue(value) => {
                let number = self.number(&expr.ty);
                Ok(vec![self.float(number, *value)?])
            }
            Kind::Local(_) | Kind::Field(..) | Kind::Index(..) => self.read(expr),
            Kind::Record(fields) => self.record(&expr.ty, fields),
            Kind::Array(elements) => {
                let mut values = Vec::new();
                for element in elements {
                    values.extend(self.expr(element)?);
                }
                Ok(values)
            }
            Kind::Repeat(element, count) => Ok(self.expr(element)?.repeat(*count)),
            Kind::Block(statements, tail) => self.block(statements, tail.as_deref()),
            Kind::If(condition, then, other) => {
                let condition = self.single(condition)?;
                let leaves = self.leaves(&expr.ty);
                self.choose(condition, &leaves, &mut |lowering| lowering.expr(then), &mut |lowering| match other {
                    Some(other) => lowering.expr(other),
                    None => Ok(Vec::new()),
                })
            }
            Kind::Match(value, arms) => {
                let number = if value.ty == Type::Bool { None } else { Some(self.number(&value.ty)) };
                let value = self.single(value)?;
                self.arms(value, number, reachable(arms), &expr.ty)
            }
            Kind::And(one, two) => self.shortcut(one, two, true),
            Kind::Or(one, two) => self.shortcut(one, two, false),
            Kind::Call(function, arguments) => {
                let mut values = Vec::new();
                for argument in arguments {
                    values.push(self.expr(argument)?);
                }
                let function: &'a Function = &self.tree.functions[*function];
                Ok(self.inline(function, &values)?.result)
            }
            Kind::Assign(place, value) => {
                let values = self.expr(value)?;
                self.write(place, &values)?;
                Ok(Vec::new())
            }
            Kind::AssignBinary(op, place, value) => self.assign_binary(*op, place, value),
            Kind::Return(value) => self.return_value(value.as_deref()),
            _ => Ok(vec![self.number_expr(expr)?]),
        }
    }

    /// Lowers an expression whose value is one number or bool.
    pub(super) fn single(&mut self, expr: &'a Expr) -> Result<Value, Stop> {
        Ok(self.expr(expr)?[0])
    }

    /// Lowers operators, conversions and methods.
    fn number_expr(&mut self, expr: &'a Expr) -> Result<Value, Stop> {
        match &expr.kind {
            Kind::Negate(operand) => {
                // First: an operand that returns has no number type.
                let value = self.single(operand)?;
                let number = self.number(&expr.ty);
                Ok(if number.is_float() { self.ins().fneg(value) } else { self.ins().ineg(value) })
            }
            Kind::Not(operand) => {
                let value = self.single(operand)?;
                Ok(if expr.ty == Type::Bool { self.not(value) } else { self.ins().bnot(value) })
            }
            Kind::Binary(op, one, two) => {
                let first = self.single(one)?;
                if op.is_shift() {
                    return self.shift(*op, self.number(&one.ty), first, two);
                }
                let second = self.single(two)?;
                // A literal may have the type of the other operand.
                let ty = if matches!(one.ty, Type::Never) { &two.ty } else { &one.ty };
                self.operator(*op, ty, first, second)
            }
            Kind::Cast(operand) => {
                let to = self.number(&expr.ty);
                let value = self.single(operand)?;
                if operand.ty == Type::Bool {
                    self.bool_to_int(value, to)
                } else {
                    self.cast(value, self.number(&operand.ty), to)
                }
            }
            Kind::Round(half, operand) => {
                let value = self.single(operand)?;
                self.scalar_only()?;
                let bits = self.half_bits(*half, value);
                Ok(self.half_value(*half, bits))
            }
            Kind::Method(method, operands) => self.method(*method, operands),
            other => unreachable!("{} is lowered elsewhere", std::any::type_name_of_val(other)),
        }
    }

    /// Computes an operator that is no shift.
    pub(super) fn operator(&mut self, op: Binary, ty: &Type, one: Value, two: Value) -> Result<Value, Stop> {
        match ty {
            Type::Bool => Ok(self.bool_operator(op, one, two)),
            ty => {
                let number = self.number(ty);
                if number.is_float() {
                    self.float_operator(op, number, one, two)
                } else {
                    self.integer_operator(op, number, one, two)
                }
            }
        }
    }

    fn block(&mut self, statements: &'a [Statement], tail: Option<&'a Expr>) -> Result<Values, Stop> {
        for statement in statements {
            match statement {
                Statement::Let(local, value) => {
                    let values = self.expr(value)?;
                    self.define_local(*local, &values);
                }
                Statement::Expr(expr) => {
                    self.expr(expr)?;
                }
            }
        }
        tail.map_or(Ok(Vec::new()), |tail| self.expr(tail))
    }

    /// Computes `one && two`, or `one || two`.
    fn shortcut(&mut self, one: &'a Expr, two: &'a Expr, is_and: bool) -> Result<Values, Stop> {
        let first = self.single(one)?;
        let known = &mut |lowering: &mut Self| Ok(vec![lowering.bool(!is_and)]);
        let second = &mut |lowering: &mut Self| lowering.expr(two);
        let leaves = [crate::types::Leaf::Bool];
        if is_and { self.choose(first, &leaves, second, known) } else { self.choose(first, &leaves, known, second) }
    }

    /// Lowers the arms of a match. The last one accepts all values that are left.
    fn arms(&mut self, value: Value, number: Option<Number>, arms: &'a [Arm], ty: &Type) -> Result<Values, Stop> {
        self.check_length()?;
        let (arm, rest) = arms.split_first().expect("a match that accepts all values has an arm");
        if let Some(local) = arm.binding {
            self.define_local(local, &[value]);
        }
        if rest.is_empty() {
            return self.expr(&arm.body);
        }
        let mut accepted = None;
        for range in &arm.ranges {
            let inside = self.is_in_range(value, number, *range)?;
            accepted = Some(match accepted {
                Some(before) => self.ins().bor(before, inside),
                None => inside,
            });
        }
        let accepted = match (accepted, &arm.guard) {
            (None, None) => return self.expr(&arm.body),
            (Some(accepted), None) => accepted,
            (None, Some(guard)) => self.single(guard)?,
            (Some(accepted), Some(guard)) => {
                let leaves = [crate::types::Leaf::Bool];
                let guarded =
                    self.choose(accepted, &leaves, &mut |lowering| lowering.expr(guard), &mut |lowering| {
                        Ok(vec![lowering.bool(false)])
                    })?;
                guarded[0]
            }
        };
        let leaves = self.leaves(ty);
        self.choose(accepted, &leaves, &mut |lowering| lowering.expr(&arm.body), &mut |lowering| {
            lowering.arms(value, number, rest, ty)
        })
    }

    fn assign_binary(&mut self, op: Binary, place: &'a Expr, value: &'a Expr) -> Result<Values, Stop> {
        let ty = place.ty.of_value();
        // The value is computed before the place. The indexes of the place are computed once: they may have effects.
        let second = if op.is_shift() { self.amount(value)? } else { self.single(value)? };
        let found = self.find(place)?;
        let before = self.read_found(&found)[0];
        let result = if op.is_shift() {
            let number = self.number(&ty);
            self.shift_by(op, number, before, second)?
        } else {
            self.operator(op, &ty, before, second)?
        };
        let result = match place.ty {
            Type::Half(half) => {
                let bits = self.half_bits(half, result);
                self.half_value(half, bits)
            }
            _ => result,
        };
        self.write_found(&found, &[result]);
        Ok(Vec::new())
    }

    fn return_value(&mut self, value: Option<&'a Expr>) -> Result<Values, Stop> {
        let values = match value {
            Some(value) => self.expr(value)?,
            None => Vec::new(),
        };
        if let Exit::Lanes(returns) = &self.frame().exit {
            let active = returns.active;
            let mask = match active {
                Some(mask) => mask,
                None => self.bool(true),
            };
            let element = self.first_local();
            let Exit::Lanes(returns) = &mut self.frame_mut().exit else { unreachable!("the form does not change") };
            returns.returned.push(Returned { mask, result: values, element });
            return Err(Stop::Ends);
        }
        let block = match self.frame().exit {
            Exit::Scalar(Some(block)) => block,
            _ => {
                let block = self.builder.create_block();
                for value in &values {
                    let ty: ir::Type = self.builder.func.dfg.value_type(*value);
                    self.builder.append_block_param(block, ty);
                }
                self.frame_mut().exit = Exit::Scalar(Some(block));
                block
            }
        };
        self.spend(values.len() as u32);
        let arguments: Vec<BlockArg> = values.into_iter().map(BlockArg::Value).collect();
        self.ins().jump(block, &arguments);
        Err(Stop::Ends)
    }
}

/// Returns the arms without guarded ones at the end. The arms before these accept all values.
fn reachable(arms: &[Arm]) -> &[Arm] {
    let last = arms.iter().rposition(|arm| arm.guard.is_none()).map_or(0, |index| index + 1);
    &arms[..last]
}
