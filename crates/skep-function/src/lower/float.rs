//! Lowers the operators and methods of floats.
//!
//! Every result has the same bits on every machine, except the bits of a NaN, which are made canonical where they can be
//! seen: where a float is stored, and by `to_bits`.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value};

use super::library::Library;
use super::{Form, Lowering, Stop, scalar_type};
use crate::tree::{Binary, Expr, Method};
use crate::types::Number;

/// Instructions that a division or a square root takes the time of.
const DIVISION_WORK: u32 = 10;

impl<'a> Lowering<'a, '_> {
    pub(super) fn float_operator(&mut self, op: Binary, number: Number, one: Value, two: Value) -> Result<Value, Stop> {
        self.type_of(number)?;
        Ok(match op {
            Binary::Add => self.ins().fadd(one, two),
            Binary::Subtract => self.ins().fsub(one, two),
            Binary::Multiply => self.ins().fmul(one, two),
            Binary::Divide => {
                self.spend(DIVISION_WORK);
                self.ins().fdiv(one, two)
            }
            Binary::Remainder => self.library(Library::Remainder, number, &[one, two])?,
            comparison => self.ins().fcmp(condition(comparison), one, two),
        })
    }

    /// Lowers a method of a number.
    pub(super) fn method(&mut self, method: Method, operands: &'a [Expr]) -> Result<Value, Stop> {
        let number = self.number(&operands[0].ty);
        // The amount of a rotation may have another width than the lanes, so `rotate` lowers it.
        let count = if matches!(method, Method::RotateLeft | Method::RotateRight) { 1 } else { operands.len() };
        let mut values = Vec::new();
        for operand in &operands[..count] {
            values.push(self.single(operand)?);
        }
        if method == Method::FromBits {
            let float = if number.width() == 4 { Number::F32 } else { Number::F64 };
            let ty = self.type_of(float)?;
            return Ok(self.cast_bits(values[0], ty));
        }
        if number.is_float() {
            self.float_method(method, number, &values)
        } else {
            self.integer_method(method, number, &values, operands)
        }
    }

    fn float_method(&mut self, method: Method, number: Number, values: &[Value]) -> Result<Value, Stop> {
        let one = values[0];
        Ok(match method {
            Method::Min => self.smaller_of(number, one, values[1], FloatCC::LessThan)?,
            Method::Max => self.smaller_of(number, one, values[1], FloatCC::GreaterThan)?,
            Method::Clamp => {
                let is_low = self.ins().fcmp(FloatCC::LessThan, one, values[1]);
                let raised = self.select(is_low, values[1], one);
                let is_high = self.ins().fcmp(FloatCC::GreaterThan, raised, values[2]);
                self.select(is_high, values[2], raised)
            }
            Method::Abs => self.ins().fabs(one),
            Method::Sqrt => {
                self.spend(DIVISION_WORK);
                self.ins().sqrt(one)
            }
            Method::Floor => self.ins().floor(one),
            Method::Ceil => self.ins().ceil(one),
            Method::Trunc => self.ins().trunc(one),
            Method::Round => self.round(number, one)?,
            Method::RoundTiesEven => self.ins().nearest(one),
            Method::MultiplyAdd if self.host.has_fma => {
                // As on a machine without the instruction, so that all machines refuse the same functions.
                self.spend(Library::MultiplyAdd.work(number));
                self.ins().fma(one, values[1], values[2])
            }
            Method::MultiplyAdd => self.library(Library::MultiplyAdd, number, values)?,
            Method::IsNan => self.ins().fcmp(FloatCC::Unordered, one, one),
            Method::IsFinite | Method::IsInfinite => {
                let infinity = self.float(number, f64::INFINITY)?;
                let magnitude = self.ins().fabs(one);
                let op = if method == Method::IsFinite { FloatCC::LessThan } else { FloatCC::Equal };
                self.ins().fcmp(op, magnitude, infinity)
            }
            Method::ToBits => {
                let canonical = self.canonical(number, one)?;
                let ty = self.type_of(number.unsigned())?;
                self.cast_bits(canonical, ty)
            }
            Method::Exp => self.library(Library::Exp, number, values)?,
            Method::Ln => self.library(Library::Ln, number, values)?,
            Method::Power => self.library(Library::Power, number, values)?,
            Method::Sin => self.library(Library::Sin, number, values)?,
            Method::Cos => self.library(Library::Cos, number, values)?,
            Method::Tanh => self.library(Library::Tanh, number, values)?,
            other => unreachable!("{other:?} is no method of floats"),
        })
    }

    /// Returns the result of `min` or `max`. In lanes, the second operand is made canonical, which is done once if it is the
    /// same for all elements; the result is canonical then.
    fn smaller_of(&mut self, number: Number, one: Value, two: Value, comparison: FloatCC) -> Result<Value, Stop> {
        if self.form == Form::Scalar {
            return Ok(self.smaller_float(one, two, comparison));
        }
        let two = self.canonical(number, two)?;
        let smaller = self.smaller_float(one, two, comparison);
        self.canonical.insert(smaller);
        Ok(smaller)
    }

    /// Returns `two` if it is less than `one`, or greater, by the comparison, or if `one` is a NaN; else `one`.
    pub(super) fn smaller_float(&mut self, one: Value, two: Value, comparison: FloatCC) -> Value {
        let is_nan = self.ins().fcmp(FloatCC::Unordered, one, one);
        if let Form::Lanes(_) = self.form {
            // In this form, the comparison and the selection are one instruction of x86-64.
            let (less, more) = if comparison == FloatCC::LessThan { (two, one) } else { (one, two) };
            let is_two = self.ins().fcmp(FloatCC::LessThan, less, more);
            let smaller = self.select(is_two, two, one);
            return self.select(is_nan, two, smaller);
        }
        let is_two = self.ins().fcmp(comparison, two, one);
        let is_two = self.ins().bor(is_two, is_nan);
        self.select(is_two, two, one)
    }

    /// Rounds to the nearest integer, and a half away from zero.
    fn round(&mut self, number: Number, one: Value) -> Result<Value, Stop> {
        let whole = self.ins().trunc(one);
        let rest = self.ins().fsub(one, whole);
        let rest = self.ins().fabs(rest);
        let half = self.float(number, 0.5)?;
        let unit = self.float(number, 1.0)?;
        let is_up = self.ins().fcmp(FloatCC::GreaterThanOrEqual, rest, half);
        let step = self.copy_sign(number, unit, one)?;
        let next = self.ins().fadd(whole, step);
        Ok(self.select(is_up, next, whole))
    }

    /// Returns a positive number with the sign of another.
    fn copy_sign(&mut self, number: Number, positive: Value, sign: Value) -> Result<Value, Stop> {
        if self.form == Form::Scalar {
            return Ok(self.ins().fcopysign(positive, sign));
        }
        let bits = number.unsigned();
        let (bits_type, ty) = (self.type_of(bits)?, self.type_of(number)?);
        let mask = self.int(bits, 1 << (number.bits() - 1))?;
        let sign = self.cast_bits(sign, bits_type);
        let sign = self.ins().band(sign, mask);
        let positive = self.cast_bits(positive, bits_type);
        let signed = self.ins().bor(positive, sign);
        Ok(self.cast_bits(signed, ty))
    }

    /// Returns the number, or the canonical NaN for a NaN.
    pub(super) fn canonical(&mut self, number: Number, value: Value) -> Result<Value, Stop> {
        if self.canonical.contains(&value) {
            return Ok(value);
        }
        let is_nan = self.ins().fcmp(FloatCC::Unordered, value, value);
        let nan = self.float(number, f64::NAN)?;
        let canonical = self.select(is_nan, nan, value);
        self.canonical.insert(canonical);
        Ok(canonical)
    }

    /// Converts a number to another type, as `as` does.
    pub(super) fn float_to_float(&mut self, value: Value, from: Number, to: Number) -> Result<Value, Stop> {
        if from != to {
            self.scalar_only()?;
        }
        Ok(match (from, to) {
            (Number::F32, Number::F64) => self.ins().fpromote(scalar_type(to), value),
            (Number::F64, Number::F32) => self.ins().fdemote(scalar_type(to), value),
            _ => value,
        })
    }
}

fn condition(op: Binary) -> FloatCC {
    match op {
        Binary::Equal => FloatCC::Equal,
        Binary::NotEqual => FloatCC::NotEqual,
        Binary::Less => FloatCC::LessThan,
        Binary::LessEqual => FloatCC::LessThanOrEqual,
        Binary::Greater => FloatCC::GreaterThan,
        _ => FloatCC::GreaterThanOrEqual,
    }
}
