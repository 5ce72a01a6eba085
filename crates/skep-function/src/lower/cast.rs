//! Lowers conversions with `as`.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::{Form, Lowering, Stop, scalar_type};
use crate::types::Number;

impl Lowering<'_, '_> {
    /// Converts a number. Floats saturate to integers, and a NaN becomes 0.
    pub(super) fn cast(&mut self, value: Value, from: Number, to: Number) -> Result<Value, Stop> {
        // In lanes, both types have the width of the lanes.
        let (_, ty) = (self.type_of(from)?, self.type_of(to)?);
        match (from.is_float(), to.is_float()) {
            (true, true) => self.float_to_float(value, from, to),
            (false, false) => Ok(self.int_to_int(value, from, to)),
            (false, true) => {
                self.whole_numbers_in_lanes(to)?;
                let (value, from) = match from.width() {
                    1 | 2 if from.is_signed() => (self.int_to_int(value, from, Number::I32), Number::I32),
                    1 | 2 => (self.int_to_int(value, from, Number::U32), Number::U32),
                    _ => (value, from),
                };
                self.spend(4);
                Ok(if from.is_signed() {
                    self.ins().fcvt_from_sint(ty, value)
                } else {
                    self.ins().fcvt_from_uint(ty, value)
                })
            }
            (true, false) => {
                self.whole_numbers_in_lanes(from)?;
                self.spend(8);
                if to.width() < 4 {
                    let wide = if to.is_signed() { Number::I32 } else { Number::U32 };
                    let value = self.cast(value, from, wide)?;
                    return self.clamp_wide(value, wide, to);
                }
                Ok(if to.is_signed() {
                    self.ins().fcvt_to_sint_sat(ty, value)
                } else {
                    self.ins().fcvt_to_uint_sat(ty, value)
                })
            }
        }
    }

    /// Stops if lanes cannot convert between integers and this type of floats.
    fn whole_numbers_in_lanes(&self, float: Number) -> Result<(), Stop> {
        match self.form {
            Form::Lanes(_) if float == Number::F64 => Err(Stop::NoLanes),
            _ => Ok(()),
        }
    }

    fn int_to_int(&mut self, value: Value, from: Number, to: Number) -> Value {
        let ty = scalar_type(to);
        match from.width().cmp(&to.width()) {
            std::cmp::Ordering::Less if from.is_signed() => self.ins().sextend(ty, value),
            std::cmp::Ordering::Less => self.ins().uextend(ty, value),
            std::cmp::Ordering::Equal => value,
            std::cmp::Ordering::Greater => self.ins().ireduce(ty, value),
        }
    }

    /// Converts a bool to 0 or 1.
    pub(super) fn bool_to_int(&mut self, value: Value, to: Number) -> Result<Value, Stop> {
        match self.form {
            Form::Scalar if to.width() == 1 => Ok(value),
            Form::Scalar => Ok(self.ins().uextend(scalar_type(to), value)),
            Form::Lanes(_) => {
                let unit = self.int(to, 1)?;
                Ok(self.ins().band(value, unit))
            }
        }
    }
}
